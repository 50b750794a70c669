"""How long to wait before trying again."""

from __future__ import annotations

import random


class Backoff:
    """Delays that double from `first` to `most` seconds, each with full jitter, so that a crowd spreads out.

    Hand in a seeded `random.Random` to make them repeat.
    """

    __slots__ = ("_failures", "_first", "_most", "_random")

    def __init__(self, first: float = 0.1, most: float = 30.0, source: random.Random | None = None) -> None:
        self._first = first
        self._most = most
        self._random = source or random.Random()
        self._failures = 0

    def next(self) -> float:
        """The delay after one more failure, in seconds."""
        ceiling = min(self._most, self._first * 2 ** min(self._failures, 32))
        self._failures += 1
        return self._random.uniform(ceiling / 10, ceiling)

    def reset(self) -> None:
        """It worked: the next failure begins small again."""
        self._failures = 0
