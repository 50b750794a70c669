"""Quota: a tenant that uses more than it may is brought back, also when the quota itself was lowered.

Lowest priority first, then youngest, whole gangs; among equals the fewest GPUs that suffice.
"""

from __future__ import annotations

from itertools import groupby
from math import gcd

import numpy as np

from homeostat.gpu.cycle import Cycle, gpus
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.kinds import share_text
from homeostat.gpu.policies.moving import tell_once
from homeostat.gpu.snapshot import NONE, Mode, Snapshot

_WIDEST = 200_000
"""Bits in the largest search for the best sum; beyond, the youngest that suffice are taken."""


def bring_back(cycle: Cycle) -> None:
    """Suspends what runs beyond the quota of its tenant, or beyond what the cohort has."""
    ledger, tenants, models = cycle.ledger, cycle.snapshot.tenants, cycle.snapshot.models
    _no_longer_allowed(cycle)
    for at in cycle.find(cycle.snapshot.astray):
        tell_once(cycle, f"{cycle.snapshot.workloads.uid[at]}/tenant", at, unusable(cycle.snapshot, at), Constraint.TENANT)
    for tenant, column in np.argwhere(ledger.excess() > 0).tolist():
        most, used = (
            int(ledger.limits.most[tenant, column]),
            int(ledger.used[tenant, column] - ledger.leaving[tenant, column]),
        )
        of = f" of {models[column]}" if column < len(models) else ""
        reason = f"{tenants.name[tenant]} uses {share_text(used)} of the {gpus(most)}{of} that it may use"
        _shed(cycle, tenant, column, used - most, reason)
    for cohort, column in np.argwhere(ledger.overdrawn() > 0).tolist():
        _give_back(cycle, cohort, column, int(ledger.overdrawn()[cohort, column]))


def unusable(snapshot: Snapshot, at: int) -> str:
    """Of one that holds GPUs and is astray: what is the matter with the tenant that it names, and for which one it counts."""
    named = snapshot.astray[snapshot.workloads.uid[at]]
    counts = f"what it holds counts for {snapshot.tenants.name[snapshot.workloads.tenant[at]]}"
    matter = "is being deleted" if named in snapshot.departing else "is no tenant that its namespace may use"
    return f"{named} {matter}: {counts}, and it does not start again"


def _no_longer_allowed(cycle: Cycle) -> None:
    """A type that the tenant has no quota for at all, such as after its entry was removed. Of an unknown tenant nothing is touched."""
    w, tenants, models = cycle.snapshot.workloads, cycle.snapshot.tenants, cycle.snapshot.models
    for at in np.flatnonzero(
        cycle.held & (w.tenant >= 0) & (cycle.column == NONE) & (w.preemption != Mode.NEVER) & ~cycle.unyielding
    ).tolist():
        if cycle.may_leave(at):
            reason = f"{tenants.name[w.tenant[at]]} has no quota for {models[cycle.model[at]]}"
            cycle.stop(Verb.SUSPEND, at, reason, Constraint.QUOTA)


def _give_back(cycle: Cycle, cohort: int, column: int, need: int) -> None:
    """The cohort lent more than it has: those who borrowed most for their weight give back first."""
    ledger, tenants, short = cycle.ledger, cycle.snapshot.tenants, need
    members = np.flatnonzero(ledger.limits.cohort == cohort).tolist()
    owed = {tenant: ledger.borrowed(tenant, column) for tenant in members}
    for tenant in sorted(members, key=lambda t: (-owed[t] / tenants.weight[t], t)):
        if need <= 0 or not owed[tenant]:
            return
        reason = f"{tenants.name[tenant]} borrowed {gpus(owed[tenant])}, and its cohort lent {gpus(short)} more than it has"
        need -= _shed(cycle, tenant, column, min(need, owed[tenant]), reason)


def _shed(cycle: Cycle, tenant: int, column: int, need: int, reason: str) -> int:
    """Suspends enough of one tenant; how much that is."""
    w = cycle.snapshot.workloads
    mine = cycle.held & ~cycle.leaving & (w.tenant == tenant) & (cycle.column == column)
    able = [at for at in np.flatnonzero(mine & (w.preemption != Mode.NEVER) & ~cycle.unyielding).tolist() if cycle.may_leave(at)]
    shed = choose(
        able,
        [int(w.priority[at]) for at in able],
        [float(w.started[at]) for at in able],
        [int(cycle.total[at]) for at in able],
        need,
    )
    for at in shed:
        cycle.stop(Verb.SUSPEND, at, f"{reason}: it makes way with {gpus(int(cycle.total[at]))}", Constraint.QUOTA)
    return sum(int(cycle.total[at]) for at in shed)


def choose(candidates: list[int], priority: list[int], started: list[float], size: list[int], need: int) -> list[int]:
    """Which candidates to take off so that `need` is freed: lowest priority first, then fewest GPUs, then youngest. All, where all do not suffice."""
    ranked = sorted(range(len(candidates)), key=lambda i: (priority[i], -started[i], -candidates[i]))
    chosen: list[int] = []
    freed = 0
    for _, level in groupby(ranked, key=lambda i: priority[i]):
        level_items = list(level)
        if freed >= need:
            break
        chosen += _fewest(level_items, [size[i] for i in level_items], need - freed)
        freed = sum(size[i] for i in chosen)
    for i in sorted(chosen, key=lambda i: (-priority[i], started[i], candidates[i])):
        if freed - size[i] >= need:  # a larger one that had to go anyway made this one needless
            chosen.remove(i)
            freed -= size[i]
    return [candidates[i] for i in chosen]


def _fewest(items: list[int], sizes: list[int], need: int) -> list[int]:
    """The items, youngest first, whose sizes add up to the least sum that suffices. Sums are bits of a whole number."""
    if sum(sizes) <= need:
        return items
    unit = gcd(*sizes)
    parts, target = [size // unit for size in sizes], -(-need // unit)
    width = target + max(parts)
    if width * len(items) > _WIDEST * 64:
        reach, count = 0, 0
        while reach < target:
            reach, count = reach + parts[count], count + 1
        return items[:count]
    mask = (1 << width + 1) - 1
    reachable = [1]
    for part in reversed(parts):
        reachable.append((reachable[-1] | reachable[-1] << part) & mask)
    reachable.reverse()
    enough = reachable[0] >> target
    best = target + (enough & -enough).bit_length() - 1
    chosen = []
    for item, part, rest in zip(items, parts, reachable[1:], strict=True):
        if best >= part and rest >> best - part & 1:
            chosen.append(item)
            best -= part
    return chosen
