"""The governor decides as declared: each test is a fleet at one moment, or a few moments in a row."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.gpu.facts import NOW, Object, named, node, plan_of, stamp, tenant, why, workload

from homeostat.gpu.decisions import Constraint, Memory, Reservation, Verb
from homeostat.gpu.explain import standings
from homeostat.gpu.kinds import Ageing, Cost, FairShare, GpuPolicySpec, Place, Preempting, TimeSharing

# quota


def over_quota(**spec: Any) -> list[Object]:
    """Fourteen GPUs of ten: seven workloads of two, the higher numbers with the higher priority and the younger."""
    where = [
        ("n1", [0, 1]),
        ("n1", [2, 3]),
        ("n1", [4, 5]),
        ("n1", [6, 7]),
        ("n2", [0, 1]),
        ("n2", [2, 3]),
        ("n2", [4, 5]),
    ]
    return [
        node("n1"),
        node("n2"),
        *(
            workload(f"w{i}", 2, on=[at], priority=i // 3, started=-9000 + 100 * i, **spec)
            for i, at in enumerate(where)
        ),
    ]


def test_fourteen_used_of_ten_go_back_to_ten_lowest_priority_and_youngest_first() -> None:
    plan = plan_of(tenant("a", 10), *over_quota())
    assert named(plan.of(Verb.SUSPEND)) == ["w2", "w1"]
    assert "14 of the 10 GPUs" in plan.decisions[0].reason
    assert plan.decisions[0].constraint is Constraint.QUOTA


def test_what_is_on_its_way_out_is_not_counted_again() -> None:
    objects = over_quota()
    for obj in objects[2:4]:
        obj["status"]["phase"] = "Suspending"
    assert plan_of(tenant("a", 10), *objects).decisions == []


def test_nothing_is_taken_off_before_its_minimum_runtime_unless_the_policy_says_so() -> None:
    objects = over_quota(minimumRuntime="3h0m0s")
    assert plan_of(tenant("a", 10), *objects).of(Verb.SUSPEND) == []
    hard = GpuPolicySpec(preemption=Preempting(past_minimum_runtime=True))
    assert len(plan_of(tenant("a", 10), *objects, policy=hard).of(Verb.SUSPEND)) == 2


def test_a_gang_goes_whole_and_the_fewest_gpus_are_lost() -> None:
    gang = workload("gang", 4, replicas=2, on=[("n1", [0, 1, 2, 3]), ("n2", [0, 1, 2, 3])], started=-100)
    small = [workload(f"s{i}", 1, on=[("n1", [4 + i])], started=-5000) for i in range(3)]
    plan = plan_of(tenant("a", 9), node("n1"), node("n2"), gang, *small)
    assert named(plan.of(Verb.SUSPEND)) == ["s2", "s1"]
    plan = plan_of(tenant("a", 3), node("n1"), node("n2"), gang, *small)
    assert named(plan.of(Verb.SUSPEND)) == ["gang"]


def test_a_type_whose_quota_was_removed_is_given_back() -> None:
    running = workload("w", 2, on=[("n1", [0, 1])])
    assert named(plan_of(tenant("a", 8, model="L40S"), node("n1"), running).of(Verb.SUSPEND)) == ["w"]


def test_of_a_tenant_that_nobody_declared_nothing_is_touched() -> None:
    plan = plan_of(tenant("b"), node("n1"), workload("w", 2, on=[("n1", [0, 1])]), workload("p"))
    assert plan.decisions == []
    assert why(plan, "p").constraint is Constraint.TENANT


# cohorts


def test_a_cohort_lends_what_is_idle_and_no_more() -> None:
    tenants = [tenant("a", 4, cohort="x"), tenant("b", 6, cohort="x", lending=2)]
    plan = plan_of(*tenants, node("n1"), node("n2"), *(workload(f"w{i}", 2, submitted=-100 + i) for i in range(5)))
    assert named(plan.of(Verb.ADMIT)) == ["w0", "w1", "w2"]
    assert why(plan, "w3").constraint is Constraint.QUOTA


def test_who_is_within_its_quota_takes_back_what_others_borrowed() -> None:
    tenants = [tenant("a", 4, cohort="x"), tenant("b", 4, cohort="x")]
    running = [workload(f"b{i}", 2, of="b", on=[("n1", [2 * i, 2 * i + 1])], started=-1000 + i) for i in range(4)]
    plan = plan_of(*tenants, node("n1"), *running, workload("mine", 2))
    assert named(plan.of(Verb.PREEMPT)) == ["b3"]
    assert plan.of(Verb.PREEMPT)[0].constraint is Constraint.QUOTA
    assert plan.of(Verb.PREEMPT)[0].beneficiary == "uid-mine"


def test_what_was_lent_has_to_be_given_back_before_it_is_there() -> None:
    tenants = [tenant("a", 2, cohort="x"), tenant("b", 6, cohort="x", lending=2)]
    borrowed = workload("r", 4, on=[("n1", [0, 1, 2, 3])])
    plan = plan_of(
        *tenants, node("n1"), node("n2"), borrowed, workload("kept", 4, of="b"), workload("lent", 2, of="b")
    )
    assert named(plan.of(Verb.ADMIT)) == ["kept"]
    assert named(plan.of(Verb.PREEMPT)) == ["r"]


def test_a_lowered_quota_of_the_lender_brings_the_borrower_back() -> None:
    tenants = [tenant("a", 2, cohort="x"), tenant("b", 1, cohort="x")]
    running = [workload(f"w{i}", 1, on=[("n1", [i])], started=-1000 + i) for i in range(5)]
    assert named(plan_of(*tenants, node("n1"), *running).of(Verb.SUSPEND)) == ["w4", "w3"]


def test_free_gpus_go_to_the_tenant_that_has_least_for_its_weight() -> None:
    tenants = [tenant("a", 0, cohort="x"), tenant("b", 0, cohort="x", weight=3.0), tenant("idle", 8, cohort="x")]
    waiting = [workload(f"{of}{i}", 1, of=of, submitted=-100 + i) for of in "ab" for i in range(8)]
    plan = plan_of(*tenants, node("n1"), *waiting)
    owners = [name[0] for name in named(plan.of(Verb.ADMIT))]
    assert (owners.count("a"), owners.count("b")) == (2, 6)


def test_past_use_counts_and_fades() -> None:
    tenants = [tenant("a", 0, cohort="x"), tenant("b", 0, cohort="x"), tenant("idle", 8, cohort="x")]
    waiting = [workload("a1", 8, of="a", submitted=-200), workload("b1", 8, of="b")]
    memory = Memory(at=NOW, usage={"a": {"H100": 8000.0}})
    assert named(plan_of(*tenants, node("n1"), *waiting, memory=memory).of(Verb.ADMIT)) == ["b1"]
    faded = plan_of(*tenants, node("n1", heard=86_400.0), memory=memory, after=86_400.0)
    assert faded.memory.usage["a"]["H100"] == pytest.approx(4000.0)


# placement


def test_a_gang_is_placed_whole_or_not_at_all() -> None:
    gang, small = workload("gang", 8, replicas=2), workload("small", 8, submitted=-10)
    short = workload("short", 1, on=[("n1", [0])], maximumRuntime="2h0m0s")
    plan = plan_of(tenant("a", 64), node("n1"), node("n2"), short, gang, small, policy=GpuPolicySpec(backfill=False))
    assert plan.decisions == []
    assert why(plan, "gang").constraint is Constraint.CAPACITY
    assert why(plan, "small").constraint is Constraint.RESERVATION
    whole = plan_of(tenant("a", 64), node("n1"), node("n2"), gang, small)
    assert [(decision.name, [place.node for place in decision.places]) for decision in whole.decisions] == [
        ("team/gang", ["n1", "n2"])
    ]


@pytest.mark.parametrize(("topology", "fits"), [("NvlinkDomain", True), ("Rack", True), ("Node", False)])
def test_replicas_stay_within_what_they_ask_for(topology: str, fits: bool) -> None:
    nodes = [
        node("n1", rack="r1", nvlinkDomain="d1"),
        node("n2", rack="r2", nvlinkDomain="d2"),
        node("n3", rack="r2", nvlinkDomain="d2"),
    ]
    plan = plan_of(tenant("a", 64), *nodes, workload("w", 8, replicas=2, topology=topology))
    assert (
        ([place.node for place in plan.decisions[0].places] == ["n2", "n3"])
        if fits
        else why(plan, "w").constraint is Constraint.TOPOLOGY
    )


def test_fractions_share_a_gpu_and_leave_the_others_whole() -> None:
    parts = [workload(f"f{i}", "0.25", submitted=-100 + i) for i in range(5)]
    plan = plan_of(tenant("a", 8), node("n1"), *parts)
    assert [(decision.places[0].gpus, decision.places[0].milli) for decision in plan.decisions] == [((0,), 250)] * 4 + [
        ((1,), 250)
    ]


def test_one_and_a_half_gpus_cannot_be_given() -> None:
    assert why(plan_of(tenant("a", 8), node("n1"), workload("w", "1.5")), "w").constraint is Constraint.REQUEST


def test_the_cheapest_gpus_that_do_are_taken_first_and_spot_falls_back() -> None:
    nodes = [node("dear", model="H100", costPerHour=30), node("cheap", model="L40S", costPerHour=5, spot=True)]
    allow, avoid = workload("allow", 8), workload("avoid", 8, spot="Avoid")
    plan = plan_of(tenant("a", 64), *nodes, allow, avoid)
    assert {
        name: decision.places[0].node for name, decision in zip(named(plan.decisions), plan.decisions, strict=True)
    } == {"allow": "cheap", "avoid": "dear"}
    second = plan_of(tenant("a", 64), *nodes, workload("first", 8, on=[("cheap", list(range(8)))]), allow)
    assert second.decisions[0].places[0].node == "dear"


# preemption and reservations


def full_node(*, priority: int = 0, **spec: Any) -> list[Object]:
    return [tenant("a", 8), node("n1"), workload("low", 8, on=[("n1", list(range(8)))], priority=priority, **spec)]


def test_a_higher_priority_takes_the_place_and_gets_what_was_cleared() -> None:
    first = plan_of(*full_node(), workload("high", 4, priority=10))
    assert named(first.of(Verb.PREEMPT)) == ["low"]
    assert first.of(Verb.ADMIT) == []
    objects = full_node()
    objects[2]["status"] |= {"phase": "Suspending"}
    waiting = plan_of(
        *objects, workload("high", 4, priority=10), workload("new", 4, priority=50), memory=first.memory, after=10
    )
    assert waiting.decisions == []
    objects[2]["status"] = {"phase": "Suspended", "submittedAt": stamp(-9000)}
    after = plan_of(
        *objects, workload("high", 4, priority=10), workload("new", 4, priority=50), memory=waiting.memory, after=20
    )
    assert named(after.of(Verb.ADMIT)) == ["new", "high"] or named(after.of(Verb.ADMIT)) == ["high", "new"]


def test_an_equal_priority_waits_and_so_does_one_of_another_tenant() -> None:
    assert plan_of(*full_node(), workload("same", 4)).decisions == []
    other = plan_of(*full_node(), tenant("b", 8), workload("high", 4, of="b", priority=10))
    assert other.decisions == []
    by_priority_alone = GpuPolicySpec(fair_share=FairShare(enabled=False))
    crossing = plan_of(*full_node(), tenant("b", 8), workload("high", 4, of="b", priority=10), policy=by_priority_alone)
    assert named(crossing.of(Verb.PREEMPT)) == ["low"]


@pytest.mark.parametrize("spec", [{"preemption": {"mode": "Never"}}, {"minimumRuntime": "2h0m0s"}])
def test_what_must_not_be_preempted_is_not(spec: dict[str, Any]) -> None:
    assert plan_of(*full_node(**spec), workload("high", 4, priority=10)).decisions == []


def test_nobody_preempts_whom_it_was_preempted_by() -> None:
    memory = Memory(at=NOW - 5, rivals={"uid-high": ["uid-low"]})
    assert plan_of(*full_node(), workload("high", 4, priority=10), memory=memory).decisions == []


def test_preemption_keeps_to_its_budgets() -> None:
    spent = Memory(at=NOW - 5, preempted={"uid-low": [NOW - 100.0] * 3})
    assert plan_of(*full_node(), workload("high", 4, priority=10), memory=spent).decisions == []
    none_left = GpuPolicySpec(preemption=Preempting(per_hour=2))
    hour = Memory(at=NOW - 5, preemptions=[NOW - 100.0, NOW - 200.0])
    assert plan_of(*full_node(), workload("high", 4, priority=10), policy=none_left, memory=hour).decisions == []


def test_short_work_takes_the_place_of_long_work_only_under_time_sharing() -> None:
    objects = [*full_node(preemption={"mode": "Checkpoint"}), workload("short", 1)]
    assert plan_of(*objects).decisions == []
    plan = plan_of(*objects, policy=GpuPolicySpec(time_sharing=TimeSharing(enabled=True)))
    assert plan.of(Verb.PREEMPT)[0].constraint is Constraint.TIME_SHARING


def test_what_waited_too_long_gets_its_turn() -> None:
    objects = [*full_node(), workload("patient", 4, submitted=-90_000)]
    plan = plan_of(*objects)
    assert (named(plan.of(Verb.PREEMPT)), plan.of(Verb.PREEMPT)[0].constraint) == (["low"], Constraint.SLA)


def test_short_work_may_overtake_only_what_it_does_not_delay() -> None:
    running = workload("run", 4, on=[("n1", [0, 1, 2, 3])], maximumRuntime="2h0m0s", started=-3600)
    head = workload("head", 8, submitted=-500)
    quick, slow = (
        workload("quick", 2, maximumRuntime="30m0s"),
        workload("slow", 2, maximumRuntime="2h0m0s", submitted=-90),
    )
    plan = plan_of(tenant("a", 64), node("n1"), running, head, quick, slow)
    assert named(plan.of(Verb.ADMIT)) == ["quick"]
    assert why(plan, "slow").constraint is Constraint.RESERVATION
    assert why(plan, "head").estimated_start == pytest.approx(NOW + 3600)
    assert (
        named(
            plan_of(tenant("a", 64), node("n1"), running, head, quick, policy=GpuPolicySpec(backfill=False)).of(
                Verb.ADMIT
            )
        )
        == []
    )


def test_scattered_gpus_are_brought_together_for_a_large_one() -> None:
    movable = [workload(f"m{i}", 1, on=[(f"n{i}", [0])], preemption={"mode": "Checkpoint"}) for i in (1, 2)]
    objects = [tenant("a", 64), node("n1"), node("n2"), *movable, workload("big", 8)]
    assert plan_of(*objects).decisions == []
    plan = plan_of(*objects, policy=GpuPolicySpec(defragment=True))
    assert (named(plan.of(Verb.MIGRATE)), plan.decisions[0].places[0].node) == (["m1"], "n2")
    assert plan.memory.reservations["uid-big"].places[0].node == "n1"


def test_what_was_suspended_with_its_state_comes_back_to_it() -> None:
    away = workload("away", 4, on=[("n2", [0, 1, 2, 3])], phase="Suspended")
    plan = plan_of(tenant("a", 64), node("n1"), node("n2"), away)
    assert (plan.decisions[0].verb, plan.decisions[0].places[0].node) == (Verb.RESUME, "n2")
    taken = workload("other", 8, on=[("n2", list(range(8)))])
    assert why(plan_of(tenant("a", 64), node("n1"), node("n2"), away, taken), "away").constraint is Constraint.HOME


# backlog, budget, promises, ends


def pool_of(name: str, cost: float, **spec: Any) -> Object:
    return {
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"model": "H100", "costPerHour": cost, "maximum": 4, **spec},
    }


def test_a_backlog_asks_the_cheapest_pool_that_can_and_not_twice() -> None:
    objects = [
        tenant("a", 64),
        pool_of("dear", 9),
        pool_of("cheap", 1, gpusPerNode=4),
        node("n0"),
        workload("r", 8, on=[("n0", list(range(8)))]),
    ]
    waiting = [workload(f"w{i}", 8, submitted=-400) for i in range(2)]
    plan = plan_of(*objects, *waiting)
    assert [(decision.name, decision.count) for decision in plan.of(Verb.SCALE_UP)] == [("dear", 2)]
    assert plan_of(*objects, *waiting, memory=plan.memory, after=5).of(Verb.SCALE_UP) == []
    assert plan_of(*objects, workload("w", 8, submitted=-10)).of(Verb.SCALE_UP) == []


def test_for_a_gang_that_finds_room_in_part_only_the_rest_is_asked() -> None:
    gang = [workload(name, 8, submitted=-400, replicas=3) for name in ("g0", "g1")]
    objects = [tenant("a", 64), node("n0"), node("n1")]
    plan = plan_of(*objects, pool_of("p", 9, maximum=2), gang[0])
    assert [(decision.name, decision.count) for decision in plan.of(Verb.SCALE_UP)] == [("p", 1)]
    plan = plan_of(*objects, pool_of("p", 9), *gang)
    assert [(decision.name, decision.count) for decision in plan.of(Verb.SCALE_UP)] == [("p", 4)], "what is free is there for one of them"
    near = workload("near", 8, submitted=-400, replicas=3, topology="Rack")
    plan = plan_of(*objects, pool_of("p", 9), near)
    assert [(decision.name, decision.count) for decision in plan.of(Verb.SCALE_UP)] == [("p", 3)], "where a new node will stand is not known"


def test_a_pool_at_its_maximum_is_not_asked() -> None:
    objects = [
        tenant("a", 64),
        pool_of("p", 9, maximum=1),
        node("n0", pool="p"),
        workload("r", 8, on=[("n0", list(range(8)))]),
    ]
    plan = plan_of(*objects, workload("w", 8, submitted=-400))
    assert plan.of(Verb.SCALE_UP) == []
    assert why(plan, "w").reason.endswith("every pool that has such nodes is at its maximum")


def test_beyond_the_maximum_those_go_first_that_the_pool_can_take_back() -> None:
    """One that joined by itself stays though it is emptier."""
    pool = pool_of("p", 9, maximum=1) | {"status": {"machines": [{"key": "k", "node": "got"}]}}
    busy = workload("r", on=[("got", [0])])
    plan = plan_of(tenant("a", 64), pool, node("came", pool="p"), node("got", pool="p"), busy)
    assert [decision.name for decision in plan.of(Verb.DRAIN)] == ["got"]


def test_what_joined_a_pool_by_itself_stays_whatever_its_maximum() -> None:
    """It would stand idle, and be given back to nobody."""
    pool = pool_of("p", 9, maximum=1) | {"status": {"machines": [{"key": "k", "node": "got"}]}}
    plan = plan_of(tenant("a", 64), pool, *(node(name, pool="p") for name in ("came", "got", "too")))
    assert [decision.name for decision in plan.of(Verb.DRAIN)] == ["got"]
    [told] = plan.of(Verb.REPORT)
    assert (told.name, told.reason) == ("p", "p has 1 more than its maximum of 1 that joined by themselves, and stay")


def test_where_the_cheapest_pool_gives_none_the_next_is_asked_and_it_is_tried_again() -> None:
    cheap = pool_of("cheap", 1) | {"status": {"machines": [{"key": "k", "refused": "no more quota"}], "trouble": "no more quota"}}
    objects = [tenant("a", 64), cheap, node("n0"), workload("r", 8, on=[("n0", list(range(8)))])]
    waiting = [workload(f"w{i}", 8, submitted=-400) for i in range(2)]
    asked = {decision.name: decision.count for decision in plan_of(*objects, pool_of("dear", 9), *waiting).of(Verb.SCALE_UP)}
    assert asked == {"dear": 2, "cheap": 1}
    plan = plan_of(*objects, *waiting)
    assert {decision.name: decision.count for decision in plan.of(Verb.SCALE_UP)} == {"cheap": 1}, "no more than it has refused"
    assert why(plan, "w0").reason.endswith("cheap gives no nodes: no more quota")
    unread = pool_of("cheap", 1) | {"status": {"trouble": "it cannot be read"}}
    asked = {decision.name: decision.count for decision in plan_of(objects[0], unread, *objects[2:], pool_of("dear", 9), *waiting).of(Verb.SCALE_UP)}
    assert asked == {"dear": 2}


def test_a_type_that_no_node_has_yet_is_asked_of_its_pool() -> None:
    wanting = workload("w", 2, submitted=-400, models=["B200"])
    plan = plan_of(tenant("a", 64), pool_of("p", 9, model="B200"), node("n0"), wanting)
    assert [(decision.name, decision.count) for decision in plan.of(Verb.SCALE_UP)] == [("p", 1)]
    assert why(plan, "w").constraint is Constraint.TYPE
    without = plan_of(tenant("a", 64), pool_of("p", 9), node("n0"), wanting)
    assert why(without, "w").reason.endswith("no pool has such nodes")


def test_nodes_that_stand_empty_are_given_back_down_to_the_minimum() -> None:
    objects = [
        tenant("a", 64),
        pool_of("p", 9, minimum=1),
        node("n0", pool="p"),
        node("n1", pool="p", heard=900.0),
        node("n0", pool="p", heard=900.0),
    ]
    memory = Memory(at=NOW, empty={"n0": NOW, "n1": NOW})
    assert [d.name for d in plan_of(*objects, memory=memory, after=900.0).of(Verb.SCALE_DOWN)] == ["n0"]
    assert plan_of(*objects, memory=memory, after=899.0).of(Verb.SCALE_DOWN) == []


def test_a_part_empty_node_is_drained_where_that_saves_it() -> None:
    objects = [
        tenant("a", 64),
        pool_of("p", 9),
        node("n0", pool="p"),
        node("n1", pool="p"),
        workload("big", 6, on=[("n0", list(range(6)))]),
    ]
    small = workload("small", 2, on=[("n1", [0, 1])], preemption={"mode": "Checkpoint"})
    policy = GpuPolicySpec(cost=Cost(consolidate=True))
    assert [d.name for d in plan_of(*objects, small, policy=policy).of(Verb.DRAIN)] == ["n1"]
    small["spec"]["preemption"]["mode"] = "Suspend"
    assert plan_of(*objects, small, policy=policy).of(Verb.DRAIN) == []


@pytest.mark.parametrize(
    ("mode", "why_not"), [("Checkpoint", "there is no room for it elsewhere"), ("Never", "it may never be preempted")]
)
def test_who_holds_up_the_draining_of_a_node_is_told_so_once(mode: str, why_not: str) -> None:
    stays = workload("stays", 6, on=[("n0", list(range(6)))], preemption={"mode": mode})
    objects = [tenant("a", 64), node("n0", drain=True), node("n1"), stays, workload("other", 4, on=[("n1", [0, 1, 2, 3])])]
    plan = plan_of(*objects)
    assert [(one.name, one.reason) for one in plan.of(Verb.REPORT)] == [("team/stays", f"{why_not}, and it holds up the draining of n0")]
    assert not plan_of(*objects, memory=plan.memory).of(Verb.REPORT)


@pytest.mark.parametrize(
    ("mode", "verbs"),
    [("Warn", [Verb.WARN, Verb.ADMIT]), ("Hold", [Verb.WARN]), ("Suspend", [Verb.SUSPEND, Verb.WARN])],
)
def test_a_budget_that_is_used_up_warns_holds_or_suspends(mode: str, verbs: list[Verb]) -> None:
    of = tenant("a", 8, budget={"gpuHours": 10, "onExceeded": mode})
    memory = Memory(at=NOW - 3600, spent={"a": (NOW - 7200, 9.0)})
    plan = plan_of(of, node("n1"), workload("r", 2, on=[("n1", [0, 1])]), workload("p"), memory=memory)
    assert [decision.verb for decision in plan.decisions] == verbs
    assert plan.memory.spent["a"][1] == pytest.approx(11.0)


def test_a_budget_that_is_lowered_to_less_than_is_used_is_told_once() -> None:
    lowered = tenant("a", 8, budget={"gpuHours": 5})
    plan = plan_of(lowered, node("n1"), memory=Memory(at=NOW, spent={"a": (NOW - 7200, 9.0)}))
    assert [decision.verb for decision in plan.decisions] == [Verb.WARN]
    assert plan_of(lowered, node("n1"), memory=plan.memory, after=5).decisions == []


def test_periods_of_a_budget_follow_each_other_whenever_somebody_looks() -> None:
    of, job = tenant("a", 8, budget={"gpuHours": 10, "period": "1h0m0s"}), workload("job", 2, on=[("n", [0, 1])])
    memory = Memory(at=NOW - 1800, spent={"a": (NOW - 9000, 9.0)})  # it began two periods and a half ago
    began, spent = plan_of(of, node("n"), job, memory=memory).memory.spent["a"]
    assert began == NOW - 1800
    assert spent == pytest.approx(1.0)  # by two GPUs, in half an hour
    late = Memory(at=NOW - 9000, spent={"a": (NOW - 9000, 9.0)})  # nobody looked in between
    assert plan_of(of, node("n"), job, memory=late).memory.spent["a"] == (NOW - 1800, pytest.approx(1.0))


def test_a_new_period_brings_a_new_budget() -> None:
    of = tenant("a", 8, budget={"gpuHours": 10, "period": "24h0m0s"})
    memory = Memory(at=NOW - 60, spent={"a": (NOW - 86_400, 50.0)})
    plan = plan_of(of, node("n1"), workload("p"), memory=memory)
    assert named(plan.of(Verb.ADMIT)) == ["p"]
    assert plan.memory.spent["a"] == (NOW, 0.0)


def test_a_broken_promise_is_reported_once() -> None:
    objects = [
        tenant("a", 8, sla={"maxWait": "1m0s"}),
        node("n1"),
        workload("r", 8, on=[("n1", list(range(8)))], preemption={"mode": "Never"}),
    ]
    plan = plan_of(*objects, workload("p", submitted=-120))
    assert [(decision.verb, decision.constraint) for decision in plan.decisions] == [(Verb.REPORT, Constraint.SLA)]
    assert plan_of(*objects, workload("p", submitted=-120), memory=plan.memory, after=5).decisions == []


def test_a_workload_ends_at_its_maximum_and_a_person_can_suspend_one() -> None:
    old = workload("old", 1, on=[("n1", [0])], maximumRuntime="1h0m0s")
    asked = workload("asked", 1, on=[("n1", [1])], suspended=True)
    plan = plan_of(tenant("a", 8), node("n1"), old, asked, workload("held", suspended=True))
    assert [(decision.verb, decision.name) for decision in plan.decisions] == [
        (Verb.END, "team/old"),
        (Verb.SUSPEND, "team/asked"),
    ]
    assert why(plan, "held").constraint is Constraint.STOPPED


# answers


def test_who_waits_is_told_what_binds_who_is_ahead_and_when() -> None:
    running = workload("r", 8, on=[("n1", list(range(8)))], maximumRuntime="2h0m0s", started=-3600)
    plan = plan_of(
        tenant("a", 64),
        node("n1"),
        running,
        workload("first", 4, submitted=-200),
        workload("second", 2, submitted=-100),
    )
    answer = why(plan, "second")
    assert (answer.constraint, answer.position, answer.ahead_count, answer.ahead_milli) == (
        Constraint.CAPACITY,
        2,
        1,
        4000,
    )
    assert (answer.ahead[0].name, answer.ahead[0].gpus, answer.ahead[0].why) == ("team/first", "4", "submitted earlier")
    assert answer.estimated_start == pytest.approx(NOW + 3600)
    assert plan.pending.why("uid-r") is None


def test_what_the_fleet_does_not_have_is_said() -> None:
    plan = plan_of(
        tenant("a", 64),
        node("n1"),
        workload("type", models=["B200"]),
        workload("large", 16),
        workload("quota", models=["H100"], of="b"),
        tenant("b", model="L40S"),
    )
    assert [why(plan, name).constraint for name in ("type", "large", "quota")] == [
        Constraint.TYPE,
        Constraint.TYPE,
        Constraint.QUOTA,
    ]


@pytest.mark.parametrize(
    ("wants", "says"),
    [
        ({"resources": {"gpus": 1, "cpuMilli": 65_000}}, "no node of the fleet has the 65000 thousandths of a CPU that a replica wants: the most is 64000"),
        ({"resources": {"gpus": 1, "memoryMib": 600_000}}, "no node of the fleet has the 600000 MiB of memory that a replica wants: the most is 500000"),
        ({"resources": {"gpus": 1, "gpuMemoryMib": 90_000}}, "no node of the fleet has the 90000 MiB of GPU memory that it wants: a GPU has 80000 at most"),
        ({"resources": {"gpus": "0.5", "gpuMemoryMib": 50_000}}, "no node of the fleet has the 50000 MiB of GPU memory that it wants: 0.5 of a GPU has 40000 at most"),
        ({"resources": {"gpus": 9}}, "no node of the fleet has the 9 GPUs that a replica wants: the most is 8"),
        ({"spot": "Require"}, "it wants spot nodes, and there are none"),
        ({"replicas": 9, "topology": "Node"}, "no node of the fleet has room for all its 9 replicas, even with nothing else there"),
        ({"replicas": 17}, "it wants 17 replicas at once, and with nothing else on it the fleet has room for 16"),
        ({"replicas": 3, "resources": {"gpus": 1, "cpuMilli": 40_000}}, "it wants 3 replicas at once, and with nothing else on it the fleet has room for 2"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("waited", [60.0, 90_000.0])
def test_what_no_fleet_of_this_size_can_run_is_told_so_and_holds_up_nobody(wants: dict[str, Any], says: str, waited: float) -> None:
    machines = [node(name, cpuMilli=64_000, memoryMib=500_000) for name in ("n1", "n2")]
    for machine in machines:
        machine["spec"]["gpus"] = [{"index": i, "memoryMib": 80_000} for i in range(8)]
    others = [workload(f"w{i:02}", submitted=-30) for i in range(16)]
    plan = plan_of(tenant("a", 64), *machines, workload("odd", submitted=-waited, **wants), *others)
    assert (why(plan, "odd").reason, why(plan, "odd").estimated_start) == (says, None)
    assert len(plan.of(Verb.ADMIT)) == 16, "nodes are kept back for what can never start on them"


def test_what_a_quota_will_never_let_in_is_told_so() -> None:
    cohort = [tenant("a", 4, cohort="c"), tenant("b", 8, lending=2, cohort="c")]
    plan = plan_of(*cohort, node("n1"), workload("large", replicas=7), workload("fits", replicas=6))
    assert named(plan.of(Verb.ADMIT)) == ["fits"]
    assert why(plan, "large").reason.endswith("it may never have more than 6")
    assert why(plan, "large").estimated_start is None


def test_a_quota_for_a_mistyped_type_is_named() -> None:
    said = why(plan_of(tenant("a", 4, model="H10O"), node("n1"), workload("w")), "w")
    assert said.constraint is Constraint.QUOTA
    assert said.reason == "a has no quota for the types that it asks for: it has some for H10O, and no node has H10O"


def test_free_gpus_that_lie_apart_are_fragmentation() -> None:
    running = [workload(f"r{i}", 5, on=[(f"n{i}", [0, 1, 2, 3, 4])]) for i in range(2)]
    assert (
        why(plan_of(tenant("a", 64), node("n0"), node("n1"), *running, workload("w", 6)), "w").constraint
        is Constraint.FRAGMENTATION
    )


def test_the_order_of_input_changes_nothing() -> None:
    dice = random.Random(7)
    tenants = [tenant(name, 6, cohort="x") for name in "abc"]
    objects = [*tenants, *(node(f"n{i}") for i in range(4)), *over_quota()[2:]]
    objects += [
        workload(f"p{i}", dice.choice([1, 2, 4, "0.5"]), of=dice.choice("abc"), priority=dice.choice([0, 5]))
        for i in range(40)
    ]
    plans = []
    for _ in range(5):
        dice.shuffle(objects)
        plan = plan_of(*objects)
        plans.append((plan.decisions, list(plan.pending), plan.memory))
    assert all(plan == plans[0] for plan in plans)


def test_memory_is_plain_data() -> None:
    plan = plan_of(
        *full_node(),
        workload("high", 4, priority=10),
        policy=GpuPolicySpec(ageing=Ageing(overdue_after=timedelta(hours=1))),
    )
    assert plan.memory.reservations
    assert msgspec.json.decode(msgspec.json.encode(plan.memory), type=Memory) == plan.memory


def test_what_is_left_of_a_quota_counts_when_it_is_estimated_when_one_starts_that_wants_more() -> None:
    holds = workload("holds", 2, on=[("n", [0, 1])], started=-600.0)
    plan = plan_of(tenant("a", 8), node("n", 16), holds, workload("w", 8, submitted=-90.0), workload("next", 8))
    assert why(plan, "w").constraint == "quota"
    assert why(plan, "w").estimated_start == pytest.approx(NOW + 1200, abs=1), "when those two are back, and not after rounds of them"


def test_a_quota_of_another_type_of_gpu_does_not_bring_a_start_nearer() -> None:
    both = [{"model": "H100", "nominal": 2}, {"model": "A100", "nominal": 8}]
    held = [workload("long", 2, on=[("h", [0, 1])], started=-6000.0), workload("short", 8, on=[("a", list(range(8)))], started=-60.0)]
    fleet = [node("h"), node("a", model="A100"), {**tenant("a"), "spec": {"quotas": both, "namespaces": ["team"]}}]
    plan = plan_of(*fleet, *held, workload("w", 2, models=["H100"]))
    assert why(plan, "w").estimated_start == pytest.approx(NOW + 6600, abs=1)


def test_what_is_deleted_while_it_is_suspended_is_ended_by_a_decision_and_its_gpus_go_to_others() -> None:
    gone = workload("w", 2, on=[("n", [0, 1])], phase="Suspended")
    gone["metadata"]["deletionTimestamp"] = stamp(-1)
    plan = plan_of(tenant("a", 8), node("n", 2), gone, workload("next", 2))
    assert named(plan.of(Verb.END)) == ["w"]
    assert named(plan.of(Verb.ADMIT)) == ["next"]
    assert named(plan.of(Verb.RESUME)) == []


def test_who_declares_less_than_it_holds_is_counted_with_what_it_holds() -> None:
    sly = workload("sly", "0.001", on=[("n", list(range(6)))])
    for place in sly["status"]["assignment"]:
        place["milli"] = 1000
    plan = plan_of(tenant("a", 8), node("n", 16), sly, workload("more", 4))
    assert plan.of(Verb.ADMIT) == []
    assert why(plan, "more").reason == "it wants 4 of H100, and a uses 6 of its 8"
    assert named(plan_of(tenant("a", 2), node("n", 16), sly).of(Verb.SUSPEND)) == ["sly"]


def test_who_declares_more_than_it_holds_is_counted_with_that_when_it_comes_back() -> None:
    grown = workload("grown", 6, on=[("lost", [0, 1])])
    gone = {**node("lost", heard=-3600.0)}
    plan = plan_of(tenant("a", 8), gone, *(node(f"n{number}", 8) for number in range(3)), grown, workload("next", 4))
    assert sorted(named(plan.of(Verb.RESUME, Verb.ADMIT))) == ["grown"], "six of its eight are taken then"


def test_what_is_being_cleared_for_one_is_not_said_to_be_used_by_its_tenant() -> None:
    places = tuple(Place(replica=0, node="n", gpus=(gpu,)) for gpu in range(4))
    memory = Memory(reservations={"uid-first": Reservation(tenant="a", column=0, milli=4000, places=places, until=NOW + 600)})
    holds = workload("holds", 4, of="b", on=[("n", [0, 1, 2, 3])])
    fleet = [tenant("a", 4, model="H100"), tenant("b", 4, model="H100"), node("n", 4), holds]
    plan = plan_of(*fleet, workload("first", 4, submitted=-90.0), workload("second", 1), memory=memory)
    assert why(plan, "first").constraint is Constraint.CAPACITY
    assert why(plan, "second").reason == "it wants 1 of H100, and a uses 0 of its 4, and 4 are being cleared for others of it"
    assert {one.tenant: one.used for one in standings(plan.pending.cycle)} == {"a": 0, "b": 4000}
