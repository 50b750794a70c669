"""Lanes: keys in order of arrival, one lane for each kind, lanes taking turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK = 64
"""Entries of removed keys that may always lie in the lanes."""


class Lanes(Generic[K]):
    """Keys that wait, taken one from each lane in turn, the oldest of a lane first. All in O(1).

    `since` says when each key came. A key that is removed stays in its lane until it comes up, or until such entries
    are more than the live ones; if it is put in again meanwhile, it has its old place back.
    """

    __slots__ = ("_kind_of", "_lanes", "_removed", "_turns", "since")

    def __init__(self, kind_of: Callable[[K], Hashable] | None = None) -> None:
        self.since: dict[K, float] = {}
        self._kind_of = kind_of
        self._lanes: dict[Hashable, deque[K]] = {}
        self._turns: deque[Hashable] = deque()
        self._removed = 0

    def put(self, key: K, since: float) -> None:
        """Puts in a key that is not in yet, at the end of its lane."""
        self.since[key] = since
        kind = self._kind_of(key) if self._kind_of is not None else None
        lane = self._lanes.get(kind)
        if lane is None:
            lane = self._lanes[kind] = deque()
            self._turns.append(kind)
        lane.append(key)

    def take(self) -> tuple[K, float]:
        """Takes out the next key, and since when it was in. There must be one."""
        while True:
            kind = self._turns[0]
            lane = self._lanes[kind]
            while lane:
                key = lane.popleft()
                since = self.since.pop(key, None)
                if since is not None:
                    self._turns.rotate(-1)
                    return key, since
                self._removed -= 1
            self._turns.popleft()
            del self._lanes[kind]

    def remove(self, key: K) -> float:
        """Takes out a certain key, and says since when it was in."""
        since = self.since.pop(key)
        self._removed += 1
        if self._removed > len(self.since) + _SLACK:
            for kind, lane in self._lanes.items():
                self._lanes[kind] = deque(key for key in dict.fromkeys(lane) if key in self.since)
            self._removed = 0
        return since

    def heads(self) -> Iterator[float]:
        """Since when the first key of each lane has been in."""
        for lane in self._lanes.values():
            while lane and lane[0] not in self.since:
                lane.popleft()
                self._removed -= 1
            if lane:
                yield self.since[lane[0]]

    def clear(self) -> None:
        """Takes out everything."""
        self.since.clear()
        self._lanes.clear()
        self._turns.clear()
        self._removed = 0
