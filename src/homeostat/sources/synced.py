"""What Syncs declare: the goal of each is found, made ready as a whole, and declared stage by stage; the engine does the rest.

Nothing of a commit is declared before all of it was found good. What was declared before stays declared, and kept, while a commit
cannot be had, read or validated: a source that fails, a file that is wrong, a server that does not answer change and delete nothing.
Objects belong to their Sync by a label and by our fields, wherever they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from homeostat.client import Client, Key, Unreachable
from homeostat.loop.compose import Child, named_kinds, read_kinds
from homeostat.loop.controller import MANAGER
from homeostat.loop.declarations import ADOPT, Followed, Object
from homeostat.loop.hints import Bell
from homeostat.loop.parents import child_is, going, open_of
from homeostat.loop.provider import Moved
from homeostat.loop.queue import Priority, WorkQueue
from homeostat.loop.status import merge_patch
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError, not_found
from homeostat.model.kinds import InvalidSpec, decode
from homeostat.model.protocol import FINALIZER
from homeostat.sources.declared import By, Declared
from homeostat.sources.fetching import Sources, SourceState
from homeostat.sources.files import RenderError
from homeostat.sources.goals import SHORT, Goal, Source, goal_of, source_of
from homeostat.sources.holdings import Holdings, Kind, NotYet, sync_of
from homeostat.sources.kinds import SyncSpec
from homeostat.sources.placing import Placing
from homeostat.sources.preparing import Home, Prepared
from homeostat.sources.readying import Mark, Readied, Readying, refusal
from homeostat.sources.repository import GitFailure
from homeostat.sources.status import Standing, conditions_of, inventory_of, refused_of, remembered
from homeostat.sources.webhook import Webhooks
from homeostat.sources.writeback import WriteBack

if TYPE_CHECKING:
    from homeostat.sources.sync import Sync

log = logging.getLogger("homeostat.sources")

LARGE = 50
CALM_SECONDS = 1.0
"""The sum of a Sync of more than so many objects is made up no more often than this while they come: ten thousand are no ten thousand sums."""
SOON_SECONDS = 1.0
CONFLICT_SECONDS = 0.05
PATIENCE_SECONDS = 1.0
"""So long a commit may take before its Sync says that it is under way: most are done by then, and say only that."""
WORKERS = 16


class Way(msgspec.Struct):
    """How far a Sync has come."""

    key: Key
    uid: str
    heard: int = 0
    generation: int = 0
    goal: Goal = msgspec.field(default_factory=Goal)
    readied: Readied = msgspec.field(default_factory=Readied)
    waiting: int = 0  # objects whose stage has not come
    late: set[Child] = msgspec.field(default_factory=set)  # objects that are declared and not yet so
    refused: Mark | None = None
    again_at: float = 0.0
    problem: tuple[str, str] | None = None
    error: RenderError | None = None
    patient_until: float = 0.0  # before that nobody is told that it is not done yet

    @property
    def prepared(self) -> Prepared | None:
        return self.readied.prepared

    @property
    def wanted(self) -> dict[Child, Object]:
        return self.prepared.wanted if self.prepared is not None else {}


class Synced:
    """The declarations of all Syncs, as `loop.declarations.Declarations` has it."""

    def __init__(self, sync: Sync, client: Client, clock: Clock, bell: Bell) -> None:
        info, manager = sync.info, sync.manager
        self._clock = clock
        self._bell = bell
        self.resource = client.kind(info.api_version, info.kind)
        self.sources = Sources(client, clock, sync.directory, sync.bounds)
        self._webhooks = Webhooks(client, self.sources)
        self._listen = sync.webhooks
        self.webhook_port = 0
        """Where pushes are told, once it has begun."""
        self.holdings = Holdings(client, self._object_changed)
        self.declared = Declared(f"children.{info.name}", clock, self._told)
        self.readying = Readying(client, self.holdings, manager)
        self._placing = Placing(self.holdings, self.declared, self.readying, manager)
        self._syncs = Followed(client, info.api_version, info.kind)
        self._ways: dict[Key, Way] = {}
        self._by_uid: dict[str, Key] = {}
        self._dependent: set[Key] = set()  # Syncs that wait for others
        self._queue: WorkQueue[Key] = WorkQueue(source=client.random)
        self._tasks: list[asyncio.Task[None]] = []
        self.write_back = WriteBack(client, clock, sync.bounds.hosts, self._queue.add)

    # As declarations

    def start(self) -> None:
        self._syncs.start()

    async def stop(self) -> None:
        self._queue.close(drain=False)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.write_back.stop()
        await self._webhooks.stop()
        await self.sources.stop()
        await self._syncs.stop()
        await self.holdings.stop()

    async def wait_synced(self) -> None:
        """Until Syncs and sources were read, and all was declared that can be without the network."""
        await self._syncs.wait_synced()
        await self.sources.start()
        self._syncs.subscribe(self._sync_changed)
        self.sources.subscribe(self._source_changed)
        for key in self._syncs.all():
            self._queue.add(key)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work(), name=f"sync {number}") for number in range(WORKERS)]
        self.write_back.start()
        if self._listen is not None:
            try:
                self.webhook_port = await self._webhooks.start(*self._listen)
            except OSError as error:  # polling is the safety net
                log.error("no webhooks are heard: %s:%d: %s", *self._listen, error.strerror or error)
        await self._queue.join()

    def get(self, key: Key) -> Object | None:
        return self.declared.get(key)

    def mark(self, key: Key) -> Hashable:
        return self.declared.mark(key)

    def revision(self, key: Key) -> str:
        return self.declared.revision(key)

    def all(self) -> list[Key]:
        return self.declared.all()

    def subscribe(self, handler: Callable[[Key], None]) -> Callable[[], None]:
        return self.declared.subscribe(handler)

    # For the controller

    async def check(self, key: Key) -> Object:
        """A declaration, if its Sync, read fresh, still means it so. Raises `Moved`; `ApiError` 404 where it is none."""
        obj, found = self.declared.get(key), self.declared.owner(key)
        if obj is None or found is None:
            raise not_found("homeostat.dev", "children", key.name)
        sync, child = found
        parent, way = await self.resource.get(sync.name, namespace=sync.namespace), self._ways[sync]
        same = (child not in way.wanted) if going(obj) else way.wanted.get(child) == obj["spec"]["manifest"]
        now = parent["metadata"]["uid"], parent["metadata"].get("generation", 0)
        if now != (way.uid, way.generation) or not same:
            self._queue.add(sync)
            raise Moved("its Sync means it otherwise by now")
        return obj

    def is_verified(self, key: Key) -> bool:
        """Whether an object, by all that was heard of it, is as it was last seen to be as declared."""
        obj, found, seen = self.declared.get(key), self.declared.owner(key), self.declared.seen(key)
        if obj is None or found is None or seen is None:
            return False
        live = self.holdings.get((obj["spec"]["manifest"]["apiVersion"], found[1].kind), found[1])
        return live is not None and seen.is_of(live)

    async def unmoved(self, keys: Iterable[Key], fresh: bool) -> set[Key]:
        """Those whose objects are in the very state in which they were last seen to be as declared."""
        now = await self.holdings.listed(fresh=fresh)
        return {key for key in keys if (seen := self.declared.seen(key)) is not None and now.get(key) == seen}

    def at(self, change_set: str) -> list[Key]:
        """The Syncs that apply a change set."""
        return [key for key, way in self._ways.items() if way.prepared is not None and way.prepared.change_set == change_set]

    def commit_of(self, key: Key) -> str:
        """The commit that a Sync is at, or on its way to."""
        way = self._ways.get(key)
        return way.prepared.facts.id if way is not None and way.prepared is not None else ""

    # What changes

    def _told(self, sync: Key, child: Child, done: bool) -> None:
        """An object has a new status. The sum of a large Sync is made up when all that it waits for is done, or after a while."""
        way = self._ways.get(sync)
        if way is not None:
            (way.late.discard if done else way.late.add)(child)
        if way is not None and way.late and len(self.declared.of(sync)) > LARGE:
            self._queue.add_after(sync, CALM_SECONDS, Priority.CHANGE)
        else:
            self._queue.add(sync)

    def _sync_changed(self, key: Key) -> None:
        way, found = self._ways.get(key), self._syncs.packed(key)
        if way is None or found is None or way.heard != found.mark:  # our own reports come by here too
            self._queue.add(key)
        for other in self._dependent:
            if other.namespace == key.namespace and other != key:
                self._queue.add(other)

    def _source_changed(self, source: Key) -> None:
        for key in self._syncs.all():
            if key.namespace == source.namespace:
                obj = self._syncs.get(key)
                if obj is not None and source_of(obj) == source.name:
                    self._queue.add(key)

    def _object_changed(self, kind: Kind, key: Key) -> None:
        name = Key(key.namespace, f"{self.holdings.names[kind][0]}/{key.name}")
        live, obj = self.holdings.find(kind, key), self.declared.get(name)
        if obj is not None:
            if live is None or (seen := self.declared.seen(name)) is None or not seen.is_of(live):  # else: our own write
                self._bell.ring(self.declared.ref_of(obj))
        elif live is not None and (owner := self._by_uid.get(sync_of(live))) is not None:
            self._queue.add(owner)  # one of ours that is not declared: it is to go

    async def _work(self) -> None:
        while (key := await self._queue.get()) is not None:
            try:
                await self._sync(key)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not isinstance(error, (ApiError, Unreachable)):
                    log.exception("Sync %s failed", key)
                self._queue.retry(key)
            else:
                self._queue.forget(key)
            finally:
                self._queue.done(key)

    # One Sync

    async def _sync(self, key: Key) -> None:
        packed, way = self._syncs.packed(key), self._ways.get(key)
        obj = None if packed is None else packed.load()
        if way is not None and (obj is None or obj["metadata"]["uid"] != way.uid):
            self._forget(way)
            way = None
        if obj is None or packed is None:
            return
        if way is None:
            way = self._ways[key] = Way(key, obj["metadata"]["uid"])
            self._by_uid[way.uid] = key
        way.heard, way.generation = packed.mark, obj["metadata"].get("generation", 0)
        try:
            spec = decode(SyncSpec, obj.get("spec") or {})
            if going(obj):
                await self._depart(way, obj, spec)
                return
            await self._proceed(way, obj, spec)
        except InvalidSpec as error:
            way.problem = "Invalid", str(error)
        except (NotYet, Unreachable) as error:
            way.problem = "NotYet", str(error)
            self._queue.add_after(key, SOON_SECONDS)
        await self._report(way, obj)

    async def _proceed(self, way: Way, obj: Object, spec: SyncSpec) -> None:
        applied = way.prepared.facts.id if way.prepared is not None else (obj.get("status") or {}).get("commit", "")
        state, way.goal = self.goal(way.key, spec, applied)
        (self._dependent.add if way.goal.reason == "DependsOn" else self._dependent.discard)(way.key)
        await self._advance(way, obj, spec, state)
        if way.prepared is not None:
            await self._hold_on(obj, spec)
            await self._announce(way, obj)
            await self._place(way, obj, spec)

    def goal(self, key: Key, spec: SyncSpec, applied: str) -> tuple[SourceState, Goal]:
        """The commit that a Sync should be at, which was last brought to `applied`, and its source."""
        state = self.sources.state(Key(key.namespace, spec.source.name))
        beside = {one.name: self._syncs.get(Key(key.namespace, one.name)) for one in spec.depends_on}
        others = {name: other for name, other in beside.items() if other is not None}
        source = Source(state.commit, state.problem, state.reason)
        return state, goal_of(spec, key.namespace, key.name, source, applied, others)

    async def _place(self, way: Way, obj: Object, spec: SyncSpec) -> None:
        assert way.prepared is not None
        placed = await self._placing.place(_by(way, obj, way.prepared.change_set), way.prepared, prune=spec.prune)
        way.waiting, way.late = placed.waiting, placed.late
        if placed.refused is not None:
            way.problem, way.error = refusal(way.prepared.facts.id, placed.refused), placed.refused
        if placed.again:
            self._queue.add_after(way.key, placed.again)

    async def _advance(self, way: Way, obj: Object, spec: SyncSpec, state: SourceState) -> None:
        """Makes the commit ready that is the goal; where that is refused, stays with what was good."""
        if not way.goal.commit or state.repository is None or state.spec is None:
            way.problem = None
            return
        adopt = (obj["metadata"].get("annotations") or {}).get(ADOPT) == "true"
        mark = Mark(way.goal.commit, way.generation, *state.spec.seen, adopt)
        if way.prepared is not None and way.prepared.mark == mark:
            way.problem, way.refused, way.error = None, None, None
            return
        if way.refused == mark and self._clock.now() < way.again_at:
            self._queue.add_after(way.key, way.again_at - self._clock.now())
            return
        try:
            await self._ready(way, obj, spec, state, mark, way.goal.change_set)
            way.problem, way.refused, way.error = None, None, None
        except (RenderError, GitFailure) as error:
            way.refused, way.again_at = mark, self._clock.now() + spec.retry.total_seconds()
            self._queue.add_after(way.key, spec.retry.total_seconds())
            way.problem = refusal(mark.commit, error)
            way.error = error if isinstance(error, RenderError) else RenderError(str(error))
            last = (obj.get("status") or {}).get("commit", "")
            if way.prepared is None and last and last != mark.commit:
                await self._keep_last(way, obj, spec, state, mark._replace(commit=last))

    async def _keep_last(self, way: Way, obj: Object, spec: SyncSpec, state: SourceState, mark: Mark) -> None:
        """After a restart at a commit that is refused: what runs is kept as the last good commit has it."""
        try:
            await self._ready(
                way, obj, spec, state, mark, f"{way.key.namespace}/{spec.source.name}@{mark.commit[:SHORT]}"
            )
        except (RenderError, GitFailure) as error:
            log.warning(
                "Sync %s: the last good commit %s cannot be had any more: %s", way.key, mark.commit[:SHORT], error
            )

    async def _ready(
        self, way: Way, obj: Object, spec: SyncSpec, state: SourceState, mark: Mark, change_set: str
    ) -> None:
        assert state.repository is not None
        home = Home(way.uid, way.key.namespace, way.key.name, spec.target_namespace)
        ever = _kinds_of(obj)
        way.readied = await self.readying.ready(
            spec, home, state.repository, mark, change_set, way.readied, ever, self.claimed
        )
        way.patient_until = asyncio.get_running_loop().time() + PATIENCE_SECONDS

    def claimed(self, child: Child, kind: Kind) -> Key | None:
        """The Sync that has an object, and wants it; or may, for what it wants is not known yet."""
        if kind not in self.holdings.names:
            return None
        found = self.declared.owner(Key(child.namespace, f"{self.holdings.names[kind][0]}/{child.name}"))
        if found is not None and child in self._ways[found[0]].wanted:
            return found[0]
        live = self.holdings.get(kind, child)
        other = self._alive(sync_of(live)) if live is not None else None
        if other is None or (
            (way := self._ways.get(other)) is not None and way.prepared is not None and child not in way.wanted
        ):
            return None
        return other

    def _alive(self, uid: str) -> Key | None:
        if uid in self._by_uid:
            return self._by_uid[uid]
        return next(
            (key for key in self._syncs.all() if (one := self._syncs.packed(key)) is not None and one.uid == uid), None
        )

    # Before the first write

    async def _announce(self, way: Way, obj: Object) -> None:
        """Writes down what is about to be done, and of which kinds: after a crash nothing of it is lost sight of."""
        assert way.prepared is not None
        status, prepared = obj.get("status") or {}, way.prepared
        inventory = {**(status.get("inventory") or {}), "kinds": named_kinds(prepared.kinds | _kinds_of(obj))}
        if status.get("plan") == prepared.plan and status.get("inventory") == inventory:
            return
        written = await self._patch_status(obj, {**status, "plan": prepared.plan, "inventory": inventory})
        if written is None:
            raise NotYet("its plan could not be written down: somebody else wrote at the same time")
        obj["metadata"], obj["status"] = written["metadata"], written.get("status")

    async def _hold_on(self, obj: Object, spec: SyncSpec) -> None:
        """A Sync that takes its objects along when it goes has to stay until they are gone."""
        finalizers = obj["metadata"].get("finalizers") or []
        wanted = [one for one in finalizers if one != FINALIZER] + ([FINALIZER] if spec.on_delete == "Prune" else [])
        if set(wanted) != set(finalizers):
            obj["metadata"] = (await self._set_finalizers(obj, wanted))["metadata"]

    async def _set_finalizers(self, obj: Object, finalizers: list[str]) -> Object:
        metadata = obj["metadata"]
        patch = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
        return await self.resource.patch(
            metadata["name"], patch, namespace=metadata.get("namespace", ""), field_manager=MANAGER
        )

    # When a Sync goes

    def _forget(self, way: Way) -> None:
        self._ways.pop(way.key, None)
        self._dependent.discard(way.key)
        self._by_uid.pop(way.uid, None)
        self.declared.withdraw(way.key)
        self.write_back.forget(way.key)

    async def _depart(self, way: Way, obj: Object, spec: SyncSpec) -> None:
        """A Sync is deleted: its objects stay, or go through the guards before it does."""
        finalizers = obj["metadata"].get("finalizers") or []
        if spec.on_delete == "Prune" and FINALIZER in finalizers:
            await self.holdings.read(_kinds_of(obj))
            way.readied = Readied()
            if self._placing.clear(_by(way, obj, f"{way.key}-deleted")):
                return
        self._forget(way)
        if FINALIZER in finalizers:
            await self._set_finalizers(obj, [one for one in finalizers if one != FINALIZER])

    # Reporting

    async def _report(self, way: Way, obj: Object) -> None:
        status = self._status(way, obj)
        self._tell(way, obj, status)
        left = way.patient_until - asyncio.get_running_loop().time()
        if left > 0 and child_is({**obj, "status": status}, "Progressing"):
            self._queue.add_after(way.key, left)
        elif merge_patch(obj.get("status") or {}, status):
            await self._patch_status(obj, status)

    def _tell(self, way: Way, obj: Object, status: Object) -> None:
        """Has it written back, where the source says so."""
        source = self.sources.state(Key(way.key.namespace, source_of(obj))).spec
        to = source.write_back if source is not None else None
        keys = self.declared.of(way.key) if to is not None else {}
        seen = [c for c in way.late if c in keys and self.declared.at(keys[c])["status"]]  # the rest was not looked at yet
        late = [f"{child.kind}/{child.name}" for child in seen]
        self.write_back.tell(way.key, to, {**obj, "status": status}, late)
        status["writtenBack"] = self.write_back.shown(way.key)

    def _status(self, way: Way, obj: Object) -> Object:
        before, now, prepared = obj.get("status") or {}, self._clock.timestamp(), way.prepared
        declared, wanted = self.declared.of(way.key), way.wanted
        late = [self.declared.at(declared[child]) for child in way.late if child in declared and child in wanted]
        leaving = [self.declared.at(key) for child, key in declared.items() if child not in wanted]
        at, ready = prepared.facts.id if prepared is not None else "", len(declared) - len(leaving) - len(late)
        status: Object = {
            **before,
            "observedGeneration": way.generation,
            "goal": way.goal.commit or None,
            "refused": _refused(way),
        }
        standing = Standing(len(declared) - len(leaving), late, leaving, way.waiting, at)
        status["conditions"] = conditions_of(obj, way.goal, way.problem, standing, now)
        status["objects"] = {"desired": len(wanted), "ready": ready, "waiting": way.waiting, "leaving": len(leaving)}
        status["open"] = open_of([*late, *leaving], self.holdings.kept)
        if prepared is not None and ready == len(wanted) and not leaving and not way.waiting:
            kinds = (before.get("inventory") or {}).get("kinds") or ()
            known = (before.get("commit"), before.get("changeSet")) == (at, prepared.change_set)
            if not known or "counts" not in before.get("inventory", {}):
                status |= {
                    "commit": at,
                    "changeSet": prepared.change_set,
                    "appliedAt": now,
                    "inventory": inventory_of(wanted, kinds),
                }
                status["history"] = remembered(before.get("history") or (), prepared, now, "Applied")
        return status

    async def _patch_status(self, obj: Object, status: Mapping[str, Any]) -> Object | None:
        metadata = obj["metadata"]
        same = {
            name: metadata[name] for name in ("uid", "resourceVersion")
        }  # a namesake made meanwhile does not get it
        patch = merge_patch(obj.get("status") or {}, status)
        try:
            return await self.resource.patch(
                metadata["name"], {"metadata": same, "status": patch}, namespace=metadata.get("namespace", ""),
                subresource="status", field_manager=MANAGER,
            )  # fmt: skip
        except ApiError as error:
            if error.reason not in ("Conflict", "NotFound"):
                raise
            self._queue.add_after(Key(metadata.get("namespace", ""), metadata["name"]), CONFLICT_SECONDS)
            return None


def _kinds_of(obj: Object) -> set[Kind]:
    """The kinds that a Sync ever applied, by its status."""
    return read_kinds(((obj.get("status") or {}).get("inventory") or {}).get("kinds") or ())


def _by(way: Way, obj: Object, change_set: str) -> By:
    return By(way.key, way.uid, change_set, (obj["metadata"].get("annotations") or {}).get(ADOPT, ""))


def _refused(way: Way) -> Object | None:
    if way.error is None or way.problem is None:
        return None
    return refused_of(way.error, way.refused.commit if way.refused is not None else way.goal.commit)
