"""The declarations of children: a composer's parents are followed, composed, and their children declared, stage by stage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson
from xxhash import xxh3_128_hexdigest

from homeostat.client import Client, Informer, Key, Packed
from homeostat.loop.applied import fields_of, view
from homeostat.loop.changesets import inherited
from homeostat.loop.compose import (
    Child,
    ComposeError,
    Composer,
    applied_by,
    children_of,
    is_ours,
    kind_of,
    named_kinds,
    read_kinds,
    removals,
    stages,
)
from homeostat.loop.controller import MANAGER
from homeostat.loop.declarations import ADOPT, Followed, Object
from homeostat.loop.fleet import Ref
from homeostat.loop.hints import Bell
from homeostat.loop.live import masked
from homeostat.loop.parents import child_is, going, parent_status, ready_status
from homeostat.loop.provider import CATEGORY, Moved
from homeostat.loop.queue import WorkQueue
from homeostat.loop.status import OBSERVED_AT, merge_patch
from homeostat.model.clock import Clock
from homeostat.model.conditions import find_condition
from homeostat.model.errors import ApiError, conflict, not_found
from homeostat.model.kinds import InvalidSpec, decode

log = logging.getLogger("homeostat.loop")

AGAIN_SECONDS = 5.0
"""After so long a parent is composed again whose children could not be told."""
SYNC_SECONDS = 10.0
"""How long a start waits for kinds of children to be read; those that come later are taken in then."""
PATIENCE_SECONDS = 1.0
"""So long a change may take before its parent says that it is under way: most are done by then, and say only that."""
STEP = 500
"""After so many parents others have their turn."""
CONFLICT_SECONDS = 0.05
"""After so long a report is made again that somebody else's write came before."""
WORKERS = 16
CHILD_KINDS = "homeostat.dev/child-kinds"
"""Annotation of a composer's CustomResourceDefinition: every kind that its children were ever of."""


class _Unread(Exception):
    """Objects of a kind were not read yet: nobody knows which children there are."""


class _Verified(NamedTuple):
    """Of which very object, in which state, it was last seen that it is as declared."""

    uid: str
    revision: str


@dataclass(slots=True)
class _Parent:
    """What is known of one parent: which of its children are declared, and what is the matter with it."""

    key: Key
    uid: str
    heard: int = 0  # which state of it was last looked at, its status left out
    mark: Any = None  # of what was composed: all of the parent but its status
    wanted: dict[Child, Object] = field(default_factory=dict)
    order: list[list[Child]] = field(default_factory=list)
    declared: dict[Child, Key] = field(default_factory=dict)
    waiting: int = 0  # those whose stage has not come
    problem: str = ""
    patient_until: float = 0.0  # before that nobody is told that it is not done yet


