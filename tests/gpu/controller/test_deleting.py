"""Deleting a workload takes it off its GPUs behind the guards: one is gone at once, and all of them at once stop and ask."""

from __future__ import annotations

import asyncio

from tests.gpu.controller.test_quota import SIZE, fill, kubectl
from tests.gpu.controller.world import World


def at_work(world: World, uids: dict[str, str]) -> list[str]:
    """The names of those that really have a process."""
    return [name for name, uid in uids.items() if any(world.pids(uid, node) for node in ("n1", "n2"))]


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
        approvals, approved = world.client.kind("homeostat.dev/v1alpha1", "Approval"), set[str]()
        async with asyncio.timeout(60):
            while await world.workloads.list():
                halt = world.fleet.halts.get("mass-drift/update")
                if halt is not None and halt.plan not in approved:  # one of the few may have left it just now: then it is another plan
                    approved.add(halt.plan)
                    await approvals.create({"metadata": {"name": f"meant-{len(approved)}"}, "spec": {"plan": halt.plan, "reason": "it is meant"}})
                await asyncio.sleep(0.05)
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
