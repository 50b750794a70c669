"""Moving: what runs on a node that is drained goes elsewhere, and part-empty nodes are emptied where that saves their cost."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle, gpus
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NONE, Health, Ints, Mode, Phase


def drain(cycle: Cycle) -> None:
    """Moves what runs on drained nodes as far as there is room. What may never be preempted stays, and that is told."""
    w, nodes, places = cycle.snapshot.workloads, cycle.snapshot.nodes, cycle.snapshot.places
    if not nodes.drain.any():
        return
    for at in np.unique(places.workload[nodes.drain[places.node]]).tolist():
        if w.phase[at] != Phase.RUNNING or not cycle.may_leave(at):
            continue
        name = next(nodes.name[node] for _, node, _, _ in cycle.taken_of(at) if nodes.drain[node])
        if w.preemption[at] == Mode.NEVER:
            tell_once(
                cycle,
                f"{w.uid[at]}/drain",
                at,
                f"it may never be preempted, and holds up the draining of {name}",
                Constraint.DRAIN,
            )
            continue
        taken = cycle.fleet.place(cycle.need_of(at), int(cycle.model[at]))
        if taken is None:
            continue
        cycle.spots[at] = taken
        how = "with its checkpoint" if w.preemption[at] == Mode.CHECKPOINT else "from the beginning"
        cycle.say(
            Verb.MIGRATE,
            at,
            f"{name} is drained: it goes on elsewhere, {how}",
            Constraint.DRAIN,
            places=cycle.places_for(taken),
        )


def tell_once(cycle: Cycle, key: str, at: int, reason: str, constraint: Constraint) -> None:
    """Reports something of a workload, and not again while it lasts."""
    cycle.next.missed[key] = cycle.memory.missed.get(key, cycle.now)
    if key not in cycle.memory.missed:
        cycle.say(Verb.REPORT, at, reason, constraint)


def consolidate(cycle: Cycle) -> None:
    """Has the emptiest node of a pool drained, one a cycle, if all on it keeps its work when moved and fits onto nodes that are in use anyway."""
    nodes, pools, places = cycle.snapshot.nodes, cycle.snapshot.pools, cycle.snapshot.places
    if not cycle.policy.scaling.consolidate or nodes.drain.any() or cycle.waits.any() or not len(pools):
        return
    held = np.bincount(
        places.node[cycle.held[places.workload]],
        weights=places.milli[cycle.held[places.workload]],
        minlength=len(nodes),
    )
    spare = np.bincount(nodes.pool[nodes.pool != NONE], minlength=len(pools)) > pools.minimum
    part = cycle.open & (held > 0) & (nodes.pool != NONE)
    part[part] = spare[nodes.pool[part]] & (held[part] < WHOLE * (nodes.health[part] < Health.FAILED).sum(axis=1) / 2)
    for node in np.flatnonzero(part)[np.lexsort((-nodes.cost[part], held[part]))].tolist():
        if _fits_elsewhere(cycle, node, held.astype(np.int64)):
            name = nodes.name[node]
            reason = f"{name} is used for {gpus(int(held[node]))} only, which fit elsewhere: that saves {nodes.cost[node]:g} an hour"
            cycle.say_of(Verb.DRAIN, "GpuNode", name, reason, Constraint.COST)
            return


def _fits_elsewhere(cycle: Cycle, node: int, held: Ints) -> bool:
    w, places = cycle.snapshot.workloads, cycle.snapshot.places
    fleet = cycle.fleet.copy()
    fleet.held_until = np.where((np.arange(len(held)) == node) | (held == 0), -np.inf, np.inf)
    for at in np.unique(places.workload[places.node == node]).tolist():
        if w.phase[at] != Phase.RUNNING or w.preemption[at] != Mode.CHECKPOINT or not cycle.may_leave(at):
            return False
        if fleet.place(cycle.need_of(at), int(cycle.model[at])) is None:
            return False
    return True
