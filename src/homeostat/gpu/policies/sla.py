"""SLA: what was promised to a tenant, and what a deadline asked for, is watched; what is not kept is reported, once."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import DAY, Cycle, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.policies.fair_share import reach
from homeostat.gpu.policies.moving import tell_once


def watch(cycle: Cycle) -> None:
    """Reports waits that are too long, deadlines that have passed, and tenants that were not served for the part of time they were promised."""
    w, tenants = cycle.snapshot.workloads, cycle.snapshot.tenants
    waits = cycle.waits.copy()
    waits[[at for at in cycle.spots if not cycle.held[at]]] = True  # what starts just now may start too late
    never_ran = waits & (w.ran <= 0) & (w.tenant >= 0)
    if len(tenants):
        limit = tenants.max_wait[np.maximum(w.tenant, 0)]
        for at in np.flatnonzero(never_ran & ~w.stopped & (cycle.waited > limit)).tolist():
            reason = f"it has waited {span(cycle.waited[at])}, and {tenants.name[w.tenant[at]]} was promised at most {span(limit[at])}"
            tell_once(cycle, f"{w.uid[at]}/wait", at, reason, Constraint.SLA)
    for at in np.flatnonzero(cycle.now > w.deadline).tolist():
        tell_once(
            cycle,
            f"{w.uid[at]}/deadline",
            at,
            f"its deadline passed {span(cycle.now - w.deadline[at])} ago",
            Constraint.SLA,
        )
    _serve(cycle)


def _serve(cycle: Cycle) -> None:
    """The part of the last day in which nothing within a tenant's own quota waited."""
    tenants, memory = cycle.snapshot.tenants, cycle.memory
    promised = np.flatnonzero(tenants.share_of_time > 0).tolist()
    if not promised:
        return
    waiting = cycle.order[cycle.waits[cycle.order]]
    whose, column, held = reach(cycle, waiting)
    short = set(whose[held <= tenants.nominal[whose, column]].tolist())
    faded = 0.5 ** (max(cycle.now - memory.at, 0.0) / DAY) if memory.at is not None else 1.0
    for tenant in promised:
        name, target = tenants.name[tenant], float(tenants.share_of_time[tenant])
        before = memory.served.get(name, 1.0)
        served = before * faded + (1 - faded) * (tenant not in short)
        cycle.next.served[name] = served
        if served < target <= before:
            reason = f"all that {name} wanted within its quota ran for {served:.0%} of the last day; it was promised {target:.0%}"
            cycle.say_of(Verb.REPORT, "Tenant", name, reason, Constraint.SLA)
