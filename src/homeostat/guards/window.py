"""Window: when a fleet may be acted on.

    windows:
    - allow: [{days: Mon-Fri, hours: "08:00-18:00", timezone: Europe/Zurich}]
    - deny: [{days: Fri, hours: "15:00-24:00", timezone: Europe/Zurich}]

The first moment of a span belongs to it, the last does not. Hours are those of the wall clock of the time zone, also on
the days on which it is put forward or back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from homeostat.loop.fleet import Fleet, Verdict
from homeostat.model.clock import format_time

if TYPE_CHECKING:
    from homeostat.guards.policy import GuardPolicy, Hours, Window

GUARD = "window"
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LOOK_AHEAD = 8  # days: every span of a week begins and ends in them
_DAY = 86400


class _Span(NamedTuple):
    days: frozenset[int]
    begin: int  # minutes after midnight
    end: int
    zone: tzinfo


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds everything while a window is closed, until it opens."""
    if not policy.windows or is_open(policy.windows, now):
        return
    opens = opens_at(policy.windows, now)
    when = f"it opens at {format_time(opens)}" if opens else "none opens within a week"
    verdict.hold_all(GUARD, f"outside the window in which {fleet.name} may be acted on; {when}", opens)


def is_open(windows: Iterable[Window], now: float) -> bool:
    """Whether all of them are open at this time (wall seconds)."""
    for window in windows:
        if window.allow and not any(_contains(hours, now) for hours in window.allow):
            return False
        if any(_contains(hours, now) for hours in window.deny):
            return False
    return True


def opens_at(windows: tuple[Window, ...], now: float) -> float:
    """When all of them are next open, in wall seconds; 0 where that is more than a week away."""
    spans = [_span(hours) for window in windows for hours in (*window.allow, *window.deny)]
    edges = {edge for span in spans for edge in _edges(span, now)}
    return next((edge for edge in sorted(edges) if is_open(windows, edge)), 0.0)


def problem(hours: Hours) -> str | None:
    """What is wrong with a span that has the right form."""
    try:
        _span(hours)
    except (KeyError, ValueError, OSError):
        return "this is not a time zone; they are named like UTC or Europe/Zurich"
    return None


def _contains(hours: Hours, now: float) -> bool:
    span = _span(hours)
    here = datetime.fromtimestamp(now, span.zone)
    day, minute = here.weekday(), here.hour * 60 + here.minute
    if span.begin < span.end:
        return day in span.days and span.begin <= minute < span.end
    return (day in span.days and minute >= span.begin) or ((day - 1) % 7 in span.days and minute < span.end)


def _edges(span: _Span, now: float) -> Iterator[float]:
    """The times at which the span may begin or end, from now on: its hours, also where the clock shows them twice, and when the clock is put
    past one of them."""
    today = datetime.fromtimestamp(now, span.zone).date()
    for offset in range(_LOOK_AHEAD + 1):
        for minutes in (span.begin, span.end):
            days, minute = divmod(minutes, 24 * 60)
            shown = datetime.combine(today + timedelta(days=offset + days), time(minute // 60, minute % 60), span.zone)
            for edge in {shown.timestamp(), shown.replace(fold=1).timestamp()}:
                if edge > now:
                    yield edge
        if (put := _clock_put(span.zone, int(now) + offset * _DAY)) > now:
            yield put


def _clock_put(zone: tzinfo, begin: int) -> float:
    """When the clock of a zone is put forward or back within a day from then; 0 where it is not."""
    end = begin + _DAY
    before = datetime.fromtimestamp(begin, zone).utcoffset()
    if datetime.fromtimestamp(end, zone).utcoffset() == before:
        return 0.0
    while end - begin > 1:
        middle = (begin + end) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == before:
            begin = middle
        else:
            end = middle
    return float(end)


def _span(hours: Hours) -> _Span:
    return _read(hours.days, hours.hours, hours.timezone)


@lru_cache(maxsize=1024)
def _read(days: str, hours: str, timezone: str) -> _Span:
    from zoneinfo import ZoneInfo  # few policies have windows, and every start would load it

    begin, end = (int(clock[:2]) * 60 + int(clock[3:]) for clock in hours.split("-"))
    return _Span(frozenset(_weekdays(days)), begin, end, ZoneInfo(timezone))


def _weekdays(days: str) -> Iterator[int]:
    for part in days.split(","):
        first, _, last = part.partition("-")
        begin, end = _DAYS.index(first), _DAYS.index(last or first)
        yield from ((begin + step) % 7 for step in range((end - begin) % 7 + 1))
