"""Control laws: from what is measured to what is set, for targets that are numbers.

Each law is a frozen set of settings with one method, `decide`: the state before, a metric and the time in; the state
after, the output and the reason out. Nothing waits, nothing looks at a clock, and the state is plain data that can be
stored. What all of them keep:

- the output stays within its limits, whatever comes in;
- without a usable reading (missing, not a number, too old) the output is held, and so is everything that was learnt;
- a reading that was seen before says nothing new; readings may come at any pace.

`OnOff` switches with hysteresis, `Step` moves by fixed steps with cooldowns, `PID` follows a set point smoothly. For
replicas in proportion to a load there is `scaling.Proportion`.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from homeostat.loop.observation import Unknown
from homeostat.loop.readings import Metric, Reading, usable

S = TypeVar("S")
V = TypeVar("V")

STALE_SECONDS = 180.0
"""After this age a reading is no longer decided on, unless the law says otherwise."""


class Decision(NamedTuple, Generic[S, V]):
    """What a law makes of a reading: the state to hand in next time, the output, and why."""

    state: S
    output: V
    reason: str


class Limits(msgspec.Struct, frozen=True):
    """The least and the most an output may be."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError(f"limits need finite low ≤ high: {self.low:g}, {self.high:g}")

    def clamp(self, value: float) -> float:
        """The nearest value within."""
        return min(self.high, max(self.low, value))


def beyond(error: float, band: float) -> float:
    """How far an error lies outside of a dead band of ± `band`; 0 within. Without a jump at its edge."""
    return math.copysign(max(0.0, abs(error) - band), error)


def _rest(since: float | None, least: float, now: float) -> float:
    """Seconds that are left of `least` since then; a clock that was set back does not make it more."""
    return 0.0 if since is None else min(least, since + least - now)


class Sense(StrEnum):
    """Which way the output has to go when the measurement is above its target."""

    RAISES = "raises"
    """The output raises the measurement, as heating does: above the target it goes down."""
    LOWERS = "lowers"
    """The output lowers the measurement, as cooling does, or replicas their load: above the target it goes up."""


# On and off


class Switch(msgspec.Struct, frozen=True):
    """Whether it is on, and since when; None where it never moved."""

    on: bool = False
    since: float | None = None


class OnOff(msgspec.Struct, frozen=True):
    """On at one threshold, off at the other; between them it stays as it is (hysteresis).

    With `Sense.LOWERS` (a fan) it goes on at `high` and off at `low`; with `Sense.RAISES` (a heater) the other way round.
    """

    low: float
    high: float
    sense: Sense = Sense.LOWERS
    least_on: float = 0.0
    """Seconds for which it stays on at least, whatever is measured."""
    least_off: float = 0.0
    """Seconds for which it stays off at least."""
    stale_after: float = STALE_SECONDS

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"hysteresis needs low < high: {self.low:g}, {self.high:g}")

    def decide(self, state: Switch, metric: Metric, now: float) -> Decision[Switch, bool]:
        """On or off."""
        reading = usable(metric, now, self.stale_after)
        if isinstance(reading, Unknown):
            return Decision(state, state.on, f"held: {reading.reason}")
        above, below = reading.value >= self.high, reading.value <= self.low
        if not (above or below):
            return Decision(state, state.on, f"{reading.value:g} is between {self.low:g} and {self.high:g}")
        on = above if self.sense is Sense.LOWERS else below
        why = f"{reading.value:g} is " + (f"at least {self.high:g}" if above else f"at most {self.low:g}")
        if on == state.on:
            return Decision(state, on, why)
        rest = _rest(state.since, self.least_on if state.on else self.least_off, now)
        if rest > 0:
            return Decision(state, state.on, f"{why}, but it stays {'on' if state.on else 'off'} for {rest:.0f} s more")
        return Decision(Switch(on, now), on, why)


# By steps


class Steps(msgspec.Struct, frozen=True):
    """Where a stepped output stands, and when it last moved; None where it never did."""

    output: float
    moved: float | None = None


