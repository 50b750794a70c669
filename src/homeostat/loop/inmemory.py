"""Declarations that live in memory, each with its status: made up by a composer, or read from a commit, and found again after a restart."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import msgspec

from homeostat.client import Key, Packed
from homeostat.loop.declarations import ADOPT, Object
from homeostat.loop.fleet import Ref
from homeostat.loop.parents import going
from homeostat.model.errors import conflict, not_found


class Verified(msgspec.Struct, frozen=True, gc=False):
    """Of which very object, in which state, it was last seen that it is as declared."""

    uid: str
    revision: str

    def is_of(self, one: Packed) -> bool:
        """Whether an object is the very one, and in that state."""
        return self.uid == one.uid and self.revision == one.revision


class InMemory:
    """What the engine asks of `Declarations`, for objects in memory. `kind` is how they are named in the ledger, `group` whose they are.

    Who makes them puts them into `_objects`, with metadata by `_next`, and says so by `_tell`.
    """

    def __init__(self, kind: str, group: str) -> None:
        self._kind = kind
        self._group = group
        self._objects: dict[Key, Object] = {}
        self._verified: dict[Key, Verified] = {}
        self._handlers: list[Callable[[Key], None]] = []
        self._revision = 0

    def get(self, key: Key) -> Object | None:
        return self._objects.get(key)

    def mark(self, key: Key) -> Hashable:
        obj = self._objects.get(key)
        if obj is None:
            return None
        metadata = obj["metadata"]
        return (metadata["uid"], metadata["generation"], going(obj), metadata["annotations"].get(ADOPT))

    def revision(self, key: Key) -> str:
        obj = self._objects.get(key)
        return "" if obj is None else str(obj["metadata"]["resourceVersion"])

    def all(self) -> list[Key]:
        return list(self._objects)

    def subscribe(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def ref_of(self, obj: Object) -> Ref:
        """How it is named in the ledger."""
        metadata = obj["metadata"]
        return Ref(self._kind, metadata["namespace"], metadata["name"], metadata["uid"])

    def put_status(self, key: Key, status: Mapping[str, Any], revision: str = "") -> Object:
        """Keeps a status. `revision`: refused where it was written to, or declared anew, since."""
        obj = self._objects.get(key)
        if obj is None:
            raise not_found(self._group, "children", key.name)
        if revision and obj["metadata"]["resourceVersion"] != revision:
            raise conflict(self._group, "children", key.name, "it was written to")
        kept = {name: value for name, value in status.items() if value is not None}
        if kept == obj.get("status"):
            return obj
        changed = self._objects[key] = {**obj, "metadata": self._next(obj["metadata"]), "status": kept}
        self._status_changed(key, changed)
        return changed

    def verified(self, key: Key, uid: str, revision: str) -> None:
        """It is as declared, and this is the object that was seen to be so."""
        self._verified[key] = Verified(uid, revision)

    def _status_changed(self, key: Key, obj: Object) -> None:
        """Called with each new status."""

    def _tell(self, key: Key) -> None:
        for handler in tuple(self._handlers):
            handler(key)

    def _next(self, metadata: Object) -> Object:
        self._revision += 1
        return {**metadata, "resourceVersion": str(self._revision)}
