"""A control plane in process, a loop that keeps Syncs, and a repository."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.loop.waiting import said, whole_pass
from tests.sources.repo import Repo

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.loop.engine import Engine
from homeostat.sources.kinds import API
from homeostat.sources.sync import Sync

Object = dict[str, Any]
WAIT_SECONDS = 20.0


class Bench:
    """One loop, and what a test asks of it."""

    def __init__(self, client: Client, repo: Repo, directory: Path) -> None:
        self.client, self.repo, self.directory = client, repo, directory
        self.syncs = client.kind(API, "Sync", namespace="default")
        self.sources = client.kind(API, "GitSource", namespace="default")
        self.maps = client.kind("v1", "ConfigMap", namespace="default")
        self.sync: Sync
        self.engine: Engine
        self.keeper: Keeper

    def make(self) -> Sync:
        return Sync(self.directory)

    async def start(self, mode: Mode = Mode.ENFORCE) -> None:
        self.sync = self.make()
        gate = PolicyGate(mode=mode)
        self.engine = Engine(self.client, [], gate, settle=0.01, workers=4, composers=[self.sync])
        self.keeper = Keeper(self.client, gate, self.engine.controllers)
        self.keeper.attach(self.engine)
        await self.keeper.start()
        await self.engine.start()

    async def stop(self) -> None:
        await self.engine.stop()
        await self.keeper.stop()

    async def declare_source(self, name: str = "repo", **spec: Any) -> None:
        await self.sources.apply(
            {"metadata": {"name": name}, "spec": {"url": str(self.repo.path), "interval": "1h", **spec}},
            field_manager="test",
            force=True,
        )

    async def declare(
        self, name: str = "shop", source: str = "repo", metadata: Object | None = None, **spec: Any
    ) -> None:
        obj = {"metadata": {"name": name, **(metadata or {})}, "spec": {"source": {"name": source}, **spec}}
        await self.syncs.apply(obj, field_manager="test", force=True)

    async def begin(self, **spec: Any) -> Object:
        """Declares source and Sync, and waits until it is applied."""
        await self.declare_source()
        await self.declare(**spec)
        return await self.at(self.repo.git("rev-parse", "HEAD"))

    async def push(self, files: dict[str, str | None], message: str = "change") -> str:
        """A commit, and the source is told."""
        commit = self.repo.commit(files, message)
        self.poke()
        return commit

    def poke(self, name: str = "repo") -> None:
        from homeostat.client import Key

        assert self.sync.running is not None
        self.sync.running.sources.poke(Key("default", name))

    async def values(self) -> dict[str, str]:
        return {o["metadata"]["name"]: o["data"]["value"] for o in await self.maps.list(labels="homeostat.dev/sync")}

    async def until(self, holds: Callable[[Object], bool], name: str = "shop") -> Object:
        found: Object = {}
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not holds(found := await self.syncs.get(name)):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"Sync {name} never was so; it is {found.get('status')}") from None
        return found

    async def at(self, commit: str, name: str = "shop") -> Object:
        """Waits until the Sync is Ready at this commit."""
        return await self.until(
            lambda obj: (obj.get("status") or {}).get("commit") == commit and said(obj).get("status") == "True", name
        )

    async def says(self, reason: str, name: str = "shop") -> Object:
        return await self.until(lambda obj: said(obj).get("reason") == reason, name)

    async def eventually(self, holds: Callable[[], Awaitable[bool]], what: str = "it") -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not await holds():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{what} never was so; there is {await self.values()}") from None

    async def whole_pass(self) -> None:
        await whole_pass(self.engine)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0), durable=False)
    await server.start()
    client = local_client(server.plane, "loop")
    yield client
    await client.close()
    await server.stop()


@pytest.fixture
async def bench(client: Client, repo: Repo, tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(client, repo, tmp_path / "copies")
    await bench.start()
    yield bench
    await bench.stop()