class Step(msgspec.Struct, frozen=True):
    """Moves the output by a fixed step when the measurement leaves the band around its target, then rests.

    The rest is counted from the last step in either direction, so that a step shows its effect before the next.
    """

    target: float
    band: float
    """Within target ± band nothing moves."""
    limits: Limits
    up: float = 1.0
    down: float = 1.0
    """How far one step goes."""
    rest_up: float = 60.0
    """Seconds after any step before one up."""
    rest_down: float = 300.0
    """Seconds after any step before one down."""
    sense: Sense = Sense.LOWERS
    stale_after: float = STALE_SECONDS

    def __post_init__(self) -> None:
        if not (math.isfinite(self.target) and self.band >= 0 and self.up > 0 and self.down > 0):
            raise ValueError(f"steps need a finite target, band ≥ 0, up > 0 and down > 0: {self}")

    def decide(self, state: Steps, metric: Metric, now: float) -> Decision[Steps, float]:
        """Where the output is to stand."""
        output = self.limits.clamp(state.output)
        here = replace(state, output=output)
        reading = usable(metric, now, self.stale_after)
        if isinstance(reading, Unknown):
            return Decision(here, output, f"held: {reading.reason}")
        error = beyond(reading.value - self.target, self.band)
        if error == 0:
            return Decision(here, output, f"{reading.value:g} is within {self.target:g} ± {self.band:g}")
        rising = (error > 0) == (self.sense is Sense.LOWERS)
        why = f"{reading.value:g} is {'above' if error > 0 else 'below'} {self.target:g} ± {self.band:g}"
        rest = _rest(state.moved, self.rest_up if rising else self.rest_down, now)
        if rest > 0:
            return Decision(here, output, f"{why}; the last step is given {rest:.0f} s more to show")
        moved = self.limits.clamp(output + self.up if rising else output - self.down)
        if moved == output:
            return Decision(here, output, f"{why}, but the output is at its limit")
        return Decision(Steps(moved, now), moved, why)


# Smoothly


class Loop(msgspec.Struct, frozen=True):
    """What a PID loop remembers. `integral` and `slope` are in units of the output: they mean the same under other gains."""

    output: float
    integral: float
    slope: float = 0.0
    measured: float = 0.0
    at: float | None = None
    """Of which time the last reading was; None before the first."""

    @classmethod
    def at_rest(cls, output: float) -> Loop:
        """The state of a loop that takes over from `output`, set by hand or by another law: it goes on from there.

        Without integral gain `output` is what is set where there is no error.
        """
        return cls(output, output)


