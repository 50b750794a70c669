"""Preemption: the first that wait may take the place of others, by one of five rights.

- quota: work within its tenant's own quota takes back what others of the cohort borrowed. Where a part of all quotas is lent to short work
  (`timeSharing.lends`), this right and the immunity from the next ones hold for the rest of it;
- priority: a higher one goes before a lower one of the same tenant, or of any tenant where shares are not kept;
- fair share: of two tenants that both borrow, the one with less takes from the one with more, never so far that they change sides;
- waiting: what has waited too long takes the place of what has had its time and keeps its state, of its own tenant or of tenants that borrow,
  and of what goes on anywhere on the nodes that are being emptied for it. What it has earned by waiting counts as priority;
- time sharing: work that is expected to be short takes the place of long work that loses nothing by being suspended, of its own tenant or of
  tenants that borrow. In comparing shares, work counts for less the shorter it is expected to be, in as far as more is asked for than there is.

Work that is done twice is time that nobody has: for a share only what keeps its state makes way, and for a quota or a priority what begins anew
(`Restart`) only where there is nothing else of the same priority.

No loop can come of it: a workload never preempts one that it was preempted by, so that each preemption leaves it fewer to choose from; and there
is a budget for the fleet and for each workload. What is cleared is reserved for the one for whom it was done.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from homeostat.gpu.cycle import DAY, HOUR, Cycle, span
from homeostat.gpu.decisions import Constraint, Memory, Reservation, Verb
from homeostat.gpu.entitlement import Ledger
from homeostat.gpu.fleet import Fleet, Need, Taken
from homeostat.gpu.policies.admission import shapes
from homeostat.gpu.policies.fair_share import OVERDUE, age_of, handicap_of, why_first
from homeostat.gpu.snapshot import NONE, Bools, Floats, Ints, Mode, Phase

CLAIMANTS = 32
"""For so many of the first that wait, room is sought in a cycle; of those that are alike, until one finds none."""
RESERVED_FOR = 600.0
"""Seconds after which cleared GPUs that were not taken are given to whoever comes."""
_LONGEST_LIST = 256
_LOSS = {Mode.CHECKPOINT: 0, Mode.SUSPEND: 1, Mode.RESTART: 2, Mode.NEVER: 3}
"""What is taken off first of the same priority. What is suspended loses its state where others have its GPUs for too long."""


def honour(cycle: Cycle) -> None:
    """Admits those whose cleared GPUs are free by now, and keeps the others' for them. Comes before all other admissions."""
    w, nodes = cycle.snapshot.workloads, cycle.snapshot.nodes
    if not cycle.memory.reservations:
        return
    by_name = {name: node for node, name in enumerate(nodes.name)}
    waiting: list[tuple[int, Taken, float]] = []
    for uid, kept in sorted(cycle.memory.reservations.items(), key=lambda item: (item[1].until, item[0])):
        at = cycle.index.get(uid, NONE)
        known = all(place.node in by_name and cycle.open[by_name[place.node]] for place in kept.places)
        if at == NONE or not cycle.waits[at] or cycle.blocked[at] or cycle.now > kept.until or not known:
            continue
        taken = tuple(
            (place.replica, by_name[place.node], gpu, place.milli) for place in kept.places for gpu in place.gpus
        )
        tenant, column = int(w.tenant[at]), int(cycle.snapshot.tenants.column[w.tenant[at], nodes.model[taken[0][1]]])
        if column == NONE or sum(milli for _, _, _, milli in taken) != cycle.total[at] or _in_vain(cycle, taken):
            continue
        if cycle.fleet.holds(taken) and cycle.ledger.room(tenant, column) >= cycle.total[at]:
            cycle.fleet.take(taken, cycle.need_of(at))
            cycle.admit(at, taken, "the GPUs that were cleared for it are free", Constraint.NONE)
        else:
            waiting.append((at, taken, kept.until))
    for at, taken, until in waiting:  # last of all: what is still to be cleared for one keeps nobody from what is clear
        reserve(cycle, at, taken, until)


