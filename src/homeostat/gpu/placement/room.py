"""What is free on every node, and what a pod asks of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import ANY_MODEL, Ints


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


class Room:
    """What is free on every node, as arrays. Takes ownership of them: `take` and `give` change them in place.

    `gpus` is nodes by devices: the thousandths that are free of each. A negative figure is a device that is not there, or not to be used.
    """

    __slots__ = ("cpu", "gpus", "memory", "model", "most_cpu", "most_memory")

    def __init__(self, cpu: Ints, memory: Ints, gpus: Ints, model: Ints) -> None:
        self.cpu, self.memory, self.gpus, self.model = cpu, memory, gpus, model
        self.most_cpu, self.most_memory = int(cpu.max(initial=1)), int(memory.max(initial=1))

    def __len__(self) -> int:
        return len(self.cpu)

    def take(self, pod: Pod, at: Placement) -> None:
        self._move(pod, at, -1)

    def give(self, pod: Pod, at: Placement) -> None:
        self._move(pod, at, +1)

    def _move(self, pod: Pod, at: Placement, sign: int) -> None:
        self.cpu[at.node] += sign * pod.cpu
        self.memory[at.node] += sign * pod.memory
        for gpu in at.gpus:
            self.gpus[at.node, gpu] += sign * pod.milli
            assert 0 <= self.gpus[at.node, gpu] <= WHOLE, "a GPU is given to more than it has room for, or given back twice"
        assert self.cpu[at.node] >= 0 <= self.memory[at.node], "a node is given to more than it has room for"

    @property
    def free(self) -> int:
        """Thousandths of GPUs that are free in all."""
        return int(np.maximum(self.gpus, 0).sum())
