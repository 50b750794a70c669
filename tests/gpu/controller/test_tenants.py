"""A tenant that is deleted while its work runs stays until that is off its GPUs: it counts, and nothing more of it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.gpu.controller.world import Object, World

from homeostat.model.conditions import find_condition
from homeostat.model.protocol import FINALIZER


async def until(world: World, good: Callable[[Object | None], bool], seconds: float = 20.0) -> Object | None:
    """Waits until the tenant is so; None: it is gone."""
    async with asyncio.timeout(seconds):
        while True:
            found = next(iter(await world.tenants.list()), None)
            if good(found):
                return found
            await asyncio.sleep(0.02)


def held(tenant: Object | None) -> bool:
    return tenant is not None and FINALIZER in tenant["metadata"].get("finalizers", ())


async def test_it_stays_until_nothing_of_it_holds_gpus(world: World) -> None:
    async with world.node("n1"):
        await world.quota(8)
        await world.declare("first")
        await world.phase("first", "Running")
        await world.tenants.delete("t")
        await world.declare("second")
        waits = await world.until("second", lambda obj: obj.get("status", {}).get("constraint") == "tenant")
        assert waits["status"]["reason"] == "its tenant is being deleted: nothing more of it starts"
        told = await until(world, lambda one: one is None or find_condition(one, "Deleting") is not None)
        assert told is not None, "it went while its work runs"
        assert held(told)
        assert (find_condition(told, "Deleting") or {})["message"].endswith("and 1 of its workloads hold 1")
        assert told["status"]["used"] == "1"
        assert await world.running() == ["first"]
        await world.workloads.delete("first")
        await until(world, lambda one: one is None)
        assert await world.running() == []


async def test_one_of_which_nothing_ever_ran_is_gone_at_once(world: World) -> None:
    await world.quota(8)
    await world.declare("waits")
    await world.until("waits", lambda obj: bool(obj.get("status", {}).get("reason")))
    await world.tenants.delete("t")
    assert await until(world, lambda one: True) is None


async def test_a_manifest_without_finalizers_that_replaces_it_does_not_let_it_go(world: World) -> None:
    async with world.node("n1"):
        await world.quota(8)
        await world.declare("first")
        await world.phase("first", "Running")
        tenant = await until(world, held)
        assert tenant is not None
        await world.tenants.patch("t", {"metadata": {"finalizers": None}})
        await until(world, held)
        await world.tenants.delete("t")
        assert held(await until(world, lambda one: True))
        await world.workloads.delete("first")
        await until(world, lambda one: one is None)


async def test_what_ends_by_itself_lets_it_go_after_a_restart_as_well(world: World) -> None:
    async with world.node("n1"):
        await world.quota(8)
        await world.declare("first", command=["/bin/sh", "-c", f"while [ ! -e {world.folder}/end ]; do sleep 0.05; done"])
        await world.phase("first", "Running")
        await world.tenants.delete("t")
        await world.end()
        await world.begin()
        assert held(await until(world, lambda one: True))
        (world.folder / "end").touch()
        await until(world, lambda one: one is None)
        assert (await world.phase("first", "Succeeded"))["status"]["tenant"] == "t"
