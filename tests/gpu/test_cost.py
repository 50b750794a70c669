"""Work goes on the cheapest node that does, keeps off spot where it cannot bear a loss, and part-empty nodes are given back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gpu.facts import Object, named, node, plan_of, stamp, tenant, workload

from homeostat.gpu.decisions import Plan, Verb
from homeostat.gpu.kinds import Cost, GpuPolicySpec

CONSOLIDATE = GpuPolicySpec(cost=Cost(consolidate=True))


def pool(name: str = "p", minimum: int = 0) -> Object:
    return {"kind": "NodePool", "metadata": {"name": name}, "spec": {"model": "H100", "minimum": minimum, "maximum": 99}}


def where(plan: Plan) -> dict[str, str]:
    return {name: d.places[0].node for name, d in zip(named(plan.of(Verb.ADMIT)), plan.of(Verb.ADMIT), strict=True)}


def test_a_gpu_counts_by_its_own_price_and_not_by_that_of_its_node() -> None:
    nodes = [node("large", 8, costPerHour=16), node("small", 2, costPerHour=6)]
    assert where(plan_of(tenant("a", 64), *nodes, workload("w", 1))) == {"w": "large"}


def test_prices_that_are_nearly_the_same_leave_the_choice_to_packing() -> None:
    nodes = [node("empty", 8, costPerHour=8.0), node("used", 8, costPerHour=8.2)]
    running = workload("r", 7, on=[("used", list(range(7)))])
    assert where(plan_of(tenant("a", 64), *nodes, running, workload("w", 1))) == {"w": "used"}
    exactly = GpuPolicySpec(cost=Cost(alike=0.0))
    assert where(plan_of(tenant("a", 64), *nodes, running, workload("w", 1), policy=exactly)) == {"w": "empty"}


def spot_and_not() -> list[Object]:
    return [tenant("a", 64), node("demand", 4, costPerHour=12), node("spot", 4, costPerHour=4, spot=True)]


def test_spot_is_taken_first_and_what_is_left_falls_back_to_demand() -> None:
    plan = plan_of(*spot_and_not(), workload("w0", 4, submitted=-90), workload("w1", 4))
    assert where(plan) == {"w0": "spot", "w1": "demand"}


@pytest.mark.parametrize(
    "fragile",
    [{"preemption": {"mode": "Never"}}, {"deadline": stamp(2 * 3600), "maximumRuntime": "1h30m0s"}],
    ids=["it may never be preempted", "its deadline leaves no time"],
)
def test_what_cannot_bear_a_loss_keeps_off_spot(fragile: dict[str, Any]) -> None:
    assert where(plan_of(*spot_and_not(), workload("w", 1, **fragile))) == {"w": "demand"}
    assert where(plan_of(*spot_and_not(), workload("w", 1, spot="Require", **fragile))) == {"w": "spot"}
    only_spot = [obj for obj in spot_and_not() if obj["metadata"]["name"] != "demand"]
    assert plan_of(*only_spot, workload("w", 1, **fragile)).of(Verb.ADMIT) == []


def test_a_deadline_that_is_far_away_does_not_matter() -> None:
    assert where(plan_of(*spot_and_not(), workload("w", 1, deadline=stamp(86_400), maximumRuntime="1h0m0s"))) == {"w": "spot"}


def small(name: str, on: str, gpu: int = 0, mode: str = "Checkpoint") -> Object:
    return workload(name, 1, on=[(on, [gpu])], preemption={"mode": mode})


def part_empty(*more: Object, minimum: int = 0) -> list[Object]:
    """One node that is half full, and three with a GPU in use each."""
    nodes = [node(f"n{i}", pool="p", costPerHour=8) for i in range(4)]
    big = workload("big", 4, on=[("n0", [0, 1, 2, 3])])
    return [tenant("a", 64), pool(minimum=minimum), *nodes, big, *(small(f"s{i}", f"n{i}") for i in (1, 2, 3)), *more]


def drained(plan: Plan) -> list[str]:
    return [decision.name for decision in plan.of(Verb.DRAIN)]


def test_part_empty_nodes_are_emptied_into_those_in_use() -> None:
    plan = plan_of(*part_empty(), policy=CONSOLIDATE)
    assert drained(plan) == ["n1", "n2", "n3"]
    assert "saves 8 an hour" in plan.of(Verb.DRAIN)[0].reason
    assert drained(plan_of(*part_empty())) == []


def test_no_more_is_moved_at_a_time_than_allowed_and_none_below_the_minimum() -> None:
    two = GpuPolicySpec(cost=Cost(consolidate=True, moves=2))
    assert drained(plan_of(*part_empty(), policy=two)) == ["n1", "n2"]
    assert drained(plan_of(*part_empty(minimum=3), policy=CONSOLIDATE)) == ["n1"]
    on_the_way = part_empty()
    on_the_way[3]["spec"]["drain"] = True
    one = GpuPolicySpec(cost=Cost(consolidate=True, moves=1))
    assert drained(plan_of(*on_the_way, policy=one)) == []


@pytest.mark.parametrize("mode", ["Suspend", "Restart", "Never"])
def test_a_node_with_work_that_would_lose_by_moving_stays(mode: str) -> None:
    objects = part_empty(small("fixed", "n1", 1, mode))
    assert drained(plan_of(*objects, policy=CONSOLIDATE)) == ["n2", "n3"]


def test_nothing_is_given_back_while_somebody_waits_for_gpus() -> None:
    waits = workload("waits", 8, topology="Node")
    full = [*part_empty(waits)]
    assert drained(plan_of(*full, policy=CONSOLIDATE)) == []
    over_quota = [obj if obj["kind"] != "Tenant" else tenant("a", 7) for obj in full]
    assert drained(plan_of(*over_quota, policy=CONSOLIDATE)) != []


def test_what_does_not_fit_elsewhere_is_not_drained() -> None:
    nodes = [node(f"n{i}", pool="p") for i in range(2)]
    full = workload("full", 8, on=[("n0", list(range(8)))])
    assert drained(plan_of(tenant("a", 64), pool(), *nodes, full, small("s", "n1"), policy=CONSOLIDATE)) == []


def test_what_would_come_back_larger_is_not_moved_to_save_a_node() -> None:
    grown = small("s", "n1")
    grown["spec"]["resources"]["gpus"] = 2
    held = workload("held", 4, on=[("n0", [0, 1, 2, 3])])
    objects = [tenant("a", 64), pool(), node("n0", pool="p"), node("n1", pool="p"), held]
    assert drained(plan_of(*objects, small("s", "n1"), policy=CONSOLIDATE)) == ["n1"]
    assert drained(plan_of(*objects, grown, policy=CONSOLIDATE)) == []


def test_the_moves_of_a_drain_are_decided_at_the_next_cycle() -> None:
    objects = part_empty()
    objects[3]["spec"]["drain"] = True
    plan = plan_of(*objects, policy=CONSOLIDATE)
    moves = {name: d.places[0].node for name, d in zip(named(plan.of(Verb.MIGRATE)), plan.of(Verb.MIGRATE), strict=True)}
    assert moves.keys() == {"s1"}
    assert moves["s1"] in ("n0", "n2", "n3")
