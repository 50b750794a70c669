"""The wall clock beside the steady one: whether somebody set it."""

from __future__ import annotations

import asyncio

from homeostat.model.clock import Clock

SET_SECONDS = 30.0
"""By so much the wall clock has to leave the steady one before it was set by somebody."""


class WallClock:
    """Reads a clock, and notices where it jumps against that of the event loop, which never does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead: float | None = None  # of the wall clock, before the steady one

    def read(self) -> tuple[float, float]:
        """Wall seconds, and by how many it was set since the last time; 0 where it was not."""
        now = self._clock.now()
        ahead = now - asyncio.get_running_loop().time()
        before = ahead if self._ahead is None else self._ahead
        if abs(ahead - before) <= SET_SECONDS:
            self._ahead = before
            return now, 0.0
        self._ahead = ahead
        return now, ahead - before
