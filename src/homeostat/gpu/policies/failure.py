"""Failure: a silent or flapping node, a failed GPU. What ran there goes on elsewhere, and the node is replaced.

When too much of the fleet falls silent at once, it is rather the observer that failed: then nothing is done.
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import DAY, Cycle, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.snapshot import NONE, Health


def observer_is_suspect(cycle: Cycle) -> bool:
    """Whether so much is silent that no decision can rest on it. Reported; nodes known as lost before do not count."""
    policy, nodes = cycle.policy.failure, cycle.snapshot.nodes
    if not policy.enabled:
        return False
    fresh = np.array([name not in cycle.memory.lost for name in nodes.name], dtype=bool)
    known, silent = int((~np.isnan(nodes.heard) & fresh).sum()), int((cycle.silent & fresh).sum())
    if not silent or silent <= policy.suspect_observer_above * known:
        return False
    reason = f"{silent} of {known} nodes fell silent at once: the observer is suspected, and nothing is done until they are heard again"
    cycle.say_of(Verb.REPORT, "GpuPolicy", "default", reason, Constraint.OBSERVER)
    return True


def mend(cycle: Cycle) -> None:
    """Displaces what ran on lost nodes and failed GPUs, and has nodes replaced."""
    if not cycle.policy.failure.enabled:
        return
    nodes, places = cycle.snapshot.nodes, cycle.snapshot.places
    failed = nodes.health == Health.FAILED
    dead = cycle.silent[places.node] | failed[places.node, places.gpu]
    for at in np.unique(places.workload[dead]).tolist():
        if cycle.held[at] and not cycle.leaving[at]:
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
    """Cordons a node that will not be trusted again, and asks for another, once. One without a pool is only left alone while it is silent."""
    nodes, policy, name = cycle.snapshot.nodes, cycle.policy.failure, cycle.snapshot.nodes.name[node]
    since = cycle.memory.lost.get(name)
    can_replace = policy.replace and nodes.pool[node] != NONE
    if not nodes.cordoned[node] and (can_replace or not cycle.silent[node]):
        cycle.say_of(Verb.CORDON, "GpuNode", name, f"{name} takes no more work: {matter}", Constraint.FAILURE)
    if can_replace and since is None:
        cycle.say_of(Verb.REPLACE, "GpuNode", name, f"{name} is replaced: {matter}", Constraint.FAILURE)
    if since is None or cycle.now - since < DAY:
        cycle.next.lost[name] = cycle.now if since is None else since


def requeue(cycle: Cycle) -> None:
    """Says of those that were displaced and found no place that they wait again, first in line."""
    w, nodes = cycle.snapshot.workloads, cycle.snapshot.nodes
    for at in np.flatnonzero(cycle.displaced & cycle.waits).tolist():
        cycle.next.displaced[w.uid[at]] = cycle.memory.displaced.get(w.uid[at], cycle.now)
        if w.uid[at] in cycle.memory.displaced:
            continue
        where = sorted({nodes.name[node] for _, node, _, _ in cycle.taken_of(at)})
        reason = f"{', '.join(where)} failed under it: it goes on elsewhere as soon as there is room, before others"
        cycle.say(Verb.REQUEUE, at, reason, Constraint.FAILURE)
