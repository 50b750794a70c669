"""Packs a GPU fleet as in the experiment that Fragmentation Gradient Descent was published with, beside its published figures.

    python benchmarks/openb.py                                   # five workloads, ten seeds each, with and without moves: some minutes
    python benchmarks/openb.py --variants default --seeds 2 --moves   # a quick look, without moves
    python benchmarks/openb.py --governed 1                      # also through whole cycles of the governor, one seed
    python benchmarks/openb.py --ties redrawn                    # ties settled by lot at every decision
    python benchmarks/openb.py --fgd                             # also FGD itself, run here: shows that the experiment is the same

The pods are placed by the fleet of the governor (`gpu/fleet`), one after the other. The pods of the trace arrive in random order, then more of them drawn at random, until they ask for 130 % of the fleet's GPUs. None
leaves, and one that fits anywhere must be taken. What is told is the share of all GPUs that is given out when 100 % and 130 % has been
asked for. The nodes are shuffled for each seed. The trace is read from `../shared/data`; it is Alibaba's cluster-trace-gpu-v2023.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from fgd import Fgd
from harness import Json, one_by_one, write
from numpy.typing import NDArray

from homeostat.gpu import fleet as governed
from homeostat.gpu.decisions import Memory, Verb
from homeostat.gpu.fleet import Need
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import WHOLE, GpuPolicySpec, Preempting
from homeostat.gpu.placement import Demand, Packer, Placement, Pod, Residents, Room, make_room
from homeostat.gpu.simulator import make_nodes, make_tenants
from homeostat.gpu.simulator.cluster import NO_POOLS
from homeostat.gpu.snapshot import ANY_MODEL, NEVER, WORKLOAD, Idle, Mode, Nodes, Phase, Places, Snapshot, Workloads

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "gpu-traces" / "openb"
VARIANTS = ("default", "cpu100", "gpushare40", "gpuspec20", "multigpu20")
DEMAND = 1.3
POINTS = (100, 130)
FIRST_SEED = 42
NEAR = 1e-6
MOVED_SEEDS = 3
"""The first so many seeds are also run with moves, which take most of the time: compare with the same seeds without (`--seeds 3 --moves`)."""
CYCLE = 100
"""Pods that arrive between two cycles, where the governor is asked."""


class Fleet(NamedTuple):
    """The nodes of the trace."""

    cpu: NDArray[np.int64]
    memory: NDArray[np.int64]
    gpus: NDArray[np.int64]
    model: NDArray[np.int64]
    models: list[str]

    @property
    def total(self) -> int:
        return int((self.gpus == WHOLE).sum()) * WHOLE

    def order(self, seed: int) -> NDArray[np.int64]:
        return np.random.default_rng((seed, 1)).permutation(len(self.cpu))

    def shuffled(self, seed: int) -> Room:
        order = self.order(seed)
        return Room(self.cpu[order], self.memory[order], self.gpus[order], self.model[order])

    def nodes(self, seed: int) -> Nodes:
        """The same as the governor sees them."""
        order = self.order(seed)
        count = (self.gpus[order] == WHOLE).sum(axis=1).tolist()
        return make_nodes(count, model=self.model[order].tolist(), cpu=self.cpu[order].tolist(), memory=self.memory[order].tolist())


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


def read_fleet() -> Fleet:
    nodes = rows("openb_node_list_gpu_node.csv")
    models = sorted({node["model"] for node in nodes})
    count = np.array([int(node["gpu"]) for node in nodes])
    return Fleet(
        np.array([int(node["cpu_milli"]) for node in nodes]),
        np.array([int(node["memory_mib"]) for node in nodes]),
        np.where(np.arange(count.max()) < count[:, None], WHOLE, -1),
        np.array([models.index(node["model"]) for node in nodes]),
        models,
    )


def read_pods(variant: str, models: list[str]) -> list[Pod]:
    def pod(row: dict[str, str]) -> Pod:
        gpus, insists = int(row["num_gpu"]), row.get("gpu_spec")
        bits = sum({1 << models.index(model) for model in insists.split("|")}) if insists and gpus else ANY_MODEL
        return Pod(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, int(row["gpu_milli"]) if gpus else WHOLE, bits)

    return [pod(row) for row in sorted(rows(f"openb_pod_list_{variant}.csv"), key=lambda row: row["name"])]


def arrivals(pods: list[Pod], most: float, seed: int) -> list[Pod]:
    """All pods in random order, then random ones until `most` is asked for."""
    random = np.random.default_rng(seed)
    sequence = [pods[at] for at in random.permutation(len(pods))]
    asked = sum(pod.total for pod in pods)
    while asked + (pod := pods[int(random.integers(len(pods)))]).milli <= most:
        sequence.append(pod)
        asked += pod.total
    return sequence


class ByLot(Packer):
    """Settles ties by lot, anew for each decision."""

    __slots__ = ("random",)

    def choose(self, costs: NDArray[np.float64]) -> int:
        best = np.flatnonzero(costs <= costs.min() + NEAR)
        return int(best[self.random.integers(len(best))])


@dataclass
class Run:
    """One seed: the share given out at each point in percent, decisions a second of processor time, and pods moved."""

    shares: tuple[float, ...]
    rate: float
    moved: int = 0


def shares(asked: list[int], given: list[int], total: int) -> tuple[float, ...]:
    """As published: the mean over the arrivals at which the demand, in whole percent, is at the point."""
    percent = np.rint(np.array(asked) * 100 / total)
    return tuple(float(np.array(given)[percent == point].mean() * 100 / total) for point in POINTS)


def replay(sequence: list[Pod], total: int, place: Callable[[Pod], bool]) -> Run:
    asked, given = [0], [0]
    start = time.process_time()
    for pod in sequence:
        taken = place(pod)
        asked.append(asked[-1] + pod.total)
        given.append(given[-1] + pod.total * taken)
    return Run(shares(asked, given, total), len(sequence) / (time.process_time() - start))


def need_of(pod: Pod) -> Need:
    return Need(1, pod.total, cpu=pod.cpu, memory=pod.memory)


def ours(sequence: list[Pod], fleet: Fleet, seed: int, ties: str, share: float = 0.0) -> Run:
    """`share`: of the pods placed so far, how many may have been moved."""
    models = len(fleet.models)
    every = tuple(range(models))
    which = {mask: tuple(at for at in every if mask >> at & 1) for mask in {pod.models for pod in sequence}}
    machines = governed.Fleet(fleet.nodes(seed), models, np.ones(len(fleet.cpu), dtype=bool))
    packer = machines.packer = (ByLot if ties == "redrawn" else Packer)(machines.room, Demand())
    if isinstance(packer, ByLot):
        packer.random = np.random.default_rng((seed, 2))
    residents, moved = Residents(), 0

    def place(pod: Pod) -> bool:
        nonlocal moved
        taken = machines.place(need_of(pod), which[pod.models] if pod.gpus else every)
        assert packer.demand is not None
        packer.demand.observe(pod)  # after the decision: it is learned from what came before
        at = Placement(taken[0][1], tuple(gpu for _, _, gpu, milli in taken if milli)) if taken else None
        if share and at is None and pod.gpus and moved < share * len(residents):
            move = make_room(packer, residents, pod)
            if move:
                at, moved = move.freed, moved + 1
        if share and at is not None:
            residents.add(pod, at)
        return at is not None

    run = replay(sequence, fleet.total, place)
    run.moved = moved
    return run


def through_the_governor(sequence: list[Pod], fleet: Fleet, seed: int) -> Run:
    """The same in whole cycles of the governor: so many pods arrive between two of them, and those that find no place go away again."""
    nodes, pods = fleet.nodes(seed), [pod for pod in sequence if pod.gpus]
    tenants = make_tenants(["all"], np.array([fleet.total]), models=len(fleet.models))
    policy = GpuPolicySpec(preemption=Preempting(enabled=False))
    index, memory = {name: at for at, name in enumerate(nodes.name)}, Memory()
    rows = np.zeros(len(pods), dtype=WORKLOAD)
    columns = np.array([(pod.cpu, pod.memory, pod.total, pod.models) for pod in pods], dtype=np.int64).T
    rows["cpu"], rows["memory"], rows["milli"], rows["models"] = columns
    rows["replicas"], rows["preemption"], rows["idle"] = 1, Mode.CHECKPOINT, Idle.IGNORE
    rows["maximum"] = rows["deadline"] = NEVER
    rows["submitted"] = rows["since"] = np.arange(len(pods), dtype=float)
    rows["started"] = np.nan
    uid = [f"{at:06}" for at in range(len(pods))]
    here: list[int] = []
    held: list[tuple[int, int, int, int, int]] = []
    asked, given = [0], [0]
    start = time.process_time()
    for first in range(0, len(pods), CYCLE):
        new = range(first, min(first + CYCLE, len(pods)))
        now = float(new[-1])
        live = np.array([*here, *new])
        position = {at: i for i, at in enumerate(live.tolist())}
        names = [uid[at] for at in live.tolist()]
        seen = Nodes(**{name: getattr(nodes, name) for name in Nodes.__struct_fields__ if name != "heard"}, heard=np.full(len(nodes), now))
        places = Places.of([(position[at], *rest) for at, *rest in held])
        snapshot = Snapshot(now, fleet.models, Workloads.of(rows[live], names, names), places, seen, tenants, NO_POOLS)
        plan = decide(snapshot, policy, memory)
        memory = plan.memory
        admitted = {int(decision.subject): decision.places for decision in plan.of(Verb.ADMIT)}
        for at in sorted(admitted):
            held += [(at, place.replica, index[place.node], gpu, place.milli) for place in admitted[at] for gpu in place.gpus]
            rows["phase"][at], rows["started"][at] = Phase.RUNNING, now
            here.append(at)
        for at in new:
            asked.append(asked[-1] + pods[at].total)
            given.append(given[-1] + pods[at].total * (at in admitted))
    return Run(shares(asked, given, fleet.total), len(pods) / (time.process_time() - start))


def fgd(pods: list[Pod], sequence: list[Pod], fleet: Fleet, seed: int) -> Run:
    return replay(sequence, fleet.total, Fgd(fleet.shuffled(seed), pods).place)


def published(variant: str) -> list[float]:
    found = {
        int(row["arrived_demand_percent"]): float(row["mean"])
        for row in rows("expected/published_results.csv")
        if (row["workload"], row["policy"], row["metric"]) == (f"openb_pod_list_{variant}", "06-FGD", "allocation_percent")
    }
    return [found[point] for point in POINTS]


def tell(variant: str, who: str, runs: list[Run]) -> Json:
    means = [statistics.mean(run.shares[at] for run in runs) for at in range(len(POINTS))]
    spread = statistics.pstdev(run.shares[-1] for run in runs)
    rate, moved = statistics.median(run.rate for run in runs), statistics.mean(run.moved for run in runs)
    line = f"{variant:12}{who:18}{means[0]:>8.2f}{means[1]:>8.2f}{spread:>8.2f}{rate:>12,.0f}"
    print(line + (f"{moved:>10.0f}" if moved else ""), flush=True)
    return {f"at {point} %": round(mean, 3) for point, mean in zip(POINTS, means, strict=True)} | {"decisions/s": round(rate), "moved": moved}


def measure(variant: str, fleet: Fleet, arguments: argparse.Namespace) -> Iterator[tuple[str, Json]]:
    pods = read_pods(variant, fleet.models)
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    sequences = {seed: arrivals(pods, DEMAND * fleet.total, seed) for seed in seeds}
    theirs = published(variant)
    print(f"{variant:12}{'FGD, published':18}{theirs[0]:>8.2f}{theirs[1]:>8.2f}")
    if arguments.fgd:
        yield "FGD, run here", tell(variant, "FGD, run here", [fgd(pods, sequences[seed], fleet, seed) for seed in seeds])
    for share in (0.0, *arguments.moves):
        who = f"ours, {share:.0%} moved" if share else "ours"
        some = seeds[:MOVED_SEEDS] if share else seeds
        yield who, tell(variant, who, [ours(sequences[seed], fleet, seed, arguments.ties, share) for seed in some])
    if arguments.governed:
        runs = [through_the_governor(sequences[seed], fleet, seed) for seed in seeds[: arguments.governed]]
        yield "whole cycles", tell(variant, "whole cycles", runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--ties", choices=("first", "redrawn"), default="first", help="of nodes that cost the same: the first in shuffled order, or by lot")
    parser.add_argument("--moves", nargs="*", type=float, default=(0.01, 0.05), help="shares of the placed pods that may move, each on its own")
    parser.add_argument("--governed", type=int, default=0, metavar="SEEDS", help="so many seeds also through cycles of the governor, pods without GPUs left out")
    parser.add_argument("--fgd", action="store_true", help="run FGD here too")
    arguments = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"the trace is not at {DATA}")
    fleet = read_fleet()
    print(f"{'workload':12}{'policy':18}{'at 100 %':>8}{'at 130 %':>9}{'spread':>7}{'decisions/s':>12}{'moved':>10}")
    wanted = one_by_one({variant: measure(variant, fleet, arguments) for variant in arguments.variants})
    results = {variant: dict(found) for variant, found in wanted}
    write("openb.json", {"seeds": arguments.seeds, "ties": arguments.ties, "allocated": results})


if __name__ == "__main__":
    main()
