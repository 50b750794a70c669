"""`audit`: who did what, newest first, and then as it happens. For those who may get `/homeostat/audit`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from homeostat.api.audit import Record
from homeostat.api.auditread import PATH, by_people, is_question, last
from homeostat.model.errors import ApiError
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

LIMIT = 1000
"""Records that are told at first."""
WAITING = 2000
"""Records that may wait to be told; the oldest make room, and stand in the log all the same."""


async def audit(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`records` (with `whole` at first); with `machines` also what the server's own parts did."""
    log, pace, machines = viewer.audit, Pace(0.25), params.get("machines") == "true"
    if log is None or not viewer.reads(PATH):
        raise ApiError(403, "Forbidden", f"the audit log is for those who may get {PATH}: a ClusterRole with nonResourceURLs [{PATH}] lets you")
    waiting: deque[Record] = deque(maxlen=WAITING)
    loop = asyncio.get_running_loop()

    def heard(record: Record) -> None:  # in whatever thread a request is answered
        waiting.append(record)
        loop.call_soon_threadsafe(pace.changed)

    def wanted(said: dict[str, Any]) -> bool:
        return (machines or by_people(said)) and not is_question(said)

    log.listeners.add(heard)
    try:
        yield {"whole": True, "records": await last(log, LIMIT, wanted)}
        while True:
            await pace.turn()
            if not viewer.reads(PATH):
                raise ApiError(403, "Forbidden", "you may no longer read the audit log")
            told = [said for said in (orjson.loads(waiting.popleft().line()) for _ in range(len(waiting))) if wanted(said)]
            if told:
                yield {"records": told}
    finally:
        log.listeners.discard(heard)
