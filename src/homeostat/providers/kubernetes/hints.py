"""Who watches the objects that were declared: an informer for each collection that is in use, kept down to names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from homeostat.client import Informer, Key, Metadata
from homeostat.loop.fleet import Ref
from homeostat.loop.hints import Bell
from homeostat.providers.kubernetes.clusters import Cluster


class Place(NamedTuple):
    """One object on one API."""

    cluster: str
    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def collection(self) -> tuple[str, ...]:
        return self[:-1]


class _Named(msgspec.Struct):
    """All that a hint needs of an object."""

    metadata: Metadata


class Hints:
    """Collects hints. One that cannot be had (no right to watch, say) is missed: then full passes find what changed."""

    def __init__(self) -> None:
        self._places: dict[Ref, Place] = {}
        self._refs: dict[Place, set[Ref]] = {}
        self._informers: dict[tuple[str, ...], Informer[_Named]] = {}
        self._bell = Bell()
        self._ending: set[asyncio.Task[None]] = set()

    def follow(self, ref: Ref, place: Place, cluster: Cluster) -> None:
        """From now on a change there is a hint for this resource."""
        if self._places.get(ref) == place:
            return
        self.forget(ref)
        self._places[ref] = place
        self._refs.setdefault(place, set()).add(ref)
        if place.collection not in self._informers:
            kind = cluster.client.kind(place.api_version, place.kind, _Named)
            informer = self._informers[place.collection] = kind.informer(namespace=place.namespace)
            informer.subscribe(lambda key: self._changed(place, key))
            informer.start()

    def forget(self, ref: Ref) -> None:
        """The resource is gone; with the last of a collection its informer ends."""
        place = self._places.pop(ref, None)
        self._bell.forget(ref)
        if place is None:
            return
        self._refs[place].discard(ref)
        if not self._refs[place]:
            del self._refs[place]
        if not any(other.collection == place.collection for other in self._refs):
            informer = self._informers.pop(place.collection)
            task = asyncio.get_running_loop().create_task(informer.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _changed(self, place: Place, key: Key) -> None:
        for ref in self._refs.get(place._replace(namespace=key.namespace, name=key.name), ()):
            self._bell.ring(ref)

    def stream(self) -> AsyncIterator[Ref]:
        """The resources to look at, as hints come."""
        return self._bell.stream()

    async def close(self) -> None:
        """Ends the informers."""
        await asyncio.gather(*(informer.stop() for informer in self._informers.values()), *self._ending)
        self._informers.clear()
