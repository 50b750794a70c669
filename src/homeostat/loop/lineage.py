"""Whose the children of a composer are, by the uids of their parents: of those that live, and of those that are gone.

A parent that is gone wants no children, but its children go through the gate like everything else, so they are remembered until the
last is gone. Where a parent of the same name is made before that, they are its own: what was deleted by mistake and is declared again
finds its children as they were.
"""

from __future__ import annotations

from collections.abc import Callable

from homeostat.client import Key, Packed
from homeostat.loop.compose import Object
from homeostat.model.kinds import KindInfo


class Lineage:
    """Uids of parents, and under which key each lives or lived.

    `alive` gives the uid of the parent that lives under a key; empty where none does.
    """

    def __init__(self, parents: KindInfo, manager: str, alive: Callable[[Key], str]) -> None:
        self._parents = parents
        self._mark = f'"{manager}"'.encode()  # so the managed fields of a child name who made it
        self._alive = alive
        self._keys: dict[str, Key] = {}
        self._former: dict[Key, set[str]] = {}

    def live(self, uid: str, key: Key) -> None:
        """A parent lives under a key; who lived there before is gone."""
        self._keys[uid] = key
        if (former := self._former.get(key)) is not None:
            former.discard(uid)
            if not former:
                del self._former[key]

    def end(self, uid: str, key: Key) -> None:
        """A parent is gone, and may have left children."""
        self._keys[uid] = key
        self._former.setdefault(key, set()).add(uid)

    def former(self, key: Key) -> frozenset[str]:
        """Who lived under a key and left children."""
        return frozenset(self._former.get(key, ()))

    def forget(self, key: Key, uids: frozenset[str]) -> None:
        """Of these nothing is left."""
        left = self._former.get(key, set()) - uids
        for uid in uids:
            self._keys.pop(uid, None)
        if left:
            self._former[key] = left
        else:
            self._former.pop(key, None)

    def names(self, obj: Object, key: Key) -> bool:
        """Whether an object says that it is controlled by the parent under a key, or by one that was there before: by kind and name."""
        owner = next((one for one in obj["metadata"].get("ownerReferences") or () if one.get("controller")), None)
        return owner is not None and self._is_parent(owner) and owner["name"] == key.name

    def _is_parent(self, owner: Object) -> bool:
        return bool(owner["kind"] == self._parents.kind and owner["apiVersion"].rpartition("/")[0] == self._parents.group)

    def parent_of(self, child: Packed) -> Key | None:
        """Under which key the parent of an object lives or lived; None where it is no child of this composer."""
        known = self._keys.get(child.owner)
        if known is not None or not child.owner or self._mark not in child.body:
            return known
        owner = _controller(child.load())
        if not self._is_parent(owner):
            return None
        key = Key(child.key.namespace if self._parents.scope == "Namespaced" else "", owner["name"])
        if self._alive(key) != child.owner:
            self.end(child.owner, key)
        return key


def _controller(child: Object) -> Object:
    found: Object = next(owner for owner in child["metadata"]["ownerReferences"] if owner.get("controller"))
    return found
