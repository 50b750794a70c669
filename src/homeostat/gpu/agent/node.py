"""The GpuNode of a machine: what it has, declared once, and how its GPUs are, reported when it matters."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from homeostat import __version__
from homeostat.client import Client, Packed, Unreachable
from homeostat.client.backoff import Backoff
from homeostat.gpu.agent.devices import Held, Numbered
from homeostat.gpu.agent.reports import MANAGER
from homeostat.gpu.agent.wanted import nodes_of
from homeostat.gpu.kinds import NODE, WORKLOAD, Gpu, GpuNodeSpec, GpuNodeStatus, GpuReading, Phase, ProcessUse
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import decode, encode

log = logging.getLogger("homeostat.gpu.agent")

READ_SECONDS = 10.0
"""How often GPUs are read; they are not reported more often."""
BEAT_SECONDS = 60.0
"""After so long they are reported although nothing changed: a reading of which nobody knows whether it holds is none."""
_FRACTION, _MIB, _WATTS, _DEGREES, _CORES = 0.05, 512, 50.0, 5.0, 0.1
"""A change of more than this is worth a word: of use and traffic, memory, power, temperature, and CPU."""


class Machine(msgspec.Struct, frozen=True):
    """What a person says of a machine."""

    name: str
    model: str = ""
    """Default: what its GPUs say."""
    rack: str = ""
    zone: str = ""
    pool: str = ""
    nvlink_domain: str = ""
    spot: bool = False
    cost_per_hour: float = 0.0
    cpu_milli: int = 0
    """Default: all of it."""
    memory_mib: int = 0
    """Default: all of it."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    cordoned: bool = False
    """Somebody else keeps new work from it."""


class Seen(Protocol):
    """The GPUs of a machine, as they are told of. For threads."""

    @property
    def model(self) -> str:
        """The type, such as `H100`."""

    @property
    def simulated(self) -> bool:
        """Whether they are there only in name."""

    def gpus(self) -> list[Gpu]:
        """All of them, by index."""

    def read(self, held: Mapping[int, Held]) -> list[GpuReading]:
        """How each is at this moment."""


class Used(Protocol):
    """Who uses them."""

    async def use(self) -> tuple[dict[int, Held], list[ProcessUse]]:
        """Who holds which GPU, and the CPU that each replica used since it was asked last."""


def declaration(machine: Machine, devices: Seen) -> dict[str, Any]:
    """The GpuNode as its agent declares it. What nobody said is left out, so that people may say it in the API."""
    spec = GpuNodeSpec(
        model=machine.model or devices.model,
        gpus=tuple(devices.gpus()),
        cpu_milli=machine.cpu_milli or (os.cpu_count() or 1) * 1000,
        memory_mib=machine.memory_mib or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (1024 * 1024),
        nvlink_domain=machine.nvlink_domain,
        rack=machine.rack,
        zone=machine.zone,
        cost_per_hour=machine.cost_per_hour,
        spot=machine.spot,
        pool=machine.pool,
        cordoned=machine.cordoned,
        simulated=devices.simulated,
    )
    wire = encode(spec, defaults=False)
    wire["gpus"] = [encode(gpu) for gpu in spec.gpus]
    metadata: dict[str, Any] = {"name": machine.name}
    if machine.labels:
        metadata["labels"] = dict(machine.labels)
    return {"metadata": metadata, "spec": wire}


class Reading(msgspec.Struct, frozen=True):
    """A machine at one moment."""

    gpus: Sequence[GpuReading] = ()
    processes: Sequence[ProcessUse] = ()
    trouble: str = ""


def worth_telling(before: Reading, now: Reading) -> bool:
    """Whether a reading differs from the one that was told by more than it wavers anyway."""
    if before.trouble != now.trouble or len(before.gpus) != len(now.gpus) or any(map(_differs, before.gpus, now.gpus)):
        return True
    cpu = {(one.workload, one.replica): one.cpu for one in before.processes}
    if cpu.keys() != {(one.workload, one.replica) for one in now.processes}:
        return True
    return any(abs(cpu[one.workload, one.replica] - one.cpu) > _CORES for one in now.processes)


def _differs(a: GpuReading, b: GpuReading) -> bool:
    return (
        (a.index, a.health, a.reason, a.held_by) != (b.index, b.health, b.reason, b.held_by)
        or _moved(a.utilisation, b.utilisation, _FRACTION)
        or _moved(a.memory_traffic, b.memory_traffic, _FRACTION)
        or abs(a.memory_used_mib - b.memory_used_mib) > _MIB
        or abs(a.power_watts - b.power_watts) > _WATTS
        or abs(a.temperature - b.temperature) > _DEGREES
    )


