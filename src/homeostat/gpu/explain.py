"""Why a workload waits: what binds, its position, who is ahead with how much, and when it will likely start; and how tenants stand.

Constraints and estimates are made for all at once; sentences only for those that are asked about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from homeostat.gpu.cycle import gpus
from homeostat.gpu.decisions import Constraint
from homeostat.gpu.entitlement import columns_of
from homeostat.gpu.fleet import Need
from homeostat.gpu.kinds import Ahead, share_text
from homeostat.gpu.policies.admission import shapes
from homeostat.gpu.policies.fair_share import OVERDUE, OWN, grouped_sum, why_first
from homeostat.gpu.snapshot import DEPARTING, NONE, Bools, Floats, Ints, Spot, Topology
from homeostat.gpu.unfit import Emptied, Unfit

if TYPE_CHECKING:
    from homeostat.gpu.cycle import Cycle

_NAMED = 5
"""How many of those ahead are named."""
_KINDS = list(Constraint)
_LEAVING = 30.0
"""Seconds in which what is on its way out is expected to be gone."""
_CODE = {constraint: code for code, constraint in enumerate(_KINDS)}
_NOT_BY_COUNT = [_CODE[one] for one in (Constraint.QUOTA, Constraint.CAPACITY, Constraint.FRAGMENTATION, Constraint.TOPOLOGY, Constraint.HOME)]
_FOR_ROOM = (Constraint.CAPACITY, Constraint.FRAGMENTATION, Constraint.TOPOLOGY)
_PASSES = (Constraint.BUDGET, Constraint.IDLE, Constraint.OBSERVER, Constraint.HOME)
"""What keeps work out of the queue and passes by itself."""


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The answer for one workload."""

    uid: str
    name: str
    reason: str
    brief: str
    """The same without what moves all the time, such as how much is used: for where it stands for a while."""
    constraint: Constraint
    position: int
    """In the queue, from 1; 0: not in it."""
    ahead: tuple[Ahead, ...]
    """The nearest ones that come before it and want the same GPUs or quota."""
    ahead_count: int
    ahead_milli: int
    """Thousandths of GPUs that all of those before it want."""
    estimated_start: float | None
    """None: nobody can say."""
    never: bool = False
    """Whether it waits for something that no end of other work brings: another fleet, quota or declaration, or a person."""
    lent: bool = False
    """Whether it is within the quota of its tenant, of which others of the cohort have borrowed too much for it."""


class Gist(NamedTuple):
    """An answer in short, which costs next to nothing."""

    uid: str
    constraint: Constraint
    position: int
    start: float | None
    waited: float
    reason: str = ""
    ahead: tuple[Ahead, ...] = ()
    """These two only where they were asked for."""


