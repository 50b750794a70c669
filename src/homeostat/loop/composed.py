"""The declarations of children: a composer's parents are followed, composed, and their children declared, stage by stage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from homeostat.client import Client, Informer, Key
from homeostat.loop.applied import fields_of, view
from homeostat.loop.compose import (
    Child,
    ComposeError,
    Composer,
    applied_by,
    children_of,
    is_ours,
    kind_of,
    named_kinds,
    owner_of,
    read_kinds,
    removals,
    stages,
)
from homeostat.loop.controller import ADOPT, CHANGE_SET, MANAGER, Object
from homeostat.loop.fleet import Ref
from homeostat.loop.hints import Bell
from homeostat.loop.parents import child_is, going, parent_status
from homeostat.loop.provider import Moved
from homeostat.loop.status import merge_patch
from homeostat.model.clock import Clock
from homeostat.model.conditions import find_condition
from homeostat.model.errors import ApiError, conflict, not_found
from homeostat.model.kinds import InvalidSpec, decode

log = logging.getLogger("homeostat.loop")

AGAIN_SECONDS = 5.0
"""After so long a parent is composed again whose children could not be told or whose status could not be written."""
SYNC_SECONDS = 10.0
"""How long a start waits for kinds of children to be read; those that come later are taken in then."""


class _Unread(Exception):
    """Objects of a kind were not read yet: nobody knows which children there are."""


@dataclass(slots=True)
class _Parent:
    """What is known of one parent: which of its children are declared, and what is the matter with it."""

    key: Key
    uid: str
    mark: Any = None  # of what was composed: all of the parent but its status
    declared: dict[Child, Key] = field(default_factory=dict)
    wanted: frozenset[Child] = frozenset()
    waiting: int = 0  # those whose stage has not come
    problem: str = ""


class Composed:
    """The declarations of children. Nothing of a parent's children changes while it cannot be told what they should be."""

    def __init__(self, composer: Composer[Any], client: Client, clock: Clock, bell: Bell) -> None:
        self._composer = composer
        self._client = client
        self._clock = clock
        self._bell = bell
        self.resource = client.kind(composer.info.api_version, composer.info.kind)
        self._parents = self.resource.informer()
        self._parents.subscribe(self._parent_changed)
        self._known: dict[Key, _Parent] = {}
        self._by_uid: dict[str, Key] = {}
        self._objects: dict[Key, Object] = {}
        self._owners: dict[Key, Key] = {}  # of declared children: the parent
        self._kinds: dict[tuple[str, str], Informer[Object]] = {}
        self._names: dict[tuple[str, str], tuple[str, bool]] = {}  # plural.group, and whether in a namespace
        self._handlers: list[Callable[[Key], None]] = []
        self._dirty: dict[Key, None] = {}
        self._wake = asyncio.Event()
        self._unread: set[Key] = set()  # parents that wait for kinds of children to be read
        self._revision = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # As an informer

    def start(self) -> None:
        self._parents.start()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for informer in (self._parents, *self._kinds.values()):
            await informer.stop()

    async def wait_synced(self) -> None:
        """Until the parents were read, and all were composed whose children can be read within some seconds."""
        await self._parents.wait_synced()
        for obj in self._parents.all():
            self._mark(key_of(obj))
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                while self._dirty:
                    await self._compose_all()
                    if self._unread:
                        await asyncio.gather(*(informer.wait_synced() for informer in self._kinds.values()))
                        self._read()
        except TimeoutError:
            log.warning("some kinds of children of %s cannot be read yet", self._composer.info.name)
        self._spawn(self._compose_forever())

    def get(self, name: str, namespace: str = "") -> Object | None:
        return self._objects.get(Key(namespace, name))

    def all(self) -> list[Object]:
        return list(self._objects.values())

    def subscribe(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def _tell(self, key: Key) -> None:
        for handler in tuple(self._handlers):
            handler(key)

    # What the controller writes

    def put_status(self, key: Key, status: Mapping[str, Any], revision: str = "") -> Object:
        """Keeps the status of a child; its parent is told. `revision`: refused where it was written to since."""
        obj = self._objects.get(key)
        if obj is None:
            raise not_found(self._composer.info.group, "children", key.name)
        if revision and obj["metadata"]["resourceVersion"] != revision:
            raise conflict(self._composer.info.group, "children", key.name, "it was written to")
        kept = {name: value for name, value in status.items() if value is not None}
        if kept == obj.get("status"):
            return obj
        changed = self._objects[key] = {**obj, "metadata": self._next(obj["metadata"]), "status": kept}
        self._mark(self._owners[key])
        return changed

    def drop(self, key: Key) -> None:
        """A child that was to go is gone."""
        self._objects.pop(key, None)
        owner = self._owners.pop(key, None)
        if owner is not None:
            known = self._known[owner].declared
            self._known[owner].declared = {child: one for child, one in known.items() if one != key}
            self._mark(owner)
        self._tell(key)

    async def check(self, key: Key) -> Object:
        """A child's declaration, if its parent, read fresh, still means it so. Raises `Moved`; `ApiError` 404 without it."""
        obj = self._objects.get(key)
        if obj is None:
            raise not_found(self._composer.info.group, "children", key.name)
        owner = self._owners[key]
        parent = await self.resource.get(owner.name, namespace=owner.namespace)
        wanted = self._wanted(parent)
        child = next(child for child, one in self._known[owner].declared.items() if one == key)
        same = (child not in wanted) if going(obj) else wanted.get(child) == obj["spec"]["manifest"]
        if parent["metadata"]["uid"] != obj["metadata"]["uid"] or not same:
            self._mark(owner)
            raise Moved("its parent means it otherwise by now")
        return obj

    # What changes

    def _parent_changed(self, key: Key) -> None:
        known, obj = self._known.get(key), self._parents.get(key.name, key.namespace)
        if known is None or obj is None or known.mark != _mark(obj):  # our own reports come by here too
            self._mark(key)

    def _child_changed(self, kind: tuple[str, str], key: Key) -> None:
        name = Key(key.namespace, f"{self._names[kind][0]}/{key.name}")
        if (declared := self._objects.get(name)) is not None:
            self._bell.ring(self.ref_of(declared))
        obj = self._kinds[kind].get(key.name, key.namespace)
        owner = self._by_uid.get(owner_of(obj)) if obj is not None else None
        if owner is not None and name not in self._objects:
            self._mark(owner)  # one of ours that is not declared: it is to go

    def ref_of(self, obj: Object) -> Ref:
        """How a child is named in the ledger."""
        metadata = obj["metadata"]
        return Ref(f"children.{self._composer.info.name}", metadata["namespace"], metadata["name"], metadata["uid"])

    def _mark(self, key: Key) -> None:
        self._dirty[key] = None
        self._wake.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"composer {self._composer.info.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compose_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._compose_all()

    async def _compose_all(self) -> None:
        while self._dirty:
            key = next(iter(self._dirty))
            del self._dirty[key]
            try:
                await self._compose(key)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not isinstance(error, ApiError):
                    log.exception("%s %s cannot be composed", self._composer.info.kind, key)
                self._later(key)

    def _later(self, key: Key) -> None:
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._mark, key)

    # One parent

    async def _compose(self, key: Key) -> None:
        obj = self._parents.get(key.name, key.namespace)
        known = self._known.get(key)
        if known is not None and (obj is None or obj["metadata"]["uid"] != known.uid or going(obj)):
            self._withdraw(known)
            known = None
        if obj is None or going(obj):
            return  # its children go with it, by their owner references
        if known is None:
            known = self._known[key] = _Parent(key, obj["metadata"]["uid"])
            self._by_uid[known.uid] = key
        known.mark = _mark(obj)
        try:
            await self._declare(known, obj)
            known.problem = ""
        except _Unread as why:
            self._unread.add(key)
            self._later(key)
            if not (problem := str(why)):
                return
            known.problem = problem
        except (ComposeError, InvalidSpec, ApiError) as error:
            known.problem = str(error)
            self._later(key)
        except Exception as error:
            log.exception("%s %s cannot be composed", self._composer.info.kind, key)
            known.problem = f"{type(error).__name__}: {error}"
        await self._report(known, obj)

    async def _declare(self, known: _Parent, obj: Object) -> None:
        manifests = list(self._composer.compose(decode(self._composer.info.spec, obj.get("spec") or {}), obj))
        kinds = {kind_of(manifest) for manifest in manifests}
        had = read_kinds((obj.get("status") or {}).get("childKinds") or ())
        for kind in kinds | had:
            await self._learn(kind)
        wanted = children_of(obj, manifests, {kind: self._names[kind][1] for kind in kinds})
        order = stages(wanted)
        if not kinds <= had:  # written down before the first is made, so that none is ever lost sight of
            await self._write(obj, {**(obj.get("status") or {}), "childKinds": named_kinds(kinds | had)})
        existing = self._existing(known, kinds | had)
        ready = True
        known.wanted, known.waiting = frozenset(wanted), 0
        for stage in order:
            for child in stage:
                if ready or self._is_so(existing.get(child), wanted[child]):
                    self._put(known, obj, child, wanted[child])
                elif child not in known.declared or self._manifest(known, child) != wanted[child]:
                    known.waiting += 1
            ready = ready and all(self._ready(known, child) for child in stage)
        for child in existing.keys() - wanted.keys() - known.declared.keys():
            self._put(known, obj, child, _as_is(existing[child], self._composer.manager))  # till its turn to go comes
        if ready:
            self._prune(known, obj)

    def _ready(self, known: _Parent, child: Child) -> bool:
        return child in known.declared and child_is(self._objects[known.declared[child]], "Ready")

    def _prune(self, known: _Parent, obj: Object) -> None:
        """Has the last stage of what is no longer wanted go; the next when that is gone."""
        left = {child: self._manifest(known, child) for child in known.declared if child not in known.wanted}
        for stage in removals(left)[:1]:
            for child in stage:
                self._put(known, obj, child, left[child], leaves=True)

    def _existing(self, known: _Parent, kinds: set[tuple[str, str]]) -> dict[Child, Object]:
        found: dict[Child, Object] = {}
        for version, kind in kinds:
            informer = self._kinds[version, kind]
            if not informer.synced:
                raise _Unread(f"objects of {version} {kind} cannot be read: {informer.problem}" if informer.problem else "")
            for obj in informer.indexed("owner", known.uid):
                if is_ours(obj, known.uid, self._composer.manager):
                    metadata = obj["metadata"]
                    group = version.rpartition("/")[0]
                    found[Child(group, kind, metadata.get("namespace", ""), metadata["name"])] = obj
        return found

    def _is_so(self, obj: Object | None, manifest: Object) -> bool:
        """Whether a child is there as wanted already: then it need not wait for its turn."""
        if obj is None:
            return False
        return bool(view(manifest, obj, fields_of(obj), fields_of(obj, self._composer.manager)) == manifest)

    async def _learn(self, kind: tuple[str, str]) -> None:
        """Follows the objects of a kind from now on."""
        if kind in self._kinds:
            return
        resource = self._client.kind(*kind)
        served = await resource.served()
        group = kind[0].rpartition("/")[0]
        self._names[kind] = (f"{served.plural}.{group}" if group else served.plural, served.namespaced)
        informer = self._kinds[kind] = resource.informer(indexes={"owner": lambda obj: [owner_of(obj)]})
        informer.subscribe(lambda key: self._child_changed(kind, key))
        informer.start()

        async def tell() -> None:
            await informer.wait_synced()
            self._read()

        self._spawn(tell())

    def _read(self) -> None:
        """A kind of children was read: who waited for it is composed again."""
        while self._unread:
            self._mark(self._unread.pop())

    # Declaring

    def _put(self, known: _Parent, parent: Object, child: Child, manifest: Object, leaves: bool = False) -> None:
        """Declares a child, or that it is to go; what is declared so already stays as it is."""
        key = Key(child.namespace, f"{self._names[manifest['apiVersion'], child.kind][0]}/{child.name}")
        if self._owners.get(key, known.key) != known.key:
            raise ComposeError(f"{child} is a child of {self._owners[key]} already")
        before = self._objects.get(key)
        if before is not None and going(before) == leaves and (leaves or before["spec"]["manifest"] == manifest):
            return
        said = parent["metadata"].get("annotations") or {}
        metadata: Object = {
            "namespace": child.namespace,
            "name": key.name,
            "uid": known.uid,
            "labels": manifest["metadata"].get("labels") or {},
            "annotations": {name: said[name] for name in (CHANGE_SET, ADOPT) if name in said},
            "generation": before["metadata"]["generation"] + 1 if before is not None else 1,
        }
        if leaves:
            metadata["deletionTimestamp"] = self._clock.timestamp()
        status = before["status"] if before is not None else {}
        self._objects[key] = {"metadata": self._next(metadata), "spec": {"manifest": manifest}, "status": status}
        self._owners[key], known.declared[child] = known.key, key
        self._tell(key)

    def _next(self, metadata: Object) -> Object:
        self._revision += 1
        return {**metadata, "resourceVersion": str(self._revision)}

    def _manifest(self, known: _Parent, child: Child) -> Object:
        found: Object = self._objects[known.declared[child]]["spec"]["manifest"]
        return found

    def _wanted(self, parent: Object) -> dict[Child, Object]:
        manifests = list(self._composer.compose(decode(self._composer.info.spec, parent.get("spec") or {}), parent))
        scopes = {kind: self._names[kind][1] for kind in map(kind_of, manifests) if kind in self._names}
        if any(kind_of(manifest) not in scopes for manifest in manifests):
            raise Moved("its parent means it otherwise by now")
        return children_of(parent, manifests, scopes)

    def _withdraw(self, known: _Parent) -> None:
        """Forgets the children of a parent that is gone, without a word to the world."""
        del self._known[known.key]
        self._by_uid.pop(known.uid, None)
        for key in known.declared.values():
            self._objects.pop(key, None)
            self._owners.pop(key, None)
            self._tell(key)

    # Reporting

    async def _report(self, known: _Parent, obj: Object) -> None:
        obj = self._parents.get(known.key.name, known.key.namespace) or obj
        if obj["metadata"]["uid"] != known.uid:
            return
        children = [self._objects[key] for key in known.declared.values()]
        told = (obj.get("status") or {}).get("observedGeneration") == obj["metadata"].get("generation", 0)
        if told and not known.problem and not all(find_condition(child, "Ready") for child in children):
            return  # what was said before a restart stands until the children were looked at
        status = parent_status(
            obj,
            [self._objects[key] for child, key in known.declared.items() if child in known.wanted],
            [self._objects[key] for child, key in known.declared.items() if child not in known.wanted],
            now=self._clock.timestamp(),
            desired=len(known.wanted),
            waiting=known.waiting,
            problem=known.problem,
        )
        alive = {(self._manifest(known, c)["apiVersion"], c.kind) for c in known.declared}
        if not known.problem and not known.waiting:
            status["childKinds"] = named_kinds(alive)
        await self._write(obj, status)

    async def _write(self, obj: Object, status: Mapping[str, Any]) -> None:
        patch = merge_patch(obj.get("status") or {}, status)
        if patch:
            metadata = obj["metadata"]
            await self.resource.patch(
                metadata["name"],
                {"metadata": {"uid": metadata["uid"]}, "status": patch},
                namespace=metadata.get("namespace", ""),
                subresource="status",
                field_manager=MANAGER,
            )


def key_of(obj: Object) -> Key:
    """Under which key a declaration stands."""
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _mark(obj: Object) -> Any:
    """All of a parent that its children may hang on."""
    names = ("uid", "generation", "labels", "annotations", "deletionTimestamp")
    return [obj["metadata"].get(name) for name in names]


def _as_is(obj: Object, manager: str) -> Object:
    """A live child as we once declared it."""
    ours = applied_by(obj, manager)
    names = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    whole = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    return {**ours, **whole, "metadata": {**ours.get("metadata", {}), **names}}
