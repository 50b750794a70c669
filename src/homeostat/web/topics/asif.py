"""`as-if`: what would be done if policies were not frozen any more, or acted. For who is about to let them go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.insight.guarding import as_if
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

PACE_SECONDS = 2.0
"""It reads all fleets: not more often than this."""


async def as_if_let_go(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`policies` (names with commas between), `thawed` and `enforced` ("true"): the `fleets` in which something is open, as it goes on."""
    names, pace = set(filter(None, params.get("policies", "").split(","))), Pace(PACE_SECONDS)

    def heard(kind: str, key: Key | None) -> None:
        pace.changed()

    async with board.viewing():
        with board.listening(heard):
            pace.changed()
            while True:
                await pace.turn()
                yield {"fleets": await as_if(viewer.client, names, thawed=params.get("thawed") == "true", enforced=params.get("enforced") == "true")}
