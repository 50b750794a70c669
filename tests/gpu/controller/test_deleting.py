"""Deleting a workload takes it off its GPUs behind the guards: one is gone at once, and all of them at once stop and ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.gpu.controller.test_quota import SIZE, fill, kubectl
from tests.gpu.controller.world import World


def at_work(world: World, uids: dict[str, str]) -> list[str]:
    """The names of those that really have a process."""
    alive = world.alive("n1") | world.alive("n2")
    return [name for name, uid in uids.items() if uid in alive]


async def approve(world: World, done: Callable[[World], Awaitable[bool]]) -> None:
    """Says that it is meant, until it is done. Of each plan: one of a few may have left it just now, and then it is another."""
    approvals, approved = world.client.kind("homeostat.dev/v1alpha1", "Approval"), set[str]()
    async with asyncio.timeout(60):
        while not await done(world):
            halt = world.fleet.halts.get("mass-drift/update")
            if halt is not None and halt.plan not in approved:
                approved.add(halt.plan)
                await approvals.create({"metadata": {"name": f"meant-{halt.plan}"}, "spec": {"plan": halt.plan, "reason": "it is meant"}})
            await asyncio.sleep(0.05)


async def _all_gone(world: World) -> bool:
    return not await world.workloads.list()


async def _all_off(world: World) -> bool:
    return all(one["status"].get("phase") == "Suspended" for one in await world.workloads.list())


async def test_one_that_is_deleted_is_ended_and_gone(world: World) -> None:
    async with world.node("n1"), world.node("n2"):
        uids = await fill(world)
        await kubectl(world, "delete", "workload", "job-03", "--timeout=30s")
        assert at_work(world, uids) == [name for name in uids if name != "job-03"]
        assert not world.fleet.halts


async def test_all_of_them_deleted_by_a_slip_stop_and_ask(world: World) -> None:
    async with world.node("n1"), world.node("n2"):
        uids = await fill(world)
        await asyncio.gather(*(world.workloads.delete(name) for name in uids))
        async with asyncio.timeout(30):
            while len(world.fleet.drifts) < len(await world.workloads.list()) or "mass-drift/update" not in world.fleet.halts:
                await asyncio.sleep(0.05)
        assert len(at_work(world, uids)) >= SIZE - 4  # a few may have gone before the others were deleted
        await approve(world, _all_gone)
        assert at_work(world, uids) == []


async def test_one_that_was_deleted_and_ends_by_itself_meanwhile_is_gone(world: World) -> None:
    policies = world.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
    async with world.node("n1"):
        await world.quota(1)
        await world.declare("job", command=["sleep", "3"])
        await world.phase("job", "Running")
        name = "workloads.gpu.homeostat.dev"
        freeze = {"reason": "under investigation", "author": "test"}
        await policies.create({"metadata": {"name": "still"}, "spec": {"fleet": {"kinds": [name]}, "mode": "Enforce", "freezes": [freeze]}})
        await world.workloads.delete("job")
        async with asyncio.timeout(30):
            while await world.workloads.list():
                await asyncio.sleep(0.05)


async def _suspended(world: World) -> dict[str, str]:
    """All of them off their GPUs, with their state."""
    uids = await fill(world)
    await asyncio.gather(*(world.workloads.patch(name, {"spec": {"suspended": True}}) for name in uids))
    await approve(world, _all_off)
    assert at_work(world, uids) == list(uids)
    return uids


async def test_one_that_is_suspended_with_its_state_and_deleted_is_ended_and_gone(world: World) -> None:
    async with world.node("n1"), world.node("n2"):
        uids = await _suspended(world)
        await kubectl(world, "delete", "workload", "job-03", "--timeout=30s")
        assert at_work(world, uids) == [name for name in uids if name != "job-03"]


async def test_the_state_of_all_that_are_suspended_is_not_lost_by_a_slip(world: World) -> None:
    async with world.node("n1"), world.node("n2"):
        uids = await _suspended(world)
        await asyncio.gather(*(world.workloads.delete(name) for name in uids))
        async with asyncio.timeout(30):
            while len(world.fleet.drifts) < len(await world.workloads.list()) or "mass-drift/update" not in world.fleet.halts:
                await asyncio.sleep(0.05)
        assert len(at_work(world, uids)) >= SIZE - 4
        await approve(world, _all_gone)
        assert at_work(world, uids) == []
