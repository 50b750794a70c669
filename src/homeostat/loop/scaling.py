"""Scaling in proportion: as many replicas as bring each metric to its target, as HorizontalPodAutoscalers do it.

`Ratio` is a control law like those of `laws`: settings with a pure `decide`. It goes up at once and comes down slowly;
several metrics are followed by their largest demand; and while one of them cannot be read it does not come down at all,
for a tier that seems idle by one signal alone may just be starved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import gt, lt

from homeostat.loop.laws import STALE_SECONDS, Decision
from homeostat.loop.observation import Unknown
from homeostat.loop.readings import Metric, usable

_GRAIN = 1e-9
"""What of a replica is a rounding error, and asks for none."""

Mark = tuple[float, int]
"""A time, and a number of replicas."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a metric should be: of each replica, or with `total` of all together, divided among them."""

    value: float
    total: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise ValueError(f"a target must be more than 0: {self.value:g}")


@dataclass(frozen=True, slots=True)
class Pace:
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


@dataclass(frozen=True, slots=True)
class Scaled:
    """What is remembered: recommendations as far as they can still matter, and the changes that were seen."""

    highs: tuple[Mark, ...] = ()
    """Recommendations that no later one exceeded."""
    lows: tuple[Mark, ...] = ()
    """Recommendations that no later one undercut."""
    changes: tuple[Mark, ...] = ()
    """By how many the replicas changed, whoever changed them."""
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Ratio:
    """Replicas in proportion to what is measured, with a tolerance, a window and a pace for each direction."""

    targets: tuple[Target, ...]
    most: int
    least: int = 1
    tolerance: float = 0.1
    """A metric this near to its target, as a part of it, moves nothing."""
    up: Pace = Pace(window=0, percent=100, count=4)
    down: Pace = Pace(window=300, percent=100)
    stale_after: float = STALE_SECONDS

    def __post_init__(self) -> None:
        if not self.targets or not 0 <= self.least <= self.most or self.tolerance < 0:
            raise ValueError(f"scaling needs a target, 0 ≤ least ≤ most and tolerance ≥ 0: {self}")

    def decide(self, state: Scaled, metrics: Sequence[Metric], current: int, now: float) -> Decision[Scaled, int]:
        """How many replicas there should be. `metrics` are in the order of the targets; `current` is how many there are.

        The pace counts changes from when they are seen here, so it does not matter whether an earlier decision was carried
        out, or who else changed it.
        """
        state = self._look(state, current, now)
        wished, why = self._recommend(metrics, current, now)
        if wished is None:
            return Decision(state, self._clamp(current), f"held: {why}")
        state = replace(
            state,
            highs=_mark(state.highs, now, wished, self.down.window, gt),
            lows=_mark(state.lows, now, wished, self.up.window, lt),
        )
        steady = min(max(current, state.lows[0][1]), state.highs[0][1])
        paced = self._pace(state, steady, current, now)
        if paced != wished:
            why += f"; {paced} now, as window, pace and limits allow"
        return Decision(state, paced, why)

    def _look(self, state: Scaled, current: int, now: float) -> Scaled:
        """Takes in how many there are. At the start that is the first recommendation: a restart shrinks nothing."""
        if state.seen is None:
            return Scaled(((now, current),), ((now, current),), (), current)
        longest = max(self.up.period, self.down.period)
        changes = tuple(mark for mark in state.changes if now - longest < mark[0] <= now)
        if current != state.seen:
            changes += ((now, current - state.seen),)
        return replace(state, changes=changes, seen=current)

    def _recommend(self, metrics: Sequence[Metric], current: int, now: float) -> tuple[int | None, str]:
        """What the metrics ask for, the largest demand first; None where none of them can be read."""
        wished: list[tuple[int, str]] = []
        missing: list[str] = []
        for target, metric in zip(self.targets, metrics, strict=True):
            reading = usable(metric, now, self.stale_after)
            if isinstance(reading, Unknown):
                missing.append(reading.reason)
            elif current == 0 and not target.total:
                missing.append("without replicas there is nothing to measure")
            else:
                wished.append(self._demand(target, reading.value, current))
        if not wished:
            return None, "; ".join(missing)
        count, why = max(wished)
        if missing and count < current:
            return current, f"{why}, but not all metrics can be read: {'; '.join(missing)}"
        return count, why

    def _demand(self, target: Target, value: float, current: int) -> tuple[int, str]:
        needed = value / target.value if target.total else current * value / target.value
        why = f"{value:g} measured, {target.value:g} wanted{' of each' if target.total else ''}"
        if current and abs(needed / current - 1) <= self.tolerance + _GRAIN:
            return current, f"{why}: near enough"
        count = math.ceil(min(max(needed, 0.0), 2.0**53) - _GRAIN)
        return count, f"{why}: {count} replicas"

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


def _mark(
    marks: tuple[Mark, ...], now: float, count: int, window: float, outdoes: Callable[[int, int], bool]
) -> tuple[Mark, ...]:
    """Adds a recommendation, and drops what is out of the window or can never be the extreme again."""
    kept = tuple(mark for mark in marks if now - window < mark[0] <= now and outdoes(mark[1], count))
    return (*kept, (now, count))


def _changed(changes: tuple[Mark, ...], after: float) -> int:
    return sum(by for at, by in changes if at > after)