class PID(msgspec.Struct, frozen=True):
    """Follows a set point: proportional to the error, to its sum over time, and against the slope of the measurement.

    It does not wind up: while the output is held back, by a limit or by `slew`, the integral does not grow further that
    way (clamping) and is drawn back to what the output really is (back-calculation), so that it turns as soon as the
    error does. It does not kick: the slope is that of the measurement, so a new set point does not appear in it. It does
    not bump: `retuned` keeps the output where it is under new settings, `Loop.at_rest` takes over from a hand.

    Gains are positive; `sense` says which way to go.
    """

    setpoint: float
    kp: float
    limits: Limits
    ki: float = 0.0
    """Per second."""
    kd: float = 0.0
    """Seconds."""
    band: float = 0.0
    """Errors of at most this much count as none."""
    slew: float = math.inf
    """How much the output may change in a second."""
    smoothing: float = 0.0
    """Seconds over which the slope is averaged, for noisy measurements; 0 takes it as it comes."""
    tracking: float = 0.0
    """Seconds in which the integral follows an output that is held back; 0 chooses kp / ki, at least 1."""
    longest: float = 60.0
    """Seconds: after a longer gap the integral counts this much, and the slope begins anew."""
    sense: Sense = Sense.RAISES
    stale_after: float = STALE_SECONDS

    def __post_init__(self) -> None:
        gains = (self.kp, self.ki, self.kd, self.band, self.smoothing, self.tracking)
        if not all(math.isfinite(gain) and gain >= 0 for gain in gains) or not math.isfinite(self.setpoint):
            raise ValueError(f"a PID needs a finite set point and finite gains ≥ 0; use `sense` for direction: {self}")
        if not (self.slew > 0 and self.longest > 0):
            raise ValueError(f"a PID needs slew > 0 and longest > 0: {self}")

    def decide(self, state: Loop, metric: Metric, now: float) -> Decision[Loop, float]:
        """What to set."""
        output = self.limits.clamp(state.output)
        reading = usable(metric, now, self.stale_after)
        if isinstance(reading, Unknown):
            return Decision(replace(state, output=output), output, f"held: {reading.reason}")
        if state.at is not None and reading.at <= state.at <= now:
            return Decision(replace(state, output=output), output, "held: no newer reading")
        error = self._error(reading.value)
        if state.at is None or state.at > now:  # the first, or the clock was set back
            begun = replace(state, output=output, slope=0.0, measured=reading.value, at=reading.at)
            return self._moved(self._without_bump(begun), error, 0.0)
        seconds = min(reading.at - state.at, self.longest)
        slope = self._slope(state, reading) if reading.at - state.at <= self.longest else 0.0
        seen = replace(state, output=output, slope=slope, measured=reading.value, at=reading.at)
        return self._moved(seen, error, seconds)

    def _moved(self, seen: Loop, error: float, seconds: float) -> Decision[Loop, float]:
        """Integrates and sets the output, as far as it can go in so many seconds."""
        integral = seen.integral + self.ki * error * seconds
        wanted = self.kp * error + integral - seen.slope
        if not math.isfinite(wanted):
            return Decision(replace(seen, slope=0.0), seen.output, f"held: {seen.measured:g} is beyond all measure")
        most = self.slew * seconds if math.isfinite(self.slew) else math.inf
        real = self.limits.clamp(min(seen.output + most, max(seen.output - most, wanted)))
        held_back = wanted - real
        if held_back * error > 0:  # integrating further would only wind up
            integral = seen.integral
        if self.ki:
            integral -= held_back * min(1.0, seconds / (self.tracking or max(1.0, self.kp / self.ki)))
        why = f"{seen.measured:g} measured, {self.setpoint:g} set"
        why += f"; held back by {abs(held_back):g}" if held_back else ""
        return Decision(replace(seen, output=real, integral=self._bounded(integral)), real, why)

    def retuned(self, state: Loop, before: PID) -> Loop:
        """The state under which these settings go on from the output that the settings `before` came to."""
        slope = state.slope * self.kd / before.kd if before.kd else 0.0
        here = replace(state, output=self.limits.clamp(state.output), slope=slope)
        return here if here.at is None else self._without_bump(here)

    def _without_bump(self, state: Loop) -> Loop:
        """The integral that gives the present output. Without integral gain nothing would ever take it back: then none."""
        if not self.ki:
            return state
        return replace(
            state, integral=self._bounded(state.output - self.kp * self._error(state.measured) + state.slope)
        )

    def _error(self, measured: float) -> float:
        """Positive where the output has to go up."""
        error = self.setpoint - measured if self.sense is Sense.RAISES else measured - self.setpoint
        return beyond(error, self.band)

    def _slope(self, state: Loop, reading: Reading) -> float:
        """The part of the output that brakes: how fast the measurement is going where it is being driven."""
        if not self.kd or state.at is None:
            return 0.0
        seconds = reading.at - state.at
        change = reading.value - state.measured if self.sense is Sense.RAISES else state.measured - reading.value
        new = self.kd * change / seconds
        return state.slope + (new - state.slope) * seconds / (self.smoothing + seconds)

    def _bounded(self, integral: float) -> float:
        """Never more than the whole range beyond a limit: the last line of defence against wild readings."""
        span = self.limits.high - self.limits.low
        return min(self.limits.high + span, max(self.limits.low - span, integral))
