"""How a resource stands, in one word, by what its status says: for lists, tables and dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Standing(StrEnum):
    """How a resource stands."""

    CONVERGED = "converged"
    PROGRESSING = "progressing"
    HELD = "held"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"


URGENCY = {Standing.DEGRADED: 0, Standing.HELD: 1, Standing.UNKNOWN: 2, Standing.PROGRESSING: 3, Standing.CONVERGED: 4}
"""What people want to see first."""


def judged(ready: str, reason: str, degraded: bool) -> Standing:
    """By the status and reason of the condition Ready, and whether Degraded is true."""
    if ready == "True":
        return Standing.CONVERGED
    if ready == "Unknown":
        return Standing.UNKNOWN
    if reason in ("Held", "ObjectsHeld"):  # the second is a Sync's
        return Standing.HELD
    return Standing.DEGRADED if degraded else Standing.PROGRESSING


def standing(obj: Mapping[str, Any]) -> tuple[Standing, Mapping[str, Any]]:
    """How an object stands, and the condition that says so. What was said of an older declaration says nothing of this one."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    generation = obj["metadata"].get("generation")
    said = {c["type"]: c for c in conditions if c.get("observedGeneration") in (None, generation)}
    ready, degraded = said.get("Ready"), said.get("Degraded") or {}
    if ready is None:
        return (Standing.PROGRESSING if conditions else Standing.UNKNOWN), {}
    how = judged(ready["status"], ready.get("reason", ""), degraded.get("status") == "True")
    return how, degraded if how is Standing.DEGRADED else ready
