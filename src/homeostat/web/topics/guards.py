"""`guards`: one policy, the fleets that it guards, how near they are to its limits, and the plans that it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.guards.policy import GROUP, KIND, VERSION
from homeostat.insight.guarding import guarded
from homeostat.model.errors import ApiError
from homeostat.web.board import Board
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer

PACE_SECONDS = 1.0
"""It reads the whole fleet: not more often than this."""


async def guards(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`policy`: the object and its `fleets`, and again whenever something in them moved; null where there is no such policy."""
    pace, policies = Pace(PACE_SECONDS), viewer.client.kind(f"{GROUP}/{VERSION}", KIND)

    def heard(kind: str, key: Key | None) -> None:
        pace.changed()

    async with board.viewing():
        with board.listening(heard):
            pace.changed()
            while True:
                await pace.turn()
                try:
                    policy = await policies.get(params["policy"])
                except ApiError as error:
                    if error.code != 404:
                        raise
                    yield {"policy": None, "fleets": []}
                    continue
                policy["metadata"].pop("managedFields", None)
                yield {"policy": policy, "fleets": await guarded(viewer.client, policy)}
