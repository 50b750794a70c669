"""Moving: what runs on a node that is drained goes elsewhere."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.snapshot import Mode, Phase


def drain(cycle: Cycle) -> None:
    """Moves what runs on drained nodes as far as there is room. What stays, for it may never be preempted or for want of room, is told."""
    w, nodes, places = cycle.snapshot.workloads, cycle.snapshot.nodes, cycle.snapshot.places
    if not nodes.drain.any():
        return
    for at in np.unique(places.workload[nodes.drain[places.node]]).tolist():
        if w.phase[at] != Phase.RUNNING or not cycle.may_leave(at):
            continue
        name = next(nodes.name[node] for _, node, _, _ in cycle.taken_of(at) if nodes.drain[node])
        never = w.preemption[at] == Mode.NEVER
        taken = None if never else cycle.fleet.place(cycle.need_of(at), int(cycle.model[at]))
        if taken is None:
            why = "it may never be preempted" if never else "there is no room for it elsewhere"
            tell_once(cycle, f"{w.uid[at]}/drain", at, f"{why}, and it holds up the draining of {name}", Constraint.DRAIN)
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
