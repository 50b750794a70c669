"""The GPUs of the fleet and where work fits: all replicas or none, on the cheapest nodes that do, and there where least is lost.

Which of equally cheap nodes loses least is said by `placement.Packer`, the same that the published experiments are run with. A gang goes
onto one node if it can, else into one NVLink domain, else into the fewest racks, and in those into the fewest domains and nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement import Demand, Packer, Pod, Prices, Room, Sizes
from homeostat.gpu.snapshot import NEVER, NONE, Bools, Floats, Health, Ints, Nodes, Spot, Topology

Taken = tuple[tuple[int, int, int, int], ...]
"""What a workload holds: replica, node, gpu and thousandths of it, for each GPU."""
Counts = list[tuple[int, int]]
"""Nodes, and how many replicas go on each."""


class Need(msgspec.Struct, frozen=True):
    """What a workload asks of the fleet."""

    replicas: int
    milli: int
    """Of GPUs, a replica: a fraction of one, or whole ones. None: CPU and memory alone."""
    gpu_memory: int = 0
    cpu: int = 0
    memory: int = 0
    topology: int = Topology.ANYWHERE
    spot: int = Spot.ALLOW
    nodes: tuple[int, ...] = ()
    """One node a replica, where its state lies; empty: any."""
    gpus: tuple[tuple[int, ...], ...] = ()
    """And the GPUs there, for a process whose state was taken off them continues only on the same."""
    suspends: bool = False
    """Whether it makes way by being suspended with its state, which CUDA cannot do on a part of a GPU (MIG)."""

    @property
    def whole(self) -> bool:
        """Whether parts of GPUs will not do: a process sees one of them alone."""
        return self.suspends or self.milli > WHOLE

    @property
    def total(self) -> int:
        """Of all replicas, in thousandths."""
        return self.replicas * self.milli

    def pod(self, replicas: int = 1) -> Pod:
        """So many replicas on one node, as placement knows them. Fractions are placed one by one."""
        if self.milli < WHOLE:
            return Pod(self.cpu, self.memory, int(self.milli > 0), self.milli or WHOLE)
        return Pod(self.cpu * replicas, self.memory * replicas, self.milli // WHOLE * replicas)


class Fleet:
    """What is free on every GPU. Mutable; copied for a what-if."""

    __slots__ = (
        "_by_model",
        "_can",
        "domain",
        "gpu_memory",
        "healthy",
        "held_until",
        "homes",
        "level",
        "model",
        "open",
        "packer",
        "parts",
        "rack",
        "room",
        "size_cpu",
        "size_memory",
        "spot",
        "there",
    )

    def __init__(
        self, nodes: Nodes, models: int, is_open: Bools, demand: Demand | None = None, alike: float = 0.0
    ) -> None:
        """`demand`: what has been asked for so far, from which it is learned what fits well. `alike`: how much dearer a GPU may be and
        still count as costing the same."""
        self.model, self.domain, self.rack, self.spot = nodes.model, nodes.domain, nodes.rack, nodes.spot
        self.gpu_memory, self.parts = nodes.gpu_memory, nodes.parts
        self.healthy: Bools = nodes.health == Health.HEALTHY
        self.there: Bools = nodes.health < Health.FAILED
        """Which GPUs there are, those that are only suspect among them."""
        self.size_cpu, self.size_memory = nodes.cpu, nodes.memory
        there = nodes.health < Health.ABSENT
        sizes = Sizes.of(nodes.cpu, nodes.memory, there, nodes.model)
        free = np.where(self.healthy, WHOLE, 0).astype(np.int64)
        self.room = Room(nodes.cpu.copy(), nodes.memory.copy(), free, nodes.model, sizes)
        self.packer = Packer(self.room, prices=Prices.learn(demand or Demand(), sizes))
        self.level: Ints = levels(nodes.cost / np.maximum(there.sum(axis=1), 1), alike)
        """How dear each node is for a GPU, from 0. Nodes of one level are alike in that."""
        self.open = is_open
        self.held_until: Floats = np.full(len(nodes), NEVER)
        """A node that is held back for another takes only what is done by then."""
        self.homes: Bools | None = None
        """[nodes, gpus]: where the state of suspended work lies, if there is any."""
        self._by_model = [np.flatnonzero((nodes.model == model) & is_open) for model in range(models)]
        self._can: dict[tuple[int, ...], Bools] = {}

    def copy(self) -> Fleet:
        """A twin for a what-if; what never changes is shared."""
        twin = object.__new__(type(self))
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.held_until, twin.room = self.held_until.copy(), self.room.copy()
        twin.packer = self.packer.copy(twin.room)
        return twin

    @property
    def free(self) -> Ints:
        """[nodes, gpus] in thousandths; what is not healthy has none."""
        return self.room.gpus

    @property
    def whole(self) -> Ints:
        """How many GPUs of each node are healthy and all free."""
        return self.room.whole

    @property
    def cpu(self) -> Ints:
        return self.room.cpu

    @property
    def memory(self) -> Ints:
        return self.room.memory

    def load(self, node: Ints, gpu: Ints, milli: Ints) -> None:
        """Takes many at once, or frees them with negative amounts. A GPU that was lost or oversubscribed from outside goes below zero, and fits nothing."""
        self.packer.touch(*self.room.load(node, gpu, milli).tolist())

    def keep_clear(self, node: Ints, gpu: Ints) -> None:
        """Suspended work comes back to these GPUs and to no others: of those that are free on a node, they are given away last."""
        if len(node):
            self.homes = np.zeros(self.free.shape, dtype=bool) if self.homes is None else self.homes
            self.homes[node, gpu] = True

    def fits(self, need: Need, model: int) -> bool:
        """Whether it could be placed now, whoever what is free is held back for."""
        if need.replicas == 1 and not need.nodes:
            return bool((self._able(need, (model,)) & self.packer.fits(need.pod())).any())
        return self._find(need, (model,), -NEVER) is not None

    def room_for(self, need: Need, model: int) -> int:
        """How many of its replicas would find a place now, on nodes that are held back for nobody."""
        nodes = self._by_model[model]
        return int(self._slots(need, nodes[self.allows(need, nodes, NEVER)]).sum())

    def place(self, need: Need, models: int | Sequence[int], ends: float = 0.0) -> Taken | None:
        """Finds GPUs of one of these models for all replicas and takes them, or takes nothing. Nodes held back for another are given only
        until then: `ends` is when this one will be done."""
        taken = self._find(need, (models,) if isinstance(models, int) else models, ends)
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
        return all(self.open[node] and self.free[node, gpu] >= milli for (node, gpu), milli in want.items())

    def _move(self, taken: Taken, need: Need, sign: int) -> None:
        seen, nodes = set(), {node for _, node, _, _ in taken}
        for replica, node, gpu, milli in taken:
            self.free[node, gpu] += sign * milli
            assert sign > 0 or not milli or self.free[node, gpu] >= 0, "a GPU is given to more than it has room for"
            if replica not in seen:
                seen.add(replica)
                self.room.cpu[node] += sign * need.cpu
                self.room.memory[node] += sign * need.memory
        self.room.recount(*nodes)
        self.packer.touch(*nodes)

    # where it fits

    def _find(self, need: Need, models: Sequence[int], ends: float) -> Taken | None:
        if need.nodes:
            return self._at_home(need, models)
        node = self._one_node(need, models, ends)
        if node is not None:
            return self._pick(need, [(node, need.replicas)])
        if need.replicas == 1 or need.topology == Topology.NODE:
            return None
        for model in models:
            found = self._apart(need, model, ends)
            if found is not None:
                return self._pick(need, found)
        return None

    def allows(self, need: Need, nodes: Ints, ends: float = -NEVER) -> Bools:
        """Which nodes could take a replica if they were free."""
        allowed = self.held_until[nodes] >= ends
        if need.gpu_memory:
            allowed &= self.gpu_memory[nodes] * min(need.milli, WHOLE) >= need.gpu_memory * WHOLE
        if need.whole:
            allowed &= ~self.parts[nodes]
        if need.spot != Spot.ALLOW:
            allowed &= self.spot[nodes] == (need.spot == Spot.REQUIRE)
        return allowed

    def slots_when_empty(self, need: Need, nodes: Ints) -> Ints:
        """How many replicas each node would take with nothing else on it."""
        gpus = self.there[nodes].sum(axis=1)
        slots = gpus // (need.milli // WHOLE) if need.milli >= WHOLE else gpus * (WHOLE // max(need.milli, 1))
        for have, each in ((self.size_cpu, need.cpu), (self.size_memory, need.memory)):
            if each:
                slots = np.minimum(slots, have[nodes] // each)
        return np.asarray(np.where(self.allows(need, nodes), slots, 0))

    def _one_node(self, need: Need, models: Sequence[int], ends: float) -> int | None:
        """The cheapest node that takes all replicas, and of these the one where least is lost."""
        if not len(self.model):
            return None
        costs = self.packer.costs(need.pod(need.replicas))
        able = self._able(need, models) & (self.held_until >= ends)
        costs = np.where(able, costs, np.inf)
        if need.milli < WHOLE and need.replicas > 1:
            some = np.flatnonzero(costs < np.inf)
            costs[some[self._slots(need, some) < need.replicas]] = np.inf
        node = self.packer.choose(costs)
        if costs[node] == np.inf:
            return None
        if self.level[node]:
            cheapest = self.level[costs < np.inf].min()
            if cheapest < self.level[node]:
                node = self.packer.choose(np.where(self.level == cheapest, costs, np.inf))
        return node

    def _able(self, need: Need, models: Sequence[int]) -> Bools:
        """Which nodes take work such as this, whatever is free."""
        key = (need.gpu_memory, min(need.milli, WHOLE) if need.gpu_memory else 0, need.whole, need.spot, *models)
        able = self._can.get(key)
        if able is None:
            able = np.zeros(len(self.model), dtype=bool)
            for model in models:
                able[self._by_model[model]] = True
            able &= self.allows(need, np.arange(len(able)))
            self._can[key] = able
        return able

    def _slots(self, need: Need, nodes: Ints) -> Ints:
        """How many replicas fit on each node."""
        if need.milli >= WHOLE:
            slots = self.whole[nodes] // (need.milli // WHOLE)
        else:
            slots = (np.maximum(self.free[nodes], 0) // max(need.milli, 1)).sum(axis=1)
        for have, each in ((self.cpu, need.cpu), (self.memory, need.memory)):
            if each:
                slots = np.minimum(slots, np.maximum(have[nodes], 0) // each)
        return np.asarray(slots)

    def _apart(self, need: Need, model: int, ends: float) -> Counts | None:
        """On several nodes: the cheapest that are enough."""
        nodes = self._by_model[model]
        nodes = nodes[self.allows(need, nodes, ends)]
        slots = self._slots(need, nodes)
        nodes, slots = nodes[slots > 0], slots[slots > 0]
        for level in np.unique(self.level[nodes]).tolist():
            cheap = self.level[nodes] <= level
            if int(slots[cheap].sum()) >= need.replicas:
                found = self._near(need, nodes[cheap], slots[cheap])
                if found is not None:
                    return found
        return None

    def group_of(self, need: Need, nodes: Ints) -> Ints | None:
        """What all replicas must stay within; None: anything."""
        by = {Topology.NODE: nodes, Topology.NVLINK_DOMAIN: self.domain[nodes], Topology.RACK: self.rack[nodes]}
        return by.get(Topology(need.topology))

    def _near(self, need: Need, nodes: Ints, slots: Ints) -> Counts | None:
        """As near to each other as they can be; as near as they ask for, or not at all."""
        within = self.group_of(need, nodes)
        group = self.domain[nodes] if within is None else within
        one = _tightest(group, slots, need.replicas)
        if one is not None:
            nodes, slots = nodes[group == one], slots[group == one]
        elif within is not None:
            return None
        return _gather(nodes, slots, need.replicas, [self.rack[nodes], self.domain[nodes], nodes])

    def _pick(self, need: Need, counts: Counts) -> Taken:
        """The GPUs on each node: whole ones with the lowest indexes that nobody comes back to, of fractions one after the other where least is lost."""
        per_replica, replica = need.milli // WHOLE, 0
        taken: list[tuple[int, int, int, int]] = []
        for node, count in counts:
            free = self.free[node].copy()
            gpus = sorted(self._whole_of(node)[: count * per_replica].tolist())
            for at in range(count):
                if not need.milli:
                    taken.append((replica, node, 0, 0))
                elif per_replica:
                    taken += [(replica, node, gpu, WHOLE) for gpu in gpus[at * per_replica : (at + 1) * per_replica]]
                else:
                    gpu = int(self.packer.prices.of_each(free, need.milli).argmin())
                    free[gpu] -= need.milli
                    taken.append((replica, node, gpu, need.milli))
                replica += 1
        return tuple(taken)

    def _whole_of(self, node: int) -> Ints:
        """The GPUs of a node that are all free, in the order in which they are given away."""
        whole: Ints = (self.free[node] == WHOLE).nonzero()[0]
        return whole if self.homes is None else whole[np.argsort(self.homes[node, whole], kind="stable")]

    def _at_home(self, need: Need, models: Sequence[int]) -> Taken | None:
        """Each replica on the node where its state lies, and on the same GPUs there."""
        each = min(need.milli, WHOLE)
        homes = enumerate(zip(need.nodes, need.gpus, strict=True))
        taken = tuple((replica, node, gpu, each) for replica, (node, gpus) in homes for gpu in gpus)
        if not self.holds(taken) or any(self.model[node] not in models for node in need.nodes):
            return None
        nodes, count = np.unique(need.nodes, return_counts=True)
        enough = (self.cpu[nodes] >= count * need.cpu) | (need.cpu == 0)
        return taken if bool(enough.all()) else None


def levels(price: Floats, alike: float) -> Ints:
    """The prices in steps: a new one begins where a price is more than `alike` above the first of its step."""
    order = np.unique(price)
    starts: list[float] = []
    for one in order.tolist():
        if not starts or one > starts[-1] * (1 + alike):
            starts.append(one)
    return np.searchsorted(np.array(starts), price, side="right") - 1 if starts else np.zeros(0, dtype=np.int64)


def _tightest(group: Ints, slots: Ints, replicas: int) -> int | None:
    """The group that has room for all, and least beyond."""
    member = group != NONE
    room = np.bincount(group[member], weights=slots[member])
    if not len(room) or room.max() < replicas:
        return None
    return int(np.where(room >= replicas, room, np.inf).argmin())


def _gather(nodes: Ints, slots: Ints, replicas: int, nearness: Sequence[Ints]) -> Counts:
    """The fewest groups that are enough, by the first kind of nearness, and the same again within each. There is room for all."""
    group = np.where(nearness[0] == NONE, -2 - nodes, nearness[0])  # what belongs to no group is one by itself
    if len(nearness) > 1 and (nearness[0] == NONE).all():
        return _gather(nodes, slots, replicas, nearness[1:])
    _, which = np.unique(group, return_inverse=True)
    room = np.bincount(which, weights=slots).astype(np.int64)
    found: Counts = []
    while replicas:
        enough = np.flatnonzero(room >= replicas)
        best = int(enough[room[enough].argmin()]) if len(enough) else int(room.argmax())
        count = min(replicas, int(room[best]))
        inside = np.flatnonzero(which == best)
        if len(nearness) == 1:
            found.append((int(nodes[inside[0]]), count))
        else:
            found += _gather(nodes[inside], slots[inside], count, [near[inside] for near in nearness[1:]])
        replicas -= count
        room[best] = 0
    return found
