"""The control plane without HTTP: a transport for the client that hands requests straight to `ControlPlane.respond`.

The same requests, authorization, validation and audit as over the network, less the network. Use it in the event loop
of the control plane.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from homeostat.api.auth.authenticate import Peer
from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.http import HIGH_WATER
from homeostat.api.plane import ControlPlane
from homeostat.api.request import Request, Response, Said
from homeostat.client import Client
from homeostat.client.transport import Headers, Reply, Unreachable

log = logging.getLogger("homeostat.api")


def local_client(plane: ControlPlane, name: str, groups: tuple[str, ...] = (MASTERS,), **options: Any) -> Client:
    """A client of a control plane in the same process that acts as the user `name`, who may do everything by default.

    Close it before the control plane stops. `options` are those of `Client`; it waits without a `timeout` unless one is
    given, for an answer cannot get lost on the way.
    """
    user = User(name, "", tuple(dict.fromkeys([*groups, AUTHENTICATED])))
    options.setdefault("user_agent", name)
    options.setdefault("timeout", None)
    options.setdefault("streams_lists", False)
    return Client(LocalTransport(plane, user), **options)


class LocalTransport:
    """Carries a client's requests to a control plane as one user."""

    def __init__(self, plane: ControlPlane, user: User) -> None:
        self._plane = plane
        self._peer = Peer(user, float("inf"))
        self._open: set[LocalAnswer] = set()

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Reply | LocalAnswer:
        response = await self._plane.respond(Request(method, target, _raw(tuple(headers)), body, self._peer))
        if response.stream is not None:
            return LocalAnswer(response, self._open)
        return Reply(response.status, _headers(tuple(response.headers)), response.body, response.error)

    async def close(self) -> None:
        streams = [answer.task for answer in self._open]
        for answer in tuple(self._open):
            answer.close()
        await asyncio.gather(*streams)


@lru_cache(64)
def _raw(headers: tuple[tuple[str, str], ...]) -> Said:
    """Headers as the server has them: of one client the same each time."""
    return Said((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers)


@lru_cache(64)
def _headers(raw: tuple[tuple[bytes, bytes], ...]) -> Mapping[str, str]:
    """Headers as the client has them: most answers say no more than that they are JSON."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(raw)}


class LocalAnswer:
    """A streaming response as the client reads it, and the `Stream` that the server writes to."""

    def __init__(self, response: Response, open_answers: set[LocalAnswer]) -> None:
        self.status = response.status
        self.headers = _headers(tuple(response.headers))
        self.closed = False
        self.stopping = False
        self.notify: Callable[[], None] | None = None
        self._pieces: deque[bytes] = deque()
        self._waiting = 0
        self._arrived = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._ended = False
        self._failure: Unreachable | None = None
        self._open = open_answers
        self._open.add(self)
        self.task = asyncio.get_running_loop().create_task(self._run(response))

    async def _run(self, response: Response) -> None:
        assert response.stream is not None
        try:
            await response.stream(self)
        except Exception as error:
            log.exception("a stream failed")
            self._failure = Unreachable(f"the stream broke off: {error}")
        finally:
            self._ended = True
            self._arrived.set()
            self._open.discard(self)

    # The server's side

    def write(self, data: bytes) -> None:
        if not self.closed:
            self._pieces.append(data)
            self._waiting += len(data)
            self._arrived.set()

    @property
    def congested(self) -> bool:
        return self._waiting > HIGH_WATER

    async def drained(self) -> None:
        while self.congested and not self.closed:
            self._caught_up.clear()
            await self._caught_up.wait()

    # The client's side

    async def read(self) -> bytes:
        pieces = []
        while piece := await self.piece():
            pieces.append(piece)
        return b"".join(pieces)

    async def piece(self) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._ended or self.closed:
                return b""
            self._arrived.clear()
            await self._arrived.wait()
        data = self._pieces.popleft()
        congested = self.congested
        self._waiting -= len(data)
        if congested and not self.congested:
            self._wake()
        return data

    def close(self) -> None:
        self.closed = True
        self._arrived.set()
        self._wake()

    def _wake(self) -> None:
        self._caught_up.set()
        if self.notify is not None:
            self.notify()
