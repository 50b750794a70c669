"""`explain`: why a resource is as it is, in plain words, from what was seen to what comes next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.insight.chain import Chain
from homeostat.insight.fleets import look
from homeostat.model.errors import ApiError
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

PACE_SECONDS = 2.0
"""It reads the whole fleet, for guards judge it as a whole: not more often than this."""


async def explain(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`kind` (plural.group), `namespace`, `name`: the `chain` of its last decision, null where it is not there."""
    pace, name = Pace(PACE_SECONDS), params["kind"]

    def heard(kind: str, key: Key | None) -> None:
        if kind == name:
            pace.changed()

    async with board.viewing():
        kind = board.kinds.get(name)
        if kind is None:
            raise ApiError(404, "NotFound", f"the loop keeps no kind {name!r}")
        with board.listening(heard):
            pace.changed()
            while True:
                await pace.turn()
                view = await look(viewer.client, [kind])
                wanted = (params.get("namespace", ""), params["name"])
                ref = next((ref for ref in view.objects if (ref.namespace, ref.name) == wanted), None)
                yield {"chain": None if ref is None else Chain(view, ref).data()}
