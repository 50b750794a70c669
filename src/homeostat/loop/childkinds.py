"""The kinds that a composer's children are of, and a copy of all objects of each.

Which kinds they ever were of is written down with the composer's definition before the first child of a kind is made, so that a restart
loses sight of none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Any

from homeostat.client import Client, Informer, Key, Packed
from homeostat.loop.compose import Child, named_kinds, read_kinds
from homeostat.loop.controller import MANAGER
from homeostat.loop.provider import CATEGORY
from homeostat.model.protocol import CHILD_KINDS

Kind = tuple[str, str]
"""apiVersion and kind."""


class Unread(Exception):
    """Objects of a kind were not read yet: nobody knows which children there are."""


class ChildKinds:
    """Follows kinds of children. `changed` is called for each object that changes, `read` when all of a kind were read."""

    def __init__(self, client: Client, definition: str, changed: Callable[[Kind, Key], None], read: Callable[[], None]) -> None:
        self._client = client
        self._definition = definition
        self._changed, self._read = changed, read
        self._informers: dict[Kind, Informer[Packed]] = {}
        self._waiting: set[asyncio.Task[None]] = set()
        self.names: dict[Kind, str] = {}
        """plural.group"""
        self.scopes: dict[Kind, bool] = {}
        """Whether objects of it are in a namespace."""
        self.kept: set[str] = set()
        """Those (plural.group) that a loop keeps itself."""

    async def begin(self) -> None:
        """Follows all kinds that children were ever of, and waits until they are read."""
        for kind in await self._ever():
            await self.learn(kind)
        await asyncio.gather(*(informer.wait_synced() for informer in self._informers.values()))

    async def stop(self) -> None:
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)
        for informer in self._informers.values():
            await informer.stop()

    async def learn(self, kind: Kind) -> None:
        """Follows the objects of a kind from now on."""
        if kind in self._informers:
            return
        resource = self._client.kind(*kind, Packed)
        served = await resource.served()
        ever = await self._ever()
        if kind not in ever:
            note = {"metadata": {"annotations": {CHILD_KINDS: ",".join(named_kinds(ever | {kind}))}}}
            await self._definitions().patch(self._definition, note, field_manager=f"{MANAGER}-composer")
        if kind in self._informers:
            return  # another parent was faster
        group = kind[0].rpartition("/")[0]
        name = self.names[kind] = f"{served.plural}.{group}" if group else served.plural
        self.scopes[kind] = served.namespaced
        if CATEGORY in served.categories:
            self.kept.add(name)
        informer = self._informers[kind] = resource.informer(indexes={"owner": lambda one: [one.owner] if one.owner else []})
        informer.subscribe(lambda key: self._changed(kind, key))
        informer.start()
        task = asyncio.get_running_loop().create_task(self._tell(informer), name=f"children of kind {name}")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _tell(self, informer: Informer[Packed]) -> None:
        await informer.wait_synced()
        self._read()

    async def _ever(self) -> set[Kind]:
        crd = await self._definitions().get(self._definition)
        text = (crd["metadata"].get("annotations") or {}).get(CHILD_KINDS, "")
        return read_kinds(text.split(",")) if text else set()

    def _definitions(self) -> Any:
        return self._client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")

    # What there is

    def get(self, kind: Kind, key: Key) -> Packed | None:
        """One object of a kind, as it was last heard of."""
        return self._informers[kind].at(key)

    def all(self) -> Iterator[Packed]:
        """All objects of the kinds that were read."""
        for informer in self._informers.values():
            if informer.synced:
                yield from informer.all()

    def of(self, owners: Collection[str]) -> dict[Child, Packed]:
        """What these uids control. Raises `Unread` while that cannot be told."""
        found: dict[Child, Packed] = {}
        for (version, kind), informer in self._informers.items():
            if not informer.synced:
                raise Unread(f"objects of {version} {kind} cannot be read: {informer.problem}" if informer.problem else "")
            for uid in owners:
                for one in informer.indexed("owner", uid):
                    found[Child(version.rpartition("/")[0], kind, one.key.namespace, one.key.name)] = one
        return found

    async def listed(self, *, fresh: bool) -> Iterator[tuple[str, Packed]]:
        """The objects of all kinds with the name of theirs: read anew, or as they were last heard of."""
        found: list[tuple[str, Packed]] = []
        for kind, informer in self._informers.items():
            objects = await self._client.kind(*kind, Packed).list() if fresh else informer.all()
            found += ((self.names[kind], one) for one in objects)
        return iter(found)
