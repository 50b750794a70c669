"""The governor: a pure function from all facts at one moment to what should be done about them.

    plan = decide(snapshot, policy, memory)
    plan.decisions          # what to do, in order, each with its reason
    plan.pending.why(uid)   # why a workload waits, who is ahead, when it will likely start
    plan.memory             # to be handed in at the next cycle

It reads no clock, does no I/O, and the same facts in any order give the same decisions. It proposes: guards stand between a plan and
the fleet, and whatever was not carried out is decided again at the next cycle.
"""

from __future__ import annotations

from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Decision, Memory, Plan, Verb
from homeostat.gpu.explain import Pending
from homeostat.gpu.kinds import GpuPolicySpec
from homeostat.gpu.policies import (
    admission,
    backlog,
    budget,
    cost,
    defragmentation,
    ending,
    failure,
    fair_share,
    idle,
    keeping,
    moving,
    preemption,
    quota,
    sla,
)
from homeostat.gpu.snapshot import Snapshot

_FREES = {Verb.END: 0, Verb.SUSPEND: 0, Verb.RECLAIM: 0, Verb.PREEMPT: 0, Verb.REQUEUE: 0}


def decide(snapshot: Snapshot, policy: GpuPolicySpec | None = None, memory: Memory | None = None) -> Plan:
    """One cycle. Without a policy all defaults hold; without a memory there is no past."""
    cycle = Cycle(snapshot, policy or GpuPolicySpec(), memory or Memory())
    if failure.observer_is_suspect(cycle):
        fair_share.remember(cycle)  # who asks is told the shares as they are
        return Plan(decisions=cycle.decisions, memory=cycle.memory, pending=Pending.unknown(cycle))
    cost.keep_off_spot(cycle)
    failure.mend(cycle)
    keeping.call_off(cycle)
    ending.end(cycle)
    idle.reclaim(cycle)
    budget.keep(cycle)
    quota.bring_back(cycle)
    preemption.remember(cycle)
    fair_share.remember(cycle)
    fair_share.put_in_order(cycle)
    preemption.honour(cycle)
    moving.drain(cycle)
    admission.admit(cycle)
    defragmentation.make_whole(cycle)
    preemption.make_room(cycle)
    failure.requeue(cycle)
    cost.consolidate(cycle)
    backlog.scale(cycle)
    sla.watch(cycle)
    return Plan(decisions=_in_order(cycle.decisions), memory=cycle.next, pending=Pending.of(cycle))


def _in_order(decisions: list[Decision]) -> list[Decision]:
    """What frees GPUs first, then the rest as it was decided."""
    return sorted(decisions, key=lambda decision: _FREES.get(decision.verb, 1))
