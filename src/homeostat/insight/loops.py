"""Which kinds a loop keeps at present, by the leases that loops renew. Where none does, what objects say of themselves is from before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from homeostat.insight.words import ago
from homeostat.loop.election import LAST_PASS, PREFIX, TROUBLE
from homeostat.model.clock import parse_time

SILENT_SECONDS = 30.0
"""A loop that has not renewed its lease for so long is not there."""

Object = dict[str, Any]


class Keeping(msgspec.Struct, frozen=True):
    """What is known of the loop of one kind: whether it is `there`, when it was last `heard` of, when its last whole pass ended, and, where it
    lives and cannot keep the kind, why (`trouble`)."""

    there: bool
    heard: float = 0.0
    last_pass: float = 0.0
    trouble: str = ""


NOBODY = Keeping(there=False)


def loops_of(leases: Iterable[Object], now: float) -> dict[str, Keeping]:
    """By kind, all that ever had a loop. Of clocks that differ, the one that is ahead counts."""
    found = [lease for lease in leases if _of_a_loop(lease)]
    now = clock_of(found, now)
    return {lease["metadata"]["name"].removeprefix(PREFIX): _keeping(lease, now) for lease in found}


def _keeping(lease: Object, now: float) -> Keeping:
    heard, spec = renewed(lease), lease.get("spec") or {}
    notes = lease["metadata"].get("annotations") or {}
    told, lives = notes.get(LAST_PASS), bool(spec.get("holderIdentity")) and now - heard <= SILENT_SECONDS
    trouble = notes.get(TROUBLE, "") if lives else ""
    return Keeping(lives and not trouble, heard, parse_time(told) if told else 0.0, trouble)


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
    found = [
        f"the loop cannot keep {kind}: what is said of that is from before, and nothing is done; it tries again ({one.trouble})"
        for kind, one in sorted(unkept.items())
        if one.trouble
    ]
    silent = {kind: one for kind, one in unkept.items() if not one.trouble}
    if not silent:
        return found
    long = ago(now - max(one.heard for one in silent.values()))
    return [
        *found,
        f"no loop has kept {', '.join(sorted(silent))} for {long}: what is said of that is from before, and nothing is done",
        "`homeostat up` or `homeostat controllers` runs one; `homeostat doctor` looks for what is wrong",
    ]
