"""Turns: how many may be under way at a time. Whoever finds one free goes on without waiting, as most do."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """So many turns. Who has to wait for one gets it in the order in which they came."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def free(self) -> bool:
        """Takes a turn if one is free, and says whether."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Takes a turn when one is handed on."""
        handed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(handed)
        try:
            await handed
        except asyncio.CancelledError:
            if not handed.cancelled():
                self.end()  # it came at the same moment: the next one has it
            raise

    def end(self) -> None:
        """Gives a turn back: to the first who waits for one."""
        while self._waiting:
            handed = self._waiting.popleft()
            if not handed.done():
                handed.set_result(None)
                return
        self._free += 1
