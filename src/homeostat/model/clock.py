"""Time and randomness, handed in: the same control plane runs on the wall clock or on a virtual one with a seed."""

from __future__ import annotations

import math
import os
import random
import time
from datetime import UTC, datetime
from functools import lru_cache
from math import floor

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


_DIGITS = 32  # of a UUID
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class _Pool:
    """Random bits of the system, fetched many at a time: one call for each id costs more than the id.

    Any thread may take some: what is taken off a list is nobody else's.
    """

    __slots__ = ("_ready",)

    SIZE = 4096

    def __init__(self) -> None:
        self._ready: list[str] = []
        os.register_at_fork(after_in_child=self._ready.clear)  # else two processes would give the same ids

    def digits(self) -> str:
        """128 bits, in hexadecimal."""
        while True:
            try:
                return self._ready.pop()
            except IndexError:
                text = os.urandom(self.SIZE).hex()
                self._ready.extend([text[at : at + _DIGITS] for at in range(0, len(text), _DIGITS)])


_POOL = _Pool()


class Ids:
    """Unique ids and the random part of generated names. Give a seeded `random.Random` to make them repeat."""

    __slots__ = ("_digits", "_random")

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.SystemRandom()
        self._digits = _POOL.digits if source is None else lambda: f"{source.getrandbits(128):032x}"

    def uid(self) -> str:
        """A random UUID (version 4)."""
        text = self._digits()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{_VARIANT[text[16]]}{text[17:20]}-{text[20:]}"

    def suffix(self, length: int = 5) -> str:
        """The random part of a generated name."""
        return "".join(self._random.choices(_SUFFIX_LETTERS, k=length))

    def jitter(self, low: float, high: float) -> float:
        """A number between the two, so that a crowd does not act at once."""
        return self._random.uniform(low, high)


def format_time(seconds: float) -> str:
    """RFC 3339 in UTC to the second: `2026-01-31T12:00:00Z`."""
    return _text_of(floor(seconds))


@lru_cache(1024)
def _text_of(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))


def format_micro_time(seconds: float) -> str:
    """RFC 3339 in UTC to the microsecond: `2026-01-31T12:00:00.000000Z`."""
    second = math.floor(seconds)
    carried, micros = divmod(round((seconds - second) * 1_000_000), 1_000_000)
    return f"{_second(second + carried)}.{micros:06}Z"


@lru_cache(64)
def _second(second: int) -> str:
    """Many things happen within one."""
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 time, in UTC where it names no zone; raises ValueError where it is none."""
    instant = datetime.fromisoformat(text.upper())
    return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
