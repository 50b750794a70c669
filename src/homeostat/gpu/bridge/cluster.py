"""What a bridge sees of a cluster, and what it asks of it. `slurm` and `kubernetes` are the two that there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from homeostat.gpu.agent.wanted import Declared
from homeostat.gpu.kinds import Place

_MARK = re.compile(r"([A-Za-z0-9-]{1,64})\.(\d{1,9})\.(\d{1,9})\.(\d{1,9})@([a-z0-9.-]{1,253})").fullmatch


class Unreadable(Exception):
    """The cluster does not answer, or not so that it can be understood. What is there is not known then: nothing follows from it."""


class Mark(NamedTuple):
    """Which start of which replica a job is. It stands in the cluster, so that no start is made twice."""

    uid: str
    replica: int
    attempt: int
    start: int
    """The first on its node is 1."""
    node: str

    def __str__(self) -> str:
        return f"{self.uid}.{self.replica}.{self.attempt}.{self.start}@{self.node}"

    @classmethod
    def parse(cls, text: str) -> Mark | None:
        """From its text; None where it is none of ours."""
        found = _MARK(text)
        return cls(found[1], int(found[2]), int(found[3]), int(found[4]), found[5]) if found else None


class Stage(StrEnum):
    """How far a job is."""

    WAITING = "waiting"  # it has not begun
    ON = "on"
    OVER = "over"


class Job(msgspec.Struct, frozen=True):
    """One start of a replica, as the cluster tells it."""

    mark: Mark
    id: str
    """By which the cluster knows it."""
    stage: Stage
    number: int
    """What is reported as its pid."""
    holds: int = 0
    """GPUs that the cluster has booked for it now."""
    words: str = ""
    """For people: what it is called there, which GPUs it was given, why it waits."""
    since: float | None = None
    """When it came into this stage; wall seconds."""
    status: int | None = None
    """How it ended: negative for a signal; None where the cluster does not tell."""
    taken: bool = False
    """It ended because the cluster took its place away, and not by itself."""


class Member(msgspec.Struct, frozen=True):
    """A machine with GPUs of the cluster."""

    name: str
    """As a GpuNode."""
    id: str
    """By which the cluster knows it."""
    model: str
    gpus: int
    used: int = 0
    """GPUs that the cluster has booked, for whomever."""
    alive: bool = True
    why: str = ""
    """What the cluster says of one that is not alive, or takes no new work."""
    cordoned: bool = False
    cpu_milli: int = 0
    memory_mib: int = 0
    gpu_memory_mib: int = 0
    type: str = ""
    """What the cluster calls this kind of GPU."""


class Sight(msgspec.Struct, frozen=True):
    """A cluster at one moment."""

    members: Mapping[str, Member] = msgspec.field(default_factory=dict)
    jobs: Sequence[Job] = ()
    """Of all bridges, live and over."""


class Order(msgspec.Struct, frozen=True):
    """A replica that is to be begun."""

    mark: Mark
    workload: Declared
    place: Place
    member: Member
    env: Mapping[str, str]


class Cluster(Protocol):
    """A cluster. Everything that talks to it raises `Unreadable` where it cannot be told what came of that; it is looked at again then."""

    @property
    def what(self) -> str:
        """For people: `Slurm`, `Kubernetes`."""

    @property
    def queues(self) -> bool:
        """Whether what has no room yet may be sent there, and waits its turn."""

    async def open(self, wake: Callable[[], None]) -> None:
        """Begins to follow it; `wake` is told when there is something new, where the cluster tells that."""

    async def close(self) -> None:
        """Lets go of it. Jobs run on."""

    async def look(self) -> Sight:
        """All its machines with GPUs, and all jobs that bear a mark."""

    async def start(self, order: Order) -> None:
        """Begins a replica; one that is there already with this mark is left as it is. `Refused` where it never will."""

    async def ask_to_end(self, job: Job, signal: str, grace: float) -> None:
        """Tells a job to end, as the workload wants to be told."""

    async def end(self, job: Job) -> None:
        """Ends a job that has not begun, or whose grace is over."""

    async def left(self, mark: Mark) -> Job | None:
        """What is left of a start that the cluster no longer lists: how it ended. None where it never began."""

    async def noted(self, job: Job) -> None:
        """How a job ended is written down: it need not be kept for that."""

    async def forget(self, mark: Mark) -> None:
        """Nothing of this start is needed any more."""

    async def said(self, mark: Mark) -> str:
        """The last line that it wrote to standard error; empty where there is none, or it cannot be had."""
