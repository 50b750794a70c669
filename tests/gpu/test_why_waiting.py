"""Who waits is told the truth: what binds it, whether anything that ends would help, and when."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gpu.facts import NOW, node, plan_of, tenant, why, workload

from homeostat.gpu.decisions import Constraint, Memory


def test_gpus_that_are_free_where_it_does_not_go_do_not_count() -> None:
    """Two are free, and neither is on a spot node: that is no fragmentation, and it does not start at once."""
    spot, other = node("s1", 2, spot=True), node("n1", 2)
    plan = plan_of(tenant("a", 8), spot, other, workload("r", 2, on=[("s1", [0, 1])]), workload("w", spot="Require"))
    said = why(plan, "w")
    assert (said.constraint, said.reason) == (Constraint.CAPACITY, "it wants 1 GPU, and fewer are free on spot nodes")
    assert said.estimated_start is not None
    assert said.estimated_start > NOW


def test_when_scattered_gpus_come_together_is_not_said_to_be_now() -> None:
    machines = [node("n1", 2), node("n2", 2)]
    running = [workload(f"r{i}", on=[(f"n{i}", [0])], maximumRuntime="2h0m0s") for i in (1, 2)]
    said = why(plan_of(tenant("a", 8), *machines, *running, workload("w", 2)), "w")
    assert (said.constraint, said.reason) == (
        Constraint.FRAGMENTATION,
        "it wants 2 GPUs: so many are free, but not 1 times 2 together",
    )
    assert said.estimated_start == pytest.approx(NOW + 3600)


def test_who_waits_for_its_own_quota_that_others_borrowed_is_told_that() -> None:
    cohort = [tenant("a", 4, cohort="c"), tenant("b", 4, cohort="c"), node("n1")]
    borrowed = workload("r", 6, of="b", on=[("n1", list(range(6)))], minimumRuntime="2h0m0s")
    said = why(plan_of(*cohort, borrowed, workload("w", 4)), "w")
    assert (said.constraint, said.lent, said.estimated_start) == (Constraint.QUOTA, True, None)
    assert said.reason == "it wants 4 of H100 within the quota of a, of which others of its cohort have borrowed 2 that it needs"


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (2, "it wants 1 of H100, and b uses 4 of its 4 and 2 that it borrowed, and may borrow no more"),
        (None, "it wants 1 of H100, and b uses 4 of its 4 and 2 that it borrowed, and its cohort has no more to lend"),
    ],
)
def test_who_borrowed_all_that_it_can_is_told_what_is_its_own_and_what_is_not(limit: int | None, says: str) -> None:
    cohort = [tenant("a", 4, lending=2, cohort="c"), tenant("b", 4, borrowing=limit, cohort="c"), node("n1")]
    running = workload("r", 6, of="b", on=[("n1", list(range(6)))])
    said = why(plan_of(*cohort, running, workload("w", of="b")), "w")
    assert (said.reason, said.lent) == (says, False)


def test_who_has_borrowed_nothing_yet_is_told_too_that_there_is_nothing_to_borrow() -> None:
    cohort = [tenant("a", 8, cohort="c"), tenant("b", 0, cohort="c"), node("n1")]
    said = why(plan_of(*cohort, workload("r", 8, on=[("n1", list(range(8)))]), workload("w", of="b")), "w")
    assert said.reason == "it wants 1 of H100, and b uses 0 of its 0, and its cohort has no more to lend"


def test_who_asks_for_what_no_node_has_is_told_that_also_while_its_quota_is_used_up() -> None:
    fleet = [tenant("a", 4), node("n1", 2), node("n2", 2)]
    running = [workload(f"r{i}", 2, on=[(f"n{i}", [0, 1])]) for i in (1, 2)]
    said = why(plan_of(*fleet, *running, workload("w", 4)), "w")
    assert (said.constraint, said.never) == (Constraint.TYPE, True)
    assert said.reason == "no node of the fleet has the 4 GPUs that a replica wants: the most is 2"


def test_who_waits_for_a_budget_is_told_when_its_next_period_begins() -> None:
    spent = Memory(at=NOW, spent={"a": (NOW - 1000, 9.0)})
    plan = plan_of(tenant("a", 8, budget={"gpuHours": 5, "period": "1h0m0s"}), node("n1"), workload("w"), memory=spent)
    said = why(plan, "w")
    assert (said.constraint, said.never, said.estimated_start) == (Constraint.BUDGET, False, pytest.approx(NOW + 2600))


@pytest.mark.parametrize(
    ("spec", "never"),
    [
        ({"gpus": "1.5"}, True),
        ({"gpus": 1, "suspended": True}, True),
        ({"gpus": 1, "of": "nobody"}, True),
        ({"gpus": 9}, True),
        ({"gpus": 8}, False),
    ],
)
def test_whether_the_end_of_other_work_would_help_is_said(spec: dict[str, Any], never: bool) -> None:
    running = workload("r", on=[("n1", [0])])
    assert why(plan_of(tenant("a", 16), node("n1"), running, workload("w", **spec)), "w").never is never


@pytest.mark.parametrize(("replicas", "gpus", "found"), [(2, 2, Constraint.TOPOLOGY), (1, 4, Constraint.FRAGMENTATION)])
def test_it_is_the_topology_only_where_a_wider_one_would_fit(replicas: int, gpus: int, found: Constraint) -> None:
    half = [workload(f"r{i}", 2, on=[(f"n{i}", [0, 1])], preemption={"mode": "Never"}) for i in (1, 2)]
    plan = plan_of(tenant("a", 64), node("n1", 4), node("n2", 4), *half, workload("w", gpus, replicas=replicas, topology="Node"))
    assert why(plan, "w").constraint is found
