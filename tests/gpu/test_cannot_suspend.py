"""What cannot be suspended runs on: that is called off when nobody wants it any more, and given up after some tries."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gpu.facts import NOW, Object, named, node, plan_of, stamp, tenant, why, workload

from homeostat.gpu.decisions import Constraint, Memory, Reservation, Verb
from homeostat.gpu.kinds import Place
from homeostat.gpu.policies.keeping import TRIES

HOUR = 3600.0
DRIVER = "it could not be suspended: the driver is too old"


def refusing(name: str, tries: int, verb: str = "suspend", constraint: str = "stopped", **options: Any) -> Object:
    """On its way off its GPU, and not suspended in so many tries."""
    reports = [{"replica": 0, "node": "n", "state": "Running", "pid": 7, "gpus": [0], "reason": DRIVER, "refusals": tries}]
    decision = {"verb": verb, "reason": "", "constraint": constraint, "at": stamp(-60), "beneficiary": options.pop("beneficiary", "")}
    return workload(name, on=[("n", [0])], phase="Suspending", status={"reports": reports, "decision": decision}, **options)


def kept(name: str, ago: float = 60.0, **options: Any) -> Object:
    """Running, for it could not be suspended when it was last to be."""
    decision = {"verb": "keep", "reason": DRIVER, "constraint": "suspension", "at": stamp(-ago), "beneficiary": options.pop("beneficiary", "")}
    return workload(name, on=[("n", [0])], status={"decision": decision}, **options)


def test_after_some_tries_it_is_given_up_and_says_why_and_what_to_do() -> None:
    plan = plan_of(tenant("a"), node("n", 1), refusing("job", TRIES, suspended=True))
    [decision] = plan.of(Verb.KEEP)
    assert (decision.name, decision.constraint) == ("team/job", Constraint.SUSPENSION)
    assert [(place.node, place.gpus) for place in decision.places] == [("n", (0,))]
    assert "the driver is too old" in decision.reason
    assert "preemption.mode" in decision.reason
    assert not plan.of(Verb.SUSPEND), "it is asked again at once"


@pytest.mark.parametrize(
    ("cause", "spec", "stays"),
    [
        ({"constraint": "stopped"}, {"suspended": True}, False),
        ({"constraint": "stopped"}, {}, True),
        ({"constraint": "quota"}, {}, True),
        ({"constraint": "quota", "of": "poor"}, {}, False),
        ({"constraint": "budget"}, {}, True),
        ({"constraint": "idle", "verb": "reclaim"}, {}, False),
        ({"constraint": "priority", "verb": "preempt", "beneficiary": "uid-gone"}, {}, True),
    ],
)
def test_it_is_called_off_when_nobody_wants_it_any_more(cause: Object, spec: Object, stays: bool) -> None:
    plan = plan_of(tenant("a"), tenant("poor", 0), node("n", 1), refusing("job", 1, **cause, **spec))
    assert named(plan.of(Verb.KEEP)) == (["job"] if stays else [])


def test_while_no_try_has_failed_it_is_left_to_its_agents() -> None:
    assert not plan_of(tenant("a"), node("n", 1), refusing("job", 0)).of(Verb.KEEP)


def test_it_goes_on_leaving_while_the_one_that_it_makes_room_for_waits() -> None:
    urgent = workload("urgent", priority=9)
    memory = Memory(
        reservations={"uid-urgent": Reservation("a", 1, 1000, (Place(replica=0, node="n", gpus=(0,)),), until=float("inf"))}
    )
    job = refusing("job", 1, "preempt", "priority", beneficiary="uid-urgent")
    assert not plan_of(tenant("a"), node("n", 1), job, urgent, memory=memory).of(Verb.KEEP)
    given_up = plan_of(tenant("a"), node("n", 1), refusing("job", TRIES, "preempt", "priority", beneficiary="uid-urgent"), urgent, memory=memory)
    assert named(given_up.of(Verb.KEEP)) == ["job"]
    assert not given_up.memory.reservations, "GPUs are kept for one that will not get them"


def test_what_is_deleted_or_on_a_lost_node_is_not_kept() -> None:
    deleted = refusing("job", TRIES)
    deleted["metadata"]["deletionTimestamp"] = stamp(-5)
    assert not plan_of(tenant("a"), node("n", 1), deleted).of(Verb.KEEP)
    assert not plan_of(tenant("a"), node("n", 1, heard=-100), node("m", 1), node("o", 1), refusing("job", TRIES)).of(Verb.KEEP)


def test_what_is_left_of_a_gang_that_lost_a_node_goes_on_elsewhere_and_does_not_wait_to_be_suspended() -> None:
    gang = refusing("gang", TRIES, "requeue", "failure", replicas=2)
    gang["status"]["assignment"].append({"replica": 1, "node": "lost", "gpus": [0]})
    fleet = [tenant("a"), node("n", 1), node("m", 1), node("o", 1), node("lost", 1, heard=-100)]
    [decision] = plan_of(*fleet, gang).of(Verb.RESUME)
    assert [place.node for place in decision.places] == ["m", "o"]
    assert not plan_of(*fleet, {**gang, "spec": {**gang["spec"], "suspended": True}}).of(Verb.RESUME)


def test_others_make_room_instead_of_what_cannot_be_suspended() -> None:
    fleet = [tenant("a"), node("n", 1), node("m", 1)]
    plan = plan_of(*fleet, kept("job", priority=-5), workload("other", on=[("m", [0])]), workload("urgent", priority=9))
    assert named(plan.of(Verb.PREEMPT)) == ["other"]


def test_who_waits_for_what_cannot_be_suspended_is_told_so() -> None:
    plan = plan_of(tenant("a"), node("n", 1), kept("job"), workload("urgent", priority=9))
    assert not plan.of(Verb.PREEMPT)
    assert "team/job would have to make room, and cannot be suspended" in why(plan, "urgent").reason


def test_a_lowered_quota_takes_back_others() -> None:
    plan = plan_of(tenant("a", 1), node("n", 1), node("m", 1), kept("job", priority=-5), workload("other", on=[("m", [0])]))
    assert named(plan.of(Verb.SUSPEND)) == ["other"]


def test_it_may_be_asked_again_after_an_hour_and_another_mode_counts_at_once() -> None:
    fleet, urgent = [tenant("a"), node("n", 1)], workload("urgent", priority=9)
    assert named(plan_of(*fleet, kept("job", HOUR + 1), urgent).of(Verb.PREEMPT)) == ["job"]
    assert named(plan_of(*fleet, kept("job", preemption={"mode": "Restart"}), urgent).of(Verb.PREEMPT)) == ["job"]


def test_one_that_cannot_be_suspended_can_still_be_deleted() -> None:
    gone = kept("job")
    gone["metadata"]["deletionTimestamp"] = stamp(-5)
    assert named(plan_of(tenant("a"), node("n", 1), gone).of(Verb.SUSPEND)) == ["job"]


def test_a_preemption_in_vain_uses_up_no_budget_and_may_be_tried_again() -> None:
    memory = Memory(preemptions=[NOW - 90, NOW - 70], preempted={"uid-job": [NOW - 90, NOW - 70]}, rivals={"uid-job": ["uid-old", "uid-urgent"]})
    others = [workload("old", phase="Suspended"), workload("urgent", priority=9)]
    after = plan_of(tenant("a"), node("n", 1), kept("job", started=-60, beneficiary="uid-urgent"), *others, memory=memory).memory
    assert (after.preemptions, after.preempted, after.rivals) == ([NOW - 90], {"uid-job": [NOW - 90]}, {"uid-job": ["uid-old"]})
    [again] = plan_of(tenant("a"), node("n", 1), kept("job", HOUR + 1, started=-HOUR, beneficiary="uid-urgent"), *others, memory=memory).of(Verb.PREEMPT)
    assert (again.name, again.beneficiary) == ("team/job", "uid-urgent")


def test_who_is_kept_is_told_for_whom_it_was_to_make_way() -> None:
    [decision] = plan_of(tenant("a"), node("n", 1), refusing("job", TRIES, "preempt", "priority", beneficiary="uid-urgent")).of(Verb.KEEP)
    assert decision.beneficiary == "uid-urgent"
