"""Writes down what nobody acts on: how far agents are, why something waits, how tenants and pools stand.

Only what changed is written, the newest of several for one object, a few at a time, and estimates in round figures. Of a long queue
the front is told in full at every cycle, and of the rest what binds, as far as the pace allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

from homeostat.client import Client, Informer, Unreachable
from homeostat.gpu.controller.standing import Object
from homeostat.gpu.decisions import Plan
from homeostat.gpu.explain import Why
from homeostat.gpu.kinds import POOL, TENANT, WORKLOAD, share_text
from homeostat.gpu.snapshot import NONE, Phase, Snapshot
from homeostat.model.clock import Clock, format_time, parse_time
from homeostat.model.errors import ApiError
from homeostat.model.kinds import encode

log = logging.getLogger("homeostat.gpu")

AT_ONCE = 16
"""Writes that are under way at the same time."""
FRONT = 200
"""How many of a queue are told why they wait at each cycle."""
ROUND_SECONDS = 60
"""Estimates are told in whole minutes, and anew when they move by more than that and a tenth of the wait."""


class Teller:
    """Writes statuses in the background. Losing a word does no harm: the next cycle says it again."""

    def __init__(self, client: Client, clock: Clock, manager: str) -> None:
        self._client = client
        self._clock = clock
        self._manager = manager
        self._waiting: dict[tuple[str, str, str], tuple[Object, Object]] = {}
        self._wake = asyncio.Event()

    def say(self, obj: Object, status: Object, kind: str = WORKLOAD.kind) -> None:
        """Has this written into the status of the object as it was read; where somebody wrote meanwhile, nothing is."""
        meta = obj["metadata"]
        self._waiting[kind, meta.get("namespace", ""), meta["name"]] = (obj, status)
        self._wake.set()

    async def run(self) -> None:
        """Writes, until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                some = [(key, self._waiting.pop(key)) for key in list(islice(self._waiting, AT_ONCE))]
                await asyncio.gather(*(self._write(key, *what) for key, what in some))

    async def _write(self, key: tuple[str, str, str], obj: Object, status: Object) -> None:
        kind, namespace, name = key
        same = {field: obj["metadata"][field] for field in ("uid", "resourceVersion")}
        handle = self._client.kind(WORKLOAD.api_version, kind)
        try:
            await handle.patch(
                name, {"metadata": same, "status": status}, namespace=namespace, subresource="status", field_manager=self._manager
            )
        except ApiError as error:
            if error.reason not in ("Conflict", "NotFound"):
                log.warning("%s %s could not be told how it stands: %s", kind, name, error.message)
        except Unreachable as error:
            log.info("%s %s will be told later: %s", kind, name, error)

    # What is told at each cycle

    def tell(self, snapshot: Snapshot, plan: Plan, informers: Mapping[str, Informer[Any]]) -> None:
        """All that is new since the last cycle."""
        for why in islice(plan.pending, FRONT):
            self._tell_waiting(why, informers[WORKLOAD.kind])
        standing = tenants(snapshot, plan, self._clock.now())
        for obj in informers[TENANT.kind].all():
            self._tell_changed(obj, standing.get(obj["metadata"]["name"], {}), TENANT.kind)
        counted = pools(snapshot)
        for obj in informers[POOL.kind].all():
            self._tell_changed(obj, counted.get(obj["metadata"]["name"], {}), POOL.kind)

    def _tell_waiting(self, why: Why, workloads: Informer[Any]) -> None:
        namespace, _, name = why.name.rpartition("/")
        packed = workloads.get(name, namespace)
        if packed is not None and packed.uid == why.uid:
            obj = packed.load()
            self._tell_changed(obj, waiting(why, obj.get("status") or {}, self._clock.now()), WORKLOAD.kind)

    def _tell_changed(self, obj: Object, said: Object, kind: str) -> None:
        before = obj.get("status") or {}
        patch = {name: value for name, value in said.items() if before.get(name) != value}
        if patch:
            self.say(obj, patch, kind)


def waiting(why: Why, before: Mapping[str, Any], now: float) -> Object:
    """What is said to one that waits; an estimate that hardly moved stays as it was said `before`."""
    return {
        "reason": why.reason,
        "constraint": str(why.constraint),
        "position": why.position,
        "ahead": [encode(one) for one in why.ahead],
        "estimatedStart": _estimate(why.estimated_start, before.get("estimatedStart"), now),
    }


def _estimate(start: float | None, said: str | None, now: float) -> str | None:
    if start is None:
        return None
    if said is not None and abs(parse_time(said) - start) <= max(ROUND_SECONDS, (start - now) / 10):
        return said
    return format_time(-(-start // ROUND_SECONDS) * ROUND_SECONDS)


def tenants(snapshot: Snapshot, plan: Plan, now: float) -> dict[str, Object]:
    """How each tenant stands, by name."""
    w, places, there = snapshot.workloads, snapshot.places, snapshot.tenants
    runs = (w.phase >= Phase.STARTING) & (w.phase <= Phase.SUSPENDING)
    count, models = len(there), len(snapshot.models)
    used = np.zeros((count, models), dtype=np.int64)
    rows = runs[places.workload] & (w.tenant[places.workload] >= 0)
    np.add.at(used, (w.tenant[places.workload[rows]], snapshot.nodes.model[places.node[rows]]), places.milli[rows])
    known = w.tenant >= 0
    by = {
        name: np.bincount(w.tenant[known & which], minlength=count)
        for name, which in (("pending", w.phase == Phase.PENDING), ("running", runs), ("suspended", w.phase == Phase.SUSPENDED))
    }
    found: dict[str, Object] = {}
    for at, tenant in enumerate(there.name):
        usage = [
            {"model": model, "nominal": share_text(int(there.nominal[at, column])), "used": share_text(int(used[at, m]))}
            for m, model in enumerate(snapshot.models)
            if (column := there.column[at, m]) != NONE
        ]
        found[tenant] = {
            "used": share_text(int(used[at].sum())),
            "usage": usage,
            **{name: int(counts[at]) for name, counts in by.items()},
        }
        if tenant in plan.memory.spent:
            found[tenant]["gpuHours"] = round(plan.memory.spent[tenant][1], 1)
    return found


def pools(snapshot: Snapshot) -> dict[str, Object]:
    """How many nodes each pool has, by name."""
    count, mine = len(snapshot.pools), snapshot.nodes.pool != NONE
    nodes = np.bincount(snapshot.nodes.pool[mine], minlength=count)
    ready = np.bincount(snapshot.nodes.pool[mine & ~snapshot.nodes.cordoned], minlength=count)
    return {name: {"nodes": int(nodes[at]), "ready": int(ready[at])} for at, name in enumerate(snapshot.pools.name)}
