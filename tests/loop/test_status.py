"""What the loop says of a resource, and what who looks from outside makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.patch.merge_patch import apply_merge_patch
from homeostat.insight.fleets import hold_of
from homeostat.loop.fleet import Cause, Drift, Hold, Op, Ref
from homeostat.loop.record import Record
from homeostat.loop.status import merge_patch, status_of
from homeostat.model.conditions import find_condition

NOW = "2027-01-15T08:00:00Z"
LAMP: dict[str, Any] = {"metadata": {"name": "hall", "generation": 1}}


@pytest.mark.parametrize("error", ["", "the fuse is blown"])
def test_which_guard_holds_a_thing_is_told_whether_it_was_tried_before_or_not(error: str) -> None:
    drift = Drift(Ref("lamps.test.dev", "default", "hall", "uid"), Op.UPDATE, Cause.DRIFT, since=0.0, made_from="facts", paths=("colour",))
    status = status_of(LAMP, Record(), now=NOW, drift=drift, hold=Hold("breaker", "the circuit is open"), error=error)
    hold = hold_of({**LAMP, "status": status})
    assert hold is not None
    assert (hold.guard, hold.reason) == ("breaker", "the circuit is open")


def test_what_failed_says_why_and_that_it_is_tried_again() -> None:
    drift = Drift(Ref("lamps.test.dev", "default", "hall", "uid"), Op.UPDATE, Cause.DRIFT, since=0.0, made_from="facts", paths=("colour",))
    obj = {**LAMP, "status": status_of(LAMP, Record(), now=NOW, drift=drift, error="the fuse is blown")}
    said = {kind: find_condition(obj, kind) or {} for kind in ("Ready", "Reconciling")}
    assert (said["Ready"]["status"], said["Ready"]["message"]) == ("False", "the fuse is blown")
    assert (said["Reconciling"]["status"], said["Reconciling"]["message"]) == ("True", "to update: colour")
    assert hold_of(obj) is None


@pytest.mark.parametrize("before", [{}, {"a": 1, "b": {"c": 2, "d": 3}, "e": [1]}])
def test_a_patch_makes_one_status_of_another(before: dict[str, Any]) -> None:
    after = {"a": None, "b": {"c": 4, "f": None}, "g": {"h": 5}}
    assert apply_merge_patch(before, merge_patch(before, after)) == {"b": {"c": 4}, "g": {"h": 5}}
    assert merge_patch(before, before) == {}
