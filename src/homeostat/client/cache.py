"""What an informer knows: objects by key, kept current by lists, events and own writes, in whatever order they come.

Pure state: nothing here waits or talks to anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from homeostat.client import objects
from homeostat.client.objects import Form, Identity, Key, Packed, newer

T = TypeVar("T")

Index = Callable[[T], Iterable[str]]

ENDED_KEPT = 1000
"""How many ends are remembered, for answers to writes that come after them."""


class _Held(msgspec.Struct, Generic[T], gc=False):
    object: T
    uid: str
    revision: str


class _Gone(NamedTuple):
    revision: str  # what is newer than this has come back; empty: nothing does
    lists: int  # how many lists were begun before


class Cache(Generic[T]):
    """Objects of one collection. Every change says which keys it changed.

    What is older than what is known is ignored. What was deleted by us is remembered by its uid until the server says
    that it is gone, so that a late event cannot bring it back.
    """

    def __init__(self, form: Form[T], indexes: Mapping[str, Index[T]]) -> None:
        self._form = form
        self._held: dict[Key, _Held[T]] = {}
        self._namespaces: dict[str, dict[Key, None]] = {}
        self._functions = dict(indexes)
        self._indexes: dict[str, dict[str, dict[Key, None]]] = {name: {} for name in indexes}
        self._gone: dict[str, _Gone] = {}  # by uid: what we took out, until the server says so too
        self._ended: dict[str, str] = {}  # by uid: what the server said is gone, and when; the last of them
        self._lists = 0
        self._loose: dict[Key, None] = {}  # of packed objects, those that are kept as they came; what changed last is last
        self.revision = ""
        """Up to where the server's events are in here: from here a watch goes on."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: object) -> bool:
        return key in self._held

    def get(self, key: Key) -> T | None:
        """One object, or None where it is not here."""
        held = self._held.get(key)
        return None if held is None else held.object

    def keys(self, namespace: str = "") -> list[Key]:
        """All keys, or those in a namespace."""
        return list(self._namespaces.get(namespace, ())) if namespace else list(self._held)

    def indexed(self, index: str, value: str) -> list[T]:
        """The objects for which the index gives this value."""
        return [self._held[key].object for key in self._indexes[index].get(value, ())]

    def begin_list(self) -> int:
        """Call before a list is asked for; hand what it gives to `replace`."""
        self._lists += 1
        return self._lists

    def replace(self, objects: Sequence[T], revision: str, begun: int) -> list[Key]:
        """The collection as a complete list showed it at `revision`; gives the keys that changed.

        What we wrote after that revision stays, unless the server has gone back in time (it lost data, or is another
        one): then everything is as the list says.
        """
        back = bool(self.revision) and newer(self.revision, revision)
        if back:
            self._ended.clear()
        changed: list[Key] = []
        listed: set[Key] = set()
        uids: set[str] = set()
        for obj in objects:
            identity = self._form.identity(obj)
            listed.add(identity.key)
            uids.add(identity.uid)
            if self.put(obj, identity, believe=back):
                changed.append(identity.key)
        for key in [key for key in self._held if key not in listed]:
            if back or not newer(self._held[key].revision, revision):
                self._drop(key)
                changed.append(key)
        # A list that was begun after we took something out settles the matter, unless it shows it still.
        self._gone = {uid: gone for uid, gone in self._gone.items() if uid in uids or gone.lists >= begun}
        self.revision = revision
        return changed

    def event(self, kind: str, obj: T) -> Key | None:
        """An event of the watch; the key where something changed."""
        identity = self._form.identity(obj)
        key, uid, revision = identity.key, identity.uid, identity.revision
        self.revision = revision or self.revision
        if kind != "DELETED":
            return key if self.put(obj, identity) else None
        self._gone.pop(uid, None)
        self._ended[uid] = revision
        if len(self._ended) > ENDED_KEPT:
            del self._ended[next(iter(self._ended))]
        return self._end(key, revision)

    def leave(self, obj: T) -> Key | None:
        """We changed this object so that it no longer belongs here; the key where it was here."""
        identity = self._form.identity(obj)
        self._gone[identity.uid] = _Gone(identity.revision, self._lists)
        return self._end(identity.key, identity.revision)

    def remove(self, key: Key, uid: str) -> Key | None:
        """We deleted this object; the key where it was here."""
        held = self._held.get(key)
        gone = uid or (held.uid if held is not None else "")
        if gone:
            self._gone[gone] = _Gone("", self._lists)
        if held is None or (uid and held.uid != uid):
            return None
        self._drop(key)
        return key

    def _end(self, key: Key, revision: str) -> Key | None:
        held = self._held.get(key)
        if held is None or newer(held.revision, revision):
            return None  # not here, or the end of something earlier
        self._drop(key)
        return key

    def put(self, obj: T, identity: Identity, *, believe: bool = False) -> bool:
        """An object as a list, an event or a write shows it; says whether that is news. `believe`: whatever is known."""
        key, uid, revision = identity.key, identity.uid, identity.revision
        held = self._held.get(key)
        gone = self._gone.get(uid)
        if gone is not None:
            if not gone.revision or not newer(revision, gone.revision):
                return False
            del self._gone[uid]
        if held is not None and not believe and not newer(revision, held.revision):
            return False
        if (ended := self._ended.get(uid)) is not None and not newer(revision, ended):
            return False  # the answer to a write that came later than the news of the end
        if held is not None:
            self._unindex(key, held.object)
        self._held[key] = _Held(obj, uid, revision)
        self._namespaces.setdefault(key.namespace, {})[key] = None
        if isinstance(obj, Packed):
            self._keep_loose(key, obj)
        for name, function in self._functions.items():
            for value in function(obj):
                self._indexes[name].setdefault(value, {})[key] = None
        return True

    def _keep_loose(self, key: Key, obj: Packed) -> None:
        """Squeezes the one that has not changed for longest where there are many."""
        self._loose.pop(key, None)
        if obj.loose:
            self._loose[key] = None
        if len(self._loose) > objects.SQUEEZE_ABOVE:
            longest = next(iter(self._loose))
            del self._loose[longest]
            self._form.squeeze(self._held[longest].object)

    def _drop(self, key: Key) -> None:
        self._loose.pop(key, None)
        self._unindex(key, self._held.pop(key).object)
        peers = self._namespaces[key.namespace]
        del peers[key]
        if not peers:
            del self._namespaces[key.namespace]

    def _unindex(self, key: Key, obj: T) -> None:
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in function(obj):
                keys = index.get(value, {})
                keys.pop(key, None)
                if not keys:
                    index.pop(value, None)