class Pending:
    """The answers for all that wait."""

    def __init__(self, cycle: Cycle, order: Ints, outside: Ints) -> None:
        self._cycle = cycle
        self._order, self._outside = order, outside
        self._code: Ints = np.full(len(cycle.snapshot.workloads), _CODE[Constraint.NONE])
        self._start: Floats = np.full(len(cycle.snapshot.workloads), np.nan)
        self._index: dict[str, int] | None = None
        self._free: Ints = np.zeros(0, dtype=np.int64)
        self._emptied = Emptied(cycle.fleet)
        self._never: Bools = np.zeros(len(cycle.snapshot.workloads), dtype=bool)
        """Who could not start on this fleet, or by this quota, whoever else goes."""
        self._position: Ints = np.full(len(cycle.snapshot.workloads), NONE)
        self._position[order] = np.arange(len(order))
        for at, constraint in cycle.constraint.items():
            self._code[at] = _CODE[constraint]

    @property
    def cycle(self) -> Cycle:
        """The cycle that these are the answers of."""
        return self._cycle

    @property
    def queued(self) -> int:
        """How many are in the queue: the others wait for something that no turn changes."""
        return len(self._order)

    @classmethod
    def of(cls, cycle: Cycle) -> Pending:
        """Of a cycle that has decided."""
        order = cycle.order[cycle.waits[cycle.order]]
        outside = np.flatnonzero(cycle.waits & cycle.blocked)
        found = cls(cycle, order, outside)
        if len(order):
            found._bind()
            found._estimate()
        found._await_budgets()
        for at, until in cycle.paused.items():
            if found._code[at] == _CODE[Constraint.IDLE]:
                found._start[at] = until
        return found

    @classmethod
    def unknown(cls, cycle: Cycle) -> Pending:
        """Of a cycle that decided nothing, for its facts cannot be trusted."""
        found = cls(cycle, np.zeros(0, dtype=np.int64), np.flatnonzero(cycle.waits))
        found._code[:] = _CODE[Constraint.OBSERVER]
        return found

    def __len__(self) -> int:
        return len(self._order) + len(self._outside)

    def __iter__(self) -> Iterator[Why]:
        """All answers, in the order of the queue and then those that are not in it."""
        return (self.at(at) for at in (*self._order.tolist(), *self._outside.tolist()))

    def why(self, uid: str) -> Why | None:
        """The answer for one; None where it does not wait."""
        if self._index is None:
            uids = self._cycle.snapshot.workloads.uid
            self._index = {uids[at]: at for at in (*self._order.tolist(), *self._outside.tolist())}
        return None if uid not in self._index else self.at(self._index[uid])

    def gist(self, place: int, *, whole: bool = False) -> Gist:
        """Of the one in this place, from 0, of the order in which all answers come; `whole`: also what takes some time to say."""
        at = int(self._order[place] if place < len(self._order) else self._outside[place - len(self._order)])
        start = float(self._start[at])
        known = None if math.isnan(start) or math.isinf(start) else start
        cycle = self._cycle
        said = (why.reason, why.ahead) if whole and (why := self.at(at)) else ("", ())
        return Gist(
            cycle.snapshot.workloads.uid[at],
            _KINDS[self._code[at]],
            int(self._position[at]) + 1,
            known,
            float(cycle.waited[at]),
            *said,
        )

    def at(self, at: int) -> Why:
        """The answer for the workload of this index, which waits."""
        w, cycle = self._cycle.snapshot.workloads, self._cycle
        constraint, position = _KINDS[self._code[at]], int(self._position[at])
        before = self._order[:position] if position != NONE else self._order[:0]
        rivals = (
            before[w.tenant[before] == w.tenant[at]]
            if constraint is Constraint.QUOTA
            else before[cycle.lead[before] == cycle.lead[at]]
        )
        start = float(self._start[at])
        return Why(
            uid=w.uid[at],
            name=w.name[at],
            reason=self._sentence(at, constraint),
            brief=self._brief(at, constraint),
            constraint=constraint,
            position=position + 1,
            ahead=tuple(self._ahead(other, at) for other in rivals[::-1][:_NAMED].tolist()),
            ahead_count=len(rivals),
            ahead_milli=int(cycle.total[rivals].sum()),
            estimated_start=None if np.isnan(start) or np.isinf(start) else start,
            lent=constraint is Constraint.QUOTA and self._lent(at) > 0,
            never=bool(self._never[at]) or (position == NONE and constraint not in _PASSES),
        )

    def _bind(self) -> None:
        """Finds what binds each: the quota, or else what its shape lacks."""
        cycle, order = self._cycle, self._order
        w, tenants = cycle.snapshot.workloads, cycle.snapshot.tenants
        lead = cycle.lead[order]
        column = tenants.column[w.tenant[order], lead]
        room = cycle.ledger.rooms()[w.tenant[order], column]
        shape = shapes(cycle, order)[order]
        kinds, first, inverse = np.unique(shape, return_index=True, return_inverse=True)
        self._measure()
        never = [self._unfit(int(order[i])) for i in first.tolist()]
        codes = np.array(
            [
                _CODE[self._lacks(int(order[i]), kind) if cannot is None else cannot[0]]
                for kind, i, cannot in zip(kinds.tolist(), first.tolist(), never, strict=True)
            ]
        )
        hopeless = np.array([cannot is not None for cannot in never])[inverse]
        too_much = cycle.total[order] > cycle.ledger.limits.ever()[w.tenant[order], column]
        by_quota = too_much | ((room < cycle.total[order]) & ~hopeless)  # where no node would do, no quota helps
        self._code[order] = np.where(by_quota, _CODE[Constraint.QUOTA], codes[inverse])
        self._never[order] = hopeless | too_much
        for at in (*cycle.holding, *cycle.reserved):
            # As soon as these nodes are empty; and what is reserved for it counts in its quota already.
            let_in = (at in cycle.emptied or at in cycle.reserved) and self._code[at] == _CODE[Constraint.QUOTA]
            if let_in or self._code[at] == _CODE[Constraint.NONE]:
                self._code[at] = _CODE[Constraint.CAPACITY]

    def _measure(self) -> None:
        """By model: what is free."""
        cycle, nodes, models = self._cycle, self._cycle.snapshot.nodes, len(self._cycle.snapshot.models)
        usable = np.where(cycle.fleet.healthy & cycle.open[:, None], np.maximum(cycle.fleet.free, 0), 0).sum(axis=1)
        self._free = np.bincount(nodes.model, weights=usable, minlength=models).astype(np.int64)

    def _lacks(self, at: int, shape: int) -> Constraint:
        """What is missing for a workload that the quota would let in."""
        cycle = self._cycle
        need, models = cycle.need_of(at), cycle.models_of(at)
        if need.nodes:
            return Constraint.HOME
        if any((shape, model) not in cycle.misfits and cycle.fleet.fits(need, model) for model in models):
            return Constraint.RESERVATION
        if sum(self._free_for(need, model) for model in models) < need.total:
            return Constraint.CAPACITY
        anywhere = msgspec.structs.replace(need, topology=int(Topology.ANYWHERE))
        if need.topology != Topology.ANYWHERE and any(cycle.fleet.fits(anywhere, model) for model in models):
            return Constraint.TOPOLOGY
        return Constraint.FRAGMENTATION

    def _free_for(self, need: Need, model: int) -> int:
        """What is free of a model on nodes that could take such a replica."""
        if not need.gpu_memory and need.spot == Spot.ALLOW and not need.whole:
            return int(self._free[model])
        fleet, nodes = self._cycle.fleet, np.flatnonzero((self._cycle.fleet.model == model) & self._cycle.open)
        return int(np.maximum(fleet.free[nodes[fleet.allows(need, nodes)]], 0).sum())

    def _unfit(self, at: int) -> Unfit | None:
        cycle = self._cycle
        need, models = cycle.need_of(at), cycle.models_of(at)
        return None if need.nodes or not models else self._emptied.why_not(need, models)

    def _estimate(self) -> None:
        """When all ahead and it will have had their turn: as GPUs of its model, or those of its tenant, are expected to come free."""
        cycle, order = self._cycle, self._order
        w = cycle.snapshot.workloads
        running = np.flatnonzero(cycle.held)
        ends = np.where(cycle.leaving[running], _LEAVING, cycle.latest[running])
        quota, rooms = self._code[order] == _CODE[Constraint.QUOTA], cycle.ledger.rooms()
        tenants, columns = cycle.snapshot.tenants, rooms.shape[1]

        def entry(model: Ints) -> Ints:
            """By workload: which entry of whose quota it counts in, or would."""
            column = columns_of(tenants, w.tenant, model)
            return np.where(column == NONE, NONE, w.tenant * columns + column)

        for waiting, wanted, held, free in (
            (order[~quota], cycle.lead, cycle.model, self._free),
            (order[quota], entry(cycle.lead), entry(cycle.model), rooms.ravel()),
        ):
            known, waits = held[running] >= 0, waiting[wanted[waiting] >= 0]
            self._start[waits] = cycle.now + seconds_until_turn(
                held[running][known],
                ends[known],
                cycle.total[running][known],
                wanted[waits],
                cycle.total[waits],
                free,
            )
        # By counting there is enough, and still it does not fit, or others of the cohort have it: then counting tells nobody when it will.
        at_once = order[(self._start[order] <= cycle.now) & np.isin(self._code[order], _NOT_BY_COUNT)]
        self._start[at_once] = np.nan
        for at, when in cycle.holding.items():
            self._start[at] = np.fmin(when, self._start[at])
        self._start[self._never] = np.nan

    def _await_budgets(self) -> None:
        """Who waits for the next period of a budget has that time to hope for."""
        cycle, tenants = self._cycle, self._cycle.snapshot.tenants
        for at in self._outside[self._code[self._outside] == _CODE[Constraint.BUDGET]].tolist():
            tenant = int(cycle.snapshot.workloads.tenant[at])
            began = cycle.next.spent.get(tenants.name[tenant], (np.nan, 0.0))[0]
            self._start[at] = began + tenants.period[tenant]

    def _ahead(self, other: int, at: int) -> Ahead:
        w, cycle = self._cycle.snapshot.workloads, self._cycle
        name = cycle.snapshot.tenants.name[w.tenant[other]]
        if cycle.band[other] == OVERDUE and (cycle.band[at] != OVERDUE or w.tenant[other] != w.tenant[at]):
            why = why_first(cycle, other)
        elif w.tenant[other] == w.tenant[at]:
            why = (
                "higher priority"
                if w.priority[other] > w.priority[at]
                else "submitted earlier"
                if other < at
                else "shorter or waiting longer"
            )
        else:
            why = "within its quota" if cycle.band[other] == OWN != cycle.band[at] else f"{name} has less for its weight"
        return Ahead(name=w.name[other], tenant=name, gpus=share_text(int(cycle.total[other])), why=why)

    def _sentence(self, at: int, constraint: Constraint) -> str:
        cycle = self._cycle
        w, tenants, models = cycle.snapshot.workloads, cycle.snapshot.tenants, cycle.snapshot.models
        wants = share_text(int(cycle.total[at]))
        tenant = tenants.name[w.tenant[at]] if w.tenant[at] >= 0 else ""
        if constraint is Constraint.QUOTA and cycle.lead[at] != NONE:
            column = int(tenants.column[w.tenant[at], cycle.lead[at]])
            kept, own = int(reserved(cycle)[w.tenant[at], column]), int(cycle.ledger.limits.nominal[w.tenant[at], column])
            used = int(cycle.ledger.used[w.tenant[at], column]) - kept
            model, lent, may = models[cycle.lead[at]], self._lent(at), int(cycle.ledger.limits.most[w.tenant[at], column])
            if lent:
                return f"it wants {wants} of {model} within the quota of {tenant}, of which others of its cohort have borrowed {share_text(lent)} that it needs"
            sentence = f"it wants {wants} of {model}, and {tenant} uses {share_text(min(used, own))} of its {share_text(own)}"
            sentence += f" and {share_text(used - own)} that it borrowed" if used > own else ""
            if used > own or (may > own and used + cycle.total[at] > own):
                sentence += ", and its cohort has no more to lend" if used + cycle.total[at] <= may else ", and may borrow no more"
            sentence += f", and {share_text(kept)} are being cleared for others of it" if kept else ""
            ever = int(cycle.ledger.limits.ever()[w.tenant[at], column])
            return f"{sentence}; it may never have more than {share_text(ever)}" if cycle.total[at] > ever else sentence
        if constraint is Constraint.QUOTA:
            return self._no_quota(int(w.tenant[at]))
        if at in cycle.reserved:
            return "GPUs are being cleared for it, and it starts when they are free"
        cannot = self._unfit(at) if self._never[at] else None
        sentence = cannot[1] if cannot is not None else self._plainly(at, constraint)
        if cannot is None and constraint in _FOR_ROOM:
            sentence += self._troubled(at)
        if (other := cycle.unmoved.get(at)) is not None:
            sentence += f"; {w.name[other]} would have to make room, and cannot be suspended"
        return f"{sentence}; {cycle.not_scaled[at]}" if at in cycle.not_scaled else sentence

    def _troubled(self, at: int) -> str:
        """That nodes which would do for it can begin nothing at present, and why."""
        cycle, nodes = self._cycle, self._cycle.snapshot.nodes
        some = np.flatnonzero((nodes.trouble != "") & cycle.alive & np.isin(nodes.model, cycle.models_of(at)))
        some = some[cycle.fleet.slots_when_empty(cycle.need_of(at), some) > 0]
        if not len(some):
            return ""
        more = f" (and {len(some) - 1} more)" if len(some) > 1 else ""
        return f"; {nodes.name[some[0]]}{more} takes no new work: {nodes.trouble[some[0]]}"

    def _brief(self, at: int, constraint: Constraint) -> str:
        if constraint is Constraint.QUOTA and self._cycle.lead[at] == NONE:
            return self._no_quota(int(self._cycle.snapshot.workloads.tenant[at]))
        return self._plainly(at, constraint)

    def _lent(self, at: int) -> int:
        """How much of what it wants within its tenant's own quota others have borrowed, in thousandths."""
        cycle, tenant = self._cycle, int(self._cycle.snapshot.workloads.tenant[at])
        if cycle.lead[at] == NONE:
            return 0
        ledger, column, total = cycle.ledger, int(cycle.snapshot.tenants.column[tenant, cycle.lead[at]]), int(cycle.total[at])
        own = ledger.used[tenant, column] + total <= ledger.limits.nominal[tenant, column]
        return max(total - ledger.room(tenant, column), 0) if own else 0

    def _plainly(self, at: int, constraint: Constraint) -> str:
        w, cycle = self._cycle.snapshot.workloads, self._cycle
        if constraint is Constraint.TENANT and w.tenant[at] == DEPARTING:
            return _DEPARTS
        if at in cycle.away:
            return _AWAY
        return _SENTENCES[constraint].format(
            gpus=gpus(int(cycle.total[at])),
            wants=share_text(int(cycle.total[at])),
            tenant=cycle.snapshot.tenants.name[w.tenant[at]] if w.tenant[at] >= 0 else "",
            replicas=w.replicas[at],
            each=share_text(int(w.milli[at])),
            where=_WHERE[Spot(int(cycle.spot[at]))] if cycle.fleet.spot.any() else "",
        )

    def _no_quota(self, tenant: int) -> str:
        """Of one that may have none of the types that it asks for: which ones it may have, for the name of a type is easily mistyped."""
        tenants, cycle = self._cycle.snapshot.tenants, self._cycle
        own = [at for at in range(len(cycle.snapshot.models)) if tenants.column[tenant, at] != NONE][:_NAMED]
        sentence = f"{tenants.name[tenant]} has no quota for the types that it asks for"
        if own:
            sentence += f": it has some for {', '.join(cycle.snapshot.models[at] for at in own)}"
        nowhere = [cycle.snapshot.models[at] for at in own if not cycle.capacity[at]]
        return f"{sentence}, and no node has {' or '.join(nowhere)}" if nowhere else sentence


