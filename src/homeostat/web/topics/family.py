"""`family`: a resource and all that it owns, each with how it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.insight.family import family
from homeostat.model.errors import ApiError
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

PACE_SECONDS = 2.0
"""It asks for every kind there is: not more often than this."""


async def whole_family(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`kind` (plural.group), `namespace`, `name`: `root` with its children, and again whenever something that the loop keeps moved."""
    pace, told = Pace(PACE_SECONDS), None

    def heard(kind: str, key: Key | None) -> None:
        pace.changed()

    async with board.viewing():
        kind = board.kinds.get(params["kind"])
        if kind is None:
            raise ApiError(404, "NotFound", f"the loop keeps no kind {params['kind']!r}")
        with board.listening(heard):
            pace.changed()
            while True:
                await pace.turn()
                try:
                    found = await family(viewer.client, kind, params["name"], params.get("namespace", ""))
                except ApiError as error:
                    if error.code != 404:
                        raise
                    found = None
                if found != told:
                    told = found
                    yield {"root": found}
