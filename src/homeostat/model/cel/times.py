"""The parts of moments and spans: `timestamp.getHours("Europe/Zurich")`, `duration.getSeconds()`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from homeostat.model.cel.overloads import overload
from homeostat.model.cel.standard import quotient
from homeostat.model.cel.values import CelError, Timestamp


def _zone(name: str) -> Any:
    if name[:1] in ("+", "-") or (name[:2].isdigit() and ":" in name):
        hours, _, minutes = name.lstrip("+-").partition(":")
        if hours.isdigit() and minutes.isdigit():
            offset = timedelta(hours=int(hours), minutes=int(minutes))
            return timezone(-offset if name[0] == "-" else offset)
    try:
        return ZoneInfo(name)
    except Exception:
        raise CelError(f"unknown time zone {name}") from None


def _part(name: str, part: Callable[[datetime, int], int]) -> None:
    def get(moment: Timestamp, zone: str = "UTC") -> int:
        at = moment.moment()
        return part(at if zone == "UTC" else at.astimezone(_zone(zone)), moment.nanos)

    overload(f"timestamp.{name}(): int", f"timestamp.{name}(string): int")(get)


_part("getFullYear", lambda t, _: t.year)
_part("getMonth", lambda t, _: t.month - 1)
_part("getDate", lambda t, _: t.day)
_part("getDayOfMonth", lambda t, _: t.day - 1)
_part("getDayOfWeek", lambda t, _: t.isoweekday() % 7)
_part("getDayOfYear", lambda t, _: t.timetuple().tm_yday - 1)
_part("getHours", lambda t, _: t.hour)
_part("getMinutes", lambda t, _: t.minute)
_part("getSeconds", lambda t, _: t.second)
_part("getMilliseconds", lambda t, nanos: nanos // 10**6 % 1000)


def _span(name: str, step: int) -> None:
    overload(f"duration.{name}(): int")(lambda d: quotient(d.nanos, step))


_span("getHours", 3600 * 10**9)
_span("getMinutes", 60 * 10**9)
_span("getSeconds", 10**9)
_span("getMilliseconds", 10**6)
