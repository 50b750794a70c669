"""Hints where to look, gathered till somebody takes them: several for one resource are one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from homeostat.loop.fleet import Ref


class Bell:
    """Rung with a resource, and answered by the loop, which looks at it."""

    def __init__(self) -> None:
        self._waiting: dict[Ref, None] = {}
        self._wake = asyncio.Event()

    def ring(self, ref: Ref) -> None:
        """Something may have changed there."""
        self._waiting[ref] = None
        self._wake.set()

    def forget(self, ref: Ref) -> None:
        """There is nothing to look at any more."""
        self._waiting.pop(ref, None)

    async def stream(self) -> AsyncIterator[Ref]:
        """What was rung for, as it comes; for one listener."""
        while True:
            while self._waiting:
                ref = next(iter(self._waiting))
                del self._waiting[ref]
                yield ref
            self._wake.clear()
            await self._wake.wait()
