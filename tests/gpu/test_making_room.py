"""Who has to go for another: as few as it takes, and all that it takes."""

from __future__ import annotations

from tests.gpu.facts import named, node, plan_of, tenant, workload

from homeostat.gpu.decisions import Verb


def test_a_gang_whose_replicas_share_a_gpu_makes_room_for_half_of_it() -> None:
    pair = workload("pair", "0.5", replicas=2, on=[("n1", [0]), ("n1", [0])])
    made = plan_of(tenant("a"), node("n1", 1), pair, workload("high", "0.5", priority=10))
    assert named(made.of(Verb.PREEMPT)) == ["pair"]


def with_cpu(name: str, cpu: int, **more: object) -> dict[str, object]:
    found = workload(name, **more)  # type: ignore[arg-type]
    found["spec"]["resources"]["cpuMilli"] = cpu
    return found


def test_who_has_the_cpu_makes_room_though_gpus_are_free() -> None:
    low = with_cpu("low", 8000, on=[("n1", [7])])
    small = with_cpu("small", 1000, on=[("n1", [1])])
    made = plan_of(tenant("a"), node("n1", cpuMilli=10_000), low, small, with_cpu("high", 8000, priority=10))
    assert named(made.of(Verb.PREEMPT)) == ["low"]
