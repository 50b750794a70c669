"""All replicas of this machine: finds out which there are and should be, and has each of them driven."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from homeostat.client import Client, Key, Packed, Unreachable
from homeostat.gpu.agent.devices import Devices, Held
from homeostat.gpu.agent.family import cpu_seconds, relatives, resident_mib
from homeostat.gpu.agent.hosted import Hosted, House
from homeostat.gpu.agent.journal import SUFFIX
from homeostat.gpu.agent.launching import Rules
from homeostat.gpu.agent.origin import InDoubt, Origin, OtherServer
from homeostat.gpu.agent.placed import Placed
from homeostat.gpu.agent.reports import Entries, Reports
from homeostat.gpu.agent.wanted import nodes_of
from homeostat.gpu.kinds import WHOLE, Place, ProcessUse
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec
from homeostat.providers.process import kernel, logs
from homeostat.providers.process.kind import Logs
from homeostat.providers.process.record import claim

log = logging.getLogger("homeostat.gpu.agent")

ROTATE_SECONDS = 1.0
"""How often the sizes of logs are looked at."""
SWEEP_SECONDS = 600.0
"""How often is looked for logs of workloads that are no more."""
SUSPEND_SECONDS = 300.0
"""How long a replica may take to leave the GPUs, or to come back. A GPU's memory moves at some GB a second."""
_UID = re.compile(r"[A-Za-z0-9-]{1,64}").fullmatch


