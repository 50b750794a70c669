"""What all viewers share: policies, and rows of all that the loop keeps, current by watches. Rows are kept only while somebody looks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from homeostat.client import Client, Informer, Key, Unreachable
from homeostat.client.kinds import Kind, served_kinds
from homeostat.guards.policy import GROUP, KIND, VERSION
from homeostat.insight.loops import loops_of
from homeostat.loop.election import NAMESPACE, PREFIX
from homeostat.model.clock import Clock, parse_time
from homeostat.model.errors import ApiError
from homeostat.web.gpu import GpuBoard
from homeostat.web.record import Family, Record
from homeostat.web.series import EVERY_SECONDS, Series
from homeostat.web.standing import Resource
from homeostat.web.tally import Tally
from homeostat.web.waves import Waves

log = logging.getLogger("homeostat.web")

LINGER_SECONDS = 60.0
"""How long rows are kept after the last viewer went: people reload."""
LOOPS_SECONDS = 5.0
"""How often it is asked, while somebody looks, which kinds a loop keeps."""
DEFINITIONS = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
FIGURES = ("size", "drifted", "unknown", "acted", "halts")


class Board:
    """`start` it and `stop` it with the server. Who wants rows says so with `viewing`."""

    def __init__(self, client: Client, clock: Clock, record: Path | None = None) -> None:
        self._client = client
        self._clock = clock
        self.policies: Informer[dict[str, Any]] = client.kind(f"{GROUP}/{VERSION}", KIND).informer()
        self.kinds: dict[str, Kind] = {}
        self.rows: dict[str, Informer[Resource]] = {}
        self.tallies: dict[str, Tally] = {}
        self.unkept: dict[str, float] = {}
        """By kind, of those that no loop keeps any more: when one was last heard of."""
        self.waves = Waves()
        self._policies = Family(FIGURES)
        self._peaks: dict[str, dict[str, float]] = {}
        """By policy: the most of each figure since the last sample."""
        self._sampled = 0.0
        self._sooner = asyncio.Event()
        self._definitions: Informer[dict[str, Any]] = client.kind(*DEFINITIONS).informer()
        self._listeners: set[Callable[[str, Key | None], None]] = set()
        self._viewers = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.TimerHandle | None = None
        self._learning = asyncio.Event()
        self.gpu = GpuBoard(client, clock, self)
        self._record = Record(record, {"policies": self._policies, "tenants": self.gpu.tenants})

    @property
    def series(self) -> dict[str, Series]:
        """By policy, how its figures went in the last day."""
        return self._policies.series

    # Its life

    def start(self) -> None:
        self.policies.subscribe(self._policy_moved)
        self._definitions.subscribe(lambda _: self._learning.set())
        for informer in (self.policies, self._definitions):
            informer.start()
        self.gpu.start()
        loop = asyncio.get_running_loop()
        work = {"board samples": self._sample(), "board kinds": self._learn(), "board loops": self._ask_for_loops()}
        self._tasks = [loop.create_task(one, name=name) for name, one in work.items()]

    async def stop(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.gpu.stop()
        await self.policies.stop()
        await self._definitions.stop()
        for informer in self.rows.values():
            await informer.stop()

    def _policy_moved(self, key: Key) -> None:
        policy = self.policies.at(key)
        if policy is not None:
            self.waves.note(policy)
            self._peak(policy)
        self._tell(KIND, key)

    def _peak(self, policy: Mapping[str, Any]) -> dict[str, float]:
        now, name = figures_of(policy, self._sampled), policy["metadata"]["name"]
        before = self._peaks.get(name, now)
        found = self._peaks[name] = {figure: max(value, before[figure]) for figure, value in now.items()}
        return found

    async def _sample(self) -> None:
        await self.policies.wait_synced()
        self._record.restore(self._clock.now())
        while True:
            now = self._clock.now()
            found = {policy["metadata"]["name"]: self._peak(policy) for policy in self.policies.all()}
            self._peaks, self._sampled = {}, now
            tenants = self.gpu.sample()
            self._record.add(now, {"policies": found} | ({} if tenants is None else {"tenants": tenants}))
            self._sooner.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._sooner.wait()

    def sample_soon(self) -> None:
        """There is something new to take samples of."""
        self._sooner.set()

    # Kinds come and go

    async def _learn(self) -> None:
        await self._definitions.wait_synced()
        while True:
            self._learning.clear()
            try:
                await self.learn()
            except (ApiError, Unreachable) as error:
                log.warning("which kinds there are cannot be read: %s", error)
            await self._learning.wait()
            await asyncio.sleep(0.2)  # definitions come in numbers

    async def learn(self) -> None:
        """Asks which kinds the loop keeps; begins to follow those that are new, where somebody looks."""
        kinds = {kind.name: kind for kind in await served_kinds(self._client) if kind.kept}
        if kinds != self.kinds:
            self.kinds = kinds
            if self._viewers:
                self._follow()
            self._tell("", None)

    def _follow(self) -> None:
        for name, kind in self.kinds.items():
            if name not in self.rows:
                informer = self.rows[name] = self._client.kind(kind.api_version, kind.kind, Resource).informer()
                self.tallies[name] = Tally()
                informer.subscribe(self._hearer(name, informer))
                informer.start()
        for name in self.rows.keys() - self.kinds.keys():
            self._drop(name)

    def _hearer(self, name: str, informer: Informer[Resource]) -> Callable[[Key], None]:
        tally = self.tallies[name]

        def heard(key: Key) -> None:
            tally.put(key, informer.at(key))
            self._tell(name, key)

        return heard

    def _drop(self, name: str) -> None:
        self.tallies.pop(name, None)
        self._tasks.append(asyncio.get_running_loop().create_task(self.rows.pop(name).stop(), name="board drops a kind"))
        self._tasks = [task for task in self._tasks if not task.done()]

    # Who keeps them

    async def _ask_for_loops(self) -> None:
        while True:
            await asyncio.sleep(LOOPS_SECONDS)
            if self._viewers:
                await self.ask_for_loops()

    async def ask_for_loops(self) -> None:
        """Reads which of the kinds a loop keeps. Nodes beat in the same place all the time, so it is not watched."""
        leases = self._client.kind("coordination.k8s.io/v1", "Lease", namespace=NAMESPACE)
        found = []
        for name in self.kinds:
            try:
                found.append(await leases.get(PREFIX + name))
            except (ApiError, Unreachable) as error:
                if not (isinstance(error, ApiError) and error.code == 404):  # else no loop was ever here for it
                    log.warning("who keeps %s cannot be read: %s", name, error)
        unkept = {name: loop.heard for name, loop in loops_of(found, self._clock.now()).items() if not loop.there}
        if unkept != self.unkept:
            self.unkept = unkept
            self._tell("", None)

    # Who looks

    @property
    def looked_at(self) -> bool:
        """Whether somebody looks at any of it now."""
        return self._viewers > 0

    def expect(self) -> None:
        """Somebody is about to look: rows are asked for now, so that they are there by then; where nobody comes, they go again."""
        self.gpu.expect()
        if not self._viewers and self.kinds:
            self._follow()
            self._linger()

    @contextlib.asynccontextmanager
    async def viewing(self, wait: bool = True) -> AsyncIterator[None]:
        """While in here, rows of all kinds are kept; they are there when it begins, or (without `wait`) once it is `synced`."""
        self._viewers += 1
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        try:
            if not self.kinds:
                await self.learn()
            await self.ask_for_loops()
            self._follow()
            if wait:
                await self.wait_synced()
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._linger()

    def _linger(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._close)

    @property
    def synced(self) -> bool:
        """Whether the rows of all kinds are there."""
        return all(informer.synced for informer in self.rows.values())

    async def wait_synced(self) -> None:
        """Waits for the rows of all kinds; what there is of GPUs is read when these are there."""
        await asyncio.gather(*(informer.wait_synced() for informer in tuple(self.rows.values())))
        self.gpu.expect()

    def _close(self) -> None:
        self._closing = None
        for name in tuple(self.rows):
            self._drop(name)

    # Who wants to know

    @contextlib.contextmanager
    def listening(self, heard: Callable[[str, Key | None], None]) -> Any:
        """Calls `heard` with the kind and key of everything that changes; with an empty kind where the kinds themselves did."""
        self._listeners.add(heard)
        try:
            yield
        finally:
            self._listeners.discard(heard)

    def _tell(self, kind: str, key: Key | None) -> None:
        for heard in tuple(self._listeners):
            heard(kind, key)


def figures_of(policy: Mapping[str, Any], since: float = 0.0) -> dict[str, float]:
    """What a policy says of its fleet, for the record; of waves that are over, those that began after a moment."""
    status = policy.get("status") or {}
    past = [wave for wave in status.get("pastWaves") or () if parse_time(wave["started"]) >= since] if since else []
    return {
        "size": status.get("fleetSize", 0),
        "drifted": status.get("drifted", 0),
        "unknown": status.get("unknown", 0),
        "acted": max((wave["members"] for wave in (*past, *(status.get("waves") or ()))), default=0),
        "halts": len(status.get("halts") or ()),
    }
