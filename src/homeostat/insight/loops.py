"""Which kinds a loop keeps at present, by the leases that loops renew. Where none does, what objects say of themselves is from before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from homeostat.insight.words import ago
from homeostat.loop.election import LAST_PASS, PREFIX
from homeostat.model.clock import parse_time

SILENT_SECONDS = 30.0
"""A loop that has not renewed its lease for so long is not there."""

Object = dict[str, Any]


class Keeping(msgspec.Struct, frozen=True):
    """What is known of the loop of one kind: whether it is `there`, when it was last `heard` of, and when its last whole pass ended."""

    there: bool
    heard: float = 0.0
    last_pass: float = 0.0


NOBODY = Keeping(there=False)


def loops_of(leases: Iterable[Object], now: float) -> dict[str, Keeping]:
    """By kind, all that ever had a loop. Of clocks that differ, the one that is ahead counts."""
    found = [lease for lease in leases if _of_a_loop(lease)]
    now = clock_of(found, now)
    return {lease["metadata"]["name"].removeprefix(PREFIX): _keeping(lease, now) for lease in found}


def _keeping(lease: Object, now: float) -> Keeping:
    heard, spec = renewed(lease), lease.get("spec") or {}
    told = (lease["metadata"].get("annotations") or {}).get(LAST_PASS)
    there = bool(spec.get("holderIdentity")) and now - heard <= SILENT_SECONDS
    return Keeping(there, heard, parse_time(told) if told else 0.0)


def clock_of(leases: Iterable[Object], now: float) -> float:
    """Of clocks that differ, ours and those of loops, the one that is ahead. Those of agents do not count: loops do not go by them either."""
    return max([now, *(renewed(lease) for lease in leases if _of_a_loop(lease))])


def _of_a_loop(lease: Object) -> bool:
    return bool(lease["metadata"]["name"].startswith(PREFIX))


def renewed(lease: Object) -> float:
    """When its holder last said that it lives."""
    text = (lease.get("spec") or {}).get("renewTime")
    return parse_time(text) if text else 0.0


def unkept_lines(unkept: Mapping[str, Keeping], now: float) -> list[str]:
    """That nobody keeps these kinds, and what follows from that; nothing where there are none."""
    if not unkept:
        return []
    silent = ago(now - max(one.heard for one in unkept.values()))
    return [
        f"no loop has kept {', '.join(sorted(unkept))} for {silent}: what is said of that is from before, and nothing is done",
        "`homeostat up` or `homeostat controllers` runs one; `homeostat doctor` looks for what is wrong",
    ]
