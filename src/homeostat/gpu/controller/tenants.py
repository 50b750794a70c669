"""Tenants are held while something of them may be on GPUs: else what runs would count in no quota from the moment its tenant is deleted.

Our finalizer is put on a tenant before the first of its workloads is placed. One that is deleted stays until nothing of it holds GPUs: what runs
counts for it and for its cohort and ends by itself, and nothing more of it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator
from typing import Any

from homeostat.client import Client, Informer, Unreachable
from homeostat.gpu.controller.standing import Object
from homeostat.gpu.kinds import TENANT
from homeostat.gpu.snapshot import Snapshot, holders
from homeostat.loop.provider import Moved
from homeostat.model.errors import ApiError
from homeostat.model.protocol import FINALIZER

log = logging.getLogger("homeostat.gpu")

TRIES = 5
AT_ONCE = 16
"""Tenants that are written at the same time."""


class Holding:
    """Our finalizer on tenants. `informer` has them all."""

    def __init__(self, client: Client, informer: Informer[Any], manager: str) -> None:
        self._tenants = client.kind(TENANT.api_version, TENANT.kind)
        self._informer = informer
        self._manager = manager
        self._written: set[str] = set()  # by uid: those that we hold, and the informer may not show so yet
        self._locks: dict[str, asyncio.Lock] = {}

    async def hold(self, name: str) -> None:
        """Makes sure that a tenant does not go while something of it is on GPUs. `Moved` where it is no more, or is being deleted."""
        if self._is_held(name):
            return
        async with self._locks.setdefault(name, asyncio.Lock()):
            if not self._is_held(name):
                await self._write(name, on=True)
        self._locks.pop(name, None)

    def _is_held(self, name: str) -> bool:
        tenant = self._informer.get(name)
        if tenant is None or "deletionTimestamp" in tenant["metadata"]:
            raise Moved(f"the tenant {name} is being deleted, or is no more")
        return self._shows_held(tenant) or tenant["metadata"]["uid"] in self._written

    async def keep(self, snapshot: Snapshot) -> None:
        """Holds those of which something is on GPUs, and lets go of those that were deleted and of which nothing is."""
        due = list(self._due(holders(snapshot), snapshot.departing))
        for first in range(0, len(due), AT_ONCE):
            some = due[first : first + AT_ONCE]
            for found in await asyncio.gather(*(self._write(name, on=on) for name, on in some), return_exceptions=True):
                if isinstance(found, ApiError | Unreachable):
                    log.info("a tenant will be held or let go later: %s", found)
                elif isinstance(found, BaseException) and not isinstance(found, Moved):
                    raise found

    def _due(self, busy: Collection[str], departing: Collection[str]) -> Iterator[tuple[str, bool]]:
        """Names, and whether each is to be held. Who was deleted is let go by a decision that knew of it: an earlier one may have begun something."""
        for tenant in self._informer.all():
            name, held = tenant["metadata"]["name"], self._shows_held(tenant)
            if held and name in departing and name not in busy:
                yield name, False
            elif not held and name in busy and name not in departing and tenant["metadata"]["uid"] not in self._written:
                yield name, True

    def _shows_held(self, tenant: Object) -> bool:
        held = FINALIZER in (tenant["metadata"].get("finalizers") or ())
        if held:
            self._written.discard(tenant["metadata"]["uid"])  # from now on the informer knows better
        return held

    async def _write(self, name: str, *, on: bool) -> None:
        """Puts our finalizer on or takes it off, by what the server has now."""
        for _ in range(TRIES):
            try:
                tenant: Object = await self._tenants.get(name)
                metadata = tenant["metadata"]
                if on is ("deletionTimestamp" in metadata):
                    raise Moved(f"the tenant {name} {'is being deleted' if on else 'was made anew'}")
                others = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
                same = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
                body = {"metadata": {**same, "finalizers": [*others, FINALIZER] if on else others}}
                await self._tenants.patch(name, body, field_manager=self._manager)
            except ApiError as error:
                if error.reason == "NotFound":
                    raise Moved(f"the tenant {name} is no more") from error
                if error.reason != "Conflict":
                    raise
            else:
                (self._written.add if on else self._written.discard)(metadata["uid"])
                return
        raise Moved(f"the tenant {name} is being written by others")
