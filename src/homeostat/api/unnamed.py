"""Change sets that nobody named: what one writer wrote without a longer pause, called by who and when (`kubectl-edit@2026-01-31T12:00:00Z`).

The loop calls them so (`loop.changesets`), by the managed fields of what it sees; here they are found again in the log, by the same
rule. So they are known for as long as the log is kept, and without deletions, of which nothing says by whom they were.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api.history import same_declaration
from homeostat.model.clock import format_time, parse_time
from homeostat.model.errors import ApiError

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane
    from homeostat.store import Event

WINDOW, LONGEST = 2.0, 300.0
"""Seconds between two writes up to which they belong together, and from the first to the last; as the loop has it."""

Object = dict[str, Any]


def manager_of(obj: Object, old: Object | None) -> Object:
    """The managed fields of who wrote last: of those whose entry is not as it was, or who has the newest.

    Times are in seconds, and who loses a field has another entry too: who was not there before is who wrote.
    """
    known = (old or {}).get("metadata", {}).get("managedFields") or []
    entries = obj["metadata"].get("managedFields") or []
    new = [entry for entry in entries if entry not in known] or entries
    there = {entry.get("manager") for entry in known}
    found: Object = max(new, key=lambda entry: (entry.get("time", ""), entry.get("manager") not in there), default={})
    return found


async def touched(plane: ControlPlane, name: str) -> AsyncIterator[tuple[str, int]]:
    """Which keys it declared, and at which revisions."""
    by, _, text = name.rpartition("@")
    try:
        start = parse_time(text)
    except ValueError:
        return
    writes = [write async for write in _writes(plane, by, start)] if by else []
    for key, revision in _together(writes, start):
        yield key, revision


async def _writes(plane: ControlPlane, by: str, start: float) -> AsyncIterator[tuple[float, str, int]]:
    """What this writer declared around that time: when, which key, which revision."""
    word, end = orjson.dumps(by), start + LONGEST
    try:
        reached = max(plane.store.compacted, 1, await plane.history.revision_at(format_time(start - LONGEST)))
    except ApiError:  # that long ago nothing is known
        reached = max(plane.store.compacted, 1)
    with plane.history.held(reached):
        while reached < plane.store.revision:
            events, reached = await plane.store.since("", reached, 1000)
            for event in events:
                if event.value is not None and word in event.value and (at := _declared_at(event, by)) and start - LONGEST <= at <= end:
                    yield at, event.key, event.revision


def _declared_at(event: Event, by: str) -> float:
    """When this writer declared something by this change; 0 where it did not."""
    assert event.value is not None
    if event.previous is not None and same_declaration(event.previous, event.value):
        return 0.0
    entry = manager_of(orjson.loads(event.value), orjson.loads(event.previous) if event.previous is not None else None)
    if entry.get("manager") != by or entry.get("subresource"):
        return 0.0
    try:
        return parse_time(entry.get("time", ""))
    except ValueError:
        return 0.0


def _together(writes: list[tuple[float, str, int]], start: float) -> list[tuple[str, int]]:
    """Those that are chained to the one at `start` without a longer pause."""
    chains: list[list[tuple[float, str, int]]] = []
    ordered = sorted(writes)
    for before, write in pairwise([None, *ordered]):
        assert write is not None
        if before is not None and write[0] - before[0] <= WINDOW and write[0] - chains[-1][0][0] <= LONGEST:
            chains[-1].append(write)
        else:
            chains.append([write])
    found = next((chain for chain in chains if any(at == start for at, _, _ in chain)), [])
    return [(key, revision) for _, key, revision in found]
