"""What the governor's own functions say of the GPUs, again and again while somebody looks. It needs numpy: import it late.

Watches feed it. What changed on a node is told at once, for it costs that node alone; deciding costs the fleet, so it is done in a
thread, where something changed that decisions are made from, and no oftener than leaves most of a core to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import orjson

from homeostat.client import Client, Informer, Key, Packed
from homeostat.gpu.controller.notes import NAME
from homeostat.gpu.kinds import NODE, POLICY, TENANT, WORKLOAD
from homeostat.gpu.objects import Reader
from homeostat.insight import gpu, gpu_view
from homeostat.insight.gpu import Facts, Object
from homeostat.insight.loops import clock_of
from homeostat.loop.election import NAMESPACE
from homeostat.model.clock import Clock
from homeostat.web.racks import Racks

log = logging.getLogger("homeostat.web")

FEED_SECONDS = 0.05
"""What changes within so long is taken together."""
PACE_SECONDS = 0.1
SHARE = 2
"""After a decision it rests so many times as long as that took of a processor."""
QUIET_SECONDS = 5.0
"""It is decided again though nothing of weight changed: time itself makes nodes lost, and waits longer."""
SLICE = 200
"""So many objects are taken in before others have their turn."""
LIMIT = 1000
"""Rows of a list that are told; more than that nobody reads."""
NOTEBOOK, LEASE = "ConfigMap", "Lease"
LIGHT = frozenset((NODE.kind, LEASE, NOTEBOOK))
"""Kinds that change all the time, mostly in what no decision hangs on."""

Change = tuple[str, Object | None, Object | None]
"""A kind, and an object as it was and as it is; None: it is not there."""


class Part(NamedTuple):
    """A part of the page, and the bytes of it that all viewers get."""

    value: Any
    line: bytes


class Judge:
    """`start` it, wait for `judged`, and `stop` it. Nothing is decided while nobody listens."""

    def __init__(self, client: Client, clock: Clock, guards: Informer[Object]) -> None:
        self._clock, self._guards = clock, guards
        kinds = {info.kind: client.kind(info.api_version, info.kind, Packed).informer() for info in (*gpu.READ, POLICY)}
        kinds[LEASE] = client.kind(*gpu.LEASES, Packed).informer(namespace=NAMESPACE)
        kinds[NOTEBOOK] = client.kind("v1", "ConfigMap", Packed).informer(namespace=NAMESPACE, fields=f"metadata.name={NAME}")
        self._informers = kinds
        self._known: dict[str, dict[Key, Object]] = {kind: {} for kind in kinds}
        self._reader = Reader()
        self._waiting: dict[tuple[str, Key], None] = {}
        self._unread: dict[tuple[str, Key], Object | None] = {}
        """What the reader has not read yet: as it read it last."""
        self._heard, self._grave, self._fed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._wanted, self._first = asyncio.Event(), asyncio.Event()
        self._listeners: set[Callable[[], None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self.racks = Racks()
        self.facts: Facts | None = None
        """What was decided on last; None where nothing could be: `problem` says why."""
        self.problem = ""
        self.parts: dict[str, Part] = {}
        """All but the nodes, as those get it who see everything; what has not changed is the same object as before."""
        self.figures: dict[str, dict[str, float]] = {}
        """By tenant: GPUs of all types that it uses, has as its own, and is entitled to by its weight."""

    def start(self) -> None:
        for kind, informer in self._informers.items():
            informer.subscribe(self._hearer(kind))
            informer.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._feed(), name="gpu judge reads"), loop.create_task(self._decide(), name="gpu judge decides")]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for informer in self._informers.values():
            await informer.stop()

    async def judged(self) -> None:
        """Waits for a decision on what is so now, where the last is of a time at which somebody else looked."""
        if not self._wanted.is_set():
            self._first.clear()
            self._grave.set()
            self._wanted.set()
        await self._first.wait()

    @contextlib.contextmanager
    def listening(self, heard: Callable[[], None]) -> Iterator[None]:
        """Calls `heard` whenever something changed."""
        self._listeners.add(heard)
        self._wanted.set()
        try:
            yield
        finally:
            self._listeners.discard(heard)

    def _hearer(self, kind: str) -> Callable[[Key], None]:
        def heard(key: Key) -> None:
            self._waiting[kind, key] = None
            self._heard.set()

        return heard

    def _tell(self) -> None:
        for heard in tuple(self._listeners):
            heard()

    # Taking in what changed

    async def _feed(self) -> None:
        await asyncio.gather(*(informer.wait_synced() for informer in self._informers.values()))
        for kind, informer in self._informers.items():
            self._waiting |= dict.fromkeys((kind, packed.key) for packed in informer.all())
        while True:
            self._heard.clear()
            keys, self._waiting = list(self._waiting), {}
            version = self.racks.version
            for start in range(0, len(keys), SLICE):
                await self._take(keys[start : start + SLICE])
            await self._settle()
            if self.racks.version != version:
                self._tell()
            self._fed.set()
            await asyncio.sleep(FEED_SECONDS)
            await self._heard.wait()

    async def _take(self, keys: list[tuple[str, Key]]) -> None:
        found = [(kind, key, self._informers[kind].at(key)) for kind, key in keys]
        packs = [packed for _, _, packed in found]
        objects = _loaded(packs) if len(packs) < SLICE else await asyncio.to_thread(_loaded, packs)
        for (kind, key, _), obj in zip(found, objects, strict=True):
            before = self._known[kind].pop(key, None)
            self._unread.setdefault((kind, key), before)
            if obj is not None:
                self._known[kind][key] = obj
                if kind != LEASE:  # of leases they tell when the server took them; of all else they are the larger part, and nobody reads them here
                    obj["metadata"].pop("managedFields", None)
            if kind == NODE.kind:
                self.racks.put_node(key.name, obj)
            elif kind == WORKLOAD.kind:
                self.racks.put_workload(key, obj)
        if any(kind not in LIGHT for kind, _ in keys):
            self._grave.set()

    async def _settle(self) -> None:
        while self.racks.stale:
            if self.racks.settle(SLICE):
                self._grave.set()
            await asyncio.sleep(0)

    # Deciding

    async def _decide(self) -> None:
        await self._fed.wait()
        while True:
            await self._wanted.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._grave.wait()
            self._grave.clear()
            try:
                cost = await self._turn()
            except Exception:
                log.exception("the GPUs could not be judged")
                self.facts, self.problem, cost = None, "the GPUs could not be judged; the server's log says why", PACE_SECONDS
            self._first.set()
            self._tell()
            if not self._listeners:
                self._wanted.clear()
            await asyncio.sleep(max(PACE_SECONDS, SHARE * cost))

    async def _turn(self) -> float:
        """Decides, and gives the seconds of a processor that it took."""
        unread: list[Change] = [(kind, before, self._known[kind].get(key)) for (kind, key), before in self._unread.items()]
        self._unread = {}
        known = {kind: list(objects.values()) for kind, objects in self._known.items()}
        guards = self._guards.all() if self._guards.synced else []
        try:
            self.facts, lost, cost = await asyncio.to_thread(self._judge, unread, known, guards, self._clock.now())
        except gpu.NoGpus as error:
            self.facts, self.problem = None, str(error)
            return PACE_SECONDS
        self.problem = ""
        self.racks.put_lost(lost)
        await self._settle()
        return cost

    # In a thread, while nobody else touches these

    def _judge(self, unread: list[Change], known: Mapping[str, list[Object]], guards: list[Object], now: float) -> tuple[Facts, dict[str, float | None], float]:
        begun, notes = time.thread_time(), list[str]()
        for change in unread:
            self._read(*change, notes)
        leases = known[LEASE]
        facts = gpu.facts_of(
            self._reader,
            clock_of(leases, now),
            tenants=known[TENANT.kind],
            nodes=known[NODE.kind],
            workloads=known[WORKLOAD.kind],
            policy=gpu.policy_of(known[POLICY.kind], notes),
            memory=gpu.memory_of(next(iter(known[NOTEBOOK]), None), notes),
            halts=gpu.halts_of(guards),
            notes=[*notes, *gpu.loop_notes(leases, now)],
        )
        tenants = gpu_view.tenants(facts)
        self.figures = figures_of(tenants, gpu_view.entitlements(facts))
        parts = parts_of(facts) | {
            "notes": facts.notes[:20],
            "preemptions": gpu_view.preemptions(facts),
            "waiting": len(facts.plan.pending),
            "empty": gpu_view.empty_nodes(facts)[:LIMIT],
            "halts": facts.halts,
            "tenants": [_tenant(row, facts.tenants[row["tenant"]], self.figures[row["tenant"]]) for row in tenants],
        }
        self.parts = {name: self._part(name, value) for name, value in parts.items()}
        silent = gpu_view.silence(facts)
        lost = {name: facts.now - silent[name] if name in silent else None for name in gpu_view.lost_nodes(facts)}
        return facts, lost, time.thread_time() - begun

    def _part(self, name: str, value: Any) -> Part:
        before = self.parts.get(name)
        return before if before is not None and before.value == value else Part(value, orjson.dumps(value))

    def _read(self, kind: str, before: Object | None, obj: Object | None, notes: list[str]) -> None:
        if kind in (POLICY.kind, NOTEBOOK):
            return
        if before is not None and (obj is None or obj["metadata"]["uid"] != before["metadata"]["uid"]):
            self._reader.remove({**before, "kind": kind})
        if obj is not None:
            gpu.put(self._reader, kind, obj, notes)


def _loaded(packs: list[Packed | None]) -> list[Object | None]:
    return [None if packed is None else packed.load() for packed in packs]


def parts_of(facts: Facts, wanted: gpu_view.Wanted = gpu_view.everything) -> dict[str, Any]:
    """The lists of a page that are about workloads: `queue`, `taken` and `idle`, as far as they are wanted and people read."""
    return {
        "queue": [_steady(row, facts.now) for row in islice(gpu_view.waiting(facts, wanted), LIMIT)],
        "taken": gpu_view.taken(facts, wanted)[:LIMIT],
        "idle": gpu_view.idle(facts, wanted)[:LIMIT],
    }


def figures_of(tenants: list[dict[str, Any]], entitled: dict[str, float]) -> dict[str, dict[str, float]]:
    """Sums over the types of GPUs, by tenant."""
    found: dict[str, dict[str, float]] = {name: {"used": 0.0, "quota": 0.0, "entitled": amount} for name, amount in entitled.items()}
    for row in tenants:
        found[row["tenant"]]["used"] += row["used"]
        found[row["tenant"]]["quota"] += row["nominal"]
    return found


def _steady(row: dict[str, Any], now: float) -> dict[str, Any]:
    """One that waits, in words that do not change with every second: times in the place of durations."""
    waits, starts = row["waitsSeconds"], row["startsInSeconds"]
    kept = {name: row[name] for name in ("position", "name", "namespace", "tenant", "phase", "gpus", "constraint", "reason")}
    return {**kept, "since": round(now - waits), "starts": None if starts is None else round((now + starts) / 15) * 15}


def _tenant(row: dict[str, Any], tenant: Mapping[str, Any], figures: Mapping[str, float]) -> dict[str, Any]:
    status = tenant.get("status") or {}
    return {
        **row,
        "entitled": figures["entitled"],
        "gpuHours": round(status.get("gpuHours", 0.0), 2),
        "cost": round(status.get("cost", 0.0), 2),
        "slaMisses": status.get("slaMisses", 0),
    }