def _moved(a: float | None, b: float | None, by: float) -> bool:
    return a != b if a is None or b is None else abs(a - b) > by


class NodeReporter:
    """Declares the node, and reports its GPUs. Where somebody deletes the node, or its GPUs are cut anew, it is declared again.

    `numbered` are the same GPUs where they come and go: each keeps the index that it was declared with. `trouble` says why nothing can be begun here.
    """

    def __init__(
        self,
        client: Client,
        machine: Machine,
        devices: Seen,
        keeper: Used,
        *,
        clock: Clock | None = None,
        read_seconds: float = READ_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        numbered: Numbered | None = None,
        trouble: Callable[[], str] = str,
    ) -> None:
        self._nodes = client.kind(NODE.api_version, NODE.kind)
        self._workloads = client.kind(WORKLOAD.api_version, WORKLOAD.kind, Packed)
        self._machine, self._devices, self._keeper, self._numbered = machine, devices, keeper, numbered
        self._clock = clock or Clock()
        self._every, self._beat = read_seconds, beat_seconds
        self._trouble = trouble
        self._told = Reading()
        self._told_at = float("-inf")
        self._said = ""

    async def declare(self) -> None:
        """Declares the node, however long it takes until the server takes it. Raises where it will never: 403, 422."""
        backoff = Backoff(first=0.5, most=30.0, source=self._nodes.client.random)
        while True:
            try:
                if self._numbered is not None:
                    await asyncio.to_thread(self._numbered.number, await self._before(), await self._held())
                obj = await asyncio.to_thread(declaration, self._machine, self._devices)
                await self._nodes.apply(obj, field_manager=MANAGER, force=True)
                return
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code in (401, 403, 422):
                    raise
                pause = backoff.next()
                log.warning("node %s cannot be declared: %s; again in %.0f s", self._machine.name, error, pause)
            await asyncio.sleep(pause)

    async def _before(self) -> list[Gpu]:
        """Its GPUs as they are declared at present."""
        try:
            found = await self._nodes.get(self._machine.name)
        except ApiError as error:
            if error.code != 404:
                raise
            return []
        return [decode(Gpu, gpu) for gpu in found["spec"].get("gpus") or ()]

    async def _held(self) -> set[int]:
        """The indexes of GPUs here that work is placed on, or comes back to."""
        name, held = self._machine.name, set[int]()
        for one in await self._workloads.list():
            if name in nodes_of(one):
                status = one.load().get("status") or {}
                if status.get("phase") not in (Phase.SUCCEEDED, Phase.FAILED):
                    held |= {gpu for place in status.get("assignment") or () if place["node"] == name for gpu in place.get("gpus") or ()}
        return held

    async def run(self) -> None:
        """Reads and reports until it is cancelled."""
        while True:
            try:
                await self._report()
                self._said = ""
            except (ApiError, Unreachable) as error:
                if str(error) != self._said:
                    self._said = str(error)
                    log.warning("node %s could not be reported: %s", self._machine.name, error)
                if isinstance(error, ApiError) and error.reason == "NotFound":
                    self._told_at = float("-inf")
                    await self.declare()
                    continue
            await asyncio.sleep(self._every)

    async def _report(self) -> None:
        held, processes = await self._keeper.use()
        gpus = await asyncio.to_thread(self._devices.read, held)
        if self._numbered is not None and self._numbered.changed:
            log.warning("the GPUs of node %s are others now, and it is declared anew", self._machine.name)
            await self.declare()
            gpus = await asyncio.to_thread(self._devices.read, held)
        reading = Reading(gpus, processes, self._trouble())
        now = self._clock.now()
        if now - self._told_at < self._beat and not worth_telling(self._told, reading):
            return
        status = GpuNodeStatus(
            agent=f"homeostat/{__version__}",
            reported_at=datetime.fromtimestamp(int(now), UTC),
            gpus=tuple(gpus),
            processes=tuple(processes),
            trouble=reading.trouble,
        )
        wire = {k: v for k, v in encode(status).items() if k in ("agent", "reportedAt", "gpus", "processes", "trouble")}
        obj = {"metadata": {"name": self._machine.name}, "status": wire}
        await self._nodes.apply(obj, field_manager=MANAGER, force=True, subresource="status")
        self._told, self._told_at = reading, now
