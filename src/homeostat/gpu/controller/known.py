"""The workloads as they are now: one copy of all, of which those that are looked at are kept decoded.

A workload is asked for several times in a row, by the governor and by the loop. So what was found out of it is kept as long as it, and the
nodes that are heard of, are the same. What is given out is shared: nobody may change it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from homeostat.client import Informer, Key, Packed
from homeostat.gpu.controller.hearing import Hearing
from homeostat.gpu.controller.standing import Object, Price, WorkloadState, settled, state_of
from homeostat.loop.fleet import Ref
from homeostat.model.clock import Clock

OPENED = 1024
"""Workloads that are kept decoded."""


class _Opened(msgspec.Struct):
    packed: Packed
    obj: Object
    settled: Object | None = None
    """What follows from the reports of agents, and its status does not say yet; as of this count of what is heard (`since`)."""
    since: int = -1
    state: WorkloadState | None = None
    """How it stands by its status and that; as of such a count as well."""
    state_since: int = -1


class Known:
    """`price` is what an hour of one GPU of a node costs."""

    def __init__(self, workloads: Informer[Packed], clock: Clock, hearing: Hearing, price: Price) -> None:
        self.workloads = workloads
        self._clock = clock
        self._hearing, self._price = hearing, price
        self._opened: OrderedDict[str, _Opened] = OrderedDict()

    def packed(self, ref: Ref) -> Packed | None:
        """One as it came; None where it is no more, or has only just come."""
        found = self.workloads.get(ref.name, ref.namespace)
        return found if found is not None and found.uid == ref.uid else None

    def at(self, key: Key) -> Object | None:
        """The workload of this name."""
        found = self.workloads.get(key.name, key.namespace)
        return None if found is None else self.open(found)

    def object(self, ref: Ref) -> Object | None:
        """A workload; None where it is no more, or has only just come."""
        found = self.packed(ref)
        return None if found is None else self.open(found)

    def open(self, packed: Packed) -> Object:
        """The same of one as it came."""
        return self._open(packed).obj

    def _open(self, packed: Packed) -> _Opened:
        known = self._opened.get(packed.uid)
        if known is not None and known.packed is packed:
            return known
        if known is None and len(self._opened) >= OPENED:
            self._opened.popitem(last=False)
        found = self._opened[packed.uid] = _Opened(packed, packed.load())
        return found

    def wrote(self, ref: Ref, obj: Object) -> None:
        """The server answered a write with this: it need not be decoded again."""
        found = self.packed(ref)
        if found is not None and found.revision == obj["metadata"]["resourceVersion"]:
            self._opened[ref.uid] = _Opened(found, obj)

    def forget(self, uid: str) -> None:
        """It is no more."""
        self._opened.pop(uid, None)

    def settled(self, obj: Mapping[str, Any]) -> Object | None:
        """What follows from the reports of agents, and its status does not say yet; None where there is nothing new."""
        opened = self._opened.get(obj["metadata"]["uid"])
        if opened is None or opened.obj is not obj:
            return settled(obj, self._clock.now(), self._hearing.lost, self._price)
        if opened.since != self._hearing.count:
            opened.settled = settled(obj, self._clock.now(), self._hearing.lost, self._price)
            opened.since = self._hearing.count
        return opened.settled

    def status(self, ref: Ref) -> Mapping[str, Any]:
        """The status of a workload, with what follows from the reports of agents: that counts before it is written down."""
        obj = self.object(ref)
        return {} if obj is None else self._status(obj)

    def _status(self, obj: Object) -> Mapping[str, Any]:
        status: Mapping[str, Any] = obj.get("status") or {}
        if not status.get("assignment") or (more := self.settled(obj)) is None:
            return status
        return {**status, **more}

    def state(self, ref: Ref) -> WorkloadState:
        """How a workload stands by its status and by what agents reported."""
        packed = self.packed(ref)
        if packed is None:
            return WorkloadState()
        opened = self._open(packed)
        if opened.state is None or opened.state_since != self._hearing.count:
            opened.state, opened.state_since = state_of(self._status(opened.obj)), self._hearing.count
        return opened.state
