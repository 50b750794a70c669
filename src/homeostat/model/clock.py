"""Time and randomness, handed in: the same control plane runs on the wall clock or on a virtual one with a seed."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
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

    now: Callable[[], float] = staticmethod(time.time)
    """Seconds since the epoch; no step in between, for it is asked dozens of times for each object."""

    def timestamp(self) -> str:
        """`2026-01-31T12:00:00Z`; formatted once a second."""
        second = int(self.now())
        if second != self._second:
            self._second = second
            self._text = format_time(second)
        return self._text


_BYTES = 16  # of a UUID
_VERSION = bytes(byte & 0x0F | 0x40 for byte in range(256))
_VARIANT = bytes(byte & 0x3F | 0x80 for byte in range(256))
_FORM = b"xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx "
_PLACES = tuple(at for at, letter in enumerate(_FORM) if letter == ord("x"))


def _uuids(bits: bytes) -> list[str]:
    """Random bits as UUIDs (version 4), all in one go: the first digit of each, the second of each, and so on."""
    marked = bytearray(bits)
    marked[6::_BYTES] = marked[6::_BYTES].translate(_VERSION)
    marked[8::_BYTES] = marked[8::_BYTES].translate(_VARIANT)
    digits, text = marked.hex().encode(), bytearray(_FORM * (len(bits) // _BYTES))
    for at, place in enumerate(_PLACES):
        text[place :: len(_FORM)] = digits[at :: len(_PLACES)]
    return text.decode().split()


class _Pool:
    """Ids of random bits of the system, made many at a time: one by one, both cost more.

    Any thread may take some: what is taken off a list is nobody else's.
    """

    __slots__ = ("_ready",)

    SIZE = 4096

    def __init__(self) -> None:
        self._ready: list[str] = []
        os.register_at_fork(after_in_child=self._ready.clear)  # else two processes would give the same ids

    def uid(self) -> str:
        """A random UUID."""
        while True:
            try:
                return self._ready.pop()
            except IndexError:
                self._ready.extend(_uuids(os.urandom(self.SIZE)))


_POOL = _Pool()


class Ids:
    """Unique ids and the random part of generated names. Give a seeded `random.Random` to make them repeat."""

    __slots__ = ("_random", "uid")

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.SystemRandom()
        self.uid: Callable[[], str] = _POOL.uid if source is None else lambda: _uuids(source.getrandbits(128).to_bytes(16))[0]
        """Gives a random UUID (version 4)."""

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
