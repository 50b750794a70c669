"""Writes down what nobody acts on: how tenants, pools and nodes stand. What is said of workloads is written by the loop, with its own words.

Only what changed by more than it wavers is written, the newest of several for one object, at a bounded pace: under load a tenant is told
how it stands every now and then, not at every cycle.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from homeostat.client import Client, Informer, Unreachable
from homeostat.gpu.controller.standing import Object
from homeostat.gpu.controller.tallies import Tally, nodes, pools, tenants
from homeostat.gpu.decisions import Plan
from homeostat.gpu.kinds import NODE, POOL, TENANT, WORKLOAD
from homeostat.gpu.snapshot import Snapshot
from homeostat.loop.events import Bucket, Recent
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.gpu")

AT_ONCE = 16
"""Writes that are under way at the same time."""
BURST, PER_SECOND = 100, 20
"""How many tenants, pools and nodes are told how they stand: so many at once, then so many in a second."""
EACH_BURST, EACH_SECONDS = 3, 10.0
"""And of one: so often at once, then once in so many seconds."""
EACH_KNOWN = 20_000
EVERY_SECONDS, EVERY_SECONDS_BUSY = 1.0, 10.0
"""How often it is looked what is new; the second while workloads are being placed."""
WAVERS = {"dominantShare": 0.02, "cost": 0.01, "gpuHours": 0.01}
"""A number that moves all the time is told when it has moved by such a part of itself."""


class Teller:
    """Writes statuses in the background. Losing a word does no harm: a later cycle says it again."""

    def __init__(self, client: Client, clock: Clock, manager: str) -> None:
        self._client = client
        self._clock = clock
        self._manager = manager
        self._waiting: dict[tuple[str, str], tuple[Object, Object]] = {}
        self._wake = asyncio.Event()
        self._pace = Bucket(BURST, 1 / PER_SECOND)
        self._paces: Recent[tuple[str, str], Bucket] = Recent(lambda: Bucket(EACH_BURST, EACH_SECONDS), EACH_KNOWN)
        self._at = -math.inf
        self._first = 0
        self._tally = Tally()

    async def run(self) -> None:
        """Writes, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = [(key, self._waiting.pop(key)) for key in list(islice(self._waiting, AT_ONCE))]
                await asyncio.gather(*(self._write(*key, *what) for key, what in some))

    async def _write(self, kind: str, name: str, obj: Object, status: Object) -> None:
        same = {field: obj["metadata"][field] for field in ("uid", "resourceVersion")}
        handle = self._client.kind(WORKLOAD.api_version, kind)
        try:
            await handle.patch(name, {"metadata": same, "status": status}, subresource="status", field_manager=self._manager)
        except ApiError as error:
            if error.reason not in ("Conflict", "NotFound"):
                log.warning("%s %s could not be told how it stands: %s", kind, name, error.message)
        except Unreachable as error:
            log.info("%s %s will be told later: %s", kind, name, error)

    def miss(self, tenant: str) -> None:
        """Counts a promise to a tenant that was not kept, and of which no plan says so."""
        self._tally.miss(tenant)

    def tell(self, snapshot: Snapshot, plan: Plan, informers: Mapping[str, Informer[Any]], *, busy: bool = False) -> None:
        """All that is new since the last time, as far as the pace allows; those that come last now come first then."""
        self._tally.count(snapshot, plan)
        now = self._clock.now()
        if now - self._at < (EVERY_SECONDS_BUSY if busy else EVERY_SECONDS):
            return
        self._at = now
        standing = {
            TENANT.kind: tenants(snapshot, plan, self._tally, {one["metadata"]["name"]: one for one in informers[TENANT.kind].all()}),
            POOL.kind: pools(snapshot),
            NODE.kind: nodes(snapshot),
        }
        told = [
            (kind, obj, patch)
            for kind, by_name in standing.items()
            for obj in informers[kind].all()
            if (patch := _news(obj, by_name.get(obj["metadata"]["name"], {})))
        ]
        for kind, obj, patch in self._in_turn(told):
            self._waiting[kind, obj["metadata"]["name"]] = (obj, patch)
            self._wake.set()

    def _in_turn(self, told: list[tuple[str, Object, Object]]) -> Iterator[tuple[str, Object, Object]]:
        first, now = self._first % len(told) if told else 0, self._clock.now()
        for step, one in enumerate(told[first:] + told[:first]):
            if not self._paces.get((one[0], one[1]["metadata"]["name"])).take(now):
                continue
            if not self._pace.take(now):
                self._first = first + step
                return
            yield one
        self._first = 0


def _news(obj: Object, said: Object) -> Object:
    before = obj.get("status") or {}
    return {name: value for name, value in said.items() if _differs(name, before.get(name), value)}


def _differs(name: str, before: Any, value: Any) -> bool:
    if name in WAVERS and isinstance(before, int | float) and before:
        return bool(abs(value - before) > WAVERS[name] * abs(before))
    return bool(before != value and not (before is None and not value))
