"""What a parent says while guards hold its children: that a person is waited for, by what, and the command that leads out of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.loop.test_children import Bench
from tests.loop.waiting import said

from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.loop.fleet import Cause, Drift, Hold, Op, Ref
from homeostat.loop.parents import parent_status
from homeostat.loop.record import Record
from homeostat.loop.status import status_of
from homeostat.model.conditions import summary

Object = dict[str, Any]


@pytest.fixture
async def bench(client: Client) -> AsyncIterator[Bench]:
    bench = Bench(client)
    yield bench
    await bench.engine.stop()


def is_held(obj: Object) -> bool:
    return bool(said(obj).get("reason") == "Held")


async def test_a_parent_whose_children_wait_for_a_person_says_so_and_is_not_progressing(bench: Bench) -> None:
    await bench.start(Mode.OBSERVE)
    await bench.declare({"a": "apples", "b": "bread"})
    shop = await bench.until(is_held)
    for kind in ("Ready", "Progressing", "Reconciling", "Degraded"):
        assert (said(shop, kind)["status"], said(shop, kind)["reason"]) == ("False", "Held")
    message = said(shop)["message"]
    assert message.startswith("ConfigMap/shop-a, ConfigMap/shop-b held by mode: observe-only")
    assert "homeostat enforce default/configmaps" in message
    assert message.endswith("what to do: homeostat explain configmaps shop-a -n default")
    assert said(shop, "Reconciling")["message"].startswith("held by mode: ")
    assert summary(shop) == "InProgress"


async def test_while_all_are_held_nothing_more_is_written(bench: Bench) -> None:
    await bench.start(Mode.OBSERVE)
    await bench.declare({"a": "apples", "b": "bread"})
    shop = await bench.until(is_held)
    await bench.whole_pass()
    await bench.whole_pass()
    assert (await bench.shops.get("shop"))["metadata"]["resourceVersion"] == shop["metadata"]["resourceVersion"]


async def test_what_can_be_made_is_made_and_then_only_what_is_held_is_named(bench: Bench) -> None:
    await bench.start()
    await bench.maps.create({"metadata": {"name": "shop-b"}, "data": {"goods": "somebody's"}})
    await bench.declare({"a": "apples", "b": "bread", "c": "cheese"})
    shop = await bench.until(is_held)
    assert shop["status"]["children"] == {"desired": 3, "ready": 2, "waiting": 0, "leaving": 0}
    assert said(shop)["message"].startswith("ConfigMap/shop-b held by ownership: it exists and is not ours")


async def test_what_waits_behind_a_held_stage_does_not_make_the_parent_progress(bench: Bench) -> None:
    await bench.start()
    await bench.maps.create({"metadata": {"name": "shop-a"}, "data": {"goods": "somebody's"}})
    await bench.declare({"a": "apples", "b": "bread"}, waves={"b": 1})
    shop = await bench.until(is_held)
    assert shop["status"]["children"]["waiting"] == 1
    assert said(shop, "Progressing")["status"] == "False"


async def test_a_halt_is_named_and_over_with_it_the_parent_is_ready(bench: Bench) -> None:
    await bench.start()
    shelves = {f"s{n:02}": "full" for n in range(12)}
    await bench.declare(shelves)
    await bench.ready()
    await bench.whole_pass()
    await bench.declare(dict.fromkeys(shelves, "empty"))
    shop = await bench.until(is_held)
    assert said(shop)["message"].startswith("ConfigMap/shop-s00, ConfigMap/shop-s01, ConfigMap/shop-s02 and 9 more held by mass-drift: 12 of 12")
    await bench.declare(shelves)
    assert said(await bench.ready(), "Reconciling")["reason"] == "Converged"


def child(name: str, *, hold: Hold | None = None, acting: bool = False) -> Object:
    """A child's declaration, with the status that the loop gives it."""
    obj: Object = {
        "metadata": {"namespace": "default", "name": f"configmaps/{name}", "uid": "u", "generation": 1},
        "spec": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}},
    }
    drift = None
    if hold is not None or acting:
        drift = Drift(Ref("children.shops", "default", name, "u"), Op.UPDATE, Cause.INTENT, 0.0, "x")
    return obj | {"status": status_of(obj, Record(), now="2027-01-15T08:00:00Z", drift=drift, hold=hold)}


def conditions(*staying: Object, leaving: tuple[Object, ...] = ()) -> dict[str, tuple[str, str]]:
    parent = {"metadata": {"name": "shop", "generation": 1}}
    status = parent_status(parent, list(staying), list(leaving), now="2027-01-15T08:00:00Z", desired=len(staying))
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


FROZEN = Hold("freeze", "frozen by ann: the electrician is here")


def test_what_waits_for_its_wave_is_on_its_way() -> None:
    found = conditions(child("a", hold=Hold("canary", "it waits until what was touched before is verified")), child("b", hold=FROZEN))
    assert found["Progressing"] == ("True", "ChildrenNotReady")
    assert found["Ready"] == ("False", "ChildrenNotReady")


def test_a_canary_that_failed_waits_for_a_person() -> None:
    found = conditions(child("a", hold=Hold("canary", "change set x failed", plan="0123456789abcdef")))
    assert found["Reconciling"] == ("False", "Held")


def test_a_cap_of_nothing_does_not_pass_by_itself() -> None:
    found = conditions(child("a", hold=Hold("cap", "the cap is 0: nothing that exists is touched", lasts=True)))
    assert found["Progressing"] == ("False", "Held")


def test_what_is_being_done_counts_more_than_what_is_held() -> None:
    assert conditions(child("a", acting=True), child("b", hold=FROZEN))["Reconciling"] == ("True", "ChildrenNotReady")


def test_what_is_to_go_later_and_is_as_it_was_does_not_make_the_parent_progress() -> None:
    found = conditions(child("a", hold=FROZEN), leaving=(child("old"),))
    assert found["Progressing"] == ("False", "Held")
