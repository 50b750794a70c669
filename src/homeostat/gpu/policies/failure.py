"""Failure: a silent, deleted or flapping node, a GPU that failed or is no more. What ran there goes on elsewhere, and the node is replaced.

When too much of the fleet falls silent at once, it is rather the observer that failed: then nothing is done.
"""

from __future__ import annotations

import msgspec
import numpy as np

from homeostat.gpu.cycle import Cycle, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.policies import keeping
from homeostat.gpu.snapshot import NONE, Health, Phase


def observer_is_suspect(cycle: Cycle) -> bool:
    """Whether so much is silent that no decision can rest on it. Reported; nodes known as lost before do not count.

    Leases do not run out in the same moment: once the first has, those count as silent that have been for half of theirs. Nor do nodes
    come back in the same moment: for one lease more nothing is done about those that are not there yet.
    """
    policy, nodes, suspected = cycle.policy.failure, cycle.snapshot.nodes, cycle.memory.suspected
    cycle.next.suspected = suspected
    if not policy.enabled or not cycle.silent.any():
        return False
    fresh, lease = np.array([name not in cycle.memory.lost for name in nodes.name], dtype=bool), policy.lease.total_seconds()
    with np.errstate(invalid="ignore"):
        quiet = int((fresh & (cycle.now - nodes.heard > nodes.patience(lease) / 2)).sum())
    known = int((~np.isnan(nodes.heard) & fresh).sum())
    if not (cycle.silent & fresh).any():
        return False
    if quiet > policy.suspect_observer_above * known:
        cycle.memory = msgspec.structs.replace(cycle.memory, suspected=cycle.now)
        reason = f"{quiet} of {known} nodes fell silent at once: the observer is suspected, and nothing is done until they are heard again, or deleted"
    elif suspected is not None and cycle.now - suspected <= lease:
        reason = f"most of {known} nodes were silent just now, and {quiet} are: nothing is done until they had time to be heard again"
    else:
        return False
    cycle.say_of(Verb.REPORT, "GpuPolicy", "default", reason, Constraint.OBSERVER)
    return True


def mend(cycle: Cycle) -> None:
    """Displaces what ran on lost nodes and failed GPUs, and has nodes replaced."""
    if not cycle.policy.failure.enabled:
        return
    _remember_flaps(cycle)
    nodes, places = cycle.snapshot.nodes, cycle.snapshot.places
    failed = nodes.health == Health.FAILED
    dead = cycle.silent[places.node] | failed[places.node, places.gpu]
    for at in np.unique(places.workload[dead]).tolist():
        if cycle.held[at] and (not cycle.leaving[at] or keeping.is_given_up(cycle, at)):
            cycle.displace(at)
    for at in cycle.gone:
        if cycle.snapshot.workloads.phase[at] in (Phase.STARTING, Phase.RUNNING) and not (cycle.displaced[at] and cycle.waits[at]):
            cycle.displace(at)
    present = nodes.health < Health.ABSENT
    broken = present.any(axis=1) & (failed == present).all(axis=1)
    flapping = nodes.flaps >= cycle.policy.failure.flaps
    for node in np.flatnonzero(cycle.silent | broken | flapping).tolist():
        _replace(cycle, node, _matter(cycle, node, bool(broken[node])))


def _matter(cycle: Cycle, node: int, broken: bool) -> str:
    nodes = cycle.snapshot.nodes
    if cycle.silent[node]:
        return f"not heard of for {span(cycle.now - nodes.heard[node])}"
    if broken:
        return "all its GPUs failed"
    return f"lost and back {int(nodes.flaps[node])} times lately"


def _replace(cycle: Cycle, node: int, matter: str) -> None:
    """Has a node that will not be trusted replaced, and says so until it is gone. One without a pool takes no more work; silent, it is left alone."""
    nodes, name = cycle.snapshot.nodes, cycle.snapshot.nodes.name[node]
    if cycle.policy.failure.replace and nodes.pool[node] != NONE:
        cycle.say_of(Verb.REPLACE, "GpuNode", name, f"{name} is replaced: {matter}", Constraint.FAILURE)
    elif not cycle.silent[node]:
        cycle.say_of(Verb.CORDON, "GpuNode", name, f"{name} takes no more work: {matter}", Constraint.FAILURE)
    cycle.next.lost[name] = cycle.memory.lost.get(name, cycle.now)


def _remember_flaps(cycle: Cycle) -> None:
    """A node that was lost and is heard of again has flapped."""
    nodes, memory, window = cycle.snapshot.nodes, cycle.memory, cycle.policy.failure.flap_window.total_seconds()
    cycle.next.silent = [nodes.name[node] for node in np.flatnonzero(cycle.silent).tolist()]
    lately = {name: [at for at in times if cycle.now - at < window] for name, times in memory.flaps.items()}
    if memory.silent:
        index = {name: node for node, name in enumerate(nodes.name)}
        for name in memory.silent:
            if name in index and cycle.alive[index[name]]:
                lately.setdefault(name, []).append(cycle.now)
    cycle.next.flaps = {name: times for name, times in lately.items() if times}


def requeue(cycle: Cycle) -> None:
    """Says of those that were displaced and found no place that they wait again, first in line: until that is written, whatever was said before."""
    w, nodes = cycle.snapshot.workloads, cycle.snapshot.nodes
    off = cycle.waits | (w.phase == Phase.SUSPENDING)  # agents have still to end what is left of it elsewhere
    for at in np.flatnonzero(cycle.displaced & off).tolist():
        cycle.next.displaced[w.uid[at]] = cycle.memory.displaced.get(w.uid[at], cycle.now)
        if w.phase[at] not in (Phase.STARTING, Phase.RUNNING):
            continue
        lost = {nodes.name[node] for _, node, gpu, _ in cycle.taken_of(at) if not cycle.alive[node] or nodes.health[node, gpu] == Health.FAILED}
        matter = cycle.gone.get(at) or f"{', '.join(sorted(lost)) or 'a node'} failed under it"
        cycle.say(Verb.REQUEUE, at, f"{matter}: it goes on elsewhere as soon as there is room, before others", Constraint.FAILURE)
