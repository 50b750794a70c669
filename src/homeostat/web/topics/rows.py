"""`rows`: all resources of a kind, in one line each; then those that change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from homeostat.client import Key
from homeostat.model.errors import ApiError
from homeostat.web.board import Board
from homeostat.web.standing import row_of
from homeostat.web.topics.pace import Pace
from homeostat.web.viewer import Viewer


async def rows(viewer: Viewer, board: Board, params: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """`kind` (plural.group): `whole` at first, then `rows` that are new or changed and the keys of those that are `gone`."""
    name, pace = params.get("kind", ""), Pace()
    waiting: dict[Key, None] = {}

    def heard(kind: str, key: Key | None) -> None:
        if kind == name and key is not None:
            waiting[key] = None
            pace.changed()

    async with board.viewing():
        kind = board.kinds.get(name)
        if kind is None:
            raise ApiError(404, "NotFound", f"the loop keeps no kind {name!r}")
        informer = board.rows[name]
        with board.listening(heard):
            found = informer.all()
            yield {"whole": [row_of(one) for one in found if viewer.sees(kind, one.metadata.namespace)]}
            while True:
                await pace.turn()
                keys, waiting = list(waiting), {}
                seen = [key for key in keys if viewer.sees(kind, key.namespace)]
                now = {key: informer.at(key) for key in seen}
                changed = [row_of(one) for one in now.values() if one is not None]
                gone = [[key.namespace, key.name] for key, one in now.items() if one is None]
                if changed or gone:
                    yield {"rows": changed, "gone": gone}
