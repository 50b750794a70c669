"""How long to wait before trying again."""

from __future__ import annotations

import asyncio
import random


class Backoff:
    """Delays that double from `first` to `most` seconds, each with full jitter, so that a crowd spreads out.

    Hand in a seeded `random.Random` to make them repeat.
    """

    __slots__ = ("_failures", "_first", "_most", "_random", "_resting")

    def __init__(self, first: float = 0.1, most: float = 30.0, source: random.Random | None = None) -> None:
        self._first = first
        self._most = most
        self._random = source or random.Random()
        self._failures = 0
        self._resting: asyncio.Future[None] | None = None

    def next(self) -> float:
        """The delay after one more failure, in seconds."""
        ceiling = min(self._most, self._first * 2 ** min(self._failures, 32))
        self._failures += 1
        return self._random.uniform(ceiling / 10, ceiling)

    def reset(self) -> None:
        """It worked: the next failure begins small again."""
        self._failures = 0

    async def rest(self, seconds: float) -> None:
        """Waits for so long, or until somebody hurries it."""
        loop = asyncio.get_running_loop()
        resting = self._resting = loop.create_future()
        timer = loop.call_later(seconds, _wake, resting)
        try:
            await resting
        finally:
            timer.cancel()

    def hurry(self) -> None:
        """What failed is known to work again: it is tried at once."""
        self.reset()
        if self._resting is not None:
            _wake(self._resting)


def _wake(resting: asyncio.Future[None]) -> None:
    if not resting.done():
        resting.set_result(None)
