"""Composers under the engine: children are declared to it as if somebody had, and each goes through the gate by itself.

`Composed` stands where an informer stands for other kinds. `Children` is the provider that observes and applies them, and
`ComposerController` brings both to the engine. What a child's status would be is kept in memory; the parent's status says the sum of
it. After a restart all of it is found again: what is ours by owner references and managed fields, which kinds to look for by an
annotation of the composer's definition, and what need not even be looked at by `status.verified` of the parent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from homeostat.client import Client, Key, Resource, Unreachable
from homeostat.loop.compose import Composer, applied_by
from homeostat.loop.composed import Composed, key_of
from homeostat.loop.controller import MANAGER, Controller, Seen
from homeostat.loop.declarations import Object
from homeostat.loop.definitions import define
from homeostat.loop.diff import NOTHING, Diff
from homeostat.loop.fleet import Op, Ref
from homeostat.loop.hints import Bell
from homeostat.loop.live import LiveObject, masked
from homeostat.loop.observation import ABSENT, Absent, Observation
from homeostat.loop.parents import is_said, ready_status
from homeostat.loop.provider import Moved, Provider, current
from homeostat.loop.record import Record
from homeostat.model.clock import Clock
from homeostat.model.kinds import Spec, crd_for

_OWNER = ("manifest", "metadata", "ownerReferences")


class ChildSpec(Spec):
    """A child as it is composed."""

    manifest: dict[str, Any]


class ChildState(Spec):
    """A child as it is, as far as that was composed."""

    manifest: dict[str, Any]


class Children(Provider[ChildSpec, ChildState], group="composed.homeostat.dev", kind="Child", plural="children"):
    """The children of one composer: objects on this API, by server-side apply."""

    def __init__(self, composer: Composer[Any], client: Client) -> None:
        self.bell = Bell()
        self.is_kept: Callable[[Ref], bool] = lambda _: False
        self.mark_of: Callable[[Ref, Diff], str] | None = None
        """Which change set is noted on what is applied; None: none ever is."""
        self._composer = composer
        self._manager = composer.manager
        self._kind: Callable[[str, str], Resource[Object]] = cache(client.kind)
        self._live: dict[Ref, LiveObject] = {}

    def live(self, ref: Ref) -> LiveObject:
        """A child as it was last read."""
        return self._live[ref]

    def forget(self, ref: Ref) -> None:
        self._live.pop(ref, None)
        self.bell.forget(ref)

    def watch(self) -> AsyncIterator[Ref]:
        return self.bell.stream()

    async def observe(self, spec: ChildSpec) -> ChildState | Absent:
        task, manifest = current(), spec.manifest
        live = self._live.get(task.ref)
        if live is None or live.kind.api_version != manifest["apiVersion"]:
            metadata = manifest["metadata"]
            kind = self._kind(manifest["apiVersion"], manifest["kind"])
            live = self._live[task.ref] = LiveObject(
                kind, metadata["name"], metadata.get("namespace", ""), self._manager, marks=self.mark_of is not None
            )
        if await live.read() is None:
            return ABSENT
        found = live.owned(manifest) if task.deleting else await live.about(manifest)
        return ChildState(manifest=masked(found, task.ref.uid))

    async def wanted(self, spec: ChildSpec) -> ChildState:
        return ChildState(manifest=masked(spec.manifest, current().ref.uid))

    async def apply(self, spec: ChildSpec, diff: Diff) -> None:
        ref = current().ref
        live = self._live[ref]
        if self.mark_of is not None:
            live.mark = self.mark_of(ref, diff)
        with _OF_OUR_SERVER:
            await live.put(spec.manifest, force=self._composer.force)

    async def delete(self, spec: ChildSpec) -> None:
        with _OF_OUR_SERVER:
            await self._live[current().ref].delete()

    def identity(self, spec: ChildSpec, state: ChildState) -> str:
        return self._live[current().ref].uid

    def attribute(self, spec: ChildSpec, diff: Diff) -> Diff:
        return self._live[current().ref].attribute(diff)

    def foreign(self, spec: ChildSpec, diff: Diff) -> str:
        taken = diff.op is Op.UPDATE and not self._composer.force
        return self._live[current().ref].conflict if taken else ""

    def harmless(self, spec: ChildSpec, diff: Diff) -> bool:
        """A child that only gets a new parent, for one of the same name was made again, is not changed by that."""
        return diff.op is Op.UPDATE and all(change.path[:3] == _OWNER for change in diff.changes)

    def facts(self, ref: Ref) -> dict[str, Any] | None:
        obj = self._live[ref].obj
        return None if obj is None else {"manifest": masked(obj, ref.uid)}

    async def unhealthy(self, spec: ChildSpec, state: ChildState) -> str:
        ref = current().ref
        return self._live[ref].unhealthy(kept=self.is_kept(ref))


class _OfOurServer:
    """That the server on which all is declared cannot be reached says nothing of a change: who looks again sees what was done."""

    __slots__ = ()

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Unreachable):
            raise Moved(f"the server cannot be reached: {error}") from error


_OF_OUR_SERVER = _OfOurServer()


CHILDREN = "children."
"""How the children of a kind (plural.group) are named among all that an engine runs."""


class ComposerController(Controller):
    """The children of one composer before the engine. Their declarations and statuses are in memory; see `Composed`."""

    def __init__(self, composer: Composer[Any], client: Client, clock: Clock) -> None:
        self.children = Children(composer, client)
        super().__init__(self.children, client, clock)
        self._composer = composer
        self.declarations = self._composed = Composed(composer, client, clock, self.children.bell)
        self.name = CHILDREN + composer.info.name
        self.children.is_kept = self._is_kept

    async def define(self) -> None:
        await define(self._client, crd_for(self._composer.info), MANAGER)

    def fleet_kind(self, ref: Ref) -> str:
        # Who keeps a kind guards it again, and must not wait for us.
        return self.name if self._is_kept(ref) else ref.name.partition("/")[0]

    def part_of(self, ref: Ref) -> str:
        return ref.uid if self._composed.goes_with_its_parent(ref) else ""

    def _is_kept(self, ref: Ref) -> bool:
        return ref.name.partition("/")[0] in self._composed.kinds.kept

    async def fetch(self, name: str, namespace: str) -> Object:
        return await self._composed.check(Key(namespace, name))

    def last_applied(self, record: Record, identity: str) -> dict[str, Any] | None:
        ref = current().ref
        obj, manager = self.children.live(ref).obj, self._composer.manager
        if obj is None:
            return record.last_applied
        if not self._composed.owns(ref, obj):
            return None
        if record.last_applied is not None and record.identity == identity:
            return record.last_applied
        return {"manifest": masked(applied_by(obj, manager), ref.uid)}

    def made_nothing(self, seen: Seen) -> bool:
        return False

    async def hold_on(self, obj: Object) -> Object:
        return obj

    async def let_go(self, obj: Object) -> None:
        self._composed.drop(key_of(obj))

    async def confirm(self, seen: Seen) -> None:
        if seen.diff.op is not Op.CREATE:  # what was not there cannot be overwritten; the next look takes back what nobody wants
            await self._composed.check(key_of(seen.obj))

    async def journal(self, seen: Seen) -> Object:
        return seen.obj  # applying names an object: it cannot be made twice, and owner and manager tell whose it is

    async def read_back(self, obj: Object, acted: Seen) -> Seen:
        """What was just made is compared with what the server says it stored: mostly that is all there is to see."""
        live = self.children.live(acted.ref)
        if acted.diff.op is Op.CREATE and await live.read() is not None:
            manifest = acted.spec.manifest
            if live.shows(manifest):
                seen = Observation(acted.declared, self._clock.now(), source=acted.observation.source)
                return replace(
                    acted, obj=obj, observation=seen, diff=NOTHING, unhealthy=live.unhealthy(kept=self._is_kept(acted.ref)), owned=True, identity=live.uid
                )
        return await super().read_back(obj, acted)

    def still(self, key: Key) -> bool:
        return self._composed.is_verified(key)

    @property
    def batches(self) -> bool:
        return True

    def short_status(self, seen: Seen) -> dict[str, Any] | None:
        plain = seen.observation.known and not seen.record.reversals and not seen.record.repaired_at
        if not plain or isinstance(seen.declared, Absent):
            return None
        declared = seen.obj["spec"]  # what is declared is kept once
        return ready_status(seen.obj["metadata"]["generation"], declared if declared == seen.declared else seen.declared, seen.identity)

    def settled(self, key: Key, obj: Object, seen: Seen) -> None:
        """Its state was noted when its status was written; the object itself is read, and compared, again when it is looked at again."""
        self.children.live(seen.ref).obj = None
        self._comparer.forget(seen.ref)

    async def unmoved(self, keys: Sequence[Key], *, first: bool) -> set[Key]:
        return await self._composed.unmoved(keys, fresh=not first)

    async def write_status(self, obj: Object, status: Mapping[str, Any], *, unmoved: bool = False) -> Object:
        key = key_of(obj)
        if is_said({"status": status}, "Ready", obj["metadata"]["generation"]) and (live := self.children.live(self.ref_of(obj)).obj) is not None:
            self._composed.verified(key, live["metadata"]["uid"], live["metadata"]["resourceVersion"])
        return self._composed.put_status(key, status, obj["metadata"]["resourceVersion"] if unmoved else "")
