"""Lengths of time as Kubernetes writes them: `1h30m`, `250ms`, `0s`."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Annotated

from msgspec import Meta

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_AMOUNT = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_PARTS = re.compile(rf"({_AMOUNT})(ns|us|µs|μs|ms|s|m|h)").findall
PATTERN = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
"""What `parse_duration` reads, as a pattern for RE2."""
_BOUNDED = {
    "pattern": r"^[+]?(0|([0-9]{1,6}(\.[0-9]{1,6})?h|[0-9]{1,7}(\.[0-9]{1,6})?m|[0-9]{1,9}(\.[0-9]{1,6})?s|[0-9]{1,12}(\.[0-9]{1,3})?ms|[0-9]{1,15}[uµμ]s)+)$",
    "maxLength": 20,
}
"""No longer than `parse_duration` reads, nor finer: what a server lets in must be readable, for what is not holds up its fleet."""
_SOME = {"pattern": "^[^-1-9]*[1-9].*$", "allOf": [_BOUNDED]}
Span = Annotated[timedelta, Meta(extra_json_schema=_BOUNDED)]
"""A length of time for a field of a spec that cannot be below nothing; up to 114 years."""
Length = Annotated[timedelta, Meta(extra_json_schema=_SOME)]
"""A length of time for a field of a spec that is more than nothing; up to 114 years."""
_WHOLE = re.compile(PATTERN[:-1]).fullmatch
_LONGEST_TEXT = 64
_LARGEST = 2**63


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> timedelta:
    """Reads a duration as Go does. ValueError where it is none, or finer than the microseconds that Python has."""
    if len(text) > _LONGEST_TEXT or not _WHOLE(text):
        raise ValueError('a duration is written like "1h30m", "45s" or "250ms"')
    nanoseconds = sum(Decimal(amount) * _NANOSECONDS[unit] for amount, unit in _PARTS(text))
    if nanoseconds >= _LARGEST:
        raise ValueError("a duration is at most about 292 years")
    if nanoseconds % 1000:
        raise ValueError("a duration is a whole number of microseconds")
    span = timedelta(microseconds=int(nanoseconds) // 1000)
    return -span if text.startswith("-") else span


def format_duration(span: timedelta) -> str:
    """The one way in which Go writes a duration: `1h30m0s`, `1.5s`, `250ms`."""
    micros = span // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    if micros == 0:
        return "0s"
    if micros < 1000:
        return f"{sign}{micros}µs"
    if micros < 1_000_000:
        return f"{sign}{_decimal(micros, 1000)}ms"
    minutes, rest = divmod(micros, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    head = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{head}{_decimal(rest, 1_000_000)}s"


def _decimal(amount: int, unit: int) -> str:
    whole, rest = divmod(amount, unit)
    fraction = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{fraction}" if fraction else str(whole)
