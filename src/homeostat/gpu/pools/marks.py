"""What is the matter with a node beside its GPUs, as conditions: its disk, and its clock. Pure functions of plain objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from homeostat.gpu.cycle import span
from homeostat.model.clock import format_time
from homeostat.model.conditions import condition_is, set_condition

Object = Mapping[str, Any]
DISK, CLOCK = "DiskPressure", "ClockSkewed"
WRONG = (DISK, CLOCK)
"""Conditions of a GpuNode that are True where something is wrong."""
_REASONS = {DISK: ("CannotWrite", "CanWrite"), CLOCK: ("WrongTime", "RightTime")}
_CLOCK = "its clock is {}: readings of its GPUs count as old, and nothing on it is taken for idle. Set it, by NTP say"


def off_by(skew: float) -> str:
    """How wrong a clock is, in words: by so many seconds behind the server's, ahead of it where negative."""
    return f"{span(abs(skew))} {'behind' if skew > 0 else 'ahead of'} the server's"


def is_off(skew: float, stale_after: float) -> bool:
    """Whether readings count as old by this clock alone: nothing is ever taken for idle by them."""
    return not math.isnan(skew) and abs(skew) > stale_after


def marked(node: Object, trouble: str, skew: float, stale_after: float, now: float) -> list[dict[str, Any]] | None:
    """The conditions of a node with what is wrong now, or is no longer; None where that changes nothing. How wrong a clock is, is said as it was
    found."""
    off = is_off(skew, stale_after)
    told = {kind for kind in WRONG if condition_is(node, kind)}
    if not (trouble or off or told):
        return None
    built: dict[str, Any] = {"status": {"conditions": [dict(one) for one in (node.get("status") or {}).get("conditions") or ()]}}
    wrongs = {DISK: trouble} if CLOCK in told and off else {DISK: trouble, CLOCK: _CLOCK.format(off_by(skew)) if off else ""}
    changed = False
    for kind, wrong in wrongs.items():
        if wrong or kind in told:
            reason = _REASONS[kind][not wrong]
            changed |= set_condition(built, kind, str(bool(wrong)), now=format_time(now), reason=reason, message=wrong)
    return built["status"]["conditions"] if changed else None