def _in_vain(cycle: Cycle, taken: Taken) -> bool:
    """Whether somebody is on these GPUs who cannot make room after all."""
    if not cycle.unyielding.any():
        return False
    stays = {(node, gpu) for at in np.flatnonzero(cycle.unyielding & cycle.held).tolist() for _, node, gpu, _ in cycle.taken_of(at)}
    return not stays.isdisjoint((node, gpu) for _, node, gpu, _ in taken)


def reserve(cycle: Cycle, at: int, taken: Taken, until: float) -> None:
    """Counts GPUs as taken, of the fleet and of the quota, though others are still on them."""
    w, need = cycle.snapshot.workloads, cycle.need_of(at)
    tenant = int(w.tenant[at])
    column = int(cycle.snapshot.tenants.column[tenant, cycle.snapshot.nodes.model[taken[0][1]]])
    table = np.array(taken)
    cycle.fleet.load(table[:, 1], table[:, 2], table[:, 3])
    for node in {replica: node for replica, node, _, _ in taken}.values():
        cycle.fleet.cpu[node] -= need.cpu
        cycle.fleet.memory[node] -= need.memory
    cycle.ledger.take(tenant, column, need.total)
    cycle.reserved[at] = taken
    cycle.next.reservations[w.uid[at]] = Reservation(
        tenant=cycle.snapshot.tenants.name[tenant],
        column=column,
        milli=need.total,
        places=cycle.places_for(taken),
        until=until,
    )


