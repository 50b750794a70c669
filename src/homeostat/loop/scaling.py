"""Scaling: from what each metric asks for to how many replicas there should be.

`Proportion` says what one metric asks for, as HorizontalPodAutoscalers do it; a law of `laws` may say it as well. `Scaling` makes
one number of what all of them ask for: it follows the largest demand, goes up at once and comes down slowly; and while one of them
cannot be read it does not come down at all, for a tier that seems idle by one signal alone may just be starved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import gt, lt
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from homeostat.loop.laws import Decision
from homeostat.loop.observation import Unknown

_GRAIN = 1e-9
"""What of a replica is a rounding error, and asks for none."""

Mark = tuple[float, int]
"""A time, and a number of replicas."""


class Demand(NamedTuple):
    """How many replicas a metric asks for, and why."""

    replicas: int
    why: str


Asked: TypeAlias = Demand | Unknown
"""What a metric asks for, or why that is not known."""


def whole(count: float) -> int:
    """As many replicas as do the work of so many."""
    return math.ceil(min(max(count, 0.0), 2.0**53) - _GRAIN)


class Proportion(msgspec.Struct, frozen=True):
    """As many replicas as bring a metric to its target: of each replica, or with `total` of all together, divided among them."""

    target: float
    total: bool = False
    tolerance: float = 0.1
    """A metric this near to its target, as a part of it, moves nothing."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.target) and self.target > 0 and self.tolerance >= 0):
            raise ValueError(
                f"a proportion needs a target > 0 and a tolerance ≥ 0: {self.target:g}, {self.tolerance:g}"
            )

    def demand(self, value: float, current: int, running: int | None = None) -> Asked:
        """What a value asks for. It was measured over the `running` replicas, where not all of `current` are up yet."""
        over = current if running is None else running
        if not math.isfinite(value):
            return Unknown(f"the value is {value}")
        if over == 0 and not self.total:
            return Unknown("without replicas there is nothing to measure")
        needed = value / self.target if self.total else over * value / self.target
        why = f"{value:.4g} measured, {self.target:g} wanted{' of each' if self.total else ''}"
        if over and abs(needed / over - 1) <= self.tolerance + _GRAIN:
            return Demand(current, f"{why}: near enough")
        return Demand(whole(needed), f"{why}: {whole(needed)} replicas")


class Pace(msgspec.Struct, frozen=True):
    """How fast replicas change in one direction."""

    window: float
    """Seconds over which the most cautious recommendation counts, so that a metric that swings moves nothing."""
    percent: float = 100.0
    count: int = 0
    """In `period` seconds they change by so many percent, or by this count if that is more."""
    period: float = 15.0

    def __post_init__(self) -> None:
        if self.window < 0 or self.percent < 0 or self.count < 0 or self.period <= 0:
            raise ValueError(f"a pace needs window, percent and count ≥ 0, period > 0: {self}")

    def change(self, start: int) -> int:
        """By how many a number of replicas may change in a period."""
        return max(self.count, math.ceil(max(start, 1) * self.percent / 100 - _GRAIN))


class Scaled(msgspec.Struct, frozen=True):
    """What is remembered: recommendations as far as they can still matter, and the changes that were seen."""

    highs: tuple[Mark, ...] = ()
    """Recommendations that no later one exceeded."""
    lows: tuple[Mark, ...] = ()
    """Recommendations that no later one undercut."""
    changes: tuple[Mark, ...] = ()
    """By how many the replicas changed, whoever changed them."""
    seen: int | None = None
    moved: float | None = None
    """When they last changed; None where they never did."""


class Scaling(msgspec.Struct, frozen=True):
    """How many replicas there should be, within limits, with a window and a pace for each direction."""

    most: int
    least: int = 1
    up: Pace = Pace(window=0, percent=100, count=4)
    down: Pace = Pace(window=300, percent=100)

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise ValueError(f"scaling needs 0 ≤ least ≤ most: {self.least}, {self.most}")

    def look(self, state: Scaled, current: int, now: float) -> Scaled:
        """Takes in how many there are, so the pace counts what really changed, whoever changed it."""
        if state.seen is not None and state.seen != current:
            state = replace(state, changes=(*state.changes, (now, current - state.seen)), moved=now)
        longest = max(self.up.period, self.down.period)
        changes = tuple(mark for mark in state.changes if now - longest < mark[0] <= now)
        return replace(state, changes=changes, seen=current)

    def decide(self, state: Scaled, asked: Sequence[Asked], current: int, now: float) -> Decision[Scaled, int]:
        """How many replicas there should be; `current` is how many were declared last.

        Where that rests on what cannot be read (see `blind`), they stay as they are; the limits hold even then.
        """
        state = self.look(state, current, now)
        why = blind(asked, current)
        wished = current
        if why is None:
            wished, reason = max(demand for demand in asked if isinstance(demand, Demand))
        state = self._remember(state, wished, current, now)
        if why is not None:
            return Decision(state, self._clamp(current), f"held: {why.reason}")
        steady = min(max(current, state.lows[0][1]), state.highs[0][1])
        paced = self._pace(state, steady, current, now)
        if paced != wished:
            reason += f"; {paced} now, as window, pace and limits allow"
        return Decision(state, paced, reason)

    def _remember(self, state: Scaled, wished: int, current: int, now: float) -> Scaled:
        """Adds a recommendation. The first is what there is, and so is each while blind: after a start, and when sight
        comes back, a whole window passes before anything shrinks."""
        start = () if state.highs else ((now, current),)
        return replace(
            state,
            highs=_mark(state.highs or start, now, wished, self.down.window, gt),
            lows=_mark(state.lows or start, now, wished, self.up.window, lt),
        )

    def _pace(self, state: Scaled, wished: int, current: int, now: float) -> int:
        """As near to what is wished as the pace and the limits allow. Limits go before pace: they are declared."""
        if wished > current:
            start = current - _changed(state.changes, now - self.up.period)
            wished = min(wished, max(current, start + self.up.change(start)))
        elif wished < current:
            start = current - _changed(state.changes, now - self.down.period)
            wished = max(wished, min(current, start - self.down.change(start)))
        return self._clamp(wished)

    def _clamp(self, count: int) -> int:
        return min(self.most, max(self.least, count))


def blind(asked: Sequence[Asked], current: int) -> Unknown | None:
    """Why nothing can be decided: a metric cannot be read, and none of the others asks for more. None where it can."""
    missing = [demand.reason for demand in asked if isinstance(demand, Unknown)]
    if asked and (not missing or any(isinstance(d, Demand) and d.replicas > current for d in asked)):
        return None
    return Unknown("; ".join(missing) or "nothing is measured")


def _mark(
    marks: tuple[Mark, ...], now: float, count: int, window: float, outdoes: Callable[[int, int], bool]
) -> tuple[Mark, ...]:
    """Adds a recommendation, and drops what is out of the window or can never be the extreme again."""
    kept = tuple(mark for mark in marks if now - window < mark[0] <= now and outdoes(mark[1], count))
    return (*kept, (now, count))


def _changed(changes: tuple[Mark, ...], after: float) -> int:
    return sum(by for at, by in changes if at > after)
