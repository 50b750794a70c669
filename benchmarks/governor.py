"""How long one cycle of the governor takes, with every policy on, and what it does on a published trace.

python benchmarks/governor.py                       # 10,000 nodes, 1,000 tenants, 100,000 workloads; and a held-out week of Philly
python benchmarks/governor.py --million             # and 1,000,000 workloads
python benchmarks/governor.py --weeks 4:59 13@1.2   # other weeks, on so many nodes or at so much of what there is; by itself without the cycles

A week is run beside FIFO, priority with backfill, and least attained service with three thresholds. The policy is
examples/gpu/time-sharing.yaml; docs/gpu-governor.md says which weeks were looked at while it was made. The trace is read from
`../shared/data`: Microsoft's Philly as the Pollux artifact has it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from harness import Json, one_by_one, write

from homeostat.cli.gpu.whatif import read_policy
from homeostat.gpu.decisions import Memory, Plan, Verb
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import WHOLE, Cost, GpuPolicySpec, Preempting, Scaling, TimeSharing
from homeostat.gpu.simulator import Result, Timing, compare, even_cluster, make_nodes, make_tenants, read_philly, table
from homeostat.gpu.simulator.baselines import fifo, least_attained_service, priority_backfill
from homeostat.gpu.snapshot import ANY_MODEL, NEVER, WORKLOAD, Mode, Nodes, Phase, Places, Pools, Snapshot, Workloads

NOW = 1_800_000_000.0
WEEK = 7 * 86_400.0
MODELS = ("A100", "H100", "H200", "L40S")
PER_NODE = 8
SIZES = (250, 500, 1000, 1000, 1000, 2000, 4000, 8000)
CYCLES = 5
PHILLY = Path(__file__).resolve().parents[2] / "shared" / "data" / "gpu-traces" / "philly" / "philly_jobs.csv"
POLICY = Path(__file__).resolve().parents[1] / "examples" / "gpu" / "time-sharing.yaml"
HELD_OUT = "8:52"
"""A week of Philly, and nodes on which more is asked for than there is: queues form."""
CHURN = 100
"""Workloads that end between two cycles."""


def crowded(nodes: int, tenants: int, workloads: int, seed: int = 1) -> Snapshot:
    """A fleet that is nearly full, with all that does not run waiting: every tenant has both."""
    dice = np.random.default_rng(seed)
    machines = make_nodes([PER_NODE] * nodes, model=np.sort(dice.integers(0, len(MODELS), nodes)).tolist())
    machines = _changed(
        machines, heard=np.full(nodes, NOW - 5), reported=np.full(nodes, NOW - 5), pool=machines.model.copy()
    )
    for signal in (machines.use, machines.traffic, machines.busy_cores):
        signal[:] = np.where(dice.random((nodes, PER_NODE)) < 0.02, 0.01, 0.8)
    nominal = dice.integers(1, 2 * nodes * PER_NODE // tenants, tenants) * WHOLE
    quotas = make_tenants([f"tenant-{i:04}" for i in range(tenants)], nominal, models=len(MODELS))
    quotas.cohort[:] = np.arange(tenants) // 10
    quotas.weight[:] = dice.integers(1, 5, tenants)
    rows = np.zeros(workloads, dtype=WORKLOAD)
    rows["tenant"] = dice.integers(0, tenants, workloads)
    rows["replicas"] = np.where(dice.random(workloads) < 0.05, dice.integers(2, 5, workloads), 1)
    rows["milli"] = dice.choice(SIZES, workloads)
    rows["models"] = np.where(dice.random(workloads) < 0.5, ANY_MODEL, 1 << dice.integers(0, len(MODELS), workloads))
    rows["priority"] = dice.choice((0, 0, 0, 10, 100), workloads)
    rows["preemption"] = dice.choice((Mode.SUSPEND, Mode.CHECKPOINT, Mode.CHECKPOINT, Mode.NEVER), workloads)
    rows["maximum"] = np.where(dice.random(workloads) < 0.5, dice.uniform(3600, 200_000, workloads), NEVER)
    rows["deadline"], rows["grace"] = NEVER, 30.0
    rows["submitted"] = rows["since"] = np.sort(NOW - dice.uniform(0, WEEK, workloads))
    rows["started"] = np.nan
    uid = [f"uid-{i:07}" for i in range(workloads)]
    empty = Snapshot(NOW, MODELS, Workloads.of(rows, uid, uid), Places.of([]), machines, quotas, _pools(nodes))
    return _filled(empty, rows, uid, dice)


def _changed(nodes: Nodes, **changed: Any) -> Nodes:
    return Nodes(**{name: changed.get(name, getattr(nodes, name)) for name in Nodes.__struct_fields__})


def _pools(nodes: int) -> Pools:
    count = len(MODELS)
    values: dict[str, Any] = {name: np.zeros(count, dtype=np.int64) for name in Pools.__struct_fields__}
    values |= {
        "name": [f"pool-{model}" for model in MODELS],
        "model": np.arange(count),
        "gpus": np.full(count, PER_NODE),
    }
    values |= {name: np.full(count, 2**50) for name in ("gpu_memory", "cpu", "memory")}
    values |= {
        "maximum": np.full(count, nodes),
        "cost": np.ones(count),
        "parts": np.zeros(count, dtype=bool),
        "spot": np.zeros(count, dtype=bool),
        "trouble": [""] * count,
        "arrives_within": np.full(count, 600.0),
    }
    return Pools(**values)


def _filled(empty: Snapshot, rows: np.ndarray, uid: list[str], dice: np.random.Generator) -> Snapshot:
    """The same with as much running as the governor itself admits."""
    plan = decide(
        empty, GpuPolicySpec(preemption=Preempting(enabled=False), scaling=Scaling(enabled=False), backfill=True)
    )
    index = {name: at for at, name in enumerate(empty.nodes.name)}
    place_rows: list[tuple[int, int, int, int, int]] = []
    for decision in plan.of(Verb.ADMIT):
        at = int(decision.subject[4:])
        rows["phase"][at] = Phase.RUNNING
        rows["started"][at] = min(rows["submitted"][at] + dice.uniform(0, 3600), NOW - 60)
        rows["ran"][at] = min(NOW - rows["started"][at], rows["maximum"][at] * 0.9)
        place_rows += [
            (at, place.replica, index[place.node], gpu, place.milli) for place in decision.places for gpu in place.gpus
        ]
    order = sorted(place_rows)
    return Snapshot(
        NOW, empty.models, Workloads.of(rows, uid, uid), Places.of(order), empty.nodes, empty.tenants, empty.pools
    )


def later(snapshot: Snapshot, seconds: float, dice: np.random.Generator, plan: Plan | None = None) -> Snapshot:
    """A cycle later: what was decided is done, and some have ended."""
    w, places, now = snapshot.workloads, snapshot.places, snapshot.now + seconds
    rows = np.zeros(len(w), dtype=WORKLOAD)
    for name in WORKLOAD.names or ():
        rows[name] = getattr(w, name)
    index = {name: at for at, name in enumerate(snapshot.nodes.name)}
    held: list[tuple[int, int, int, int, int]] = []
    for decision in plan.decisions if plan else ():
        at = int(decision.subject[4:]) if decision.kind == "Workload" else -1
        if decision.verb in (Verb.ADMIT, Verb.RESUME):
            rows["phase"][at], rows["started"][at] = Phase.RUNNING, now
            held += [
                (at, place.replica, index[place.node], gpu, place.milli)
                for place in decision.places
                for gpu in place.gpus
            ]
        elif decision.verb in (Verb.SUSPEND, Verb.PREEMPT, Verb.RECLAIM):
            rows["phase"][at], rows["since"][at] = Phase.PENDING, now
    ended = dice.choice(np.flatnonzero(rows["phase"] == Phase.RUNNING), CHURN, replace=False)
    rows["stopped"][ended] = True
    rows["phase"][ended] = Phase.PENDING
    table = np.concatenate(
        (
            np.column_stack([getattr(places, name) for name in Places.__struct_fields__]),
            np.array(held, dtype=np.int64).reshape(-1, 5),
        )
    )
    table = table[rows["phase"][table[:, 0]] == Phase.RUNNING]
    rest = Places.of(table[np.argsort(table[:, 0], kind="stable")])
    nodes = _changed(
        snapshot.nodes, heard=np.full(len(snapshot.nodes), now), reported=np.full(len(snapshot.nodes), now)
    )
    return Snapshot(
        now, snapshot.models, Workloads.of(rows, w.uid, w.name), rest, nodes, snapshot.tenants, snapshot.pools
    )


def measure(nodes: int, tenants: int, workloads: int) -> dict[str, Any]:
    """Cycles with every policy on, while workloads end in between."""
    snapshot = crowded(nodes, tenants, workloads)
    policy = GpuPolicySpec(time_sharing=TimeSharing(enabled=True, lends=0.5), cost=Cost(consolidate=True), defragment=True)
    dice, memory, took, decisions = np.random.default_rng(2), Memory(), [], 0
    cpu: list[float] = []
    plan: Plan | None = None
    for _ in range(CYCLES):
        snapshot = later(snapshot, 5.0, dice, plan)
        start, busy = time.perf_counter(), time.process_time()
        plan = decide(snapshot, policy, memory)
        took.append((time.perf_counter() - start) * 1000)
        cpu.append((time.process_time() - busy) * 1000)
        memory, decisions = plan.memory, decisions + len(plan.decisions)
    running = int((snapshot.workloads.phase == Phase.RUNNING).sum())
    return {
        "nodes": nodes,
        "tenants": tenants,
        "workloads": workloads,
        "running": running,
        "decisions_a_cycle": decisions / CYCLES,
        "median_ms": round(statistics.median(took), 1),
        "slowest_ms": round(max(took), 1),
        "median_cpu_ms": round(statistics.median(cpu), 1),
        "slowest_cpu_ms": round(max(cpu), 1),
    }


def chosen_week(path: Path, spec: str) -> tuple[int, int]:
    """The week, and nodes: `8:52` says how many, `8@1.1` how many times over the week asks for them."""
    week, _, load = spec.partition("@")
    if not load:
        week, _, nodes = spec.partition(":")
        return int(week), int(nodes)
    asked = read_philly(path).between(int(week) * WEEK, (int(week) + 1) * WEEK).gpu_seconds / WEEK / PER_NODE
    return int(week), max(1, round(asked / float(load)))


def philly(path: Path, week: int, nodes: int) -> dict[str, Result]:
    """A week of Philly on a fleet that it would keep more than busy, its fifteen tenants with an equal quota each."""
    whole = read_philly(path)
    trace = whole.between(week * WEEK, (week + 1) * WEEK)
    fleet = even_cluster(whole.tenants, nodes, PER_NODE)
    others = {
        "fifo": fifo,
        "priority-backfill": priority_backfill,
        "attained-service 1 h": least_attained_service(3_600),
        "attained-service 16 h": least_attained_service(16 * 3_600),
        "attained-service 64 h": least_attained_service(64 * 3_600),
    }
    return compare(trace, fleet, {"homeostat": read_policy(POLICY)}, baselines=others, timing=Timing(every=60.0))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--weeks", nargs="+", metavar="WEEK:NODES|WEEK@LOAD", help="only these weeks of Philly, each on so many nodes, or on as many as it asks for so many times over")
    options.add_argument("--million", action="store_true", help="measure 1,000,000 workloads as well")
    chosen = options.parse_args()
    results: Json = {}
    if not chosen.weeks:
        sizes = [(10_000, 1_000, 100_000)] + [(10_000, 1_000, 1_000_000)] * chosen.million
        results["cycles"] = [measure(*size) for size in sizes]
        for figures in results["cycles"]:
            print(json.dumps(figures))
    if not PHILLY.exists():
        raise SystemExit(f"the trace of Philly is not at {PHILLY}")
    results["philly"] = {}
    for spec, _ in one_by_one(dict.fromkeys(chosen.weeks or [HELD_OUT])):
        week, nodes = chosen_week(PHILLY, spec)
        print(f"week {week} on {nodes} nodes of {PER_NODE} GPUs", flush=True)
        found = philly(PHILLY, week, nodes)
        print(table(found), flush=True)
        results["philly"][spec] = {name: msgspec.to_builtins(result) for name, result in found.items()}
    write("governor.json", results)


if __name__ == "__main__":
    main()
