"""Schedulers to compare with, asked the same way as the governor: FIFO, priority with backfill, least attained service."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Constraint, Memory, Plan
from homeostat.gpu.explain import Pending
from homeostat.gpu.kinds import WHOLE, GpuPolicySpec, Preempting
from homeostat.gpu.policies import admission, failure, preemption
from homeostat.gpu.policies.fair_share import BORROWED, lead_models
from homeostat.gpu.snapshot import NONE, Bools, Ints, Mode, Snapshot


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
    walk.claims[:] = True  # nodes are held back for the first, whatever it waits for
    walk.walk()
    return _plan(cycle)


def least_attained_service(threshold: float = 3600.0) -> Callable[[Snapshot, GpuPolicySpec, Memory], Plan]:
    """Tiresias with two queues: who has had less than `threshold` GPU seconds goes before who has had more, and takes its place; by submission
    within a queue. Whoever fits starts, and room is made in the way in which the governor makes it: the last submitted go, no more of them than
    it takes, and what is cleared is kept for the one for whom it was done."""

    def las(snapshot: Snapshot, policy: GpuPolicySpec, memory: Memory) -> Plan:
        cycle, w = Cycle(snapshot, _UNBOUND, memory), snapshot.workloads
        failure.mend(cycle)
        served = np.asarray(w.ran * cycle.total / WHOLE >= threshold)
        waiting = np.flatnonzero(cycle.waits)
        _queue(cycle, waiting[np.lexsort((waiting, served[waiting]))])
        preemption.honour(cycle)
        for at in cycle.order.tolist():
            if cycle.waits[at] and at not in cycle.reserved:
                _place(cycle, at)
        _Turn(cycle, served).run()
        return _plan(cycle)

    return las


_UNBOUND = GpuPolicySpec(preemption=Preempting(per_hour=10**9, per_workload=10**9))


class _Turn(preemption.Preemption):
    """Who has had less takes the place of who has had more."""

    def __init__(self, cycle: Cycle, served: Bools) -> None:
        super().__init__(cycle)
        self.served = served

    def run(self) -> None:
        """For all of the first queue that still wait."""
        self.shape = admission.shapes(self.cycle, self.cycle.order)
        waiting = self.cycle.order[self.cycle.waits[self.cycle.order]]
        self._seek(waiting[~self.served[waiting]], len(waiting))

    def _victims(self, at: int, model: int, column: int) -> tuple[list[int], dict[int, Constraint]]:
        keeps_work = self.cycle.snapshot.workloads.preemption[self.able] <= Mode.CHECKPOINT
        able = self.able[keeps_work & self.served[self.able] & (self.cycle.model[self.able] == model)]
        victims = able[::-1].tolist()  # the last submitted first
        return victims, dict.fromkeys(victims, Constraint.TIME_SHARING)


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
