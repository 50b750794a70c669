"""The choice of the node: the one where the expected loss grows least."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement.demand import Demand
from homeostat.gpu.placement.prices import Prices
from homeostat.gpu.placement.room import Placement, Pod, Room
from homeostat.gpu.snapshot import ANY_MODEL, Bools, Floats, Ints

SHAPES = 512
"""How many different requests are kept priced at a time. Past that all are priced afresh, which costs time and nothing else."""
CHANGES = 50_000
"""How many changes are remembered, for requests that have not been looked at since."""
FEW, STATES = 4, 256
"""Of so many nodes that changed, prices are asked for one by one: those of so many states that nodes were in are kept, for they come again."""
NEAR = 1e-6
"""Losses that differ by less are the same."""
Shape = tuple[int, int, int, int]
State = tuple[int, int, int, bytes]
"""All of a node that a price hangs on: its CPU and memory, its model, and what is free of each GPU."""


class _Row:
    """What a request costs on every node, as of so many changes, and in states that nodes were in."""

    __slots__ = ("costs", "known", "mine", "seen")

    def __init__(self, costs: Floats, seen: int, known: dict[State, float], mine: bool = True) -> None:
        self.costs, self.seen, self.known, self.mine = costs, seen, known, mine


class Packer:
    """Says what a pod costs on each node, and puts pods on nodes, one after the other.

    What each request would cost on each node is kept. When it is asked again, only the nodes that changed since are priced anew. Prices
    are learned anew when `demand` has news, see `Demand.lesson`; with `prices` handed in they stay. Of nodes that cost the same the fullest
    is taken, and then the first.
    """

    __slots__ = ("_changed", "_lesson", "_rows", "_suits", "demand", "prices", "room")

    def __init__(self, room: Room, demand: Demand | None = None, prices: Prices | None = None) -> None:
        self.room = room
        self.demand = demand if demand is not None or prices is not None else Demand()
        self._rows: dict[Shape, _Row] = {}
        self._changed: list[int] = []
        self._suits: dict[int, Bools] = {}
        self._lesson = self.demand.lesson if self.demand is not None else 0
        self.prices = prices or Prices.learn(self.demand or Demand(), room.sizes)

    def copy(self, room: Room) -> Packer:
        """A twin for a what-if on a copy of the room. What is priced is shared until one of them prices it anew."""
        twin = object.__new__(type(self))
        twin.room, twin.demand, twin.prices, twin._lesson, twin._suits = room, self.demand, self.prices, self._lesson, self._suits
        twin._rows, twin._changed = {}, self._changed.copy()
        for shape, row in self._rows.items():
            row.mine = False
            twin._rows[shape] = _Row(row.costs, row.seen, row.known, False)
        return twin

    def place(self, pod: Pod) -> Placement | None:
        """Finds a place and takes it; None when it fits nowhere. A pod that fits somewhere always gets a place."""
        costs = self.costs(pod)
        node = self.choose(costs)
        if costs[node] == np.inf:
            return None
        at = Placement(node, self.devices(pod, node))
        self.take(pod, at)
        return at

    def take(self, pod: Pod, at: Placement) -> None:
        """Takes exactly this place."""
        self.room.take(pod, at)
        self.touch(at.node)

    def remove(self, pod: Pod, at: Placement) -> None:
        """Gives back what a pod held."""
        self.room.give(pod, at)
        self.touch(at.node)

    def touch(self, *nodes: int) -> None:
        """Takes note that something changed on these nodes. Whoever changes the room in another way must say so."""
        if self._rows:
            self._changed += nodes
        if len(self._changed) > CHANGES:
            self._forget()

    def costs(self, pod: Pod) -> Floats:
        """Of every node: the thousandths of GPUs that are expected to be lost more if the pod goes there; infinite where it does not fit.

        Not to be written to: it may be what is kept.
        """
        if self.demand is not None and self.demand.lesson != self._lesson:
            self.prices, self._lesson = Prices.learn(self.demand, self.room.sizes), self.demand.lesson
            self._forget()
        row = self._rows.get(pod[:4])
        if row is None:
            row = self._ask(pod.checked())
        elif row.seen < len(self._changed):
            self._renew(pod, row)
        if pod.models == ANY_MODEL or not pod.gpus:
            return row.costs
        suits = self._suits.get(pod.models)
        if suits is None:
            suits = self._suits[pod.models] = (pod.models >> self.room.model) & 1 == 1
        return np.where(suits, row.costs, np.inf)

    def choose(self, costs: Floats) -> int:
        """The node to take. Override it to settle ties in another way."""
        first = int(costs.argmin())
        alike = (costs <= costs[first] + NEAR).nonzero()[0]
        return first if len(alike) == 1 else int(alike[self.room.total[alike].argmin()])

    def devices(self, pod: Pod, node: int) -> tuple[int, ...]:
        """The GPUs that the pod would get on this node, where it fits."""
        free = self.room.gpus[node]
        if pod.milli < WHOLE:
            return (int(self.prices.of_each(free, pod.milli).argmin()),)
        return tuple(np.flatnonzero(free == WHOLE)[: pod.gpus].tolist())

    def _forget(self) -> None:
        self._rows, self._changed = {}, []

    def _ask(self, pod: Pod) -> _Row:
        if len(self._rows) >= SHAPES:
            self._forget()
        costs = np.full(len(self.room), np.inf)
        row = self._rows[pod[:4]] = _Row(costs, len(self._changed), {})
        fits = np.flatnonzero(self.fits(pod))
        costs[fits] = self._price(pod, fits)
        return row

    def _renew(self, pod: Pod, row: _Row) -> None:
        nodes = list(set(self._changed[row.seen :]))
        if not row.mine:
            row.costs, row.mine = row.costs.copy(), True
        row.costs[nodes] = self._anew(pod, nodes) if len(nodes) > FEW else [self._known(pod, row, node) for node in nodes]
        row.seen = len(self._changed)

    def _anew(self, pod: Pod, nodes: list[int]) -> Floats:
        at = np.array(nodes)
        return np.where(self.fits(pod, at), self._price(pod, at), np.inf)

    def _known(self, pod: Pod, row: _Row, node: int) -> float:
        room = self.room
        state = (room.cpu.item(node), room.memory.item(node), room.model.item(node), room.gpus[node].tobytes())
        found = row.known.get(state)
        if found is None:
            if len(row.known) >= STATES:
                row.known.clear()
            found = row.known[state] = self._anew(pod, [node]).item()
        return found

    def fits(self, pod: Pod, nodes: Ints | slice = slice(None)) -> Bools:
        """Whether the pod fits, by node: all of them, or these. Models are not looked at."""
        room = self.room
        enough = np.maximum(room.cpu[nodes], 0) >= pod.cpu  # what asks for none fits also where others took more than there is
        enough &= np.maximum(room.memory[nodes], 0) >= pod.memory
        if pod.gpus:
            enough &= room.largest[nodes] >= pod.milli if pod.milli < WHOLE else room.whole[nodes] >= pod.gpus
        return np.asarray(enough)

    def _price(self, pod: Pod, nodes: Ints) -> Floats:
        """One request on some nodes. Where it does not fit, any figure."""
        room, prices = self.room, self.prices
        free, cpu, memory = room.total[nodes], np.maximum(room.cpu[nodes], 0), np.maximum(room.memory[nodes], 0)
        after = prices.on_node(cpu - pod.cpu, memory - pod.memory, np.maximum(free - pod.total, 0))
        loss = after - prices.on_node(cpu, memory, free) + prices.by_model[room.model[nodes]] * pod.total
        if not pod.gpus:
            return np.asarray(loss)
        if pod.milli < WHOLE:
            return np.asarray(loss + prices.of_each(room.gpus[nodes], pod.milli).min(axis=1))
        return np.asarray(loss + prices.of_whole(room.whole[nodes], pod.gpus))
