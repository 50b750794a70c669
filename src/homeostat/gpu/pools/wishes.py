"""What the governor last decided about nodes and pools, as the loop asks for it; and what is told of them that nobody acts on."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from typing import Any

import numpy as np

from homeostat.client import Client, Informer, Unreachable
from homeostat.gpu.decisions import Constraint, Decision, Memory, Plan, Verb
from homeostat.gpu.kinds import NODE, POOL, GpuPolicySpec, NodePoolSpec, NodeStage
from homeostat.gpu.membership import got_by, pool_of, strays
from homeostat.gpu.pools.marks import marked
from homeostat.gpu.pools.standing import (
    NodeWish,
    Object,
    PoolWish,
    by_node,
    distrust,
    has_joined,
    is_late,
    is_silent,
    machines_of,
    node_wish,
    pool_wish,
    stage_of,
)
from homeostat.gpu.snapshot import NONE, Snapshot
from homeostat.loop.election import NAMESPACE
from homeostat.loop.fleet import Ref
from homeostat.loop.hints import Bell
from homeostat.model.errors import ApiError
from homeostat.model.kinds import decode

log = logging.getLogger("homeostat.gpu")

Informers = Mapping[str, Informer[Any]]
AT_ONCE = 50
"""Of so many nodes at most it is being told at a time that they are lost, or back."""
FIGURES_SECONDS = 10.0
"""A sentence of which only the figures moved is told anew after so long, and with whatever else is told; how long something waits is no news."""
_DIGITS, _SPANS = re.compile(r"\d+"), re.compile(r"\d+ (?:d|h|min|s)\b")


class Wishes:
    """Of all nodes and pools. `node_bell` and `pool_bell` ring for what should be looked at."""

    def __init__(self) -> None:
        self.node_bell, self.pool_bell = Bell(), Bell()
        self._begin()

    def _begin(self) -> None:
        self._informers: Informers = {}
        self._pools: list[Object] = []
        self.nodes: dict[str, NodeWish] = {}  # by uid
        self.pools: dict[str, PoolWish] = {}  # by uid
        self.read: dict[str, str] = {}
        """By name of a pool that was looked at: why it could not be read; empty where it could."""
        self.gone: dict[str, str] = {}
        """Nodes that their pool has taken back, with their uids."""
        self.lease = GpuPolicySpec().failure.lease.total_seconds()
        self._stale = GpuPolicySpec().idle.stale_after.total_seconds()
        """Seconds without a word after which a node is lost."""
        self._writing: dict[str, asyncio.Task[None]] = {}  # by uid
        self._said: dict[str, float] = {}  # by uid: when it was last told

    def begin(self, client: Client, informers: Informers, manager: str) -> None:
        """Takes up its work with these copies of what there is."""
        self._begin()
        self._client, self._informers, self._manager = client, informers, manager

    async def end(self) -> None:
        """Ends what it does in the background."""
        for task in self._writing.values():
            task.cancel()
        await asyncio.gather(*self._writing.values(), return_exceptions=True)
        self._informers = {}

    def check(self) -> None:
        """RuntimeError where no governor runs here: each kind may be kept by another loop."""
        if not self._informers:
            raise RuntimeError("it is for the loop that keeps Workloads to decide, and that is another")

    def node(self, name: str) -> Object | None:
        """A GpuNode as it is now."""
        found: Object | None = self._informers[NODE.kind].get(name)
        return found

    def names(self) -> set[str]:
        """Of all GpuNodes."""
        return {one["metadata"]["name"] for one in self._informers[NODE.kind].all()}

    def pool(self, name: str) -> Object | None:
        """A NodePool as it is now."""
        found: Object | None = self._informers[POOL.kind].get(name)
        return found

    def pool_of(self, node: str) -> str:
        """The pool that a GpuNode is of now; empty where it is of none."""
        obj = self.node(node)
        return "" if obj is None else pool_of(obj, got_by(self._informers[POOL.kind].all()))

    def recall(self, memory: Memory) -> None:
        """Before a decision. What a pool was asked for stands in its status; what was only decided, and held by guards, was not asked for.

        The pools are kept as they are now: what is asked for while it is being decided is no part of what it is decided on.
        """
        memory.asked.clear()
        self._pools = list(self._informers[POOL.kind].all())

    def adopt(self, plan: Plan, snapshot: Snapshot, policy: GpuPolicySpec) -> None:
        """Takes a plan for what is wanted. Where the observer is suspected, all is wanted as it is."""
        self.lease, self._stale = policy.failure.lease.total_seconds(), policy.idle.stale_after.total_seconds()
        if any(one.constraint is Constraint.OBSERVER for one in plan.of(Verb.REPORT)):
            self.nodes, self.pools = {}, {}
            self._tell(plan, snapshot)
            return
        decided = by_node(plan.decisions)
        used = {snapshot.nodes.name[node] for node in np.unique(snapshot.places.node).tolist()}
        of_pool: dict[str, list[Object]] = defaultdict(list)
        got = got_by(self._pools)
        for node in self._informers[NODE.kind].all():
            of_pool[pool_of(node, got)].append(node)
        wished: dict[str, NodeWish] = {}
        pools: dict[str, PoolWish] = {}
        asked = {one.subject: one for one in plan.of(Verb.SCALE_UP)}
        needed = any(one.kind == POOL.kind and one.constraint is Constraint.BACKLOG for one in plan.decisions)
        for pool in self._pools:
            name = pool["metadata"]["name"]
            nodes = of_pool.pop(name, [])
            pools[pool["metadata"]["uid"]] = pool_wish(pool, nodes, decided, asked.get(name))
            self._wish_nodes(wished, pool, nodes, decided, used, needed=needed)
        for node in (node for nodes in of_pool.values() for node in nodes):
            name = node["metadata"]["name"]
            if name not in decided and not (node.get("status") or {}).get("stage"):
                continue  # it is open, and nothing else was ever decided of it
            self._wish(wished, node, node_wish(node, decided.get(name), empty=name not in used, mine=False, replaced=False))
        self._ring(wished, pools)
        self.nodes, self.pools = wished, pools
        self._tell(plan, snapshot)
        self._let_go(snapshot.now)

    def _wish_nodes(
        self,
        wished: dict[str, NodeWish],
        pool: Object,
        nodes: list[Object],
        decided: Mapping[str, Decision],
        used: set[str],
        *,
        needed: bool,
    ) -> None:
        machines, readable = machines_of(pool), self.read.get(pool["metadata"]["name"]) == ""
        names, replaced = {one.node for one in machines}, {one.replaces for one in machines}
        for node in nodes:
            name, uid = node["metadata"]["name"], node["metadata"]["uid"]
            mine = readable and name in names
            facts = {"empty": name not in used, "mine": mine, "replaced": uid in replaced, "needed": needed}
            self._wish(wished, node, node_wish(node, decided.get(name), **facts))

    @staticmethod
    def _wish(wished: dict[str, NodeWish], node: Object, wish: NodeWish) -> None:
        if wish.stage is not NodeStage.OPEN or stage_of(node) is not NodeStage.OPEN:
            wished[node["metadata"]["uid"]] = wish

    def _ring(self, nodes: Mapping[str, NodeWish], pools: Mapping[str, PoolWish]) -> None:
        for kind, bell, before, after in (
            (NODE, self.node_bell, {uid: one.stage for uid, one in self.nodes.items()}, {uid: one.stage for uid, one in nodes.items()}),
            (POOL, self.pool_bell, dict(self.pools), dict(pools)),
        ):
            changed = {uid for uid in before.keys() | after.keys() if before.get(uid) != after.get(uid)}
            if changed:
                for obj in self._informers[kind.kind].all():
                    if obj["metadata"]["uid"] in changed:
                        bell.ring(Ref(kind.name, "", obj["metadata"]["name"], obj["metadata"]["uid"]))

    # What is told

    def _tell(self, plan: Plan, snapshot: Snapshot) -> None:
        nodes, flapped, lost = self._informers[NODE.kind].all(), plan.memory.flaps, _lost(plan, snapshot, self.lease)
        at = {name: number for number, name in enumerate(snapshot.nodes.name)}
        for obj in nodes:
            name, status = obj["metadata"]["name"], obj.get("status") or {}
            told: dict[str, Any] = {"flaps": len(flapped.get(name, ()))} if status.get("flaps") or name in flapped else {}
            if lost is not None and (name in lost) != status.get("lost", False) and len(self._writing) < AT_ONCE:
                told["lost"] = name in lost
            if (number := at.get(name)) is not None and len(self._writing) < AT_ONCE:
                trouble, skew = snapshot.nodes.trouble[number], float(snapshot.nodes.skew[number])
                conditions = marked(obj, trouble, skew, self._stale, snapshot.now)
                told |= {} if conditions is None else {"conditions": conditions}
            if told:
                self._say(NODE.kind, obj, told, snapshot.now)
        if not self._pools and not self._informers[POOL.kind].all():
            return
        why = {one.subject: one.reason for one in plan.decisions if one.kind == POOL.kind}
        joined = {obj["metadata"]["name"]: stage_of(obj) for obj in nodes}
        ready, got = _ready(snapshot, self.lease), got_by(self._informers[POOL.kind].all())
        for obj in self._informers[POOL.kind].all():
            name, machines = obj["metadata"]["name"], machines_of(obj)
            going = sum(joined.get(one.node) in (NodeStage.DRAINING, NodeStage.GIVING_BACK) for one in machines)
            coming = [one for one in machines if one.node not in joined and not one.refused]
            status, within = obj.get("status") or {}, _arrives_within(obj)
            trouble = self.read.get(name) or next((one.refused for one in machines if one.refused), "") or distrust(status, joined, snapshot.now, within)
            if any(is_late(one, snapshot.now, within) for one in coming if one.node):
                self.pool_bell.ring(Ref(POOL.name, "", name, obj["metadata"]["uid"]))
            said: dict[str, Any] = {"ready": ready.get(name, 0), "coming": len(coming), "going": going}
            if status.get("unjoined") and has_joined(status, joined):
                said |= {"unjoined": 0, "unjoinedAt": None}
            reason = "; ".join(filter(None, (trouble or why.get(name), strays(name, nodes, got))))
            self._say(POOL.kind, obj, {**said, "trouble": trouble, "reason": reason}, snapshot.now)

    def _say(self, kind: str, obj: Object, said: Mapping[str, Any], now: float) -> None:
        """Has what is new written down, all of it together."""
        before, uid = obj.get("status") or {}, obj["metadata"]["uid"]
        new = {field: value for field, value in said.items() if _without(_SPANS, before.get(field)) != _without(_SPANS, value)}
        urgent = any(_without(_DIGITS, before.get(field)) != _without(_DIGITS, value) for field, value in new.items())
        if new and uid not in self._writing and (urgent or now - self._said.get(uid, -math.inf) >= FIGURES_SECONDS):
            self._said[uid] = now
            self._write(uid, self._patch(kind, obj, new))

    def _write(self, uid: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._writing[uid] = asyncio.get_running_loop().create_task(work, name="governor tells of nodes")
        task.add_done_callback(lambda _: self._writing.pop(uid, None))

    async def _patch(self, kind: str, obj: Object, status: Mapping[str, Any]) -> None:
        name = obj["metadata"]["name"]
        same = {field: obj["metadata"][field] for field in ("uid", "resourceVersion")}
        handle = self._client.kind(NODE.api_version, kind)
        try:
            await handle.patch(name, {"metadata": same, "status": status}, subresource="status", field_manager=self._manager)
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiError) or error.reason not in ("Conflict", "NotFound"):
                log.warning("%s %s could not be told how it stands: %s", kind, name, error)

    # What is left of nodes that were given back

    def _let_go(self, now: float) -> None:
        for name, uid in list(self.gone.items()):
            node = self.node(name)
            if node is None or node["metadata"]["uid"] != uid:
                del self.gone[name]
            elif uid not in self._writing and is_silent(self._informers["Lease"].get(name, NAMESPACE), now, self.lease):
                self._write(uid, self._remove(name, uid))

    async def _remove(self, name: str, uid: str) -> None:
        """Takes the GpuNode and the lease of a node out of the API. What cannot be is tried again with the next decision."""
        try:
            await self._client.kind(NODE.api_version, NODE.kind).delete(name, uid=uid)
            await self._client.kind("coordination.k8s.io/v1", "Lease", namespace=NAMESPACE).delete(name)
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiError) or error.reason not in ("Conflict", "NotFound"):
                log.warning("%s was given back, and cannot be taken out of the API yet: %s", name, error)


def _arrives_within(pool: Object) -> float:
    return decode(NodePoolSpec, pool["spec"]).arrives_within.total_seconds()


def _without(pattern: re.Pattern[str], value: Any) -> Any:
    """A sentence without what matches; a number as it is, and nothing for what is not said."""
    return pattern.sub("", value) if isinstance(value, str) and value else value or 0


def _lost(plan: Plan, snapshot: Snapshot, lease: float) -> set[str] | None:
    """Who is not heard of any more; None where the observer is suspected, and nobody can tell."""
    if any(one.constraint is Constraint.OBSERVER for one in plan.of(Verb.REPORT)):
        return None
    there = snapshot.nodes
    with np.errstate(invalid="ignore"):
        return {there.name[node] for node in np.flatnonzero(snapshot.now - there.heard > there.patience(lease)).tolist()}


def _ready(snapshot: Snapshot, lease: float) -> dict[str, int]:
    """How many nodes of each pool are heard of and take work."""
    there = snapshot.nodes
    with np.errstate(invalid="ignore"):
        up = (there.pool != NONE) & (snapshot.now - there.heard <= there.patience(lease)) & ~there.cordoned & ~there.drain
    counts = np.bincount(there.pool[up], minlength=len(snapshot.pools)).tolist()
    return dict(zip(snapshot.pools.name, counts, strict=True))
