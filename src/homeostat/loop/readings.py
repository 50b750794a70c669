"""Readings: what a sensor says, and when; or that it said nothing (`Unknown`), and why."""

from __future__ import annotations

import math
from typing import Protocol, TypeAlias

import msgspec

from homeostat.loop.observation import Unknown


class Reading(msgspec.Struct, frozen=True):
    """A number that was measured, and when (seconds, wall clock)."""

    value: float
    at: float


Metric: TypeAlias = Reading | Unknown
"""A number, or why there is none. Unknown is not zero, and nothing is decided on it."""


class MetricSource(Protocol):
    """Where a number comes from: an endpoint, an expression over objects, a device."""

    async def read(self) -> Metric:
        """Reads it now. Raises nothing: what goes wrong is `Unknown`."""


def usable(metric: Metric, now: float, stale_after: float) -> Metric:
    """The reading if a decision may rest on it: finite, and no older than `stale_after` seconds. Else why not."""
    if isinstance(metric, Unknown):
        return metric
    if not math.isfinite(metric.value):
        return Unknown(f"the value is {metric.value}")
    if now - metric.at > stale_after:
        return Unknown(f"the last reading is more than {stale_after:g} s old")  # the same each time: it goes into a status
    return metric


def rate(before: Metric, after: Metric) -> Metric:
    """By how much a counter grew a second between two readings. A counter that fell was begun anew, from 0."""
    if isinstance(before, Unknown):
        return Unknown(f"a rate takes two readings, and the first is missing: {before.reason}")
    if isinstance(after, Unknown):
        return after
    seconds = after.at - before.at
    if seconds <= 0:
        return Unknown("a rate takes two readings, and both are of the same time")
    grown = after.value - before.value if after.value >= before.value else after.value
    return Reading(grown / seconds, after.at)
