"""Runs the governor on what is declared and reported: a snapshot, a decision, and wishes that the loop asks for.

Whatever changes wakes it, a moment later, and a timer does. It decides only on whole copies of what there is, and never while
something is being written that it would have to know of: what was let through counts from the moment at which its write begins. So two
workloads are never promised the same GPU, however decisions and writes fall together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from homeostat.client import Client, Informer, Key, Packed
from homeostat.gpu.controller.notes import Notes
from homeostat.gpu.controller.speaking import Speaker
from homeostat.gpu.controller.standing import (
    Object,
    Wish,
    WorkloadState,
    carried_out,
    conditions,
    reported,
    settled,
    state_of,
    target_of,
)
from homeostat.gpu.controller.undone import is_reserved, take_back
from homeostat.gpu.decisions import Memory, Plan
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
from homeostat.model.clock import Clock, parse_time
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec, decode, encode

log = logging.getLogger("homeostat.gpu")

SETTLE_SECONDS = 0.05
"""How long a decision waits for more after a change."""
SETTLE_MOST = 1.0
"""And no longer than this after the first, while something else than starts is being carried out."""
FIRM_SECONDS = 5.0
"""So long a start that was decided stands, unless something is declared anew; after that guards hold it, and it is decided again."""
PART_DECIDING = 0.4
"""Of its time, that deciding may take at most: where one decision takes long, the next comes later."""
OPENED = 1024
"""Workloads that are kept decoded: each is looked at several times in a row."""
FRESH_CYCLES = 6
"""A plan is no longer to be relied on after so many times the seconds between two."""
FRESH_SECONDS = 30.0
MANAGER = "homeostat-governor"
LEASE = "Lease"


class Governor:
    """`start` it with a client, `stop` it; both again as often as one likes. `bell` rings for what should be looked at."""

    def __init__(self, clock: Clock) -> None:
        self.bell = Bell()
        self._clock = clock
        self._turn = asyncio.Lock()
        self.nodes = Wishes()
        """What is wanted of nodes and pools."""
        self._begin()

    def _begin(self) -> None:
        self.wishes: dict[str, Wish] = {}
        self._informers: dict[str, Informer[Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._reader = Reader()
        self._policy = GpuPolicySpec()
        self._memory = Memory()
        self._silent: frozenset[str] = frozenset()
        self._known: frozenset[str] = frozenset()
        self._uids: dict[Key, str] = {}
        self._refs: dict[str, Ref] = {}
        self._said: dict[str, tuple[Any, ...]] = {}  # by uid: what agents reported last
        self._placed: set[str] = set()  # by uid: of whom agents may have something to tell
        self._promised: set[str] = set()  # by uid: what is being written
        self._changed: dict[tuple[str, Key], None] = {}
        self._wake = asyncio.Event()
        self._first = asyncio.Event()
        self._opened: OrderedDict[str, tuple[Packed, Object]] = OrderedDict()
        self._came: dict[Key, float] = {}  # when it was first heard of, of those that are not read yet
        self._starts: set[str] = set()  # by uid: what is to be placed by the last plan, and is not yet
        self._firm: dict[str, Wish] = {}  # by uid: those of them that a decision under way counts as placed
        self._ground = 0.0  # when what is declared of tenants, nodes and policies last changed
        self._generations: dict[tuple[str, Key], int] = {}
        self._took = 0.0
        self._planned = 0.0
        self._trouble = ""

    # Its life

    def start(self, client: Client) -> None:
        """Begins to follow all that it decides on."""
        self._begin()
        self._workloads = client.kind(WORKLOAD.api_version, WORKLOAD.kind)
        self._leases = client.kind("coordination.k8s.io/v1", LEASE)
        self._notes = Notes(client, MANAGER)
        self._informers = {
            WORKLOAD.kind: client.kind(WORKLOAD.api_version, WORKLOAD.kind, Packed).informer(),
            LEASE: client.kind("coordination.k8s.io/v1", LEASE, namespace=NAMESPACE).informer(),
        }
        for info in (TENANT, NODE, POOL, POLICY):
            self._informers[info.kind] = client.kind(info.api_version, info.kind).informer()
        for kind, informer in self._informers.items():
            informer.subscribe(self._hearer(kind))
            informer.start()
        self._speaker = Speaker(client, self._clock, MANAGER, self._informers, self._refs.get)
        self.nodes.begin(client, self._informers, MANAGER)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(), name="governor"), loop.create_task(self._speaker.run(), name="governor tells")]

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
            if kind != LEASE:  # hearts beat all the time: the timer looks at them
                self._wake.set()
            if kind == WORKLOAD.kind and key not in self._uids:
                self._came.setdefault(key, self._clock.now())
            elif kind == WORKLOAD.kind and (uid := self._uids[key]) in self._placed:
                self._hear_agents(self._refs[uid])

        return heard

    async def _run(self) -> None:
        for informer in self._informers.values():
            await informer.wait_synced()
        self._memory = await self._notes.read()
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
                async with asyncio.timeout(self._policy.every.total_seconds()):
                    await self._wake.wait()
            await self._settle()

    async def _settle(self) -> None:
        """Waits until nothing more comes, or only starts are left: a plan that is just being carried out should not change under way."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + SETTLE_MOST
        await asyncio.sleep(min(self._took * (1 / PART_DECIDING - 1), SETTLE_MOST))
        while loop.time() < latest:
            self._wake.clear()
            await asyncio.sleep(SETTLE_SECONDS)
            if not self._wake.is_set() or self.wishes.keys() <= self._starts:
                return

    # What is

    @property
    def turn(self) -> asyncio.Lock:
        """Held while it decides: what is written under it is known to the next decision."""
        return self._turn

    async def ready(self) -> None:
        """Waits for the first decision after a start."""
        await self._first.wait()

    def check_fresh(self) -> None:
        """RuntimeError where nothing can be said of what is wanted."""
        if self._trouble:
            raise RuntimeError(self._trouble)
        age = self._clock.now() - self._planned
        if age > max(FRESH_SECONDS, FRESH_CYCLES * self._policy.every.total_seconds()):
            raise RuntimeError(f"the governor has not decided for {age:.0f} s")

    def object(self, ref: Ref) -> Object | None:
        """A workload as it is now; None where it has only just come."""
        found = self._informers[WORKLOAD.kind].get(ref.name, ref.namespace)
        return None if found is None or found.uid != ref.uid else self._open(found)

    def _open(self, packed: Packed) -> Object:
        known = self._opened.get(packed.uid)
        if known is not None and known[0] is packed:
            return known[1]
        if known is None and len(self._opened) >= OPENED:
            self._opened.popitem(last=False)
        obj = packed.load()
        self._opened[packed.uid] = (packed, obj)
        return obj

    def status(self, ref: Ref) -> Mapping[str, Any]:
        """The status of a workload, with what follows from the reports of agents: that counts before it is written down."""
        obj = self.object(ref) or {}
        status: Mapping[str, Any] = obj.get("status") or {}
        if ref.uid not in self._placed or (more := settled(obj, self._clock.now(), self.lost)) is None:
            return status
        return {**status, **more}

    def lost(self, node: str) -> bool:
        """Whether a node was not heard of for longer than its lease, or is no more."""
        return bool(self._known) and (node in self._silent or node not in self._known)  # before the first look nothing is known, and nothing lost

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
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:  # one that no schema would let in holds up no other
                log.warning("%s %s cannot be read and is left out: %s", kind, key, error)

    def _take(self, kind: str, key: Key) -> None:
        obj = self._informers[kind].get(key.name, key.namespace)
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
            self._opened.pop(before, None)
            self._speaker.forget(before)
            self._starts.discard(before)
            self._placed.discard(before)
            del self._uids[key]
        came = self._came.pop(key, None)
        if packed is None:
            return
        if packed.uid in self._promised:
            self._changed[WORKLOAD.kind, key] = None
            return
        obj = self._open(packed)
        status = obj.get("status") or {}
        self._uids[key] = packed.uid
        ref = self._refs.get(packed.uid)
        if ref is None:
            ref = self._refs[packed.uid] = Ref(WORKLOAD.name, key.namespace, key.name, packed.uid)
        self._put(obj, came)
        if status.get("assignment"):
            self._placed.add(packed.uid)
            self._hear_agents(ref)
        else:
            self._placed.discard(packed.uid)

    def _put(self, obj: Object, came: float | None = None) -> None:
        """Takes note of a workload as it is written: its GPUs are not another's before its own status says that it has left them."""
        more = self._speaker.hear(obj, came)
        self._reader.put({**obj, "status": {**(obj.get("status") or {}), **more}} if more else obj)

    def _hear_agents(self, ref: Ref) -> None:
        """Has the loop look at once at what agents reported: waves wait for it, and what follows from it is written down."""
        obj = self.object(ref)
        if obj is None:
            return
        said = reported(obj.get("status") or {})
        before = self._said.get(ref.uid, said)
        self._silent -= {node for _, node, *_ in set(said[1]) - set(before[1])}  # who reports lives, whatever the last look at leases said
        if before != said or settled(obj, self._clock.now(), self.lost) is not None:
            self.bell.ring(ref)
        self._said[ref.uid] = said

    def _take_policy(self, obj: Object) -> None:
        if obj["metadata"]["name"] == "default":
            try:
                self._policy = decode(GpuPolicySpec, obj.get("spec") or {})
            except InvalidSpec as error:
                log.warning("the GpuPolicy cannot be read, and the one before stays in force: %s", error)

    # What is decided

    async def _cycle(self) -> None:
        async with self._turn:
            began = asyncio.get_running_loop().time()
            self._take_in()
            now = self._clock.now()
            snapshot = self._with_firm(now)
            if self._silent_in(snapshot) - self._silent:
                await self._read_leases()
                snapshot = self._with_firm(now)
            self._hear(snapshot)
            undone = {uid: wish for uid, wish in self.wishes.items() if self._is_undone(uid, wish)}
            for wish in undone.values():
                if not is_reserved(self._memory, wish):
                    take_back(self._memory, wish)
            self.nodes.recall(self._memory)
            plan = await asyncio.to_thread(decide, snapshot, self._policy, self._memory)
            await self._notes.write(plan.memory)
            self._adopt(plan, undone, now)
            self.nodes.adopt(plan, snapshot, self._policy)
            self._planned, self._trouble = now, ""
            self._took = asyncio.get_running_loop().time() - began
        for ref in self._speaker.speak(snapshot, plan, busy=bool(self._starts)):
            self.bell.ring(ref)

    def _with_firm(self, now: float) -> Snapshot:
        """All of it, with what is just being placed as if it were: that goes on meanwhile, and is not decided a second time."""
        self._firm = {uid: wish for uid in self._starts if (wish := self.wishes[uid]).at >= self._firm_since(now) and self._is_firm(uid, wish)}
        objects = {uid: self.object(self._refs[uid]) or {} for uid in self._firm}
        for uid, obj in objects.items():
            self._reader.put({**obj, "status": {**(obj.get("status") or {}), **self._placed_by(self._firm[uid])}})
        snapshot = self._reader.snapshot(now)
        for obj in objects.values():
            self._put(obj)
        return snapshot

    def _firm_since(self, now: float) -> float:
        return max(now - FIRM_SECONDS, self._ground)

    def _is_firm(self, uid: str, wish: Wish) -> bool:
        obj = self.object(self._refs[uid])
        if obj is None or obj["spec"].get("suspended") or "deletionTimestamp" in obj["metadata"] or not self._is_undone(uid, wish):
            return False
        return not any(self.lost(place.node) for place in wish.target.assignment)

    def _placed_by(self, wish: Wish) -> Object:
        return {"phase": str(Stage.STARTING), "assignment": encode(wish.target)["assignment"]}

    async def _read_leases(self) -> None:
        """Nobody is taken for lost by a copy, which may be late: their work would run twice. Where they cannot be read, nothing is decided."""
        for lease in await self._leases.list(namespace=NAMESPACE):
            self._reader.put({**lease, "kind": LEASE})

    def _silent_in(self, snapshot: Snapshot) -> frozenset[str]:
        lease = self._policy.failure.lease.total_seconds()
        heard = zip(snapshot.nodes.name, snapshot.nodes.heard.tolist(), strict=True)
        return frozenset(name for name, at in heard if snapshot.now - at > lease)

    def _hear(self, snapshot: Snapshot) -> None:
        before, self._silent = self._silent, self._silent_in(snapshot)
        self._known = frozenset(snapshot.nodes.name)
        fallen = [at for at, name in enumerate(snapshot.nodes.name) if name in self._silent - before]
        for at in set(snapshot.places.workload[np.isin(snapshot.places.node, fallen)].tolist()) if fallen else ():
            self.bell.ring(self._refs[snapshot.workloads.uid[at]])  # nobody else reports it: what waited for that node waits no more

    def _is_undone(self, uid: str, wish: Wish) -> bool:
        ref = self._refs.get(uid)
        return ref is not None and uid not in self._promised and state_of(self.status(ref)) == wish.basis

    def _adopt(self, plan: Plan, undone: Mapping[str, Wish], now: float) -> None:
        """Takes a plan for what is wanted, and has the loop look at every workload of which that is something else than before."""
        before, self.wishes = self.wishes, {}
        self._starts.clear()
        for decision in plan.decisions:
            target, ref = target_of(decision), self._refs.get(decision.subject)
            if target is not None and ref is not None and decision.kind == WORKLOAD.kind:
                basis = state_of(self.status(ref))
                if ref.uid in self._firm and basis.phase is not Stage.RUNNING:
                    continue  # it is not to be placed after all
                self.wishes[ref.uid] = Wish(basis, target, decision, now)
                if basis.phase is not target.phase and target.phase is Stage.RUNNING:
                    self._starts.add(ref.uid)
        stopped = {decision.subject for decision in plan.decisions}
        for uid, wish in self._firm.items():
            if uid not in stopped and uid in self._refs and self._is_undone(uid, wish):
                self.wishes[uid] = wish
                self._starts.add(uid)
        for uid, wish in undone.items():
            if uid not in self.wishes and is_reserved(plan.memory, wish):
                self.wishes[uid] = wish
            elif uid not in self.wishes:
                take_back(plan.memory, wish)
        for uid in {**before, **self.wishes}:
            old, new = before.get(uid), self.wishes.get(uid)
            if (old and (old.basis, old.target)) != (new and (new.basis, new.target)) and uid in self._refs:
                self.bell.ring(self._refs[uid])
        self._memory = plan.memory

    # What is said

    def says(self, obj: Object, status: Mapping[str, Any]) -> Object | None:
        """What is told of a workload beside what the loop says of it in `status`; None: nothing is written of it for now."""
        return self._speaker.words(obj, status, settled(obj, self._clock.now(), self.lost, self.price))

    # What is done

    async def carry_out(self, ref: Ref, target: WorkloadState) -> None:
        """Writes what a workload is to be, for agents to act on. `Moved` where that is no longer what is wanted."""
        if ref.uid in self._firm:
            obj, patch = self._promise(ref, target)
        else:
            async with self._turn:
                await self._check_lost(ref)
                obj, patch = self._promise(ref, target)
        same = {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}
        try:
            await self._workloads.patch(
                ref.name, {"metadata": same, "status": patch}, namespace=ref.namespace, subresource="status", field_manager=MANAGER
            )
        except ApiError as error:
            if error.reason == "Conflict":
                raise Moved("it was written to in the meantime") from error
            raise
        else:
            self.wishes.pop(ref.uid, None)
        finally:
            self._promised.discard(ref.uid)
            self._starts.discard(ref.uid)
            self._changed[WORKLOAD.kind, Key(ref.namespace, ref.name)] = None
            self._wake.set()

    async def _check_lost(self, ref: Ref) -> None:
        """`Moved` where a node that a workload is taken from, for it was lost, is back: its work would run twice."""
        lease = self._policy.failure.lease.total_seconds()
        for node in {place["node"] for place in self.status(ref).get("assignment") or () if place["node"] in self._silent}:
            try:
                found = await self._leases.get(node, namespace=NAMESPACE)
            except ApiError as error:
                if error.code == 404:
                    continue
                raise
            renewed = found["spec"].get("renewTime")
            if renewed and self._clock.now() - parse_time(renewed) <= lease:
                self._reader.put({**found, "kind": LEASE})
                self._wake.set()
                raise Moved(f"{node} is back")

    def _promise(self, ref: Ref, target: WorkloadState) -> tuple[Object, Object]:
        """What is to be written. It counts from now on: nobody else is given the same GPUs, whatever becomes of the write."""
        obj, wish = self.object(ref), self.wishes.get(ref.uid)
        if obj is None or wish is None or wish.target != target or state_of(self.status(ref)) != wish.basis:
            raise Moved("the governor has decided anew")
        now, before = self._clock.now(), obj.get("status") or {}
        patch = self._speaker.first_words(obj) | carried_out(obj, wish, now, self.lost, self.price)
        patch["conditions"] = conditions(obj, {**before, **patch}, self.lost, self._clock.timestamp())
        self._promised.add(ref.uid)
        self._placed.add(ref.uid)
        self._reader.put({**obj, "status": {**before, **patch}})
        return obj, patch


def _keys(informer: Informer[Any]) -> list[Key]:
    return [one.key if isinstance(one, Packed) else Key(one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in informer.all()]

