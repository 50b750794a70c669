"""`trips`: how often other limits of a policy would have tripped in the last day, as far as it was watched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.guards.policy import KIND
from homeostat.insight.trips import happened, limit_of, trips
from homeostat.model.errors import ApiError
from homeostat.web.board import Board
from homeostat.web.series import EVERY_SECONDS
from homeostat.web.topics.fleet import POLICIES
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

FIGURES = {"massDrift": "drifted", "unknown": "unknown", "cap": "acted"}


async def limit_trips(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`policy` and any of `massDrift`, `unknown`, `cap` (`3` or `10%`), `fleetOf`: `trips` by limit, again as samples come."""
    name, pace = params["policy"], Pace(EVERY_SECONDS)
    limits = {word: limit_of(params[word]) for word in FIGURES if params.get(word)}
    fleet_of = int(params.get("fleetOf") or 0)
    if not viewer.sees(POLICIES):
        raise ApiError(403, "Forbidden", "you may not list guardpolicies")

    def heard(kind: str, key: Key | None) -> None:
        if kind == KIND and key is not None and key.name == name:
            pace.changed()

    with board.listening(heard):
        pace.changed()
        while True:
            await pace.turn()
            samples = board.series[name].since() if name in board.series else {"at": []}
            if not samples["at"]:
                yield {"since": None, "samples": 0, "trips": {}, "happened": None}
                continue
            found = {word: trips(samples, FIGURES[word], limit, fleet_of if word == "massDrift" else 0) for word, limit in limits.items()}
            yield {"since": samples["at"][0], "samples": len(samples["at"]), "every": EVERY_SECONDS, "trips": found, "happened": happened(samples)}