class Preemption:
    """The search for room in one cycle."""

    def __init__(self, cycle: Cycle) -> None:
        self.cycle, self.policy = cycle, cycle.policy.preemption
        w = cycle.snapshot.workloads
        self.left = self.policy.per_hour - len(cycle.next.preemptions)
        self.cost: Floats = cycle.total * cycle.remaining
        """GPU time that is expected of each."""
        early = ~np.asarray(cycle.now - w.started >= w.minimum) & (not self.policy.past_minimum_runtime)
        able = (
            cycle.held
            & ~cycle.leaving
            & (w.phase == Phase.RUNNING)
            & (w.preemption != Mode.NEVER)
            & ~cycle.unyielding
            & ~early
            & (w.tenant >= 0)
        )
        able[
            cycle.find([uid for uid, times in cycle.next.preempted.items() if len(times) >= self.policy.per_workload])
        ] = False
        going = [at for at, rival in _proposed(cycle).items() if rival in cycle.next.reservations and cycle.column[at] != NONE]
        able[going] = False
        self.able: Ints = np.flatnonzero(able & (cycle.column != NONE))
        would = cycle.held & ~cycle.leaving & cycle.unyielding & (w.preemption != Mode.NEVER) & (cycle.column != NONE)
        self.unyielding: Ints = np.flatnonzero(would)
        """Who would have to make room, could it be suspended."""
        self.taken: dict[int, int] = {}
        """What each tenant was given in this cycle, or lost."""
        self.fleet, self.ledger = _settled_fleet(cycle), cycle.ledger.settled()
        for at in going:  # as good as gone: whoever it makes way for is counted already
            self.fleet.free_up(cycle.taken_of(at), cycle.need_of(at))
            self.ledger.take(int(w.tenant[at]), int(cycle.column[at]), -int(cycle.total[at]))
        self.robbed: dict[str, list[str]] = {}
        """By who took the place of others: whose. Nobody does so twice to the same."""
        for uid, rivals in cycle.next.rivals.items():
            for rival in rivals:
                self.robbed.setdefault(rival, []).append(uid)
        self.in_vain: set[tuple[int, int, int]] = set()
        """By tenant, shape and priority: for whom no room was found."""
        self.shape: Ints = np.zeros(0, dtype=np.int64)
        self.handicap = handicap_of(cycle, np.arange(len(w)))
        self.loss: Ints = np.array([_LOSS[mode] for mode in Mode])[w.preemption]

    def run(self) -> None:
        """Seeks room for the first that wait and, under time sharing, for the shortest; of those that are alike, for one."""
        cycle = self.cycle
        waiting = cycle.order[cycle.waits[cycle.order]]
        self.shape = shapes(cycle, cycle.order)
        if not cycle.policy.time_sharing.enabled:
            self._seek(waiting, CLAIMANTS)
            return
        self._seek(waiting, CLAIMANTS // 2)
        waiting = waiting[cycle.waits[waiting]]
        self._seek(waiting[np.argsort(self.cost[waiting], kind="stable")], CLAIMANTS // 2)

    def _seek(self, waiting: Ints, most: int) -> None:
        cycle, w, shape, in_vain = self.cycle, self.cycle.snapshot.workloads, self.shape, self.in_vain
        tries = 0
        for at in waiting.tolist():
            if tries >= most or self.left <= 0 or not len(self.able) + len(self.unyielding):
                return
            key = (int(w.tenant[at]), int(shape[at]), int(w.priority[at]))
            if at in cycle.reserved or key in in_vain:
                continue
            tries += 1
            if not self._clear_for(at):
                in_vain.add(key)
                self._name_unyielding(at)

    def _clear_for(self, at: int) -> bool:
        """Makes room for one if it may and can; also where it only has to wait for others to be gone."""
        cycle, need = self.cycle, self.cycle.need_of(at)
        for model in cycle.models_of(at):
            column = int(cycle.snapshot.tenants.column[cycle.snapshot.workloads.tenant[at], model])
            victims, rights = self._victims(at, model, column)
            found = self._fewest(at, need, model, column, victims)
            if found is None or len(found[0]) > self.left:
                continue
            chosen, taken = found
            for victim in chosen:
                self._preempt(victim, at, rights[victim])
            self.fleet.take(taken, need)
            self._count(int(cycle.snapshot.workloads.tenant[at]), need.total)
            self.ledger.take(int(cycle.snapshot.workloads.tenant[at]), column, need.total)
            reserve(cycle, at, taken, cycle.now + RESERVED_FOR)
            return True
        return False

    def _name_unyielding(self, at: int) -> None:
        """Notes who would make room for one that finds none, if it could."""
        cycle, able = self.cycle, self.able
        if not len(self.unyielding):
            return
        self.able = np.union1d(able, self.unyielding)
        for model in cycle.models_of(at):
            column = int(cycle.snapshot.tenants.column[cycle.snapshot.workloads.tenant[at], model])
            found = self._fewest(at, cycle.need_of(at), model, column, self._victims(at, model, column)[0])
            if found is not None and (stays := np.intersect1d(found[0], self.unyielding)).size:
                cycle.unmoved[at] = int(stays[0])
                break
        self.able = able

    def _preempt(self, victim: int, at: int, right: Constraint) -> None:
        cycle, w, names = self.cycle, self.cycle.snapshot.workloads, self.cycle.snapshot.tenants.name
        uid, first = w.uid[victim], why_first(cycle, at)
        said = _RIGHTS[right].format(who=w.name[at], first=first, tenant=names[w.tenant[at]], other=names[w.tenant[victim]])
        reason = f"{said}; it has run for {span(w.ran[victim])}"
        cycle.stop(Verb.PREEMPT, victim, reason, right, beneficiary=w.uid[at])
        cycle.next.preemptions.append(cycle.now)
        cycle.next.preempted.setdefault(uid, []).append(cycle.now)
        cycle.next.rivals.setdefault(uid, []).append(w.uid[at])
        self.left -= 1
        self.able = self.able[self.able != victim]
        self.fleet.free_up(cycle.taken_of(victim), cycle.need_of(victim))
        self._count(int(w.tenant[victim]), -int(cycle.total[victim]))
        self.ledger.take(int(w.tenant[victim]), int(cycle.column[victim]), -int(cycle.total[victim]))

    def _count(self, tenant: int, milli: int) -> None:
        self.taken[tenant] = self.taken.get(tenant, 0) + milli

    def _victims(self, at: int, model: int, column: int) -> tuple[list[int], dict[int, Constraint]]:
        """Whom it may take the place of, the first to go first, and by which right."""
        cycle, w = self.cycle, self.cycle.snapshot.workloads
        able = self.able[cycle.model[self.able] == model]
        if spared := [*cycle.next.rivals.get(w.uid[at], ()), *self.robbed.get(w.uid[at], ())]:
            able = able[~np.isin(able, cycle.find(spared))]
        given = self._rights(at, able, column)
        by_quota, by_priority, by_waiting, _, by_time = given
        longest = -np.where(by_time, self.cost[able], 0)
        order = np.lexsort((-able, -w.started[able], longest, self.loss[able], w.priority[able], ~by_quota))
        victims, rights = [], {}
        lost: dict[int, int] = {}
        for i in order[np.logical_or.reduce(given)[order]].tolist():
            victim = int(able[i])
            tenant, size = int(w.tenant[victim]), int(cycle.total[victim])
            gone, other = lost.get(tenant, 0), tenant != w.tenant[at]
            if other and not (by_priority[i] or by_waiting[i] or self._stays_ahead(at, victim, column, gone, bool(by_quota[i]))):
                continue
            lost[tenant] = gone + size
            victims.append(victim)
            rights[victim] = next(right for right, mine in zip(_RIGHTS, given, strict=True) if mine[i])
            if len(victims) >= _LONGEST_LIST:
                break
        return victims, rights

    def _rights(self, at: int, able: Ints, column: int) -> tuple[Bools, ...]:
        """Which of them it may take the place of, by each right, in the order of `_RIGHTS`."""
        cycle, w, sharing = self.cycle, self.cycle.snapshot.workloads, self.cycle.policy.time_sharing
        tenant, total = int(w.tenant[at]), int(cycle.total[at])
        used, floor, cohort = self.ledger.used, self.ledger.floor, self.ledger.limits.cohort
        own = used[tenant, column] + total <= floor[tenant, column]
        same = w.tenant[able] == tenant
        borrows = (used[w.tenant[able], column] > floor[w.tenant[able], column]) & (cycle.column[able] == column)
        kin = (cohort[w.tenant[able]] == cohort[tenant]) & ~same & borrows
        nothing = np.zeros(len(able), dtype=bool)
        by_quota = kin if own else nothing
        lower = w.priority[able] < w.priority[at]
        by_priority = lower & (same | (not cycle.policy.fair_share.enabled))
        keeps = w.preemption[able] <= Mode.CHECKPOINT
        by_share = kin & keeps if cycle.policy.fair_share.enabled and not own else nothing
        had_time = cycle.now - w.started[able] >= sharing.slice.total_seconds()
        yields = had_time & keeps
        by_waiting = nothing
        if cycle.band[at] == OVERDUE:
            earned = w.priority[at] + age_of(cycle, np.array([at]))[0]
            by_waiting = yields & (w.priority[able] <= earned) & (same | kin | self._on_emptied(at, able))
        by_time = nothing
        if sharing.enabled:
            longer = self.cost[able] >= sharing.ratio * self.cost[at]
            by_time = yields & (w.priority[able] <= w.priority[at]) & (same | kin) & longer
        return by_quota, by_priority, by_waiting, by_share, by_time

    def _on_emptied(self, at: int, able: Ints) -> Bools:
        """What goes on anywhere, and is on a node that is being emptied for this one, of its cohort."""
        cycle, w, places = self.cycle, self.cycle.snapshot.workloads, self.cycle.snapshot.places
        nodes = cycle.emptied.get(at)
        if nodes is None:
            return np.zeros(len(able), dtype=bool)
        cohort = self.ledger.limits.cohort
        there = np.isin(able, places.workload[np.isin(places.node, nodes)])
        return np.asarray(there & (self.loss[able] == 0) & (cohort[w.tenant[able]] == cohort[w.tenant[at]]))

    def _stays_ahead(self, at: int, victim: int, column: int, lost: int, by_quota: bool) -> bool:
        """Whether the other tenant can lose the victim as well: for the quota as long as it borrows, else while it keeps at least as large a
        share, where short work counts as less the more is asked for beyond what there is."""
        cycle, w = self.cycle, self.cycle.snapshot.workloads
        tenant, other, weight = int(w.tenant[at]), int(w.tenant[victim]), cycle.snapshot.tenants.weight
        if by_quota:
            return bool(self.ledger.used[other, column] - lost > self.ledger.floor[other, column])
        whole = max(int(cycle.capacity[cycle.lead[at]]), 1)
        mine = cycle.share[tenant] + (self.taken.get(tenant, 0) + cycle.total[at]) / whole / weight[tenant]
        theirs = cycle.share[other] + (self.taken.get(other, 0) - lost - cycle.total[victim]) / whole / weight[other]
        shorter = (self.handicap[victim] - self.handicap[at]) * cycle.crowding[cycle.lead[at]]
        return bool(theirs + shorter >= mine)

    def _fewest(
        self, at: int, need: Need, model: int, column: int, victims: list[int]
    ) -> tuple[list[int], Taken] | None:
        """The fewest of the first to go with whom it fits, and where; none where it fits when those on their way out are gone."""
        low, high = 0, len(victims)
        if self._fits_without(at, need, model, column, victims) is None:
            return None
        while low < high:  # more room never hurts, so halve
            middle = (low + high) // 2
            if self._fits_without(at, need, model, column, victims[:middle]) is not None:
                high = middle
            else:
                low = middle + 1
        fleet, ledger, taken = self._fits_without(at, need, model, column, victims[:low]) or _never()
        chosen = victims[:low]
        tenant, w = int(self.cycle.snapshot.workloads.tenant[at]), self.cycle.snapshot.workloads
        for victim in reversed(victims[:low]):
            held, size = self.cycle.taken_of(victim), int(self.cycle.total[victim])
            if not _can_stay(fleet, held, self.cycle.need_of(victim)):
                continue
            ledger.take(int(w.tenant[victim]), int(self.cycle.column[victim]), size)
            if ledger.room(tenant, column) >= need.total:
                fleet.take(held, self.cycle.need_of(victim))
                chosen.remove(victim)
            else:
                ledger.take(int(w.tenant[victim]), int(self.cycle.column[victim]), -size)
        return chosen, taken

    def _fits_without(
        self, at: int, need: Need, model: int, column: int, victims: list[int]
    ) -> tuple[Fleet, Ledger, Taken] | None:
        """The fleet and the ledger with these gone and it placed, if that works. The ledger leaves its own use out."""
        cycle, w = self.cycle, self.cycle.snapshot.workloads
        ledger = self.ledger.settled()
        if at in cycle.emptied:
            ledger.promised[:] = 0  # to it
        for victim in victims:
            ledger.take(int(w.tenant[victim]), int(cycle.column[victim]), -int(cycle.total[victim]))
        if ledger.room(int(w.tenant[at]), column) < need.total:
            return None
        fleet = self.fleet.copy()
        cycle.unload(fleet, victims)
        mine = at in cycle.holding  # nodes are held back for it, and not from it
        taken = fleet.place(need, model, -np.inf if mine else cycle.now + float(cycle.latest[at]))
        return None if taken is None else (fleet, ledger, taken)


def _can_stay(fleet: Fleet, held: Taken, need: Need) -> bool:
    """Whether what it holds is still free, also where several of its replicas are on one GPU, and its hosts have the CPU and memory."""
    gpus = Counter[tuple[int, int]]()
    for _, node, gpu, milli in held:
        gpus[node, gpu] += milli
    hosts = Counter(node for _, node in {(replica, node) for replica, node, _, _ in held})
    return all(fleet.free[where] >= milli for where, milli in gpus.items()) and all(
        fleet.cpu[node] >= count * need.cpu and fleet.memory[node] >= count * need.memory for node, count in hosts.items()
    )


def _never() -> tuple[Fleet, Ledger, Taken]:
    raise AssertionError("what fitted without all victims does not fit without the fewest")


_RIGHTS = {
    Constraint.QUOTA: "{who} needs it within the quota of {tenant}, and {other} has more than is kept for it",
    Constraint.PRIORITY: "{who} has a higher priority",
    Constraint.SLA: "{who} {first}",
    Constraint.FAIR_SHARE: "{who} needs it, and {tenant} has less than {other} for its weight",
    Constraint.TIME_SHARING: "{who} is expected to be short, and this one long",
}


def _settled_fleet(cycle: Cycle) -> Fleet:
    """The fleet as it will be when all that is on its way out is gone."""
    fleet = cycle.fleet.copy()
    cycle.unload(fleet, np.flatnonzero(cycle.held & cycle.leaving).tolist())
    return fleet


def _proposed(cycle: Cycle) -> dict[int, str]:
    """Who is to make way by an earlier decision and still is in the run that this was to end; and for whom."""
    memory, w, found = cycle.next, cycle.snapshot.workloads, dict[int, str]()
    for at in cycle.find(memory.preempted):
        rivals = memory.rivals.get(w.uid[at])
        if rivals and cycle.held[at] and not cycle.leaving[at] and w.started[at] <= memory.preempted[w.uid[at]][-1]:
            found[at] = rivals[-1]
    return found


def _forget_undone(cycle: Cycle) -> None:
    """A preemption that came to nothing uses up no budget, and may be decided again: nobody needs it any more and it was not carried out, or it
    could not be."""
    undone = {at: rival for at, rival in _proposed(cycle).items() if rival not in cycle.memory.reservations or rival not in cycle.index}
    kept = ((at, cycle.snapshot.refusals[cycle.snapshot.workloads.uid[at]]) for at in cycle.find(cycle.snapshot.refusals))
    undone |= {at: refusal.beneficiary for at, refusal in kept if refusal.verb == Verb.KEEP and cycle.held[at]}
    for at, rival in undone.items():
        _take_back(cycle.next, cycle.snapshot.workloads.uid[at], rival)


def _take_back(memory: Memory, uid: str, rival: str) -> None:
    """Forgets that a workload was last preempted for another one."""
    if rival not in memory.rivals.get(uid, ()):
        return
    memory.rivals[uid].remove(rival)
    if times := memory.preempted.get(uid):
        when = times.pop()
        if when in memory.preemptions:
            memory.preemptions.remove(when)


def remember(cycle: Cycle) -> None:
    """Forgets what is older than the budgets look back, what came to nothing, and whoever is gone."""
    memory, known = cycle.memory, cycle.index if cycle.memory.preempted or cycle.memory.rivals else {}
    cycle.next.preemptions = [when for when in memory.preemptions if cycle.now - when < HOUR]
    cycle.next.rivals = {uid: list(rivals) for uid, rivals in memory.rivals.items() if uid in known}
    recent = {
        uid: [when for when in times if cycle.now - when < DAY]
        for uid, times in memory.preempted.items()
        if uid in known
    }
    cycle.next.preempted = {uid: times for uid, times in recent.items() if times}
    _forget_undone(cycle)
    cycle.next.preempted = {uid: times for uid, times in cycle.next.preempted.items() if times}
    alive = {uid: [rival for rival in rivals if rival in known] for uid, rivals in cycle.next.rivals.items()}
    cycle.next.rivals = {uid: rivals for uid, rivals in alive.items() if rivals}


def make_room(cycle: Cycle) -> None:
    """Clears GPUs for the first that wait, within the budget."""
    if cycle.policy.preemption.enabled and len(cycle.order):
        Preemption(cycle).run()
