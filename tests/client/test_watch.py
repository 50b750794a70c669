"""Watches: complete, in order, over as many connections as it takes."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from homeostat.api.server import Server
from homeostat.client import Client, Resource, Watch
from homeostat.client.transport import Unreachable
from homeostat.client.watch import Lines
from homeostat.model.errors import ApiError, expired, forbidden, unavailable

from .conftest import RoughTransport, config_map

Maps = Resource[dict[str, Any]]


async def next_of(events: Watch[dict[str, Any]]) -> tuple[str, str]:
    async with asyncio.timeout(20):
        event = await anext(events)
    return event.type, event.object["metadata"]["name"]


async def test_it_gives_what_is_there_and_then_what_changes(config_maps: Maps) -> None:
    await config_maps.create(config_map("a", {"mine": "1"}))
    async with config_maps.watch(labels="mine") as events:
        assert await next_of(events) == ("ADDED", "a")
        await config_maps.create(config_map("b", {"mine": "1"}))
        await config_maps.create(config_map("other"))
        await config_maps.patch("a", {"data": {"x": "1"}})
        await config_maps.patch("b", {"metadata": {"labels": {"mine": None}}})
        await config_maps.delete("a")
        seen = [await next_of(events) for _ in range(4)]
    assert seen == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b"), ("DELETED", "a")]


async def test_it_goes_on_from_a_version(config_maps: Maps) -> None:
    made = await config_maps.create(config_map("a"))
    await config_maps.create(config_map("b"))
    async with config_maps.watch(resource_version=made["metadata"]["resourceVersion"]) as events:
        assert await next_of(events) == ("ADDED", "b")


async def test_a_cut_connection_loses_nothing_and_doubles_nothing(rough_client: Client, rough: RoughTransport) -> None:
    maps = rough_client.kind("v1", "ConfigMap", namespace="default")
    async with maps.watch() as events:
        reading = asyncio.create_task(next_of(events))
        await maps.create(config_map("a"))
        assert await reading == ("ADDED", "a")
        rough.streams[-1].cut()
        await maps.create(config_map("b"))
        rough.refusals += [("watch=true", unavailable("busy")), ("watch=true", Unreachable("no route", sent=False))]
        await maps.delete("a")
        assert [await next_of(events), await next_of(events)] == [("ADDED", "b"), ("DELETED", "a")]
    assert all(stream.closed for stream in rough.streams)


async def test_a_silent_connection_is_given_up(rough_client: Client, rough: RoughTransport) -> None:
    maps = rough_client.kind("v1", "ConfigMap", namespace="default")
    async with maps.watch(idle=0.2) as events:
        reading = asyncio.create_task(next_of(events))
        while not rough.streams:
            await asyncio.sleep(0)
        rough.streams[0].silent = True
        await maps.create(config_map("a"))
        assert await reading == ("ADDED", "a")
    assert len(rough.streams) > 1


async def test_a_forgotten_past_is_said(rough_client: Client, rough: RoughTransport, server: Server) -> None:
    maps = rough_client.kind("v1", "ConfigMap", namespace="default")
    first = await maps.create(config_map("a"))
    await maps.patch("a", {"data": {"x": "1"}})
    await maps.patch("a", {"data": {"x": "2"}})
    await server.store.compact(server.store.revision)
    with pytest.raises(ApiError) as old:
        await next_of(maps.watch(resource_version=first["metadata"]["resourceVersion"]))
    assert old.value.code == 410
    rough.refusals.append(("watch=true", expired("too old resource version")))
    with pytest.raises(ApiError) as said:
        await next_of(maps.watch(resource_version="1"))
    assert said.value.reason == "Expired"


async def test_a_refusal_is_raised(rough_client: Client, rough: RoughTransport) -> None:
    maps = rough_client.kind("v1", "ConfigMap", namespace="default")
    rough.refusals.append(("watch=true", forbidden("", "configmaps", "", "no")))
    with pytest.raises(ApiError, match="forbidden"):
        await next_of(maps.watch())


async def test_a_bookmark_moves_it_on(rough_client: Client, rough: RoughTransport) -> None:
    maps = rough_client.kind("v1", "ConfigMap", namespace="default")
    async with maps.watch() as events:
        reading = asyncio.create_task(next_of(events))
        while not rough.streams:
            await asyncio.sleep(0)
        revision = int(events.resource_version) + 1
        await rough_client.kind("v1", "Namespace").create({"metadata": {"name": "elsewhere"}})
        bookmark = {"type": "BOOKMARK", "object": {"kind": "ConfigMap", "metadata": {"resourceVersion": str(revision)}}}
        rough.streams[0].says = orjson.dumps(bookmark) + b"\n"
        rough.streams[0].cut()
        await maps.create(config_map("a"))
        await reading
    assert any(f"resourceVersion={revision}" in target for _, target in rough.sent)


class Pieces:
    def __init__(self, *pieces: bytes) -> None:
        self.status = 200
        self.headers: dict[str, str] = {}
        self._pieces = list(pieces)

    async def read(self) -> bytes:
        return b"".join(self._pieces)

    async def piece(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def close(self) -> None: ...


async def test_events_may_come_in_any_pieces() -> None:
    whole = b'{"type":"ADDED","object":{"a":1}}\n\n{"type":"MODIFIED","object":{"a":2}}\n{"type":"DELETED","object":{"a":3}}\n'
    wanted = [("ADDED", b'{"a":1}'), ("MODIFIED", b'{"a":2}'), ("DELETED", b'{"a":3}')]
    for size in (1, 2, 7, 35, len(whole)):
        lines = Lines(Pieces(*[whole[i : i + size] for i in range(0, len(whole), size)]), idle=5)
        found = []
        while (event := await lines.next()) is not None:
            found.append(event)
        assert found == wanted


async def test_an_error_event_is_an_error() -> None:
    body = orjson.dumps({"type": "ERROR", "object": expired("too old").status()}) + b"\n"
    with pytest.raises(ApiError) as error:
        await Lines(Pieces(body), idle=5).next()
    assert (error.value.code, error.value.message) == (410, "too old")
