"""Who has to go for another: as few as it takes, and all that it takes."""

from __future__ import annotations

import pytest
from tests.gpu.facts import named, node, plan_of, tenant, workload

from homeostat.gpu.decisions import Verb


def test_a_gang_whose_replicas_share_a_gpu_makes_room_for_half_of_it() -> None:
    pair = workload("pair", "0.5", replicas=2, on=[("n1", [0]), ("n1", [0])])
    made = plan_of(tenant("a"), node("n1", 1), pair, workload("high", "0.5", priority=10))
    assert named(made.of(Verb.PREEMPT)) == ["pair"]


def with_cpu(name: str, cpu: int, **more: object) -> dict[str, object]:
    found = workload(name, **more)  # type: ignore[arg-type]
    found["spec"]["resources"]["cpuMilli"] = cpu
    return found


def test_who_has_the_cpu_makes_room_though_gpus_are_free() -> None:
    low = with_cpu("low", 8000, on=[("n1", [7])])
    small = with_cpu("small", 1000, on=[("n1", [1])])
    made = plan_of(tenant("a"), node("n1", cpuMilli=10_000), low, small, with_cpu("high", 8000, priority=10))
    assert named(made.of(Verb.PREEMPT)) == ["low"]


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_what_is_clear_for_one_is_taken_though_others_are_still_to_be_cleared(gone: int) -> None:
    """The guards may let only one go, and hold the rest: its GPUs are not to stand idle for as long as that."""
    low = [workload(f"low-{i}", on=[("n1", [i])], started=-5000 + i) for i in range(3)]
    high = [workload(f"high-{i}", priority=1000) for i in range(3)]
    first = plan_of(tenant("a", 3), node("n1", 3), *low, *high)
    assert len(first.of(Verb.PREEMPT)) == 3
    left = [workload("low-x", phase="Suspended") if i == gone else one for i, one in enumerate(low)]
    left[gone]["metadata"] = low[gone]["metadata"]
    second = plan_of(tenant("a", 3), node("n1", 3), *left, *high, memory=first.memory, after=5.0)
    admitted = second.of(Verb.ADMIT)
    assert [one.places[0].gpus for one in admitted] == [(gone,)]


@pytest.mark.parametrize(("mode", "goes"), [("Checkpoint", 1), ("Suspend", 1), ("Restart", 0)])
def test_for_a_share_only_what_keeps_its_state_makes_way(mode: str, goes: int) -> None:
    rich = [workload(f"rich{i}", 4, of="a", on=[("n1", [4 * i + j for j in range(4)])], preemption={"mode": mode}) for i in range(2)]
    tenants = [tenant(name, 0, cohort="c") for name in "ab"]
    made = plan_of(*tenants, tenant("idle", 8, cohort="c"), node("n1"), *rich, workload("poor", 2, of="b"))
    assert len(made.of(Verb.PREEMPT)) == goes


def test_for_a_priority_the_lowest_goes_first_whatever_it_loses() -> None:
    low = workload("low", 4, on=[("n1", [0, 1, 2, 3])], started=-36_000, preemption={"mode": "Restart"})
    middle = workload("middle", 4, on=[("n1", [4, 5, 6, 7])], priority=5, preemption={"mode": "Checkpoint"})
    made = plan_of(tenant("a"), node("n1"), low, middle, workload("high", 4, priority=10))
    assert named(made.of(Verb.PREEMPT)) == ["low"]


def test_for_a_quota_all_make_way_and_what_loses_least_goes_first() -> None:
    modes = ("Restart", "Suspend", "Checkpoint")
    work = [workload(mode, 2, of="b", on=[("n1", [2 * i, 2 * i + 1])], preemption={"mode": mode}) for i, mode in enumerate(modes)]
    tenants = [tenant("a", 6, cohort="c"), tenant("b", 0, cohort="c")]
    taken = [
        named(plan_of(*tenants, node("n1", 6), *work, workload("own", size, of="a")).of(Verb.PREEMPT)) for size in (2, 4, 6)
    ]
    assert taken == [["Checkpoint"], ["Checkpoint", "Suspend"], ["Checkpoint", "Suspend", "Restart"]]
