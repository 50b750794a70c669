"""How often a limit would have tripped: a limit that somebody thinks of, held against samples of how a fleet went."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.loop.fleet import share

GAP_SECONDS = 60.0
"""Samples further apart than this say nothing of what was between them."""
_LIMIT = re.compile(r"(\d{1,9})(%?)")


def limit_of(text: str) -> int | str:
    """A limit as people write it: `3` or `10%`. `ValueError` for all else."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None or (found[2] and int(found[1]) > 100):
        raise ValueError(f"{text!r} is no limit: a count such as 3, or a share of the fleet such as 10%")
    return f"{int(found[1])}%" if found[2] else int(found[1])


def trips(series: Mapping[str, Sequence[float]], figure: str, limit: int | str, fleet_of: int = 0) -> dict[str, Any]:
    """How often `figure` went above a limit, for how many seconds in all, and the most there was (with the limit of that moment).

    A time above the limit that lasts over several samples is one trip. What was between two samples nobody knows.
    """
    times, sizes, values = series["at"], series["size"], series[figure]
    count, seconds, worst, above = 0, 0.0, (0.0, 0, 0.0), False
    for index, (at, size, value) in enumerate(zip(times, sizes, values, strict=True)):
        allowed = share(limit, int(size))
        is_above = value > allowed and size >= fleet_of
        count += is_above and not above
        if is_above and index + 1 < len(times) and times[index + 1] - at <= GAP_SECONDS:
            seconds += times[index + 1] - at
        if is_above and value > worst[0]:
            worst = (value, allowed, at)
        above = is_above
    return {"times": count, "seconds": round(seconds), "most": int(worst[0]), "limit": worst[1], "at": worst[2]}


def happened(series: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """How often, and for how long, guards did halt the fleet in the same time."""
    return trips({"at": series["at"], "size": series["size"], "halts": series["halts"]}, "halts", 0)
