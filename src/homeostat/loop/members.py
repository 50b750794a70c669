"""Which resource is in which fleet."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from homeostat.client import Key
from homeostat.loop.fleet import Fleet, Ref


class Where(msgspec.Struct, frozen=True, order=True, gc=False):
    """A key in the queue: which kind, which resource."""

    kind: str
    key: Key


def where_of(ref: Ref) -> Where:
    """Where a resource is looked for."""
    return Where(ref.kind, Key(ref.namespace, ref.name))


class Members:
    """Fleets, and who is in them. A resource is in one fleet; of two of the same name and another uid only one is there."""

    def __init__(self) -> None:
        self.fleets: dict[str, Fleet] = {}
        self._in: dict[Ref, Fleet] = {}
        self._refs: dict[Where, Ref] = {}
        self._of: dict[str, set[Ref]] = {}

    def at(self, where: Where) -> Ref | None:
        """The resource that is known under a key."""
        return self._refs.get(where)

    def __contains__(self, ref: Ref) -> bool:
        return ref in self._in

    def fleet(self, ref: Ref) -> Fleet | None:
        """The fleet of a resource; None where it is in none."""
        return self._in.get(ref)

    def join(self, ref: Ref, name: str, make: Callable[[str], Fleet], leave: Callable[[Ref], None]) -> Fleet:
        """Puts a resource into the fleet of this name, which is made where there is none.

        Who has to go before leaves: itself, from another, and whoever had its name before.
        """
        before = self._in.get(ref)
        if before is not None:
            if before.name == name:
                return before
            leave(ref)
        where = where_of(ref)
        if (namesake := self._refs.get(where)) is not None:
            leave(namesake)
        fleet = self.fleets.get(name)
        if fleet is None:
            fleet = self.fleets[name] = make(name)
        self._refs[where], self._in[ref] = ref, fleet
        self._of.setdefault(name, set()).add(ref)
        self._size(fleet)
        return fleet

    def count(self, ref: Ref, exists: bool) -> None:
        """Whether a resource is among those that the size of its fleet counts."""
        if (fleet := self._in.get(ref)) is not None and bool(exists) == (ref in fleet.aside):
            (fleet.aside.discard if exists else fleet.aside.add)(ref)
            self._size(fleet)

    def leave(self, ref: Ref) -> Fleet | None:
        """Takes a resource out of its fleet, which it gives."""
        if self._refs.get(where := where_of(ref)) == ref:
            del self._refs[where]
        fleet = self._in.pop(ref, None)
        if fleet is not None:
            fleet.forget(ref)
            fleet.unknown.pop(ref, None)
            fleet.unhealthy.pop(ref, None)
            fleet.in_doubt.discard(ref)
            fleet.observed.pop(ref, None)
            fleet.aside.discard(ref)
            fleet.moving.pop(ref, None)
            self._of[fleet.name].discard(ref)
            self._size(fleet)
        return fleet

    def _size(self, fleet: Fleet) -> None:
        fleet.size = len(self._of[fleet.name]) - len(fleet.aside)
