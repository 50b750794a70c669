"""Fair share: in which order those that wait come, by their tenants' weighted dominant share, the past counted in.

First what has waited too long or lost its node, then what is within its tenant's own quota, then what must be borrowed, and last what
was taken back as idle. Under time sharing a part of all quotas may be lent to short work: then only the rest comes before what is borrowed.
What has waited too long comes in the order in which it has waited: none of it is overtaken, or a large gang would wait for ever. Within each of
the others the tenant comes first that has least for its weight, as if all before had been admitted. Within a tenant priority decides, with
points for waiting and, under time sharing, against work that is expected to be long. Between tenants the length of work counts in as far as
more is asked for than there is: while little waits, shares alone decide.
"""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import DAY, HOUR, Cycle
from homeostat.gpu.decisions import Constraint
from homeostat.gpu.entitlement import dominant_shares, floors
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NONE, Bools, Floats, Ints

OVERDUE, OWN, BORROWED, IDLE = range(4)
_FORGOTTEN = 1e-3
"""Thousandths of a GPU below which a tenant's past is no longer kept."""


def usage_by_model(cycle: Cycle) -> Ints:
    """[tenants, models]: what is held now."""
    w = cycle.snapshot.workloads
    used = np.zeros((len(cycle.snapshot.tenants), len(cycle.snapshot.models)), dtype=np.int64)
    held = np.flatnonzero(cycle.held & (w.tenant >= 0))
    np.add.at(used, (w.tenant[held], cycle.model[held]), cycle.total[held])
    return used


def remember(cycle: Cycle) -> None:
    """Lets past use decay, and adds the use of this moment; the shares of all tenants come from both."""
    tenants, policy, memory = cycle.snapshot.tenants, cycle.policy.fair_share, cycle.memory
    column = {name: at for at, name in enumerate(cycle.snapshot.models)}
    now = usage_by_model(cycle).astype(np.float64)
    past = now.copy() if memory.at is None else np.zeros_like(now)
    row = {name: at for at, name in enumerate(tenants.name)}
    for name, by_model in memory.usage.items():
        for model, amount in by_model.items():
            if name in row and model in column:
                past[row[name], column[model]] = amount
    faded = (
        0.5 ** (max(cycle.now - memory.at, 0.0) / policy.half_life.total_seconds()) if memory.at is not None else 1.0
    )
    past = past * faded + now * (1 - faded)
    sharing = cycle.policy.time_sharing
    cycle.ledger.floor = floors(tenants, cycle.ledger.limits, past, sharing.lends if sharing.enabled else 0.0)
    models = cycle.snapshot.models
    for at, by_column in zip(*np.nonzero(past > _FORGOTTEN), strict=True):
        cycle.next.usage.setdefault(tenants.name[at], {})[models[by_column]] = float(past[at, by_column])
    cycle.share_now = dominant_shares(now, cycle.capacity) / tenants.weight
    weight_of_past = policy.past if policy.enabled else 0.0
    cycle.share = (1 - weight_of_past) * cycle.share_now + weight_of_past * dominant_shares(
        past, cycle.capacity
    ) / tenants.weight


