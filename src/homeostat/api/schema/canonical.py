"""Values of built-in types that can be written in several ways, as upstream's types write them back: times and amounts."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from homeostat.model.quantity import QuantityError, canonical_quantity
from homeostat.model.schema import Schema

MICROSECONDS = "x-homeostat-microseconds"
"""Marks the type of times that are kept to the microsecond; others are kept to the second."""

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,30}))?(Z|[+-]\d\d:\d\d)", re.ASCII).fullmatch
_LAYOUT = "2006-01-02T15:04:05Z07:00"
_PIECES = ("2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05", "Z07:00")
_PATTERNS = {"2006": r"\d{4}", "05": r"\d\d(?:\.\d{1,30})?", "Z07:00": r"Z|[+-]\d\d:\d\d", "-": "-", "T": "T", ":": ":"}


class Unreadable(ValueError):
    """The text means no such value; the message is what Go's decoder says of it."""


def is_canonical(schema: Schema) -> bool:
    """Whether values of the type have one right way to be written."""
    return schema.raw.get("format") in ("date-time", "quantity")


def canonical(schema: Schema, value: Any) -> Any:
    """The value as upstream would write it; `Unreadable` where it means nothing."""
    if schema.raw.get("format") == "quantity":
        try:
            return canonical_quantity(value)
        except QuantityError as problem:
            raise Unreadable(str(problem)) from None
    return _canonical_time(value, MICROSECONDS in schema.raw)


@lru_cache(4096)
def _canonical_time(text: str, to_microseconds: bool) -> str:
    found = _TIME(text)
    if found is None:
        raise Unreadable(f'parsing time "{text}"{_misread(text)}')
    second, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(second + ("+00:00" if zone == "Z" else zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Unreadable(f'parsing time "{text}": {_out_of_range(second)} out of range') from None
    whole = f"{moment.year:04}{moment:-%m-%dT%H:%M:%S}"
    return f"{whole}.{(fraction or '')[:6]:0<6}Z" if to_microseconds else f"{whole}Z"


def _misread(text: str) -> str:
    """Where a text stops to be a time."""
    rest = text
    for piece in _PIECES:
        found = re.match(_PATTERNS.get(piece, r"\d\d"), rest, re.ASCII)
        if found is None:
            return f' as "{_LAYOUT}": cannot parse "{rest}" as "{piece}"'
        rest = rest[found.end() :]
    return f': extra text: "{rest}"'


def _out_of_range(second: str) -> str:
    """The part of a time that no calendar has."""
    month, hour, minute, of_minute = (int(second[at : at + 2]) for at in (5, 11, 14, 17))
    for part, value, most in (("hour", hour, 23), ("minute", minute, 59), ("second", of_minute, 59)):
        if value > most:
            return part
    return "day" if 1 <= month <= 12 else "month"
