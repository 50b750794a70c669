"""Garbage collection: what is owned goes when its owners go, exactly by uid, in the order the deleter asked for.

An index of owner references is kept from every commit. A decision is made from what the store holds at that moment: an
owner that cannot be looked up (its kind is not served) is unknown, and on unknown nothing is deleted. What a loop composes is left to it.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from homeostat.api.codec import metadata_of
from homeostat.api.controllers.worker import Worker
from homeostat.api.crds import CRDS, is_composed
from homeostat.api.delete import DeleteOptions, remove
from homeostat.api.resource import Object, Resource, split_key
from homeostat.api.schema import FOREGROUND, ORPHAN
from homeostat.model.errors import ApiError
from homeostat.model.protocol import composed_by
from homeostat.store import Event

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

LEISURE_START = 1.0
LEISURE_SECONDS, LEISURE_PAGE = 0.05, 250
"""After a start: so long a pause after so many objects that are indexed."""

_OWNED = b'"ownerReferences":['
_DELETING = b'"deletionTimestamp":'


class _Owner(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str
    kind: str
    name: str
    api_version: str
    block_owner_deletion: bool | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    owner_references: tuple[_Owner, ...] = ()


class _Stored(msgspec.Struct):
    metadata: _Metadata


_stored = msgspec.json.Decoder(_Stored)


def _identity(value: bytes) -> tuple[str, tuple[_Owner, ...]]:
    """The uid and the owners in stored bytes."""
    metadata = _stored.decode(value).metadata
    return metadata.uid, metadata.owner_references


class _Scan:
    """What a start finds: who is there, and who should be, for somebody is owned by it. A number stands for each: there may be a million."""

    def __init__(self) -> None:
        self._there = array("q")
        self._gone: set[int] = set()
        self._wanted: dict[int, str] = {}

    def there(self, key: str, uid: str) -> None:
        self._there.append(hash((key, uid)))

    def gone(self, key: str, uid: str) -> None:
        """It was deleted meanwhile."""
        self._gone.add(hash((key, uid)))

    def wanted(self, key: str, uid: str) -> None:
        self._wanted[hash((key, uid))] = uid

    def missing(self) -> list[str]:
        """The uids of owners that are not there."""
        absent = self._wanted.keys() - set(self._wanted.keys() - self._gone).intersection(self._there)
        return [self._wanted[number] for number in absent]


class GarbageCollector:
    """Follows owners to their dependents."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._worker = Worker("garbage-collector", self._look_at)
        self._owners: dict[str, tuple[_Owner, ...]] = {}  # of a key
        self._dependents: dict[str, set[str]] = {}  # keys, by the owner's uid
        self._scan: _Scan | None = None
        self._building: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._plane.follower.follow_all(self._changed)
        # The index of what was there before is built while requests are already served; work begins when it is whole.
        self._building = asyncio.get_running_loop().create_task(self._build())

    async def _build(self) -> None:
        """Indexes what there is, at leisure, for most of it was right before the start; and has those looked at whose owners are not there."""
        self._scan = scan = _Scan()
        if (await self._plane.store.range("", limit=LEISURE_PAGE)).more:
            await asyncio.sleep(LEISURE_START)  # who starts with much has better to do first
        await self._plane.follower.replay("", self._found, page=LEISURE_PAGE, pause=LEISURE_SECONDS)
        self._scan = None
        for uid in scan.missing():
            for dependent in self._dependents.get(uid, ()):
                self._worker.add(dependent)
        self._worker.start()

    def _found(self, event: Event) -> None:
        key, value = event.key, event.value
        assert value is not None
        assert self._scan is not None
        uid, owners = _identity(value)
        self._scan.there(key, uid)
        if _DELETING in value:
            self._changed(event)
        elif owners:
            self._index(key, owners)
            for owner in owners:
                self._scan.wanted(self._owner_key(key, owner), owner.uid)

    async def stop(self) -> None:
        if self._building is not None:
            self._building.cancel()
            await asyncio.gather(self._building, return_exceptions=True)
        await self._worker.stop()

    def _changed(self, event: Event) -> None:
        key, value = event.key, event.value
        owned = value is not None and value.find(_OWNED) >= 0  # `in` of bytes makes an error first, and drops it
        anything_owned = bool(self._dependents)  # before the index forgets this very object
        if owned or key in self._owners:
            self._index(key, _identity(value)[1] if owned and value else ())
            if owned:
                self._worker.add(key)
        if value is None:
            if (anything_owned or self._scan is not None) and event.previous is not None:
                uid, owners = _identity(event.previous)
                if self._scan is not None:
                    self._scan.gone(key, uid)
                for dependent in sorted(self._dependents.get(uid, ())):
                    self._worker.add(dependent)
                self._wake_owners(key, owners)
        elif value.find(_DELETING) >= 0:
            self._worker.add(key)
            if owned:
                self._wake_owners(key, self._owners.get(key, ()))

    def _index(self, key: str, owners: tuple[_Owner, ...]) -> None:
        before = self._owners.pop(key, ())
        for owner in before:
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.discard(key)
                if not dependents:
                    del self._dependents[owner.uid]
        if owners:
            self._owners[key] = owners
            for owner in owners:
                self._dependents.setdefault(owner.uid, set()).add(key)
        # Who was let go of, or is no longer held up, may have waited for just that.
        self._wake_owners(key, [o for o in before if o not in owners])

    def _wake_owners(self, key: str, owners: Iterable[_Owner]) -> None:
        """A dependent moved: an owner may have waited for it."""
        for owner in owners:
            found = self._owner_key(key, owner)
            if found:
                self._worker.add(found)

    def _owner_key(self, key: str, owner: _Owner) -> str:
        """Where an owner would live; empty where its kind is not served or it cannot own this."""
        resource = self._plane.registry.by_kind(owner.api_version, owner.kind)
        if resource is None:
            return ""
        namespace = self._locate(key)[1]
        if resource.namespaced and not namespace:
            return ""
        return resource.key(namespace, owner.name)

    def _locate(self, key: str) -> tuple[Resource | None, str, str]:
        kind, namespace, name = split_key(key)
        return self._plane.registry.get(kind), namespace, name

    async def _look_at(self, key: str) -> None:
        resource = self._locate(key)[0]
        entry = await self._plane.store.get(key)
        if entry is None or resource is None or await self._plainly_owned(key, entry.value):
            return
        metadata = metadata_of(entry.value)
        finalizers = metadata.get("finalizers", ())
        if metadata.get("deletionTimestamp"):
            if FOREGROUND in finalizers:
                await self._foreground(key, metadata)
            elif ORPHAN in finalizers:
                await self._orphan(key, metadata)
            else:
                return
        if self._is_composed(key, entry.value):
            return
        if key in self._owners and not (metadata.get("deletionTimestamp") and FOREGROUND not in finalizers):
            await self._follow_owners(key, metadata)

    def _is_composed(self, key: str, value: bytes) -> bool:
        """Whether a loop made it for its owner: then it takes it away as well, under its guards, and nobody else does."""
        for owner in self._owners.get(key, ()):
            kind = self._plane.registry.by_kind(owner.api_version, owner.kind)
            crd = self._plane.definitions.get(f"{CRDS}{kind.qualified}") if kind is not None else None
            if kind is not None and crd is not None and is_composed(crd):
                return f'"{composed_by(kind.qualified)}"'.encode() in value
        return False

    async def _plainly_owned(self, key: str, value: bytes) -> bool:
        """Whether it can be told without decoding anything that it lives, and that its only owner does: the common case."""
        owners = self._owners.get(key, ())
        if len(owners) != 1 or value.find(_DELETING) >= 0 or not (found := self._owner_key(key, owners[0])):
            return False
        entry = await self._plane.store.get(found)
        if entry is None or entry.value.find(_DELETING) >= 0 or entry.value.find(_OWNED) >= 0:
            return False
        return entry.value.count(f'"uid":"{owners[0].uid}"'.encode()) == 1

    async def _foreground(self, key: str, metadata: dict[str, Any]) -> None:
        """Dependents that block go first; then the owner."""
        uid = metadata["uid"]
        dependents = sorted(self._dependents.get(uid, ()))
        blocking = [d for d in dependents if any(o.uid == uid and o.block_owner_deletion for o in self._owners[d])]
        for dependent in dependents:
            self._worker.add(dependent)
        if not blocking:
            await self._drop_finalizer(key, FOREGROUND)

    async def _orphan(self, key: str, metadata: dict[str, Any]) -> None:
        """Dependents are let go of; then the owner goes alone."""
        uid = metadata["uid"]
        for dependent in sorted(self._dependents.get(uid, ())):
            await self._disown(dependent, {uid})
        await self._drop_finalizer(key, ORPHAN)

    async def _drop_finalizer(self, key: str, finalizer: str) -> None:
        def dropped(live: Object) -> Object:
            kept = [f for f in live["metadata"].get("finalizers", ()) if f != finalizer]
            return {**live, "metadata": {**live["metadata"], "finalizers": kept}}

        await self._act(key, dropped)

    async def _disown(self, key: str, uids: set[str]) -> None:
        def disowned(live: Object) -> Object:
            metadata = dict(live["metadata"])
            kept = [o for o in metadata.get("ownerReferences", ()) if o["uid"] not in uids]
            if kept:
                metadata["ownerReferences"] = kept
            else:
                metadata.pop("ownerReferences", None)
            return {**live, "metadata": metadata}

        await self._act(key, disowned)

    async def _act(self, key: str, change: Any) -> None:
        resource, namespace, name = self._locate(key)
        if resource is not None:
            await self._plane.act(resource.qualified, namespace, name, change)

    async def _follow_owners(self, key: str, metadata: dict[str, Any]) -> None:
        """Decides by its owners whether an object stays."""
        solid, dangling, waiting = False, set(), set()
        for owner in self._owners.get(key, ()):
            state = await self._owner_state(key, owner)
            if state == "unknown":
                return
            solid = solid or state == "solid"
            if state == "absent":
                dangling.add(owner.uid)
            elif state == "waiting":
                waiting.add(owner.uid)
        if solid:
            if dangling or waiting:
                await self._disown(key, dangling | waiting)
            return
        uid = metadata["uid"]
        if metadata.get("deletionTimestamp"):
            if waiting:
                await self._unblock_cycle(key, uid)
            return
        finalizers = metadata.get("finalizers", ())
        policy = "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else "Background"
        if waiting and self._dependents.get(uid):
            policy = "Foreground"
            await self._unblock_cycle(key, uid)
        resource, namespace, name = self._locate(key)
        assert resource is not None
        call = self._plane.internal("delete", resource, namespace, name)
        try:
            await remove(self._plane, call, DeleteOptions(policy=policy, uid=uid))
        except ApiError as error:
            if error.reason not in ("NotFound", "Conflict"):
                raise

    async def _owner_state(self, key: str, owner: _Owner) -> str:
        """`solid`, `waiting` (going, after its dependents), `absent` (this uid is gone), or `unknown`."""
        found = self._owner_key(key, owner)
        if not found:
            return "unknown"
        entry = await self._plane.store.get(found)
        if entry is None:
            return "absent"
        metadata = metadata_of(entry.value)
        if metadata["uid"] != owner.uid:
            return "absent"
        going = metadata.get("deletionTimestamp") and FOREGROUND in metadata.get("finalizers", ())
        return "waiting" if going else "solid"

    async def _unblock_cycle(self, key: str, uid: str) -> None:
        """Owners that wait for each other would wait for ever: this one stops blocking."""
        for dependent in sorted(self._dependents.get(uid, ())):
            entry = await self._plane.store.get(dependent)
            if entry is None:
                continue
            metadata = metadata_of(entry.value)
            if metadata.get("deletionTimestamp") and FOREGROUND in metadata.get("finalizers", ()):
                await self._act(key, _unblocked)
                return


def _unblocked(live: Object) -> Object:
    owners = [{**o, "blockOwnerDeletion": False} for o in live["metadata"].get("ownerReferences", ())]
    return {**live, "metadata": {**live["metadata"], "ownerReferences": owners}}
