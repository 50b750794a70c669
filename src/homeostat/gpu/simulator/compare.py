"""Several ways of deciding, side by side on the same trace and fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from homeostat.gpu.decisions import Plan
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import GpuPolicySpec
from homeostat.gpu.simulator.baselines import fifo, least_attained_service, priority_backfill
from homeostat.gpu.simulator.cluster import Cluster
from homeostat.gpu.simulator.engine import Scheduler, Simulation, Timing, simulate
from homeostat.gpu.simulator.metrics import Result
from homeostat.gpu.simulator.trace import Trace

BASELINES: dict[str, Scheduler] = {
    "fifo": fifo,
    "priority-backfill": priority_backfill,
    "least-attained-service": least_attained_service(),
}
_COLUMNS = (
    "wait_mean",
    "wait_p50",
    "wait_p99",
    "fairness",
    "worst_share",
    "utilisation",
    "fragmentation",
    "preemptions",
    "migrations",
    "starved",
    "sla_misses",
    "cost",
)


def compare(
    trace: Trace,
    fleet: Cluster,
    policies: Mapping[str, GpuPolicySpec | None],
    *,
    baselines: Mapping[str, Scheduler] = BASELINES,
    timing: Timing | None = None,
    watch: Callable[[str, Simulation, Plan], None] | None = None,
) -> dict[str, Result]:
    """Runs each policy through the governor, and each baseline, by name. `watch` is called after each cycle of each, with what was decided."""
    runs: list[tuple[str, GpuPolicySpec | None, Scheduler]] = [
        (name, policy, decide) for name, policy in policies.items()
    ]
    runs += [(name, None, other) for name, other in baselines.items()]
    results = {}
    for name, policy, scheduler in runs:
        seen = None if watch is None else _seen(watch, name)
        results[name] = simulate(trace, policy, fleet, scheduler=scheduler, timing=timing, watch=seen)
    return results


def _seen(watch: Callable[[str, Simulation, Plan], None], name: str) -> Callable[[Simulation, Plan], None]:
    return lambda run, plan: watch(name, run, plan)


def table(results: Mapping[str, Result]) -> str:
    """The figures of several runs as text, a line each."""
    lines = [f"{'':24}" + "".join(f"{column:>14}" for column in _COLUMNS)]
    for name, result in results.items():
        figures = (getattr(result, column) for column in _COLUMNS)
        lines.append(
            f"{name:24}"
            + "".join(
                f"{figure:14.3f}" if isinstance(figure, float) and figure < 10 else f"{figure:14,.0f}"
                for figure in figures
            )
        )
    return "\n".join(lines)
