"""What it costs to put a pod on a node: how much more of the fleet is then expected to be lost."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement.cutting import worth
from homeostat.gpu.placement.demand import Demand
from homeostat.gpu.placement.room import Pod, Sizes
from homeostat.gpu.placement.stranding import stranded
from homeostat.gpu.snapshot import ANY_MODEL, Floats, Ints

STEPS = 256
"""The CPU of the largest node in steps, and its memory."""
STEP = 50
"""Thousandths of GPUs to a step, where they are counted together for a node."""

# What each kind of loss counts for beside a GPU that is stranded for want of CPU or memory. How little the figures depend on them is in
# docs/gpu-placement.md.
DEVICES = 8.0
"""A rest on a shared device: large, for it is certain, while CPU may yet be balanced."""
GROUPS = 0.005
"""Whole devices together, for those who ask for many: it breaks ties in favour of nodes that are in use."""
MODELS = 0.08
"""A device of a model that others insist on."""


class Asks(msgspec.Struct, frozen=True):
    """What pods ask for, as arrays of any one shape."""

    cpu: Ints
    memory: Ints
    gpus: Ints
    milli: Ints
    models: Ints

    @classmethod
    def of(cls, pods: list[Pod]) -> Asks:
        columns = np.array(pods, dtype=np.int64).reshape(-1, len(Pod._fields)).T
        return cls(*columns)


class Prices(msgspec.Struct, frozen=True):
    """Losses in thousandths of GPUs, by what is free. Learned once, used for many decisions."""

    cpu_step: int
    memory_step: int
    columns: int
    by_cpu: Floats
    """Stranded on a node, by steps of CPU and of GPU that are free. The first row is for a pod that does not fit, and infinite."""
    by_memory: Floats
    by_rest: Floats
    """Lost on a device, by what is free of it, from -WHOLE to WHOLE: below zero a pod does not fit, and it is infinite."""
    by_whole: Floats
    """Gained with the number of whole devices that are free on a node."""
    by_model: Floats
    """For each thousandth of a device."""

    @classmethod
    def learn(cls, demand: Demand, sizes: Sizes) -> Prices:
        """From what has arrived, for nodes of these sizes. The same again costs nothing."""
        return _learn(frozenset(demand.counts.items()), sizes)

    def of_whole(self, whole: Ints, gpus: int) -> Floats:
        """The loss on the devices of nodes with so many whole ones of taking some of those."""
        many: Floats = self.by_whole[whole] - self.by_whole[np.maximum(whole - gpus, 0)]
        return many - self.by_rest[WHOLE] if gpus == 1 else many

    def of_each(self, free: Ints, milli: Ints | int) -> Floats:
        """The loss on each device of its taking a pod with one GPU or part of one."""
        opened = free == WHOLE
        whole = opened.sum(axis=-1)
        first = self.by_whole[whole] - self.by_whole[np.maximum(whole - 1, 0)]
        free = np.maximum(free, 0)
        result: Floats = self.by_rest[free - milli] - (self.by_rest[free] - opened * first[..., None])
        return result

    def on_node(self, cpu: Ints, memory: Ints, total: Ints) -> Floats:
        """Stranded with this much free of a node. Negative CPU or memory: infinite."""
        column = total // STEP
        by_cpu = self.by_cpu.take(_rows(cpu, self.cpu_step) * self.columns + column)
        by_memory = self.by_memory.take(_rows(memory, self.memory_step) * self.columns + column)
        result: Floats = np.maximum(by_cpu, by_memory) + total % STEP
        return result


@lru_cache(maxsize=32)
def _learn(seen: frozenset[tuple[Pod, int]], sizes: Sizes) -> Prices:
    counted = sorted(seen)
    asks, count = Asks.of([pod for pod, _ in counted]), np.array([count for _, count in counted], dtype=float)
    with_gpus = asks.gpus > 0
    cpu_step, cpu = _in_steps(asks.cpu[with_gpus], sizes.cpu)
    memory_step, memory = _in_steps(asks.memory[with_gpus], sizes.memory)
    columns = sizes.devices * WHOLE // STEP + 1
    total = asks.gpus * asks.milli
    steps = np.maximum(np.rint(total[with_gpus] / STEP), 1).astype(np.int64)
    return Prices(
        cpu_step,
        memory_step,
        columns,
        _by_steps(cpu, steps, count[with_gpus], columns),
        _by_steps(memory, steps, count[with_gpus], columns),
        _by_rest(asks, count),
        _by_whole(asks, count * total, sizes.devices),
        _by_model(asks, count * total, sizes),
    )


def _in_steps(asked: Ints, most: int) -> tuple[int, Ints]:
    """How large a step is, and what is asked for in such steps. Where no node says how much it has, it never runs out."""
    if not most:
        return 1, np.zeros_like(asked)
    step = max(-(-most // STEPS), 1)
    return step, -(-asked // step)


def _rows(free: Ints, step: int) -> Ints:
    """The rows of the tables, of which the first is for what does not fit."""
    result: Ints = np.minimum(np.maximum(free // step, -1), STEPS) + 1
    return result


def _by_steps(need: Ints, gpus: Ints, count: Floats, columns: int) -> Floats:
    asked, which = np.unique(np.stack([need, gpus]), axis=1, return_inverse=True)
    weight = np.bincount(which.ravel(), count).astype(float)
    table = stranded(asked[0], asked[1], weight, STEPS + 1, columns, WHOLE // STEP) * STEP
    return np.ascontiguousarray(np.vstack([np.full(columns, np.inf), table]))  # or `take` would copy it each time


def _by_rest(asks: Asks, count: Floats) -> Floats:
    table = np.full(2 * WHOLE + 1, np.inf)  # the figures for what does not fit lie at the end, where negative indexes find them
    loss = table[: WHOLE + 1]
    loss[:] = 0.0
    part = (asks.gpus == 1) & (asks.milli < WHOLE)
    if part.any():
        sizes, which = np.unique(asks.milli[part], return_inverse=True)
        weight = np.bincount(which.ravel(), count[part]).astype(float)
        by_plan = np.arange(WHOLE + 1) - WHOLE * worth(sizes, weight)
        by_chance = stranded(np.zeros_like(sizes), sizes, weight, 1, WHOLE + 1, WHOLE)[0]
        by_chance[WHOLE] = 0.0  # a device that is still whole takes a whole pod
        loss[:] = DEVICES * (by_plan + by_chance)
    return table


def _by_whole(asks: Asks, total: Floats, devices: int) -> Floats:
    numbers = np.arange(devices + 1)
    gain = np.zeros(devices + 1)
    for many in range(2, devices + 1):
        share = total[asks.gpus == many].sum() / max(total.sum(), 1)
        gain += GROUPS * WHOLE * share * many * (numbers // many)
    return gain


def _by_model(asks: Asks, total: Floats, sizes: Sizes) -> Floats:
    """Of each model: how much of the demand insists on it, beside how much of the fleet it is."""
    devices = np.array(sizes.by_model, dtype=float)
    pressure = np.zeros(len(devices))
    for insisted in np.unique(asks.models).tolist():
        if insisted == ANY_MODEL:
            continue
        members = (insisted >> np.arange(len(devices))) & 1 == 1
        capacity = devices[members].sum()
        if capacity:
            share = total[asks.models == insisted].sum() / max(total.sum(), 1)
            pressure[members] += share * devices.sum() / capacity
    return MODELS * pressure
