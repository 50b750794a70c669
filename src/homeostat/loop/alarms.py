"""Alarms: at most one for each key, the soonest first."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SLACK = 64
"""Entries of alarms that were moved or cancelled that may always lie in the heap."""


class Alarm(NamedTuple, Generic[V]):
    """When (seconds, on whatever clock the caller has) and what for. `number` tells apart alarms of the same time."""

    when: float
    number: int
    value: V


class Alarms(dict[K, Alarm[V]], Generic[K, V]):
    """Keys that wait for their time, each with its alarm: setting, cancelling and ringing cost O(log n).

    What was moved or cancelled stays in the heap until it comes up, or until such entries are more than the live ones.
    """

    __slots__ = ("_heap", "_number")

    def __init__(self) -> None:
        super().__init__()
        self._heap: list[tuple[float, int, K]] = []
        self._number = 0

    def set(self, key: K, when: float, value: V) -> None:
        """Sets the alarm of a key, whatever it was before."""
        self._number += 1
        self[key] = Alarm(when, self._number, value)
        heapq.heappush(self._heap, (when, self._number, key))
        if len(self._heap) > 2 * len(self) + _SLACK:
            self._heap = [(alarm.when, alarm.number, key) for key, alarm in self.items()]
            heapq.heapify(self._heap)

    def clear(self) -> None:
        """Forgets them all."""
        super().clear()
        self._heap.clear()

    def next(self) -> float | None:
        """When the soonest rings, or None where there are none."""
        heap = self._heap
        while heap:
            when, number, key = heap[0]
            alarm = self.get(key)
            if alarm is not None and alarm.number == number:
                return when
            heapq.heappop(heap)
        return None

    def ring(self, now: float) -> Iterator[tuple[K, V]]:
        """Takes out what is due, in the order of its time."""
        while (when := self.next()) is not None and when <= now:
            key = heapq.heappop(self._heap)[2]
            yield key, self.pop(key).value
