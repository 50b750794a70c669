"""What moving one pod adds: room for another that fits nowhere."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from homeostat.gpu.placement.packer import Packer
from homeostat.gpu.placement.room import Placement, Pod
from homeostat.gpu.snapshot import Floats, Ints

TRIES = 4
"""How many pods are tried before it is said that there is no room. Most that could make room also find some."""
DEAR = 0.5
"""A move is not made that loses more than this share of what the pod asks for: it would pass on room that others find by themselves."""


class Move(NamedTuple):
    """A pod that goes elsewhere, so that another gets its place."""

    who: int
    """Its index among the residents."""
    to: Placement
    freed: Placement
    """What the other one gets."""


class Residents:
    """Who is where: pods in the order in which they were added."""

    __slots__ = ("_facts", "_shape_of", "at", "pods", "shapes")

    def __init__(self) -> None:
        self.pods: list[Pod] = []
        self.at: list[Placement] = []
        self.shapes: list[Pod] = []
        self._shape_of: dict[Pod, int] = {}
        self._facts: Ints = np.empty((64, 7), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.pods)

    def add(self, pod: Pod, at: Placement) -> None:
        if len(self) == len(self._facts):
            self._facts = np.concatenate([self._facts, np.empty_like(self._facts)])
        shape = self._shape_of.setdefault(pod, len(self.shapes))
        if shape == len(self.shapes):
            self.shapes.append(pod)
        self._facts[len(self)] = shape, pod.cpu, pod.memory, pod.gpus, pod.milli, at.node, _first(at)
        self.pods.append(pod)
        self.at.append(at)

    def move(self, who: int, to: Placement) -> None:
        self.at[who] = to
        self._facts[who, 5:] = to.node, _first(to)

    @property
    def facts(self) -> Ints:
        """A row each: shape, CPU, memory, GPUs, thousandths of each, node, first device."""
        result: Ints = self._facts[: len(self)].T
        return result


def _first(at: Placement) -> int:
    return at.gpus[0] if at.gpus else 0


def make_room(packer: Packer, residents: Residents, pod: Pod) -> Move | None:
    """Moves one resident so that the pod, which fits nowhere, gets a place; None when no one move does it.

    Takes the place for the pod and the new one for the resident, and says so in `residents`, but does not add the pod there. Among those who
    could go, the one that costs least where it goes to and leaves least unused where it was.
    """
    cost = _cost_of_moving(packer, residents, pod)
    for who in np.argsort(cost)[:TRIES].tolist():
        if cost[who] == np.inf:
            break
        move = _try(packer, residents, pod, who)
        if move:
            residents.move(who, move.to)
            return move
    return None


def _try(packer: Packer, residents: Residents, pod: Pod, who: int) -> Move | None:
    mover, was = residents.pods[who], residents.at[who]
    packer.remove(mover, was)
    loss = packer.costs(pod)[was.node] - packer.costs(mover)[was.node]
    freed = Placement(was.node, packer.devices(pod, was.node))
    packer.take(pod, freed)
    loss += packer.costs(mover).min()
    to = packer.place(mover) if loss < DEAR * pod.total else None
    if to is None:
        packer.remove(pod, freed)
        packer.take(mover, was)
        return None
    return Move(who, to, freed)


def _cost_of_moving(packer: Packer, residents: Residents, pod: Pod) -> Floats:
    """Of each resident: the loss of its moving; infinite where that gives the pod no room, or where it can go nowhere. Pods with several
    GPUs stay where they are."""
    room = packer.room
    shape, cpu, memory, gpus, milli, node, device = residents.facts
    enough = (room.cpu[node] + cpu >= pod.cpu) & (room.memory[node] + memory >= pod.memory) & (gpus <= 1)
    able = np.flatnonzero(enough & ((pod.models >> room.model[node]) & 1 == 1))
    rest = room.gpus[node[able], device[able]] + gpus[able] * milli[able]
    free = room.gpus[node[able]]
    free[np.arange(len(able)), device[able]] = rest
    suffices = (free >= pod.milli).sum(axis=1) >= pod.gpus
    able, rest = able[suffices], rest[suffices]
    elsewhere = np.full(len(residents.shapes), np.inf)
    for each in np.unique(shape[able]).tolist():
        elsewhere[each] = packer.costs(residents.shapes[each]).min()
    cost = np.full(len(residents), np.inf)
    cost[able] = elsewhere[shape[able]] + np.maximum(rest - pod.milli, 0)
    return cost
