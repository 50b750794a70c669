"""What invariants get to see of one resource, from what was seen of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from homeostat.loop.controller import Controller, Seen
from homeostat.loop.diff import NOTHING
from homeostat.loop.fleet import Fleet, Ref
from homeostat.loop.observation import ABSENT, Absent, Observation, Unknown
from homeostat.loop.record import Record
from homeostat.loop.stock import examined, outcome, take_stock

REF = Ref("lamps.test.dev", "default", "hall", "uid")


def controller(facts: Mapping[str, Any] | None = None) -> Controller:
    provider = SimpleNamespace(facts=lambda ref: facts)
    return cast(Controller, SimpleNamespace(provider=provider, fleet_kind=lambda ref: ref.kind))


def seen(
    state: Mapping[str, Any] | Absent | Unknown,
    declared: Mapping[str, Any] | Absent | None = None,
    last: dict[str, Any] | None = None,
) -> Seen:
    obj = {"metadata": {"name": "hall", "namespace": "default", "managedFields": []}, "spec": {"watts": 10}}
    return Seen(
        REF,
        obj,
        Record(last_applied=last),
        Observation(state, 0.0),
        None,
        declared if declared is not None else {},
        NOTHING,
        "",
    )


def asked() -> Fleet:
    return Fleet("lamps", 1, invariants=(lambda before, after: None,))


def test_a_thing_is_its_declaration_with_its_state_beside_it() -> None:
    fleet = asked()
    take_stock(fleet, controller(), seen({"watts": 12}))
    assert fleet.observed[REF] == {
        "kind": "lamps.test.dev",
        "metadata": {"name": "hall", "namespace": "default", "labels": {}, "annotations": {}},
        "spec": {"watts": 10},
        "state": {"watts": 12},
    }


def test_what_is_gone_is_in_it_no_more_and_what_cannot_be_read_stays_as_it_was() -> None:
    fleet = asked()
    take_stock(fleet, controller(), seen({"watts": 12}))
    take_stock(fleet, controller(), seen(Unknown("no answer"), last={"watts": 10}))
    assert fleet.observed[REF]["state"] == {"watts": 12}
    take_stock(fleet, controller(), seen(ABSENT))
    assert fleet.observed == {}
    take_stock(fleet, controller(), seen(Unknown("no answer")))
    assert fleet.observed == {}
    take_stock(fleet, controller(), seen(Unknown("no answer"), last={"watts": 10}))
    assert fleet.observed[REF]["state"] == {"watts": 10}


def test_an_action_changes_what_is_declared_and_leaves_the_rest() -> None:
    there = {"watts": 12, "hours": 7, "shade": {"colour": "red", "size": 3}, "tags": ["a"]}
    then = outcome(asked(), controller(), seen(there, {"watts": 10, "shade": {"colour": "blue"}, "tags": ["b"]}))
    assert then is not None
    assert then["state"] == {"watts": 10, "hours": 7, "shade": {"colour": "blue", "size": 3}, "tags": ["b"]}
    assert there["shade"] == {"colour": "red", "size": 3}


def test_a_deletion_leads_to_nothing() -> None:
    assert outcome(asked(), controller(), seen({"watts": 12}, ABSENT)) is None


def test_where_nobody_asks_nothing_is_kept() -> None:
    fleet, found = Fleet("lamps", 1), seen({"watts": 12}, {"watts": 10})
    take_stock(fleet, controller(), found)
    assert (fleet.observed, outcome(fleet, controller(), found)) == ({}, None)
    assert examined(fleet, controller(), found) is found


def test_a_provider_may_know_more_than_it_compares() -> None:
    fleet = asked()
    fleet.health = (lambda obj, state: "" if state["lit"] else "dark",)
    take_stock(fleet, controller({"watts": 12, "lit": False}), seen({"watts": 12}))
    assert fleet.observed[REF]["state"] == {"watts": 12, "lit": False}
    assert examined(fleet, controller({"watts": 12, "lit": False}), seen({"watts": 12})).unhealthy == "dark"
    assert examined(fleet, controller({"watts": 12, "lit": True}), seen({"watts": 12})).unhealthy == ""
