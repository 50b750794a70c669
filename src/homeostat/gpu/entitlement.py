"""What each tenant may use: its quota, what its cohort lends it, and its share against the others."""

from __future__ import annotations

import msgspec
import numpy as np

from homeostat.gpu.snapshot import NONE, UNLIMITED, Bools, Floats, Ints, Tenants


class Limits(msgspec.Struct, frozen=True):
    """The most that each tenant may use in each column, what of that nobody can borrow, and what cohorts have to lend."""

    nominal: Ints
    most: Ints
    kept: Ints
    """What is not lent: the tenant has it without asking the cohort."""
    cohort: Ints
    """Of each tenant; one without a cohort is a cohort of its own."""
    lendable: Ints
    """[cohorts, columns]"""

    @classmethod
    def of(cls, tenants: Tenants) -> Limits:
        """What the tenants declare, put together."""
        alone = tenants.cohort == NONE
        first = int(tenants.cohort.max(initial=NONE)) + 1
        cohort = np.where(alone, first + np.cumsum(alone) - 1, tenants.cohort)
        borrowing = np.where(alone[:, None], 0, tenants.borrowing)
        lending = np.where(alone[:, None], 0, np.minimum(tenants.lending, tenants.nominal))
        lendable = np.zeros((int(cohort.max(initial=NONE)) + 1, tenants.nominal.shape[1]), dtype=np.int64)
        np.add.at(lendable, cohort, lending)
        most = np.minimum(tenants.nominal + borrowing, UNLIMITED)
        return cls(tenants.nominal, most, tenants.nominal - lending, cohort, lendable)

    def ever(self) -> Ints:
        """The most that each tenant could use if no other of its cohort used anything."""
        return np.asarray(np.minimum(self.most, self.kept + self.lendable[self.cohort]))


class Ledger:
    """Who uses how much, by tenant and column, in thousandths of a GPU, and how much more each may."""

    __slots__ = ("drawn", "floor", "leaving", "limits", "promised", "used")

    def __init__(self, tenants: Tenants) -> None:
        self.limits = Limits.of(tenants)
        self.used: Ints = np.zeros_like(tenants.nominal)
        self.floor: Ints = tenants.nominal
        """Of its own quota, what no other tenant's work takes from one that wants it; see `floors`."""
        self.leaving: Ints = np.zeros_like(tenants.nominal)
        """What is still held by workloads that are on their way out."""
        self.drawn: Ints = np.zeros_like(self.limits.lendable)
        """What is taken of each cohort's lendable quota."""
        self.promised: Ints = np.zeros_like(self.limits.lendable)
        """What of it is kept for those for whom nodes are being emptied, or goes with its tenant."""

    def settled(self) -> Ledger:
        """A copy as it will be when all that is on its way out is gone."""
        twin = object.__new__(Ledger)
        twin.floor, twin.limits, twin.leaving = self.floor, self.limits, np.zeros_like(self.leaving)
        twin.used, twin.promised = self.used - self.leaving, self.promised.copy()
        twin.drawn = np.zeros_like(self.drawn)
        np.add.at(twin.drawn, self.limits.cohort, np.maximum(twin.used - self.limits.kept, 0))
        return twin

    def load(self, tenant: Ints, column: Ints, milli: Ints) -> None:
        """Counts many at once."""
        np.add.at(self.used, (tenant, column), milli)
        self.drawn[:] = 0
        np.add.at(self.drawn, self.limits.cohort, np.maximum(self.used - self.limits.kept, 0))

    def take(self, tenant: int, column: int, milli: int) -> None:
        """Counts more for a tenant; less with a negative amount."""
        kept, before = self.limits.kept.item(tenant, column), self.used.item(tenant, column)
        self.used[tenant, column] = before + milli
        drawn = max(before + milli - kept, 0) - max(before - kept, 0)
        self.drawn[self.limits.cohort[tenant], column] += drawn

    def leave(self, tenant: int, column: int, milli: int) -> None:
        """Notes that so much is on its way out. It counts as used until it is gone."""
        self.leaving[tenant, column] += milli

    def room(self, tenant: int, column: int) -> int:
        """How much more may be admitted."""
        limits, used = self.limits, self.used.item(tenant, column)
        cohort = limits.cohort.item(tenant)
        taken = self.drawn.item(cohort, column) + self.promised.item(cohort, column)
        lent = max(limits.lendable.item(cohort, column) - taken, 0)
        own = max(limits.kept.item(tenant, column) - used, 0)
        return min(limits.most.item(tenant, column) - used, own + lent)

    def rooms(self) -> Ints:
        """The same for all tenants and columns."""
        limits = self.limits
        lent = np.maximum(limits.lendable - self.drawn - self.promised, 0)[limits.cohort]
        own = np.maximum(limits.kept - self.used, 0)
        return np.asarray(np.minimum(limits.most - self.used, own + lent))

    def attainable(self) -> Ints:
        """The same if all others of the cohort gave back what they use: what a workload may wait for. What is beyond it, only a quota changes."""
        limits = self.limits
        return np.asarray(np.minimum(limits.most, limits.kept + limits.lendable[limits.cohort]) - self.used)

    def promise(self, tenant: int, column: int, milli: int) -> None:
        """Keeps so much of what the cohort has to lend from all who come later in this cycle."""
        self.promised[self.limits.cohort[tenant], column] += milli

    def withdraw(self, tenant: int) -> None:
        """Lends no more of what a tenant has that is being deleted: it would be taken back from whoever gets it when that is gone. What was lent stays
        lent until then."""
        limits = self.limits
        lends, own = limits.nominal[tenant] - limits.kept[tenant], np.maximum(self.used[tenant] - limits.kept[tenant], 0)
        self.promised[limits.cohort[tenant]] += np.maximum(lends - own, 0)

    def excess(self) -> Ints:
        """How much each tenant uses beyond the most that it may, those on their way out not counted."""
        return np.asarray(np.maximum(self.used - self.leaving - self.limits.most, 0))

    def overdrawn(self) -> Ints:
        """How much more each cohort uses, by column, than it has: after a quota of one of its tenants was lowered."""
        staying = np.zeros_like(self.drawn)
        np.add.at(staying, self.limits.cohort, np.maximum(self.used - self.leaving - self.limits.kept, 0))
        return np.asarray(np.maximum(staying - self.limits.lendable, 0))

    def borrowed(self, tenant: int, column: int) -> int:
        """What stays used beyond the tenant's own quota."""
        return max(
            int(self.used[tenant, column] - self.leaving[tenant, column] - self.limits.nominal[tenant, column]), 0
        )


