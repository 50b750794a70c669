"""`status.conditions`: finding them, setting them, and what they say of an object in one word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Condition = dict[str, Any]


def find_condition(obj: Mapping[str, Any], kind: str) -> Condition | None:
    """The condition of this type, or None."""
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            found: Condition = condition
            return found
    return None


def condition_is(obj: Mapping[str, Any], kind: str, status: str = "True") -> bool:
    """Whether the condition is there and has this status."""
    condition = find_condition(obj, kind)
    return condition is not None and condition.get("status") == status


def set_condition(
    obj: dict[str, Any],
    kind: str,
    status: str,
    *,
    now: str,
    reason: str,
    message: str = "",
    observed_generation: int | None = None,
) -> bool:
    """Sets one condition in place and tells whether anything changed.

    `now` (RFC 3339) becomes `lastTransitionTime` only when `status` changes: a new reason or message is no transition.
    """
    conditions: list[Condition] = obj.setdefault("status", {}).setdefault("conditions", [])
    wanted: Condition = {"type": kind, "status": status, "reason": reason, "message": message}
    if observed_generation is not None:
        wanted["observedGeneration"] = observed_generation
    for index, present in enumerate(conditions):
        if present.get("type") == kind:
            same = present.get("status") == status
            wanted["lastTransitionTime"] = present.get("lastTransitionTime", now) if same else now
            if present == wanted:
                return False
            conditions[index] = wanted
            return True
    wanted["lastTransitionTime"] = now
    conditions.append(wanted)
    return True


def summary(obj: Mapping[str, Any]) -> str:
    """How far an object is, as kstatus puts it: `Terminating`, `InProgress`, `Failed` or `Current`."""
    metadata, status = obj.get("metadata") or {}, obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata.get("generation", observed):
        return "InProgress"
    if not status.get("conditions"):
        return "Current"
    if condition_is(obj, "Stalled"):
        return "Failed"
    if condition_is(obj, "Reconciling"):
        return "InProgress"
    ready = find_condition(obj, "Ready")
    if ready is not None and ready.get("status") != "True":
        return "InProgress"
    return "Current"
