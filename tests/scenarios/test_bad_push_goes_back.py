"""A bad push to everything, under a policy that says: go back by yourself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.model.protocol import CHANGE_SET
from homeostat.sim.world import Thing

BACK = {"massDrift": {"limit": "100%"}, "canary": {"onFailure": "Return", "verifyWithin": "10s"}}
"""Of a person who means to change all of them, and wants a change that fails taken back."""


def sick(thing: Thing) -> str:
    return "it does not answer" if thing.fields["colour"] == "typo" else ""


async def returns(fleet: Fleet) -> list[dict[str, Any]]:
    policy = await fleet.house.policies.get("things")
    return list((policy.get("status") or {}).get("returns") or ())


async def state(fleet: Fleet) -> str:
    found = await returns(fleet)
    return str(found[-1]["state"]) if found else ""


async def as_before(fleet: Fleet) -> bool:
    """Every declaration is back, every thing is as declared, and all of them are Ready."""
    found = await fleet.house.things.list()
    return (
        {thing["spec"]["colour"] for thing in found} == {"red"}
        and fleet.colours() == {"red": fleet.size}
        and all(_ready(thing) for thing in found)
    )


def _ready(thing: dict[str, Any]) -> bool:
    conditions = {one["type"]: one["status"] for one in thing["status"]["conditions"]}
    return thing["status"]["observedGeneration"] == thing["metadata"]["generation"] and conditions["Ready"] == "True"


async def _calm(fleet: Fleet) -> bool:
    return await fleet.halted_by() == ""


async def stands(fleet: Fleet, **policy: Any) -> None:
    await fleet.stand(policy={**BACK, **policy})
    fleet.world.sick = sick


async def pushed(fleet: Fleet) -> Figures:
    await stands(fleet)
    await fleet.declare("typo")
    told = await fleet.told()
    came = await fleet.until(lambda: as_before(fleet), 30, every=0.5)
    took = round(fleet.now - fleet.fault_at)
    (one,) = await returns(fleet)
    assert one["state"] == "Returned"
    assert one["returnedBy"] == "return-of/push"
    assert one["objects"] == fleet.size
    assert {t["metadata"]["annotations"][CHANGE_SET] for t in await fleet.house.things.list()} == {"return-of/push"}
    assert await fleet.until(lambda: _calm(fleet), 5, every=0.5)
    await asyncio.sleep(PASS)
    revision = fleet.house.revision
    await asyncio.sleep(3 * PASS)
    assert fleet.house.revision == revision, "nothing more is written"
    damage = await fleet.damage()
    await fleet.declare("blue", change_set="honest")
    fine = await fleet.until(lambda: fleet.colours() == {"blue": fleet.size}, PASS)
    return Figures(damage, fleet.size, told, f"by itself, in {took} s" if came and fine else "not")


@pytest.mark.parametrize("size", [1, 2, 50])
def test_only_the_canary_is_touched_and_every_declaration_goes_back(size: int) -> None:
    figures = live_through(pushed, size=size, seed=size)
    assert figures.damage == 1
    assert figures.told_after is not None
    assert figures.came_back.startswith("by itself")


async def refused(fleet: Fleet, because: str) -> Figures:
    """Nothing is taken back: what is declared stays, the change set stays halted, and the policy says why."""
    declared = {thing["metadata"]["name"]: thing["spec"] for thing in await fleet.house.things.list()}
    assert await fleet.until(lambda: _is(fleet, "Refused"), 60, every=0.5)
    (one,) = await returns(fleet)
    assert because in one["problem"]
    assert "returnedBy" not in one or not one["returnedBy"]
    assert await fleet.until(lambda: _says(fleet, f"could not be taken back: {one['problem']}"), 5, every=0.5)
    await asyncio.sleep(3 * PASS)
    assert {thing["metadata"]["name"]: thing["spec"] for thing in await fleet.house.things.list()} == declared
    assert await fleet.halted_by() == "canary"
    assert len(await returns(fleet)) == 1, "it is not tried again and again"
    return Figures(len(painted(fleet, "typo")), fleet.size, None, "halted")


def painted(fleet: Fleet, colour: str) -> set[str]:
    """What was given this colour since the fault."""
    return {call.name for call in fleet.world.calls[fleet.before :] if call.fields.get("colour") == colour}


async def _is(fleet: Fleet, wanted: str) -> bool:
    return await state(fleet) == wanted


async def _says(fleet: Fleet, words: str) -> bool:
    return words in await fleet.says()


async def with_a_newer_declaration(fleet: Fleet) -> Figures:
    await stands(fleet)
    await fleet.declare("typo")
    await fleet.declare("green", ["thing-007"], change_set="")
    return await refused(fleet, "Thing default/thing-007 was declared anew since")


async def without_a_name(fleet: Fleet) -> Figures:
    """What one writer wrote in one go is a change set, too: the server finds it by who and when."""
    await stands(fleet)
    await fleet.declare("typo", change_set="")
    came = await fleet.until(lambda: as_before(fleet), 60, every=0.5)
    (one,) = await returns(fleet)
    assert one["state"] == "Returned"
    assert "@" in one["changeSet"]
    return Figures(await fleet.damage(), fleet.size, None, "by itself" if came else "not")


def test_what_nobody_named_goes_back_too() -> None:
    figures = live_through(without_a_name)
    assert (figures.damage, figures.came_back) == (1, "by itself")


async def without_a_name_and_with_more(fleet: Fleet) -> Figures:
    await stands(fleet)
    await fleet.declare("typo", change_set="")
    await fleet.house.declare("extra-1", {"colour": "blue", "zone": ""})
    return await refused(fleet, "nobody named it, and Thing default/extra-1 would be deleted")


async def without_a_past(fleet: Fleet) -> Figures:
    await stands(fleet)
    await fleet.declare("typo")
    store, plane = fleet.house.server.store, fleet.house.server.plane
    await plane.history.let_go(store.revision, 0.0)
    return await refused(fleet, "is too old")


async def on_a_plain_cluster(fleet: Fleet) -> Figures:
    await stands(fleet)
    asked = fleet.house.server.ask

    async def ask(user: str, method: str, target: str, headers: Any, body: bytes) -> Any:
        return await asked(user, method, target.replace("/homeostat/", "/no-such-path/"), headers, body)

    fleet.house.server.ask = ask  # type: ignore[method-assign]
    await fleet.declare("typo")
    return await refused(fleet, "this server keeps no past")


@pytest.mark.parametrize("incident", [with_a_newer_declaration, without_a_name_and_with_more, without_a_past, on_a_plain_cluster])
def test_where_it_cannot_be_safe_nothing_is_taken_back_and_it_stays_halted(incident: Any) -> None:
    assert live_through(incident).damage == 1


async def frozen(fleet: Fleet) -> Figures:
    await stands(fleet)
    await fleet.declare("typo")
    await asyncio.sleep(5)
    await fleet.policy({"freezes": [{"reason": "hands off", "author": "ann"}]})
    await asyncio.sleep(3 * PASS)
    assert await returns(fleet) == []
    assert {thing["spec"]["colour"] for thing in await fleet.house.things.list()} == {"typo"}
    await fleet.policy({"freezes": []})
    came = await fleet.until(lambda: as_before(fleet), 3 * PASS)
    return Figures(await fleet.damage(), fleet.size, None, "by itself, when the freeze was lifted" if came else "not")


def test_behind_a_freeze_nothing_is_taken_back_until_a_person_lifts_it() -> None:
    figures = live_through(frozen)
    assert figures.damage == 1
    assert figures.came_back.startswith("by itself")


async def with_more_and_less(fleet: Fleet) -> Figures:
    """The push also makes what was not there."""
    await stands(fleet)
    await fleet.declare("typo")
    for name in ("extra-1", "extra-2"):
        await fleet.house.declare(name, {"colour": "blue", "zone": ""}, annotations={CHANGE_SET: "push"})
    assert await fleet.until(lambda: len(fleet.world.things) == fleet.size + 2, 5)
    came = await fleet.until(lambda: as_before(fleet), 2 * PASS)
    assert {thing["metadata"]["name"] for thing in await fleet.house.things.list()} == set(fleet.names)
    return Figures(await fleet.damage(), fleet.size, None, "by itself" if came else "not")


def test_what_the_change_set_had_made_goes() -> None:
    figures = live_through(with_more_and_less)
    assert figures.came_back == "by itself"
    assert figures.damage == 3  # the canary, and the two that were made


async def that_fails(fleet: Fleet) -> Figures:
    """What the push broke does not recover when it is taken back."""
    await stands(fleet)
    fleet.world.sick = lambda thing: "it is broken for good" if thing.name in painted(fleet, "typo") else ""
    await fleet.declare("typo")
    assert await fleet.until(lambda: _is(fleet, "Returned"), 60, every=0.5)
    assert await fleet.until(lambda: _says(fleet, "in wave 1 of change set return-of/push"), PASS)
    await asyncio.sleep(5 * PASS)
    assert len(await returns(fleet)) == 1
    (halt,) = (await fleet.house.policies.get("things"))["status"]["halts"]
    assert halt["changeSet"] == "return-of/push"
    sent = [call.fields["colour"] for call in fleet.world.calls[fleet.before :]]
    return Figures(await fleet.damage(), fleet.size, None, " then ".join(sent))


def test_a_return_that_fails_halts_and_is_not_returned_in_its_turn() -> None:
    assert live_through(that_fails).came_back == "typo then red"


async def again_by_the_same_name(fleet: Fleet) -> Figures:
    await stands(fleet)
    await fleet.declare("typo")
    assert await fleet.until(lambda: as_before(fleet), 60, every=0.5)
    await fleet.declare("typo")
    assert await fleet.until(lambda: _says(fleet, "was taken back as return-of/push, which is done once"), PASS)
    await asyncio.sleep(3 * PASS)
    assert {thing["spec"]["colour"] for thing in await fleet.house.things.list()} == {"typo"}
    return Figures(await fleet.damage(), fleet.size, None, " ".join(one["state"] for one in await returns(fleet)))


def test_a_change_set_is_taken_back_once() -> None:
    figures = live_through(again_by_the_same_name)
    assert figures.damage <= 2  # the canary of each time
    assert figures.came_back == "Returned"


async def of_one(fleet: Fleet) -> Figures:
    """The loop dies while the only thing of a change set waits for its verdict: the next one never heard of a wave."""
    await stands(fleet)
    await fleet.declare("typo", ["thing-003"])
    await asyncio.sleep(2)
    fleet.house.crash()
    await fleet.house.start_engine(fleet.gates, workers=16)
    came = await fleet.until(lambda: as_before(fleet), 3 * PASS)
    return Figures(await fleet.damage(), fleet.size, None, "by itself" if came else "not")


def test_a_verdict_that_got_lost_with_the_loop_is_a_failure_too() -> None:
    assert live_through(of_one).came_back == "by itself"


async def ill_later(fleet: Fleet) -> Figures:
    """What was still starting when the loop died, was well afterwards, and falls ill later, is not its change set's fault."""
    await stands(fleet)
    fleet.world.sick = lambda thing: "it is starting" if thing.fields["colour"] == "blue" else ""
    await fleet.declare("blue", ["thing-003"])
    await asyncio.sleep(2)
    fleet.house.crash()
    fleet.world.sick = lambda thing: ""
    await fleet.house.start_engine(fleet.gates, workers=16)
    await asyncio.sleep(2 * PASS)
    fleet.world.sick = lambda thing: "it is ill" if thing.fields["colour"] == "blue" else ""
    await asyncio.sleep(5 * PASS)
    assert await returns(fleet) == []
    return Figures(await fleet.damage(), fleet.size, None, "—")