class Keeper:
    """Keeps the replicas of one node as they are wanted. `state` is its directory: one agent at a time works with it."""

    def __init__(
        self,
        client: Client,
        node: str,
        devices: Devices,
        state: Path,
        *,
        rules: Rules | None = None,
        output: Logs | None = None,
        suspend_seconds: float = SUSPEND_SECONDS,
        clock: Clock | None = None,
        origin: Origin | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise RuntimeError(f"processes are kept by pidfds and /proc, which only Linux has; this is {sys.platform}")
        self._root = state / "workloads"
        self._node = node
        self._output = output or Logs()
        self._clock = clock or Clock()
        self._hosted: dict[str, dict[int, Hosted]] = {}
        """By uid of the workload, and by replica."""
        self._uids: dict[Key, dict[str, None]] = {}
        """Of those, by the workload's name: a name may be given again."""
        self._drivers: dict[Hosted, asyncio.Task[None]] = {}
        self._used: dict[Hosted, tuple[float, float]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._lock_file = -1
        self._origin = origin
        self._placed = Placed(client)
        self._reports = Reports(client, node, self._entries)
        self._house = House(
            node,
            devices,
            rules or Rules(),
            self._clock,
            suspend_seconds,
            self._placed.declared,
            self._news,
            self._in_the_way,
            client.random,
            self._placed.is_current,
            origin,
        )

    # Its life

    async def load(self) -> None:
        """Takes up what earlier agents left running here: from now on its end is seen. Nothing is touched, and no server is needed."""
        await asyncio.to_thread(self._load)
        self._tasks.append(asyncio.create_task(self._rotate_forever(), name="log rotation"))

    async def run(self) -> None:
        """Brings all to where it is wanted, and keeps it so until it is cancelled. Load first."""
        async with self._placed as placed, asyncio.TaskGroup() as tasks:
            await placed.informer.wait_synced()
            placed.informer.subscribe(self._changed)
            if self._origin is not None:
                tasks.create_task(placed.read_anew(self._origin.set_back, self._changed))
            tasks.create_task(self._reports.run())
            tasks.create_task(self._sweep_forever())
            for workload in self._placed.on(self._node):
                self._take(workload)
            for one in self._all():
                self._drive(one)

    @property
    def runs(self) -> bool:
        """Whether there is any process here, on GPUs or off them."""
        return any(one.running for one in self._all())

    def hurry(self) -> None:
        """The server can be reached again after a while: what it wants may have changed, and what happened here is to be told, both at once."""
        self._placed.informer.hurry()
        self._reports.hurry()

    async def close(self) -> None:
        """Lets go of all processes, which run on for the next agent, and of the state directory."""
        tasks = [*self._tasks, *self._drivers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(one.close() for one in self._all()), return_exceptions=True)
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def _load(self) -> None:
        self._lock_file = claim(self._root, "agent")
        found = kernel.marked(self._root, lambda mark: True)
        places = {(one.mark.uid, one.mark.index) for one in found}
        for folder in self._root.iterdir():
            if folder.is_dir() and _UID(folder.name):
                for path in folder.iterdir():
                    if path.suffix in (".json", SUFFIX) and path.stem.isdecimal():
                        places.add((folder.name, int(path.stem)))
        for uid, replica in sorted(places):
            self._host(uid, replica).load([one for one in found if one.mark.uid == uid])

    def _all(self) -> list[Hosted]:
        return [one for replicas in self._hosted.values() for one in replicas.values()]

    # What should be here

    def _changed(self, key: Key) -> None:
        workload = self._placed.informer.at(key)
        if workload is not None and (workload.uid in self._hosted or self._node in nodes_of(workload)):
            self._take(workload)
        for uid in self._uids.get(key, ()):
            for one in self._hosted[uid].values():
                one.wake()

    def _take(self, workload: Packed) -> None:
        """Sees to it that each replica of a workload that is placed here is driven."""
        try:
            known = self._placed.declared(workload.uid)
        except InvalidSpec as error:
            log.error("workload %s is passed over: %s", workload.key, error)
            return
        self._reports.changed(workload.uid)  # also what an agent before this one reported and could not take back
        for place in known.places.values() if known else ():
            if place.node == self._node and place.replica not in self._hosted.get(workload.uid, ()):
                self._drive(self._host(workload.uid, place.replica))

    def _host(self, uid: str, replica: int) -> Hosted:
        folder = self._root / uid
        with contextlib.suppress(OSError):  # where the disk is full, what is to be written there says so
            folder.mkdir(mode=0o700, exist_ok=True)
        made = self._hosted.setdefault(uid, {})[replica] = Hosted(self._house, folder, uid, replica)
        return made

    def _drive(self, one: Hosted) -> None:
        if one in self._drivers:
            return
        if found := self._placed.find(one.uid):
            self._uids.setdefault(found.key, {})[one.uid] = None
        task = self._drivers[one] = asyncio.create_task(one.drive(), name=str(one))
        task.add_done_callback(lambda _: self._done(one))
        if one.trouble:
            self._reports.changed(one.uid)

    def _done(self, one: Hosted) -> None:
        """A replica was forgotten. If it was wanted again meanwhile, it is taken up anew."""
        if not one.forgotten:
            return
        del self._drivers[one], self._hosted[one.uid][one.replica]
        self._used.pop(one, None)
        last = not self._hosted[one.uid]
        if last:
            self._forget(one.uid)
        if found := self._placed.find(one.uid):
            self._take(found)
        elif last:
            shutil.rmtree(self._root / one.uid, ignore_errors=True)

    def _forget(self, uid: str) -> None:
        del self._hosted[uid]
        for key in [key for key, uids in self._uids.items() if uid in uids]:
            self._uids[key].pop(uid, None)
            if not self._uids[key]:
                del self._uids[key]

    def _in_the_way(self, one: Hosted, place: Place) -> str:
        """No GPU is given to more than it has room for, whatever is placed here: who is to leave may take its time."""
        for gpu in place.gpus:
            there = [other for other in self._all() if other is not one and gpu in other.holds[0]]
            if sum(other.holds[1] for other in there) + place.milli > WHOLE:
                return f"until {there[0]} has left GPU {gpu}"
        return ""

    # What is told

    def _news(self, uid: str) -> None:
        """Something of a workload is new: it is reported, and whoever waits for GPUs looks again."""
        self._reports.changed(uid)
        for one in self._all():
            if one.waits:
                one.wake()

    def _entries(self, uid: str) -> Entries | None:
        """The replicas of a workload here, for its reports; None where the workload is no more."""
        found = self._placed.find(uid)
        if found is None:
            return None
        hosted = [one for _, one in sorted(self._hosted.get(uid, {}).items())]
        return Entries(found.key, hosted, self._placed.reports(uid, self._node))

    async def use(self) -> tuple[dict[int, Held], list[ProcessUse]]:
        """Who holds which GPU, and the CPU that each replica used since it was asked last."""
        return await asyncio.to_thread(self._use, self._all())

    def _use(self, hosted: Iterable[Hosted]) -> tuple[dict[int, Held], list[ProcessUse]]:
        people = kernel.everybody()
        held: dict[int, Held] = {}
        uses = []
        for one in hosted:
            note, pid = one.note, one.pid
            if note is None or pid is None:
                continue
            stats = [people[other] for other in relatives(people, pid)]
            cpu = self._cores(one, cpu_seconds(stats))
            uses.append(ProcessUse(workload=one.uid, replica=one.replica, cpu=round(cpu, 3)))
            if not one.on_gpu:
                continue
            for index in note.gpus:
                before = held.get(index, Held())
                held[index] = Held(
                    tuple(sorted({*before.workloads, one.uid})),
                    before.cpu + cpu / len(note.gpus),
                    before.resident_mib + resident_mib(stats) // len(note.gpus),
                    before.milli + note.milli,
                )
        return held, uses

    def _cores(self, one: Hosted, used: float) -> float:
        now = self._clock.now()
        at, before = self._used.get(one, (now, used))
        self._used[one] = (now, used)
        return max(0.0, used - before) / (now - at) if now > at else 0.0

    # Logs

    async def _rotate_forever(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_SECONDS)
            files = [path for one in self._all() for path in one.logs]
            await asyncio.to_thread(_rotate, files, self._output)

    async def _sweep_forever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                if self._origin is not None:
                    await self._origin.check(self._node)
            except (ApiError, InDoubt, OtherServer, Unreachable):
                continue
            for folder in await asyncio.to_thread(lambda: [*self._root.iterdir()]):
                if folder.is_dir() and folder.name not in self._hosted and self._placed.find(folder.name) is None:
                    with contextlib.suppress(OSError):
                        await asyncio.to_thread(shutil.rmtree, folder)


def _rotate(files: Iterable[Path], policy: Logs) -> None:
    for path in files:
        try:
            logs.rotate(path, policy)
        except OSError as error:
            log.warning("the log %s could not be rotated: %s", path, error.strerror)
