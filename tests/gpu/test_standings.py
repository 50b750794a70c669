"""How tenants stand is told so that it adds up: what is borrowed is what others lend."""

from __future__ import annotations

from tests.gpu.facts import NOW, node, tenant, workload

from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Memory
from homeostat.gpu.explain import standings
from homeostat.gpu.kinds import GpuPolicySpec
from homeostat.gpu.snapshot import Snapshot


def test_what_the_cohort_has_not_to_lend_is_too_much_and_not_borrowed() -> None:
    lowered = [tenant("a", 0, cohort="c"), tenant("b", 4, lending=3, cohort="c"), tenant("c", 2, cohort="c"), node("n1", 12)]
    sizes = {"a": range(6), "b": range(6, 8), "c": range(8, 12)}
    running = [workload(f"of-{name}", len(gpus), of=name, on=[("n1", list(gpus))]) for name, gpus in sizes.items()]
    rows = standings(Cycle(Snapshot.from_objects([*lowered, *running], NOW), GpuPolicySpec(), Memory()))
    assert [(one.tenant, one.used, one.borrowed, one.over) for one in rows] == [("a", 6000, 1500, 4500), ("b", 2000, 0, 0), ("c", 4000, 500, 1500)]
    assert [one.lent for one in rows] == [0, 2000, 0]
