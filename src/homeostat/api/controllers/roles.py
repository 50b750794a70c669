"""Cluster roles that are made of others are kept as the sum of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import orjson

from homeostat.api.auth.aggregation import aggregate
from homeostat.api.auth.rbac import GROUP, PLURALS
from homeostat.api.controllers.worker import Worker
from homeostat.api.resource import Object
from homeostat.model.errors import ApiError
from homeostat.store import Event

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

CLUSTER_ROLES = f"{PLURALS['ClusterRole']}.{GROUP}"


class RoleAggregation:
    """Recomputes aggregated roles whenever any cluster role changes."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._roles: dict[str, Object] = {}
        self._worker = Worker("role-aggregation", self._aggregate)

    async def start(self) -> None:
        await self._plane.follower.follow(f"{CLUSTER_ROLES}/", self._changed)
        self._worker.start()

    async def stop(self) -> None:
        await self._worker.stop()

    def _changed(self, event: Event) -> None:
        if event.value is None:
            self._roles.pop(event.key, None)
        else:
            self._roles[event.key] = orjson.loads(event.value)
        self._worker.add("all")

    async def _aggregate(self, _: str) -> None:
        failed: ApiError | None = None
        for role in aggregate(self._roles.values()):
            try:
                await self._plane.act(CLUSTER_ROLES, "", role["metadata"]["name"], _with_rules(role["rules"]))
            except ApiError as error:
                failed = error  # one that grew too large is no reason to forget the others
        if failed is not None:
            raise failed


def _with_rules(rules: list[Object]) -> Callable[[Object], Object]:
    return lambda live: {**live, "rules": rules}
