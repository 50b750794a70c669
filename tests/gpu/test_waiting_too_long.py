"""What has waited too long gets in: in its turn, whole, and though others borrow all that it needs."""

from __future__ import annotations

import pytest
from tests.gpu.facts import Object, named, node, plan_of, stamp, tenant, why, workload

from homeostat.gpu.decisions import Constraint, Memory, Plan, Verb
from homeostat.gpu.kinds import Ageing, GpuPolicySpec

DAY = 86_400
LATE = -(DAY + 3600)
ROOMY = {"mode": "Checkpoint"}


def fleet(*work: Object, nominal: int = 8) -> list[Object]:
    """Two nodes of eight GPUs and two tenants that have half of them each. A gang of `a` wants all sixteen."""
    tenants = [tenant(name, nominal, cohort="c") for name in "ab"]
    return [*tenants, node("n1"), node("n2"), workload("gang", 8, of="a", replicas=2, submitted=LATE), *work]


def busy(name: str, *gpus: int, on: str = "n1", **spec: object) -> Object:
    """Work of `b` that must not be taken off."""
    return workload(name, len(gpus), of="b", on=[(on, list(gpus))], preemption={"mode": "Never"}, **spec)  # type: ignore[arg-type]


def test_nodes_are_emptied_for_it_though_its_cohort_has_lent_others_what_it_needs() -> None:
    made = plan_of(*fleet(busy("stays", 0, 1), workload("next", 1, of="b")))
    assert made.of(Verb.ADMIT) == []
    assert sorted(made.memory.held["uid-gang"]) == ["n1", "n2"]
    assert why(made, "gang").constraint is Constraint.CAPACITY
    assert why(made, "next").constraint is Constraint.RESERVATION


def test_on_nodes_that_are_emptied_runs_what_goes_on_anywhere_until_all_else_is_gone() -> None:
    fills = workload("fills", 4, of="b", preemption=ROOMY)
    assert named(plan_of(*fleet(busy("stays", 0, 1), fills)).of(Verb.ADMIT)) == ["fills"]
    runs = workload("fills", 4, of="b", preemption=ROOMY, on=[("n2", [0, 1, 2, 3])])
    still = plan_of(*fleet(busy("stays", 0, 1), runs))
    assert still.decisions == []
    alone = plan_of(*fleet(runs), memory=still.memory)
    gone = alone.of(Verb.PREEMPT)
    assert (named(gone), gone[0].constraint) == (["fills"], Constraint.SLA)


def test_nothing_fills_them_that_it_could_not_take_off_again() -> None:
    others = [tenant("z", 8, cohort="z"), workload("other-cohort", 4, of="z", preemption=ROOMY)]
    dear = workload("dear", 4, of="b", preemption=ROOMY, priority=10_000)
    assert plan_of(*fleet(busy("stays", 0, 1), dear, *others)).of(Verb.ADMIT) == []


def test_where_quotas_are_less_than_the_fleet_what_comes_free_is_kept_for_it_of_the_quota_too() -> None:
    """A third node is free, and to use it would take the quota that the gang waits for."""
    objects = [*fleet(busy("stays", *range(8), on="n3"), nominal=10), node("n3"), node("n4"), workload("next", 4, of="b")]
    made = plan_of(*objects)
    assert made.of(Verb.ADMIT) == []
    objects = [one for one in objects if one["metadata"]["name"] != "gang"]
    assert named(plan_of(*objects).of(Verb.ADMIT)) == ["next"]


def test_behind_one_that_waits_for_its_own_tenants_limit_its_tenants_others_wait() -> None:
    capped = tenant("a", 8, cohort="c", borrowing=0)
    runs = workload("runs", 2, of="a", on=[("n1", [0, 1])], preemption={"mode": "Never"})
    late, new = workload("late", 8, of="a", submitted=LATE), workload("new", 1, of="a")
    assert plan_of(capped, tenant("b", 8, cohort="c"), node("n1"), node("n2"), runs, late, new).of(Verb.ADMIT) == []


