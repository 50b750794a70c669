"""The declarations of children: a composer's parents are followed, composed, and their children declared, stage by stage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from homeostat.client import Client, Key, Packed, Unreachable
from homeostat.loop.applied import fields_of, shows
from homeostat.loop.changesets import inherited
from homeostat.loop.childkinds import ChildKinds, Unread
from homeostat.loop.compose import (
    DEEPEST,
    Child,
    ComposeError,
    Composer,
    child_of,
    children_of,
    controlled_by,
    is_ours,
    kind_of,
    manifests_of,
    owner_of,
    removals,
    stages,
    too_deep,
)
from homeostat.loop.declarations import Followed, Object
from homeostat.loop.failure import secrets_in, told
from homeostat.loop.fleet import Ref
from homeostat.loop.hints import Bell
from homeostat.loop.inmemory import InMemory, Verified
from homeostat.loop.lineage import Lineage
from homeostat.loop.live import masked
from homeostat.loop.parentreporting import CONFLICT_SECONDS, ParentReporter
from homeostat.loop.parents import (
    FOREGROUND,
    ORPHAN,
    Parent,
    as_is,
    child_is,
    child_metadata,
    deleted_by,
    going,
    mark_of,
    ready_status,
)
from homeostat.loop.provider import Moved
from homeostat.loop.queue import WorkQueue
from homeostat.loop.render import sensitive_paths
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError, not_found
from homeostat.model.kinds import InvalidSpec, schema_of
from homeostat.model.schema import Schema

log = logging.getLogger("homeostat.loop")

AGAIN_SECONDS = 5.0
"""After so long a parent is composed again whose children could not be told."""
FAILED_SECONDS = 60.0
"""After so long a parent is composed again whose composer raised: it may depend on more than its parent."""
SYNC_SECONDS = 10.0
"""How long a start waits for kinds of children to be read; those that come later are taken in then."""
STEP = 500
"""After so many parents others have their turn."""
NEWS_SECONDS = 1.0
"""After so long a parent is composed again of which a child is gone that is still heard of; or when the news of that comes."""
WORKERS = 32


class Composed(InMemory):
    """The declarations of children. Nothing of a parent's children changes while it cannot be told what they should be."""

    def __init__(self, composer: Composer[Any], client: Client, clock: Clock, bell: Bell) -> None:
        super().__init__(f"children.{composer.info.name}", composer.info.group)
        self._composer = composer
        self._secrets = sensitive_paths(Schema(schema_of(composer.info.spec)))
        self._client = client
        self._clock = clock
        self._bell = bell
        self.resource = client.kind(composer.info.api_version, composer.info.kind)
        self._parents = Followed(client, composer.info.api_version, composer.info.kind)
        self._known: dict[Key, Parent] = {}
        self._lineage = Lineage(composer.info, composer.manager, self._alive)
        self._owners: dict[Key, Key] = {}  # of declared children: the parent
        self.kinds = ChildKinds(client, composer.info.name, self._child_changed, self._kind_read)
        self._queue: WorkQueue[Key] = WorkQueue(source=client.random)
        written = client.kind(composer.info.api_version, composer.info.kind, Packed)
        self._reporter = ParentReporter(written, self._queue, self._objects, self._verified, self.kinds.kept, clock)
        self._unread: set[Key] = set()  # parents that wait for kinds of children to be read
        self._begun = False  # whether what a start finds was taken up, parents and children
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
        await self.kinds.stop()

    async def wait_synced(self) -> None:
        """Until the parents were read, and all were composed whose children can be read within some seconds."""
        await self._parents.wait_synced()
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                await self.kinds.begin()
        except (TimeoutError, ApiError) as error:
            log.warning("some kinds of children of %s cannot be read yet: %s", self._composer.info.name, error)
        await self._begin()
        for _ in range(WORKERS):
            self._spawn(self._work())
        await self._queue.join()

    async def _begin(self) -> None:
        """Takes up the parents whose children are as they were verified before a restart; the others are for the workers."""
        self._begun = True
        self._parents.subscribe(self._parent_changed)
        alive = {packed.uid for key in self._parents.all() if (packed := self._parents.packed(key)) is not None}
        for child in self.kinds.all():
            if child.owner and child.owner not in alive and (left := self._lineage.parent_of(child)) is not None:
                self._queue.add(left)
        for number, key in enumerate(self._parents.all()):
            if not self._take_up(key):
                self._queue.add(key)
            if number % STEP == 0:
                await asyncio.sleep(0)

    def _take_up(self, key: Key) -> bool:
        packed = self._parents.packed(key)
        if packed is None or packed.deleting or b'"verified"' not in packed.body or key in self._known:
            return False
        obj, known = packed.load(), Parent(key, packed.uid)
        try:
            known.wanted, known.mark, known.heard = self._wanted(obj), mark_of(obj), packed.mark
            known.order = stages(known.wanted)
            if not self._as_verified(known, obj, self._existing(known)):
                return False
        except Exception:  # whatever it is, it is told when it is composed
            return False
        self._known[key] = known
        self._lineage.live(known.uid, key)
        return True

    # What the controller writes

    def _status_changed(self, key: Key, obj: Object) -> None:
        self._queue.add(self._owners[key])

    def verified(self, key: Key, uid: str, revision: str) -> None:
        super().verified(key, uid, revision)
        if self.is_verified(key):
            self._bell.forget(self.ref_of(self._objects[key]))  # what rang was our own write

    def is_verified(self, key: Key) -> bool:
        """Whether a child, by all that was heard of it, is as it was last seen to be as declared."""
        known, obj = self._verified.get(key), self._objects.get(key)
        if known is None or obj is None:
            return False
        found = self._heard_of(key, obj)
        return found is not None and known.is_of(found)

    def _heard_of(self, key: Key, obj: Object) -> Packed | None:
        """A child as it was last heard of."""
        manifest = obj["spec"]["manifest"]
        return self.kinds.get((manifest["apiVersion"], manifest["kind"]), Key(key.namespace, manifest["metadata"]["name"]))

    def drop(self, key: Key) -> None:
        """A child that was to go is gone."""
        gone = self._objects.pop(key, None)
        self._verified.pop(key, None)
        owner = self._owners.pop(key, None)
        if owner is not None:
            known = self._known[owner].declared
            self._known[owner].declared = {child: one for child, one in known.items() if one != key}
            if gone is not None and self._heard_of(key, gone) is not None:
                self._queue.add_after(owner, NEWS_SECONDS)  # the news of its end is still to come: till then it would be found again
            else:
                self._queue.add(owner)
        self._tell(key)

    async def check(self, key: Key) -> Object:
        """A child's declaration, if its parent, read fresh, still means it so. Raises `Moved`; `ApiError` 404 without it."""
        obj = self._objects.get(key)
        if obj is None:
            raise not_found(self._composer.info.group, "children", key.name)
        owner = self._owners[key]
        known, child = self._known[owner], child_of(obj["spec"]["manifest"], key.namespace)
        parent = await self._read(owner)
        if known.gone:
            same = parent is None
        elif parent is None or parent["metadata"]["uid"] != known.uid or deleted_by(parent, ORPHAN):
            same = False
        else:
            wanted = known.wanted if mark_of(parent) == known.mark else self._wanted(parent)
            same = (child not in wanted) if going(obj) else wanted.get(child) == obj["spec"]["manifest"]
        if not same:
            self._queue.add(owner)
            raise Moved("its parent means it otherwise by now")
        return obj

    async def _read(self, key: Key) -> Object | None:
        """A parent, fresh; None where it is gone, or goes when its children have."""
        try:
            parent = await self.resource.get(key.name, namespace=key.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return None if deleted_by(parent, FOREGROUND) else parent

    async def unmoved(self, keys: Iterable[Key], fresh: bool) -> set[Key]:
        """Those of them whose objects are in the very state in which they were last seen to be as declared.

        `fresh` reads their kinds anew; without, what was read last counts, which is for a start, when that was just now.
        """
        now = {
            Key(one.key.namespace, f"{plural}/{one.key.name}"): Verified(one.uid, one.revision)
            for plural, one in await self.kinds.listed(fresh=fresh)
        }
        return {key for key in keys if (known := self._verified.get(key)) is not None and now.get(key) == known}

    # What changes

    def _parent_changed(self, key: Key) -> None:
        known = self._known.get(key)
        if known is None or (found := self._parents.packed(key)) is None or known.heard != found.mark:  # our own reports come by here too
            self._queue.add(key)

    def _kind_read(self) -> None:
        while self._unread:  # who waited for it is composed again
            self._queue.add(self._unread.pop())

    def _child_changed(self, kind: tuple[str, str], key: Key) -> None:
        if not self._begun:
            return  # a start reads all of them, and takes them up then
        name = Key(key.namespace, f"{self.kinds.names[kind]}/{key.name}")
        found = self.kinds.get(kind, key)
        declared = self._objects.get(name)
        owner = None if found is None else self._lineage.parent_of(found)
        if declared is not None:
            if found is None or (seen := self._verified.get(name)) is None or not seen.is_of(found):  # else: our own write
                self._bell.ring(self.ref_of(declared))
        elif owner is not None:
            self._queue.add(owner)  # one of ours that is not declared: it is to go

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
        goes = obj is None or going(obj)
        if obj is None or (goes and deleted_by(obj, FOREGROUND)):
            await self._depart(key, known)
            return
        uid = obj["metadata"]["uid"]
        if known is not None and (known.uid != uid or known.gone or (goes and deleted_by(obj, ORPHAN))):
            self._withdraw(known)
            known = None
        if goes:
            return  # its children stay as they are until it is gone
        if known is None:
            known = self._known[key] = Parent(key, uid)
            self._lineage.live(uid, key)
        assert packed is not None
        known.heard = packed.mark
        try:
            await self._declare(known, obj)
            known.problem = ""
        except Unread as why:
            self._unread.add(key)
            self._queue.add_after(key, AGAIN_SECONDS)
            if not (problem := str(why)):
                return
            known.problem = problem
        except (ComposeError, InvalidSpec, ApiError, Unreachable) as error:
            known.mark, known.problem = None, str(error)
            self._queue.add_after(key, AGAIN_SECONDS)
        except Exception as error:
            log.exception("%s %s cannot be composed", self._composer.info.kind, key)
            known.mark, known.problem = None, told(error, self._composer, set(secrets_in(obj.get("spec") or {}, self._secrets)))
            self._queue.add_after(key, FAILED_SECONDS)
        await self._reporter.report(known, obj)

    async def _depart(self, key: Key, known: Parent | None) -> None:
        """A parent that is gone, or waits to go, wants no children: each goes through the gate, and what is held there stays."""
        if known is None or not known.gone:
            if await self._read(key) is not None:
                self._queue.add_after(key, CONFLICT_SECONDS)  # we have not heard of it yet
                return
            before, known = known, None
            if before is not None:
                self._withdraw(before)
            if former := self._lineage.former(key):
                known = self._known[key] = Parent(key, min(former), gone=True)
        if known is None:
            return
        try:
            existing = self._existing(known)
        except Unread:
            self._unread.add(key)
            self._queue.add_after(key, AGAIN_SECONDS)
            return
        nobody: Object = {"metadata": {}}
        self._keep_till_its_turn(known, nobody, existing)
        self._prune(known, nobody)
        if not known.declared:
            self._withdraw(known)
            self._lineage.forget(key, self._lineage.former(key))

    async def _check_depth(self, obj: Object) -> None:
        """Raises `ComposeError` of a parent that is composed itself, and stands too deep."""
        above, namespace = controlled_by(obj), obj["metadata"].get("namespace", "")
        for _ in range(DEEPEST):
            if above is None:
                return
            try:
                owner = await self._client.kind(above["apiVersion"], above["kind"]).get(above["name"], namespace=namespace)
            except ApiError:
                return  # it is gone, or not ours to read: no one of ours composes without end by it
            if owner["metadata"]["uid"] != above["uid"]:
                return
            above = controlled_by(owner)
        raise too_deep()

    async def _declare(self, known: Parent, obj: Object) -> None:
        if (mark := mark_of(obj)) != known.mark:
            await self._check_depth(obj)
            manifests = manifests_of(self._composer, obj)
            kinds = {kind_of(manifest) for manifest in manifests}
            for kind in sorted(kinds - self.kinds.scopes.keys()):
                await self.kinds.learn(kind)
            wanted = children_of(obj, manifests, self.kinds.scopes)
            known.order, known.wanted, known.mark = stages(wanted), wanted, mark
            known.composed_at = asyncio.get_running_loop().time()
        existing = self._existing(known)
        if not known.declared and self._as_verified(known, obj, existing):
            return
        wanted, ready, known.waiting = known.wanted, True, 0
        before: Sequence[Child] = ()
        for stage in known.order:
            ready = ready and self._are_ready(known, before)
            for child in stage:
                if ready or self._is_so(existing.get(child), wanted[child]):
                    self._put(known, obj, child, wanted[child])
                elif child not in known.declared or self._manifest(known, child) != wanted[child]:
                    known.waiting += 1
            before = stage
        self._keep_till_its_turn(known, obj, existing)
        if not known.declared.keys() <= wanted.keys():
            self._drop_unmade(known, existing)
            if ready and self._are_ready(known, before):
                self._prune(known, obj)

    def _drop_unmade(self, known: Parent, existing: Mapping[Child, Packed]) -> None:
        """What is wanted no more and was never made is not made, either; should it come up all the same, its turn to go comes."""
        for child in sorted(known.declared.keys() - known.wanted.keys() - existing.keys()):
            if not going(self._objects[known.declared[child]]):
                self.drop(known.declared[child])

    def _keep_till_its_turn(self, known: Parent, obj: Object, existing: Mapping[Child, Packed]) -> None:
        """Declares what is ours and not wanted as it is: its turn to go comes."""
        if existing.keys() <= known.wanted.keys():
            return
        for child in sorted(existing.keys() - known.wanted.keys() - known.declared.keys()):
            live = existing[child].load()
            if is_ours(live, existing[child].owner, self._composer.manager):
                self._put(known, obj, child, as_is(live, self._composer.manager))

    def _are_ready(self, known: Parent, stage: Sequence[Child]) -> bool:
        for child in stage:
            if child not in known.declared or not child_is(self._objects[known.declared[child]], "Ready"):
                return False
        return True

    def _prune(self, known: Parent, obj: Object) -> None:
        """Has the last stage of what is no longer wanted go; the next when that is gone."""
        left = {child: self._manifest(known, child) for child in known.declared if child not in known.wanted}
        for stage in removals(left)[:1]:
            for child in stage:
                self._put(known, obj, child, left[child], leaves=True)

    def _existing(self, known: Parent) -> dict[Child, Packed]:
        """What there is that this parent controls, or one of its name did, of all kinds that children were ever of."""
        former = self._lineage.former(known.key)
        if not former:
            return self.kinds.of((known.uid,))
        found = self.kinds.of([known.uid, *sorted(former - {known.uid})])
        self._lineage.forget(known.key, former - {one.owner for one in found.values()})
        return found

    def owns(self, ref: Ref, obj: Object) -> bool:
        """Whether an object is a child of a parent, or of one that had its name before, and made by us."""
        owner = self._owners.get(Key(ref.namespace, ref.name))
        if owner is not None and not self._known[owner].gone and not self._lineage.names(obj, owner):
            return False
        uids = [ref.uid, *sorted(self._lineage.former(owner) if owner is not None else ())]
        if owner is not None and not self._known[owner].gone:
            uids.append(owner_of(obj))
        return any(is_ours(obj, uid, self._composer.manager) for uid in uids)

    def goes_with_its_parent(self, ref: Ref) -> bool:
        """Whether a child is to go because its parent is gone."""
        owner = self._owners.get(Key(ref.namespace, ref.name))
        return owner is not None and self._known[owner].gone

    def _alive(self, key: Key) -> str:
        found = self._parents.packed(key)
        return "" if found is None else found.uid

    def _is_so(self, packed: Packed | None, manifest: Object) -> bool:
        """Whether a child is there as wanted already: then it need not wait for its turn."""
        if packed is None:
            return False
        obj = packed.load()
        if not is_ours(obj, packed.owner, self._composer.manager):
            return False
        return shows(manifest, obj, fields_of(obj), fields_of(obj, self._composer.manager))

    # What a restart finds as it was left

    def _as_verified(self, known: Parent, parent: Object, existing: Mapping[Child, Packed]) -> bool:
        """Declares all children as they were verified before a restart, if nothing has moved since."""
        status = parent.get("status") or {}
        if not status.get("verified") or existing.keys() != known.wanted.keys() or not child_is(parent, "Ready"):
            return False
        seen = {child: Verified(one.uid, one.revision) for child, one in existing.items()}
        if known.digest(seen) != status["verified"]:
            return False
        known.waiting = 0
        for child, manifest in known.wanted.items():
            self._put(known, parent, child, manifest, verified=seen[child])
        return True

    # Declaring

    def _put(
        self,
        known: Parent,
        parent: Object,
        child: Child,
        manifest: Object,
        *,
        leaves: bool = False,
        verified: Verified | None = None,
    ) -> None:
        """Declares a child, or that it is to go; what is declared so already stays as it is, and so does what was `verified`."""
        key = known.declared.get(child) or Key(child.namespace, f"{self.kinds.names[manifest['apiVersion'], child.kind]}/{child.name}")
        if self._owners.get(key, known.key) != known.key:
            raise ComposeError(f"{child} is a child of {self._owners[key]} already")
        before = self._objects.get(key)
        if before is not None and going(before) == leaves and (leaves or before["spec"]["manifest"] == manifest):
            return
        metadata = child_metadata(known, parent, key, manifest, before)
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

    def _manifest(self, known: Parent, child: Child) -> Object:
        found: Object = self._objects[known.declared[child]]["spec"]["manifest"]
        return found

    def _wanted(self, parent: Object) -> dict[Child, Object]:
        manifests = manifests_of(self._composer, parent)
        if any(kind_of(manifest) not in self.kinds.scopes for manifest in manifests):
            raise Moved("its parent means it otherwise by now")
        return children_of(parent, manifests, self.kinds.scopes)

    def _withdraw(self, known: Parent) -> None:
        """Forgets the children of a parent that is gone, without a word to the world; their names stay in the lineage."""
        del self._known[known.key]
        self._lineage.end(known.uid, known.key)
        for key in known.declared.values():
            self._objects.pop(key, None)
            self._owners.pop(key, None)
            self._verified.pop(key, None)
            self._tell(key)


def key_of(obj: Object) -> Key:
    """Under which key a declaration stands."""
    return Key(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
