"""Under time sharing a tenant may lend a part of its own quota to the short work of others."""

from __future__ import annotations

from tests.gpu.facts import NOW, named, node, plan_of, tenant, workload

from homeostat.gpu.decisions import Memory, Verb
from homeostat.gpu.kinds import GpuPolicySpec, TimeSharing


def lending(**changed: object) -> list[dict[str, object]]:
    """A tenant whose long work fills its quota and the fleet, and another whose short work waits."""
    owner = tenant("a", 8, cohort="c", **changed)  # type: ignore[arg-type]
    long = [workload(f"long{i}", 2, on=[("n1", [2 * i, 2 * i + 1])], started=-90_000, preemption={"mode": "Checkpoint"}) for i in range(4)]
    return [owner, tenant("b", 0, cohort="c"), node("n1"), *long, *(workload(f"short{i}", 1, of="b") for i in range(8))]


def lends(part: float) -> GpuPolicySpec:
    return GpuPolicySpec(time_sharing=TimeSharing(enabled=True, lends=part, share_per_doubling=1.0))


def test_short_work_takes_of_the_quota_of_others_what_they_lend_and_no_more() -> None:
    off = {part: named(plan_of(*lending(), policy=lends(part)).of(Verb.PREEMPT)) for part in (0.0, 0.25, 0.5, 1.0)}
    assert {part: len(gone) for part, gone in off.items()} == {0.0: 0, 0.25: 1, 0.5: 2, 1.0: 4}


def test_what_a_tenant_never_lends_its_cohort_is_not_lent_to_short_work() -> None:
    assert plan_of(*lending(lending=0), policy=lends(0.5)).decisions == []


def test_a_tenant_that_had_little_lately_lends_less() -> None:
    idle, busy = (Memory(at=NOW, usage={"a": {"H100": used}}) for used in (0.0, 8000.0))
    gone = [len(plan_of(*lending(), policy=lends(0.5), memory=memory).of(Verb.PREEMPT)) for memory in (idle, busy)]
    assert gone == [0, 2]
