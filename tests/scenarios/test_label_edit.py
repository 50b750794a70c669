"""A label was edited everywhere, and with it the fleet slipped out of the policy that guarded it, on its way to another version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.model.protocol import CHANGE_SET
from homeostat.sim.house import KIND

INCIDENT = "A label that leads to a laxer policy"
MUST_HOLD = "who changes a thing does not choose its judge by the same edit: it stays in its fleet, freezes included, until it is as declared"
LAX: dict[str, Any] = {"mode": "Enforce", "massDrift": {"limit": "100%"}, "cap": "100%", "canary": {"steps": ["100%"]}}


def of(tier: str) -> dict[str, Any]:
    return {"kinds": [KIND], "selector": {"matchLabels": {"tier": tier}}}


async def label(fleet: Fleet, tier: str, colour: str, names: list[str] | None = None) -> None:
    """One edit of labels and colour."""
    for name in names or fleet.names:
        marks = {"labels": {"tier": tier}, "annotations": {CHANGE_SET: f"{tier} {colour}"}}
        await fleet.house.declare(name, {"colour": colour, "zone": ""}, **marks)


async def stand(fleet: Fleet, **dev: Any) -> None:
    """All of them in production, and a laxer policy for what is being developed."""
    await fleet.stand()
    await label(fleet, "prod", "red")
    if not fleet.naive:
        await fleet.policy({"fleet": of("prod")})
        await fleet.house.policies.create({"metadata": {"name": "dev"}, "spec": {**LAX, **dev, "fleet": of("dev")}})
    await asyncio.sleep(3 * PASS)
    fleet.fault()


async def incident(fleet: Fleet) -> Figures:
    await stand(fleet)
    await label(fleet, "dev", "blue")
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    held = (await fleet.house.things.get(fleet.names[0]))["status"]["conditions"][0]["message"]
    assert "its labels lead to dev, and it goes there when it is as declared" in held
    await label(fleet, "prod", "red")
    came = await fleet.until(lambda: _calm(fleet))
    return Figures(damage, fleet.size, told, "by itself, once corrected" if came else "not")


async def out_of_a_freeze(fleet: Fleet) -> Figures:
    """Production is frozen."""
    await stand(fleet)
    await fleet.policy({"freezes": [{"reason": "we move the database", "author": "ana"}]})
    await asyncio.sleep(5)
    await label(fleet, "dev", "blue", fleet.names[:2])
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    await fleet.policy({"freezes": []})
    came = await fleet.until(lambda: fleet.colours() == {"blue": 2, "red": fleet.size - 2}, PASS)
    return Figures(damage, fleet.size, None, "by the person who froze it" if came else "not")


async def into_a_freeze(fleet: Fleet) -> Figures:
    """Where it goes is frozen."""
    await stand(fleet, freezes=[{"reason": "nothing new", "author": "bo"}])
    await label(fleet, "dev", "blue", fleet.names[:2])
    await asyncio.sleep(3 * PASS)
    return Figures(await fleet.damage(), fleet.size, None, await fleet.says())


async def restarted(fleet: Fleet) -> Figures:
    """The loop is started anew while they are held, and somebody edits a policy that has nothing to do with it."""
    await stand(fleet)
    await label(fleet, "dev", "blue")
    await asyncio.sleep(PASS)
    fleet.house.crash()
    await fleet.house.start_engine(fleet.gates, workers=16)
    await asyncio.sleep(PASS)
    await fleet.house.policies.patch("dev", {"spec": {"domains": 3}})
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    for plan in fleet.house.plans():
        await fleet.house.approve(plan)
    came = await fleet.until(lambda: fleet.colours() == {"blue": fleet.size})
    return Figures(damage, fleet.size, None, "by one approval" if came else "not")


async def let_in(fleet: Fleet) -> Figures:
    """They are only observed, differ, and get the label by which the loop may act on them."""
    await stand(fleet)
    await fleet.policy({"mode": "Observe"})
    fleet.drift(fleet.names[:1])
    await label(fleet, "prod", "blue", fleet.names[1:2])
    await asyncio.sleep(2 * PASS)
    before = await fleet.damage()
    await label(fleet, "dev", "red", fleet.names[:1])
    await label(fleet, "dev", "blue", fleet.names[1:2])
    await label(fleet, "dev", "blue", fleet.names[2:3])
    came = await fleet.until(lambda: fleet.colours() == {"blue": 2, "red": fleet.size - 2}, 3 * PASS)
    return Figures(before, fleet.size, None, "by itself" if came else "not")


async def approved(fleet: Fleet) -> Figures:
    """All of them are to be developed on, in another colour."""
    await stand(fleet)
    await label(fleet, "dev", "blue")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size}, approve=True)


async def honest(fleet: Fleet) -> Figures:
    """all get the label, and then another colour"""
    await stand(fleet)
    await label(fleet, "dev", "red")
    await asyncio.sleep(PASS)
    await label(fleet, "dev", "blue")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


async def _calm(fleet: Fleet) -> bool:
    return not await fleet.says()


@pytest.mark.parametrize(("size", "seed"), [(10, 1), (20, 0)])
def test_an_edit_does_not_choose_its_own_judge(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once corrected"


def test_no_label_leads_out_of_a_freeze() -> None:
    figures = live_through(out_of_a_freeze)
    assert (figures.damage, figures.came_back) == (0, "by the person who froze it")


def test_nor_into_one() -> None:
    figures = live_through(into_a_freeze)
    assert figures.damage == 0
    assert "frozen by bo" in figures.came_back


def test_nor_does_a_restart_or_the_edit_of_a_policy_lead_there() -> None:
    figures = live_through(restarted)
    assert (figures.damage, figures.came_back) == (0, "by one approval")


def test_what_is_only_observed_is_let_in_by_a_label() -> None:
    figures = live_through(let_in)
    assert (figures.damage, figures.came_back) == (0, "by itself")


def test_what_is_meant_goes_by_one_approval() -> None:
    assert live_through(approved).came_back.startswith("by one approval")


def test_labels_alone_lead_to_the_other_policy() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_follows_every_edit() -> None:
    assert live_through(incident, naive=True).damage == 20
