"""What is too old: history is kept for a while, and who asks for older is told how to go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from .inprocess import Inside, inside

ROOM = "/api/v1/namespaces/default/configmaps"


async def filled(server: Inside, count: int = 6) -> None:
    for i in range(count):
        status, _ = await server.ask("POST", ROOM, {"metadata": {"name": f"item-{i}"}})
        assert status == 201


async def compact(server: Inside) -> None:
    """A write, and then everything before it is forgotten."""
    await server.ask("POST", ROOM, {"metadata": {"name": "later"}})
    await server.plane.store.compact(server.plane.store.revision)


async def test_a_continue_token_that_expired_comes_with_one_to_go_on(tmp_path: Path) -> None:
    async with inside(tmp_path) as server:
        await filled(server)
        _, first = await server.ask("GET", f"{ROOM}?limit=2")
        await compact(server)
        status, body = await server.ask("GET", f"{ROOM}?limit=2&continue={quote(first['metadata']['continue'])}")
        assert (status, body["reason"], body["code"]) == (410, "Expired", 410)
        assert body["message"].startswith("The provided continue parameter is too old to display a consistent list result.")
        status, rest = await server.ask("GET", f"{ROOM}?continue={quote(body['metadata']['continue'])}")
        assert status == 200
        assert [i["metadata"]["name"] for i in rest["items"]] == ["item-2", "item-3", "item-4", "item-5", "later"]


async def test_an_exact_list_of_a_forgotten_version_expired(tmp_path: Path) -> None:
    async with inside(tmp_path) as server:
        await filled(server)
        _, before = await server.ask("GET", ROOM)
        await compact(server)
        version = before["metadata"]["resourceVersion"]
        status, body = await server.ask("GET", f"{ROOM}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert (status, body["reason"]) == (410, "Expired")
        assert body["message"] == "The resourceVersion for the provided list is too old."


async def test_not_older_than_a_forgotten_version_is_the_present(tmp_path: Path) -> None:
    async with inside(tmp_path) as server:
        await filled(server)
        await compact(server)
        status, body = await server.ask("GET", f"{ROOM}?resourceVersion=2&resourceVersionMatch=NotOlderThan")
        assert (status, len(body["items"])) == (200, 7)


async def test_a_watch_from_a_forgotten_version_is_an_error_event(tmp_path: Path) -> None:
    async with inside(tmp_path) as server:
        await filled(server)
        await compact(server)
        status, events = await server.ask("GET", f"{ROOM}?watch=true&resourceVersion=2&timeoutSeconds=5")
        assert status == 200
        (event,) = events
        assert event["type"] == "ERROR"
        gone: Any = event["object"]
        assert (gone["kind"], gone["code"], gone["reason"]) == ("Status", 410, "Expired")
        assert gone["message"].startswith("too old resource version: 2 (")


async def test_history_is_kept_for_an_hour(tmp_path: Path) -> None:
    async with inside(tmp_path) as server:
        await filled(server)
        await server.plane.housekeeping.sweep()
        server.clock.seconds += 3500
        await server.ask("POST", ROOM, {"metadata": {"name": "later"}})
        await server.plane.housekeeping.sweep()
        assert server.plane.store.compacted == 0
        server.clock.seconds += 200
        await server.plane.housekeeping.sweep()
        assert server.plane.store.compacted > 0
        status, body = await server.ask("GET", ROOM)
        assert (status, len(body["items"])) == (200, 7)
