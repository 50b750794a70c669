"""Budget: the GPU hours that a tenant may use in a period. Periods follow each other from when it was first counted, whenever somebody looks."""

from __future__ import annotations

import math

import numpy as np

from homeostat.gpu.cycle import HOUR, Cycle
from homeostat.gpu.decisions import USED_UP, Constraint, Verb
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import Exceeded, Mode


def rounded(spent: float, budget: float) -> float:
    """Hours that were used, for people: to a tenth, and of a small budget to a hundredth part of it."""
    return round(spent, max(1, 2 - math.floor(math.log10(budget)))) if budget > 0 else round(spent, 1)


def keep(cycle: Cycle) -> None:
    """Adds up what was used since the last cycle, and holds or suspends tenants that have used all."""
    tenants, w = cycle.snapshot.tenants, cycle.snapshot.workloads
    hours = max(cycle.now - cycle.memory.at, 0.0) / HOUR if cycle.memory.at is not None else 0.0
    used = cycle.ledger.used.sum(axis=1) / WHOLE
    for tenant in np.flatnonzero(np.isfinite(tenants.budget)).tolist():
        name, budget = tenants.name[tenant], float(tenants.budget[tenant])
        start, before = cycle.memory.spent.get(name, (cycle.now, 0.0))
        passed = max((cycle.now - start) // float(tenants.period[tenant]), 0.0)
        if passed:
            start, before = start + passed * float(tenants.period[tenant]), 0.0
        spent = before + float(used[tenant]) * min(hours, (cycle.now - start) / HOUR if passed else hours)
        cycle.next.spent[name] = (start, spent)
        if spent < budget:
            continue
        reason = f"{name} has used {spent:.3g} of its {budget:g} GPU hours"
        told = f"{name}{USED_UP}"  # also where the budget was lowered to less than is used
        cycle.next.missed[told] = cycle.memory.missed.get(told, cycle.now)
        if told not in cycle.memory.missed:
            cycle.say_of(Verb.WARN, "Tenant", name, reason, Constraint.BUDGET)
        if tenants.exceeded[tenant] >= Exceeded.HOLD:
            cycle.block(cycle.waits & (w.tenant == tenant), Constraint.BUDGET)
        if tenants.exceeded[tenant] == Exceeded.SUSPEND:
            for at in np.flatnonzero(cycle.held & (w.tenant == tenant) & (w.preemption != Mode.NEVER) & ~cycle.unyielding).tolist():
                if cycle.may_leave(at):
                    cycle.stop(Verb.SUSPEND, at, reason, Constraint.BUDGET)
