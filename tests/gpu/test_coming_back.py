"""Suspended work comes back to the GPUs where its state lies, and gives them up only when to begin anew costs no more than to wait on."""

from __future__ import annotations

import pytest
from tests.gpu.facts import Object, node, plan_of, stamp, tenant, why, workload

from homeostat.gpu.decisions import Constraint, Decision, Memory, Plan, Verb
from homeostat.gpu.kinds import GpuPolicySpec, Preempting

RAN = 600.0


def suspended(mode: str = "Suspend", at: int = 0) -> Object:
    """One that ran for ten minutes on a GPU of n1."""
    past = {"gpuHours": RAN / 3600, "waitingSince": stamp(-50.0)}
    return workload("w", 1, on=[("n1", [at])], phase="Suspended", status=past, preemption={"mode": mode})


def fleet(*gpus: int, **spec: object) -> list[Object]:
    """A quota for all; on these GPUs of n1 somebody is who never leaves. n2 has others."""
    taken = [workload(f"t{i}", 1, on=[("n1", [i])], preemption={"mode": "Never"}) for i in gpus]
    return [tenant("a", 16), node("n1", 2, **spec), node("n2", 2), *taken]


def later(seconds: float, *objects: Object, memory: Memory, policy: GpuPolicySpec | None = None) -> Plan:
    for obj in objects:
        if obj["kind"] == "GpuNode":
            obj["status"]["reportedAt"] = stamp(seconds)
    return plan_of(*objects, memory=memory, policy=policy, after=seconds)


def where(plan: Plan) -> list[tuple[str, list[int]]]:
    (said,) = plan.of(Verb.RESUME)
    return [(place.node, list(place.gpus)) for place in said.places]


def moved(plan: Plan) -> list[Decision]:
    return plan.of(Verb.ADMIT, Verb.RESUME)


@pytest.mark.parametrize("mode", ["Suspend", "Never"])
def test_it_comes_back_to_its_own_gpus_though_others_are_free(mode: str) -> None:
    assert where(plan_of(*fleet(0), suspended(mode, at=1))) == [("n1", [1])]


def test_it_waits_for_them_as_long_as_it_has_run_and_then_begins_anew_elsewhere() -> None:
    objects = [*fleet(0, 1), suspended()]
    first = plan_of(*objects)
    assert moved(first) == []
    assert why(first, "w").constraint is Constraint.HOME
    second = later(RAN - 1, *objects, memory=first.memory)
    assert moved(second) == []
    third = later(RAN, *objects, memory=second.memory)
    assert where(third) == [("n2", [0])]
    assert "begins anew" in moved(third)[0].reason


def test_the_wait_counts_from_when_its_turn_came() -> None:
    objects = [*fleet(0), suspended()]
    objects[0]["spec"]["quotas"][0]["nominal"] = 1  # which the other uses
    first = plan_of(*objects)
    assert why(first, "w").constraint is Constraint.QUOTA
    objects[0]["spec"]["quotas"][0]["nominal"] = 16
    assert moved(second := later(10 * RAN, *objects, memory=first.memory)) == []
    assert len(moved(later(11 * RAN, *objects, memory=second.memory))) == 1


def test_it_goes_home_where_that_is_free_however_long_it_has_waited() -> None:
    objects = [*fleet(0), suspended()]
    memory = plan_of(*objects).memory
    objects = [*fleet(1), suspended()]
    assert where(later(10 * RAN, *objects, memory=memory)) == [("n1", [0])]


def test_what_keeps_it_from_home_may_also_be_that_the_node_takes_no_work() -> None:
    objects = [*fleet(cordoned=True), suspended()]
    first = plan_of(*objects)
    assert moved(first) == []
    assert where(later(RAN, *objects, memory=first.memory))[0][0] == "n2"


def test_or_that_the_node_has_no_cpu_for_it_any_more() -> None:
    other = workload("t", 1, on=[("n1", [1])], preemption={"mode": "Never"})
    objects = [tenant("a", 16), node("n1", 2, cpuMilli=1000), node("n2", 2, cpuMilli=1000), other, suspended()]
    for obj in objects[3:]:
        obj["spec"]["resources"]["cpuMilli"] = 1000
    first = plan_of(*objects)
    assert moved(first) == []
    assert where(later(RAN, *objects, memory=first.memory)) == [("n2", [0])]


def test_how_long_it_waits_is_said_by_the_policy() -> None:
    objects, patient = [*fleet(0), suspended()], GpuPolicySpec(preemption=Preempting(start_over_after=10.0))
    first = plan_of(*objects, policy=patient)
    assert moved(later(9 * RAN, *objects, memory=first.memory, policy=patient)) == []
    assert len(moved(later(10 * RAN, *objects, memory=first.memory, policy=patient))) == 1


def test_of_a_node_those_gpus_are_given_away_last_to_which_somebody_comes_back() -> None:
    stopped = suspended()
    stopped["spec"]["suspended"] = True
    plan = plan_of(tenant("a", 16), node("n1", 2), stopped, workload("new", 1))
    assert [list(place.gpus) for place in moved(plan)[0].places] == [[1]]
    both = plan_of(tenant("a", 16), node("n1", 2), stopped, workload("new", 2))
    assert [list(place.gpus) for place in moved(both)[0].places] == [[0, 1]]


def gang(**edited: object) -> Object:
    """Two replicas that ran on a whole GPU of n1 and n2 each, declared anew since they were suspended."""
    past = {"gpuHours": 2 * RAN / 3600, "waitingSince": stamp(-50.0)}
    one = workload("w", 1, on=[("n1", [0]), ("n2", [0])], phase="Suspended", status=past, replicas=2)
    one["spec"] |= {key: value for key, value in edited.items() if key != "gpus"}
    one["spec"]["resources"]["gpus"] = edited.get("gpus", 1)
    return one


@pytest.mark.parametrize("edited", [{"replicas": 1}, {"replicas": 5}, {"gpus": "0.5"}, {"gpus": 2}, {"replicas": 1, "gpus": 2}])
def test_what_was_declared_anew_while_it_is_suspended_comes_back_as_it_was(edited: Object) -> None:
    plan = plan_of(tenant("a", 2), node("n1", 2), node("n2", 2), gang(**edited), workload("other", "0.5", submitted=-5.0))
    (said,) = plan.of(Verb.RESUME)
    assert [(place.replica, place.node, place.gpus, place.milli) for place in said.places] == [(0, "n1", (0,), 1000), (1, "n2", (0,), 1000)]
    assert why(plan, "other").constraint is Constraint.QUOTA, "its processes have two whole GPUs"


def test_where_its_state_is_lost_it_begins_anew_as_it_is_declared_now() -> None:
    assert where(plan_of(tenant("a", 2), node("n2", 2), gang(replicas=1)))[0][0] == "n2"


def test_a_node_that_is_not_declared_for_a_moment_while_its_agent_lives_is_waited_for() -> None:
    beats = [{"kind": "Lease", "metadata": {"name": name}, "spec": {"renewTime": stamp(-3)}} for name in ("n1", "n2")]
    plan = plan_of(tenant("a", 16), node("n2", 4), gang(), workload("other", 1), *beats)
    assert [one.name for one in moved(plan)] == ["team/other"]
    assert why(plan, "w").constraint is Constraint.HOME
    assert not why(plan, "w").never
    assert "declared again" in why(plan, "w").reason
