"""Informers: a copy that is never less than what was written, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.server import Listen, Server
from homeostat.client import Client, Informer, Key, NotSynced, Resource, Unreachable
from homeostat.model.errors import ApiError, bad_request, expired, unavailable

from .conftest import RoughTransport, config_map

Maps = Resource[dict[str, Any]]


@pytest.fixture
def maps(rough_client: Client) -> Maps:
    return rough_client.kind("v1", "ConfigMap", namespace="default")


async def until(informer: Informer[Any], holds: Callable[[], object]) -> None:
    """Waits for a change after which it holds."""
    async with asyncio.timeout(20):
        changed = asyncio.Event()
        end = informer.subscribe(lambda key: changed.set())
        while not holds():
            changed.clear()
            await changed.wait()
        end()


def names(informer: Informer[dict[str, Any]]) -> list[str]:
    return sorted(item["metadata"]["name"] for item in informer.all())


async def test_it_holds_what_is_there_and_follows(client: Client, config_maps: Maps) -> None:
    await config_maps.create(config_map("a"))
    async with config_maps.informer(labels="!system") as informer:
        await informer.wait_synced(20)
        assert informer.get("a") is not None
        other = Client(client._transport)  # another client: its writes come by the watch
        other.namespace = client.namespace
        theirs = other.kind("v1", "ConfigMap", namespace=client.namespace)
        made = await theirs.create(config_map("b", x="1"))
        await informer.reached(made["metadata"]["resourceVersion"])
        assert informer.get("b") == made
        await theirs.delete("a")
        await until(informer, lambda: informer.get("a") is None)


async def test_own_writes_are_seen_at_once(client: Client, config_maps: Maps) -> None:
    async with config_maps.informer() as informer:
        await informer.wait_synced(20)
        for turn in range(10):
            name = f"a{turn}"
            await config_maps.create(config_map(name, turn="0"))
            assert informer.get(name)["data"] == {"turn": "0"}
            for n in "123":
                await config_maps.patch(name, {"data": {"turn": n}})
                assert informer.get(name)["data"] == {"turn": n}
            await config_maps.delete(name)
            assert informer.get(name) is None
            again = await config_maps.create(config_map(name, turn="again"))
            assert informer.get(name) == again


async def test_what_an_own_write_moves_out_of_the_selector_is_gone(config_maps: Maps) -> None:
    async with config_maps.informer(labels="on=yes") as informer:
        await informer.wait_synced(20)
        await config_maps.create(config_map("a", {"on": "yes"}))
        await config_maps.create(config_map("b", {"on": "no"}))
        assert names(informer) == ["a"]
        await config_maps.patch("a", {"metadata": {"labels": {"on": "no"}}})
        assert names(informer) == []
        back = await config_maps.patch("a", {"metadata": {"labels": {"on": "yes"}}})
        assert names(informer) == ["a"]
        await informer.reached(back["metadata"]["resourceVersion"])
        assert names(informer) == ["a"]


async def test_nothing_is_said_before_it_was_read(maps: Maps, rough: RoughTransport) -> None:
    rough.refusals += [("sendInitialEvents", unavailable("not yet"))] * 3
    informer = maps.informer()
    with pytest.raises(NotSynced):
        informer.get("a")
    async with informer:
        with pytest.raises(TimeoutError, match="not yet"):
            await informer.wait_synced(0.2)
        with pytest.raises(NotSynced):
            informer.all()


async def test_a_write_during_the_first_list_is_kept(maps: Maps, rough: RoughTransport) -> None:
    informer = maps.informer()
    informer.start()
    await maps.create(config_map("a"))
    await informer.wait_synced(20)
    assert informer.get("a") is not None
    await informer.stop()


async def test_it_lists_where_the_server_cannot_stream_lists(maps: Maps, rough: RoughTransport) -> None:
    await maps.create(config_map("a"))
    rough.refusals.append(("sendInitialEvents", bad_request("sendInitialEvents is forbidden for watch")))
    async with maps.informer() as informer:
        await informer.wait_synced(20)
        assert "a" in names(informer)
        assert any(method == "GET" and "limit=" in target for method, target in rough.sent)


async def test_a_cut_connection_goes_on_where_it_was(maps: Maps, rough: RoughTransport, server: Server) -> None:
    async with maps.informer() as informer:
        await informer.wait_synced(20)
        theirs = Client(rough._inner).kind("v1", "ConfigMap", namespace="default")
        rough.streams[-1].cut()
        made = await theirs.create(config_map("a"))
        await informer.reached(made["metadata"]["resourceVersion"])
        assert informer.get("a") == made
        assert sum("sendInitialEvents" in target for _, target in rough.sent) == 1


async def test_a_silent_connection_is_replaced(maps: Maps, rough: RoughTransport) -> None:
    async with maps.informer(idle=0.2) as informer:
        await informer.wait_synced(20)
        rough.streams[-1].silent = True
        theirs = Client(rough._inner).kind("v1", "ConfigMap", namespace="default")
        await theirs.create(config_map("a"))
        await until(informer, lambda: informer.get("a"))


async def test_after_a_forgotten_past_it_reads_anew(maps: Maps, rough: RoughTransport, server: Server) -> None:
    theirs = Client(rough._inner).kind("v1", "ConfigMap", namespace="default")
    await theirs.create(config_map("gone"))
    await theirs.create(config_map("stays"))
    async with maps.informer() as informer:
        await informer.wait_synced(20)
        rough.refusals += [("watch=true", Unreachable("restarting")), ("watch=true", expired("too old"))]
        told: list[Key] = []
        informer.subscribe(told.append)
        rough.streams[-1].cut()
        await theirs.delete("gone")
        await until(informer, lambda: informer.get("gone") is None)
        assert "stays" in names(informer)
        assert told == [Key("default", "gone")]


async def test_a_list_that_fails_is_not_an_empty_list(maps: Maps, rough: RoughTransport) -> None:
    await maps.create(config_map("a"))
    async with maps.informer() as informer:
        await informer.wait_synced(20)
        told: list[Key] = []
        informer.subscribe(told.append)
        broken = ApiError(500, "InternalError", "broken")
        rough.refusals += [("watch=true", expired("too old")), *[("watch=true", broken)] * 2]
        rough.streams[-1].cut()
        while rough.refusals:
            assert "a" in names(informer)
            await asyncio.sleep(0.01)
        made = await Client(rough._inner).kind("v1", "ConfigMap", namespace="default").create(config_map("b"))
        await informer.reached(made["metadata"]["resourceVersion"])
        assert informer.problem is None
        assert told == [Key("default", "b")]


async def test_a_list_that_breaks_off_is_not_a_short_list(maps: Maps, rough: RoughTransport) -> None:
    for name in "abc":
        await maps.create(config_map(name))
    async with maps.informer() as informer:
        await informer.wait_synced(20)
        before = names(informer)
        told: list[Key] = []
        informer.subscribe(told.append)
        rough.refusals.append(("watch=true", expired("too old")))
        rough.streams[-1].cut()
        while sum("sendInitialEvents" in target for _, target in rough.sent) < 2:
            await asyncio.sleep(0)
        rough.streams[-1].cut()  # before its first event was taken
        while sum("sendInitialEvents" in target for _, target in rough.sent) < 3:
            await asyncio.sleep(0.01)
        assert names(informer) == before
        assert told == []


async def test_it_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    first = Server(tmp_path, Listen(port=0), durable=False)
    await first.start()
    port = int(first.url.rpartition(":")[2])
    async with Client.from_kubeconfig(first.kubeconfig) as client:
        maps = client.kind("v1", "ConfigMap")
        await maps.create(config_map("a"))
        async with maps.informer(namespace="default") as informer:
            await informer.wait_synced(20)
            await first.stop()
            second = Server(tmp_path, Listen(port=port), durable=False)
            await second.start()
            try:
                async with Client.from_kubeconfig(second.kubeconfig) as other:
                    await other.kind("v1", "ConfigMap").create(config_map("b"))
                await until(informer, lambda: informer.get("b"))
                assert informer.get("a") is not None
            finally:
                await informer.stop()
                await second.stop()


async def test_changes_come_as_they_are_when_taken(maps: Maps) -> None:
    await maps.create(config_map("a"))
    async with maps.informer(fields="metadata.name!=kube-root-ca.crt") as informer:
        await informer.wait_synced(20)
        changes = informer.changes()
        async with asyncio.timeout(20):
            first = await anext(changes)
            assert (first.key, first.object is not None) == (Key("default", "a"), True)
            for n in range(5):
                await maps.patch("a", {"data": {"n": str(n)}})
            await maps.create(config_map("b"))
            await maps.delete("b")
            second, third = await anext(changes), await anext(changes)
        assert second.object is not None
        assert second.object["data"] == {"n": "4"}
        assert third == (Key("default", "b"), None)
        await changes.aclose()


async def test_indexes_are_kept(maps: Maps) -> None:
    def owners(obj: dict[str, Any]) -> list[str]:
        return [value for name, value in obj.get("data", {}).items() if name == "owner"]

    async with maps.informer(indexes={"owner": owners}) as informer:
        await informer.wait_synced(20)
        await maps.create(config_map("a", owner="ada"))
        await maps.create(config_map("b", owner="ada"))
        await maps.patch("b", {"data": {"owner": "bob"}})
        assert [o["metadata"]["name"] for o in informer.indexed("owner", "ada")] == ["a"]
        await maps.delete("a")
        assert informer.indexed("owner", "ada") == []
        assert [o["metadata"]["name"] for o in informer.indexed("owner", "bob")] == ["b"]


async def test_a_handler_that_fails_harms_nobody(maps: Maps, caplog: pytest.LogCaptureFixture) -> None:
    async with maps.informer() as informer:
        await informer.wait_synced(20)
        seen: list[Key] = []

        def fails(key: Key) -> None:
            raise RuntimeError("mine")

        informer.subscribe(fails)
        informer.subscribe(seen.append)
        await maps.create(config_map("a"))
        assert seen == [Key("default", "a")]
    assert "mine" in caplog.text
