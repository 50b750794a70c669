"""A machine with GPUs: its processes and its disk outlive its agent, and its processes end with it.

What is here is the truth that a witness looks at: which process is on which GPU at this moment, whatever anybody reports or believes.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from homeostat.gpu.agent import journal, witness
from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.family import Family
from homeostat.gpu.agent.launching import MPS_MEMORY, MPS_SHARE
from homeostat.gpu.agent.suspend import CannotSuspend, Suspension
from homeostat.gpu.agent.wanted import DEVICES
from homeostat.gpu.kinds import WHOLE, Gpu, GpuReading
from homeostat.providers.process import record
from homeostat.providers.process.kernel import Marked
from homeostat.providers.process.kind import Definition, Restart
from homeostat.providers.process.launch import Start
from homeostat.providers.process.places import after_end
from homeostat.providers.process.record import Identity, Mark, Replica
from homeostat.providers.process.slot import Ending, Slot
from homeostat.sim.network import FINE, Weather

MODEL, MEMORY_MIB = "H100", 80_000


class Process(msgspec.Struct, eq=False):
    """One replica at work. It ends by itself after `work` seconds on its GPUs, with status `code`; 0 seconds: never."""

    pid: int
    uid: str
    replica: int
    gpus: tuple[int, ...]
    milli: int
    memory_mib: int
    work: float
    code: int
    began: float
    on_gpu: bool = True
    since: float = 0.0
    """When it last came onto its GPUs."""
    status: int | None = None
    """How it ended; None while it lives."""
    ended: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
    exit_file: Path | None = None
    """Where its witness writes down how it ended."""
    mark: str = ""


class Wear(msgspec.Struct, frozen=True):
    """How a machine fails: chances from 0 to 1, and seconds."""

    stubborn: float = 0.0
    """That a process does not end when it is asked to, and has to be killed."""
    slow_end: float = 3.0
    """How long one that does may take."""
    stuck: float = 0.0
    """That a process cannot be suspended this time."""


@dataclass(eq=False)
class Machine:
    """`changed` is told of every process that starts, ends, leaves its GPUs or comes back, just after it did."""

    name: str
    count: int
    root: Path
    source: random.Random
    changed: Callable[[Machine, Process, str], None]
    weather: Weather = FINE
    """Of its way to the server."""
    wear: Wear = field(default_factory=Wear)
    revision: int = 0
    processes: dict[int, Process] = field(default_factory=dict)
    boot: int = 1
    _pids: int = 0

    def sent(self, method: str, target: str, body: bytes) -> None:
        """Its agent sends a request."""

    def alive(self) -> Iterator[Process]:
        """The processes that live, on GPUs or off them."""
        return (one for one in self.processes.values() if one.status is None)

    def on_gpus(self) -> Iterator[Process]:
        """Those of them that are on their GPUs."""
        return (one for one in self.alive() if one.on_gpu)

    def spawn(self, uid: str, replica: int, definition: Definition) -> Process:
        """Starts a process."""
        self._pids += 1
        seconds, code = float(definition.command[1]), int(definition.command[2])
        memory = definition.env.get(MPS_MEMORY, "0=0M").partition("=")[2].removesuffix("M")
        made = Process(
            pid=self.boot * 1000 + self._pids,
            uid=uid,
            replica=replica,
            gpus=tuple(int(gpu) for gpu in definition.env[DEVICES].split(",")),
            milli=round(float(definition.env.get(MPS_SHARE, "100")) * WHOLE / 100),
            memory_mib=int(memory),
            work=seconds,
            code=code,
            began=_now(),
        )
        self.processes[made.pid] = made
        self._go_on(made)
        self.changed(self, made, "starts")
        return made

    def suspend(self, process: Process) -> None:
        """Takes it off its GPUs."""
        if process.status is None and process.on_gpu:
            self._pause(process)
            process.on_gpu = False
            self.changed(self, process, "leaves")

    def resume(self, process: Process) -> None:
        """Puts it back."""
        if process.status is None and not process.on_gpu:
            process.on_gpu = True
            self._go_on(process)
            self.changed(self, process, "returns")

    def signal(self, process: Process, sig: signal.Signals) -> None:
        """Asks it to end. It does so now, in a while, or not at all."""
        if process.status is not None:
            return
        if sig is signal.SIGKILL:
            self._end(process, -int(sig))
        elif process.on_gpu and self.source.random() >= self.wear.stubborn:
            self._pause(process)
            process.timer = _later(self.source.uniform(0, self.wear.slow_end), lambda: self._end(process, -int(sig)))

    def reboot(self) -> None:
        """All processes are gone at once, and nobody saw how: their witnesses neither."""
        self.boot += 1
        for process in list(self.alive()):
            self._end(process, -int(signal.SIGKILL))

    def find(self, identity: Identity) -> Process | None:
        """The process of a record, while the machine that it ran on runs."""
        return self.processes.get(identity.pid) if identity.boot == str(self.boot) else None

    def _go_on(self, process: Process) -> None:
        process.since = _now()
        if process.work > 0:
            process.timer = _later(process.work, lambda: self._end(process, process.code))

    def _pause(self, process: Process) -> None:
        if process.timer is not None:
            process.timer.cancel()
            process.timer = None
        if process.work > 0:
            process.work = max(process.work - (_now() - process.since), 0.001)

    def _end(self, process: Process, status: int) -> None:
        if process.status is None:
            self._pause(process)
            process.status, process.on_gpu = status, False
            if process.exit_file is not None and status != -int(signal.SIGKILL):  # which ends its witness with it
                witness.tell(process.exit_file, process.mark, status)
            process.ended.set()
            self.changed(self, process, "ends")


class Rack(Suspension):
    """The GPUs of a machine, as its agent has them."""

    model, simulated, changed = MODEL, True, False

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @property
    def suspension(self) -> Suspension:
        return self

    def gpus(self) -> list[Gpu]:
        return [Gpu(index=i, uuid=f"SIM-{i}", memory_mib=MEMORY_MIB) for i in range(self._machine.count)]

    def number(self, before: Sequence[Gpu], held: Collection[int]) -> None:
        pass

    def visible(self, indexes: Sequence[int]) -> str:
        for index in indexes:
            if not 0 <= index < self._machine.count:
                raise KeyError(index)
        return ",".join(map(str, indexes))

    def read(self, held: Mapping[int, Held]) -> list[GpuReading]:
        return [
            GpuReading(
                index=at, utilisation=0.9 if at in held else 0.0, held_by=held[at].workloads if at in held else ()
            )
            for at in range(self._machine.count)
        ]

    def room(self, family: Family) -> dict[int, int]:
        return {}

    def suspend(self, family: Family, seconds: float, *, gang: bool) -> None:
        for one in family():
            if self._machine.source.random() < self._machine.wear.stuck:
                raise CannotSuspend("the driver is busy")
            self._machine.suspend(self._machine.processes[one.pid])

    def resume(self, family: Family, seconds: float, room: Mapping[int, int]) -> None:
        for one in family():
            self._machine.resume(self._machine.processes[one.pid])

    def close(self) -> None:
        pass


class SimSlot(Slot):
    """The place of a replica, with its record on the machine's disk and its process in the machine. Its `pidfd` is the pid."""

    def __init__(self, machine: Machine, folder: Path, uid: str, index: int) -> None:
        super().__init__(folder, uid, index)
        self._machine = machine
        self._child: Process | None = None
        """The one that this agent started: of others the kernel does not tell it how they ended."""

    @property
    def process(self) -> Process | None:
        """Its process, alive or not."""
        return self._machine.find(self.replica.process) if self.replica is not None else None

    @property
    def running(self) -> bool:
        return self.pidfd is not None and (found := self.process) is not None and found.status is None

    def load(self, found: Sequence[Marked]) -> None:
        self.replica = record.load(self._path)
        if self.replica is not None and self.replica.ended is None and (process := self.process) is not None and process.status is None:
            self.pidfd = process.pid

    def start(self, how: Start, definition: Definition, now: float) -> None:
        if self.running:
            return
        made = self._child = self._machine.spawn(self.uid, self.index, definition)
        identity, nonce = Identity(made.pid, 0, str(self._machine.boot)), f"n{made.pid}"
        made.exit_file, made.mark = journal.exit_file_of(self.folder, self.index), str(Mark(self.uid, self.index, nonce))
        self.pidfd = made.pid
        self._put(Replica(nonce, identity, now, definition=definition, through=True))

    def note_end(self, restart: Restart, now: float) -> None:
        if self.replica is not None and self.end_unnoted:
            status = self._child.status if self._child is not None and self._child is self.process else None
            self._put(after_end(self.replica, status, restart, now))
            self.pidfd = None

    def ask_to_end(self, sig: signal.Signals, *, vacate: bool) -> Ending | None:
        process = self.process
        if self.replica is None or process is None or not self.running:
            return None
        if vacate and not self.replica.stopping:
            self._put(self.replica.but(stopping=True))
        self._machine.signal(process, sig)
        return Ending(process.pid, ())

    def kill(self, members: Sequence[Identity]) -> None:
        if (process := self.process) is not None:
            self._machine.signal(process, signal.SIGKILL)

    def _release(self) -> None:
        self.pidfd = None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _later(seconds: float, work: Callable[[], None]) -> asyncio.TimerHandle:
    """A timer of nobody's life: what a process does it does by itself."""
    return asyncio.get_running_loop().call_later(seconds, work, context=Context())
