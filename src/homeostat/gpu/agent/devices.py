"""The GPUs of a machine, as an agent needs them: real ones (`nvml`) or simulated ones (`simulated`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from homeostat.gpu.agent.suspend import Suspension
from homeostat.gpu.kinds import Gpu, GpuReading

NOBODY = ()


@dataclass(frozen=True, slots=True)
class Held:
    """Who holds a GPU, and what they use of the machine."""

    workloads: tuple[str, ...] = NOBODY
    """Uids."""
    cpu: float = 0.0
    """Cores in use by those that run; who is suspended uses none."""
    resident_mib: int = 0
    milli: int = 0
    """How much of the GPU is taken by those that run."""


class Devices(Protocol):
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
        """What `CUDA_VISIBLE_DEVICES` is for a process that may use these. `KeyError` where one is not there."""

    def close(self) -> None:
        """Lets go of the driver."""
