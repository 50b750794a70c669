"""What the governor's own functions say of the GPUs, again and again while somebody looks. It needs numpy: import it late.

Watches feed it; reading and deciding are done in a thread, so that the server goes on answering, and no oftener than keeps most of a
core free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from homeostat.client import Client, Informer, Key, Packed
from homeostat.gpu.controller.notes import NAME
from homeostat.gpu.kinds import POLICY
from homeostat.gpu.objects import Reader
from homeostat.insight import gpu, gpu_view
from homeostat.insight.gpu import Facts, Object
from homeostat.loop.election import NAMESPACE
from homeostat.model.clock import Clock

log = logging.getLogger("homeostat.web")

PACE_SECONDS = 0.25
SHARE = 4
"""After a judgement it rests so many times as long as that took."""
QUIET_SECONDS = 5.0
"""It is judged again though nothing changed: time itself makes nodes lost, and waits longer."""
LIMIT = 1000
"""Rows of a list that are told; more than that nobody reads."""
NOTEBOOK = "ConfigMap"
POLICIES = "GpuPolicy"

Changes = list[tuple[str, Key, Packed | None]]


class Judge:
    """`start` it, wait for `judged`, and `stop` it."""

    def __init__(self, client: Client, clock: Clock, guards: Informer[Object]) -> None:
        self._clock, self._guards = clock, guards
        kinds = {info.kind: client.kind(info.api_version, info.kind, Packed).informer() for info in (*gpu.READ, POLICY)}
        kinds["Lease"] = client.kind(*gpu.LEASES, Packed).informer(namespace=NAMESPACE)
        kinds[NOTEBOOK] = client.kind("v1", "ConfigMap", Packed).informer(namespace=NAMESPACE, fields=f"metadata.name={NAME}")
        self._informers = kinds
        self._known: dict[str, dict[Key, Object]] = {kind: {} for kind in kinds}
        self._reader = Reader()
        self._waiting: dict[tuple[str, Key], None] = {}
        self._changed, self._first = asyncio.Event(), asyncio.Event()
        self._listeners: set[Callable[[], None]] = set()
        self._task: asyncio.Task[None] | None = None
        self.facts: Facts | None = None
        """The last judgement; None where none could be made: `problem` says why."""
        self.problem = ""
        self.nodes: dict[str, dict[str, Any]] = {}
        """By name, small; what has not changed is the same object as before."""
        self.tenants: list[dict[str, Any]] = []
        self.parts: dict[str, Any] = {}
        """All else, for those who see everything; see `parts_of`."""
        self.figures: dict[str, dict[str, float]] = {}
        """By tenant: GPUs of all types that it uses, has as its own, and is entitled to by its weight."""

    def start(self) -> None:
        for kind, informer in self._informers.items():
            informer.subscribe(self._hearer(kind))
            informer.start()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="gpu judging")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for informer in self._informers.values():
            await informer.stop()

    async def judged(self) -> None:
        """Waits for the first judgement."""
        await self._first.wait()

    @contextlib.contextmanager
    def listening(self, heard: Callable[[], None]) -> Iterator[None]:
        """Calls `heard` after each judgement."""
        self._listeners.add(heard)
        try:
            yield
        finally:
            self._listeners.discard(heard)

    def _hearer(self, kind: str) -> Callable[[Key], None]:
        def heard(key: Key) -> None:
            self._waiting[kind, key] = None
            self._changed.set()

        return heard

    async def _run(self) -> None:
        await asyncio.gather(*(informer.wait_synced() for informer in self._informers.values()))
        loop = asyncio.get_running_loop()
        for kind, informer in self._informers.items():
            self._waiting |= dict.fromkeys((kind, packed.key) for packed in informer.all())
        while True:
            begun = loop.time()
            try:
                await self._turn()
            except Exception:
                log.exception("the GPUs could not be judged")
                self.facts, self.problem = None, "the GPUs could not be judged; the server's log says why"
            self._first.set()
            for heard in tuple(self._listeners):
                heard()
            await asyncio.sleep(max(PACE_SECONDS, SHARE * (loop.time() - begun)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(QUIET_SECONDS):
                    await self._changed.wait()

    async def _turn(self) -> None:
        self._changed.clear()
        keys, self._waiting = list(self._waiting), {}
        changes = [(kind, key, self._informers[kind].get(key.name, key.namespace)) for kind, key in keys]
        guards = self._guards.all() if self._guards.synced else []
        try:
            self.facts = await asyncio.to_thread(self._judge, changes, guards, self._clock.now())
            self.problem = ""
        except gpu.NoGpus as error:
            self.facts, self.problem = None, str(error)

    # In a thread, while nobody else touches these

    def _judge(self, changes: Changes, guards: list[Object], now: float) -> Facts:
        notes: list[str] = []
        for change in changes:
            self._take(*change, notes)
        leases = list(self._known["Lease"].values())
        facts = gpu.facts_of(
            self._reader,
            gpu.clock_of(leases, now),
            tenants=self._known["Tenant"].values(),
            nodes=self._known["GpuNode"].values(),
            workloads=self._known["Workload"].values(),
            policy=gpu.policy_of(self._known[POLICIES].values(), notes),
            memory=gpu.memory_of(next(iter(self._known[NOTEBOOK].values()), None), notes),
            halts=gpu.halts_of(guards),
            notes=[*notes, *gpu.loop_notes(leases, now)],
        )
        rows = {row["node"]: small(row, facts.now) for row in gpu_view.nodes(facts)}
        self.nodes = {name: self.nodes[name] if self.nodes.get(name) == row else row for name, row in rows.items()}
        self.tenants, self.parts = gpu_view.tenants(facts), parts_of(facts)
        self.figures = figures_of(self.tenants, gpu_view.entitlements(facts))
        return facts

    def _take(self, kind: str, key: Key, packed: Packed | None, notes: list[str]) -> None:
        before, obj = self._known[kind].pop(key, None), None
        if packed is not None:
            obj = self._known[kind][key] = packed.load()
            obj["metadata"].pop("managedFields", None)  # nobody reads them here, and they are the larger part
        if kind in (POLICIES, NOTEBOOK):
            return
        if before is not None and (obj is None or obj["metadata"]["uid"] != before["metadata"]["uid"]):
            self._reader.remove({**before, "kind": kind})
        if obj is not None:
            gpu.put(self._reader, kind, obj, notes)


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


def small(row: dict[str, Any], now: float) -> dict[str, Any]:
    """A node as a page gets it: `gpus` are [use in %, health, reason, MiB used, MiB, watts, °C, holders], holders are [workload, tenant,
    share, whether it leaves]; one of nobody known is ["", "", 1, false]."""
    found = {
        "name": row["node"],
        "model": row["model"],
        "state": "Lost" if row["lost"] else "Cordoned" if row["cordoned"] and row["stage"] == "Open" else row["stage"],
        "costPerHour": row["costPerHour"],
        "gpus": [_small_gpu(gpu) for gpu in row["gpus"]],
    }
    if row["lost"] and row["heardSecondsAgo"] is not None:
        found["heard"] = round(now - row["heardSecondsAgo"])
    return found


def _small_gpu(gpu: dict[str, Any]) -> list[Any]:
    holders = [[one["workload"], one["tenant"], one["share"], one["phase"] == "Suspending"] for one in gpu["holders"]]
    if gpu["unknownProcesses"]:
        holders.append(["", "", 1, False])
    use = gpu["utilisation"]
    return [
        None if use is None else round(use * 100),
        gpu["health"],
        gpu["reason"],
        gpu["memoryUsedMib"],
        gpu["memoryMib"],
        None if gpu["powerWatts"] is None else round(gpu["powerWatts"]),
        None if gpu["temperature"] is None else round(gpu["temperature"]),
        holders,
    ]
