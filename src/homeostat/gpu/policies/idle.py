"""Idle reclaim: GPUs that are held and not used are warned about, and after a grace taken back.

A workload is idle when all its GPUs show little use and little memory traffic and its processes little CPU, in every reading of a whole
window. A reading that is old or lacks a signal is no evidence, and the window begins anew.

What was taken back stays off for a pause, whether or not others want its GPUs, and for longer each time that it came back and did not use them: else
it would come and go for ever where nobody waits. A person has it back at once by saying that it is not to be taken back (`idle.mode`).
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import DAY, Cycle, gpus, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.kinds import IdleReclaim
from homeostat.gpu.snapshot import Bools, Idle, Mode, Phase


def reclaim(cycle: Cycle) -> None:
    """Warns about what has been idle for the whole window, and takes back what was warned about for the grace."""
    policy, memory, w = cycle.policy.idle, cycle.memory, cycle.snapshot.workloads
    if memory.warned:
        off = [at for at in cycle.find(memory.warned) if cycle.waits[at] or cycle.leaving[at]]
        cycle.next.warned = {w.uid[at]: memory.warned[w.uid[at]] for at in off}  # who was idle resumes after the others
    if not policy.enabled:
        return
    _stay_off(cycle)
    gap = policy.stale_after.total_seconds()
    for at in np.flatnonzero(_idle_now(cycle)).tolist():
        uid = w.uid[at]
        since, last = memory.idle.get(uid, (cycle.now, cycle.now))
        if cycle.now - last > gap:
            since = cycle.now  # nobody looked in between
        cycle.next.idle[uid] = (since, cycle.now)
        if cycle.now - since >= policy.window.total_seconds():
            _act(cycle, at, cycle.now - since)


def pause_after(policy: IdleReclaim, times: int) -> float:
    """For how many seconds a workload stays off that was taken back so often in a row."""
    first = policy.pause.total_seconds()
    return float(min(first * 2 ** min(times - 1, 30), max(first, DAY)))


def _stay_off(cycle: Cycle) -> None:
    """Keeps those waiting whose pause is not over."""
    w, reclaims = cycle.snapshot.workloads, cycle.snapshot.reclaims
    for at in cycle.find(reclaims):
        until = reclaims[w.uid[at]].at + pause_after(cycle.policy.idle, reclaims[w.uid[at]].times)
        if cycle.waits[at] and w.idle[at] == Idle.RECLAIM and cycle.now < until:
            cycle.paused[at] = until
            cycle.block([at], Constraint.IDLE)


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
        times = _times(cycle, at, idle_for)
        back = f"it comes back by itself after {span(pause_after(policy, times))}"
        cycle.stop(Verb.RECLAIM, at, f"{held}, and was warned {span(cycle.now - warned)} ago; {back}", Constraint.IDLE, count=times)


def _times(cycle: Cycle, at: int, idle_for: float) -> int:
    """How often in a row it is taken back, with this time: until it has used its GPUs for as long as the window."""
    w = cycle.snapshot.workloads
    before = cycle.snapshot.reclaims.get(w.uid[at])
    used = cycle.now - idle_for - float(w.started[at])
    return 1 if before is None or used >= cycle.policy.idle.window.total_seconds() else before.times + 1
