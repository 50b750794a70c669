"""Time and randomness, handed in: the same control plane runs on the wall clock or on a virtual one with a seed."""

from __future__ import annotations

import random
import time
import uuid
from datetime import UTC, datetime

_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, no look-alikes: a suffix never spells a word


class Clock:
    """Wall time in seconds since the epoch, and its text as Kubernetes writes it. A simulator overrides `now`."""

    __slots__ = ("_second", "_text")

    def __init__(self) -> None:
        self._second = -1
        self._text = ""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def timestamp(self) -> str:
        """`2026-01-31T12:00:00Z`; formatted once a second."""
        second = int(self.now())
        if second != self._second:
            self._second = second
            self._text = format_time(second)
        return self._text


class Ids:
    """Unique ids and the random part of generated names. Give a seeded `random.Random` to make them repeat."""

    __slots__ = ("_random",)

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.SystemRandom()

    def uid(self) -> str:
        """A random UUID (version 4)."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def suffix(self, length: int = 5) -> str:
        """The random part of a generated name."""
        return "".join(self._random.choices(_SUFFIX_LETTERS, k=length))

    def jitter(self, low: float, high: float) -> float:
        """A number between the two, so that a crowd does not act at once."""
        return self._random.uniform(low, high)


def format_time(seconds: float) -> str:
    """RFC 3339 in UTC to the second: `2026-01-31T12:00:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def format_micro_time(seconds: float) -> str:
    """RFC 3339 in UTC to the microsecond: `2026-01-31T12:00:00.000000Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time, in UTC where it names no zone; raises ValueError where it is none."""
    instant = datetime.fromisoformat(text.upper())
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
