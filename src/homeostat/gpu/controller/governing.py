"""Runs the governor on what is declared and reported: a snapshot, a decision, and wishes that the loop asks for.

Whatever changes wakes it, a moment later, and a timer does. It decides only on whole copies of what there is, and never while
something is being written that it would have to know of: what was let through counts from the moment at which its write begins. So two
workloads are never promised the same GPU, however decisions and writes fall together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np

from homeostat.client import Client, Informer, Key, Packed
from homeostat.gpu.controller.notes import Notes
from homeostat.gpu.controller.standing import (
    Object,
    Wish,
    WorkloadState,
    carried_out,
    reported,
    settled,
    state_of,
    target_of,
)
from homeostat.gpu.controller.telling import Teller
from homeostat.gpu.controller.undone import is_reserved, take_back
from homeostat.gpu.decisions import Memory, Plan
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import NODE, POLICY, POOL, TENANT, WORKLOAD, GpuPolicySpec
from homeostat.gpu.objects import Reader
from homeostat.gpu.snapshot import Snapshot
from homeostat.loop.election import NAMESPACE
from homeostat.loop.fleet import Ref
from homeostat.loop.hints import Bell
from homeostat.loop.provider import Moved
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec, decode

log = logging.getLogger("homeostat.gpu")

SETTLE_SECONDS = 0.1
"""How long a decision waits for more after a change."""
SETTLE_MOST = 1.0
"""And no longer than this after the first."""
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
        self._said: dict[str, Hashable] = {}  # by uid: what agents reported last
        self._placed: set[str] = set()  # by uid: of whom agents may have something to tell
        self._promised: set[str] = set()  # by uid: what is being written
        self._changed: dict[tuple[str, Key], None] = {}
        self._wake = asyncio.Event()
        self._first = asyncio.Event()
        self._opened: tuple[Packed, Object] | None = None
        self._planned = 0.0
        self._trouble = ""

    # Its life

    def start(self, client: Client) -> None:
        """Begins to follow all that it decides on."""
        self._begin()
        self._workloads = client.kind(WORKLOAD.api_version, WORKLOAD.kind)
        self._teller, self._notes = Teller(client, self._clock, MANAGER), Notes(client, MANAGER)
        self._informers = {
            WORKLOAD.kind: client.kind(WORKLOAD.api_version, WORKLOAD.kind, Packed).informer(),
            LEASE: client.kind("coordination.k8s.io/v1", LEASE, namespace=NAMESPACE).informer(),
        }
        for info in (TENANT, NODE, POOL, POLICY):
            self._informers[info.kind] = client.kind(info.api_version, info.kind).informer()
        for kind, informer in self._informers.items():
            informer.subscribe(self._hearer(kind))
            informer.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(), name="governor"), loop.create_task(self._teller.run(), name="governor tells")]

    async def stop(self) -> None:
        """Ends it. What was decided and not carried out is decided again by whoever comes next."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._planned:
            await self._notes.write(self._memory, last=True)
        for informer in self._informers.values():
            await informer.stop()

    def _hearer(self, kind: str) -> Callable[[Key], None]:
        def heard(key: Key) -> None:
            self._changed[kind, key] = None
            if kind != LEASE:  # hearts beat all the time: the timer looks at them
                self._wake.set()
            if kind == WORKLOAD.kind and (uid := self._uids.get(key)) in self._placed:
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
        """Waits until nothing more comes: a plan that is just being carried out should not change under way."""
        loop = asyncio.get_running_loop()
        latest = loop.time() + SETTLE_MOST
        while loop.time() < latest:
            self._wake.clear()
            await asyncio.sleep(SETTLE_SECONDS)
            if not self._wake.is_set():
                return

    # What is

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
        if found is None or found.uid != ref.uid:
            return None
        if self._opened is None or self._opened[0] is not found:
            self._opened = (found, found.load())  # a look asks several times in a row
        return self._opened[1]

    def status(self, ref: Ref) -> Mapping[str, Any]:
        """The status of a workload."""
        return (self.object(ref) or {}).get("status") or {}

    def lost(self, node: str) -> bool:
        """Whether a node was not heard of for longer than its lease, or is no more."""
        return node in self._silent or node not in self._known

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
        elif obj is None:
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
            self._placed.discard(before)
            del self._uids[key]
        if packed is None:
            return
        if packed.uid in self._promised:
            self._changed[WORKLOAD.kind, key] = None
            return
        obj = packed.load()
        self._uids[key] = packed.uid
        ref = self._refs[packed.uid] = Ref(WORKLOAD.name, key.namespace, key.name, packed.uid)
        self._reader.put(obj)
        (self._placed.add if (obj.get("status") or {}).get("assignment") else self._placed.discard)(packed.uid)
        self._hear_agents(ref)

    def _hear_agents(self, ref: Ref) -> None:
        """Has the loop look at once at what agents reported, for waves wait for it, and writes down what follows from it."""
        obj = self.object(ref)
        if obj is None:
            return
        said = reported(obj.get("status") or {})
        if self._said.get(ref.uid, said) != said:
            self.bell.ring(ref)
        self._said[ref.uid] = said
        if (patch := settled(obj, self._clock.now(), self.lost)) is not None:
            self._teller.say(obj, patch)

    def _take_policy(self, obj: Object) -> None:
        if obj["metadata"]["name"] == "default":
            try:
                self._policy = decode(GpuPolicySpec, obj.get("spec") or {})
            except InvalidSpec as error:
                log.warning("the GpuPolicy cannot be read, and the one before stays in force: %s", error)

    # What is decided

    async def _cycle(self) -> None:
        async with self._turn:
            self._take_in()
            now = self._clock.now()
            snapshot = self._reader.snapshot(now)
            self._hear(snapshot)
            undone = {uid: wish for uid, wish in self.wishes.items() if self._is_undone(uid, wish)}
            for wish in undone.values():
                if not is_reserved(self._memory, wish):
                    take_back(self._memory, wish)
            plan = await asyncio.to_thread(decide, snapshot, self._policy, self._memory)
            self._adopt(plan, undone, now)
            self._planned, self._trouble = now, ""
        self._teller.tell(snapshot, plan, self._informers)
        await self._notes.write(self._memory)

    def _hear(self, snapshot: Snapshot) -> None:
        lease = self._policy.failure.lease.total_seconds()
        heard = zip(snapshot.nodes.name, snapshot.nodes.heard.tolist(), strict=True)
        before, self._silent = self._silent, frozenset(name for name, at in heard if snapshot.now - at > lease)
        self._known = frozenset(snapshot.nodes.name)
        fallen = [at for at, name in enumerate(snapshot.nodes.name) if name in self._silent - before]
        for at in set(snapshot.places.workload[np.isin(snapshot.places.node, fallen)].tolist()) if fallen else ():
            self._look_at(self._refs[snapshot.workloads.uid[at]], snapshot.now)

    def _look_at(self, ref: Ref, now: float) -> None:
        """A node is gone under it, which nobody reports: what waited for that node waits no more."""
        self.bell.ring(ref)
        obj = self.object(ref)
        if obj is not None and (patch := settled(obj, now, self.lost)) is not None:
            self._teller.say(obj, patch)

    def _is_undone(self, uid: str, wish: Wish) -> bool:
        ref = self._refs.get(uid)
        return ref is not None and uid not in self._promised and state_of(self.status(ref)) == wish.basis

    def _adopt(self, plan: Plan, undone: Mapping[str, Wish], now: float) -> None:
        """Takes a plan for what is wanted, and has the loop look at every workload of which that is something else than before."""
        before, self.wishes = self.wishes, {}
        for decision in plan.decisions:
            target, ref = target_of(decision), self._refs.get(decision.subject)
            if target is not None and ref is not None and decision.kind == WORKLOAD.kind:
                self.wishes[ref.uid] = Wish(state_of(self.status(ref)), target, decision, now)
        for uid, wish in undone.items():
            if uid not in self.wishes and is_reserved(plan.memory, wish):
                self.wishes[uid] = wish
            elif uid not in self.wishes:
                take_back(plan.memory, wish)
        for uid in before.keys() | self.wishes.keys():
            old, new = before.get(uid), self.wishes.get(uid)
            if (old and (old.basis, old.target)) != (new and (new.basis, new.target)) and uid in self._refs:
                self.bell.ring(self._refs[uid])
        self._memory = plan.memory

    # What is done

    async def carry_out(self, ref: Ref, target: WorkloadState) -> None:
        """Writes what a workload is to be, for agents to act on. `Moved` where that is no longer what is wanted."""
        async with self._turn:
            obj, wish = self.object(ref), self.wishes.get(ref.uid)
            if obj is None or wish is None or wish.target != target or state_of(obj.get("status") or {}) != wish.basis:
                raise Moved("the governor has decided anew")
            patch = carried_out(obj, wish, self._clock.now(), self.lost)
            self._promised.add(ref.uid)
            self._placed.add(ref.uid)
            self._reader.put({**obj, "status": {**(obj.get("status") or {}), **patch}})
        same = {name: obj["metadata"][name] for name in ("uid", "resourceVersion")}
        try:
            await self._workloads.patch(
                ref.name, {"metadata": same, "status": patch}, namespace=ref.namespace, subresource="status", field_manager=MANAGER
            )
        except ApiError as error:
            if error.reason == "Conflict":
                raise Moved("it was written to in the meantime") from error
            raise
        finally:
            self._promised.discard(ref.uid)
            self._changed[WORKLOAD.kind, Key(ref.namespace, ref.name)] = None
            self._wake.set()


def _keys(informer: Informer[Any]) -> list[Key]:
    return [one.key if isinstance(one, Packed) else Key(one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in informer.all()]

