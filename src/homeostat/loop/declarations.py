"""Where declarations come from: a kind on the API, or whoever makes them up. Small in memory: opened only when looked at."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol

from homeostat.client import Client, Informer, Key, Packed

ADOPT = "homeostat.dev/adopt"
"""Annotation: `"true"` lets the loop take over a thing that exists and that it did not make."""
_ADOPTS = f'"{ADOPT}"'.encode()

Object = dict[str, Any]


class Declarations(Protocol):
    """All declarations of one kind, current, and who wants to know when one changes."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def wait_synced(self) -> None: ...

    def get(self, key: Key) -> Object | None:
        """One as it is now; the caller must not change it."""

    def mark(self, key: Key) -> Hashable:
        """Another whenever a look is due: all but the status. None where there is no such declaration."""

    def revision(self, key: Key) -> str:
        """Another whenever anything of it was written, the status too. Empty where there is no such declaration."""

    def all(self) -> list[Key]: ...

    def subscribe(self, handler: Callable[[Key], None]) -> Callable[[], None]: ...


class Followed:
    """The objects of a kind on the API."""

    def __init__(self, client: Client, api_version: str, kind: str) -> None:
        self._informer: Informer[Packed] = client.kind(api_version, kind, Packed).informer()
        self.start = self._informer.start
        self.stop = self._informer.stop
        self.subscribe = self._informer.subscribe

    async def wait_synced(self) -> None:
        await self._informer.wait_synced()

    def get(self, key: Key) -> Object | None:
        found = self._informer.at(key)
        return None if found is None else found.load()

    def packed(self, key: Key) -> Packed | None:
        """One as it came."""
        return self._informer.at(key)

    def mark(self, key: Key) -> Hashable:
        found = self._informer.at(key)
        if found is None:
            return None
        adopt = (found.load()["metadata"].get("annotations") or {}).get(ADOPT) if _ADOPTS in found.body else None
        return (found.uid, found.generation, found.deleting, adopt)

    def revision(self, key: Key) -> str:
        found = self._informer.at(key)
        return "" if found is None else found.revision

    def all(self) -> list[Key]:
        return [one.key for one in self._informer.all()]
