"""Where work goes on the fleet: gangs near each other, in the fewest domains, and what is left over stays of use."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gpu.facts import NOW, named, node, plan_of, tenant, why, workload

from homeostat.gpu.decisions import Asked, Memory, Verb
from homeostat.gpu.experience import MUCH, demand_of, remember
from homeostat.gpu.fleet import Fleet, Need, levels
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement import Demand, Pod
from homeostat.gpu.simulator import make_nodes
from homeostat.gpu.snapshot import NONE, Snapshot, Topology


def fleet(racks: list[int], domains: list[int], gpus: int = 8, demand: Demand | None = None) -> Fleet:
    nodes = make_nodes([gpus] * len(racks))
    nodes.rack[:], nodes.domain[:] = racks, domains
    return Fleet(nodes, 1, np.ones(len(racks), dtype=bool), demand)


def on(taken: tuple[tuple[int, int, int, int], ...] | None) -> list[int]:
    assert taken is not None
    return sorted({node for _, node, _, _ in taken})


def test_a_gang_goes_into_one_domain_and_into_the_one_it_fills_best() -> None:
    machines = fleet([NONE] * 7, [0, 0, 0, 0, 1, 1, 1])
    assert on(machines.place(Need(3, 8 * WHOLE), 0)) == [4, 5, 6]


def test_a_gang_too_large_for_a_domain_takes_the_fewest() -> None:
    machines = fleet([NONE] * 9, [0, 0, 1, 1, 1, 2, 2, 2, 2])
    assert on(machines.place(Need(6, 8 * WHOLE), 0)) == [0, 1, 5, 6, 7, 8]


def test_racks_come_before_domains_and_domains_before_nodes() -> None:
    machines = fleet([0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 3])
    assert on(machines.place(Need(5, 8 * WHOLE), 0)) == [0, 1, 2, 3, 4]


def test_a_declared_need_for_nearness_is_kept_or_nothing_is_taken() -> None:
    machines = fleet([0, 0, 1, 1, 1], [NONE] * 5)
    assert on(machines.place(Need(3, 8 * WHOLE, topology=Topology.RACK), 0)) == [2, 3, 4]
    before = machines.free.copy()
    assert machines.place(Need(3, 8 * WHOLE, topology=Topology.RACK), 0) is None
    assert machines.place(Need(2, 8 * WHOLE, topology=Topology.NVLINK_DOMAIN), 0) is None
    assert (machines.free == before).all()


def test_fractions_of_a_gang_share_a_node_where_that_is_asked_for() -> None:
    machines = fleet([0, 0], [NONE] * 2, gpus=2)
    taken = machines.place(Need(4, 500, topology=Topology.NODE), 0)
    assert len(on(taken)) == 1
    assert machines.place(Need(5, 500, topology=Topology.NODE), 0) is None
    assert on(machines.place(Need(4, 500), 0)) != on(taken)


def test_cpu_and_memory_are_reckoned_for_all_replicas_together() -> None:
    nodes = make_nodes([8, 8], cpu=[10_000, 40_000], memory=[100, 100])
    machines = Fleet(nodes, 1, np.ones(2, dtype=bool))
    assert on(machines.place(Need(3, WHOLE, cpu=10_000), 0)) == [1]
    assert on(machines.place(Need(2, WHOLE, cpu=10_000), 0)) == [0, 1]
    assert machines.place(Need(1, WHOLE, memory=101), 0) is None


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=6),
    asks=st.lists(st.tuples(st.integers(1, 4), st.sampled_from([250, 300, 500, 1000, 2000, 4000]), st.integers(0, 4000)), max_size=20),
)
def test_what_is_taken_and_given_back_leaves_the_fleet_as_it_was(counts: list[int], asks: list[tuple[int, int, int]]) -> None:
    machines = Fleet(make_nodes(counts, cpu=[8000] * len(counts)), 1, np.ones(len(counts), dtype=bool))
    before, held = machines.copy(), []
    for replicas, milli, cpu in asks:
        need = Need(replicas, milli, cpu=cpu)
        fits, twin = machines.fits(need, 0), machines.copy()
        taken = machines.place(need, 0)
        assert (taken is not None) == fits == (twin.place(need, 0) is not None)
        assert (machines.free >= 0).all()
        assert (machines.cpu >= 0).all()
        if taken is not None:
            assert {replica for replica, _, _, _ in taken} == set(range(replicas))
            held.append((taken, need))
    for taken, need in held:
        machines.free_up(taken, need)
    for name in ("gpus", "cpu", "memory", "whole", "largest", "total"):
        assert (getattr(machines.room, name) == getattr(before.room, name)).all()


def test_a_copy_knows_nothing_of_what_is_taken_later() -> None:
    machines = fleet([0, 0], [NONE] * 2, gpus=2)
    machines.place(Need(1, 300), 0)
    twin = machines.copy()
    while machines.place(Need(1, 300), 0) is not None:
        pass
    for _ in range(11):
        assert twin.place(Need(1, 300), 0) is not None
    assert twin.place(Need(1, 300), 0) is None


def test_the_fullest_of_equally_good_nodes_is_taken() -> None:
    machines = fleet([0, 0, 0], [NONE] * 3, demand=Demand([Pod(gpus=1)]))
    machines.load(np.array([1, 1]), np.array([0, 1]), np.array([WHOLE, WHOLE]))
    assert on(machines.place(Need(1, WHOLE), 0)) == [1]


def test_prices_fall_into_steps_of_what_is_alike() -> None:
    assert levels(np.array([2.0, 1.0, 1.04, 1.06, 0.0]), 0.05).tolist() == [3, 1, 1, 2, 0]


# what the governor learns


def test_the_governor_places_by_what_was_asked_for_before() -> None:
    """With many of 0.81 and few of 0.16 the rest beside a 0.81 is worth nothing to others, and so the 0.16 goes there."""
    past = [Asked(0, 0, 1, 810, (), 40), Asked(0, 0, 1, 160, (), 4), Asked(0, 0, 1, 420, (), 16)]
    running = [workload("r0", "0.81", on=[("n1", [0])]), workload("r1", "0.42", on=[("n0", [0])])]
    objects = [tenant("a", 8), node("n0", 1), node("n1", 1), *running, workload("w", "0.16")]
    plan = plan_of(*objects, memory=Memory(at=NOW - 90, demand=past, lesson=past))
    assert plan.of(Verb.ADMIT)[0].places[0].node == "n1"


def test_what_arrives_is_counted_once_and_learned_with_each_doubling() -> None:
    snapshot = Snapshot.from_objects([tenant("a"), node("n1"), workload("w", 2, replicas=3, models=["H100"])], NOW)
    demand, lesson = remember(snapshot, Memory())
    assert demand == lesson == [Asked(0, 0, 2, WHOLE, (), 3)]  # all there is: that is no insisting
    again, same = remember(snapshot, Memory(at=NOW - 1, demand=demand, lesson=lesson))
    assert (again, same) == (demand, lesson)
    more, lesson = remember(snapshot, Memory(at=NOW - 61, demand=demand, lesson=lesson))
    assert (more[0].count, lesson) == (6, more)


def test_what_was_asked_long_ago_fades() -> None:
    old = [Asked(0, 0, 1, WHOLE, (), MUCH - 2), Asked(0, 0, 8, WHOLE, (), 1)]
    snapshot = Snapshot.from_objects([tenant("a"), node("n1"), workload("w", 2, replicas=3)], NOW)
    demand, lesson = remember(snapshot, Memory(at=NOW - 61, demand=old, lesson=old))
    assert [asked.count for asked in demand] == [MUCH // 2 - 1, 1]
    assert lesson == demand


def test_a_model_that_has_gone_from_the_fleet_is_not_learned_from() -> None:
    snapshot = Snapshot.from_objects([tenant("a"), node("n1"), node("n2", model="A100")], NOW)
    demand = demand_of([Asked(0, 0, 1, WHOLE, ("L40S",), 5), Asked(0, 0, 1, WHOLE, ("H100",), 2)], snapshot)
    assert dict(demand.counts) == {Pod(gpus=1, models=1 << list(snapshot.models).index("H100")): 2}


@pytest.mark.parametrize("milli", [250, WHOLE])
def test_a_gpu_that_is_suspect_takes_nothing(milli: int) -> None:
    nodes = make_nodes([1])
    nodes.health[:] = 1
    assert not Fleet(nodes, 1, np.ones(1, dtype=bool)).fits(Need(1, milli), 0)


# parts of GPUs, by MIG

PART = "H100-MIG-1g.10gb"
AGAIN = {"mode": "Restart"}


def test_a_replica_gets_no_more_than_one_part_of_a_gpu_for_a_process_sees_no_more() -> None:
    parts = node("n1", 7, model=PART)
    plan = plan_of(tenant("a", 64), parts, node("n2"), workload("two", 2), workload("gang", 1, replicas=3, models=[PART], preemption=AGAIN))
    assert {one.name: {place.node for place in one.places} for one in plan.decisions} == {"team/two": {"n2"}, "team/gang": {"n1"}}
    alone = plan_of(tenant("a", 64), parts, workload("two", 2, preemption=AGAIN), workload("half", "0.5", preemption=AGAIN))
    assert named(alone.of(Verb.ADMIT)) == ["half"]
    assert why(alone, "two").reason == (
        "a replica wants 2 GPUs, and the nodes that have so many have parts of GPUs (MIG), of which a process sees one alone"
    )


def test_parts_are_known_also_where_a_person_named_their_model() -> None:
    parts = node("n1", 7, model="small")
    for gpu in parts["spec"]["gpus"]:
        gpu["partOf"] = "GPU-0"
    assert named(plan_of(tenant("a", 64), parts, workload("two", 2), workload("one", preemption=AGAIN)).of(Verb.ADMIT)) == ["one"]


def test_what_is_suspended_with_its_state_gets_no_part_for_cuda_cannot_take_it_off() -> None:
    parts = node("n1", 7, model=PART)
    plan = plan_of(tenant("a", 64), parts, node("n2"), *(workload(f"w{number}") for number in range(9)))
    assert [place.node for one in plan.of(Verb.ADMIT) for place in one.places] == ["n2"] * 8
    alone = plan_of(tenant("a", 64), parts, workload("keeps"), workload("again", preemption=AGAIN))
    assert named(alone.of(Verb.ADMIT)) == ["again"]
    assert why(alone, "keeps").reason == (
        "it makes way by `Suspend`, which parts of GPUs (MIG) cannot do, and there are no others: say `Checkpoint`, `Restart` or `Never`"
    )


def test_no_nodes_of_parts_are_asked_for_by_what_wants_more_than_one() -> None:
    pool = {"kind": "NodePool", "metadata": {"name": "p"}, "spec": {"model": PART, "gpusPerNode": 7, "maximum": 9}}
    quota = tenant("a", 64)
    assert not plan_of(quota, pool, workload("two", 2, submitted=-400, preemption=AGAIN)).of(Verb.SCALE_UP)
    assert not plan_of(quota, pool, workload("keeps", 1, submitted=-400)).of(Verb.SCALE_UP)
    assert plan_of(quota, pool, workload("one", 1, submitted=-400, preemption=AGAIN)).of(Verb.SCALE_UP)
