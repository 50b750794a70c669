"""The GPUs of a machine, as an agent needs them: real ones (`nvml`) or simulated ones (`simulated`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from homeostat.gpu.agent.suspend import Suspension
from homeostat.gpu.kinds import Gpu, GpuReading

NOBODY = ()


class Held(msgspec.Struct, frozen=True):
    """Who holds a GPU, and what they use of the machine."""

    workloads: tuple[str, ...] = NOBODY
    """Uids."""
    cpu: float = 0.0
    """Cores in use by those that run; who is suspended uses none."""
    resident_mib: int = 0
    milli: int = 0
    """How much of the GPU is taken by those that run."""


class Gone(Exception):
    """A GPU that was here is no more. The message is for people."""


class Numbered(Protocol):
    """GPUs that come and go while an agent lives, as parts do whenever GPUs are cut anew. For threads."""

    @property
    def changed(self) -> bool:
        """Whether there are others than those that have numbers, by the last reading."""

    def number(self, before: Sequence[Gpu], held: Collection[int]) -> None:
        """Gives each that is there its index. `before` are those that were declared, `held` the indexes that work is placed on."""


def numbered(found: Sequence[Gpu], before: Sequence[Gpu], held: Collection[int]) -> list[int]:
    """The index of each that was found. One that is known keeps its own; another takes the lowest that nobody has and no work is placed on:
    what is placed on a GPU that is no more never finds itself on its successor.
    """
    there, kept = {_identity(gpu) for gpu in found}, dict[tuple[str, int], int]()
    for gpu in before:
        if _identity(gpu) in there and gpu.index not in kept.values():
            kept.setdefault(_identity(gpu), gpu.index)
    taken = {*kept.values(), *(held if before else ())}
    free = (index for index in range(len(found) + len(taken)) if index not in taken)
    return [kept[_identity(gpu)] if _identity(gpu) in kept else next(free) for gpu in found]


def _identity(gpu: Gpu) -> tuple[str, int]:
    """By what it is known again. The uuid of a part may be given again to another of another size."""
    return gpu.uuid, gpu.memory_mib if gpu.part_of else 0


class Devices(Numbered, Protocol):
    """The GPUs of this machine. All but `visible` is for threads: drivers may take their time."""

    @property
    def model(self) -> str:
        """The type, such as `H100`."""

    @property
    def simulated(self) -> bool:
        """Whether they are there only in name."""

    @property
    def suspension(self) -> Suspension:
        """How processes leave them with their state."""

    def gpus(self) -> list[Gpu]:
        """All of them, by index."""

    def read(self, held: Mapping[int, Held]) -> list[GpuReading]:
        """How each is at this moment."""

    def visible(self, indexes: Sequence[int]) -> str:
        """What `CUDA_VISIBLE_DEVICES` is for a process that may use these. `Gone` where one was there, `KeyError` where none ever was."""

    def close(self) -> None:
        """Lets go of the driver."""
