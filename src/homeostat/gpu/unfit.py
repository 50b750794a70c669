"""What no node of the fleet would have, were nothing else on it: who asks for that waits for a node, not for its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from homeostat.gpu.decisions import Constraint
from homeostat.gpu.fleet import Fleet, Need
from homeostat.gpu.kinds import WHOLE, share_text
from homeostat.gpu.snapshot import NONE, Ints, Spot, Topology

Unfit = tuple[Constraint, str]
_WITHIN = {Topology.NODE: "node", Topology.NVLINK_DOMAIN: "NVLink domain", Topology.RACK: "rack"}


class Room(NamedTuple):
    """What nodes of one model have for replicas of one sort, with nothing else on them."""

    nodes: Ints
    together: int
    """Replicas that are as near to each other as they must be."""
    all: int


class Emptied:
    """The fleet as if nothing were on it. What was asked once is remembered: thousands of workloads are of a few sorts."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rooms: dict[tuple[int, ...], Room] = {}

    def why_not(self, need: Need, models: Sequence[int]) -> Unfit | None:
        """Why it cannot run on this fleet, whoever else goes; None where it could."""
        rooms = [self._room(need, model) for model in models]
        if not any(room.all for room in rooms):
            return Constraint.TYPE, _lacking(self._fleet, need, np.concatenate([room.nodes for room in rooms]))
        if max(room.together for room in rooms) >= need.replicas:
            return None
        if need.topology != Topology.ANYWHERE:
            where = _WITHIN[Topology(need.topology)]
            return Constraint.TOPOLOGY, f"no {where} of the fleet has room for all its {need.replicas} replicas, even with nothing else there"
        most = max(room.all for room in rooms)
        return Constraint.CAPACITY, f"it wants {need.replicas} replicas at once, and with nothing else on it the fleet has room for {most}"

    def _room(self, need: Need, model: int) -> Room:
        key = (model, need.milli, need.whole, need.gpu_memory, need.cpu, need.memory, need.spot, need.topology)
        if (known := self._rooms.get(key)) is not None:
            return known
        nodes = np.flatnonzero(self._fleet.model == model)
        slots = self._fleet.slots_when_empty(need, nodes)
        group, every = self._fleet.group_of(need, nodes), int(slots.sum())
        if group is None:
            return self._rooms.setdefault(key, Room(nodes, every, every))
        near = np.bincount(group[group != NONE], weights=slots[group != NONE], minlength=1)
        return self._rooms.setdefault(key, Room(nodes, int(near.max()), every))


def _lacking(fleet: Fleet, need: Need, nodes: Ints) -> str:
    """The first thing that all these nodes lack, in a sentence."""
    gpus, each = fleet.there[nodes].sum(axis=1), share_text(need.milli)
    nodes = nodes[gpus * WHOLE >= need.milli]
    if not len(nodes):
        return f"no node of the fleet has the {each} GPUs that a replica wants: the most is {gpus.max(initial=0)}"
    if need.whole:
        nodes = nodes[~fleet.parts[nodes]]
        if not len(nodes) and need.milli <= WHOLE:
            return "it makes way by `Suspend`, which parts of GPUs (MIG) cannot do, and there are no others: say `Checkpoint`, `Restart` or `Never`"
        if not len(nodes):
            return f"a replica wants {each} GPUs, and the nodes that have so many have parts of GPUs (MIG), of which a process sees one alone"
    memory = fleet.gpu_memory[nodes] * min(need.milli, WHOLE) // WHOLE
    nodes, most = nodes[memory >= need.gpu_memory], memory.max()
    if not len(nodes):
        of = "a GPU" if need.milli >= WHOLE else f"{each} of a GPU"
        return f"no node of the fleet has the {need.gpu_memory} MiB of GPU memory that it wants: {of} has {most} at most"
    if need.spot != Spot.ALLOW:
        nodes = nodes[fleet.spot[nodes] == (need.spot == Spot.REQUIRE)]
        if not len(nodes):
            return "it wants spot nodes, and there are none" if need.spot == Spot.REQUIRE else "it keeps off spot nodes, and there are no others"
    for size, wants, what in ((fleet.size_cpu, need.cpu, "thousandths of a CPU"), (fleet.size_memory, need.memory, "MiB of memory")):
        most = size[nodes].max()
        nodes = nodes[size[nodes] >= wants]
        if not len(nodes):
            return f"no node of the fleet has the {wants} {what} that a replica wants: the most is {most}"
    return "no node of the fleet has what it asks for"