_SENTENCES = {
    Constraint.NONE: "it can start at the next cycle",
    Constraint.TENANT: "it names a tenant that does not exist, or that its namespace may not use",
    Constraint.REQUEST: "it asks for {each} GPUs a replica: whole ones, or a fraction of one, can be given",
    Constraint.QUOTA: "it wants {wants}, and {tenant} has not as much left of its quota",
    Constraint.STOPPED: "a person asked for it to be suspended",
    Constraint.BUDGET: "{tenant} has used up its budget of GPU hours",
    Constraint.TYPE: "no node of the fleet has what it asks for",
    Constraint.TOPOLOGY: "it wants {gpus}: so many are free, but not near enough to each other",
    Constraint.FRAGMENTATION: "it wants {gpus}: so many are free, but not {replicas} times {each} together",
    Constraint.CAPACITY: "it wants {gpus}, and fewer are free{where}",
    Constraint.RESERVATION: "the GPUs that are free are held for others that come before it",
    Constraint.HOME: "its state lies on a node whose GPUs are taken",
    Constraint.IDLE: "it did not use its GPUs and was taken off them: it stays off for a pause, and then it is its turn again",
    Constraint.OBSERVER: "too many nodes are silent at once: nothing is decided until they are heard again, or deleted",
}
_DEPARTS = "its tenant is being deleted: nothing more of it starts"
_AWAY = "its state lies on a node that is not declared just now, and whose agent lives: it is declared again within a minute"
_WHERE = {Spot.ALLOW: "", Spot.REQUIRE: " on spot nodes", Spot.AVOID: " on nodes that are not spot"}


