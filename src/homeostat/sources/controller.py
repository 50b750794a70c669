"""What Syncs declare, before the engine: each object goes through the gate by itself, as one of its own kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from homeostat.client import Client, Key
from homeostat.loop.children import Children
from homeostat.loop.compose import applied_by
from homeostat.loop.controller import MANAGER, Controller, Seen
from homeostat.loop.declarations import Object
from homeostat.loop.definitions import define
from homeostat.loop.diff import NOTHING, Diff
from homeostat.loop.fleet import Cause, Op, Ref
from homeostat.loop.live import masked, unmarked
from homeostat.loop.observation import Absent, Observation
from homeostat.loop.parents import child_is, ready_status
from homeostat.loop.provider import current
from homeostat.loop.record import Record
from homeostat.model.clock import Clock
from homeostat.model.kinds import crd_for
from homeostat.model.protocol import CHANGE_SET
from homeostat.sources.kinds import GIT_SOURCE
from homeostat.sources.preparing import is_mine
from homeostat.sources.returning import Returning
from homeostat.sources.synced import Synced

if TYPE_CHECKING:
    from homeostat.sources.sync import Sync


class SyncController(Controller):
    """The objects of all Syncs. Their declarations and statuses are in memory; see `Synced`."""

    def __init__(self, sync: Sync, client: Client, clock: Clock) -> None:
        self.children = Children(sync, client)
        super().__init__(self.children, client, clock)
        self._info, self._manager = sync.info, sync.manager
        self.synced = Synced(sync, client, clock, self.children.bell)
        self.declarations = self.synced
        self.name = f"children.{sync.info.name}"
        self.listener = Returning(client, self.synced)
        self.children.is_kept = self._is_kept
        self.children.mark_of = self._mark_of
        sync.running = self.synced

    async def define(self) -> None:
        for info in (GIT_SOURCE, self._info):
            await define(self._client, crd_for(info), MANAGER)

    def fleet_kind(self, ref: Ref) -> str:
        # Who keeps a kind guards it again, and must not wait for us.
        return self.name if self._is_kept(ref) else ref.name.partition("/")[0]

    def _is_kept(self, ref: Ref) -> bool:
        return ref.name.partition("/")[0] in self.synced.holdings.kept

    def _mark_of(self, ref: Ref, diff: Diff) -> str:
        """The commit as what an object is written. What is only put right again stays that of the commit which declared it."""
        live, declared = self.children.live(ref).obj, self.synced.declared.get(Key(ref.namespace, ref.name))
        if live is not None and diff.cause is Cause.DRIFT:
            notes = applied_by(live, self._manager).get("metadata", {}).get("annotations") or {}
            if CHANGE_SET in notes:
                return str(notes[CHANGE_SET])
        return str(declared["metadata"]["annotations"].get(CHANGE_SET, "")) if declared is not None else ""

    async def look(self, obj: Object) -> Seen:
        await asyncio.sleep(
            0
        )  # ten thousand may come at once, and a server in the same process lets nobody else have a turn
        return await super().look(obj)

    async def fetch(self, name: str, namespace: str) -> Object:
        return await self.synced.check(Key(namespace, name))

    def last_applied(self, record: Record, identity: str) -> dict[str, Any] | None:
        ref = current().ref
        obj = self.children.live(ref).obj
        if obj is None:
            return record.last_applied
        if not is_mine(obj, ref.uid, self._manager):
            return None
        if record.last_applied is not None and record.identity == identity:
            return record.last_applied
        return {"manifest": masked(unmarked(applied_by(obj, self._manager), {}), ref.uid)}

    def made_nothing(self, seen: Seen) -> bool:
        return False

    async def hold_on(self, obj: Object) -> Object:
        return obj

    async def let_go(self, obj: Object) -> None:
        self.synced.declared.drop(_key(obj))

    async def confirm(self, seen: Seen) -> None:
        if (
            seen.diff.op is not Op.CREATE
        ):  # what was not there cannot be overwritten; the next look takes back what nobody wants
            await self.synced.check(_key(seen.obj))

    async def journal(self, seen: Seen) -> Object:
        return seen.obj  # applying names an object: it cannot be made twice, and label and manager tell whose it is

    async def read_back(self, obj: Object, acted: Seen) -> Seen:
        """What was just made is compared with what the server says it stored: mostly that is all there is to see."""
        live = self.children.live(acted.ref)
        made = acted.diff.op is Op.CREATE and await live.read() is not None
        if made and live.owned(acted.spec.manifest) == acted.spec.manifest:
            return self._made(obj, acted, live.unhealthy(kept=self._is_kept(acted.ref)), live.uid)
        return await super().read_back(obj, acted)

    def _made(self, obj: Object, acted: Seen, unhealthy: str, uid: str) -> Seen:
        seen = Observation(acted.declared, self._clock.now(), source=acted.observation.source)
        return replace(acted, obj=obj, observation=seen, diff=NOTHING, unhealthy=unhealthy, owned=True, identity=uid)

    def still(self, key: Key) -> bool:
        return self.synced.is_verified(key)

    @property
    def batches(self) -> bool:
        return True

    async def unmoved(self, keys: Sequence[Key], *, first: bool) -> set[Key]:
        return await self.synced.unmoved(keys, fresh=not first)

    def short_status(self, seen: Seen) -> dict[str, Any] | None:
        plain = seen.observation.known and not seen.record.reversals and not seen.record.repaired_at
        if not plain or isinstance(seen.declared, Absent):
            return None
        return ready_status(seen.obj["metadata"]["generation"], seen.declared, seen.identity)

    def settled(self, key: Key, obj: Object, seen: Seen) -> None:
        """Its state was noted when its status was written; the object itself is read again when it is looked at again."""
        self.children.live(seen.ref).obj = None

    async def write_status(self, obj: Object, status: Mapping[str, Any], *, unmoved: bool = False) -> Object:
        key = _key(obj)
        if (
            child_is({**obj, "status": status}, "Ready")
            and (live := self.children.live(self.ref_of(obj)).obj) is not None
        ):
            self.synced.declared.verified(key, live["metadata"]["uid"], live["metadata"]["resourceVersion"])
        return self.synced.declared.put_status(key, status, obj["metadata"]["resourceVersion"] if unmoved else "")


def _key(obj: Object) -> Key:
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
