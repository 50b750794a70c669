"""What Syncs have applied, as it is on the server: objects with the label of a Sync, of all kinds that they ever applied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import orjson

from homeostat.client import Client, Informer, Key, Packed
from homeostat.loop.compose import Child
from homeostat.loop.inmemory import Verified
from homeostat.loop.provider import CATEGORY
from homeostat.model.errors import ApiError
from homeostat.sources.kinds import SYNC_LABEL

READ_SECONDS = 10.0
"""How long objects of a kind may take to be read before it is said that they cannot be."""

Kind = tuple[str, str]
"""apiVersion and kind."""


class NotYet(Exception):
    """It cannot be told at the moment what there is, or what the server would say: nothing is changed, and it is asked again soon."""


class Holdings:
    """The objects of Syncs, kind by kind. `changed` hears of each that changes."""

    def __init__(self, client: Client, changed: Callable[[Kind, Key], None]) -> None:
        self._client = client
        self._changed = changed
        self._informers: dict[Kind, Informer[Packed]] = {}
        self.names: dict[Kind, tuple[str, bool]] = {}
        """Of each kind its plural and group, and whether it is in a namespace."""
        self.kept: set[str] = set()
        """Those (plural and group) that a loop keeps itself."""

    async def stop(self) -> None:
        for informer in self._informers.values():
            await informer.stop()

    async def is_served(self, kind: Kind) -> bool:
        """Whether the server has such a kind. Raises `NotYet` where that cannot be told."""
        try:
            await self._client.kind(*kind).served()
        except ApiError as error:
            if error.code != 404:
                raise NotYet(f"the server cannot be asked about {kind[0]} {kind[1]}: {error.message}") from None
            return False
        return True

    async def read(self, kinds: Iterable[Kind]) -> None:
        """Has what there is of these kinds been read, and follows it from now on. Of kinds that are not served there is nothing.

        Raises `NotYet` where it cannot be read: nobody can tell then what there is, and what is to go.
        """
        wanted = set(kinds)
        for kind in wanted - self._informers.keys():
            if await self.is_served(kind):
                await self._learn(kind)
        for kind in wanted & self._informers.keys():
            try:
                await self._informers[kind].wait_synced(READ_SECONDS)
            except TimeoutError as error:
                raise NotYet(f"objects of {kind[0]} {kind[1]} cannot be read: {error}") from None

    async def _learn(self, kind: Kind) -> None:
        resource = self._client.kind(*kind, Packed)
        served = await resource.served()
        if kind in self._informers:
            return  # another Sync was faster
        group = kind[0].rpartition("/")[0]
        name = f"{served.plural}.{group}" if group else served.plural
        self.names[kind] = (name, served.namespaced)
        if CATEGORY in served.categories:
            self.kept.add(name)
        informer: Informer[Packed] = resource.informer(labels=SYNC_LABEL, indexes={"sync": lambda one: [sync_of(one)]})
        self._informers[kind] = informer
        informer.subscribe(lambda key: self._changed(kind, key))
        informer.start()

    def get(self, kind: Kind, child: Child) -> Packed | None:
        """One that some Sync has applied, as it was last heard of."""
        informer = self._informers.get(kind)
        return informer.get(child.name, child.namespace) if informer is not None and informer.synced else None

    def find(self, kind: Kind, key: Key) -> Packed | None:
        return self._informers[kind].at(key)

    def of(self, uid: str) -> dict[Child, Packed]:
        """All that has the label of this Sync. Raises `NotYet` where some of it cannot be read."""
        found: dict[Child, Packed] = {}
        for (version, kind), informer in self._informers.items():
            if not informer.synced:
                raise NotYet(
                    f"objects of {version} {kind} cannot be read: {informer.problem or 'they were not read yet'}"
                )
            group = version.rpartition("/")[0]
            for one in informer.indexed("sync", uid):
                found[Child(group, kind, one.key.namespace, one.key.name)] = one
        return found

    async def listed(self, *, fresh: bool) -> dict[Key, Verified]:
        """In which state each is, by the key that it is declared under; `fresh` asks the server."""
        await asyncio.sleep(0)
        now: dict[Key, Verified] = {}
        for kind, informer in list(self._informers.items()):
            plural = self.names[kind][0]
            found = await self._client.kind(*kind, Packed).list(labels=SYNC_LABEL) if fresh else informer.all()
            now.update((Key(one.key.namespace, f"{plural}/{one.key.name}"), Verified(one.uid, one.revision)) for one in found)
        return now


def sync_of(packed: Packed) -> str:
    """The uid of the Sync that an object says it is of."""
    labels = orjson.loads(packed.body)["metadata"].get("labels") or {}
    return str(labels.get(SYNC_LABEL, ""))
