"""Admission: whoever waits is placed in order, all replicas or none, on the cheapest GPUs that are free and within the quota.

The first that do not fit have nodes held back for them: the ones that will be free soonest. Others may use those only if they are
expected to be done by then. For what has waited too long, nodes are emptied, also where its cohort has lent too much for it just now: only
work gets on them that goes on anywhere when it makes way. What comes free there is kept for it of the cohort's quota.
"""

from __future__ import annotations

from enum import Enum, auto

import numpy as np

from homeostat.gpu.cycle import Cycle, gpus, span
from homeostat.gpu.decisions import Constraint
from homeostat.gpu.experience import mixed
from homeostat.gpu.fleet import Need, Taken
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.policies.fair_share import OVERDUE, OWN, age_of
from homeostat.gpu.snapshot import NEVER, NONE, Bools, Floats, Health, Ints, Mode

_ENOUGH_MISSES = 32
"""After so many in a row that did not fit, the rest is looked through at once."""
HELD = 8
"""For so many of the first that do not fit, nodes are held back."""


class Outcome(Enum):
    ADMITTED = auto()
    NO_QUOTA = auto()
    NO_ROOM = auto()


class Admission:
    """One walk along the queue."""

    def __init__(self, cycle: Cycle) -> None:
        self.cycle = cycle
        self.ends: Floats = cycle.now + cycle.latest
        self.shape = shapes(cycle, cycle.order)
        self.refused: dict[tuple[int, int], float] = {}
        """By shape and model: the earliest end with which nothing was found. What ends later finds nothing either."""
        self.holds = HELD if cycle.policy.backfill else len(cycle.order)
        self.claims: Bools = cycle.band == OVERDUE
        """For whom nodes are held back also while its cohort has lent others what it needs."""
        self.makes_way = makes_way(cycle)
        self.release: dict[bool, Floats] = {}
        """When each GPU is expected to be free; and when it can be, for what has waited too long."""
        self.kinds: Ints = np.zeros(0, dtype=np.int64)
        """The shapes that are looked at, in order."""

    def walk(self) -> None:
        """Admits whom it can, in order."""
        cycle = self.cycle
        queue = self._with_quota(cycle.order)
        hopeful = self._fits_now(queue)
        self._remember_shut_out(queue[~hopeful])
        hopeful[np.flatnonzero(~hopeful)[: self.holds]] = True  # nodes are held back for these
        queue = queue[hopeful]
        position = missed = 0
        while position < len(queue):
            at = int(queue[position])
            position += 1
            if at in cycle.spots or at in cycle.reserved:
                continue
            outcome = self._admit(at)
            missed = 0 if outcome is Outcome.ADMITTED else missed + 1
            if self.holds > 0 and (outcome is Outcome.NO_ROOM or (outcome is Outcome.NO_QUOTA and self.claims[at])):
                self._hold_back(at)
            if missed >= _ENOUGH_MISSES:
                rest = queue[position:]
                may = self._hopeful(rest) if self.holds <= 0 else self._rooms(rest).any(axis=1)
                queue, position, missed = rest[may], 0, 0

    def _hopeful(self, queue: Ints) -> Bools:
        """Who may still fit, after all that was given away and refused."""
        cycle = self.cycle
        refused = np.full((len(self.kinds), len(cycle.snapshot.models)), NEVER)
        for (kind, model), end in self.refused.items():
            refused[np.searchsorted(self.kinds, kind), model] = end
        kinds = np.searchsorted(self.kinds, self.shape[queue])
        fits = (self.ends[queue, None] < refused[kinds]) & self._rooms(queue)
        return np.asarray(fits.any(axis=1))

    def _with_quota(self, queue: Ints) -> Ints:
        """Those for whom some model is within the quota; of what is overdue, also within what the cohort lends others. Behind one that is overdue
        and waits for its own tenant's quota, its tenant's others wait as well."""
        cycle, tenants = self.cycle, self.cycle.snapshot.tenants
        if not len(queue):
            return queue
        claims, has_room = self.claims[queue], np.asarray(self._rooms(queue).any(axis=1))
        has_room[claims] |= self._rooms(queue[claims], cycle.ledger.attainable()).any(axis=1)
        tenant = cycle.snapshot.workloads.tenant[queue]
        quota = tenant * tenants.nominal.shape[1] + tenants.column[tenant, cycle.lead[queue]]
        place = np.arange(len(queue))
        barrier = np.full(tenants.nominal.size, len(queue))
        late = ~has_room & claims
        np.minimum.at(barrier, quota[late], place[late])
        return np.asarray(queue[has_room & (place < barrier[quota])])

    def _rooms(self, queue: Ints, rooms: Ints | None = None) -> Bools:
        """[queue, models]: whether it may have the model, and the quota has room for it: now, unless `rooms` says what there is."""
        cycle, tenants = self.cycle, self.cycle.snapshot.tenants
        if not len(queue):
            return np.zeros((0, len(cycle.snapshot.models)), dtype=bool)
        rooms = cycle.ledger.rooms() if rooms is None else rooms
        rooms = np.take_along_axis(rooms, np.maximum(tenants.column, 0), axis=1)
        return np.asarray(
            cycle.allowed[queue] & (rooms[cycle.snapshot.workloads.tenant[queue]] >= cycle.total[queue, None])
        )

    def _fits_now(self, queue: Ints) -> Bools:
        """Whether each could be placed on what is free; asked once for each shape."""
        cycle, answers = self.cycle, {}
        shape = self.shape[queue]
        self.kinds, first = np.unique(shape, return_index=True)
        for kind, position in zip(self.kinds.tolist(), first.tolist(), strict=True):
            at = int(queue[position])
            need = cycle.need_of(at)
            wanted = [
                m
                for m in cycle.cheapest_first
                if int(cycle.snapshot.workloads.models[at]) >> m & 1 and cycle.capacity[m] > 0
            ]
            found = [m for m in wanted if cycle.fleet.fits(need, m)]
            self.refused |= {(kind, m): -NEVER for m in wanted if m not in found}
            answers[kind] = bool(found)
        cycle.misfits = self.refused.copy()
        found_any = np.array([answers[kind] for kind in self.kinds.tolist()], dtype=bool)
        return np.asarray(found_any[np.searchsorted(self.kinds, shape)]) if len(queue) else np.zeros(0, dtype=bool)

    def _remember_shut_out(self, misfits: Ints) -> None:
        """Since when others have the GPUs of suspended work that would have its turn. Until it runs again, or is no more."""
        cycle, uid = self.cycle, self.cycle.snapshot.workloads.uid
        known = [at for at in cycle.find(cycle.memory.shut_out) if cycle.keeps_state[at]]
        cycle.next.shut_out = {uid[at]: cycle.memory.shut_out[uid[at]] for at in known}
        for at in misfits[cycle.keeps_state[misfits]].tolist():
            if cycle.home_of(at):
                cycle.next.shut_out.setdefault(uid[at], cycle.now)

    def _admit(self, at: int) -> Outcome:
        cycle, shape, end = self.cycle, self.shape.item(at), self.ends.item(at)
        w, column = cycle.snapshot.workloads, cycle.snapshot.tenants.column
        tenant, total = w.tenant.item(at), cycle.total.item(at)
        need: Need | None = None
        within_quota = False
        for choice in cycle.choices_of(at):
            models = [model for model in choice if cycle.ledger.room(tenant, column.item(tenant, model)) >= total]
            within_quota |= bool(models)
            models = [model for model in models if end < self.refused.get((shape, model), NEVER)]
            if not models:
                continue
            need = need or cycle.need_of(at)
            taken = self._place(at, need, models, end)
            if taken is not None:
                cycle.admit(at, taken, *_words(cycle, at))
                for soonest, release in self.release.items():
                    for _, node, gpu, _ in taken:
                        release[node, gpu] = max(release[node, gpu], cycle.now if soonest and self.makes_way[at] else end)
                return Outcome.ADMITTED
            self.refused |= {(shape, model): end for model in models}
        return Outcome.NO_ROOM if within_quota else Outcome.NO_QUOTA

    def _place(self, at: int, need: Need, models: list[int], end: float) -> Taken | None:
        """On nodes that are being emptied for another, only what that one can take off again."""
        cycle, w, fleet = self.cycle, self.cycle.snapshot.workloads, self.cycle.fleet
        nodes = [
            nodes
            for other, nodes in cycle.emptied.items()
            if self.makes_way[at]
            and cycle.ledger.limits.cohort[w.tenant[at]] == cycle.ledger.limits.cohort[w.tenant[other]]
            and w.priority[at] <= w.priority[other] + age_of(cycle, np.array([other]))[0]
        ]
        if not nodes:
            return fleet.place(need, models, end)
        held = fleet.held_until.copy()
        fleet.held_until[np.concatenate(nodes)] = NEVER
        taken = fleet.place(need, models, end)
        fleet.held_until[:] = held
        return taken

    def _hold_back(self, at: int) -> None:
        """Holds the nodes back that will be free for it soonest."""
        cycle, need = self.cycle, self.cycle.need_of(at)
        overdue = bool(cycle.band[at] == OVERDUE)
        rooms = cycle.ledger.attainable() if self.claims[at] else cycle.ledger.rooms()
        tenant, column = int(cycle.snapshot.workloads.tenant[at]), cycle.snapshot.tenants.column
        found = self._kept(at) if overdue else None
        for model in () if found is not None else cycle.models_of(at):
            if rooms[tenant, column[tenant, model]] < need.total:
                continue
            choice = self._soonest(need, model, overdue)
            if choice is not None and (found is None or choice[0] < found[0]):
                found = choice
        if found is None:
            return
        self.holds -= 1
        strictly = overdue or not cycle.policy.backfill
        when, nodes = found
        cycle.holding[at] = when
        cycle.fleet.held_until[nodes] = np.minimum(cycle.fleet.held_until[nodes], cycle.now if strictly else when)
        if overdue:
            names = cycle.snapshot.nodes.name
            cycle.next.held[cycle.snapshot.workloads.uid[at]] = [names[node] for node in nodes.tolist()]
            cycle.emptied[at] = nodes
            self._promise(at, nodes)

    def _promise(self, at: int, nodes: Ints) -> None:
        """Where the cohort has less left to lend than is free, nodes that nobody gets on are not enough: what comes free on them is kept for it
        of the quota as well."""
        cycle, ledger = self.cycle, self.cycle.ledger
        tenant = int(cycle.snapshot.workloads.tenant[at])
        columns = cycle.snapshot.tenants.column[tenant, cycle.fleet.model]
        column, cohort = int(columns[nodes[0]]), ledger.limits.cohort[tenant]
        free = np.where(cycle.open, np.maximum(cycle.fleet.free, 0).sum(axis=1), 0)
        if ledger.limits.lendable[cohort, column] - ledger.drawn[cohort, column] < free[columns == column].sum():
            ledger.promise(tenant, column, min(int(cycle.total[at]), int(free[nodes].sum())))

    def _kept(self, at: int) -> tuple[float, Ints] | None:
        """The nodes that are being emptied for it since earlier cycles, as long as they can take it and nobody before it has them."""
        cycle = self.cycle
        names = cycle.memory.held.get(cycle.snapshot.workloads.uid[at])
        if not names:
            return None
        index = {name: node for node, name in enumerate(cycle.snapshot.nodes.name)}
        nodes = np.array([index.get(name, NONE) for name in names])
        if (nodes == NONE).any() or not cycle.open[nodes].all() or (cycle.fleet.held_until[nodes] != NEVER).any():
            return None
        times = self._release_times(True)[nodes]
        return float(np.where(np.isfinite(times), times, cycle.now).max()), nodes

    def _release_times(self, overdue: bool) -> Floats:
        """When each GPU is expected to be free. For what has waited too long: when all is gone that does not make way for it."""
        if overdue not in self.release:
            cycle, places = self.cycle, self.cycle.snapshot.places
            ends = np.where(self.makes_way, cycle.now, self.ends) if overdue else self.ends
            healthy = cycle.snapshot.nodes.health == Health.HEALTHY
            release = self.release[overdue] = np.where(healthy, cycle.now, NEVER)
            rows = cycle.held[places.workload]
            np.maximum.at(release, (places.node[rows], places.gpu[rows]), ends[places.workload[rows]])
            for at, taken in cycle.spots.items():
                for _, node, gpu, _ in taken:
                    release[node, gpu] = max(release[node, gpu], ends[at])
        return self.release[overdue]

    def _soonest(self, need: Need, model: int, overdue: bool) -> tuple[float, Ints] | None:
        """When, and on which nodes, all replicas will fit at once."""
        cycle, fleet = self.cycle, self.cycle.fleet
        if need.nodes:
            nodes = np.unique(need.nodes)
            return (
                (float(self._release_times(overdue)[nodes].min(axis=1).max()), nodes)
                if fleet.model[nodes[0]] == model
                else None
            )
        nodes = np.flatnonzero((fleet.model == model) & cycle.open & (fleet.held_until == NEVER))
        slots = fleet.slots_when_empty(need, nodes)
        nodes, slots = nodes[slots > 0], slots[slots > 0]
        per_replica = max(need.milli // WHOLE, 1)
        times = np.sort(self._release_times(overdue)[nodes], axis=1)[:, per_replica - 1 :: per_replica]
        times = np.where(np.arange(times.shape[1]) < slots[:, None], times, NEVER)  # where GPUs are free, its CPU or memory may not be enough
        if times.size < need.replicas:
            return None
        return _earliest(times, nodes, fleet.group_of(need, nodes), need.replicas)


def _earliest(times: Floats, nodes: Ints, group: Ints | None, replicas: int) -> tuple[float, Ints] | None:
    """Of slots that come free, node by node, the first that are enough; all of one group where there is one."""
    rows = np.repeat(np.arange(len(nodes)), times.shape[1])
    when = times.ravel()
    order = np.argsort(when, kind="stable")
    if group is not None:
        member = group[rows]
        order = order[np.argsort(member[order], kind="stable")]
        place = np.arange(len(order)) - np.searchsorted(member[order], member[order])  # in its group, by time
        last = order[(place == replicas - 1) & (member[order] != NONE)]
        if not len(last):
            return None
        best = last[when[last].argmin()]
        order = order[(member[order] == member[best])]
    chosen = order[:replicas]
    soonest = float(when[chosen].max())
    return (soonest, np.unique(nodes[rows[chosen]])) if np.isfinite(soonest) else None


def shapes(cycle: Cycle, queue: Ints) -> Ints:
    """A number for each, equal for those that ask the same of the fleet. What must go back to where its state lies is like no other; and while
    something has waited too long, what makes way for it may go where others may not. Where there are parts of GPUs, not all may have those."""
    w = cycle.snapshot.workloads
    found = mixed(w.replicas, w.milli, w.models, w.gpu_memory, w.cpu, w.memory, w.topology, cycle.spot)
    if (cycle.band[queue] == OVERDUE).any():
        found ^= makes_way(cycle)
    if cycle.fleet.parts.any():
        found ^= 2 * (w.preemption == Mode.SUSPEND)
    found[cycle.keeps_state] = np.flatnonzero(cycle.keeps_state)
    return found


def makes_way(cycle: Cycle) -> Bools:
    """What loses nothing by being taken off, for it goes on anywhere."""
    return np.asarray(cycle.snapshot.workloads.preemption == Mode.CHECKPOINT)


def _words(cycle: Cycle, at: int) -> tuple[str, Constraint]:
    """Why it may start now."""
    w, tenants = cycle.snapshot.workloads, cycle.snapshot.tenants
    tenant = tenants.name[w.tenant[at]]
    waited = f" after waiting {span(cycle.waited[at])}" if cycle.waited[at] >= 1 else ""
    if cycle.displaced[at]:
        return f"{cycle.gone.get(at, 'it lost its node')}, and it goes on elsewhere", Constraint.FAILURE
    if cycle.keeps_state[at] and cycle.out_of_patience(at) and not cycle.home_of(at):
        return f"the GPUs where its state lies are not to be had: it begins anew elsewhere{waited}", Constraint.HOME
    column = tenants.column[w.tenant[at], cycle.lead[at]]
    used = cycle.ledger.used[w.tenant[at], column] + cycle.total[at]
    are = "is" if cycle.total[at] == WHOLE else "are"
    if cycle.band[at] <= OWN or used <= tenants.nominal[w.tenant[at], column]:
        return f"{gpus(int(cycle.total[at]))} within the quota of {tenant} {are} free{waited}", Constraint.NONE
    return f"{gpus(int(cycle.total[at]))} {are} free beyond the quota of {tenant}{waited}", Constraint.NONE


def admit(cycle: Cycle) -> None:
    """Places whom it can, in order."""
    Admission(cycle).walk()
