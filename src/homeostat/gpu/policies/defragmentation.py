"""Defragmentation: GPUs that are free, but scattered, are brought together for what needs many on a node.

Small work that keeps its state moves from a few nodes into the gaps of others; nothing is taken off for long, and it counts in the budget
of preemptions.
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.fleet import Fleet, Need, Taken
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.policies.preemption import RESERVED_FOR, reserve
from homeostat.gpu.snapshot import Bools, Ints, Mode, Phase, Topology

CLAIMANTS = 4
"""For so many of the first that wait for whole GPUs, room is sought in a cycle."""


def make_whole(cycle: Cycle) -> None:
    """Moves work together for the first that would fit if what is free were in one place."""
    if not cycle.policy.defragment or not len(cycle.order):
        return
    w, column = cycle.snapshot.workloads, cycle.snapshot.tenants.column
    waiting = cycle.order[cycle.waits[cycle.order]]
    waiting = waiting[(w.milli[waiting] > WHOLE) & (w.topology[waiting] <= Topology.NODE)]
    movable = _movable(cycle)
    seen: set[tuple[int, int]] = set()
    for at in waiting.tolist():
        key = (int(w.milli[at]), int(w.replicas[at]))
        if at in cycle.reserved or key in seen:
            continue
        seen.add(key)
        if len(seen) > CLAIMANTS:
            return
        need, tenant = cycle.need_of(at), int(w.tenant[at])
        within = [m for m in cycle.models_of(at) if cycle.ledger.room(tenant, int(column[tenant, m])) >= need.total]
        if not need.nodes and any(_bring_together(cycle, at, need, model, movable) for model in within):
            movable = _movable(cycle)


def _movable(cycle: Cycle) -> Bools:
    """What can be moved: on one node, with its state, as large as it is, after it had some time to run and not too often."""
    w, policy = cycle.snapshot.workloads, cycle.policy
    rested = np.asarray(cycle.now - w.started >= np.maximum(w.minimum, policy.time_sharing.slice.total_seconds()))
    able = (
        cycle.held
        & ~cycle.leaving
        & rested
        & (w.phase == Phase.RUNNING)
        & (w.preemption == Mode.CHECKPOINT)
        & (w.replicas == 1)
        & (w.milli == cycle.total)
    )
    often = [uid for uid, times in cycle.next.preempted.items() if len(times) >= policy.preemption.per_workload]
    able[cycle.find(often)] = False
    able[list(cycle.spots)] = False
    return np.asarray(able)


def _bring_together(cycle: Cycle, at: int, need: Need, model: int, movable: Bools) -> bool:
    """Empties enough of the nodes where least has to move, if all that moves finds a place elsewhere."""
    nodes = _nearly_free(cycle, need, model, movable)
    if nodes is None:
        return False
    moves = _movers(cycle, need, nodes, movable)
    if len(cycle.next.preemptions) + len(moves) > cycle.policy.preemption.per_hour:
        return False
    fleet, spots = cycle.fleet.copy(), {}
    keep = np.ones(len(cycle.open), dtype=bool)
    keep[nodes] = False
    fleet.held_until = np.where(keep, fleet.held_until, -np.inf)
    for mover in moves:
        spot = fleet.place(cycle.need_of(mover), model, cycle.now + float(cycle.latest[mover]))
        if spot is None:
            return False
        spots[mover] = spot
    taken = _claim(cycle, fleet, need, model, nodes, moves)
    if taken is None:
        return False
    name = cycle.snapshot.workloads.name[at]
    for mover, spot in spots.items():
        _move(cycle, mover, spot, name)
    reserve(cycle, at, taken, cycle.now + RESERVED_FOR)
    return True


def _nearly_free(cycle: Cycle, need: Need, model: int, movable: Bools) -> Ints | None:
    """The nodes where the fewest GPUs must be cleared so that each takes a replica."""
    places, fleet = cycle.snapshot.places, cycle.fleet
    fixed = np.zeros(fleet.free.shape, dtype=bool)
    rows = cycle.held[places.workload] & ~movable[places.workload]
    fixed[places.node[rows], places.gpu[rows]] = True
    moving = np.zeros(fleet.free.shape, dtype=np.int64)
    rows = movable[places.workload] & cycle.held[places.workload]
    np.add.at(moving, (places.node[rows], places.gpu[rows]), places.milli[rows])
    clearable = fleet.healthy & ~fixed & (fleet.free + moving == WHOLE)  # what is reserved for others is not
    nodes = np.flatnonzero((fleet.model == model) & cycle.open & (clearable.sum(axis=1) * WHOLE >= need.milli))
    nodes = nodes[fleet.allows(need, nodes)]
    count = 1 if need.topology == Topology.NODE else need.replicas
    if len(nodes) < count:
        return None
    missing = np.maximum(need.milli // WHOLE - fleet.whole[nodes], 0)
    return np.asarray(nodes[np.lexsort((nodes, missing))[:count]])


def _movers(cycle: Cycle, need: Need, nodes: Ints, movable: Bools) -> list[int]:
    """On each node the smallest that are enough to clear what a replica needs."""
    places, chosen = cycle.snapshot.places, []
    for node in nodes.tolist():
        missing = need.milli - int(cycle.fleet.whole[node]) * WHOLE
        here = np.unique(places.workload[(places.node == node)])
        for mover in sorted(here[movable[here]].tolist(), key=lambda at: (-int(cycle.total[at]), at)):
            if missing <= 0:
                break
            chosen.append(mover)
            missing -= int(cycle.total[mover])
    return chosen


def _claim(cycle: Cycle, fleet: Fleet, need: Need, model: int, nodes: Ints, moves: list[int]) -> Taken | None:
    """Where the claimant goes when all have moved: on these nodes alone."""
    cycle.unload(fleet, moves)
    fleet.held_until = np.full(len(fleet.held_until), -np.inf)
    fleet.held_until[nodes] = np.inf
    return fleet.place(need, model)


def _move(cycle: Cycle, mover: int, spot: Taken, name: str) -> None:
    w = cycle.snapshot.workloads
    cycle.fleet.take(spot, cycle.need_of(mover))
    cycle.spots[mover] = spot
    cycle.leaving[mover] = True
    cycle.next.preemptions.append(cycle.now)
    cycle.next.preempted.setdefault(w.uid[mover], []).append(cycle.now)
    cycle.say(
        Verb.MIGRATE,
        mover,
        f"it moves with its state, so that {name} finds enough GPUs together",
        Constraint.FRAGMENTATION,
        places=cycle.places_for(spot),
    )
