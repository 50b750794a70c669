"""From an object to the row that a list shows: how it stands, in one word, and why."""

from __future__ import annotations

from typing import Any

import msgspec

from homeostat.client import Metadata
from homeostat.loop.standing import Standing, judged

MESSAGE_CHARACTERS = 300


class Condition(msgspec.Struct, rename="camel"):
    """What the loop says of one side of a resource."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: str = ""


class Line(msgspec.Struct, rename="camel"):
    """An open difference, as a status has it."""

    op: str = ""
    cause: str = ""
    since: str = ""
    change_set: str = ""
    paths: list[str] = []


class Status(msgspec.Struct, rename="camel"):
    """The part of a status that lists show."""

    conditions: list[Condition] = []
    drift: Line | None = None
    observed_at: str = ""
    converged_seconds: float | None = None


class Resource(msgspec.Struct):
    """A resource as the board keeps it: small, whatever else it holds."""

    metadata: Metadata
    status: Status | None = None


def standing(resource: Resource) -> tuple[Standing, Condition | None]:
    """How a resource stands, and the condition that says so. What was said of an older declaration says nothing of this one."""
    status, generation = resource.status, resource.metadata.generation
    if status is None:
        return Standing.UNKNOWN, None
    said = {c.type: c for c in status.conditions if c.observed_generation in (None, generation)}
    ready, degraded = said.get("Ready"), said.get("Degraded")
    if ready is None:
        return Standing.PROGRESSING if status.conditions else Standing.UNKNOWN, None
    how = judged(ready.status, ready.reason, degraded is not None and degraded.status == "True")
    return how, degraded if how is Standing.DEGRADED else ready


def row_of(resource: Resource) -> dict[str, Any]:
    """What a list shows of a resource."""
    how, why = standing(resource)
    meta, status = resource.metadata, resource.status or Status()
    row: dict[str, Any] = {"namespace": meta.namespace, "name": meta.name, "standing": str(how)}
    if why is not None and how is not Standing.CONVERGED:
        row |= {"reason": why.reason, "message": why.message[:MESSAGE_CHARACTERS]}
    if why is not None and why.last_transition_time:
        row["since"] = why.last_transition_time
    if status.drift is not None:
        row["drift"] = msgspec.to_builtins(status.drift)
    if status.observed_at:
        row["observedAt"] = status.observed_at
    if meta.deletion_timestamp:
        row["deleting"] = True
    return row
