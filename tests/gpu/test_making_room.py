"""Who has to go for another: as few as it takes, and all that it takes."""

from __future__ import annotations

import msgspec
import pytest
from tests.gpu.facts import NOW, Object, named, node, plan_of, tenant, workload

from homeostat.gpu.controller.undone import begin_anew
from homeostat.gpu.decisions import Memory, Plan, Verb


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


def one_by_one(after: float, memory: Memory, *more: Object) -> Plan:
    """Two of a full quota are to make way for what came later; by the guards neither has yet."""
    low = [workload(f"low-{i}", on=[("n1", [i])]) for i in range(2)]
    return plan_of(tenant("a", 2), node("n1"), *low, workload("high", priority=10), *more, memory=memory, after=after)


def test_who_is_to_make_way_for_one_is_not_taken_for_another_as_well() -> None:
    first = one_by_one(0.0, Memory())
    second = one_by_one(1.0, first.memory, workload("next", priority=9))
    assert len(set(named(first.of(Verb.PREEMPT)) + named(second.of(Verb.PREEMPT)))) == 2
    assert [len(times) for times in second.memory.preempted.values()] == [1, 1]
    assert len(second.memory.preemptions) == 2


def test_after_a_restart_room_is_sought_anew_and_what_was_not_carried_out_costs_no_budget() -> None:
    first = one_by_one(0.0, Memory())
    memory = msgspec.json.decode(msgspec.json.encode(first.memory), type=Memory)  # as it was written down
    begin_anew(memory)
    again = one_by_one(30.0, memory)
    assert named(again.of(Verb.PREEMPT)) == named(first.of(Verb.PREEMPT))
    assert (again.memory.preemptions, len(again.memory.rivals)) == ([NOW + 30.0], 1)


def test_a_preemption_that_was_carried_out_counts_after_a_restart_too() -> None:
    first = one_by_one(0.0, Memory())
    [uid] = first.memory.preempted
    begin_anew(first.memory)
    back = workload(uid.removeprefix("uid-"), on=[("n1", [5])], started=5.0)
    again = plan_of(tenant("a", 2), node("n1"), back, memory=first.memory, after=30.0)
    assert again.memory.preempted == {uid: [NOW]}
    assert again.memory.preemptions == [NOW]
