"""Objects become arrays: whole at once, or one change after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gpu.facts import NOW, node, stamp, tenant, workload

from homeostat.gpu.governor import decide
from homeostat.gpu.objects import Reader
from homeostat.gpu.snapshot import NONE, NOT_ALLOWED, Health, Phase, Snapshot, canonical


def changes() -> st.SearchStrategy[list[tuple[str, bool, dict[str, Any]]]]:
    """What is done to an object, and whether it is looked at after that."""
    names = st.sampled_from(["w0", "w1", "w2", "w3"])
    running = st.builds(lambda name, at: workload(name, 1, on=[("n1", [at])]), names, st.integers(0, 7))
    waiting = st.builds(
        lambda name, gpus, model: workload(name, gpus, models=model),
        names,
        st.sampled_from([1, 2, "0.5"]),
        st.sampled_from([[], ["H100"], ["B200"]]),
    )
    ended = st.builds(lambda name: workload(name, phase="Succeeded"), names)
    others = st.sampled_from(
        [node("n1"), node("n1", cordoned=True), node("n2", model="A100"), tenant("a"), tenant("a", 2), tenant("b")]
    )
    told = st.sampled_from([node("n1", readings=[{"index": 1, "health": "Failed"}]), node("n1", heard=-3.0)])
    return st.lists(
        st.tuples(st.sampled_from(["put", "put", "remove"]), st.booleans(), st.one_of(running, waiting, ended, others, told)), max_size=25
    )


@settings(deadline=None)
@given(changes())
def test_a_reader_that_is_kept_sees_what_a_new_one_would(done: list[tuple[str, bool, dict[str, Any]]]) -> None:
    kept, present = Reader(), {}
    for verb, looked, obj in done:
        key = (obj["kind"], obj["metadata"]["name"])
        getattr(kept, verb)(obj)
        if looked:
            kept.snapshot(NOW)
        present.pop(key, None)
        if verb == "put":
            present[key] = obj
    ours, fresh = decide(kept.snapshot(NOW)), decide(Snapshot.from_objects(list(present.values()), NOW))
    assert (ours.decisions, list(ours.pending), ours.memory) == (fresh.decisions, list(fresh.pending), fresh.memory)


HUGE = 2**63 - 1


def test_amounts_beyond_all_limits_hold_up_nobody_else() -> None:
    monsters = [
        workload("cpu", replicas=10_000, resources={"gpus": 1, "cpuMilli": HUGE, "memoryMib": HUGE}),
        workload("memory", resources={"gpus": "0.5", "gpuMemoryMib": HUGE}),
        workload("gpus", replicas=10_000, resources={"gpus": HUGE}),
        workload("text", resources={"gpus": "9" * 40}),
    ]
    pool = {"kind": "NodePool", "metadata": {"name": "p"}, "spec": {"model": "H100", "maximum": 9, "cpuMilli": HUGE}}
    machines = [node("n1", cpuMilli=HUGE, memoryMib=HUGE), node("n2", cpuMilli=1000)]
    tenants = [tenant("a", 64), tenant("b", HUGE, borrowing=HUGE, lending="9" * 40, cohort="c")]
    plan = decide(Snapshot.from_objects([*tenants, *machines, pool, *monsters, workload("good", submitted=-400)], NOW))
    assert "team/good" in {decision.name for decision in plan.decisions}
    assert {one.name for one in plan.pending} >= {"team/gpus", "team/text"}


def test_a_workload_that_cannot_be_read_is_left_out_altogether() -> None:
    reader = Reader()
    reader.put(tenant("a", 8))
    reader.put(node("n1"))
    reader.put(workload("gone", 4))
    reader.remove(workload("gone", 4))
    with pytest.raises(ValueError, match="292 years"):
        reader.put(workload("odd", maximumRuntime="99999999999h"))
    assert len(reader.snapshot(NOW).workloads) == 0, "it was taken for another that had its place"
    reader.put(workload("runs", on=[("n1", [0])]))
    with pytest.raises(ValueError, match="292 years"):
        reader.put(workload("runs", on=[("n1", [0])], maximumRuntime="99999999999h"))
    assert reader.snapshot(NOW).workloads.phase.tolist() == [Phase.RUNNING], "what it was last known to be counts"


@pytest.mark.parametrize(
    "odd",
    [
        tenant("a", 8, budget={"gpuHours": 1, "period": "99999999999h"}),
        tenant("new", 8, sla={"maxWait": "99999999999h"}),
        node("n2", gpus=1) | {"spec": {"model": "H100", "gpus": [{"uuid": "no index"}]}},
        {"kind": "NodePool", "metadata": {"name": "p"}, "spec": {"model": "H100", "arrivesWithin": "99999999999h"}},
    ],
    ids=["tenant", "new-tenant", "node", "pool"],
)
def test_one_that_cannot_be_read_stays_as_it_was_and_holds_up_no_other(odd: dict[str, Any]) -> None:
    reader = Reader()
    for obj in (tenant("a", 4), node("n1"), workload("good", 4)):
        reader.put(obj)
    with pytest.raises((ValueError, LookupError)):
        reader.put(odd)
    assert [decision.name for decision in decide(reader.snapshot(NOW)).decisions] == ["team/good"]


def test_types_that_nobody_has_take_no_type_from_those_that_are_there() -> None:
    objects = [tenant("a", 64), node("n1"), *(workload(f"odd-{i}", models=[f"X{i}-{j}" for j in range(32)]) for i in range(4))]
    kept = Reader()
    for obj in (*objects, workload("good", models=["H100"])):
        kept.put(obj)
        kept.snapshot(NOW)
    plan = decide(kept.snapshot(NOW))
    assert [decision.name for decision in plan.decisions] == ["team/good"]
    assert {one.reason for one in plan.pending} == {"no node of the fleet has what it asks for"}


def test_quotas_for_more_types_than_can_be_told_apart_hold_up_nobody() -> None:
    many = tenant("many") | {"spec": {"quotas": [{"model": f"A{i}", "nominal": 1} for i in range(64)], "namespaces": ["team"]}}
    seen = Snapshot.from_objects([many, tenant("a", model="H100"), node("n1"), workload("w", models=["H100"])], NOW)
    assert "H100" in seen.models
    assert [decision.name for decision in decide(seen).decisions] == ["team/w"]


def test_workloads_are_in_the_order_of_submission_and_then_uid() -> None:
    uids = ["the-same-long-beginning-of-24-letters-b", "the-same-long-beginning-of-24-letters-a", "z", "a"]
    assert canonical(np.array([1.0, 1.0, 0.0, 2.0]), uids).tolist() == [2, 1, 0, 3]
    assert canonical(np.array([1.0, 1.0]), ["b", "a"]).tolist() == [1, 0]


def test_a_tenant_must_exist_and_be_for_the_namespace() -> None:
    stranger = tenant("b", namespaces=["elsewhere"])
    found = Snapshot.from_objects(
        [tenant("a"), stranger, workload("w0", of="a"), workload("w1", of="b"), workload("w2", of="c")], NOW
    )
    assert found.workloads.tenant.tolist() == [0, NOT_ALLOWED, NONE]


def test_the_lease_says_when_a_node_was_heard() -> None:
    lease = {"kind": "Lease", "metadata": {"name": "n1"}, "spec": {"renewTime": stamp(-3)}}
    nodes = Snapshot.from_objects([node("n1", heard=-500.0), node("n2", heard=-7.0), lease], NOW).nodes
    assert (NOW - nodes.heard).tolist() == [3.0, 7.0]


def test_what_is_being_deleted_holds_its_gpus_until_it_is_gone() -> None:
    going = workload("w", 2, on=[("n1", [0, 1])])
    going["metadata"]["deletionTimestamp"] = stamp(-1)
    for said, phase in (("Running", Phase.RUNNING), ("Suspending", Phase.SUSPENDING)):
        going["status"]["phase"] = said
        snapshot = Snapshot.from_objects([tenant("a"), node("n1"), going], NOW)
        assert snapshot.workloads.phase.tolist() == [phase]
        assert snapshot.workloads.stopped.tolist() == [True]
        assert snapshot.places.gpu.tolist() == [0, 1]


def test_gpus_that_a_node_does_not_have_are_absent() -> None:
    snapshot = Snapshot.from_objects([node("n1", 2), node("n2", 4, readings=[{"index": 1, "health": "Failed"}])], NOW)
    assert (snapshot.nodes.health == Health.ABSENT).sum(axis=1).tolist() == [2, 0]
    assert snapshot.nodes.health[1, 1] == Health.FAILED
