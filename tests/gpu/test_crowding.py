"""Under time sharing short work goes before long work of other tenants, in as far as more is wanted than there is."""

from __future__ import annotations

import pytest
from tests.gpu.facts import named, node, plan_of, tenant, workload

from homeostat.gpu.decisions import Verb
from homeostat.gpu.kinds import GpuPolicySpec, TimeSharing

SHARING = GpuPolicySpec(time_sharing=TimeSharing(enabled=True, share_per_doubling=0.3))


def shared(more: int) -> list[dict[str, object]]:
    """One tenant has the whole fleet with small work, and `more` of it waits; another has nothing, and waits with one that is larger."""
    tenants = [tenant("a", 2, cohort="c"), tenant("b", 2, cohort="c"), tenant("idle", 12, cohort="c")]
    small = [workload(f"small{i:02}", of="a", on=[(f"n{i // 8}", [i % 8])], started=-900) for i in range(16)]
    waiting = [workload(f"more{i:02}", of="a") for i in range(more)]
    return [*tenants, node("n0"), node("n1"), *small, *waiting, workload("large", 6, of="b", models=["H100"])]


@pytest.mark.parametrize(("more", "gone"), [(0, 6), (4, 6), (10, 0), (100, 0)])
def test_who_has_less_takes_from_who_has_more_unless_much_that_is_shorter_waits(more: int, gone: int) -> None:
    made = plan_of(*shared(more), policy=SHARING).of(Verb.PREEMPT)
    assert len(made) == gone
    assert {decision.beneficiary for decision in made} <= {"uid-large"}


def test_while_little_waits_who_has_less_comes_first_and_in_a_crowd_what_is_short() -> None:
    first = []
    for more in (1, 100):
        objects = [
            *(tenant(name, 2, cohort="c") for name in "ab"),
            tenant("idle", 12, cohort="c"),
            *(node(name) for name in ("n0", "n1")),
            *(workload(f"runs{i}", of="a", on=[("n0", [i])]) for i in range(4)),
            *(workload(f"more{i:03}", of="a") for i in range(more)),
            workload("large", 8, of="b"),
        ]
        first.append(named(plan_of(*objects, policy=SHARING).of(Verb.ADMIT))[0][:4])
    assert first == ["larg", "more"]


def test_a_crowd_at_one_type_leaves_shares_at_another_as_they_are() -> None:
    elsewhere = [workload(f"other{i:03}", of="z", models=["A100"]) for i in range(100)]
    other = [node("n2", model="A100"), tenant("z", 8, model="A100"), *elsewhere]
    assert len(plan_of(*shared(0), *other, policy=SHARING).of(Verb.PREEMPT)) == 6


def test_on_an_empty_fleet_who_comes_is_placed() -> None:
    assert len(plan_of(tenant("a"), node("n0"), workload("first"), policy=SHARING).of(Verb.ADMIT)) == 1
    assert plan_of(tenant("a"), node("n0"), policy=SHARING).decisions == []
