"""Garbage that was left when the server went down, and what goes while a start is still looking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.controllers import garbage
from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Resource
from homeostat.store import Event

Maps = Resource[dict[str, Any]]


@asynccontextmanager
async def served(data: Path) -> AsyncIterator[Maps]:
    server = Server(data, Listen("127.0.0.1", 0), durable=False)
    await server.start()
    try:
        yield local_client(server.plane, "user").kind("v1", "ConfigMap", namespace="default")
    finally:
        await server.stop()


async def make(maps: Maps, name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]} for one in owners]
    return await maps.create({"metadata": {"name": name, "ownerReferences": references}})


async def until_gone(maps: Maps, *names: str) -> None:
    async with asyncio.timeout(20):
        while {obj["metadata"]["name"] for obj in await maps.list()} & set(names):
            await asyncio.sleep(0.01)


async def test_whose_owner_went_just_before_the_end_goes_after_the_start(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as before:
        before.setattr(garbage.GarbageCollector, "_look_at", _too_late)
        async with served(tmp_path) as maps:
            left, stays = await make(maps, "left"), await make(maps, "stays")
            await make(maps, "of-left", left)
            await make(maps, "of-stays", stays)
            await make(maps, "of-both", left, stays)
            await maps.delete("left")
    async with served(tmp_path) as maps:
        await until_gone(maps, "of-left")
        async with asyncio.timeout(20):
            while len((await maps.get("of-both"))["metadata"]["ownerReferences"]) > 1:
                await asyncio.sleep(0.01)
        assert [obj["metadata"]["name"] for obj in await maps.list()] == ["of-both", "of-stays", "stays"]


async def _too_late(collector: garbage.GarbageCollector, key: str) -> None:
    """The server ends before anything is looked at."""


async def test_whose_owner_goes_between_the_look_at_both_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path) as maps:
        owner = await make(maps, "a-owner")
        for number in range(20):
            await make(maps, f"between-{number}")
        await make(maps, "of-owner", owner)
    monkeypatch.setattr(garbage, "LEISURE_PAGE", 1)
    monkeypatch.setattr(garbage, "LEISURE_START", 0.0)
    looked, seen = asyncio.Event(), list[str]()
    found = garbage.GarbageCollector._found

    def notice(collector: garbage.GarbageCollector, event: Event) -> None:
        found(collector, event)
        seen.append(event.key.rpartition("/")[2])
        if seen[-1] == "a-owner":
            looked.set()

    monkeypatch.setattr(garbage.GarbageCollector, "_found", notice)
    async with served(tmp_path) as maps:
        await looked.wait()
        await maps.delete("a-owner")
        assert "of-owner" not in seen
        await until_gone(maps, "of-owner")
        assert len(await maps.list()) == 20