class Composed:
    """The declarations of children. Nothing of a parent's children changes while it cannot be told what they should be."""

    def __init__(self, composer: Composer[Any], client: Client, clock: Clock, bell: Bell) -> None:
        self._composer = composer
        self._client = client
        self._clock = clock
        self._bell = bell
        self.resource = client.kind(composer.info.api_version, composer.info.kind)
        self._parents = Followed(client, composer.info.api_version, composer.info.kind)
        self._known: dict[Key, _Parent] = {}
        self._by_uid: dict[str, Key] = {}
        self._objects: dict[Key, Object] = {}
        self._owners: dict[Key, Key] = {}  # of declared children: the parent
        self._verified: dict[Key, _Verified] = {}
        self._kinds: dict[tuple[str, str], Informer[Packed]] = {}
        self._names: dict[tuple[str, str], tuple[str, bool]] = {}  # plural.group, and whether in a namespace
        self.kept: set[str] = set()  # of those (plural.group) that a loop keeps itself
        self._handlers: list[Callable[[Key], None]] = []
        self._queue: WorkQueue[Key] = WorkQueue(source=client.random)
        self._unread: set[Key] = set()  # parents that wait for kinds of children to be read
        self._revision = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # As declarations

    def start(self) -> None:
        self._parents.start()

    async def stop(self) -> None:
        self._queue.close(drain=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._parents.stop()
        for informer in self._kinds.values():
            await informer.stop()

    async def wait_synced(self) -> None:
        """Until the parents were read, and all were composed whose children can be read within some seconds."""
        await self._parents.wait_synced()
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for kind in await self._kinds_ever():
                    await self._learn(kind)
                await asyncio.gather(*(informer.wait_synced() for informer in self._kinds.values()))
        except (TimeoutError, ApiError) as error:
            log.warning("some kinds of children of %s cannot be read yet: %s", self._composer.info.name, error)
        await self._begin()
        for _ in range(WORKERS):
            self._spawn(self._work())
        await self._queue.join()

    async def _begin(self) -> None:
        """Takes up the parents whose children are as they were verified before a restart; the others are for the workers."""
        self._parents.subscribe(self._parent_changed)
        for number, key in enumerate(self._parents.all()):
            if not self._take_up(key):
                self._queue.add(key)
            if number % STEP == 0:
                await asyncio.sleep(0)

    def _take_up(self, key: Key) -> bool:
        packed = self._parents.packed(key)
        if packed is None or packed.deleting or b'"verified"' not in packed.body or key in self._known:
            return False
        obj, known = packed.load(), _Parent(key, packed.uid)
        try:
            known.wanted, known.mark, known.heard = self._wanted(obj), _mark(obj), packed.mark
            known.order = stages(known.wanted)
            if not self._as_verified(known, obj, self._existing(known)):
                return False
        except Exception:  # whatever it is, it is told when it is composed
            return False
        self._known[key], self._by_uid[known.uid] = known, key
        return True

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
        self._queue.add(self._owners[key])
        return changed

    def verified(self, key: Key, uid: str, revision: str) -> None:
        """A child is as declared, and this is the object that was seen to be so."""
        self._verified[key] = _Verified(uid, revision)

    def is_verified(self, key: Key) -> bool:
        """Whether a child, by all that was heard of it, is as it was last seen to be as declared."""
        owner, known = self._owners.get(key), self._verified.get(key)
        if owner is None or known is None or (child := self._child(owner, key)) is None:
            return False
        found = self._kinds[self._objects[key]["spec"]["manifest"]["apiVersion"], child.kind].get(child.name, child.namespace)
        return found is not None and known == (found.uid, found.revision)

    def _child(self, owner: Key, key: Key) -> Child | None:
        return next((child for child, one in self._known[owner].declared.items() if one == key), None)

    def drop(self, key: Key) -> None:
        """A child that was to go is gone."""
        self._objects.pop(key, None)
        self._verified.pop(key, None)
        owner = self._owners.pop(key, None)
        if owner is not None:
            known = self._known[owner].declared
            self._known[owner].declared = {child: one for child, one in known.items() if one != key}
            self._queue.add(owner)
        self._tell(key)

    async def check(self, key: Key) -> Object:
        """A child's declaration, if its parent, read fresh, still means it so. Raises `Moved`; `ApiError` 404 without it."""
        obj = self._objects.get(key)
        if obj is None:
            raise not_found(self._composer.info.group, "children", key.name)
        owner = self._owners[key]
        known = self._known[owner]
        parent = await self.resource.get(owner.name, namespace=owner.namespace)
        wanted = known.wanted if _mark(parent) == known.mark else self._wanted(parent)
        child = self._child(owner, key)
        assert child is not None
        same = (child not in wanted) if going(obj) else wanted.get(child) == obj["spec"]["manifest"]
        if parent["metadata"]["uid"] != obj["metadata"]["uid"] or not same:
            self._queue.add(owner)
            raise Moved("its parent means it otherwise by now")
        return obj

    async def unmoved(self, keys: Iterable[Key], fresh: bool) -> set[Key]:
        """Those of them whose objects are in the very state in which they were last seen to be as declared.

        `fresh` reads their kinds anew; without, what was read last counts, which is for a start, when that was just now.
        """
        now: dict[Key, _Verified] = {}
        for kind, informer in self._kinds.items():
            plural = self._names[kind][0]
            found = await self._client.kind(*kind, Packed).list() if fresh else informer.all()
            now.update(
                (Key(one.key.namespace, f"{plural}/{one.key.name}"), _Verified(one.uid, one.revision)) for one in found
            )
        return {key for key in keys if (known := self._verified.get(key)) is not None and now.get(key) == known}

    # What changes

    def _parent_changed(self, key: Key) -> None:
        known, found = self._known.get(key), self._parents.packed(key)
        if known is None or found is None or known.heard != found.mark:  # our own reports come by here too
            self._queue.add(key)

    def _child_changed(self, kind: tuple[str, str], key: Key) -> None:
        name = Key(key.namespace, f"{self._names[kind][0]}/{key.name}")
        found = self._kinds[kind].get(key.name, key.namespace)
        declared = self._objects.get(name)
        if declared is not None:
            if found is None or self._verified.get(name) != (found.uid, found.revision):  # else: our own write
                self._bell.ring(self.ref_of(declared))
        elif found is not None and (owner := self._by_uid.get(found.owner)) is not None:
            self._queue.add(owner)  # one of ours that is not declared: it is to go

    def ref_of(self, obj: Object) -> Ref:
        """How a child is named in the ledger."""
        metadata = obj["metadata"]
        return Ref(f"children.{self._composer.info.name}", metadata["namespace"], metadata["name"], metadata["uid"])

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"composer {self._composer.info.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            try:
                await self._compose(key)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not isinstance(error, ApiError):
                    log.exception("%s %s cannot be composed", self._composer.info.kind, key)
                self._queue.retry(key)
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)

    # One parent

    async def _compose(self, key: Key) -> None:
        packed, known = self._parents.packed(key), self._known.get(key)
        obj = None if packed is None else packed.load()
        if known is not None and (obj is None or obj["metadata"]["uid"] != known.uid or going(obj)):
            self._withdraw(known)
            known = None
        if obj is None or going(obj):
            return  # its children go with it, by their owner references
        if known is None:
            known = self._known[key] = _Parent(key, obj["metadata"]["uid"])
            self._by_uid[known.uid] = key
        assert packed is not None
        known.heard = packed.mark
        try:
            await self._declare(known, obj)
            known.problem = ""
        except _Unread as why:
            self._unread.add(key)
            self._queue.add_after(key, AGAIN_SECONDS)
            if not (problem := str(why)):
                return
            known.problem = problem
        except (ComposeError, InvalidSpec, ApiError) as error:
            known.mark, known.problem = None, str(error)
            self._queue.add_after(key, AGAIN_SECONDS)
        except Exception as error:
            log.exception("%s %s cannot be composed", self._composer.info.kind, key)
            known.mark, known.problem = None, f"{type(error).__name__}: {error}"
        await self._report(known, obj)

    async def _declare(self, known: _Parent, obj: Object) -> None:
        if (mark := _mark(obj)) != known.mark:
            manifests = list(self._composer.compose(decode(self._composer.info.spec, obj.get("spec") or {}), obj))
            kinds = {kind_of(manifest) for manifest in manifests}
            for kind in sorted(kinds):
                await self._learn(kind)
            wanted = children_of(obj, manifests, {kind: self._names[kind][1] for kind in kinds})
            known.order, known.wanted, known.mark = stages(wanted), wanted, mark
            known.patient_until = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        existing = self._existing(known)
        if not known.declared and self._as_verified(known, obj, existing):
            return
        wanted, ready, known.waiting = known.wanted, True, 0
        for stage in known.order:
            for child in stage:
                if ready or self._is_so(existing.get(child), wanted[child]):
                    self._put(known, obj, child, wanted[child])
                elif child not in known.declared or self._manifest(known, child) != wanted[child]:
                    known.waiting += 1
            ready = ready and all(self._ready(known, child) for child in stage)
        for child in sorted(existing.keys() - wanted.keys() - known.declared.keys()):
            live = existing[child].load()
            if is_ours(live, known.uid, self._composer.manager):
                self._put(known, obj, child, _as_is(live, self._composer.manager))  # till its turn to go comes
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

    def _existing(self, known: _Parent) -> dict[Child, Packed]:
        """What there is that this parent controls, of all kinds that children were ever of."""
        found: dict[Child, Packed] = {}
        for (version, kind), informer in self._kinds.items():
            if not informer.synced:
                raise _Unread(f"objects of {version} {kind} cannot be read: {informer.problem}" if informer.problem else "")
            for one in informer.indexed("owner", known.uid):
                found[Child(version.rpartition("/")[0], kind, one.key.namespace, one.key.name)] = one
        return found

    def _is_so(self, packed: Packed | None, manifest: Object) -> bool:
        """Whether a child is there as wanted already: then it need not wait for its turn."""
        if packed is None:
            return False
        obj = packed.load()
        if not is_ours(obj, packed.owner, self._composer.manager):
            return False
        return bool(view(manifest, obj, fields_of(obj), fields_of(obj, self._composer.manager)) == manifest)

    # What a restart finds as it was left

    def _digest(self, known: _Parent, seen: Mapping[Child, _Verified]) -> str:
        """Names what is wanted of the children, and the very states in which they were seen to be so."""
        lines = [(*child, known.wanted[child], *seen[child]) for child in sorted(known.wanted)]
        return xxh3_128_hexdigest(orjson.dumps(lines, option=orjson.OPT_SORT_KEYS))

    def _as_verified(self, known: _Parent, parent: Object, existing: Mapping[Child, Packed]) -> bool:
        """Declares all children as they were verified before a restart, if nothing has moved since."""
        status = parent.get("status") or {}
        if not status.get("verified") or existing.keys() != known.wanted.keys() or not child_is(parent, "Ready"):
            return False
        seen = {child: _Verified(one.uid, one.revision) for child, one in existing.items()}
        if self._digest(known, seen) != status["verified"]:
            return False
        known.waiting = 0
        for child, manifest in known.wanted.items():
            self._put(known, parent, child, manifest, verified=seen[child])
        return True

    async def _kinds_ever(self) -> set[tuple[str, str]]:
        crd = await self._definition().get(self._composer.info.name)
        text = (crd["metadata"].get("annotations") or {}).get(CHILD_KINDS, "")
        return read_kinds(text.split(",")) if text else set()

    def _definition(self) -> Any:
        return self._client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")

    async def _learn(self, kind: tuple[str, str]) -> None:
        """Follows the objects of a kind from now on. It is written down before the first is made, so that none is lost sight of."""
        if kind in self._kinds:
            return
        resource = self._client.kind(*kind, Packed)
        served = await resource.served()
        ever = await self._kinds_ever()
        if kind not in ever:
            note = {"metadata": {"annotations": {CHILD_KINDS: ",".join(named_kinds(ever | {kind}))}}}
            await self._definition().patch(self._composer.info.name, note, field_manager=f"{MANAGER}-composer")
        if kind in self._kinds:
            return  # another parent was faster
        group = kind[0].rpartition("/")[0]
        name = f"{served.plural}.{group}" if group else served.plural
        self._names[kind] = (name, served.namespaced)
        if CATEGORY in served.categories:
            self.kept.add(name)
        informer = self._kinds[kind] = resource.informer(indexes={"owner": lambda one: [one.owner] if one.owner else []})
        informer.subscribe(lambda key: self._child_changed(kind, key))
        informer.start()

        async def tell() -> None:
            await informer.wait_synced()
            while self._unread:  # who waited for it is composed again
                self._queue.add(self._unread.pop())

        self._spawn(tell())

    # Declaring

    def _put(
        self,
        known: _Parent,
        parent: Object,
        child: Child,
        manifest: Object,
        *,
        leaves: bool = False,
        verified: _Verified | None = None,
    ) -> None:
        """Declares a child, or that it is to go; what is declared so already stays as it is, and so does what was `verified`."""
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
            "annotations": {ADOPT: said[ADOPT]} if ADOPT in said else {},
            "generation": before["metadata"]["generation"] + 1 if before is not None else 1,
        }
        if verified is None:
            came = inherited(parent["metadata"], leaves)
            metadata["annotations"] |= came.pop("annotations", {})
            metadata |= came
        if leaves:
            metadata["deletionTimestamp"] = self._clock.timestamp()
        status = before["status"] if before is not None else {}
        if verified is not None:
            status = ready_status(metadata["generation"], {"manifest": masked(manifest, known.uid)}, verified.uid)
        self._objects[key] = {"metadata": self._next(metadata), "spec": {"manifest": manifest}, "status": status}
        self._owners[key], known.declared[child] = known.key, key
        if verified is not None:
            self._verified[key] = verified
        else:
            self._verified.pop(key, None)
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
            self._verified.pop(key, None)
            self._tell(key)

    # Reporting

    def _patience(self, known: _Parent) -> float:
        return known.patient_until - asyncio.get_running_loop().time()

    async def _report(self, known: _Parent, obj: Object) -> None:
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
        before = obj.get("status") or {}
        if status == before:
            return
        status[OBSERVED_AT] = self._clock.timestamp()
        if child_is({**obj, "status": status}, "Ready"):
            seen = {child: self._verified.get(key) for child, key in known.declared.items()}
            status["verified"] = self._digest(known, seen) if all(seen.values()) else None  # type: ignore[arg-type]
        elif not known.problem and all(map(_under_way, children)) and (left := self._patience(known)) > 0:
            self._queue.add_after(known.key, left)
            return
        metadata = obj["metadata"]
        same = {name: metadata[name] for name in ("uid", "resourceVersion")}  # a namesake made meanwhile does not get it
        try:
            await self.resource.patch(
                metadata["name"],
                {"metadata": same, "status": merge_patch(before, status)},
                namespace=metadata.get("namespace", ""),
                subresource="status",
                field_manager=MANAGER,
            )
        except ApiError as error:
            if error.reason not in ("Conflict", "NotFound"):
                raise
            self._queue.add_after(known.key, CONFLICT_SECONDS)


def key_of(obj: Object) -> Key:
    """Under which key a declaration stands."""
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])


def _mark(obj: Object) -> Any:
    """All of a parent that its children may hang on."""
    names = ("uid", "generation", "labels", "annotations", "deletionTimestamp")
    return [obj["metadata"].get(name) for name in names]


def _under_way(child: Object) -> bool:
    """Whether nothing is known of a child but that it is as declared, or being made so."""
    return find_condition(child, "Ready") is None or child_is(child, "Ready") or child_is(child, "Progressing")


def _as_is(obj: Object, manager: str) -> Object:
    """A live child as we once declared it."""
    ours = applied_by(obj, manager)
    names = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    whole = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    return {**ours, **whole, "metadata": {**ours.get("metadata", {}), **names}}
