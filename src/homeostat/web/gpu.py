"""The GPUs as all viewers share them: judged while somebody looks, and how tenants' use went, for as long as the server runs."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from homeostat.client import Client, Informer, Key
from homeostat.gpu.kinds import TENANT, WHOLE, WORKLOAD, milli
from homeostat.model.clock import Clock
from homeostat.web.series import EVERY_SECONDS, Series

if TYPE_CHECKING:
    from homeostat.web.board import Board
    from homeostat.web.judge import Judge

FIGURES = ("used", "quota", "entitled")
LINGER_SECONDS = 60.0
"""How long it is judged after the last viewer went: people reload."""


class GpuBoard:
    """Part of the board. Only `viewing` needs numpy, and loads it."""

    def __init__(self, client: Client, clock: Clock, board: Board) -> None:
        self._client, self._clock, self._board = client, clock, board
        self.series: dict[str, Series] = {}
        """By tenant: GPUs that it used, that are its own, and that it is entitled to by its weight; the last only while somebody looked."""
        self._tenants: Informer[dict[str, Any]] | None = None
        self._judge: Judge | None = None
        self._viewers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.TimerHandle | None = None
        self._kinds = asyncio.Event()

    @property
    def served(self) -> bool:
        """Whether the server knows of GPUs at all."""
        return WORKLOAD.name in self._board.kinds

    def start(self) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._sample(), name="gpu samples"))

    async def stop(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._end_judging()
        for task in tuple(self._tasks):
            if task.get_name() == "gpu samples":
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tenants is not None:
            await self._tenants.stop()

    # How use went

    async def _sample(self) -> None:
        with self._board.listening(lambda kind, _: None if kind else self._kinds.set()):
            while True:
                while not self.served:
                    self._kinds.clear()
                    await self._kinds.wait()
                if self._tenants is None:
                    self._tenants = self._client.kind(TENANT.api_version, TENANT.kind).informer()
                    self._tenants.subscribe(self._heard)
                    self._tenants.start()
                    await self._tenants.wait_synced()
                tenants = self._tenants.all()
                for name in self.series.keys() - {tenant["metadata"]["name"] for tenant in tenants}:
                    del self.series[name]
                for tenant in tenants:
                    self._note(tenant)
                await asyncio.sleep(EVERY_SECONDS)

    def _heard(self, key: Key) -> None:
        tenant = self._tenants.get(key.name) if self._tenants is not None and key.name not in self.series else None
        if tenant is not None:
            self._note(tenant)

    def _note(self, tenant: dict[str, Any]) -> None:
        name, judged = tenant["metadata"]["name"], self._judge.figures if self._judge is not None else {}
        self.series.setdefault(name, Series(FIGURES)).add(self._clock.now(), judged.get(name) or figures_of(tenant))

    # Who looks

    @contextlib.asynccontextmanager
    async def viewing(self) -> AsyncIterator[Judge]:
        """While in here, it is judged; the first judgement is there when it begins."""
        from homeostat.web.judge import Judge

        self._viewers += 1
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
        if self._judge is None:
            self._judge = Judge(self._client, self._clock, self._board.policies)
            self._judge.start()
        try:
            await self._judge.judged()
            yield self._judge
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._closing = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._end_judging)

    def _end_judging(self) -> None:
        self._closing = None
        if self._judge is not None:
            task = asyncio.get_running_loop().create_task(self._judge.stop(), name="gpu judging ends")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._judge = None


def figures_of(tenant: Mapping[str, Any]) -> dict[str, float]:
    """What a tenant uses and has, of all types of GPUs, as its status says; what it is entitled to nobody knows while nobody looks."""
    used = sum(milli(one.get("used", 0)) for one in (tenant.get("status") or {}).get("usage") or ())
    quota = sum(milli(one.get("nominal", 0)) for one in tenant["spec"].get("quotas") or ())
    return {"used": used / WHOLE, "quota": quota / WHOLE, "entitled": math.nan}
