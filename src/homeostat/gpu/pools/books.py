"""What a pool was asked for, in its status. An entry is made before a node is asked for, so that whoever comes after a crash asks by the same key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from homeostat.client import Client
from homeostat.gpu.kinds import POOL, PoolNode
from homeostat.gpu.pools.standing import machines_of
from homeostat.loop.provider import Moved
from homeostat.model.errors import ApiError
from homeostat.model.kinds import encode

TRIES = 8
"""How often an entry is made while others write to the same status."""
MANAGER = "homeostat-pools"

Change = Callable[[Sequence[PoolNode]], Iterable[PoolNode]]
More = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""From the status of a pool to what else is to stand in it."""


class Books:
    """The entries of all pools. Every change is made to what is stored at that moment."""

    def __init__(self, client: Client) -> None:
        self._pools = client.kind(POOL.api_version, POOL.kind)

    async def change(self, name: str, uid: str, change: Change, more: More | None = None) -> tuple[PoolNode, ...]:
        """Makes a change and gives the entries then; with it goes `more`. `Moved` where the pool is another by now, or is never left alone."""
        for _ in range(TRIES):
            obj = await self._pools.get(name)
            if obj["metadata"]["uid"] != uid:
                raise Moved("another pool has taken its name")
            before = machines_of(obj)
            after = tuple(change(before))
            if after == before:
                return before
            status = obj.get("status") or {}
            wire: dict[str, Any] = {"machines": [encode(one, defaults=False) for one in after], **(more(status) if more else {})}
            coming = status.get("coming", 0) + _expected(after) - _expected(before)
            same = {field: obj["metadata"][field] for field in ("uid", "resourceVersion")}
            patch = {"metadata": same, "status": {**wire, "coming": max(coming, 0)}}
            try:
                await self._pools.patch(name, patch, subresource="status", field_manager=MANAGER)
                return after
            except ApiError as error:
                if error.reason != "Conflict":
                    raise
        raise Moved("its status is being written to all the time")


def _expected(machines: Sequence[PoolNode]) -> int:
    return sum(not one.refused for one in machines)
