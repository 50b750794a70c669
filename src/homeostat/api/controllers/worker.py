"""How a controller works: on one key after another, and again where it failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("homeostat.api")

RETRY_FIRST, RETRY_MOST = 0.05, 30.0
"""Seconds before work that failed is tried again; doubled each time."""


class Worker:
    """Works on keys, one after another, each at most once at a time; what fails is tried again, later and later."""

    def __init__(self, name: str, work: Callable[[str], Awaitable[None]]) -> None:
        self.name = name
        self._work = work
        self._waiting: dict[str, None] = {}
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timers: set[asyncio.TimerHandle] = set()

    def start(self) -> None:
        """Begins with what waits."""
        self._task = self._loop.create_task(self._run(), name=self.name)

    def add(self, key: str) -> None:
        """Works on a key when its turn comes; once, however often it was added before that."""
        self._waiting[key] = None
        self._wake.set()

    def add_later(self, key: str, seconds: float) -> None:
        """Adds a key after a while."""

        def ring() -> None:
            self._timers.discard(timer)
            self.add(key)

        timer = self._loop.call_later(seconds, ring)
        self._timers.add(timer)

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                del self._waiting[key]
                try:
                    await self._work(key)
                    self._failures.pop(key, None)
                except Exception as error:
                    failures = self._failures[key] = self._failures.get(key, 0) + 1
                    delay = min(RETRY_MOST, RETRY_FIRST * 2 ** min(failures - 1, 16))
                    log.warning("%s: %s failed (%s); again in %.2f s", self.name, key, error, delay)
                    self.add_later(key, delay)

    async def stop(self) -> None:
        """Ends at once; what is under way is cut short."""
        for timer in self._timers:
            timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