def floors(tenants: Tenants, limits: Limits, past: Floats, lends: float) -> Ints:
    """What is kept of each quota for its tenant, by column, when a part of it is lent to short work of others.

    It is the rest at each moment, and more where the tenant has had less than that lately (`past`, by model): one that left its quota idle and
    comes back finds more of it than one that has used it all day. What the tenant's lending limit keeps from its cohort is kept here as well.
    """
    if not lends:
        return tenants.nominal
    had = np.zeros(tenants.nominal.shape)
    for model in range(past.shape[1]):
        may = np.flatnonzero(tenants.column[:, model] != NONE)
        had[may, tenants.column[may, model]] += past[may, model]
    least = (1 - lends) * tenants.nominal
    kept = np.minimum(least + np.maximum(least - had, 0.0), tenants.nominal).astype(np.int64)
    return np.asarray(np.maximum(kept, limits.kept))


def dominant_shares(by_model: Floats | Ints, capacity: Ints) -> Floats:
    """The part of the fleet that each tenant has of the model of which it has most. A model with no capacity counts for nothing."""
    held = by_model[:, capacity > 0] / capacity[capacity > 0]
    return np.asarray(held.max(axis=1, initial=0.0))


def columns_of(tenants: Tenants, tenant: Ints, model: Ints) -> Ints:
    """The column of the quota that each pair counts in; NONE for an unknown tenant or a model that it may not use."""
    found = np.full(len(tenant), NONE)
    known = (tenant >= 0) & (model >= 0)
    found[known] = tenants.column[tenant[known], model[known]]
    return found


def entitled(demand: Floats, weight: Floats, capacity: float) -> Floats:
    """The weighted max-min fair division of a capacity among demands: nobody gets more than it wants, and what is left goes to the others."""
    share = np.zeros(len(demand))
    wants: Bools = demand > 0
    left = capacity
    while wants.any() and left > 1e-9:
        offer = left * weight / weight[wants].sum()
        content = wants & (demand - share <= offer + 1e-12)
        if not content.any():
            return np.where(wants, share + offer, share)
        left -= float((demand - share)[content].sum())
        share = np.where(content, demand, share)
        wants = wants & ~content
    return share
