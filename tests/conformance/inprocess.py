"""Our control plane inside the test: for what a server does only after hours, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from homeostat.api.audit import AuditLog
from homeostat.api.auth import pki
from homeostat.api.auth.authenticate import Peer
from homeostat.api.auth.serviceaccounts import SigningKey
from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.plane import ControlPlane
from homeostat.api.request import Request
from homeostat.model.clock import Clock
from homeostat.store import SqliteStore

ADMIN = Peer(User("admin", "", (MASTERS, AUTHENTICATED)), float("inf"))


class ManualClock(Clock):
    """Time that stands until it is moved."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        super().__init__()
        self.seconds = now

    def now(self) -> float:
        return self.seconds


class Gathered:
    """A stream that keeps what is written to it."""

    closed = stopping = congested = False
    notify: Any = None

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    async def drained(self) -> None:
        pass


class Inside:
    """A plane, and requests to it that never touch a socket."""

    def __init__(self, plane: ControlPlane, clock: ManualClock) -> None:
        self.plane = plane
        self.clock = clock

    async def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        """The status and the decoded body; of a watch, its lines until it ends."""
        headers = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
        encoded = b"" if body is None else orjson.dumps(body)
        response = await self.plane.handle(Request(method, target, headers, encoded, ADMIN))
        if response.stream is None:
            return response.status, orjson.loads(response.body)
        gathered = Gathered()
        await response.stream(gathered)
        return response.status, [orjson.loads(line) for line in gathered.data.splitlines()]


@asynccontextmanager
async def inside(directory: Path) -> AsyncIterator[Inside]:
    """A control plane on a clock of its own; its state is under `directory`."""
    pki.ensure_signing_key(directory / "pki")
    clock = ManualClock()
    store = await SqliteStore.open(directory / "data", durable=False)
    plane = ControlPlane(
        store, signing_key=SigningKey(directory / "pki"), audit=AuditLog(directory / "audit.log"), clock=clock
    )
    await plane.start()
    try:
        yield Inside(plane, clock)
    finally:
        await plane.stop()
        await store.close()
