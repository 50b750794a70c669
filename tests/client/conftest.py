"""One control plane, and clients on it: over HTTPS and in process, and on another cluster where one is named.

`HOMEOSTAT_TEST_KUBECONFIG` names a kubeconfig of a kube-apiserver on which the same tests run as well.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.local import LocalTransport
from homeostat.api.server import Listen, Server
from homeostat.client import Answer, Client, Resource, Unreachable
from homeostat.client.transport import Headers
from homeostat.model.errors import ApiError

ELSEWHERE = os.environ.get("HOMEOSTAT_TEST_KUBECONFIG", "")
WAYS = ["https", "local", *(["cluster"] if ELSEWHERE else [])]


class RoughTransport:
    """A transport on which things go wrong when a test says so."""

    def __init__(self, inner: LocalTransport) -> None:
        self._inner = inner
        self.refusals: list[tuple[str, ApiError | Unreachable]] = []
        """The next requests whose target holds the text are answered so."""
        self.sent: list[tuple[str, str]] = []
        self.streams: list[RoughAnswer] = []

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        self.sent.append((method, target))
        for index, (part, refusal) in enumerate(self.refusals):
            if part in f"{method} {target}":
                del self.refusals[index]
                if isinstance(refusal, Unreachable):
                    raise refusal
                return Refusal(refusal)
        answer = await self._inner.send(method, target, headers, body)
        if "watch=true" not in target or answer.status >= 400:
            return answer
        self.streams.append(RoughAnswer(answer))
        return self.streams[-1]

    async def close(self) -> None:
        await self._inner.close()


class Refusal:
    """An answer that says no."""

    def __init__(self, error: ApiError) -> None:
        self.status = error.code
        self.headers: Mapping[str, str] = {"retry-after": str(error.retry_after)} if error.retry_after else {}
        self._error = error

    async def read(self) -> bytes:
        import orjson

        return orjson.dumps(self._error.status())

    async def piece(self) -> bytes:
        return b""

    def close(self) -> None: ...


class RoughAnswer:
    """A stream that can be cut or fall silent; it can also say what no server said."""

    def __init__(self, inner: Answer) -> None:
        self._inner = inner
        self.status, self.headers = inner.status, inner.headers
        self._cut = asyncio.Event()
        self.silent = False
        self.closed = False
        self.says = b""

    def cut(self) -> None:
        self._cut.set()

    async def read(self) -> bytes:
        return await self._inner.read()

    async def piece(self) -> bytes:
        if self.says:
            said, self.says = self.says, b""
            return said
        reading = asyncio.ensure_future(self._inner.piece())
        cutting = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait([reading, cutting], return_when=asyncio.FIRST_COMPLETED)
            if self._cut.is_set():
                if self.says:
                    return self.says
                raise Unreachable("the stream was cut")
            piece = reading.result()
        finally:
            cutting.cancel()
            reading.cancel()
        if self.silent:
            await asyncio.Event().wait()
        return piece

    def close(self) -> None:
        self.closed = True
        self._inner.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A control plane in the event loop of the test."""
    server = Server(tmp_path / "data", Listen(port=0), durable=False)
    await server.start()
    yield server
    await server.stop()


def _user() -> User:
    return User("tester", "", (MASTERS, AUTHENTICATED))


@pytest.fixture
def rough(server: Server) -> RoughTransport:
    return RoughTransport(LocalTransport(server.plane, _user()))


@pytest.fixture
async def rough_client(rough: RoughTransport) -> AsyncIterator[Client]:
    """A client in process on a transport on which things go wrong."""
    async with Client(rough, source=random.Random(7)) as client:
        yield client


@pytest.fixture(params=WAYS)
async def client(request: pytest.FixtureRequest, server: Server) -> AsyncIterator[Client]:
    """A client of a namespace of its own."""
    if request.param == "cluster":
        made = Client.from_kubeconfig(ELSEWHERE)
    elif request.param == "https":
        made = Client.from_kubeconfig(server.kubeconfig)
    else:
        made = Client(LocalTransport(server.plane, _user()))
    async with made as client:
        namespaces = client.kind("v1", "Namespace")
        created = await namespaces.create({"metadata": {"generateName": "client-"}})
        client.namespace = created["metadata"]["name"]
        yield client
        await namespaces.delete(client.namespace)


@pytest.fixture
def config_maps(client: Client) -> Resource[dict[str, Any]]:
    return client.kind("v1", "ConfigMap", namespace=client.namespace)


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}
