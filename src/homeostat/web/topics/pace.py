"""Not more often than people can see: the first change is told at once, those that follow together."""

from __future__ import annotations

import asyncio

PACE_SECONDS = 0.1


class Pace:
    """Set it whenever something changed; `turn` comes back when it is time to tell."""

    def __init__(self, seconds: float = PACE_SECONDS) -> None:
        self._seconds = seconds
        self._changed = asyncio.Event()
        self._next = 0.0

    def changed(self) -> None:
        self._changed.set()

    async def turn(self) -> None:
        """Waits for a change, and until the last turn is long enough ago."""
        await self._changed.wait()
        loop = asyncio.get_running_loop()
        if (wait := self._next - loop.time()) > 0:
            await asyncio.sleep(wait)
        self._next = loop.time() + self._seconds
        self._changed.clear()
