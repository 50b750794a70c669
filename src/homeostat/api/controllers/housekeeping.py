"""What the server tidies up as time passes: old events, spent tokens, counts of quotas, history beyond its keeping."""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import TYPE_CHECKING

import orjson

from homeostat.api.auth import usertokens
from homeostat.api.builtin.usage import measured
from homeostat.api.codec import metadata_of
from homeostat.api.controllers.worker import Worker
from homeostat.api.quotas import QUOTAS
from homeostat.api.resource import Object, split_key
from homeostat.model.clock import parse_time
from homeostat.store import Delete, Event

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

EVENT_SECONDS = 3600.0
"""How long an Event is kept after it was last written."""
KEEP_SECONDS = 3600.0
"""How far back in time the log can be read: watches resume and lists page within it."""
SWEEP_SECONDS = 15.0
EVENTS = "events/"

log = logging.getLogger("homeostat.api")


class Housekeeping:
    """Runs every few seconds, does a little, and lets everybody else go first."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._fading: list[tuple[float, str]] = []
        self._deadline: dict[str, float] = {}
        self._marks: list[tuple[float, int]] = []
        self._quotas = Worker("quota-count", self._count)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        follower = self._plane.follower
        await follower.follow(EVENTS, self._event_changed)
        await follower.follow(QUOTAS, self._quota_changed)
        follower.follow_all(self._object_changed)
        self._quotas.start()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="housekeeping")

    async def stop(self) -> None:
        await self._quotas.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except Exception as error:
                log.warning("housekeeping failed, and will be tried again: %s", error)
            await asyncio.sleep(SWEEP_SECONDS)

    async def sweep(self) -> None:
        """One round of everything that hangs on time."""
        now = self._plane.clock.now()
        await self._fade(now)
        await self._drop_spent_tokens(now)
        await self._forget(now)

    # Events

    def _event_changed(self, event: Event) -> None:
        if event.value is None:
            self._deadline.pop(event.key, None)
            return
        written = self._plane.clock.now()
        if event.previous is None and event.revision < self._plane.started_at:
            created = metadata_of(event.value).get("creationTimestamp")
            written = parse_time(created) if created else written
        deadline = written + EVENT_SECONDS
        self._deadline[event.key] = deadline
        heapq.heappush(self._fading, (deadline, event.key))

    async def _fade(self, now: float) -> None:
        while self._fading and self._fading[0][0] <= now:
            deadline, key = heapq.heappop(self._fading)
            if self._deadline.get(key) == deadline:
                await self._plane.store.txn([], [Delete(key)])

    # Tokens

    async def _drop_spent_tokens(self, now: float) -> None:
        """Deletes the objects of user tokens that are past their time."""
        for name in self._plane.user_tokens.expired(now):
            await self._plane.store.txn([], [Delete(f"{usertokens.QUALIFIED}/{name}")])

    # History

    async def _forget(self, now: float) -> None:
        """Compacts to where the log stood `KEEP_SECONDS` ago."""
        self._marks.append((now, self._plane.store.revision))
        reached = 0
        while self._marks and self._marks[0][0] <= now - self._plane.keep_seconds:
            reached = self._marks.pop(0)[1]
        if reached > self._plane.store.compacted:
            await self._plane.history.let_go(reached, self._plane.keep_seconds)

    # Quotas

    def _quota_changed(self, event: Event) -> None:
        if event.value is not None:
            self._quotas.add(event.key)

    def _object_changed(self, event: Event) -> None:
        """Creations are counted as they are admitted; what is given back by others is found by counting again."""
        kind, namespace, _ = split_key(event.key)
        if event.value is not None and (event.previous is None or not measured(kind)):
            return
        if namespace and self._plane.registry.get(kind) is not None:
            for key in self._plane.admission.quotas.of(namespace):
                self._quotas.add(key)

    async def _count(self, key: str) -> None:
        entry = await self._plane.store.get(key)
        if entry is None:
            return
        quota: Object = orjson.loads(entry.value)
        used = await self._plane.admission.quotas.count(quota)
        status = {"hard": quota["spec"].get("hard") or {}, "used": used}
        if quota.get("status") == status:
            return
        _, namespace, name = split_key(key)

        def counted(live: Object) -> Object:
            # Whoever was admitted since has counted for himself; his write brings us here again.
            moved = live["metadata"]["resourceVersion"] != str(entry.revision)
            return live if moved else {**live, "status": status}

        await self._plane.act("resourcequotas", namespace, name, counted, subresource="status")
