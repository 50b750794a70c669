"""The bridge as a whole: looks at the cluster again and again, and has every replica there do its next step."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec.structs import replace

from homeostat.client import Client, Key, Unreachable
from homeostat.gpu.agent.devices import Held
from homeostat.gpu.agent.journal import SUFFIX
from homeostat.gpu.agent.lease import TIMING
from homeostat.gpu.agent.origin import InDoubt, Origin, OtherServer
from homeostat.gpu.agent.placed import Placed
from homeostat.gpu.agent.reports import Entries, Reporting, Reports
from homeostat.gpu.agent.wanted import Declared, nodes_of
from homeostat.gpu.bridge.cluster import Cluster, Job, Member, Sight, Stage, Unreadable
from homeostat.gpu.bridge.nodes import Node
from homeostat.gpu.bridge.note import Seen, remembered
from homeostat.gpu.bridge.sent import House, Sent
from homeostat.gpu.kinds import WHOLE, Report
from homeostat.loop.election import Timing
from homeostat.loop.provider import Refused
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec, decode
from homeostat.providers.process.record import claim, save

log = logging.getLogger("homeostat.gpu.bridge")

EVERY_SECONDS = 2.0
"""How often a cluster is looked at that does not tell when something is new."""
MOST_OFTEN = 4
"""So many looks in that time, however much is new."""
BLIND_SECONDS = 10.0
"""After so long without an answer it is told that nobody knows."""
SAID_AFTER = 3.0
"""Seconds without the workloads of the server, at the start, after which it is said why."""
AT_ONCE = 8
"""Replicas that are advanced at the same time."""
_SEEN = "members.json"
_NAME = re.compile(r"[A-Za-z0-9.-]{1,253}").fullmatch


class Bridge:
    """Keeps the GPUs of one cluster. `identity` is that of no other living bridge, and the same after a restart.

    `state` is a directory for what must outlast it; one bridge at a time works with it. `restarts` says what becomes of those that should
    be suspended with their state, which no cluster can: they run on, or are ended and begun anew.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        state: Path,
        identity: str,
        *,
        restarts: bool = False,
        every: float = EVERY_SECONDS,
        blind_after: float = BLIND_SECONDS,
        timing: Timing = TIMING,
        clock: Clock | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        """Set once the cluster was looked at, and its nodes are declared."""
        self.nodes: dict[str, Node] = {}
        self._client, self._cluster, self._root, self._identity = client, cluster, state / "nodes", identity
        self._every, self._blind_after, self._timing = every, blind_after, timing
        self._clock = clock or Clock()
        self._placed = Placed(client)
        self._sent: dict[tuple[str, str], dict[int, Sent]] = {}
        """By node and uid of the workload, and by replica."""
        self._heard_of: dict[str, None] = {}
        """Uids of workloads that have changed since the last look."""
        self._reports: dict[str, Reports] = {}
        self._ours: set[str] = set()
        """Nodes whose lease we have: of others, somebody else tells."""
        self._uids: dict[Key, dict[str, None]] = {}
        """By name, of those that are kept here: a name may be given again."""
        self._last_seen: list[Member] = []
        self._sight = Sight()
        self._free: dict[str, int] = {}
        self._blind = ""
        self._wake = asyncio.Event()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._origin = Origin(client, state, lambda: any(one.note is not None and one.note.number is not None for one in self._all()))
        self._house = House(
            cluster,
            self._clock,
            restarts,
            self._placed.declared,
            self._placed.is_current,
            self._reported,
            self._no_room,
            self._changed,
            self._origin,
        )

    # Its life

    async def run(self) -> None:
        """Keeps the cluster's GPUs until it is cancelled; what runs there goes on then. Raises where it can never begin."""
        lock = await asyncio.to_thread(self._load)
        try:
            await self._cluster.open(self._wake.set)
            async with self._placed as placed, asyncio.TaskGroup() as tasks:
                await _read(placed)
                placed.informer.subscribe(self._heard)
                tasks.create_task(placed.read_anew(self._origin.set_back, self._heard))
                self._resume(tasks)
                await self._look_forever(tasks)
        finally:
            await self._cluster.close()
            os.close(lock)

    def _load(self) -> int:
        """Takes up what earlier bridges noted."""
        lock = claim(self._root, "bridge")
        for path in self._root.glob(f"*/*/*{SUFFIX}"):
            node, uid = path.parent.parent.name, path.parent.name
            if path.stem.isdecimal() and _NAME(node) and _NAME(uid):
                self._at(node, uid, int(path.stem)).load()
        self._last_seen = remembered(self._root.with_name(_SEEN))
        return lock

    def _at(self, node: str, uid: str, replica: int) -> Sent:
        replicas = self._sent.setdefault((node, uid), {})
        if replica not in replicas:
            replicas[replica] = Sent(self._house, self._root / node / uid, node, uid, replica)
        return replicas[replica]

    def _all(self) -> list[Sent]:
        return [one for replicas in self._sent.values() for one in replicas.values()]

    async def _look_forever(self, tasks: asyncio.TaskGroup) -> None:
        last = self._clock.now()
        while True:
            self._wake.clear()
            try:
                sight = await self._cluster.look()
                if not sight.members and self._last_seen:
                    raise Unreadable(f"it shows no machine with GPUs, where there were {len(self._last_seen)}")
            except Unreadable as error:
                if self._clock.now() - last >= self._blind_after:
                    self._go_blind(str(error))
            else:
                last = self._clock.now()
                await self._take(sight, tasks)
            await asyncio.sleep(self._every / MOST_OFTEN)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await self._wake.wait()

    def _heard(self, key: Key) -> None:
        found = self._placed.informer.at(key)
        uids = {**self._uids.get(key, {})}
        if found is not None and not self.nodes.keys().isdisjoint(nodes_of(found)):
            uids[found.uid] = None
        if uids:
            self._heard_of |= uids
            self._wake.set()

    # What is seen

    async def _take(self, sight: Sight, tasks: asyncio.TaskGroup) -> None:
        if self._blind:
            log.warning("%s can be asked again", self._cluster.what)
            self._blind = ""
            self._tell_all()
        self._sight = sight
        await self._remember(sight)
        ours = [job for job in sight.jobs if self._is_ours(job)]
        self._see_nodes(sight, ours, tasks)
        jobs: dict[Sent, list[Job]] = {}
        for job in ours:
            jobs.setdefault(self._at(job.mark.node, job.mark.uid, job.mark.replica), []).append(job)
        news, self._heard_of = self._heard_of, {}
        for uid in news:
            self._hear(uid)
        due = [one for one in self._all() if one in jobs or one.uid in news or not one.rests]
        await asyncio.gather(*(self._advance(one, jobs.get(one, ())) for one in due))
        if not self.ready.is_set():
            self.ready.set()

    def _is_ours(self, job: Job) -> bool:
        """A job that bears a mark, of a workload that is known here: others' bridges have theirs."""
        return job.mark.replica in self._sent.get((job.mark.node, job.mark.uid), ()) or self._placed.find(job.mark.uid) is not None

    def _see_nodes(self, sight: Sight, ours: Iterable[Job], tasks: asyncio.TaskGroup) -> None:
        booked: dict[str, int] = {}
        for job in ours:
            booked[job.mark.node] = booked.get(job.mark.node, 0) + job.holds
        self._free = {}
        for name, member in sight.members.items():
            node = self.nodes.get(name)
            if node is None:
                node = self.nodes[name] = self._new_node(member, tasks)
            others = max(0, member.used - booked.get(name, 0))
            node.keep(member, others, tasks)
            if node.held and name not in self._ours:
                self._ours.add(name)
                self._heard_of.update(dict.fromkeys(one.uid for one in self._placed.on(name)))
            self._free[name] = member.gpus - member.used
        for name, node in self.nodes.items():
            if name not in sight.members and node.member.alive:
                gone = replace(node.member, alive=False, why=f"{self._cluster.what} has it no more")
                node.keep(gone, 0, tasks)

    def _new_node(self, member: Member, tasks: asyncio.TaskGroup) -> Node:
        name = member.name
        reports = self._reports[name] = Reports(self._client, name, lambda uid: self._entries(name, uid))
        tasks.create_task(reports.run(), name=f"reports {name}")
        made = Node(
            self._client,
            member,
            self._identity,
            self._clock,
            held=self._held,
            assigned=self._assigned,
            every=self._every,
            timing=self._timing,
            origin=self._origin,
        )

        def back() -> None:
            self._placed.informer.hurry()
            reports.hurry()

        made.heartbeat.back = back
        return made

    async def _remember(self, sight: Sight) -> None:
        alive = [replace(one, used=0) for _, one in sorted(sight.members.items()) if one.alive]
        if alive != self._last_seen:
            self._last_seen = alive
            await asyncio.to_thread(save, self._root.with_name(_SEEN), Seen(alive))

    def _resume(self, tasks: asyncio.TaskGroup) -> None:
        """Goes on with the leases of a bridge before this one: if the cluster does not answer now, nobody says that a node has died."""
        for member in self._last_seen:
            node = self.nodes[member.name] = self._new_node(member, tasks)
            node.keep(member, 0, tasks)
            node.blind = f"{self._cluster.what} was not asked yet"

    def _go_blind(self, why: str) -> None:
        """Nothing is known: it is said so, and nothing else. Leases are renewed, for nobody says that a node has died."""
        if not self._blind:
            log.warning("%s cannot be asked, and nothing is done until it can: %s", self._cluster.what, why)
            self._blind = f"{self._cluster.what} cannot be asked: {why}"
            self._tell_all()
        for node in self.nodes.values():
            node.blind = self._blind

    # What is done

    def _hear(self, uid: str) -> None:
        """Sees to it that each replica of a workload that is placed here is kept."""
        found = self._placed.find(uid)
        if found is None:
            return
        try:
            workload = self._placed.declared(uid)
        except InvalidSpec as error:
            log.error("workload %s is passed over: %s", found.key, error)
            return
        if not self.nodes.keys().isdisjoint(nodes_of(found)):
            self._uids.setdefault(found.key, {})[uid] = None
        for node in nodes_of(found):
            self._changed(node, uid)  # also what a bridge before this one reported and could not take back
        for place in workload.places.values() if workload else ():
            if place.node in self.nodes:
                self._at(place.node, uid, place.replica)

    async def _advance(self, one: Sent, jobs: Iterable[Job]) -> None:
        node = self.nodes.get(one.node)
        if one.trouble or node is None or not node.held:
            return
        one.rests = False
        async with self._turns:
            try:
                if await one.advance(jobs, self._sight.members.get(one.node)):
                    self._wake.set()
                else:
                    one.rests = one.settled
            except Exception as error:
                if not isinstance(error, InDoubt | OtherServer):  # said once already, for all of them
                    strange = not isinstance(error, OSError | InvalidSpec | Refused | ApiError | Unreachable | Unreadable)
                    log.warning("%s: %s; it is tried again", one, error, exc_info=strange)
                one.tell_trouble(str(error) or type(error).__name__)
        if one.forgotten:
            replicas = self._sent[one.node, one.uid]
            del replicas[one.replica]
            if not replicas:
                del self._sent[one.node, one.uid]
            if self._placed.find(one.uid) is None:
                for key in [key for key, uids in self._uids.items() if uids.pop(one.uid, one) is None and not uids]:
                    del self._uids[key]

    def _no_room(self, workload: Declared) -> str:
        """All of a gang comes at once, and nothing is sent where it would not be taken in."""
        if self._cluster.queues and len(workload.places) == 1:
            return ""
        live = {(job.mark.node, job.mark.replica) for job in self._sight.jobs if job.mark.uid == workload.uid and job.stage is not Stage.OVER}
        needs: dict[str, int] = {}
        for replica, place in workload.places.items():
            if place.node in self.nodes and (place.node, replica) not in live:
                needs[place.node] = needs.get(place.node, 0) + len(place.gpus)
        for name, count in needs.items():
            if (free := self._free.get(name, 0)) < count:
                return f"until {name} has {count} GPUs free: {max(free, 0)} are, by what {self._cluster.what} says"
        return ""

    # What is told

    def _changed(self, node: str, uid: str) -> None:
        if node in self.nodes and self.nodes[node].held:
            self._reports[node].changed(uid)

    def _tell_all(self) -> None:
        for node, uid in self._sent:
            self._changed(node, uid)

    def _entries(self, node: str, uid: str) -> Entries | None:
        found, sent = self._placed.find(uid), self._sent.get((node, uid), {})
        if found is None or not all(one.known for one in sent.values()):
            return None  # what was reported before is all that there is to know, until the cluster was looked at
        told: list[Reporting] = [_Told(one, self._blind) for _, one in sorted(sent.items())]
        return Entries(found.key, told, self._placed.reports(uid, node))

    def _reported(self, uid: str, replica: int, node: str) -> Report | None:
        found = (one for one in self._placed.reports(uid, node) if one["replica"] == replica)
        return next((decode(Report, one, path="status.reports") for one in found), None)

    def _held(self, node: str) -> dict[int, Held]:
        held: dict[int, Held] = {}
        for one in self._all():
            for index in one.holds if one.node == node else ():
                held[index] = Held((one.uid,), milli=WHOLE)
        return held

    def _assigned(self, node: str) -> Collection[int]:
        found: set[int] = set()
        for packed in self._placed.on(node):
            with contextlib.suppress(InvalidSpec):
                workload = self._placed.declared(packed.uid)
                for place in workload.places.values() if workload else ():
                    found.update(place.gpus if place.node == node else ())
        return found


async def _read(placed: Placed) -> None:
    """Waits for the workloads. A bridge that says nothing meanwhile would not be suspected of having the wrong server."""
    try:
        await placed.informer.wait_synced(SAID_AFTER)
    except TimeoutError as error:
        log.warning("%s. Nothing is begun before: is this the right server, and does it run with `--allow gpu`?", error)
        await placed.informer.wait_synced()


class _Told:
    """A replica, as it is reported while the cluster can be asked or not."""

    def __init__(self, one: Sent, blind: str) -> None:
        self._one, self._blind = one, blind

    def report(self) -> Report | None:
        return self._one.report(self._blind)
