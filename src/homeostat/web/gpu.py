"""The GPUs as all viewers share them: judged while somebody looks, and how tenants' use went."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from homeostat.client import Client, Informer, Key
from homeostat.gpu import GROUP
from homeostat.model.clock import Clock
from homeostat.web.record import Family
from homeostat.web.series import Series

if TYPE_CHECKING:
    from homeostat.web.board import Board
    from homeostat.web.judge import Judge

FIGURES = ("used", "quota", "entitled")
LINGER_SECONDS = 60.0
"""How long it is kept up after the last viewer went: people reload."""


class GpuBoard:
    """Part of the board. Where there are no GPUs nothing of theirs is loaded; only `viewing` needs numpy, and loads it."""

    def __init__(self, client: Client, clock: Clock, board: Board) -> None:
        self._client, self._clock, self._board = client, clock, board
        self.tenants = Family(FIGURES)
        """GPUs that each used, that are its own, and that it is entitled to by its weight; the last only while somebody looked."""
        self._tenants: Informer[dict[str, Any]] | None = None
        self._judge: Judge | None = None
        self._viewers = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: asyncio.TimerHandle | None = None
        self._kinds = asyncio.Event()
        self._beginning: asyncio.Task[None] | None = None

    @property
    def series(self) -> dict[str, Series]:
        """By tenant, how its figures went in the last day."""
        return self.tenants.series

    @property
    def served(self) -> bool:
        """Whether the server knows of GPUs at all."""
        return any(name.endswith(f".{GROUP}") for name in self._board.kinds)

    def start(self) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(self._follow(), name="gpu tenants"))

    async def stop(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        self._end_judging()
        for task in tuple(self._tasks):
            if task.get_name() != "gpu judging ends":
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tenants is not None:
            await self._tenants.stop()

    # How use went

    async def _follow(self) -> None:
        with self._board.listening(lambda kind, _: None if kind else self._kinds.set()):
            while not self.served:
                self._kinds.clear()
                await self._kinds.wait()
        from homeostat.gpu.kinds import TENANT

        self._tenants = self._client.kind(TENANT.api_version, TENANT.kind).informer()
        self._tenants.subscribe(self._heard)
        self._tenants.start()

    def _heard(self, key: Key) -> None:
        if key.name not in self.series:
            self._board.sample_soon()

    def sample(self) -> dict[str, dict[str, float]] | None:
        """How each tenant stands now; None: that is not known yet."""
        if self._tenants is None or not self._tenants.synced:
            return None
        judged = self._judge.figures if self._judge is not None else {}
        return {name: judged.get(name) or figures_of(tenant) for tenant in self._tenants.all() for name in (tenant["metadata"]["name"],)}

    # Who looks

    @contextlib.asynccontextmanager
    async def viewing(self) -> AsyncIterator[Judge]:
        """While in here, it is judged; the first judgement is there when it begins."""
        self._viewers += 1
        try:
            judge = await self._judging()
            await judge.judged()
            yield judge
        finally:
            self._viewers -= 1
            self._linger()

    def expect(self) -> None:
        """Somebody looks at something: what there is of GPUs is read now, so that it is there when they look at them."""
        if self.served and find_spec("numpy") is not None and self._judge is None and self._beginning is None:
            self._beginning = asyncio.get_running_loop().create_task(self._begin(), name="gpu judge begins")
            self._tasks.add(self._beginning)
            self._beginning.add_done_callback(self._tasks.discard)

    async def _begin(self) -> None:
        try:
            await self._judging()
        finally:
            self._beginning = None
            self._linger()

    async def _judging(self) -> Judge:
        await asyncio.to_thread(import_module, "homeostat.web.judge")  # numpy takes its time
        from homeostat.web.judge import Judge

        if self._judge is None:
            self._judge = Judge(self._client, self._clock, self._board.policies)
            self._judge.start()
        return self._judge

    def _linger(self) -> None:
        """It goes on being read for a while; as long as somebody looks at anything, they may look at this."""
        if self._closing is not None:
            self._closing.cancel()
        self._closing = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._close)

    def _close(self) -> None:
        self._closing = None
        if self._viewers or self._board.looked_at:
            self._linger()
        else:
            self._end_judging()

    def _end_judging(self) -> None:
        if self._judge is not None:
            task = asyncio.get_running_loop().create_task(self._judge.stop(), name="gpu judging ends")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            self._judge = None


def figures_of(tenant: Mapping[str, Any]) -> dict[str, float]:
    """What a tenant uses and has, of all types of GPUs, as its status says; what it is entitled to nobody knows while nobody looks."""
    from homeostat.gpu.kinds import WHOLE, milli

    used = sum(milli(one.get("used", 0)) for one in (tenant.get("status") or {}).get("usage") or ())
    quota = sum(milli(one.get("nominal", 0)) for one in tenant["spec"].get("quotas") or ())
    return {"used": used / WHOLE, "quota": quota / WHOLE, "entitled": math.nan}
