"""When each node was last heard of, by the leases that their agents renew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from homeostat.model.clock import parse_time

ALIKE = 0.25
"""A clock that differs from ours by no more than this part of a lease is believed."""
_LEASE = 40.0


class Beat(NamedTuple):
    """The lease of a node."""

    renewed: float
    """By the clock of its agent; NaN: never."""
    lease: float
    """For how many seconds that holds; 0: not said."""
    heard: float
    """By our clock; NaN: it was not looked at yet."""
    revision: int = 0
    """Of the server: a copy that is late, or a clock that was set back, is told from news by this."""


class Beats:
    """The leases of all nodes. `listens`: they come as they are renewed, so that nobody's clock need be believed.

    Then a lease that was just renewed was heard of now, whatever time it bears; and one that is old when it is seen for the first time has
    half of its time to be renewed: its agent may be dead, or have another clock.
    """

    def __init__(self, listens: bool) -> None:
        self._listens = listens
        self._all: dict[str, Beat] = {}
        self._new: set[str] = set()

    def put(self, obj: Mapping[str, Any]) -> None:
        """A lease as it was read. One that is older than what is known already is passed over."""
        name, revision, spec = obj["metadata"]["name"], obj["metadata"].get("resourceVersion", ""), obj.get("spec") or {}
        text, before = spec.get("renewTime"), self._all.get(name)
        renewed, lease = parse_time(text) if text else math.nan, float(spec.get("leaseDurationSeconds") or 0)
        number = int(revision) if revision.isdecimal() else 0
        if before is None or ((before.renewed, before.lease) != (renewed, lease) and number >= before.revision):
            self._all[name] = Beat(renewed, lease, math.nan if before is None else before.heard, number)
            self._new.add(name)

    def remove(self, name: str) -> None:
        """It is of no use any more."""
        self._all.pop(name, None)

    def at(self, now: float, nodes: Iterable[tuple[str, float]]) -> list[tuple[float, float]]:
        """Of each node when it was heard of, and for how long that holds. Beside its name stands when it reported, in case it has no lease."""
        for name in self._new & self._all.keys():
            beat = self._all[name]
            self._all[name] = beat._replace(heard=self._heard(beat, now) if self._listens else beat.renewed)
        self._new.clear()
        found = ((self._all.get(name), reported) for name, reported in nodes)
        return [(one.heard, one.lease) if one is not None else (reported, 0.0) for one, reported in found]

    def _heard(self, beat: Beat, now: float) -> float:
        lease = beat.lease or _LEASE
        if math.isnan(beat.renewed) or abs(now - beat.renewed) <= lease * ALIKE:
            return beat.renewed
        if math.isnan(beat.heard):
            return min(max(beat.renewed, now - lease / 2), now)
        return now
