"""The machines of a cluster as GpuNodes: declared, reported, and each with a lease that is renewed while the cluster says that it lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from homeostat.client import Client
from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.lease import TIMING, Heartbeat
from homeostat.gpu.agent.node import BEAT_SECONDS, Machine, NodeReporter
from homeostat.gpu.agent.origin import Origin
from homeostat.gpu.bridge.cluster import Member
from homeostat.gpu.kinds import Gpu, GpuHealth, GpuReading, ProcessUse
from homeostat.loop.election import Timing
from homeostat.model.clock import Clock

log = logging.getLogger("homeostat.gpu.bridge")

OTHERS = "somebody else's jobs have it"


def readings(gpus: int, held: Mapping[int, Held], assigned: Collection[int], others: int, blind: str) -> list[GpuReading]:
    """How the GPUs of a node are told. Which ones a job gets is the cluster's business, so indexes are only counted by.

    Those that others have are said of GPUs that the governor has given to nobody. They are suspect and not failed: nothing new comes
    there, and what is there stays. Where nobody knows (`blind`), that goes for all that are free.
    """
    free = [index for index in range(gpus) if index not in assigned and index not in held]
    theirs = set(free if blind else free[max(0, len(free) - others) :])
    return [
        GpuReading(
            index=index,
            health=GpuHealth.SUSPECT if index in theirs else GpuHealth.HEALTHY,
            reason=(blind or OTHERS) if index in theirs else "",
            held_by=held[index].workloads if index in held else (),
        )
        for index in range(gpus)
    ]


class Node:
    """One machine. `keep` has it told of, in tasks of its own; `held` says whether it is ours to act on."""

    def __init__(
        self,
        client: Client,
        member: Member,
        identity: str,
        clock: Clock,
        *,
        held: Callable[[str], dict[int, Held]],
        assigned: Callable[[str], Collection[int]],
        every: float,
        timing: Timing = TIMING,
        origin: Origin | None = None,
    ) -> None:
        self.member = member
        self.others = 0
        """GPUs that somebody else's jobs have."""
        self._counted: int | None = None
        self._width = 0
        """How many GPUs are declared."""
        self.blind = ""
        """Why the cluster cannot be asked."""
        self.heartbeat = Heartbeat(client, member.name, identity, timing=timing, clock=clock, origin=origin)
        self._client, self._clock, self._every = client, clock, every
        self._held, self._assigned = held, assigned
        self._beating: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._declared: tuple[object, ...] = ()

    @property
    def held(self) -> bool:
        """Whether its lease was ever ours: until then another may be keeping it."""
        return self.heartbeat.held.is_set()

    # What NodeReporter asks

    @property
    def model(self) -> str:
        return self.member.model

    simulated = False

    def gpus(self) -> list[Gpu]:
        """As many as the cluster shows; and while it shows fewer than the governor has given away, those: indexes are only counted by, and nobody
        knows whose job has the one that is no more."""
        self._width = max(self.member.gpus, *(index + 1 for index in self._assigned(self.member.name)), 0)
        return [Gpu(index=index, memory_mib=self.member.gpu_memory_mib) for index in range(self._width)]

    def read(self, held: Mapping[int, Held]) -> list[GpuReading]:
        width = max(self.member.gpus, self._width)
        return readings(width, held, self._assigned(self.member.name), self.others + width - self.member.gpus, self.blind)

    async def use(self) -> tuple[dict[int, Held], list[ProcessUse]]:
        return self._held(self.member.name), []  # no cluster tells what its jobs use: so nothing is ever taken for idle

    # Its life

    def keep(self, member: Member, others: int, tasks: asyncio.TaskGroup) -> None:
        """Takes note of how the cluster shows it."""
        if self._counted is None or member.alive != self.member.alive:
            log.warning("%s is %s", member.name, "kept" if member.alive else f"not alive, by what its cluster says: {member.why}")
        # What is told of machines and of jobs is not of the same moment: who is counted twice is really there.
        self.others = others if self._counted is None else min(others, self._counted)
        self.member, self._counted, self.blind = member, others, ""
        if not member.alive:
            self._stop_beating()
            return
        if self._beating is None:
            self._beating = tasks.create_task(self._beat(), name=f"heartbeat {member.name}")
        if self._telling is None or self._declared != _facts(member):
            if self._telling is not None:
                self._telling.cancel()
            self._declared = _facts(member)
            self._telling = tasks.create_task(self._tell(), name=f"node {member.name}")

    def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def _beat(self) -> None:
        await self.heartbeat.run()

    async def _tell(self) -> None:
        await self.heartbeat.held.wait()
        member = self.member
        machine = Machine(
            member.name, model=member.model, cpu_milli=member.cpu_milli, memory_mib=member.memory_mib, cordoned=member.cordoned
        )
        reporter = NodeReporter(
            self._client, machine, self, self, clock=self._clock, read_seconds=self._every, beat_seconds=BEAT_SECONDS
        )
        await reporter.declare()
        await reporter.run()


def _facts(member: Member) -> tuple[object, ...]:
    return member.model, member.gpus, member.cpu_milli, member.memory_mib, member.gpu_memory_mib, member.cordoned
