"""Idle reclaim: GPUs that are held and not used are warned about, and after a grace taken back.

A workload is idle when all its GPUs show little use and little memory traffic and its processes little CPU, in every reading of a whole
window. A reading that is old or lacks a signal is no evidence, and the window begins anew.
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle, gpus, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.snapshot import Bools, Idle, Mode, Phase


def reclaim(cycle: Cycle) -> None:
    """Warns about what has been idle for the whole window, and takes back what was warned about for the grace."""
    policy, memory, w = cycle.policy.idle, cycle.memory, cycle.snapshot.workloads
    if memory.warned:
        waiting = [at for at in cycle.find(memory.warned) if cycle.waits[at]]
        cycle.next.warned = {
            w.uid[at]: memory.warned[w.uid[at]] for at in waiting
        }  # who was idle resumes after the others
    if not policy.enabled:
        return
    gap = policy.stale_after.total_seconds()
    for at in np.flatnonzero(_idle_now(cycle)).tolist():
        uid = w.uid[at]
        since, last = memory.idle.get(uid, (cycle.now, cycle.now))
        if cycle.now - last > gap:
            since = cycle.now  # nobody looked in between
        cycle.next.idle[uid] = (since, cycle.now)
        if cycle.now - since >= policy.window.total_seconds():
            _act(cycle, at, cycle.now - since)


def _idle_now(cycle: Cycle) -> Bools:
    """Which workloads use nothing of what they hold, by fresh and whole readings."""
    policy, nodes, places, w = cycle.policy.idle, cycle.snapshot.nodes, cycle.snapshot.places, cycle.snapshot.workloads
    at = (places.node, places.gpu)
    with np.errstate(invalid="ignore"):
        fresh = abs(cycle.now - nodes.reported) <= policy.stale_after.total_seconds()  # a clock may go ahead of ours, too
        quiet = (
            fresh[places.node]
            & (nodes.use[at] < policy.gpu_below)
            & (nodes.traffic[at] < policy.memory_traffic_below)
            & (nodes.busy_cores[at] < policy.cpu_below)
        )
    busy = np.bincount(places.workload[~quiet], minlength=len(w)) > 0
    has = np.bincount(places.workload, minlength=len(w)) > 0
    return np.asarray(cycle.held & ~cycle.leaving & has & ~busy & (w.phase == Phase.RUNNING) & (w.idle != Idle.IGNORE))


def _act(cycle: Cycle, at: int, idle_for: float) -> None:
    policy, w, uid = cycle.policy.idle, cycle.snapshot.workloads, cycle.snapshot.workloads.uid[at]
    warned, grace = cycle.memory.warned.get(uid), policy.grace.total_seconds()
    held = f"it holds {gpus(int(cycle.total[at]))} and has not used them for {span(idle_for)} (GPU, memory and CPU)"
    keeps = w.idle[at] == Idle.WARN or w.preemption[at] == Mode.NEVER or cycle.unyielding[at]
    if warned is None:
        then = "" if keeps else f"; they are taken back in {span(grace)} if that goes on"
        cycle.say(Verb.WARN, at, held + then, Constraint.IDLE)
    cycle.next.warned[uid] = cycle.now if warned is None else warned
    if warned is not None and cycle.now - warned >= grace and not keeps and cycle.may_leave(at):
        cycle.stop(Verb.RECLAIM, at, f"{held}, and was warned {span(cycle.now - warned)} ago", Constraint.IDLE)
