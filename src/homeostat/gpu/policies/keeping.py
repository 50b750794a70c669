"""Keeping: what was to leave its GPUs and could not be suspended runs on.

An old driver, memory that processes share on the GPU, too little memory of the machine: then its agents report why, and try again. That is
called off when nobody wants it any more, and after some tries in vain: it is no use to wait for. From then on it is counted on for no room,
as if it were `Never`, until it may be asked again (`TRIED_AGAIN_AFTER`), or is begun anew. It is never ended instead: whoever says `Suspend`
says that its work is not to be lost. What is deleted is ended, suspended or not; so is what is left of a gang that lost a node, when there is room
for the whole of it elsewhere.
"""

from __future__ import annotations

from homeostat.gpu.cycle import SUSPENDED_BY, TRIED_AGAIN_AFTER, Cycle, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.snapshot import NONE, Exceeded, Health, Phase, Refusal

TRIES = 3
"""After so many in vain it is given up."""


def call_off(cycle: Cycle) -> None:
    """Has those run on that could not be suspended, where that is given up or no longer wanted."""
    w = cycle.snapshot.workloads
    for at in cycle.find(cycle.snapshot.refusals):
        refusal = cycle.snapshot.refusals[w.uid[at]]
        leaves = cycle.leaving[at] and cycle.held[at] and w.phase[at] == Phase.SUSPENDING and w.preemption[at] in SUSPENDED_BY
        if not leaves or not refusal.tries or w.deleted[at] or not _is_whole(cycle, at):
            continue
        if refusal.tries >= TRIES:
            cycle.keep(at, _given_up(refusal), Constraint.SUSPENSION, refusal.beneficiary)
        elif not _is_wanted(cycle, at, refusal):
            cycle.keep(at, "it is no longer to leave its GPUs, and had not left them: it runs on", Constraint.NONE, refusal.beneficiary)


def is_given_up(cycle: Cycle, at: int) -> bool:
    """Whether what is left of a gang could not be suspended. Where one of its nodes is lost there is no state to keep: it goes on elsewhere, as if it
    ran, and is ended for that."""
    w = cycle.snapshot.workloads
    refusal = cycle.snapshot.refusals.get(w.uid[at])
    tried = refusal is not None and refusal.tries >= TRIES and w.phase[at] == Phase.SUSPENDING and w.preemption[at] in SUSPENDED_BY
    return tried and not w.stopped[at]


def _given_up(refusal: Refusal) -> str:
    why = refusal.why.removeprefix("it could not be suspended: ")
    return (
        f"it runs on and makes room for nobody, for it could not be suspended in {refusal.tries} tries ({why}); it may be asked again in "
        f"{span(TRIED_AGAIN_AFTER)}. Delete it, or say `Checkpoint` or `Restart` as its preemption.mode, if it may be ended instead"
    )


def _is_whole(cycle: Cycle, at: int) -> bool:
    """Whether all that it runs on is there: else it is to go on elsewhere."""
    nodes = cycle.snapshot.nodes
    here = all(cycle.alive[node] and nodes.health[node, gpu] < Health.FAILED for _, node, gpu, _ in cycle.taken_of(at))
    return here and at not in cycle.snapshot.missing.workload


def _is_wanted(cycle: Cycle, at: int, refusal: Refusal) -> bool:
    """Whether what it was to leave its GPUs for is still so."""
    if refusal.verb == Verb.PREEMPT:
        waits = cycle.index.get(refusal.beneficiary, NONE)
        return refusal.beneficiary in cycle.memory.reservations and waits != NONE and bool(cycle.waits[waits])
    match refusal.constraint:
        case Constraint.STOPPED:
            return bool(cycle.snapshot.workloads.stopped[at])
        case Constraint.QUOTA:
            return _has_too_much(cycle, at)
        case Constraint.BUDGET:
            return _has_spent_all(cycle, int(cycle.snapshot.workloads.tenant[at]))
    return refusal.verb != Verb.REQUEUE


def _has_too_much(cycle: Cycle, at: int) -> bool:
    """Whether its tenant, or its cohort, would use more than it may if it stayed."""
    tenant, column, total = int(cycle.snapshot.workloads.tenant[at]), int(cycle.column[at]), int(cycle.total[at])
    if column == NONE:
        return True
    ledger = cycle.ledger
    ledger.leave(tenant, column, -total)
    found = ledger.excess()[tenant, column] > 0 or ledger.overdrawn()[ledger.limits.cohort[tenant], column] > 0
    ledger.leave(tenant, column, total)
    return bool(found)


def _has_spent_all(cycle: Cycle, tenant: int) -> bool:
    tenants = cycle.snapshot.tenants
    if tenant < 0 or tenants.exceeded[tenant] != Exceeded.SUSPEND:
        return False
    began, spent = cycle.memory.spent.get(tenants.name[tenant], (cycle.now, 0.0))
    return bool(cycle.now < began + tenants.period[tenant] and spent >= tenants.budget[tenant])