def test_what_falls_ill_later_is_not_taken_back() -> None:
    assert live_through(ill_later).damage == 1


async def of_parents(fleet: Fleet) -> Figures:
    """What fails is composed: the declaration that goes back is that of the box, and not those of its labels."""
    house = fleet.house
    await house.start_engine(fleet.gates, composes=True)
    health = [{"name": "legible", "expression": "state.manifest.data.text != 'typo'", "message": "nobody can read it"}]
    spec = {"fleet": {"kinds": ["configmaps"]}, "mode": "Enforce", **BACK, "health": health}
    await house.policies.create({"metadata": {"name": "things"}, "spec": spec})
    await house.pack("box", {"a": "red", "b": "red"})
    await house.pack("chest", {"a": "gold"})
    assert await fleet.until(lambda: _labels(fleet, {"box-a": "red", "box-b": "red", "chest-a": "gold"}), PASS)
    await asyncio.sleep(3 * PASS)
    for name, labels in (("box", {"a": "typo", "b": "typo"}), ("chest", {"a": "silver"})):
        body = {"metadata": {"name": name, "annotations": {CHANGE_SET: "push"}}, "spec": {"labels": labels}}
        await house.boxes.apply(body, field_manager="people", force=True)
    assert await fleet.until(lambda: _is(fleet, "Returned"), 2 * PASS)
    came = await fleet.until(lambda: _labels(fleet, {"box-a": "red", "box-b": "red", "chest-a": "gold"}), 2 * PASS)
    boxes = {box["metadata"]["name"]: box["spec"]["labels"] for box in await house.boxes.list()}
    assert boxes == {"box": {"a": "red", "b": "red"}, "chest": {"a": "gold"}}
    writers = {e["manager"] for one in await house.labels.list() for e in one["metadata"].get("managedFields") or ()}
    assert "homeostat-return" not in writers
    return Figures(0, 2, None, "by itself" if came else "not")


async def _labels(fleet: Fleet, wanted: dict[str, str]) -> bool:
    found = {one["metadata"]["name"]: one["data"]["text"] for one in await fleet.house.labels.list() if "text" in one["data"]}
    return found == wanted


def test_of_what_is_composed_the_parents_go_back() -> None:
    assert live_through(of_parents).came_back == "by itself"
