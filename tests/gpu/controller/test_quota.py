"""A quota that is lowered brings use down by itself, in waves; one that looks like a slip stops and asks."""

from __future__ import annotations

import asyncio

from tests.gpu.agent.world import stands
from tests.gpu.controller.world import World

from kubectl.program import find_kubectl

SIZE = 14
LOWERED = '[{"op": "replace", "path": "/spec/quotas/0/nominal", "value": 10}]'


async def kubectl(world: World, *arguments: str) -> None:
    command = [find_kubectl(), "--kubeconfig", str(world.plane.kubeconfig), *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()


async def fill(world: World) -> dict[str, str]:
    """Fourteen workloads of one GPU each, and all of them run; gives their uids."""
    await world.quota(SIZE)
    uids = {f"job-{n:02}": await world.declare(f"job-{n:02}") for n in range(SIZE)}
    for name in uids:
        await world.phase(name, "Running")
    return uids


async def test_14_used_of_a_quota_of_10_goes_back_to_10_by_itself(world: World) -> None:
    async with world.node("n1"), world.node("n2"):
        uids = await fill(world)
        assert world.fleet.size == SIZE
        await kubectl(world, "patch", "tenant", "t", "--type=json", "-p", LOWERED)
        async with asyncio.timeout(30):
            while len(await world.running()) > 10:
                await asyncio.sleep(0.05)
        suspended = [name for name in uids if name not in await world.running()]
        for name in suspended:
            await world.phase(name, "Suspended")
        assert len(suspended) == 4
        assert not world.fleet.halts
        for name in suspended:
            pids = [pid for node in ("n1", "n2") for found in world.pids(uids[name], node).values() for pid in found]
            assert len(pids) == 1
            assert all(stands(pid) for pid in pids)


async def test_a_quota_typed_as_1_stops_and_asks_and_goes_on_when_exactly_that_is_approved(world: World) -> None:
    async with world.node("n1"), world.node("n2"):
        uids = await fill(world)
        await world.quota(1)
        async with asyncio.timeout(20):
            while len(world.fleet.drifts) < SIZE - 1 or "mass-drift/update" not in world.fleet.halts:
                await asyncio.sleep(0.02)
        halt = world.fleet.halts["mass-drift/update"]
        assert "13 of 14 would be changed, more than 4" in halt.reason
        assert await world.running() == sorted(uids)
        approvals = world.client.kind("homeostat.dev/v1alpha1", "Approval")
        await approvals.create({"metadata": {"name": "meant"}, "spec": {"plan": halt.plan, "reason": "it is meant"}})
        async with asyncio.timeout(40):
            while len(await world.running()) > 1:
                await asyncio.sleep(0.05)


async def test_a_quota_that_is_raised_again_brings_them_back_to_where_their_state_lies(world: World) -> None:
    async with world.node("n1", 2):
        await world.quota(2)
        for name in ("a", "b"):
            await world.declare(name)
            await world.phase(name, "Running")
        await world.quota(1)
        stopped = await world.phase("b", "Suspended")
        await world.quota(2)
        again = await world.phase("b", "Running")
        assert again["status"]["assignment"] == stopped["status"]["assignment"]
        assert again["status"]["suspensions"] == 1
        assert [one["pid"] for one in again["status"]["reports"]] == [one["pid"] for one in stopped["status"]["reports"]]
