"""What is idle is reclaimed on evidence, what has failed is mended, and nothing is done on what nobody can know."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.gpu.facts import NOW, Object, named, node, plan_of, stamp, tenant, why, workload

from homeostat.gpu.decisions import Constraint, Memory, Plan, Verb
from homeostat.gpu.kinds import FailurePolicy, GpuPolicySpec, IdleReclaim
from homeostat.gpu.objects import Reader

QUIET = {"utilisation": 0.01, "memoryTraffic": 0.0, "cpu": 0.01}


# idle


def idle_for(minutes: int, reading: dict[str, Any], *, every: int = 1, age: float = -30.0, **spec: Any) -> list[Plan]:
    """One plan a minute; the node is heard of all the time, its readings are of `age`."""
    plans: list[Plan] = []
    for minute in range(0, minutes, every):
        now = minute * 60.0
        machine = node("n1", heard=now + age, readings=[{"index": i, **reading} for i in range(8)])
        lease: Object = {"kind": "Lease", "metadata": {"name": "n1"}, "spec": {"renewTime": stamp(now)}}
        holder = workload("w", 2, on=[("n1", [0, 1])], **spec)
        memory = plans[-1].memory if plans else None
        plans.append(plan_of(tenant("a", 8), machine, lease, holder, memory=memory, after=now))
    return plans


def test_idle_gpus_are_warned_about_and_then_taken_back() -> None:
    plans = idle_for(42, QUIET)
    verbs = {round(plan.memory.at or 0) - round(NOW): decision.verb for plan in plans for decision in plan.decisions}
    assert verbs == {30 * 60: Verb.WARN, 40 * 60: Verb.RECLAIM, 41 * 60: Verb.RECLAIM}


@pytest.mark.parametrize("busy", [{"utilisation": 0.5}, {"memoryTraffic": 0.5}, {"cpu": 3.0}, {"cpu": None}])
def test_one_signal_of_life_or_a_missing_one_is_enough_to_leave_it_alone(busy: dict[str, Any]) -> None:
    assert not any(plan.decisions for plan in idle_for(60, QUIET | busy))


@pytest.mark.parametrize("signal", list(QUIET))
@pytest.mark.parametrize("nonsense", [None, -1.0, "absent"])
def test_what_a_gpu_does_not_tell_or_cannot_be_is_no_evidence(signal: str, nonsense: Any) -> None:
    reading = {name: value for name, value in QUIET.items() if name != signal}
    assert not any(plan.decisions for plan in idle_for(60, reading if nonsense == "absent" else {**reading, signal: nonsense}))


def test_nothing_is_reclaimed_on_stale_readings_or_when_nobody_looked() -> None:
    assert not any(plan.decisions for plan in idle_for(60, QUIET, age=-130.0))
    assert not any(plan.decisions for plan in idle_for(120, QUIET, every=5))


def test_some_are_only_warned_about_or_left_alone() -> None:
    assert {d.verb for plan in idle_for(60, QUIET, idle={"mode": "Warn"}) for d in plan.decisions} == {Verb.WARN}
    assert {d.verb for plan in idle_for(60, QUIET, preemption={"mode": "Never"}) for d in plan.decisions} == {Verb.WARN}
    assert not any(plan.decisions for plan in idle_for(60, QUIET, idle={"mode": "Ignore"}))


def reclaimed(ago: float, times: int = 1, **spec: Any) -> Object:
    """Taken back as idle so many seconds ago, for so many times in a row."""
    said = {"verb": "reclaim", "at": stamp(-ago), "constraint": "idle", "reason": "it was idle"}
    return workload("w", 2, phase="Suspended", status={"reclaims": times, "decision": said}, **spec)


@pytest.mark.parametrize(("times", "hours"), [(1, 1), (2, 2), (3, 4), (5, 16), (6, 24), (60, 24)])
def test_what_was_taken_back_stays_off_for_longer_each_time(times: int, hours: int) -> None:
    fleet = [tenant("a", 8), node("n1")]
    plan = plan_of(*fleet, reclaimed(hours * 3600 - 60, times))
    found = why(plan, "w")
    assert (plan.decisions, found.constraint, found.never) == ([], Constraint.IDLE, False)
    assert found.estimated_start == NOW + 60
    assert named(plan_of(*fleet, reclaimed(hours * 3600, times)).of(Verb.RESUME)) == ["w"]


def test_a_person_has_it_back_at_once_and_so_does_a_policy() -> None:
    fleet = [tenant("a", 8), node("n1")]
    for mode in ("Warn", "Ignore"):
        assert named(plan_of(*fleet, reclaimed(60, idle={"mode": mode})).of(Verb.RESUME)) == ["w"]
    for rules in (IdleReclaim(enabled=False), IdleReclaim(pause=timedelta(0))):
        assert named(plan_of(*fleet, reclaimed(60), policy=GpuPolicySpec(idle=rules)).of(Verb.RESUME)) == ["w"]


def test_who_was_idle_has_its_turn_after_the_others_however_long_it_took_to_leave() -> None:
    def plan(phase: str, memory: Memory, *others: Object) -> Plan:
        said = {"verb": "reclaim", "at": stamp(-7200), "constraint": "idle", "reason": "it was idle"}
        lazy = workload("lazy", 8, submitted=-9000, started=-9000, on=[("n1", list(range(8)))], phase=phase, status={"reclaims": 1, "decision": said})
        return plan_of(tenant("a", 8), node("n1"), lazy, *others, memory=memory)

    leaves = plan("Suspending", Memory(at=NOW - 5, warned={"uid-lazy": NOW - 700}))
    assert named(plan("Suspended", leaves.memory, workload("late", 8)).of(Verb.ADMIT, Verb.RESUME)) == ["late"]


@pytest.mark.parametrize(("worked", "times"), [(29 * 60, 3), (30 * 60, 1)])
def test_who_has_used_its_gpus_since_is_taken_back_as_for_the_first_time(worked: float, times: int) -> None:
    runs = workload("w", 2, on=[("n1", [0, 1])], started=-40 * 60 - worked, status={"reclaims": 2, "decision": {"verb": "resume", "at": stamp(-3600)}})
    idle = Memory(at=NOW - 60, idle={"uid-w": (NOW - 40 * 60, NOW - 60)}, warned={"uid-w": NOW - 600})
    machine = node("n1", readings=[{"index": i, **QUIET} for i in range(8)])
    [taken] = plan_of(tenant("a", 8), machine, runs, memory=idle).of(Verb.RECLAIM)
    assert taken.count == times
    assert taken.reason.endswith("; it comes back by itself after 4 h" if times == 3 else "; it comes back by itself after 1 h")


# failure


def fleet_of(count: int, silent: set[int], **spec: Any) -> list[Object]:
    return [node(f"n{i}", heard=-100.0 if i in silent else 0.0, **spec) for i in range(count)]


def test_work_of_a_lost_node_goes_on_elsewhere() -> None:
    plan = plan_of(tenant("a", 64), *fleet_of(3, {0}), workload("w", 8, on=[("n0", list(range(8)))]))
    assert (plan.decisions[0].verb, plan.decisions[0].constraint, plan.decisions[0].places[0].node) == (
        Verb.RESUME,
        Constraint.FAILURE,
        "n1",
    )


def test_without_room_it_waits_before_all_others() -> None:
    full = [workload(f"w{i}", 8, on=[(f"n{i}", list(range(8)))]) for i in range(3)]
    first = plan_of(tenant("a", 64), *fleet_of(3, {0}), *full, workload("p", 8, submitted=-5000, priority=5))
    assert named(first.of(Verb.REQUEUE)) == ["w0"]
    again = [workload("w0", 8, phase="Pending"), full[1], workload("p", 8, submitted=-5000, priority=5)]
    second = plan_of(
        tenant("a", 64), *fleet_of(3, set()), *again, memory=Memory(at=NOW, displaced=first.memory.displaced), after=0
    )
    assert named(second.of(Verb.RESUME, Verb.ADMIT))[0] == "w0"


def test_it_comes_first_also_after_the_rest_of_it_had_to_be_ended_elsewhere() -> None:
    gang = {"replicas": 2, "on": [("n0", list(range(8))), ("n1", list(range(8)))]}
    rival = workload("p", 8, replicas=2, submitted=-50_000, priority=5)
    first = plan_of(tenant("a", 64), *fleet_of(3, {0}), workload("w", 8, **gang), workload("x", 8, on=[("n2", list(range(8)))]), rival)
    assert named(first.of(Verb.REQUEUE)) == ["w"]
    ending = plan_of(tenant("a", 64), *fleet_of(3, {0}), workload("w", 8, phase="Suspending", **gang), rival, memory=first.memory)
    waits = workload("w", 8, replicas=2, phase="Suspended")
    assert named(plan_of(tenant("a", 64), *fleet_of(2, set()), waits, rival, memory=ending.memory).of(Verb.RESUME, Verb.ADMIT)) == ["w"]


def test_a_lost_node_of_a_pool_is_to_be_replaced_until_it_is_gone() -> None:
    pool: Object = {"kind": "NodePool", "metadata": {"name": "p"}, "spec": {"model": "H100", "maximum": 9}}
    plan = plan_of(tenant("a"), pool, *fleet_of(3, {0}, pool="p"))
    assert [decision.verb for decision in plan.decisions] == [Verb.REPLACE]
    again = plan_of(tenant("a"), pool, *fleet_of(3, {0}, pool="p", cordoned=True), memory=plan.memory)
    assert [decision.verb for decision in again.decisions] == [Verb.REPLACE]


def test_when_most_of_the_fleet_is_silent_the_observer_is_suspected() -> None:
    running = [workload(f"w{i}", 8, on=[(f"n{i}", list(range(8)))]) for i in range(4)]
    plan = plan_of(tenant("a", 8), *fleet_of(4, {0, 1, 2}), *running, workload("p"))
    assert [(decision.verb, decision.constraint) for decision in plan.decisions] == [(Verb.REPORT, Constraint.OBSERVER)]
    assert why(plan, "p").constraint is Constraint.OBSERVER
    assert plan.pending.cycle.share[0] == 1.0, "what the tenant has is known all the same"
    half = plan_of(tenant("a", 64), *fleet_of(4, {0, 1}), *running)
    assert named(half.of(Verb.REQUEUE)) == ["w0", "w1"]


def test_a_failed_gpu_moves_its_work_and_takes_no_more() -> None:
    bad = node("n1", 2, readings=[{"index": 0, "health": "Failed", "reason": "XID 79"}])
    plan = plan_of(tenant("a", 64), bad, node("n2", 2), workload("w", 1, on=[("n1", [0])]), workload("p", 1))
    places = {
        decision.name.removeprefix("team/"): (decision.places[0].node, decision.places[0].gpus)
        for decision in plan.decisions
    }
    assert set(places) == {"w", "p"}
    assert ("n1", (0,)) not in places.values()


def test_a_flapping_node_is_cordoned() -> None:
    machine = node("n1")
    machine["status"]["flaps"] = 3
    plan = plan_of(tenant("a"), machine, node("n2"), workload("w"))
    assert [(decision.verb, decision.name) for decision in plan.decisions] == [
        (Verb.ADMIT, "team/w"),
        (Verb.CORDON, "n1"),
    ][::-1]
    off = GpuPolicySpec(failure=FailurePolicy(enabled=False))
    assert plan_of(tenant("a"), machine, node("n2"), policy=off).decisions == []


def test_a_drained_node_is_emptied() -> None:
    objects = [
        tenant("a", 64),
        node("n1", drain=True),
        node("n2"),
        workload("w", 8, on=[("n1", list(range(8)))], preemption={"mode": "Checkpoint"}),
    ]
    plan = plan_of(*objects)
    assert (plan.decisions[0].verb, plan.decisions[0].places[0].node) == (Verb.MIGRATE, "n2")


def test_what_was_declared_larger_since_is_moved_only_where_its_quota_has_room_for_that() -> None:
    grown = workload("w", 6, on=[("n1", [0, 1])], preemption={"mode": "Checkpoint"})
    nodes = [node("n1", drain=True), node("n2")]
    plan = plan_of(tenant("a", 5), *nodes, grown)
    assert plan.of(Verb.MIGRATE) == []
    why = "as it was declared since it wants 4 GPUs more, for which its quota has no room, and it holds up the draining of n1"
    assert [one.reason for one in plan.of(Verb.REPORT)] == [why]
    plan = plan_of(tenant("a", 7), *nodes, grown, workload("x", 2))
    assert [(one.name, len(one.places[0].gpus)) for one in plan.of(Verb.MIGRATE)] == [("team/w", 6)]
    assert plan.of(Verb.ADMIT) == []  # what it grows by is taken


def test_leases_that_are_about_to_run_out_count_when_the_observer_is_judged() -> None:
    first_of_three = [node("n0", heard=-41), node("n1", heard=-35), node("n2", heard=-33), node("n3", heard=-1)]
    plan = plan_of(tenant("a"), *first_of_three, workload("w", on=[("n0", [0])]))
    assert [decision.constraint for decision in plan.decisions] == [Constraint.OBSERVER]
    alone = [node("n0", heard=-41), *(node(f"n{i}", heard=-9) for i in (1, 2, 3))]
    assert named(plan_of(tenant("a", 64), *alone, workload("w", on=[("n0", [0])])).of(Verb.RESUME, Verb.REQUEUE)) == ["w"]


def test_a_node_that_was_lost_and_is_heard_again_has_flapped() -> None:
    lost = plan_of(tenant("a"), *fleet_of(3, {0})).memory
    back = plan_of(tenant("a"), *fleet_of(3, set()), memory=lost, after=5).memory
    assert back.flaps == {"n0": [NOW + 5]}
    later = [node(f"n{i}", heard=1900.0) for i in range(3)]
    assert plan_of(tenant("a"), *later, memory=back, after=1900).memory.flaps == {}


def test_after_most_were_silent_those_that_come_back_later_have_a_lease_more() -> None:
    plan = plan_of(tenant("a"), *fleet_of(4, {0, 1, 2}))
    assert plan.memory.suspected == NOW
    back = [node("n0", heard=-99), *(node(f"n{i}", heard=30.0) for i in (1, 2, 3))]
    running = workload("w", on=[("n0", [0])])
    soon = plan_of(tenant("a"), *back, running, memory=plan.memory, after=35)
    assert [decision.constraint for decision in soon.decisions] == [Constraint.OBSERVER]
    later = plan_of(tenant("a"), *back, running, memory=soon.memory, after=41)
    assert named(later.of(Verb.RESUME, Verb.REQUEUE)) == ["w"]


def test_no_policy_takes_a_node_for_lost_before_its_own_lease_has_run_out() -> None:
    """Somebody types 1s where agents give word every 10 s: between two words nothing happened to them."""
    hasty = GpuPolicySpec(failure=FailurePolicy(lease=timedelta(seconds=1)))
    nodes = [node(f"n{i}", heard=-0.4) for i in range(4)]
    leases = [
        {"kind": "Lease", "metadata": {"name": f"n{i}"}, "spec": {"renewTime": stamp(-9 if i == 0 else -0.4), "leaseDurationSeconds": 40}}
        for i in range(4)
    ]
    running = workload("w", 8, on=[("n0", list(range(8)))])
    assert plan_of(tenant("a", 64), *nodes, *leases, running, policy=hasty).decisions == []
    leases[0]["spec"]["renewTime"] = stamp(-41)
    assert [one.verb for one in plan_of(tenant("a", 64), *nodes, *leases, running, policy=hasty).decisions] == [Verb.RESUME]


def test_a_lease_that_somebody_deleted_does_not_make_a_node_lost() -> None:
    reader = Reader(listens=True)
    beat = {"kind": "Lease", "metadata": {"name": "n1"}, "spec": {"renewTime": stamp(-3), "leaseDurationSeconds": 40}}
    reader.put(node("n1", heard=-55.0))
    reader.put(beat)
    assert reader.snapshot(NOW).nodes.heard.tolist() == [NOW - 3]
    reader.remove(beat)
    assert reader.snapshot(NOW).nodes.heard.tolist() == [NOW - 3]


def test_who_lost_its_node_is_said_to_wait_until_that_is_written_though_it_may_not_start_again() -> None:
    """Else one that was deleted meanwhile would run for ever on a node that is no more."""
    stopped = workload("w", on=[("n0", [0])], suspended=True)
    objects = [tenant("a", 64), *fleet_of(3, {0}), stopped]
    first = plan_of(*objects)
    assert named(first.of(Verb.REQUEUE)) == ["w"]
    assert named(plan_of(*objects, memory=first.memory, after=5.0).of(Verb.REQUEUE)) == ["w"]
    waits = [*objects[:-1], workload("w", phase="Suspended", suspended=True)]
    assert plan_of(*waits, memory=first.memory, after=5.0).of(Verb.REQUEUE) == []


def beat(name: str, renewed: float) -> Object:
    return {"kind": "Lease", "metadata": {"name": name}, "spec": {"renewTime": stamp(renewed), "leaseDurationSeconds": 40}}


def test_work_on_a_node_that_was_deleted_goes_on_elsewhere_when_its_agent_is_not_heard_any_more() -> None:
    """While it is, the node is about to be declared again, and its work would run twice."""
    running = workload("w", 2, on=[("gone", [0, 1])])
    assert plan_of(tenant("a", 8), node("n1"), beat("gone", -30), running).decisions == []
    for beats in ([beat("gone", -41)], []):
        plan = plan_of(tenant("a", 8), node("n1"), *beats, running)
        assert (named(plan.of(Verb.RESUME)), plan.decisions[0].places[0].node) == (["w"], "n1")
    full = plan_of(tenant("a", 8), node("n1", 1), running)
    assert [(one.verb, one.reason.partition(":")[0]) for one in full.decisions] == [(Verb.REQUEUE, "gone is no more")]
    assert named(plan_of(tenant("a", 8), node("n1", 1), running, memory=full.memory, after=5).of(Verb.REQUEUE)) == ["w"]


def test_a_gang_of_which_one_node_was_deleted_goes_on_as_a_whole() -> None:
    gang = workload("w", 2, replicas=2, on=[("gone", [0, 1]), ("n1", [0, 1])])
    plan = plan_of(tenant("a", 8), node("n1", 4), node("n2", 4), gang)
    assert [(one.verb, {place.node for place in one.places}) for one in plan.decisions] == [(Verb.RESUME, {"n2"})]


@pytest.mark.parametrize("others", [2, 8])
def test_work_on_gpus_that_its_node_has_no_more_goes_on_elsewhere(others: int) -> None:
    """Whether other nodes have GPUs of that number or not."""
    running = workload("w", 2, on=[("n1", [2, 3])])
    plan = plan_of(tenant("a", 2), node("n1", 2), node("n2", others, cordoned=True), running)
    assert [(one.verb, one.places[0].node, one.places[0].gpus) for one in plan.decisions] == [(Verb.RESUME, "n1", (0, 1))]
    full = plan_of(tenant("a", 2), node("n1", 1), node("n2", others, cordoned=True), running)
    assert [(one.verb, one.reason.partition(":")[0]) for one in full.decisions] == [(Verb.REQUEUE, "GPU 2 of n1 is no more")]


@pytest.mark.parametrize("machine", [node("n1", 2, readings=[{"index": 1, "health": "Failed"}]), node("n1", 1)])
def test_suspended_work_does_not_wait_for_a_gpu_that_failed_or_is_no_more(machine: Object) -> None:
    suspended = workload("w", 2, on=[("n1", [0, 1])], phase="Suspended", started=-100_000.0)
    plan = plan_of(tenant("a", 8), machine, node("n2", 2), suspended)
    assert [(one.verb, one.places[0].node) for one in plan.decisions] == [(Verb.RESUME, "n2")]


def test_a_gpu_that_is_cut_by_mig_takes_no_work_and_keeps_what_it_has() -> None:
    cut = node("n1", 3)
    for gpu in cut["spec"]["gpus"][1:]:
        gpu["mig"] = ["1g.10gb"]
    running = workload("w", 1, on=[("n1", [1])])
    plan = plan_of(tenant("a"), cut, running, workload("p", 2), workload("q", 1))
    assert [(one.name, one.places[0].gpus) for one in plan.decisions] == [("team/q", (0,))]
