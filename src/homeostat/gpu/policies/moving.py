"""Moving: what runs on a node that is drained goes elsewhere."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle, gpus
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.snapshot import NONE, Mode, Phase


def drain(cycle: Cycle) -> None:
    """Moves what runs on drained nodes as far as there is room. What stays, for it may never be preempted or for want of room, is told."""
    w, nodes, places = cycle.snapshot.workloads, cycle.snapshot.nodes, cycle.snapshot.places
    if not nodes.drain.any():
        return
    for at in np.unique(places.workload[nodes.drain[places.node]]).tolist():
        if w.phase[at] != Phase.RUNNING or not cycle.may_leave(at):
            continue
        name = next(nodes.name[node] for _, node, _, _ in cycle.taken_of(at) if nodes.drain[node])
        why = _why_not(cycle, at)
        taken = None if why else cycle.fleet.place(cycle.need_of(at), int(cycle.model[at]))
        if taken is None:
            why = why or "there is no room for it elsewhere"
            tell_once(cycle, f"{w.uid[at]}/drain", at, f"{why}, and it holds up the draining of {name}", Constraint.DRAIN)
            continue
        if cycle.column[at] != NONE and (more := cycle.growth(at)) > 0:
            cycle.ledger.take(int(w.tenant[at]), int(cycle.column[at]), more)
        cycle.spots[at] = taken
        how = "with its checkpoint" if w.preemption[at] == Mode.CHECKPOINT else "from the beginning"
        cycle.say(
            Verb.MIGRATE,
            at,
            f"{name} is drained: it goes on elsewhere, {how}",
            Constraint.DRAIN,
            places=cycle.places_for(taken),
        )


def _why_not(cycle: Cycle, at: int) -> str:
    """Why one that runs is not to be begun elsewhere; empty where it may be."""
    w, more = cycle.snapshot.workloads, cycle.growth(at)
    if w.preemption[at] == Mode.NEVER:
        return "it may never be preempted"
    if more > 0 and cycle.column[at] != NONE and cycle.ledger.room(int(w.tenant[at]), int(cycle.column[at])) < more:
        return f"as it was declared since it wants {gpus(more)} more, for which its quota has no room"
    return ""


def tell_once(cycle: Cycle, key: str, at: int, reason: str, constraint: Constraint) -> None:
    """Reports something of a workload, and not again while it lasts."""
    cycle.next.missed[key] = cycle.memory.missed.get(key, cycle.now)
    if key not in cycle.memory.missed:
        cycle.say(Verb.REPORT, at, reason, constraint)
