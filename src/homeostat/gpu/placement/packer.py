"""The choice of the node: the one where the expected loss grows least."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.placement.demand import Demand
from homeostat.gpu.placement.prices import Asks, Prices
from homeostat.gpu.placement.room import Placement, Pod, Room
from homeostat.gpu.snapshot import Floats, Ints

SHAPES = 512
"""How many different requests are kept priced at a time. Past that all are priced afresh, which costs time and nothing else."""


class Packer:
    """Puts pods on nodes, one after the other.

    What each request would cost on each node is kept in a table: a decision looks up one row, and changes one column. Prices are learned
    anew when `demand` has news, see `Demand.lesson`. Of nodes that cost the same the first is taken.
    """

    __slots__ = ("_asked", "_asks", "_costs", "_current", "_kind", "_kinds", "_lesson", "_rows", "demand", "prices", "room")

    def __init__(self, room: Room, demand: Demand | None = None) -> None:
        self.room = room
        self.demand = demand if demand is not None else Demand()
        self._costs: Floats = np.empty((16, len(room)))
        self._forget()
        self._learn()

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
        self._price_node(at.node)

    def remove(self, pod: Pod, at: Placement) -> None:
        """Gives back what a pod held."""
        self.room.give(pod, at)
        self._price_node(at.node)

    def costs(self, pod: Pod) -> Floats:
        """Of every node: the thousandths of GPUs that are expected to be lost more if the pod goes there; infinite where it does not fit.

        A view: it changes with the next decision.
        """
        if self.demand.lesson != self._lesson:
            self._learn()
        row = self._rows.get(pod)
        if row is None:
            row = self._ask(pod.checked())
        if not self._current[row]:
            self._costs[row] = self._price_pod(pod)
            self._current[row] = True
        result: Floats = self._costs[row]
        return result

    def choose(self, costs: Floats) -> int:
        """The node to take. Override it to settle ties in another way."""
        return int(costs.argmin())

    def _learn(self) -> None:
        self.prices = Prices.learn(self.demand, self.room)
        self._lesson = self.demand.lesson
        self._current[:] = [False] * len(self._rows)

    def _forget(self) -> None:
        self._rows: dict[Pod, int] = {}
        self._current: list[bool] = []
        self._asked: list[Pod] = []
        self._index()

    def _index(self) -> None:
        """Rows that ask the same of the GPUs are priced together on a node's devices."""
        self._asks = Asks.of(self._asked)
        kinds, which = np.unique(np.stack([self._asks.gpus, self._asks.milli]), axis=1, return_inverse=True)
        self._kinds: Ints = kinds
        self._kind: Ints = which.ravel()

    def _ask(self, pod: Pod) -> int:
        if len(self._rows) >= SHAPES:
            self._forget()
        row = self._rows[pod] = len(self._rows)
        self._asked.append(pod)
        self._current.append(False)
        self._index()
        if row >= len(self._costs):
            self._costs = np.concatenate([self._costs, np.empty_like(self._costs)])
        return row

    def _price_pod(self, pod: Pod) -> Floats:
        """One request on all nodes."""
        room, prices = self.room, self.prices
        free = np.maximum(room.gpus, 0).sum(axis=1)
        suits = (pod.models >> room.model) & 1 == 1 if pod.gpus else np.ones(len(room), dtype=bool)
        loss = prices.on_devices(room.gpus, pod.gpus, pod.milli) + prices.by_model[room.model] * pod.total
        fits = (loss < np.inf) & suits
        after = prices.on_node(room.cpu - pod.cpu, room.memory - pod.memory, np.maximum(free - pod.total, 0))
        return np.where(fits, after - prices.on_node(room.cpu, room.memory, free) + loss, np.inf)

    def _price_node(self, node: int) -> None:
        """All requests on one node."""
        room, prices, asks = self.room, self.prices, self._asks
        devices, model = room.gpus[node], room.model[node]
        free = np.maximum(devices, 0).sum()
        gpus, milli = self._kinds
        total = gpus * milli
        loss = (prices.on_devices(devices, gpus, milli) + prices.by_model[model] * total)[self._kind]
        suits = ((asks.models >> model) & 1 == 1) | (asks.gpus == 0)
        now = prices.on_node(room.cpu[node], room.memory[node], free)
        after = prices.on_node(room.cpu[node] - asks.cpu, room.memory[node] - asks.memory, np.maximum(free - total, 0)[self._kind])
        self._costs[: len(self._rows), node] = np.where(suits, after - now + loss, np.inf)

    def devices(self, pod: Pod, node: int) -> tuple[int, ...]:
        """The GPUs that the pod would get on this node, where it fits."""
        free = self.room.gpus[node]
        if pod.gpus == 1:
            return (int(self.prices.of_each(free, pod.milli).argmin()),)
        return tuple(np.flatnonzero(free == WHOLE)[: pod.gpus].tolist())
