"""Memory that follows the store: who needs to know of a kind is told of each of its changes, right after the commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from homeostat.store import Event, Store

log = logging.getLogger("homeostat.api")

Handler = Callable[[Event], None]
_PAGE = 1000


class Follower:
    """Tells handlers of changes, by kind. Handlers must be quick; one that fails is logged and does not harm the rest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_kind: dict[str, list[Handler]] = {}
        self._all: list[Handler] = []
        self._end = store.subscribe(self._deliver)

    def _deliver(self, events: Sequence[Event], revision: int) -> None:
        for event in events:
            kind = event.key[: event.key.index("/") + 1]
            for handler in (*self._by_kind.get(kind, ()), *self._all):
                try:
                    handler(event)
                except Exception:
                    log.exception("a follower failed on %s", event)

    async def follow(self, prefix: str, handler: Handler) -> None:
        """Gives the handler everything there is of a kind, as creations, and every change from then on."""
        self._by_kind.setdefault(prefix, []).append(handler)
        await self.replay(prefix, handler)

    def follow_all(self, handler: Handler) -> None:
        """Gives the handler every change of every kind from now on."""
        self._all.append(handler)

    async def replay(self, prefix: str, handler: Handler, *, page: int = _PAGE, pause: float = 0.0) -> None:
        """Gives the handler what there is now; after each `page` of objects others have their turn, for `pause` seconds."""
        after = ""
        while True:
            found = await self._store.range(prefix, after=after, limit=page)
            for entry in found.entries:
                handler(Event(entry.key, entry.revision, entry.value, None, entry.created))
            if not found.more:
                return
            after = found.entries[-1].key
            await asyncio.sleep(pause)

    def close(self) -> None:
        """Tells nobody any more."""
        self._end()
