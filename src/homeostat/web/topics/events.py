"""`events`: what was said of things, newest last."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

LIMIT = 2000
"""How many of the latest are told at first."""


async def events(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """All that one may see, or with `uid` those of one object: `events` at first and then as they come."""
    fields = f"involvedObject.uid={params['uid']}" if params.get("uid") else ""
    resource = viewer.client.kind("v1", "Event")
    pace, waiting = Pace(), dict[Any, None]()

    def heard(key: Any) -> None:
        waiting[key] = None
        pace.changed()

    await resource.list(namespace=params.get("namespace", ""), fields=fields, page=1)
    async with resource.informer(namespace=params.get("namespace", ""), fields=fields) as informer:
        await informer.wait_synced()
        end = informer.subscribe(heard)
        try:
            found = sorted((_event(one) for one in informer.all()), key=lambda one: str(one["at"]))
            yield {"events": found[-LIMIT:], "whole": True}
            while True:
                await pace.turn()
                keys, waiting = list(waiting), {}
                now = (informer.at(key) for key in keys)
                if told := [_event(one) for one in now if one is not None]:
                    yield {"events": told}
        finally:
            end()


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    about = event.get("involvedObject") or {}
    series = event.get("series") or {}
    at = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp")
    return {
        "id": event["metadata"]["uid"],
        "at": at or "",
        "type": event.get("type", ""),
        "reason": event.get("reason", ""),
        "message": event.get("message", ""),
        "count": series.get("count") or event.get("count") or 1,
        "by": event.get("reportingComponent") or (event.get("source") or {}).get("component", ""),
        "about": {name: about.get(name, "") for name in ("apiVersion", "kind", "namespace", "name", "uid")},
    }
