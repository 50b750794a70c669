"""Parents of a composer that are deleted: their children go through the gate, like everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.loop.test_children import WAIT_SECONDS, Bench

from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.model.errors import ApiError

SETTLE = 0.2
"""Seconds: longer than it takes to delete many, so that they are judged together."""
MANY = [f"shop{number:02}" for number in range(12)]


@pytest.fixture
async def bench(client: Client) -> AsyncIterator[Bench]:
    bench = Bench(client)
    await bench.start(settle=SETTLE)
    yield bench
    await bench.engine.stop()


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await holds():
            await asyncio.sleep(0.005)


async def uids(bench: Bench) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in await bench.maps.list(labels="shop=yes")}


async def fill(bench: Bench) -> dict[str, str]:
    for name in MANY:
        await bench.declare({"a": "apples"}, name)
    for name in MANY:
        await bench.ready(name)
    return await uids(bench)


async def delete(bench: Bench, names: list[str]) -> None:
    await asyncio.gather(*(bench.shops.delete(name) for name in names))


async def halted(bench: Bench, open_now: int) -> bool:
    fleet = next((one for one in bench.engine.fleets.values() if "configmaps" in one.name), None)
    return fleet is not None and len(fleet.drifts) == open_now and bool(fleet.halts)


async def test_the_children_of_a_deleted_parent_go(bench: Bench) -> None:
    await bench.declare({"a": "apples", "b": "bread"}, waves={"a": 0, "b": 1})
    await bench.ready()
    await bench.shops.delete("shop")
    await bench.until_goods({})


async def test_when_most_parents_are_deleted_at_once_their_children_stay_and_it_is_halted(bench: Bench) -> None:
    before = await fill(bench)
    await delete(bench, MANY[:8])
    await eventually(lambda: halted(bench, 8))
    await bench.whole_pass()
    assert await uids(bench) == before


async def test_parents_that_are_declared_again_find_their_children_as_they_were(bench: Bench) -> None:
    before = await fill(bench)
    await delete(bench, MANY[:8])
    await eventually(lambda: halted(bench, 8))
    for name in MANY[:8]:
        await bench.declare({"a": "apples"}, name)
    for name in MANY[:8]:
        await bench.ready(name)
    assert await uids(bench) == before
    shop, child = await bench.shops.get(MANY[0]), await bench.maps.get(f"{MANY[0]}-a")
    assert [owner["uid"] for owner in child["metadata"]["ownerReferences"]] == [shop["metadata"]["uid"]]


async def test_a_restart_finds_the_children_that_were_left(bench: Bench) -> None:
    before = await fill(bench)
    await delete(bench, MANY[:8])
    await bench.engine.stop()
    await bench.start(settle=SETTLE)
    await eventually(lambda: halted(bench, 8))
    assert await uids(bench) == before
    await bench.declare({"a": "apples"}, MANY[0])
    await bench.ready(MANY[0])
    assert (await uids(bench))[f"{MANY[0]}-a"] == before[f"{MANY[0]}-a"]


async def test_children_of_a_parent_that_was_deleted_while_nobody_looked_go_at_the_next_start(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.declare({"a": "pears"}, "other")
    await bench.ready()
    await bench.ready("other")
    await bench.engine.stop()
    await bench.shops.delete("shop")
    await asyncio.sleep(0.1)  # so long garbage collection would have had to take it
    assert await bench.goods() == {"shop-a": "apples", "other-a": "pears"}
    await bench.start()
    await bench.until_goods({"other-a": "pears"})


async def test_while_it_only_observes_the_children_of_a_deleted_parent_stay(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    await bench.engine.stop()
    await bench.start(Mode.OBSERVE)
    await bench.shops.delete("shop")
    await asyncio.sleep(0.1)
    await bench.whole_pass()
    assert await bench.goods() == {"shop-a": "apples"}


async def test_a_parent_that_waits_for_its_children_goes_after_them(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    left = await bench.shops.delete("shop", propagation="Foreground")
    assert left is not None

    async def gone() -> bool:
        try:
            await bench.shops.get("shop")
        except ApiError as error:
            return error.code == 404
        return False

    await eventually(gone)
    assert await bench.goods() == {}


async def test_a_parent_that_orphans_its_children_leaves_them(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    await bench.ready()
    await bench.shops.delete("shop", propagation="Orphan")

    async def orphaned() -> bool:
        return "ownerReferences" not in (await bench.maps.get("shop-a"))["metadata"]

    await eventually(orphaned)
    await asyncio.sleep(0.05)
    await bench.whole_pass()
    assert await bench.goods() == {"shop-a": "apples"}
    assert await orphaned()


async def test_what_others_hang_on_a_parent_is_collected_as_ever(bench: Bench) -> None:
    await bench.declare({"a": "apples"})
    shop = await bench.ready()
    owner = {"apiVersion": "shops.test.dev/v1", "kind": "Shop", "name": "shop", "uid": shop["metadata"]["uid"]}
    await bench.maps.create({"metadata": {"name": "note", "ownerReferences": [owner]}}, field_manager="somebody")
    await bench.shops.delete("shop")

    async def collected() -> bool:
        return not [one for one in await bench.maps.list() if one["metadata"]["name"] == "note"]

    await eventually(collected)
