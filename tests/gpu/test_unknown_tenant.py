"""What is edited to name a tenant that does not exist goes on, and counts for the one that it was placed for, until it is off its GPUs."""

from __future__ import annotations

from typing import Any

from tests.gpu.facts import Object, named, node, plan_of, stamp, tenant, why, workload

from homeostat.gpu.controller.tallies import Tally
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.explain import standings
from homeostat.gpu.objects import Reader


def astray(name: str = "job", **options: Any) -> Object:
    return workload(name, on=[("n", [0])], of="typo", status={"tenant": "a"}, **options)


def test_it_counts_for_the_tenant_that_it_was_placed_for() -> None:
    plan = plan_of(tenant("a", 1), node("n", 2), astray(), workload("next"))
    assert not plan.of(Verb.ADMIT), "the quota is used twice"
    assert [one.used for one in standings(plan.pending.cycle)] == [1000]


def test_it_is_told_once_and_not_taken_off() -> None:
    objects = [tenant("a", 1), node("n", 2), astray()]
    plan = plan_of(*objects)
    [told] = plan.decisions
    assert (told.verb, told.constraint, "typo is no tenant" in told.reason) == (Verb.REPORT, Constraint.TENANT, True)
    assert not plan_of(*objects, memory=plan.memory).decisions


def test_it_is_brought_back_with_that_tenant_and_does_not_start_again() -> None:
    assert named(plan_of(tenant("a", 0), node("n", 2), astray()).of(Verb.SUSPEND)) == ["job"]
    off = astray(phase="Suspended")
    plan = plan_of(tenant("a", 1), node("n", 2), off)
    assert not plan.of(Verb.RESUME)
    assert why(plan, "job").constraint is Constraint.TENANT


def test_another_tenant_counts_at_once_and_so_does_one_that_comes() -> None:
    reader, job = Reader(), astray()
    for obj in (tenant("a", 1), node("n", 2), job):
        reader.put(obj)
    first = reader.snapshot(0.0)
    assert (first.tenants.name[first.workloads.tenant[0]], dict(first.astray)) == ("a", {"uid-job": "typo"})
    reader.put(tenant("typo", 1))
    second = reader.snapshot(0.0)
    assert (second.tenants.name[second.workloads.tenant[0]], dict(second.astray)) == ("typo", {})
    reader.remove(tenant("typo"))
    assert reader.snapshot(0.0).astray
    reader.put({**job, "metadata": {**job["metadata"], "deletionTimestamp": stamp(0)}, "status": {}})
    assert not reader.snapshot(0.0).astray


def departing(name: str = "a", nominal: int = 1, **spec: Any) -> Object:
    found = tenant(name, nominal, **spec)
    return {**found, "metadata": {**found["metadata"], "deletionTimestamp": stamp(-5)}}


def test_what_runs_of_a_tenant_that_is_being_deleted_counts_for_it_and_its_cohort() -> None:
    runs = workload("runs", on=[("n", [0])])
    plan = plan_of(departing(cohort="c"), tenant("b", 1, cohort="c"), node("n", 8), runs, *(workload(f"b{i}", of="b") for i in range(2)))
    assert named(plan.of(Verb.ADMIT)) == ["b0"], "what runs counts in no quota"
    assert [(one.tenant, one.used) for one in standings(plan.pending.cycle)] == [("a", 1000), ("b", 1000)]
    [told] = plan.of(Verb.REPORT)
    assert told.reason == "a is being deleted: what it holds counts for a, and it does not start again"


def test_what_a_tenant_that_is_being_deleted_leaves_idle_is_lent_no_more_and_what_was_lent_stays_until_it_is_gone() -> None:
    lent = [workload(f"lent{i}", of="b", on=[("n", [i])]) for i in range(2)]
    more = [workload(f"more{i}", of="b") for i in range(2)]
    fleet = [tenant("b", 1, cohort="c"), node("n", 8)]
    assert len(plan_of(tenant("a", 8, cohort="c"), *fleet, *lent, *more).of(Verb.ADMIT)) == 2
    assert not plan_of(departing("a", 8, cohort="c"), *fleet, *lent, *more).decisions
    own = workload("own", on=[("n", [7])])
    assert named(plan_of(departing("a", 8, cohort="c"), tenant("c", 4, cohort="c"), *fleet, own, workload("c", of="c")).of(Verb.ADMIT)) == ["c"]


def test_nothing_more_of_a_tenant_that_is_being_deleted_starts_or_comes_back() -> None:
    objects = [departing(nominal=8), node("n", 8), workload("new"), workload("off", on=[("n", [0])], phase="Suspended", status={"tenant": "a"})]
    plan = plan_of(*objects)
    assert not plan.decisions
    assert {name: (why(plan, name).constraint, why(plan, name).reason) for name in ("new", "off")} == dict.fromkeys(
        ("new", "off"), (Constraint.TENANT, "its tenant is being deleted: nothing more of it starts")
    )


def test_who_waits_for_an_unknown_tenant_past_its_deadline_is_no_broken_promise_of_another() -> None:
    objects = [tenant("a", 1), node("n", 1), workload("late", of="typo", deadline=stamp(-60))]
    plan = plan_of(*objects)
    tally = Tally()
    tally.count(plan.pending.cycle.snapshot, plan)
    assert tally.since("a", {})["slaMisses"] == 0
    alone = plan_of(*objects[1:])
    tally.count(alone.pending.cycle.snapshot, alone)