def put_in_order(cycle: Cycle) -> None:
    """Sets the order of the cycle, and leaves out what cannot be admitted whatever is free."""
    w = cycle.snapshot.workloads
    _refuse(cycle)
    queue = np.flatnonzero(cycle.waits & ~cycle.blocked)
    cycle.lead = lead_models(cycle, queue)
    queue = queue[cycle.lead[queue] != NONE]
    points = points_of(cycle, queue)
    rank = np.lexsort((queue, -points, w.tenant[queue]))  # by tenant, best first
    queue, points = queue[rank], points[rank]
    tenant, lead, total = w.tenant[queue], cycle.lead[queue], cycle.total[queue]
    cycle.crowding = _crowding(cycle, queue)
    _, column, held = reach(cycle, queue)
    band = np.where(held <= cycle.ledger.floor[tenant, column], OWN, BORROWED)
    band[_overdue(cycle, queue, held <= cycle.snapshot.tenants.nominal[tenant, column])] = OVERDUE
    if cycle.memory.warned:
        band[np.isin(queue, cycle.find(cycle.memory.warned))] = IDLE
    if cycle.policy.fair_share.enabled:
        part = total / np.maximum(cycle.capacity[lead], 1) / cycle.snapshot.tenants.weight[tenant]
        handicap = handicap_of(cycle, queue) * cycle.crowding[lead]
        stand = cycle.share[tenant] + grouped_sum(part, tenant) - part + handicap
        longest = np.where(cycle.displaced[queue], -np.inf, -cycle.waited[queue])
        stand = np.where(band == OVERDUE, longest, stand)
        final = np.lexsort((np.arange(len(queue)), stand, band))
    else:
        final = np.lexsort((queue, -points, band))
    cycle.order = queue[final]
    cycle.band = np.full(len(w), IDLE)
    cycle.band[queue] = band


def _crowding(cycle: Cycle, queue: Ints) -> Floats:
    """By model: how much is wanted beyond what there is, as a part of that; 1 where it is wanted twice over, or more."""
    wanted, held = np.zeros(len(cycle.capacity)), cycle.held & (cycle.model != NONE)
    for model, total in ((cycle.model[held], cycle.total[held]), (cycle.lead[queue], cycle.total[queue])):
        wanted += np.bincount(model, weights=total, minlength=len(wanted))
    return np.asarray(np.clip(wanted / np.maximum(cycle.capacity, 1) - 1.0, 0.0, 1.0))


def _refuse(cycle: Cycle) -> None:
    w = cycle.snapshot.workloads
    cycle.block(cycle.waits & (w.tenant < 0), Constraint.TENANT)
    odd = (w.milli <= 0) | ((w.milli > WHOLE) & (w.milli % WHOLE != 0))
    cycle.block(cycle.waits & odd, Constraint.REQUEST)
    cycle.block([at for at in sorted(cycle.away) if cycle.waits[at]], Constraint.HOME)


def lead_models(cycle: Cycle, queue: Ints) -> Ints:
    """The model that each is counted under while it waits: of those that it may have, one within its own quota, else the cheapest."""
    w, tenants = cycle.snapshot.workloads, cycle.snapshot.tenants
    lead = np.full(len(w), NONE)
    if not len(queue) or not len(tenants):
        return lead
    allowed = cycle.allowed[queue]
    tenant, total = w.tenant[queue], cycle.total[queue]
    found = np.full(len(queue), NONE)
    left = tenants.nominal - cycle.ledger.used
    for fits_own in (True, False):
        for model in cycle.cheapest_first:
            ok = allowed[:, model] & (found == NONE)
            if fits_own:
                ok &= left[tenant, tenants.column[tenant, model]] >= total
            found[ok] = model
    for at in queue[found == NONE].tolist():
        cycle.block([at], _why_none(cycle, at))
    lead[queue] = found
    return lead


def _why_none(cycle: Cycle, at: int) -> Constraint:
    """Whether it is the quota that has no such type, or the fleet."""
    w, tenants = cycle.snapshot.workloads, cycle.snapshot.tenants
    wanted = [m for m in range(len(cycle.snapshot.models)) if int(w.models[at]) >> m & 1 and cycle.capacity[m] > 0]
    if wanted and all(tenants.column[w.tenant[at], m] == NONE for m in wanted):
        return Constraint.QUOTA
    return Constraint.TYPE


def points_of(cycle: Cycle, queue: Ints) -> Floats:
    """Priority, raised by waiting and, under time sharing, lowered by the GPU time that is expected."""
    sharing = cycle.policy.time_sharing
    points = cycle.snapshot.workloads.priority[queue] + age_of(cycle, queue)
    if sharing.enabled:
        cost = cycle.total[queue] / WHOLE * cycle.remaining[queue] / max(sharing.expected.total_seconds(), 1.0)
        points -= sharing.per_doubling * np.log2(np.maximum(cost, 1e-9))
    return points


