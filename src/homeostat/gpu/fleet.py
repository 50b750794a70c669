"""The GPUs of the fleet and where work fits: all replicas or none, cheapest nodes first, then those that are left with least.

A finer sense of what fits best is a subclass that says so in `rank` and `tightest`; `decide` takes it as `fleet_of`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NEVER, NONE, Bools, Floats, Health, Ints, Nodes, Spot, Topology

_NO_ROOM = 2**40
Taken = tuple[tuple[int, int, int, int], ...]
"""What a workload holds: replica, node, gpu and thousandths of it, for each GPU."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a workload asks of the fleet."""

    replicas: int
    milli: int
    """Of GPUs, a replica: a fraction of one, or whole ones."""
    gpu_memory: int = 0
    cpu: int = 0
    memory: int = 0
    topology: int = Topology.ANYWHERE
    spot: int = Spot.ALLOW
    nodes: tuple[int, ...] = ()
    """One node a replica, where its state lies; empty: any."""

    @property
    def total(self) -> int:
        """Of all replicas, in thousandths."""
        return self.replicas * self.milli


class Fleet:
    """What is free on every GPU. Mutable; copied for a what-if."""

    __slots__ = (
        "_by_model",
        "cost",
        "cpu",
        "domain",
        "free",
        "gpu_memory",
        "healthy",
        "held_until",
        "memory",
        "model",
        "open",
        "rack",
        "spot",
        "whole",
    )

    def __init__(self, nodes: Nodes, models: int, is_open: Bools) -> None:
        self.model, self.domain, self.rack, self.spot, self.cost = (
            nodes.model,
            nodes.domain,
            nodes.rack,
            nodes.spot,
            nodes.cost,
        )
        self.gpu_memory = nodes.gpu_memory
        self.healthy: Bools = nodes.health == Health.HEALTHY
        self.free: Ints = np.where(nodes.health < Health.FAILED, WHOLE, 0).astype(np.int64)
        self.whole: Ints = self.healthy.sum(axis=1)
        """How many GPUs of each node are healthy and all free."""
        self.cpu, self.memory = nodes.cpu.copy(), nodes.memory.copy()
        self.open = is_open
        self.held_until: Floats = np.full(len(nodes), NEVER)
        """A node that is held back for another takes only what is done by then."""
        self._by_model = [np.flatnonzero((nodes.model == model) & is_open) for model in range(models)]

    def copy(self) -> Fleet:
        """A twin for a what-if; what never changes is shared."""
        twin = object.__new__(type(self))
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        for name in ("free", "whole", "cpu", "memory", "held_until"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def load(self, node: Ints, gpu: Ints, milli: Ints) -> None:
        """Takes many at once, or frees them with negative amounts. A GPU that was lost or oversubscribed from outside goes below zero, and fits nothing."""
        np.subtract.at(self.free, (node, gpu), milli)
        touched = np.unique(node)
        self.whole[touched] = ((self.free[touched] == WHOLE) & self.healthy[touched]).sum(axis=1)

    def fits(self, need: Need, model: int) -> bool:
        """Whether it could be placed now, whoever what is free is held back for."""
        return self._find(need, model, -NEVER) is not None

    def place(self, need: Need, model: int, ends: float = 0.0) -> Taken | None:
        """Finds GPUs for all replicas and takes them, or takes nothing. Nodes held back for another are given only until then: `ends` is
        when this one will be done."""
        taken = self._find(need, model, ends)
        if taken is not None:
            self.take(taken, need)
        return taken

    def take(self, taken: Taken, need: Need) -> None:
        """Takes exactly these."""
        self._move(taken, need, -1)

    def free_up(self, taken: Taken, need: Need) -> None:
        """Gives back what was taken."""
        self._move(taken, need, +1)

    def holds(self, taken: Taken) -> bool:
        """Whether all of these are free on nodes that take work."""
        want: dict[tuple[int, int], int] = {}
        for _, node, gpu, milli in taken:
            want[node, gpu] = want.get((node, gpu), 0) + milli
        return all(
            self.open[node] and self.healthy[node, gpu] and self.free[node, gpu] >= milli
            for (node, gpu), milli in want.items()
        )

    def _move(self, taken: Taken, need: Need, sign: int) -> None:
        seen = set()
        for replica, node, gpu, milli in taken:
            before = self.free.item(node, gpu)
            after = before + sign * milli
            assert sign > 0 or after >= 0, "a GPU is given to more than it has room for"
            self.free[node, gpu] = after
            if self.healthy.item(node, gpu):
                self.whole[node] += (after == WHOLE) - (before == WHOLE)
            if replica not in seen:
                seen.add(replica)
                self.cpu[node] += sign * need.cpu
                self.memory[node] += sign * need.memory

    def _find(self, need: Need, model: int, ends: float) -> Taken | None:
        if need.nodes:
            return self._at_home(need, model)
        nodes = self._by_model[model]
        if need.milli >= WHOLE:
            nodes = nodes[self.whole[nodes] * WHOLE >= need.milli]
        nodes = nodes[self.allows(need, nodes, ends)]
        if not len(nodes):
            return None
        if need.milli < WHOLE:
            return self._fractions(need, nodes)
        return self._whole(need, nodes)

    def allows(self, need: Need, nodes: Ints, ends: float = -NEVER) -> Bools:
        """Which nodes could take a replica if they were free."""
        allowed = self.held_until[nodes] >= ends
        if need.gpu_memory:
            allowed &= self.gpu_memory[nodes] * min(need.milli, WHOLE) >= need.gpu_memory * WHOLE
        if need.spot != Spot.ALLOW:
            allowed &= self.spot[nodes] == (need.spot == Spot.REQUIRE)
        return allowed

    def rank(self, need: Need, nodes: Ints) -> Floats:
        """What is given up by placing all replicas on each of these nodes: its price first, then what it has whole."""
        return np.asarray(self.cost[nodes] * 1e4 + self.whole[nodes])

    def _slots(self, need: Need, nodes: Ints) -> Ints:
        """How many replicas fit on each node."""
        per_replica = need.milli // WHOLE
        slots = self.whole[nodes] // per_replica
        if need.cpu:
            slots = np.minimum(slots, np.maximum(self.cpu[nodes], 0) // need.cpu)
        if need.memory:
            slots = np.minimum(slots, np.maximum(self.memory[nodes], 0) // need.memory)
        return slots

    def _whole(self, need: Need, nodes: Ints) -> Taken | None:
        slots = self._slots(need, nodes)
        useful = slots > 0
        nodes, slots = nodes[useful], slots[useful]
        if int(slots.sum()) < need.replicas:
            return None
        enough = slots >= need.replicas
        if enough.any():  # within a node: the one that is left with least
            best = int(np.where(enough, self.rank(need, nodes), np.inf).argmin())
            return self._pick(need, [(int(nodes[best]), need.replicas)])
        if need.topology == Topology.NODE:
            return None
        for group in self._groups(need, nodes):
            found = self._within(need, nodes, slots, group)
            if found is not None:
                return found
        return None

    def group_of(self, need: Need, nodes: Ints) -> Ints | None:
        """What all replicas must stay within; None: anything."""
        by = {Topology.NODE: nodes, Topology.NVLINK_DOMAIN: self.domain[nodes], Topology.RACK: self.rack[nodes]}
        return by.get(Topology(need.topology))

    def _groups(self, need: Need, nodes: Ints) -> list[Ints | None]:
        """What to keep replicas within, the nearest first."""
        if need.topology != Topology.ANYWHERE:
            return [self.group_of(need, nodes)]
        return [group for group in (self.domain[nodes], self.rack[nodes]) if (group != NONE).any()] + [None]

    def _within(self, need: Need, nodes: Ints, slots: Ints, group: Ints | None) -> Taken | None:
        """The tightest group that has room for all replicas; in it the fewest and cheapest nodes."""
        if group is not None:
            member = group != NONE
            room = np.bincount(group[member], weights=slots[member])
            room = np.where(room >= need.replicas, room, np.inf)
            if not len(room) or np.isinf(best := room.min()):
                return None
            chosen = group == int(np.flatnonzero(room == best)[0])
            nodes, slots = nodes[chosen], slots[chosen]
        order = np.lexsort((nodes, -slots, self.cost[nodes]))
        reach = np.cumsum(slots[order])
        last = int(np.searchsorted(reach, need.replicas))
        counts = slots[order[: last + 1]].tolist()
        counts[-1] -= int(reach[last]) - need.replicas
        return self._pick(need, list(zip(nodes[order[: last + 1]].tolist(), counts, strict=True)))

    def _pick(self, need: Need, counts: list[tuple[int, int]]) -> Taken:
        """The GPUs with the lowest indexes on each node."""
        per_replica, replica, taken = need.milli // WHOLE, 0, []
        for node, count in counts:
            gpus = np.flatnonzero((self.free[node] == WHOLE) & self.healthy[node])[: count * per_replica].tolist()
            for at in range(count):
                taken += [(replica, node, gpu, WHOLE) for gpu in gpus[at * per_replica : (at + 1) * per_replica]]
                replica += 1
        return tuple(taken)

    def _fractions(self, need: Need, nodes: Ints) -> Taken | None:
        """One after the other: the GPU that is left with least. What was taken on the way is given back if one does not fit."""
        group = self.group_of(need, nodes)
        if group is None or need.replicas == 1:
            return self._scatter(need, nodes)
        for one in np.unique(group[group != NONE]).tolist():
            found = self._scatter(need, nodes[group == one])
            if found is not None:
                return found
        return None

    def _scatter(self, need: Need, nodes: Ints) -> Taken | None:
        one = Need(1, need.milli, need.gpu_memory, need.cpu, need.memory)
        taken: list[tuple[int, int, int, int]] = []
        for replica in range(need.replicas):
            at = self.tightest(need, nodes)
            if at is None:
                break
            place = (replica, *at, need.milli)
            self.take((place,), one)
            taken.append(place)
        for place in taken:
            self.free_up((place,), one)
        return tuple(taken) if len(taken) == need.replicas else None

    def tightest(self, need: Need, nodes: Ints) -> tuple[int, int] | None:
        """Of the cheapest nodes the GPU that is left with least."""
        if need.cpu or need.memory:
            nodes = nodes[(self.cpu[nodes] >= need.cpu) & (self.memory[nodes] >= need.memory)]
        spare = self.free[nodes] - need.milli
        spare[(spare < 0) | ~self.healthy[nodes]] = _NO_ROOM
        if len(nodes) and np.ptp(self.cost[nodes]):
            rank = np.unique(self.cost[nodes], return_inverse=True)[1]
            spare += (rank * WHOLE)[:, None]
        if not spare.size or spare.min() >= _NO_ROOM:
            return None
        row, gpu = divmod(int(spare.argmin()), spare.shape[1])
        return int(nodes[row]), gpu

    def _at_home(self, need: Need, model: int) -> Taken | None:
        """Each replica on the node where its state lies, on any GPUs there."""
        taken: list[tuple[int, int, int, int]] = []
        spare: dict[int, Ints] = {}
        for replica, node in enumerate(need.nodes):
            if not self.open[node] or self.model[node] != model:
                return None
            free = spare.setdefault(node, np.where(self.healthy[node], self.free[node], -1))
            if need.milli < WHOLE:
                fit = np.where(free >= need.milli, free, 2 * WHOLE)
                gpus = [int(fit.argmin())] if fit.min(initial=2 * WHOLE) < 2 * WHOLE else []
            else:
                gpus = np.flatnonzero(free == WHOLE)[: need.milli // WHOLE].tolist()
            if len(gpus) < max(need.milli // WHOLE, 1):
                return None
            free[gpus] -= min(need.milli, WHOLE)
            taken += [(replica, node, gpu, min(need.milli, WHOLE)) for gpu in gpus]
        return tuple(taken)
