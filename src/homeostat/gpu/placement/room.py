"""What is free on every node, and what a pod asks of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import ANY_MODEL, UNLIMITED, Bools, Ints


class Pod(NamedTuple):
    """What a pod asks for. Pods that ask for the same are the same to placement."""

    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    """In the unit of the nodes, whatever that is."""
    gpus: int = 0
    milli: int = WHOLE
    """Thousandths of each GPU. Less than a whole one is one GPU shared: then `gpus` is 1."""
    models: int = ANY_MODEL
    """The models that will do, as bits."""

    @property
    def total(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.milli

    def checked(self) -> Pod:
        """Itself, if it can be asked for at all."""
        if min(self.cpu, self.memory, self.gpus) < 0 or not 0 < self.milli <= WHOLE:
            raise ValueError(f"{self} asks for less than nothing, or for more than all of a GPU")
        if self.milli < WHOLE and self.gpus > 1:
            raise ValueError(f"{self} asks for parts of {self.gpus} GPUs; a part is of one GPU")
        return self


class Placement(NamedTuple):
    """Where a pod is: a node, and the GPUs on it by index."""

    node: int
    gpus: tuple[int, ...]


class Sizes(NamedTuple):
    """How large the nodes are, empty: all that prices need to know of a fleet."""

    cpu: int
    """Of the largest node that says how much it has."""
    memory: int
    devices: int
    """On the largest node."""
    by_model: tuple[int, ...]
    """Devices of each model."""

    @classmethod
    def of(cls, cpu: Ints, memory: Ints, devices: Bools, model: Ints) -> Sizes:
        """`devices` are nodes by devices: whether each is there."""
        largest = [int(have[have < UNLIMITED].max(initial=0)) for have in (cpu, memory)]
        count = np.bincount(model, weights=devices.sum(axis=1), minlength=int(model.max(initial=0)) + 1)
        return cls(largest[0], largest[1], devices.shape[1], tuple(count.astype(np.int64).tolist()))


class Room:
    """What is free on every node, as arrays. Takes ownership of them: `take`, `give` and `load` change them in place.

    `gpus` is nodes by devices: the thousandths that are free of each. A device that is not there, or not to be used, has none or less.
    """

    __slots__ = ("cpu", "gpus", "largest", "memory", "model", "sizes", "total", "whole")

    def __init__(self, cpu: Ints, memory: Ints, gpus: Ints, model: Ints, sizes: Sizes | None = None) -> None:
        self.cpu, self.memory, self.gpus, self.model = cpu, memory, gpus, model
        self.sizes = sizes or Sizes.of(cpu, memory, gpus >= 0, model)
        self.whole: Ints = np.zeros(len(cpu), dtype=np.int64)
        """How many GPUs of each node are all free."""
        self.largest, self.total = self.whole.copy(), self.whole.copy()
        """What is free on the emptiest GPU of each node, and on all of them."""
        self._count(np.arange(len(cpu)))

    def __len__(self) -> int:
        return len(self.cpu)

    def copy(self) -> Room:
        """A twin for a what-if; what never changes is shared."""
        twin = object.__new__(Room)
        twin.model, twin.sizes = self.model, self.sizes
        for name in ("cpu", "gpus", "largest", "memory", "total", "whole"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def load(self, node: Ints, gpu: Ints, milli: Ints) -> Ints:
        """Takes many at once, or frees them with negative amounts; the nodes that changed. A GPU that was lost or oversubscribed from outside
        goes below zero, and fits nothing."""
        np.subtract.at(self.gpus, (node, gpu), milli)
        touched = np.flatnonzero(np.bincount(node, minlength=len(self))) if len(node) > 64 else np.unique(node)
        self._count(touched)
        return touched

    def change(self, node: int, gpu: int, milli: int) -> None:
        """Frees so much of one GPU; less with a negative amount."""
        self.gpus[node, gpu] += milli
        self.recount(node)

    def recount(self, *nodes: int) -> None:
        """Counts a few nodes anew whose GPUs were written to."""
        for node in nodes:
            free = self.gpus[node].tolist()
            self.whole[node], self.largest[node] = free.count(WHOLE), max(free)
            self.total[node] = sum(one for one in free if one > 0)

    def _count(self, nodes: Ints) -> None:
        free = self.gpus[nodes]
        self.whole[nodes] = (free == WHOLE).sum(axis=1)
        self.largest[nodes] = free.max(axis=1, initial=0)
        self.total[nodes] = np.maximum(free, 0).sum(axis=1)

    def take(self, pod: Pod, at: Placement) -> None:
        self._move(pod, at, -1)

    def give(self, pod: Pod, at: Placement) -> None:
        self._move(pod, at, +1)

    def _move(self, pod: Pod, at: Placement, sign: int) -> None:
        self.cpu[at.node] += sign * pod.cpu
        self.memory[at.node] += sign * pod.memory
        for gpu in at.gpus:
            self.change(at.node, gpu, sign * pod.milli)
            assert 0 <= self.gpus[at.node, gpu] <= WHOLE, "a GPU is given to more than it has room for, or given back twice"
        assert self.cpu[at.node] >= 0 <= self.memory[at.node], "a node is given to more than it has room for"

    @property
    def free(self) -> int:
        """Thousandths of GPUs that are free in all."""
        return int(self.total.sum())
