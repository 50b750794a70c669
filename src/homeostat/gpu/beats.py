"""When each node was last heard of, by the leases that their agents renew."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from homeostat.model.clock import parse_time

ALIKE = 0.25
"""A clock that differs from ours by no more than this part of a lease is believed."""
_LEASE = 40.0
_FORGOTTEN = 86_400.0
"""Seconds after which nobody needs to know any more when a node was heard of whose lease is no more."""


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
    written: float = math.nan
    """When the server took that renewal, by its clock; NaN: it does not say."""


class Beats:
    """The leases of all nodes. `listens`: they come as they are renewed, so that nobody's clock need be believed.

    Then a lease that was just renewed was heard of now, whatever time it bears; and one that is old when it is seen for the first time has
    half of its time to be renewed: its agent may be dead, or have another clock. Who looks once goes by when the server took the renewal, where that
    and the time it bears differ.
    """

    def __init__(self, listens: bool) -> None:
        self._listens = listens
        self._all: dict[str, Beat] = {}
        self._new: set[str] = set()
        self._deleted: set[str] = set()

    def put(self, obj: Mapping[str, Any]) -> None:
        """A lease as it was read. One that is older than what is known already is passed over."""
        name, found = obj["metadata"]["name"], _read(obj)
        before = self._all.get(name)
        if before is None or ((before.renewed, before.lease) != (found.renewed, found.lease) and found.revision >= before.revision):
            self._all[name] = found if before is None else found._replace(heard=before.heard)
            self._new.add(name)
            self._deleted.discard(name)

    def remove(self, name: str) -> None:
        """A lease was deleted. That says nothing of its node, which was heard of when it last renewed it, for as long as that holds."""
        if name in self._all:
            self._deleted.add(name)

    def at(self, now: float, nodes: Iterable[tuple[str, float]]) -> list[tuple[float, float]]:
        """Of each node when it was heard of, and for how long that holds. Beside its name stands when it reported, in case it has no lease."""
        for name in self._new & self._all.keys():
            beat = self._all[name]
            self._all[name] = beat._replace(heard=self._heard(beat, now) if self._listens else _by_the_server(beat))
        self._new.clear()
        for name in [name for name in self._deleted if not now - self._all[name].heard <= _FORGOTTEN]:
            self._deleted.discard(name)
            del self._all[name]
        found = ((self._all.get(name), reported) for name, reported in nodes)
        return [(one.heard, one.lease) if one is not None else (reported, 0.0) for one, reported in found]

    def skew(self, name: str) -> float:
        """By how many seconds the clock of a node's agent was behind the server's when it last renewed its lease; NaN: nobody can tell."""
        beat = self._all.get(name)
        return math.nan if beat is None else beat.written - beat.renewed

    def _heard(self, beat: Beat, now: float) -> float:
        lease = beat.lease or _LEASE
        if math.isnan(beat.renewed) or abs(now - beat.renewed) <= lease * ALIKE:
            return beat.renewed
        if math.isnan(beat.heard):
            return min(max(beat.renewed, now - lease / 2), now)
        return now


def renewal(lease: Mapping[str, Any]) -> float:
    """When a lease was last renewed, for who looks once; NaN: never."""
    return _by_the_server(_read(lease))


def _read(obj: Mapping[str, Any]) -> Beat:
    revision, spec = obj["metadata"].get("resourceVersion", ""), obj.get("spec") or {}
    text = spec.get("renewTime")
    renewed, lease = parse_time(text) if text else math.nan, float(spec.get("leaseDurationSeconds") or 0)
    return Beat(renewed, lease, math.nan, int(revision) if revision.isdecimal() else 0, _written(obj))


def _by_the_server(beat: Beat) -> float:
    return beat.written if abs(beat.renewed - beat.written) > (beat.lease or _LEASE) * ALIKE else beat.renewed


def _written(obj: Mapping[str, Any]) -> float:
    times = (
        one.get("time") for one in obj["metadata"].get("managedFields") or () if "f:renewTime" in ((one.get("fieldsV1") or {}).get("f:spec") or {})
    )
    return max((parse_time(text) for text in times if text), default=math.nan)
