"""What is edited to name a tenant that does not exist goes on, and counts for the one that it was placed for, until it is off its GPUs."""

from __future__ import annotations

from typing import Any

from tests.gpu.facts import Object, named, node, plan_of, stamp, tenant, why, workload

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
