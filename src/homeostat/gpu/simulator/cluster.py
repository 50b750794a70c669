"""The simulated fleet: nodes, tenants and their quotas."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NEVER, NONE, UNLIMITED, Bools, Health, Ints, Nodes, Pools, Tenants

_NONE: Ints = np.zeros(0, dtype=np.int64)
_NO: Bools = np.zeros(0, dtype=np.bool_)
NO_POOLS = Pools(
    [], _NONE, _NONE, _NONE, _NO, _NONE, _NONE, _NONE, _NONE, np.zeros(0), _NO, _NONE, _NONE, [], np.zeros(0)
)


class Cluster(msgspec.Struct, frozen=True):
    """What a trace is run on."""

    models: Sequence[str]
    nodes: Nodes
    tenants: Tenants
    pools: Pools = NO_POOLS

    @property
    def gpus(self) -> int:
        """How many there are."""
        return int((self.nodes.health < Health.ABSENT).sum())


def make_nodes(
    gpus: Sequence[int],
    *,
    model: Sequence[int] | None = None,
    cpu: Sequence[int] | None = None,
    memory: Sequence[int] | None = None,
    cost_per_gpu: float = 2.0,
    rack_of: int = 16,
    names: Sequence[str] | None = None,
) -> Nodes:
    """Nodes with so many GPUs each, all healthy and heard of; `rack_of` nodes share a rack."""
    count, width = len(gpus), max(gpus, default=1)
    amount = np.array(gpus, dtype=np.int64)
    whole = np.zeros(count, dtype=np.int64)
    return Nodes(
        name=list(names) if names is not None else [f"node-{i:05}" for i in range(count)],
        model=np.array(model, dtype=np.int64) if model is not None else whole.copy(),
        domain=np.full(count, NONE),
        rack=np.arange(count) // rack_of,
        pool=np.full(count, NONE),
        given=whole.astype(bool),
        cpu=np.array(cpu, dtype=np.int64) if cpu is not None else np.full(count, UNLIMITED),
        memory=np.array(memory, dtype=np.int64) if memory is not None else np.full(count, UNLIMITED),
        cost=(amount * cost_per_gpu).astype(np.float64),
        spot=whole.astype(bool),
        cordoned=whole.astype(bool),
        drain=whole.astype(bool),
        heard=np.zeros(count),
        lease=np.zeros(count),
        reported=np.full(count, np.nan),
        skew=np.full(count, np.nan),
        trouble=np.full(count, "", dtype=object),
        flaps=whole.copy(),
        gpu_memory=np.full(count, UNLIMITED),
        parts=whole.astype(bool),
        health=np.where(np.arange(width) < amount[:, None], int(Health.HEALTHY), int(Health.ABSENT)),
        use=np.full((count, width), np.nan),
        traffic=np.full((count, width), np.nan),
        busy_cores=np.full((count, width), np.nan),
    )


def make_tenants(
    names: Sequence[str], nominal: Ints, *, models: int = 1, cohort: bool = True, max_wait: float = NEVER
) -> Tenants:
    """Tenants with a quota each over all models together, in thousandths; in one cohort, so that they borrow what others leave idle."""
    count = len(names)
    quota = np.zeros((count, models + 1), dtype=np.int64)
    quota[:, models] = nominal
    return Tenants(
        name=list(names),
        cohort=np.full(count, 0 if cohort else NONE),
        weight=np.ones(count),
        column=np.full((count, models), models),
        nominal=quota,
        borrowing=np.full(quota.shape, UNLIMITED),
        lending=np.full(quota.shape, UNLIMITED),
        budget=np.full(count, NEVER),
        period=np.full(count, NEVER),
        exceeded=np.zeros(count, dtype=np.int64),
        max_wait=np.full(count, max_wait),
        share_of_time=np.zeros(count),
    )


def even_cluster(tenants: Sequence[str], nodes: int, gpus_per_node: int = 8, *, max_wait: float = NEVER) -> Cluster:
    """A fleet of one model, of which each tenant has an equal part and may borrow the rest."""
    total = nodes * gpus_per_node * WHOLE
    nominal = np.full(len(tenants), total // len(tenants))
    nominal[: total - int(nominal.sum())] += 1  # all of it is somebody's
    return Cluster(["GPU"], make_nodes([gpus_per_node] * nodes), make_tenants(tenants, nominal, max_wait=max_wait))


def read_openb_nodes(path: str | Path, tenants: Sequence[str]) -> Cluster:
    """Alibaba's nodes: sn, cpu_milli, memory_mib, gpu, model; the quota is the whole fleet for all."""
    with open(path, newline="") as file:
        rows = sorted((row for row in csv.DictReader(file) if int(row["gpu"])), key=lambda row: row["sn"])
    models = sorted({row["model"] for row in rows})
    gpus = [int(row["gpu"]) for row in rows]
    nodes = make_nodes(
        gpus,
        model=[models.index(row["model"]) for row in rows],
        cpu=[int(row["cpu_milli"]) for row in rows],
        memory=[int(row["memory_mib"]) for row in rows],
        names=[row["sn"] for row in rows],
    )
    nominal = np.full(len(tenants), sum(gpus) * WHOLE)
    return Cluster(models, nodes, make_tenants(tenants, nominal, models=len(models)))
