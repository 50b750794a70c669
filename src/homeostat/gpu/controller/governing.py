"""Runs the governor on what is declared and reported: a snapshot, a decision, and wishes that the loop asks for.

Whatever changes what it decides on wakes it, a moment later, and a timer does. It decides only on whole copies of what there is, and never while
something is being written that it would have to know of: what was let through counts from the moment at which its write begins. So two
workloads are never promised the same GPU, however decisions and writes fall together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from homeostat.client import Client, Informer, Key, Packed
from homeostat.gpu.controller.hearing import LEASE, Hearing
from homeostat.gpu.controller.known import Known
from homeostat.gpu.controller.notes import Notes
from homeostat.gpu.controller.speaking import Speaker
from homeostat.gpu.controller.standing import (
    Object,
    Wish,
    WorkloadState,
    carried_out,
    conditions,
    meanwhile,
    reported,
    target_of,
)
from homeostat.gpu.controller.tenants import Holding
from homeostat.gpu.controller.undone import begin_anew, is_reserved, take_back
from homeostat.gpu.decisions import Memory, Plan, Verb
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import NODE, POLICY, POOL, TENANT, WORKLOAD, GpuPolicySpec
from homeostat.gpu.kinds import Phase as Stage
from homeostat.gpu.objects import Reader
from homeostat.gpu.pools.wishes import Wishes
from homeostat.gpu.snapshot import Snapshot
from homeostat.loop.election import NAMESPACE
from homeostat.loop.fleet import Ref
from homeostat.loop.hints import Bell
from homeostat.loop.provider import Moved
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec, decode, encode

log = logging.getLogger("homeostat.gpu")

QUIET_SECONDS = 0.005
"""A decision waits until for so long nothing more has changed,"""
SETTLE_SECONDS = 0.02
"""and no longer than this; while something else than starts is being carried out, until nothing has changed for that long,"""
SETTLE_MOST = 1.0
"""but no longer than this after the first change."""
FIRM_SECONDS = 5.0
"""So long a start that was decided stands after the loop took it up, unless something is declared anew; after that guards hold it, and it is
decided again."""
PART_DECIDING = 0.4
"""Of its time, that deciding may take at most: where one decision takes long, the next comes later."""
PLENTY = 100
"""While more starts than this are to be carried out, no more are decided on for a moment: they would only wait behind those."""
FRESH_CYCLES = 6
"""A plan is no longer to be relied on after so many times the seconds between two."""
FRESH_SECONDS = 30.0
MANAGER = "homeostat-governor"
UNREADABLE = (ArithmeticError, LookupError, TypeError, ValueError)
"""What reading an object raises that no schema would let in."""
_ENDED = ("Succeeded", "Failed")


class Governor:
    """`start` it with a client, `stop` it; both again as often as one likes. `bell` rings for what should be looked at."""

    def __init__(self, clock: Clock) -> None:
        self.bell = Bell()
        self._clock = clock
        self.turn = asyncio.Lock()
        """Held while it decides: what is written under it is known to the next decision."""
        self.nodes = Wishes()
        """What is wanted of nodes and pools."""
        self._begin()

    def _begin(self) -> None:
        self.wishes: dict[str, Wish] = {}
        self._informers: dict[str, Informer[Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reader = Reader(listens=True)
        self._policy = GpuPolicySpec()
        self._memory = Memory()
        self._uids: dict[Key, str] = {}
        self._refs: dict[str, Ref] = {}
        self._said: dict[str, tuple[Packed, tuple[Any, ...]]] = {}  # by uid: what agents reported last
        self._unread: set[str] = set()  # uids of those that cannot be read
        self._placed: set[str] = set()  # by uid: of whom agents may have something to tell
        self._ended: set[str] = set()  # by uid: of those, who has ended
        self._promised: set[str] = set()  # by uid: what is being written
        self._changed: dict[tuple[str, Key], None] = {}
        self._wake = asyncio.Event()
        self._first = asyncio.Event()
        self._came: dict[Key, float] = {}  # when it was first heard of, of those that are not read yet
        self._starts: set[str] = set()  # by uid: what is to be placed by the last plan, and is not yet
        self._firm: dict[str, None] = {}  # by uid: those of them that decisions count as placed
        self._taken_up: dict[str, float] = {}  # by uid: when the loop first looked at one of them
        self._ground = 0.0  # when what is declared of tenants, nodes and policies last changed
        self._generations: dict[tuple[str, Key], int] = {}
        self._decided = self._took = 0.0  # when the last decision began, and how long it took
        self._planned = 0.0
        self._trouble = ""

    # Its life

    def start(self, client: Client) -> None:
        """Begins to follow all that it decides on."""
        self._begin()
        self._workloads = client.kind(WORKLOAD.api_version, WORKLOAD.kind)
        self._notes = Notes(client, MANAGER)
        self._informers = {
            WORKLOAD.kind: client.kind(WORKLOAD.api_version, WORKLOAD.kind, Packed).informer(),
            LEASE: client.kind("coordination.k8s.io/v1", LEASE, namespace=NAMESPACE).informer(),
        }
        for info in (TENANT, NODE, POOL, POLICY):
            self._informers[info.kind] = client.kind(info.api_version, info.kind).informer()
        self._tenants = Holding(client, self._informers[TENANT.kind], MANAGER)
        self.hearing = Hearing(client, self._clock, self._reader)
        self.known = Known(self._informers[WORKLOAD.kind], self._clock, self.hearing, self.price)
        for kind, informer in self._informers.items():
            informer.subscribe(self._hearer(kind))
            informer.start()
        self._speaker = Speaker(client, self._clock, MANAGER, self._informers, self._refs.get)
        self.nodes.begin(client, self._informers, MANAGER)
        make = asyncio.get_running_loop().create_task
        self._tasks = [make(self._run(), name="governor"), make(self._speaker.run(), name="governor tells")]

    async def stop(self) -> None:
        """Ends it. What was decided and not carried out is decided again by whoever comes next."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._speaker.stop()
        await self.nodes.end()
        if self._planned:
            await self._notes.write(self._memory, last=True)
        for informer in self._informers.values():
            await informer.stop()

    def _hearer(self, kind: str) -> Callable[[Key], None]:
        def heard(key: Key) -> None:
            self._changed[kind, key] = None
            if kind == WORKLOAD.kind:
                wakes = self._hear_workload(key)
            else:  # hearts beat all the time
                wakes = kind != LEASE or self.hearing.returns(self._informers[LEASE].at(key))
            if wakes:
                self._wake.set()

        return heard

    def _hear_workload(self, key: Key) -> bool:
        """Takes note of a change; gives whether that is something to decide on. What is being written wakes when that is done, and what follows
        from a report when it was written down: before that it counts for nobody."""
        uid = self._uids.get(key)
        if uid is None:
            self._came.setdefault(key, self._clock.now())
            return True
        if uid in self._promised or uid not in self._placed:
            return uid not in self._promised
        try:
            return not self._hear_agents(self._refs[uid])
        except UNREADABLE:  # whoever takes it in says so
            return True

    async def _run(self) -> None:
        for informer in self._informers.values():
            await informer.wait_synced()
        self._memory = await self._notes.read()
        begin_anew(self._memory)
        self._changed.update(dict.fromkeys((kind, key) for kind, one in self._informers.items() for key in _keys(one)))
        while True:
            self._wake.clear()
            try:
                await self._cycle()
            except Exception as error:
                self._trouble = f"the governor cannot decide: {str(error) or type(error).__name__}"
                log.exception("the governor cannot decide")
            self._first.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self._policy.every.total_seconds(), self._speaker.again)):
                    await self._wake.wait()
            await self._settle()

    async def _settle(self) -> None:
        """Waits until nothing more comes, or only a few starts are left: a plan that is just being carried out should not change under way."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + SETTLE_MOST
        await asyncio.sleep(min(self._decided + self._took / PART_DECIDING, latest) - loop.time())
        enough = SETTLE_SECONDS - QUIET_SECONDS / 2  # timers are not exact
        changed = begun = loop.time()
        while loop.time() < latest:
            self._wake.clear()
            await asyncio.sleep(QUIET_SECONDS)
            now, quiet = loop.time(), not self._wake.is_set()
            changed = changed if quiet else now
            only_starts = self.wishes.keys() <= self._starts
            settled = quiet or now - begun >= enough if only_starts else now - changed >= enough
            if settled and len(self._starts) <= PLENTY:
                return

    # What is

    async def ready(self) -> None:
        """Waits for the first decision after a start."""
        await self._first.wait()

    def check_fresh(self) -> None:
        """RuntimeError where nothing can be said of what is wanted."""
        if doubt := self._doubt():
            raise RuntimeError(doubt)

    def _doubt(self) -> str:
        age = self._clock.now() - self._planned
        if not self._trouble and age > max(FRESH_SECONDS, FRESH_CYCLES * self._policy.every.total_seconds()):
            return f"the governor has not decided for {age:.0f} s"
        return self._trouble

    @property
    def can_tell(self) -> bool:
        """Whether something was decided, and lately."""
        return self._first.is_set() and not self._doubt()

    def is_still(self, workload: Packed) -> bool:
        """Whether there is nothing to be done, settled or said about it: it has only just come, it waits, or it has ended."""
        uid = workload.uid
        if workload.deleting or uid in self.wishes or uid in self._unread or self._speaker.has_words(uid):
            return False
        return self._first.is_set() and (uid not in self._placed or uid in self._ended)

    def lost(self, node: str) -> bool:
        """Whether a node was not heard of for longer than its lease, or is no more."""
        return self.hearing.lost(node)

    def price(self, node: str) -> float:
        """What an hour of one GPU of a node costs."""
        found = self._informers[NODE.kind].get(node)
        return 0.0 if found is None else found["spec"].get("costPerHour", 0.0) / max(len(found["spec"].get("gpus") or ()), 1)

    def generation(self, tenant: str) -> int:
        """Which version of a tenant's declaration is in force; 0 where there is none."""
        found = self._informers[TENANT.kind].get(tenant)
        return 0 if found is None else int(found["metadata"].get("generation", 0))

    def _take_in(self) -> None:
        """Reads what changed since the last time. What is being written is read when that is done."""
        changed, self._changed = self._changed, {}
        for kind, key in changed:
            try:
                self._take(kind, key)
            except UNREADABLE as error:  # one that no schema would let in holds up no other
                log.warning("%s %s cannot be read and is left out: %s", kind, key, error)
                if kind == WORKLOAD.kind and (ref := self._refs.get(self._uids.get(key, ""))) is not None:
                    self._unread.add(ref.uid)
                    self.bell.ring(ref)  # whoever looks at it says so in its status

    def _take(self, kind: str, key: Key) -> None:
        obj = self._informers[kind].at(key)
        if kind == WORKLOAD.kind:
            self._take_workload(key, obj)
            return
        generation = -1 if obj is None else obj["metadata"].get("generation", 0)
        if kind != LEASE and self._generations.get((kind, key)) != generation:
            self._generations[kind, key], self._ground = generation, self._clock.now()
        if obj is None:
            self._reader.remove({"kind": kind, "metadata": {"name": key.name}})
        elif kind == POLICY.kind:
            self._take_policy(obj)
        else:
            self._reader.put({**obj, "kind": kind})

    def _take_workload(self, key: Key, packed: Packed | None) -> None:
        before = self._uids.get(key)
        if before is not None and (packed is None or packed.uid != before):
            self._reader.remove({"kind": WORKLOAD.kind, "metadata": {"name": key.name, "uid": before}})
            self._refs.pop(before, None)
            self._said.pop(before, None)
            self.known.forget(before)
            self._speaker.forget(before)
            self._over(before)
            self._placed.discard(before)
            self._ended.discard(before)
            self._unread.discard(before)
            del self._uids[key]
        came = self._came.pop(key, None)
        if packed is None:
            return
        if packed.uid in self._promised:
            self._changed[WORKLOAD.kind, key] = None
            return
        obj = self.known.open(packed)
        status = obj.get("status") or {}
        self._uids[key] = packed.uid
        first = packed.uid not in self._refs
        ref = self._refs.setdefault(packed.uid, Ref(WORKLOAD.name, key.namespace, key.name, packed.uid))
        self._put(obj, came)
        self._unread.discard(packed.uid)
        (self._ended.add if status.get("phase") in _ENDED else self._ended.discard)(packed.uid)
        if status.get("assignment"):
            self._placed.add(packed.uid)
            self._hear_agents(ref)
            if first:
                self.bell.ring(ref)
        else:
            self._placed.discard(packed.uid)
        if packed.uid in self._firm:
            self._put_firm(ref, obj)

    def _put(self, obj: Object, came: float | None = None) -> None:
        """Takes note of a workload as it is written: its GPUs are not another's before its own status says that it has left them."""
        more = self._speaker.hear(obj, came)
        self._reader.put({**obj, "status": {**(obj.get("status") or {}), **more}} if more else obj)

    def _put_firm(self, ref: Ref, obj: Object) -> None:
        """Counts what is about to be placed as if it were, as long as that may be: it goes on meanwhile, and is not decided a second time."""
        wish = self.wishes.get(ref.uid)
        if wish is None or obj["spec"].get("suspended") or "deletionTimestamp" in obj["metadata"] or not self._is_undone(ref.uid, wish):
            self._firm.pop(ref.uid, None)
            return
        self._firm[ref.uid] = None
        placed = {"phase": str(Stage.STARTING), "assignment": encode(wish.target)["assignment"]}
        self._reader.put({**obj, "status": {**(obj.get("status") or {}), **self._speaker.hear(obj, None), **placed}})

    def _loosen(self, uid: str) -> None:
        """Counts it as it is."""
        self._over(uid)
        if (ref := self._refs.get(uid)) is not None and (obj := self.known.object(ref)) is not None and uid not in self._promised:
            self._put(obj)

    def _over(self, uid: str) -> None:
        """Nothing is about to be begun of it any more."""
        self._starts.discard(uid)
        self._firm.pop(uid, None)
        self._taken_up.pop(uid, None)

    def _hear_agents(self, ref: Ref) -> bool:
        """Has the loop look at once at what agents reported: waves wait for it, and what follows from it is written down. Gives whether
        something does."""
        packed, known = self.known.packed(ref), self._said.get(ref.uid)
        if packed is None or (known is not None and known[0] is packed):
            return False
        obj = self.known.open(packed)
        said = reported(obj.get("status") or {})
        before = said if known is None else known[1]
        self._said[ref.uid] = (packed, said)
        if before != said:
            self.hearing.speaks([node for _, node, *_ in set(said[1]) - set(before[1])])
        follows = self.known.settled(obj) is not None
        if before != said or follows:
            self.bell.ring(ref)
        return follows

    def _take_policy(self, obj: Object) -> None:
        if obj["metadata"]["name"] != "default":
            return
        try:
            self._policy = decode(GpuPolicySpec, obj.get("spec") or {})
        except InvalidSpec as error:
            log.warning("the GpuPolicy cannot be read, and the one before stays in force: %s", error)

    # What is decided

    async def _cycle(self) -> None:
        async with self.turn:
            began = asyncio.get_running_loop().time()
            self._take_in()
            now, self.hearing.seconds = self._clock.now(), self._policy.failure.lease.total_seconds()
            self._check_firm(now)
            snapshot = self._reader.snapshot(now)
            if self.hearing.news(snapshot):
                await self.hearing.read()
                snapshot = self._reader.snapshot(now)
            if self._hear(snapshot):
                self._check_firm(now)
                snapshot = self._reader.snapshot(now)
            undone = {uid: wish for uid, wish in self.wishes.items() if uid not in self._firm and self._is_undone(uid, wish)}
            written = frozenset(self._promised)
            for wish in undone.values():
                if not is_reserved(self._memory, wish):
                    take_back(self._memory, wish)
            self.nodes.recall(self._memory)
            counted = frozenset(self._firm)
            plan = await asyncio.to_thread(decide, snapshot, self._policy, self._memory)
            await self._notes.write(plan.memory)
            self._adopt(plan, undone, counted, written, now)
            self.nodes.adopt(plan, snapshot, self._policy)
            self._planned, self._trouble = now, ""
            self._decided, self._took = began, asyncio.get_running_loop().time() - began
        await self._tenants.keep(snapshot)
        for ref in self._speaker.speak(snapshot, plan, busy=bool(self._starts)):
            self.bell.ring(ref)

    def _check_firm(self, now: float) -> None:
        """What the loop did not get through with, or was decided before something was declared anew, is decided again."""
        for uid in tuple(self._firm):
            wish = self.wishes.get(uid)
            stands = wish is not None and wish.at >= self._ground and now - self._taken_up.get(uid, now) <= FIRM_SECONDS
            if not stands or wish is None or any(self.lost(place.node) for place in wish.target.assignment):
                self._loosen(uid)

    def _hear(self, snapshot: Snapshot) -> bool:
        """Takes note of who is not heard of any more; gives whether nodes were lost or have come since the last time."""
        before, fallen = self.hearing.count, self.hearing.take(snapshot)
        for at in set(snapshot.places.workload[np.isin(snapshot.places.node, fallen)].tolist()) if fallen else ():
            self.bell.ring(self._refs[snapshot.workloads.uid[at]])  # nobody else reports it: what waited for that node waits no more
        return self.hearing.count > before

    def _is_undone(self, uid: str, wish: Wish) -> bool:
        ref = self._refs.get(uid)
        return ref is not None and uid not in self._promised and self.known.state(ref) == wish.basis

    def _adopt(self, plan: Plan, undone: Mapping[str, Wish], counted: Collection[str], written: Collection[str], now: float) -> None:
        """Takes a plan for what is wanted, and has the loop look at every workload of which that is something else than before.

        `counted` are those that were decided on as if they were placed; `written`, those that were being written when it was decided: of these,
        and of what is being written now, nobody knew whether it was still to make way, so it is. What was to begin was not counted as placed,
        and its GPUs may be another's by this plan: it is decided anew. What was done since is no wish any more.
        """
        before, self.wishes = self.wishes, {}
        self._starts.clear()
        new: list[Ref] = []
        for decision in plan.decisions:
            target, ref = target_of(decision), self._refs.get(decision.subject)
            if target is not None and ref is not None and decision.kind == WORKLOAD.kind:
                basis = self.known.state(ref)
                if ref.uid in counted and basis.phase is not Stage.RUNNING:
                    self._loosen(ref.uid)
                    continue  # it is not to be placed after all
                self.wishes[ref.uid] = Wish(basis, target, decision, now)
                if basis.phase is not target.phase and target.phase is Stage.RUNNING:
                    new.append(ref)
        unsure = {*written, *self._promised} - self.wishes.keys()
        going = (uid for uid in unsure if uid in before and before[uid].target.phase is not Stage.RUNNING)
        self.wishes |= {uid: before[uid] for uid in (*self._firm, *going) if uid in before}
        self._starts.update(self._firm, (ref.uid for ref in new))
        for ref in new:
            if (obj := self.known.object(ref)) is not None:
                self._put_firm(ref, obj)
            if (old := before.get(ref.uid)) is not None and old.target == self.wishes[ref.uid].target:
                self.take_up(ref.uid)  # the loop knows it already
        for uid, wish in undone.items():
            if uid not in self.wishes and is_reserved(plan.memory, wish):
                self.wishes[uid] = wish
            elif uid not in self.wishes:
                take_back(plan.memory, wish)
        for uid in {**before, **self.wishes}:
            was, is_ = before.get(uid), self.wishes.get(uid)
            if was is not is_ and (was and (was.basis, was.target)) != (is_ and (is_.basis, is_.target)) and uid in self._refs:
                self.bell.ring(self._refs[uid])
        self._memory = plan.memory

    def take_up(self, uid: str) -> None:
        """The loop looks at what is to be placed: now it can tell whether it may."""
        if uid in self._firm:
            self._taken_up.setdefault(uid, self._clock.now())

    # What is said

    def says(self, obj: Mapping[str, Any], status: Mapping[str, Any]) -> Object | None:
        """What is told of a workload beside what the loop says of it in `status`; None: nothing is written of it for now."""
        if obj["metadata"]["uid"] in self._unread:
            return {}  # there is nothing but that it cannot be read
        return self._speaker.words(obj, status, self.known.settled(obj))

    def keeps_silent(self, obj: Object) -> bool:
        """Whether `says` would say nothing, whatever the loop does: it was placed just now."""
        return obj["metadata"]["uid"] not in self._unread and self.known.settled(obj) is None and self._speaker.keeps_silent(obj)

    # What is done

    @contextlib.contextmanager
    def writing(self, ref: Ref) -> Iterator[Callable[[Object], Object]]:
        """While it lasts a workload is being written: hand what the server answers to what it gives, and it is known without being read again.

        What decisions count as placed is, when that was written, what it was decided to be: nothing new follows from it.
        """
        key, mine = Key(ref.namespace, ref.name), ref.uid not in self._promised
        self._promised.add(ref.uid)
        written = ""

        def wrote(obj: Object) -> Object:
            nonlocal written
            written = obj["metadata"]["resourceVersion"]
            self.known.wrote(ref, obj)
            return obj

        try:
            yield wrote
        finally:
            if mine:
                self._promised.discard(ref.uid)
            self._changed[WORKLOAD.kind, key] = None
            packed = self.known.packed(ref)
            ours_is_last = packed is not None and packed.revision == written
            if ours_is_last and ref.uid in self._placed:
                self._hear_agents(ref)  # from here on they tell something new: also what was just taken out of their reports
            if not (ours_is_last and ref.uid in self._firm):
                self._wake.set()

    async def carry_out(self, ref: Ref, target: WorkloadState) -> Object:
        """Writes what a workload is to be, for agents to act on; gives what was written. `Moved` where that is no longer what is wanted."""
        if target.phase is Stage.RUNNING and self.known.state(ref).phase is not Stage.RUNNING and (begun := self.known.object(ref)):
            await self._tenants.hold(begun["spec"]["tenant"])
        if ref.uid in self._firm:  # what is decided meanwhile counts it as placed
            obj, patch = self._promise(ref, target)
        else:
            async with self.turn:
                await self._check_lost(ref)
                obj, patch = self._promise(ref, target)
        same = {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}
        try:
            with self.writing(ref) as wrote:
                body = {"metadata": same, "status": patch}
                answer = self._workloads.patch(ref.name, body, namespace=ref.namespace, subresource="status", field_manager=MANAGER)
                written = wrote(await answer)
            self.wishes.pop(ref.uid, None)
            return written
        except ApiError as error:
            if error.reason == "Conflict":
                raise Moved("it was written to in the meantime") from error
            raise
        finally:
            self._promised.discard(ref.uid)
            self._over(ref.uid)

    async def _check_lost(self, ref: Ref) -> None:
        """`Moved` where a node that a workload is taken from, for it was lost, is back: its work would run twice."""
        back = await self.hearing.is_back(sorted({place["node"] for place in self.known.status(ref).get("assignment") or ()}))
        if back:
            self._wake.set()
            raise Moved(f"{back} is back")

    def _promise(self, ref: Ref, target: WorkloadState) -> tuple[Object, Object]:
        """What is to be written. It counts from now on: nobody else is given the same GPUs, whatever becomes of the write."""
        obj, wish = self.known.object(ref), self.wishes.get(ref.uid)
        if obj is None or wish is None or wish.target != target or self.known.state(ref) != wish.basis:
            raise Moved("the governor has decided anew")
        if wish.decision.verb is Verb.KEEP and self.known.status(ref).get("phase") != Stage.SUSPENDING:
            raise Moved("it was suspended in the meantime")
        now, before = self._clock.now(), obj.get("status") or {}
        patch = self._speaker.first_words(obj) | carried_out(obj, wish, now, self.lost, self.price)
        if before.get("conditions"):  # else nothing was told yet that is no longer so
            patch["conditions"] = conditions(obj, {**before, **patch}, self.lost, self._clock.timestamp())
        self._promised.add(ref.uid)
        self._placed.add(ref.uid)
        if ref.uid not in self._firm:
            self._reader.put({**obj, "status": meanwhile(before, patch)})
        return obj, patch


def _keys(informer: Informer[Any]) -> list[Key]:
    return [one.key if isinstance(one, Packed) else Key(one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in informer.all()]

