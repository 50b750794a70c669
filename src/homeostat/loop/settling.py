"""When fleets are decided on: a moment after the last look at one of them, so that a change is judged as the whole that it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from homeostat.loop.fleet import Fleet

SETTLE_SECONDS = 0.1
"""How long a decision waits for more of the same change after the last look."""
SETTLE_MOST = 2.0
"""After so long since the first look it is made, whatever else comes."""


class _Wish(msgspec.Struct):
    fleet: Fleet
    timer: asyncio.TimerHandle
    rings: float  # when the timer does, which may be earlier than `due`: a look need not move it
    due: float
    latest: float | None = None


class Settling:
    """Calls `decide` for each fleet at its time: `settle` seconds after the last `soon`, or when `later` says, whichever is sooner."""

    def __init__(self, decide: Callable[[Fleet], None], settle: float) -> None:
        self._decide = decide
        self.settle = settle
        self._wishes: dict[str, _Wish] = {}

    def soon(self, fleet: Fleet) -> None:
        """Something of a fleet was looked at."""
        now = asyncio.get_running_loop().time()
        wish = self._wishes.get(fleet.name)
        if wish is None or wish.latest is None:
            self._plan(fleet, now + min(self.settle, SETTLE_MOST), latest=now + SETTLE_MOST)
        else:
            wish.due = min(now + self.settle, wish.latest)

    def later(self, fleet: Fleet, seconds: float) -> None:
        """Nothing need happen before then, unless a look does."""
        if fleet.name not in self._wishes:
            self._plan(fleet, asyncio.get_running_loop().time() + seconds)

    def stop(self) -> None:
        for wish in self._wishes.values():
            wish.timer.cancel()
        self._wishes.clear()

    def _plan(self, fleet: Fleet, due: float, latest: float | None = None) -> None:
        if (before := self._wishes.get(fleet.name)) is not None:
            before.timer.cancel()
        timer = asyncio.get_running_loop().call_at(due, self._ring, fleet.name)
        self._wishes[fleet.name] = _Wish(fleet, timer, due, due, latest)

    def _ring(self, name: str) -> None:
        wish = self._wishes[name]
        if wish.due > wish.rings:  # there was a look meanwhile
            wish.timer, wish.rings = asyncio.get_running_loop().call_at(wish.due, self._ring, name), wish.due
            return
        del self._wishes[name]
        self._decide(wish.fleet)