def reserved(cycle: Cycle) -> Ints:
    """By tenant and column: what counts as used, for it is being cleared for somebody, and is held by nobody of the tenant yet."""
    found, w = np.zeros_like(cycle.ledger.used), cycle.snapshot.workloads
    for at, taken in cycle.reserved.items():
        column = int(cycle.snapshot.tenants.column[w.tenant[at], cycle.snapshot.nodes.model[taken[0][1]]])
        found[w.tenant[at], column] += sum(milli for _, _, _, milli in taken)
    return found


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a tenant stands with one type of GPU, or with all that share an entry of its quota. In thousandths of GPUs."""

    tenant: str
    model: str
    """`*`: all types that have no entry of their own."""
    nominal: int
    used: int
    leaving: int
    """Of what is used: on its way out."""
    borrowed: int
    over: int
    """Beyond all that it may have, or that its cohort has to lend, such as after a quota was lowered: it is about to be taken back."""
    lent: int
    """What others of the cohort use of it, as far as it has that to spare; where several could lend it, each in proportion."""
    most: int
    """Quota and borrowing limit together; what the cohort has to spare is not looked at."""


def standings(cycle: Cycle) -> list[Standing]:
    """Of all tenants, by name and type."""
    tenants, models, ledger = cycle.snapshot.tenants, cycle.snapshot.models, cycle.ledger
    limits = ledger.limits
    used = ledger.used - reserved(cycle)
    beyond = np.maximum(np.minimum(used, limits.most) - limits.nominal, 0)
    spare = np.minimum(limits.nominal - limits.kept, np.maximum(limits.nominal - used, 0))
    wanted, there = (np.zeros_like(limits.lendable, dtype=np.float64) for _ in range(2))
    np.add.at(wanted, limits.cohort, beyond)
    np.add.at(there, limits.cohort, spare)
    had = np.minimum(there / np.maximum(wanted, 1.0), 1.0)[limits.cohort]
    borrowed = np.floor(beyond * had + 0.5).astype(np.int64)
    over = np.maximum(used - limits.most, 0) + beyond - borrowed
    lent = np.floor(spare * np.minimum(wanted / np.maximum(there, 1.0), 1.0)[limits.cohort] + 0.5).astype(np.int64)
    found = []
    for at, name in enumerate(tenants.name):
        for column in sorted({int(one) for one in tenants.column[at] if one != NONE}):
            found.append(
                Standing(
                    tenant=name,
                    model=models[column] if column < len(models) else "*",
                    nominal=int(limits.nominal[at, column]),
                    used=int(used[at, column]),
                    leaving=int(ledger.leaving[at, column]),
                    borrowed=int(borrowed[at, column]),
                    over=int(over[at, column]),
                    lent=int(lent[at, column]),
                    most=int(limits.most[at, column]),
                )
            )
    return found


def seconds_until_turn(held_by: Ints, ends: Floats, size: Ints, wanted_by: Ints, wants: Ints, free: Ints) -> Floats:
    """How long each of a queue waits until enough has come free in its group, those ahead of it served first.

    `free` is what each group has now; what runs in a group ends after `ends` seconds. Where more is wanted than all of it, whole rounds are
    reckoned, each as long as what runs goes on in the mean. Infinite where a group has nothing.
    """
    groups = len(free)
    by_end = np.lexsort((ends, held_by))
    held_by, ends, size = held_by[by_end], ends[by_end], size[by_end]
    all_held = np.bincount(held_by, weights=size, minlength=groups)
    mean = np.bincount(held_by, weights=ends, minlength=groups) / np.maximum(np.bincount(held_by, minlength=groups), 1)
    by_group = np.argsort(wanted_by, kind="stable")
    group = wanted_by[by_group]
    need = grouped_sum(wants[by_group], group) - free[group]
    apart = float(all_held.sum() + max(need.max(initial=0.0), 0.0)) + 1.0  # so that groups do not run into each other
    freed = grouped_sum(size, held_by) + held_by * apart
    found = np.searchsorted(freed, need + group * apart)
    within = need <= all_held[group]
    wait = np.where(
        within,
        ends[np.minimum(found, len(ends) - 1)] if len(ends) else 0.0,
        mean[group] * need / np.maximum(all_held[group], 1.0),
    )
    wait = np.where(need <= 0, 0.0, np.where(all_held[group] + free[group] > 0, wait, np.inf))
    out = np.empty(len(wait))
    out[by_group] = wait
    return out
