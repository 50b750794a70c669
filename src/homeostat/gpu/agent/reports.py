"""Writes what an agent did into `status.reports` of workloads: its own entries, and nobody else's, by server-side apply."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from homeostat.client import Client, Key, Unreachable
from homeostat.client.backoff import Backoff
from homeostat.gpu.kinds import WORKLOAD, Report, in_short
from homeostat.model.errors import ApiError
from homeostat.model.kinds import encode

log = logging.getLogger("homeostat.gpu.agent")

MANAGER = "homeostat-agent"
_LONGEST_MANAGER = 128


class Reporting(Protocol):
    """What has something to report."""

    def report(self) -> Report | None:
        """What is told; None where there is nothing yet."""


class Entries(NamedTuple):
    """A workload, what is to be reported of it from here, and what is reported at present."""

    key: Key
    hosted: Sequence[Reporting]
    reported: Sequence[dict[str, Any]]


def manager_of(node: str) -> str:
    """The field manager of a node's agent. Each has its own, so that what one leaves out is not taken from another."""
    name = f"{MANAGER}-{node}"
    if len(name) <= _LONGEST_MANAGER:
        return name
    return f"{MANAGER}-{hashlib.sha256(node.encode()).hexdigest()[:32]}"


class Reports:
    """Tells the server of workloads of which something changed. Of changes that come while it tells, the last counts."""

    def __init__(self, client: Client, node: str, entries: Callable[[str], Entries | None]) -> None:
        self._workloads = client.kind(WORKLOAD.api_version, WORKLOAD.kind)
        self._manager = manager_of(node)
        self._entries = entries
        self._waiting: dict[str, None] = {}
        self._wake = asyncio.Event()
        self._backoff = Backoff(first=0.5, most=30.0, source=client.random)

    def changed(self, uid: str) -> None:
        """Something of this workload is new."""
        self._waiting[uid] = None
        self._wake.set()

    async def run(self) -> None:
        """Tells, until it is cancelled. What the server does not take now is told later."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            uids, self._waiting = self._waiting, {}
            outcomes = await asyncio.gather(*(self._tell(uid) for uid in uids))
            if all(outcomes):
                self._backoff.reset()
                continue
            await self._backoff.rest(self._backoff.next())

    def hurry(self) -> None:
        """The server can be reached again: what it did not take is told now."""
        self._backoff.hurry()

    async def _tell(self, uid: str) -> bool:
        """Says whether it is told, or nobody wants to know."""
        found = self._entries(uid)
        if found is None:
            return True
        key = found.key
        said = [report for one in found.hosted if (report := one.report()) is not None]
        reports = [encode(replace(report, reason=in_short(report.reason))) for report in said]
        if reports == found.reported:
            return True
        obj = {
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid},
            "status": {"reports": reports} if reports else {},
        }
        try:
            await self._workloads.apply(obj, field_manager=self._manager, force=True, subresource="status")
        except ApiError as error:
            if error.reason in ("NotFound", "Conflict"):
                return True  # it is gone, or another one has its name now
            log.warning("workload %s could not be told of its replicas here: %s", key, error.message)
        except Unreachable as error:
            log.info("workload %s will be told later: %s", key, error)
        else:
            return True
        self._waiting[uid] = None
        self._wake.set()
        return False
