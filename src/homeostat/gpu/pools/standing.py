"""How nodes and pools stand, and what a plan of the governor makes of that. Pure functions of plain objects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from homeostat.gpu.beats import renewal
from homeostat.gpu.cycle import span
from homeostat.gpu.decisions import Constraint, Decision, Verb
from homeostat.gpu.kinds import NodeStage, PoolNode
from homeostat.gpu.pools.ways import Had
from homeostat.model.clock import parse_time
from homeostat.model.kinds import Spec, decode

Object = Mapping[str, Any]

UNJOINED = 2
"""After what it gave did not join so many times in a row, a pool is given a pause."""
PAUSE_MOST = 86_400.0
"""Seconds."""
NEVER = "1970-01-01T00:00:00Z"
_TELLING = (Verb.CORDON, Verb.DRAIN, Verb.SCALE_DOWN, Verb.REPLACE)
"""What is decided about nodes, the stronger the later."""


class NodeState(Spec):
    """A node as the loop compares it."""

    stage: NodeStage = NodeStage.OPEN


class PoolState(Spec):
    """A pool as the loop compares it."""

    nodes: int = 0
    """Those that it has and that are not being replaced."""
    late: int = 0
    """Those that were had and have not joined in time, or are no more; none is wanted."""


class NodeWish(msgspec.Struct, frozen=True):
    """What the governor wants of a node."""

    stage: NodeStage
    reason: str = ""
    constraint: str = ""


@dataclass(frozen=True, slots=True)
class PoolWish:
    """What the governor wants of a pool."""

    nodes: int
    """How many it should have, those that are being replaced left out."""
    replaces: tuple[str, ...] = ()
    """Uids of GpuNodes for which another is to come."""
    replaced: frozenset[str] = frozenset()
    """Names of nodes that are being replaced."""
    reason: str = field(default="", compare=False)


def stage_of(node: Object) -> NodeStage:
    """The stage that was written down last."""
    return NodeStage((node.get("status") or {}).get("stage") or NodeStage.OPEN)


def machines_of(pool: Object) -> tuple[PoolNode, ...]:
    """What a pool was asked for, and has not taken back."""
    return tuple(decode(PoolNode, one) for one in (pool.get("status") or {}).get("machines") or ())


def by_node(decisions: Iterable[Decision]) -> dict[str, Decision]:
    """The strongest decision on each node."""
    found: dict[str, Decision] = {}
    for one in decisions:
        if one.kind == "GpuNode" and one.verb in _TELLING:
            before = found.get(one.subject)
            if before is None or _TELLING.index(before.verb) < _TELLING.index(one.verb):
                found[one.subject] = one
    return found


def node_wish(
    node: Object, decision: Decision | None, *, empty: bool, mine: bool, replaced: bool, needed: bool = False
) -> NodeWish:
    """What becomes of a node.

    `mine`: a pool that can be read has it; others are never given back, and not drained for their cost. `replaced`: another was asked for in
    its stead. `needed`: work waits for nodes. A node is drained first, and given back only when nothing is on it; then there is no way back.
    """
    stage, status = stage_of(node), node.get("status") or {}
    as_it_is = NodeWish(stage, status.get("reason", ""), status.get("constraint", ""))
    if stage is NodeStage.GIVING_BACK:
        return as_it_is
    if decision is None or (decision.verb is Verb.SCALE_DOWN and not mine):
        consolidating = stage is NodeStage.DRAINING and as_it_is.constraint == Constraint.COST
        return as_it_is if consolidating and not empty and not needed else NodeWish(NodeStage.OPEN)
    if decision.verb is Verb.CORDON:
        return NodeWish(NodeStage.CORDONED, decision.reason, decision.constraint)
    ready = empty and mine and (replaced or decision.verb is not Verb.REPLACE)
    goal = NodeStage.GIVING_BACK if ready and stage is NodeStage.DRAINING else NodeStage.DRAINING
    return NodeWish(goal, decision.reason, decision.constraint)


def pool_wish(pool: Object, nodes: Sequence[Object], decided: Mapping[str, Decision], asked: Decision | None) -> PoolWish:
    """What becomes of a pool. `nodes` are the GpuNodes that name it, `decided` is by node; `asked` asks for more."""
    machines, maximum = machines_of(pool), int(pool["spec"].get("maximum", 0))
    names = {one.node for one in machines}
    lost = {name for name, one in decided.items() if one.verb is Verb.REPLACE and name in names}
    going = {one["metadata"]["name"] for one in nodes if stage_of(one) is NodeStage.GIVING_BACK}
    replaced = frozenset(lost | going)
    having = [one for one in machines if one.node not in replaced and not one.refused]
    known = {one.replaces for one in machines if not one.refused}
    wanting = tuple(
        uid for one in nodes if one["metadata"]["name"] in lost and (uid := one["metadata"]["uid"]) not in known
    )
    others = sum(one["metadata"]["name"] not in names for one in nodes)
    count = max(asked.count if asked is not None else 0, len(wanting))
    room = max(maximum - others - len(having), 0)
    if pool["metadata"].get("deletionTimestamp"):
        room = 0
    return PoolWish(len(having) + min(count, room), wanting, replaced, asked.reason if asked is not None else "")


def pool_state(machines: Sequence[PoolNode], late: Collection[str], replaced: Collection[str]) -> PoolState:
    """How a pool stands: what it has given, but for what is late and what is being replaced."""
    has = [one for one in machines if one.node and one.node not in replaced and one.key not in late]
    return PoolState(nodes=len(has), late=len(late))


def late_ones(
    machines: Iterable[PoolNode], had: Iterable[Had], nodes: Collection[str], now: float, arrives_within: float
) -> frozenset[str]:
    """The keys of those that were had and are no nodes: their agents have not joined in time, or the pool has them no more."""
    there = {one.key for one in had}
    return frozenset(
        one.key
        for one in machines
        if one.node and one.node not in nodes and (one.key not in there or is_late(one, now, arrives_within))
    )


def unwanted_ones(machines: Sequence[PoolNode], wish: PoolWish) -> frozenset[str]:
    """The keys of those that were refused and that nobody wants any more. They are given back: a pool may have one though it did not say so."""
    asked = [one for one in machines if one.node not in wish.replaced]
    refused = [one.key for one in asked if one.refused]
    return frozenset(refused[max(len(refused) - max(len(asked) - wish.nodes, 0), 0) :])


def distrust(status: Object, joined: Collection[str], now: float, arrives_within: float) -> str:
    """Why a pool is not asked for more for now though it gives nodes: those that it gave last did not join. Empty where it may be."""
    count, at = int(status.get("unjoined") or 0), status.get("unjoinedAt")
    if count < UNJOINED or not at or has_joined(status, joined):
        return ""
    pause = min(arrives_within * 2 ** min(count - UNJOINED, 20), max(PAUSE_MOST, arrives_within))
    left = parse_time(at) + pause - now
    if left <= 0:
        return ""
    return f"what it gave did not join within {span(arrives_within)}, {count} times in a row, and was given back; it is asked again after {span(pause)}"


def has_joined(status: Object, joined: Collection[str]) -> bool:
    """Whether a node of a pool has joined that was had after the last that did not."""
    after = parse_time(status.get("unjoinedAt") or NEVER)
    return any(one.get("node") in joined and parse_time(one.get("since") or NEVER) >= after for one in status.get("machines") or ())


def is_late(machine: PoolNode, now: float, arrives_within: float) -> bool:
    """Whether it should have joined by now."""
    return machine.since is not None and now - machine.since.timestamp() > arrives_within


def is_silent(lease: Object | None, now: float, after: float) -> bool:
    """Whether a node was not heard of for so many seconds, or never."""
    return lease is None or not now - renewal(lease) <= after
