"""Schedulers to compare with, asked the same way as the governor: FIFO, priority with backfill, least attained service."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Constraint, Memory, Plan, Verb
from homeostat.gpu.explain import Pending
from homeostat.gpu.kinds import WHOLE, GpuPolicySpec
from homeostat.gpu.policies import admission, failure
from homeostat.gpu.policies.fair_share import BORROWED, lead_models
from homeostat.gpu.snapshot import NONE, Ints, Mode, Phase, Snapshot


def _queue(cycle: Cycle, order: Ints) -> None:
    cycle.band = np.full(len(cycle.waits), BORROWED)
    cycle.lead = lead_models(cycle, order)
    cycle.order = order[cycle.lead[order] != NONE]


def _plan(cycle: Cycle) -> Plan:
    failure.requeue(cycle)
    return Plan(decisions=cycle.decisions, memory=cycle.next, pending=Pending(cycle, cycle.order[:0], cycle.order[:0]))


def fifo(snapshot: Snapshot, policy: GpuPolicySpec, memory: Memory) -> Plan:
    """Strictly by submission: the first that does not fit stops all behind it."""
    cycle = Cycle(snapshot, policy, memory)
    failure.mend(cycle)
    _queue(cycle, np.flatnonzero(cycle.waits))
    for at in cycle.order.tolist():
        taken = _place(cycle, at)
        if taken is False:
            break
    return _plan(cycle)


def priority_backfill(snapshot: Snapshot, policy: GpuPolicySpec, memory: Memory) -> Plan:
    """By priority and then submission; others may overtake if they are not expected to delay the first (EASY)."""
    cycle = Cycle(snapshot, policy, memory)
    failure.mend(cycle)
    waiting = np.flatnonzero(cycle.waits)
    _queue(cycle, waiting[np.lexsort((waiting, -snapshot.workloads.priority[waiting]))])
    walk = admission.Admission(cycle)
    walk.holds = 1
    walk.walk()
    return _plan(cycle)


def least_attained_service(threshold: float = 3600.0) -> Callable[[Snapshot, GpuPolicySpec, Memory], Plan]:
    """Tiresias with two queues: who has had less than `threshold` GPU seconds goes before who has had more, and takes its place; by submission
    within a queue."""

    def las(snapshot: Snapshot, policy: GpuPolicySpec, memory: Memory) -> Plan:
        cycle, w = Cycle(snapshot, policy, memory), snapshot.workloads
        failure.mend(cycle)
        level = (w.ran * cycle.total / WHOLE >= threshold).astype(np.int64)
        waiting = np.flatnonzero(cycle.waits)
        _queue(cycle, waiting[np.lexsort((waiting, level[waiting]))])
        short = 0
        coming = int(cycle.total[cycle.held & cycle.leaving].sum())
        for at in cycle.order.tolist():
            if level[at] and _free(cycle) + coming < short + cycle.total[at]:
                continue  # it is for those of the first queue, though it may be scattered
            if not _place(cycle, at) and level[at] == 0:
                short += int(cycle.total[at])
        able = (
            cycle.held & ~cycle.leaving & (w.phase == Phase.RUNNING) & (w.preemption <= Mode.CHECKPOINT) & (level == 1)
        )
        for at in np.flatnonzero(able)[::-1].tolist():  # the last submitted first
            if _free(cycle) + coming >= short:
                break
            cycle.stop(Verb.PREEMPT, at, "others have had less service", Constraint.TIME_SHARING)
            coming += int(cycle.total[at])
        return _plan(cycle)

    return las


def _free(cycle: Cycle) -> int:
    return int(np.maximum(cycle.fleet.free[cycle.open], 0).sum())


def _place(cycle: Cycle, at: int) -> bool:
    total, tenant = int(cycle.total[at]), int(cycle.snapshot.workloads.tenant[at])
    for model in cycle.models_of(at):
        if cycle.ledger.room(tenant, int(cycle.snapshot.tenants.column[tenant, model])) < total:
            continue
        taken = cycle.fleet.place(cycle.need_of(at), model)
        if taken is not None:
            cycle.admit(at, taken, "it is its turn", Constraint.NONE)
            return True
    return False
