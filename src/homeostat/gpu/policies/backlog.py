"""Backlog: what waits too long for GPUs has nodes asked for it, from the cheapest pool that has them; what stands empty is given back."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NONE, Bools, Floats, Health, Ints, Pools, Spot, Topology

_AT_ONCE = 1000
"""How many of the first that wait are looked at for scaling in a cycle."""
_PART_AT_A_TIME = 10
"""One idle node in so many is given back at a time, and at least one: guards halt what takes away much of a fleet at once."""


def scale(cycle: Cycle) -> None:
    """Asks for nodes and gives them back. Nodes that are being replaced are no longer reckoned with."""
    pools = cycle.snapshot.pools
    if not cycle.policy.scaling.enabled or not len(pools):
        return
    nodes, trusted = cycle.snapshot.nodes, _trusted(cycle)
    there = np.bincount(nodes.pool[trusted], minlength=len(pools))
    coming = _coming(cycle, there)
    waiting = _waiting(cycle)
    wanted = _wanted(cycle, waiting, there + coming, coming)
    for pool in range(len(pools)):
        name, short = pools.name[pool], int(pools.minimum[pool] - there[pool] - coming[pool])
        count = max(int(wanted[pool]), min(short, int(pools.refused[pool])) if pools.trouble[pool] else short)
        if count <= 0:
            continue
        reason = f"{name} has fewer nodes than its minimum of {pools.minimum[pool]}"
        if wanted[pool] > 0:
            reason = f"{_depth(cycle, waiting)}: {count} more of {name}, the cheapest that they can use"
        cycle.say_of(Verb.SCALE_UP, "NodePool", name, reason, Constraint.BACKLOG, count)
        cycle.next.asked[name] = (int(there[pool] + coming[pool]) + count, cycle.now)
    _say_full(cycle, waiting)
    _remember_empty(cycle)
    _give_back(cycle, there, trusted, bool(len(waiting)))


def _trusted(cycle: Cycle) -> Bools:
    """Which nodes of pools are there to stay."""
    replaced = {decision.subject for decision in cycle.decisions if decision.verb is Verb.REPLACE}
    trusted: Bools = cycle.snapshot.nodes.pool != NONE
    if replaced:
        trusted &= np.array([name not in replaced for name in cycle.snapshot.nodes.name], dtype=bool)
    return trusted


def _depth(cycle: Cycle, waiting: list[int]) -> str:
    one = len(waiting) == 1
    oldest = span(max(cycle.waited[at] for at in waiting))
    return f"{len(waiting)} workload{' waits' if one else 's wait'} for GPUs, {'' if one else 'the longest '}for {oldest}"


def _say_full(cycle: Cycle, waiting: list[int]) -> None:
    """Says of a pool that is at its maximum who would have more of it."""
    pools = cycle.snapshot.pools
    refused = [at for at in waiting if at in cycle.not_scaled]
    for pool in range(len(pools)):
        if pools.trouble[pool]:
            continue
        wishing = [at for at in refused if able_pools(cycle, at, pools)[pool]]
        if wishing:
            reason = f"{_depth(cycle, wishing)}, and {pools.name[pool]} is at its maximum of {pools.maximum[pool]}"
            cycle.say_of(Verb.REPORT, "NodePool", pools.name[pool], reason, Constraint.BACKLOG)


def _coming(cycle: Cycle, there: Ints) -> Ints:
    """Nodes that were asked for and are still expected."""
    pools, coming = cycle.snapshot.pools, cycle.snapshot.pools.coming.copy()
    for pool, name in enumerate(pools.name):
        target, when = cycle.memory.asked.get(name, (0, 0.0))
        if target > there[pool] and cycle.now - when < pools.arrives_within[pool]:
            coming[pool] = max(int(coming[pool]), target - int(there[pool]))
            cycle.next.asked[name] = (target, when)
    return coming


def _waiting(cycle: Cycle) -> list[int]:
    """Who waits longer than it should and not for quota: the first of the queue, and those whose type only a pool has."""
    age = cycle.policy.scaling.backlog_age.total_seconds()
    nowhere = [at for at, constraint in cycle.constraint.items() if constraint is Constraint.TYPE]
    queue = np.concatenate((cycle.order[cycle.waits[cycle.order]], np.array(sorted(nowhere), dtype=np.int64)))
    late = queue[cycle.waited[queue] >= age][:_AT_ONCE].tolist()
    return [
        at
        for at in late
        if at not in cycle.reserved and (cycle.lead[at] == NONE or _has_room(cycle, at, int(cycle.lead[at])))
    ]


def _has_room(cycle: Cycle, at: int, model: int) -> bool:
    tenant = int(cycle.snapshot.workloads.tenant[at])
    column = int(cycle.snapshot.tenants.column[tenant, model])
    return column != NONE and bool(cycle.ledger.room(tenant, column) >= cycle.total[at])


def _wanted(cycle: Cycle, waiting: list[int], nodes: Ints, coming: Ints) -> Ints:
    """How many nodes to ask of each pool; what is coming already is reckoned with, and no pool goes beyond its maximum. Of one that gives none
    no more is asked than it refused: it is tried again with those, and the next one is asked too."""
    pools, w = cycle.snapshot.pools, cycle.snapshot.workloads
    wanted = np.zeros(len(pools))
    promised: set[int] = set()  # models of which an earlier one counts on what is free
    gives = np.array([not trouble for trouble in pools.trouble], dtype=bool)
    by_cost = np.lexsort((np.arange(len(pools)), pools.cost / pools.gpus)).tolist()
    for at in waiting:
        able = able_pools(cycle, at, pools)
        cycle.not_scaled[at] = (
            "every pool that has such nodes is at its maximum" if able.any() else "no pool has such nodes"
        )
        for pool in by_cost:
            model = int(pools.model[pool])
            if not able[pool] or not _has_room(cycle, at, model):
                continue
            here = 0 if model in promised else _finds_room(cycle, at, model)
            part = (int(w.replicas[at]) - here) / max(int(pools.gpus[pool]) * WHOLE // int(w.milli[at]), 1)
            if np.ceil(wanted[pool] + part) - coming[pool] + nodes[pool] <= pools.maximum[pool]:
                wanted[pool] += part
                if gives[pool]:
                    promised |= {model} if here else set()
                    del cycle.not_scaled[at]
                    break
                cycle.not_scaled[at] = f"{pools.name[pool]} gives no nodes: {pools.trouble[pool]}"
    count = np.ceil(wanted).astype(np.int64)
    return np.asarray(np.where(gives, np.maximum(count - coming, 0), np.minimum(count, pools.refused)))


def _finds_room(cycle: Cycle, at: int, model: int) -> int:
    """How many replicas of a gang need no new node, for GPUs of this model are free that are too few for all of it."""
    need = cycle.need_of(at)
    if need.replicas == 1 or need.topology != Topology.ANYWHERE or need.nodes:
        return 0
    room = cycle.fleet.room_for(need, model)
    return room if room < need.replicas else 0


def able_pools(cycle: Cycle, at: int, pools: Pools) -> Bools:
    """Which pools have nodes that could take it."""
    w, column = cycle.snapshot.workloads, cycle.snapshot.tenants.column
    replicas = int(w.replicas[at]) if w.topology[at] == Topology.NODE else 1
    able = (int(w.models[at]) >> pools.model & 1) == 1
    able &= column[w.tenant[at], pools.model] != NONE
    able &= pools.gpus * WHOLE >= replicas * w.milli[at]
    able &= ~pools.parts | (not cycle.need_of(at).whole)
    able &= pools.gpu_memory * min(int(w.milli[at]), WHOLE) >= w.gpu_memory[at] * WHOLE
    able &= (pools.cpu >= replicas * w.cpu[at]) & (pools.memory >= replicas * w.memory[at])
    if cycle.spot[at] != Spot.ALLOW:
        able &= pools.spot == (cycle.spot[at] == Spot.REQUIRE)
    return np.asarray(able)


def _give_back(cycle: Cycle, there: Ints, trusted: Bools, backlog: bool) -> None:
    """Gives back nodes beyond the maximum, of those that the pool got, and those that nothing has been on for a while: these a few at a time, never below the minimum,
    and none that is empty while others wait. Those beyond the maximum are named all at once, so that the guards see how much that is: a
    number that was mistyped takes away a fleet, and a tenth of it at a time is still all of it."""
    nodes, pools, places = cycle.snapshot.nodes, cycle.snapshot.pools, cycle.snapshot.places
    held = np.bincount(places.node, weights=places.milli, minlength=len(nodes)).astype(np.float64)
    for taken in (*cycle.spots.values(), *cycle.reserved.values()):
        for _, node, _, milli in taken:
            held[node] += milli
    room = max(1, len(nodes) // _PART_AT_A_TIME)
    beyond, left = there - pools.maximum, there - pools.minimum
    for node in np.lexsort((np.arange(len(nodes)), held, ~nodes.drain, ~nodes.given)).tolist():
        name, pool = nodes.name[node], int(nodes.pool[node])
        if not trusted[node] or (room <= 0 and beyond[pool] <= 0):
            continue
        if beyond[pool] > 0 and not nodes.given[node]:
            continue
        if beyond[pool] > 0:
            reason = f"{pools.name[pool]} has {there[pool]} nodes, more than its maximum of {pools.maximum[pool]}"
            cycle.say_of(Verb.DRAIN, "GpuNode", name, reason, Constraint.BACKLOG)
        elif not backlog and left[pool] > 0 and _is_idle(cycle, node, held):
            idle = span(cycle.now - cycle.next.empty[name])
            reason = f"nothing has run on {name} for {idle}: giving it back saves {nodes.cost[node]:g} an hour"
            cycle.say_of(Verb.SCALE_DOWN, "GpuNode", name, reason, Constraint.COST)
        else:
            continue
        room, beyond[pool], left[pool] = room - 1, beyond[pool] - 1, left[pool] - 1
    for pool in np.flatnonzero(beyond > 0).tolist():
        reason = f"{pools.name[pool]} has {beyond[pool]} more than its maximum of {pools.maximum[pool]} that joined by themselves, and stay"
        cycle.say_of(Verb.REPORT, "NodePool", pools.name[pool], reason, Constraint.BACKLOG)


def _is_idle(cycle: Cycle, node: int, held: Floats) -> bool:
    name = cycle.snapshot.nodes.name[node]
    after = cycle.policy.scaling.idle_nodes_after.total_seconds()
    return name in cycle.next.empty and not held[node] and cycle.now - cycle.next.empty[name] >= after


def _remember_empty(cycle: Cycle) -> None:
    """Since when nothing is on a node."""
    nodes, places = cycle.snapshot.nodes, cycle.snapshot.places
    used = np.zeros(len(nodes), dtype=bool)
    used[places.node] = True
    used[[node for taken in (*cycle.spots.values(), *cycle.reserved.values()) for _, node, _, _ in taken]] = True
    whole = (nodes.health < Health.FAILED).any(axis=1)
    for node in np.flatnonzero(~used & cycle.alive & whole & (nodes.pool != NONE)).tolist():
        name = nodes.name[node]
        cycle.next.empty[name] = cycle.memory.empty.get(name, cycle.now)
