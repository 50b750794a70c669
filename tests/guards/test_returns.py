"""What the return of a change set does to each of its objects, decided without any I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from homeostat.guards.policy import ReturnState, ReturnStatus
from homeostat.guards.returns import (
    LONGEST_NAME,
    Step,
    begun,
    is_composed,
    kept_returns,
    name_of_return,
    refusal,
    step_of,
    taken,
)
from homeostat.model.kinds import encode
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET, composed_by

BACK = "return-of/push"


def lamp(colour: str, mark: str = "", **metadata: Any) -> dict[str, Any]:
    notes = {"annotations": {CHANGE_SET: mark}} if mark else {}
    return {"kind": "Lamp", "metadata": {"name": "hall", "uid": "1", **notes, **metadata}, "spec": {"colour": colour}}


def item(before: Any, after: Any, now: Any, changed_since: bool = False) -> dict[str, Any]:
    where = {"apiVersion": "v1", "kind": "Lamp", "namespace": "default", "name": "hall"}
    return {**where, "before": before, "after": after, "now": now, "changedSince": changed_since}


RED, BAD, GOING = lamp("red"), lamp("bad", "push"), {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("one", "step"),
    [
        (item(RED, BAD, BAD), Step.REPLACE),
        (item(None, BAD, BAD), Step.DELETE),
        (item(RED, None, None), Step.CREATE),
        (item(RED, BAD, lamp("green", "push"), changed_since=True), Step.KEPT),
        (item(None, BAD, lamp("green", "other"), changed_since=True), Step.KEPT),
        (item(RED, BAD, None, changed_since=True), Step.KEPT),
        (item(RED, BAD, lamp("bad", "push", **GOING), changed_since=True), Step.KEPT),
        (item(RED, None, lamp("red", **GOING)), Step.GOING),
        (item(RED, BAD, lamp("red", "by-hand"), changed_since=True), Step.DONE),
        (item(None, BAD, None), Step.DONE),
        (item(None, BAD, lamp("bad", **GOING)), Step.DONE),
    ],
)
def test_each_object_goes_back_and_what_somebody_declared_since_is_kept(one: Any, step: Step) -> None:
    assert step_of(one, BACK) is step


@pytest.mark.parametrize(
    ("one", "step"),
    [
        (item(RED, BAD, lamp("red", BACK, finalizers=["homeostat.dev/cleanup"]), changed_since=True), Step.DONE),
        (item(RED, None, lamp("red", BACK, uid="2"), changed_since=True), Step.DONE),
        (item(None, BAD, lamp("bad", annotations={DELETION_CHANGE_SET: BACK}), changed_since=True), Step.DELETE),
        (item(None, BAD, lamp("bad", annotations={DELETION_CHANGE_SET: BACK}, **GOING), changed_since=True), Step.DONE),
        (item(RED, BAD, lamp("blue", BACK), changed_since=True), Step.KEPT),
    ],
)
def test_after_a_crash_in_the_middle_what_was_done_is_done_and_what_was_begun_is_finished(one: Any, step: Step) -> None:
    assert step_of(one, BACK) is step
    assert begun([item(RED, BAD, BAD), one], BACK)


def test_what_was_only_pushed_has_not_begun_to_go_back() -> None:
    assert not begun([item(RED, BAD, BAD), item(RED, None, None)], BACK)


def test_one_that_was_declared_anew_forbids_all_of_it_and_is_named() -> None:
    steps = [(item(RED, BAD, BAD), Step.REPLACE), (item(RED, BAD, None), Step.KEPT)]
    assert refusal(steps) == "Lamp default/hall was declared anew since, and that stays"
    assert "cannot be taken back" in refusal([(item(RED, None, RED), Step.GOING)])
    assert "nothing is known" in refusal([])
    assert refusal(steps[:1]) == ""


def test_the_return_of_a_long_name_fits_and_is_its_own() -> None:
    assert name_of_return("push") == BACK
    long, other = "p" * LONGEST_NAME, "p" * (LONGEST_NAME - 1) + "q"
    assert len(name_of_return(long)) == LONGEST_NAME
    assert name_of_return(long) != name_of_return(other)


def test_what_the_loop_composed_is_told_by_its_manager() -> None:
    assert is_composed(lamp("red", managedFields=[{"manager": composed_by("apps.test.dev")}]))
    assert not is_composed(lamp("red", managedFields=[{"manager": "homeostat"}, {"manager": "homeostat-cli"}]))


def test_a_policy_remembers_its_returns_and_what_cannot_be_read_of_them_is_left_out() -> None:
    one = ReturnStatus(
        change_set="push", fleet="things", state=ReturnState.REFUSED, since=datetime(2026, 1, 1, tzinfo=UTC), problem="it is late"
    )
    policy = {"metadata": {"name": "things"}, "status": {"returns": [encode(one), {"state": "Lost"}]}}
    assert list(kept_returns(policy)) == [one]
    assert taken(one).words == "could not be taken back: it is late"
