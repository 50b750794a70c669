"""The objects that Syncs declare, as the engine sees them: in memory, each with its status. Found again after a restart from Git."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from homeostat.client import Key
from homeostat.loop.compose import Child
from homeostat.loop.declarations import ADOPT, Object
from homeostat.loop.inmemory import InMemory, Verified
from homeostat.loop.parents import child_is, going
from homeostat.model.clock import Clock
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET
from homeostat.sources.kinds import GROUP


class By(NamedTuple):
    """Who declares something, and as what: one commit is one change set."""

    sync: Key
    uid: str
    change_set: str
    adopt: str = ""
    """The Sync's word about what exists and is not its own."""


class Declared(InMemory):
    """All that is declared by commits. `kind` is how it is named in the ledger.

    `told` hears of each new status: the Sync, which of its objects, and whether that is Ready, or gone, and so nothing to wait for.
    """

    def __init__(self, kind: str, clock: Clock, told: Callable[[Key, Child, bool], None]) -> None:
        super().__init__(kind, GROUP)
        self._clock = clock
        self._told = told
        self._of: dict[Key, tuple[Key, Child]] = {}
        self._by_sync: dict[Key, dict[Child, Key]] = {}

    # For the engine

    def _status_changed(self, key: Key, obj: Object) -> None:
        self._told(*self._of[key], child_is(obj, "Ready"))

    def seen(self, key: Key) -> Verified | None:
        """In which state it was last seen to be as declared."""
        return self._verified.get(key)

    def drop(self, key: Key) -> None:
        """Forgets one, without a word to the world."""
        self._objects.pop(key, None)
        self._verified.pop(key, None)
        found = self._of.pop(key, None)
        if found is not None:
            self._by_sync[found[0]].pop(found[1], None)
            self._told(*found, True)
        self._tell(key)

    # For Syncs

    def at(self, key: Key) -> Object:
        """One that is declared."""
        return self._objects[key]

    def owner(self, key: Key) -> tuple[Key, Child] | None:
        """The Sync that declares it, and as which of its objects."""
        return self._of.get(key)

    def of(self, sync: Key) -> dict[Child, Key]:
        """What a Sync declares."""
        return self._by_sync.setdefault(sync, {})

    def manifest(self, sync: Key, child: Child) -> Object:
        """As what something is declared."""
        found: Object = self._objects[self.of(sync)[child]]["spec"]["manifest"]
        return found

    def is_ready(self, sync: Key, child: Child) -> bool:
        """Whether it is declared, made so, and healthy."""
        key = self.of(sync).get(child)
        return key is not None and child_is(self._objects[key], "Ready")

    def put(self, by: By, child: Child, plural: str, manifest: Object, *, leaves: bool = False) -> None:
        """Declares an object, or that it is to go; what is declared so already stays as it is, and keeps its change set."""
        key = self.of(by.sync).get(child) or Key(child.namespace, f"{plural}/{child.name}")
        before = self._objects.get(key)
        if before is not None:
            metadata, known = before["metadata"], before["spec"]["manifest"]
            alike = (
                metadata["uid"] == by.uid
                and metadata["annotations"].get(ADOPT, "") == by.adopt
                and going(before) == leaves
            )
            if alike and (leaves or known is manifest or known == manifest):
                return
        notes = {DELETION_CHANGE_SET if leaves else CHANGE_SET: by.change_set}
        metadata = {
            "namespace": child.namespace,
            "name": key.name,
            "uid": by.uid,
            "labels": manifest["metadata"].get("labels") or {},
            "annotations": notes | ({ADOPT: by.adopt} if by.adopt else {}),
            "generation": before["metadata"]["generation"] + 1 if before is not None else 1,
        }
        if leaves:
            metadata["deletionTimestamp"] = self._clock.timestamp()
        status = before["status"] if before is not None and before["metadata"]["uid"] == by.uid else {}
        self._objects[key] = {"metadata": self._next(metadata), "spec": {"manifest": manifest}, "status": status}
        self._of[key] = by.sync, child
        self.of(by.sync)[child] = key
        self._verified.pop(key, None)
        self._tell(key)

    def withdraw(self, sync: Key) -> None:
        """Forgets all that a Sync declares, without a word to the world."""
        for key in list(self._by_sync.pop(sync, {}).values()):
            self._objects.pop(key, None)
            self._of.pop(key, None)
            self._verified.pop(key, None)
            self._tell(key)