def test_of_several_the_one_comes_first_that_has_waited_longest_whatever_its_tenant_has() -> None:
    """By shares the small ones of the other tenant would go first, for ever."""
    small = [workload(f"small{i}", 1, of="b", submitted=LATE) for i in range(8)]
    gang = workload("gang", 8, of="a", submitted=LATE - 60)
    runs = workload("runs", 4, of="a", on=[("n1", [0, 1, 2, 3])])
    objects = [tenant("a", 8, cohort="c"), tenant("b", 8, cohort="c"), node("n1"), node("n2"), runs, gang, *small]
    assert named(plan_of(*objects).of(Verb.ADMIT))[0] == "gang"


@pytest.mark.parametrize(("per_hour", "goes"), [(10.0, ["high"]), (0.0, [])])
def test_what_it_earned_by_waiting_counts_against_the_priority_of_what_runs(per_hour: float, goes: list[str]) -> None:
    high = workload("high", 8, on=[("n1", list(range(8)))], priority=100)
    policy = GpuPolicySpec(ageing=Ageing(per_hour=per_hour))
    made = plan_of(tenant("a"), node("n1"), high, workload("late", 8, submitted=LATE), policy=policy)
    assert named(made.of(Verb.PREEMPT)) == goes


def test_two_gangs_empty_nodes_of_their_own() -> None:
    both = [workload(f"gang{i}", 8, of="a", submitted=LATE - i) for i in range(2)]
    stays = [busy(f"stays-{name}", 0, on=name) for name in ("n1", "n2")]
    made: Plan = plan_of(*(one for one in fleet(*both, *stays, nominal=16) if one["metadata"]["name"] != "gang"))
    crowded = Memory(at=made.memory.at, held={"uid-gang0": ["n1"], "uid-gang1": ["n1"]})
    again = plan_of(*(one for one in fleet(*both, *stays, nominal=16) if one["metadata"]["name"] != "gang"), memory=crowded)
    assert again.memory.held == {"uid-gang1": ["n1"], "uid-gang0": ["n2"]}


def test_who_starts_later_than_was_promised_is_reported_also_where_it_starts_when_that_is_found() -> None:
    objects = [tenant("a", 8, sla={"maxWait": "1m0s"}), node("n1"), workload("late", submitted=-61.0), workload("in-time", submitted=-59.0)]
    plan = plan_of(*objects)
    assert named(plan.of(Verb.ADMIT)) == ["late", "in-time"]
    assert named(plan.of(Verb.REPORT)) == ["late"]
    assert "promised at most 1 min" in plan.of(Verb.REPORT)[0].reason


def first_of(other: Object) -> str:
    """Why another one is ahead of `w`, as `w` is told."""
    full = workload("full", 8, of="b", on=[("n1", list(range(8)))], preemption={"mode": "Never"})
    plan = plan_of(tenant("a", 8, cohort="c"), tenant("b", 8, cohort="c"), node("n1"), full, workload("w", 1, of="a"), other)
    (ahead,) = why(plan, "w").ahead
    return ahead.why


def test_why_it_comes_first_is_told_as_it_is() -> None:
    assert first_of(workload("x", 1, of="a", submitted=LATE, priority=-1)) == "has waited too long"
    assert first_of(workload("x", 1, of="a", deadline=stamp(60.0), submitted=-1.0)) == "is near its deadline"
    assert first_of(workload("x", 1, of="b", on=[("gone", [0])], submitted=-1.0)) == "has lost its node"
    assert first_of(workload("x", 1, of="a", priority=1, submitted=-1.0)) == "higher priority"


def test_who_makes_way_for_a_deadline_is_told_that() -> None:
    long = workload("long", 8, of="a", on=[("n1", list(range(8)))], started=-DAY, preemption=ROOMY)
    made = plan_of(tenant("a", 16), node("n1"), long, workload("w", 1, of="a", deadline=stamp(60.0), submitted=-1.0))
    assert [one.reason.partition(";")[0] for one in made.of(Verb.PREEMPT)] == ["team/w is near its deadline"]
