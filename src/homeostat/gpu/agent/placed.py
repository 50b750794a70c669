"""Workloads as they are declared, and which nodes they have to do with. What agents and bridges act on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from homeostat.client import Client, Informer, Key, Packed
from homeostat.gpu.agent.wanted import Declared, declared, nodes_of
from homeostat.gpu.kinds import WORKLOAD
from homeostat.model.errors import ApiError


class Placed:
    """A copy of all workloads that keeps itself current, while an `async with` lasts."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.informer = self._copy()
        self._fresh = client.kind(WORKLOAD.api_version, WORKLOAD.kind)

    def _copy(self) -> Informer[Packed]:
        return self._client.kind(WORKLOAD.api_version, WORKLOAD.kind, Packed).informer(
            indexes={"uid": lambda one: (one.uid,), "node": nodes_of}
        )

    async def __aenter__(self) -> Self:
        self.informer.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.informer.stop()

    async def read_anew(self, when: asyncio.Event, tell: Callable[[Key], None]) -> None:
        """Whenever the server went back in time, begins anew: a copy that is ahead of its server hears nothing of it."""
        while True:
            await when.wait()
            when.clear()
            old, fresh = self.informer, self._copy()
            fresh.start()
            try:
                await fresh.wait_synced()
            except BaseException:
                await fresh.stop()
                raise
            self.informer = fresh
            fresh.subscribe(tell)
            await old.stop()
            for key in {one.key for one in (*old.all(), *fresh.all())}:
                tell(key)

    def find(self, uid: str) -> Packed | None:
        """One as it came; None where it is no more."""
        return next(iter(self.informer.indexed("uid", uid)), None)

    def on(self, node: str) -> Iterable[Packed]:
        """All that this node has to do with."""
        return self.informer.indexed("node", node)

    def declared(self, uid: str) -> Declared | None:
        """One in typed form; None where it is no more. `InvalidSpec` where it does not fit its type."""
        found = self.find(uid)
        return None if found is None else declared(found.load())

    def reports(self, uid: str, node: str) -> list[dict[str, Any]]:
        """What is reported of one from this node at present."""
        found = self.find(uid)
        reports = () if found is None else found.load().get("status", {}).get("reports", ())
        return [one for one in reports if one["node"] == node]

    async def is_current(self, workload: Declared) -> bool:
        """Whether the server has a workload as it is known here. Where it does not, the news of that is on its way."""
        try:
            return declared(await self._fresh.get(workload.name, namespace=workload.namespace)) == workload
        except ApiError as error:
            if error.code == 404:
                return False
            raise
