"""What has been asked for lately: from it placement learns what fits well, see `placement`.

Every workload is counted once, in the first cycle after it was submitted. It is learned from what was counted each time that has doubled,
and from time to time after that: what is counted is halved when it is much, so that the past fades.
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.decisions import Asked, Memory
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement import Demand, Pod
from homeostat.gpu.snapshot import ANY_MODEL, Ints, Snapshot

MUCH = 2**14
"""Requests, after which all that was counted is halved."""
KINDS = 256
"""Kinds of requests that are remembered: the most frequent ones."""


def remember(snapshot: Snapshot, memory: Memory) -> tuple[list[Asked], list[Asked]]:
    """What has been asked for, and what of that to learn from: the demand and the lesson of the next memory."""
    counts = {_kind(asked): asked.count for asked in memory.demand}
    for kind, count in _arrived(snapshot, memory.at):
        counts[kind] = counts.get(kind, 0) + count
    much = sum(counts.values())
    while sum(counts.values()) >= MUCH:
        counts = {kind: count // 2 for kind, count in counts.items() if count > 1}
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:KINDS]
    demand = sorted(Asked(*kind, count) for kind, count in most)
    news = much >= MUCH or _size(demand).bit_length() != _size(memory.lesson).bit_length()
    return demand, demand if news else memory.lesson


def demand_of(lesson: list[Asked], snapshot: Snapshot) -> Demand:
    """The lesson for a fleet with these models. What insists on a model that is not there is left out."""
    bit, demand = {name: 1 << at for at, name in enumerate(snapshot.models)}, Demand()
    for asked in lesson:
        models = sum(bit.get(name, 0) for name in asked.models) if asked.models else ANY_MODEL
        if models:
            demand.observe(Pod(asked.cpu, asked.memory, asked.gpus, asked.milli, models), asked.count)
    return demand


def mixed(*fields: Ints) -> Ints:
    """One number for each row of these: equal for rows that are equal, and for no others that will ever be met."""
    found = np.zeros(len(fields[0]), dtype=np.uint64)
    for field in fields:
        found = (found ^ field.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found.view(np.int64)


_Kind = tuple[int, int, int, int, tuple[str, ...]]


def _kind(asked: Asked) -> _Kind:
    return asked.cpu, asked.memory, asked.gpus, asked.milli, asked.models


def _size(lesson: list[Asked]) -> int:
    return sum(asked.count for asked in lesson)


def _arrived(snapshot: Snapshot, since: float | None) -> list[tuple[_Kind, int]]:
    """What was submitted since then, by kind; at first all that is there."""
    w = snapshot.workloads
    there = sum(1 << at for at in np.unique(snapshot.nodes.model).tolist())
    able = (w.milli > 0) & ((w.milli < WHOLE) | (w.milli % WHOLE == 0))
    new = np.flatnonzero(able if since is None else able & (w.submitted > since))
    if not len(new):
        return []
    rows = np.stack([w.cpu[new], w.memory[new], w.milli[new], w.models[new]], axis=1)
    _, first, which = np.unique(mixed(*rows.T), return_index=True, return_inverse=True)
    counts = np.bincount(which, weights=w.replicas[new]).astype(np.int64).tolist()
    found: list[tuple[_Kind, int]] = []
    for (cpu, memory, milli, models), count in zip(rows[first].tolist(), counts, strict=True):
        insists = models != ANY_MODEL and (not there or models & there != there)  # to name all that there is, is not
        named = tuple(sorted(name for at, name in enumerate(snapshot.models) if insists and models >> at & 1))
        found.append(((cpu, memory, max(milli // WHOLE, 1), min(milli, WHOLE), named), count))
    return found
