"""The real agent on a simulated machine: keeper, reports, lease and node are those of `homeostat agent`; processes and GPUs are the machine's."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from homeostat.client import Client
from homeostat.gpu.agent.agent import Agent
from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.hosted import Hosted, House
from homeostat.gpu.agent.journal import SUFFIX
from homeostat.gpu.agent.keeper import Keeper
from homeostat.gpu.agent.lease import Heartbeat
from homeostat.gpu.agent.node import Machine as Said
from homeostat.gpu.agent.node import NodeReporter
from homeostat.gpu.kinds import ProcessUse
from homeostat.providers.process.record import Identity
from homeostat.sim.gpu.machine import Machine, Rack, SimSlot
from homeostat.sim.loop import Life, SimClock
from homeostat.sim.network import Network
from homeostat.sim.server import Server


class SimHosted(Hosted):
    """A replica whose process is in a simulated machine."""

    _slot: SimSlot

    def __init__(self, house: House, folder: Path, uid: str, replica: int, machine: Machine) -> None:
        super().__init__(house, folder, uid, replica)
        self._slot = SimSlot(machine, folder, uid, replica)

    def processes(self) -> list[Identity]:
        found = self._slot.replica
        return [found.process] if found is not None and self.running else []

    def _follow(self) -> None:
        process = self._slot.process
        if process is not None and process.status is None and self._followed != process.pid:
            self._followed = process.pid
            following = asyncio.create_task(process.ended.wait())
            following.add_done_callback(lambda _: self.wake())

    async def _ends(self, pidfd: int, seconds: float) -> bool:
        process = self._slot.process
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.ended.wait() if process is not None else None
        return process is None or process.status is not None

    def _let_go(self, pidfd: int) -> None:
        pass


class SimKeeper(Keeper):
    """Keeps the replicas of a simulated machine."""

    machine: Machine

    async def _rotate_forever(self) -> None:
        pass  # nothing here writes logs

    def _load(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in sorted(self._root.iterdir()):
            places = {int(path.stem) for path in folder.iterdir() if path.suffix in (".json", SUFFIX)}
            for replica in sorted(places):
                self._host(folder.name, replica).load([])

    def _host(self, uid: str, replica: int) -> Hosted:
        folder = self._root / uid
        folder.mkdir(exist_ok=True)
        made = self._hosted.setdefault(uid, {})[replica] = SimHosted(self._house, folder, uid, replica, self.machine)
        return made

    def _use(self, hosted: Iterable[Hosted]) -> tuple[dict[int, Held], list[ProcessUse]]:
        held: dict[int, Held] = {}
        for one in hosted:
            for index in one.note.gpus if one.note is not None and one.on_gpu else ():
                before = held.get(index, Held())
                held[index] = Held(tuple(sorted({*before.workloads, one.uid})), 1.0)
        return held, []


class SimAgent(Agent):
    """Put together as the real one, on virtual time."""

    def __init__(self, client: Client, machine: Machine, clock: SimClock) -> None:
        rack = self._devices = Rack(machine)
        loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(client, machine.name, f"{machine.name}-agent", clock=clock, now=loop.time)
        self._keeper = SimKeeper(client, machine.name, rack, machine.root, clock=clock)
        self._keeper.machine = machine
        said = Said(machine.name, cpu_milli=64_000, memory_mib=512_000)
        self._node = NodeReporter(client, said, rack, self._keeper, clock=clock)
        self.ready = asyncio.Event()


class Station:
    """A machine and whoever keeps it: an agent that is started again whenever it dies, until the machine itself is down."""

    def __init__(self, machine: Machine, server: Server, clock: SimClock, source: random.Random) -> None:
        self.machine = machine
        self.network: Network | None = None
        self.life: Life | None = None
        self.deaths = 0
        self.up = True
        self.gone = False
        """For good."""
        self._server, self._clock, self._random = server, clock, source

    @property
    def lives(self) -> bool:
        """Whether its agent runs."""
        return self.life is not None and self.life.alive

    def start(self, steps: int | None = None) -> None:
        """Starts the agent; it dies after so many steps, and comes back by itself some seconds later."""
        loop = asyncio.get_running_loop()

        def died() -> None:
            self.deaths += 1
            if self.network is not None:
                self.network.cut()
            if self.up:
                loop.call_later(self._random.uniform(0, 8), self._again)

        self.network = Network(
            self._server, self.machine.name, random.Random(self._random.random()), self.machine
        )
        life = self.life = Life(f"agent {self.machine.name}", steps, died)
        life.begin(self._run(self.network), f"agent {self.machine.name}")

    def _again(self) -> None:
        if self.up and not self.lives:
            self.start()

    async def _run(self, network: Network) -> None:
        while True:  # as a supervisor would
            client = Client(network, user_agent=self.machine.name, source=random.Random(self._random.random()))
            with suppress(Exception):
                await SimAgent(client, self.machine, self._clock).run()
            await asyncio.sleep(2.0)

    def crash(self) -> None:
        """Kills the agent; the processes run on."""
        if self.life is not None:
            self.life.end()

    def lose(self) -> None:
        """The whole machine goes down, and its processes with it."""
        self.up = False
        self.crash()
        self.machine.reboot()

    def come_back(self) -> None:
        """It is switched on again."""
        if not self.up and not self.gone:
            self.up = True
            self._again()