def age_of(cycle: Cycle, which: Ints) -> Floats:
    """The points of priority that each has earned by waiting."""
    ageing = cycle.policy.ageing
    if not ageing.enabled:
        return np.zeros(len(which))
    return np.asarray(np.minimum(cycle.waited[which] / HOUR * ageing.per_hour, ageing.most))


def handicap_of(cycle: Cycle, which: Ints) -> Floats:
    """What is added to a tenant's share when its work is compared with that of others: under time sharing the more, the longer it will take.
    It is for a fleet of which twice as much is wanted as there is; to be taken times `cycle.crowding`."""
    sharing = cycle.policy.time_sharing
    if not sharing.enabled:
        return np.zeros(len(which))
    cost = cycle.total[which] / WHOLE * cycle.remaining[which] / max(sharing.expected.total_seconds(), 1.0)
    return np.asarray(sharing.share_per_doubling * np.log2(np.maximum(cost, 1e-9)))


def grouped_sum(amount: Floats | Ints, group: Ints) -> Floats:
    """The sum in its group up to each entry and with it; groups are contiguous."""
    total = np.cumsum(amount, dtype=np.float64)
    starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]]) if len(group) else np.zeros(0, dtype=np.int64)
    return np.asarray(total - np.repeat((total - amount)[starts], np.diff(np.r_[starts, len(group)])))


def reach(cycle: Cycle, queue: Ints) -> tuple[Ints, Ints, Floats]:
    """The tenant and the column of each, and what the tenant would hold in it with this one and all of its own before it in the queue."""
    w, tenants = cycle.snapshot.workloads, cycle.snapshot.tenants
    tenant, total = w.tenant[queue], cycle.total[queue]
    column = tenants.column[tenant, cycle.lead[queue]]
    by_column = np.lexsort((np.arange(len(queue)), tenant * tenants.nominal.shape[1] + column))
    key = (tenant * tenants.nominal.shape[1] + column)[by_column]
    before = np.empty(len(queue))
    before[by_column] = grouped_sum(total[by_column], key)
    staying = cycle.ledger.used - cycle.ledger.leaving
    return tenant, column, np.asarray(staying[tenant, column] + before)


def why_first(cycle: Cycle, at: int) -> str:
    """Of one that comes before all others: why, in words that follow its name."""
    if cycle.displaced[at]:
        return "has lost its node"
    return "has waited too long" if _is_late(cycle, np.array([at]))[0] else "is near its deadline"


def _is_late(cycle: Cycle, queue: Ints) -> Bools:
    """Which have waited longer than anybody should, or than their tenant was promised."""
    limit = np.minimum(cycle.policy.ageing.overdue_after.total_seconds(), cycle.snapshot.tenants.max_wait[cycle.snapshot.workloads.tenant[queue]])
    return np.asarray(cycle.waited[queue] > limit)


def _overdue(cycle: Cycle, queue: Ints, own: Bools) -> Bools:
    """Which come before all others. Beyond the own quota it is only the one of each tenant that waited longest."""
    w = cycle.snapshot.workloads
    tenant, waited = w.tenant[queue], cycle.waited[queue]
    late = _is_late(cycle, queue)
    late |= own & (cycle.now + cycle.remaining[queue] >= w.deadline[queue] - DAY / 24)
    longest = np.zeros(len(queue), dtype=bool)
    by_wait = np.lexsort((queue, -waited, tenant))
    first = np.r_[True, tenant[by_wait][1:] != tenant[by_wait][:-1]] if len(queue) else np.zeros(0, dtype=bool)
    longest[by_wait[first]] = True
    return np.asarray((late & (own | longest)) | cycle.displaced[queue])
