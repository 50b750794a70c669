"""Objects become arrays: whole at once, or one change after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
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
    for said, phase in (("Running", Phase.RUNNING), ("Suspending", Phase.SUSPENDING), ("Suspended", Phase.SUSPENDING)):
        going["status"]["phase"] = said
        snapshot = Snapshot.from_objects([tenant("a"), node("n1"), going], NOW)
        assert snapshot.workloads.phase.tolist() == [phase]
        assert snapshot.workloads.stopped.tolist() == [True]
        assert snapshot.places.gpu.tolist() == [0, 1]


def test_gpus_that_a_node_does_not_have_are_absent() -> None:
    snapshot = Snapshot.from_objects([node("n1", 2), node("n2", 4, readings=[{"index": 1, "health": "Failed"}])], NOW)
    assert (snapshot.nodes.health == Health.ABSENT).sum(axis=1).tolist() == [2, 0]
    assert snapshot.nodes.health[1, 1] == Health.FAILED
