"""Pools of simulated nodes, with real agents and real processes: what is lost is replaced, what waits gets nodes, what is idle goes."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tests.gpu.agent.world import alive, eventually, number
from tests.gpu.pools.world import LEASE_SECONDS, Stages, World

Object = dict[str, Any]


async def test_a_node_whose_agent_is_killed_is_replaced_and_its_work_goes_on_elsewhere(world: World) -> None:
    await world.declare_pool(minimum=3)
    before = await world.up(3)
    await world.declare("job")
    [place] = (await world.phase("job", "Running"))["status"]["assignment"]
    killed = time.monotonic()
    world.kill(place["node"])
    again = await world.until("job", lambda obj: _runs_elsewhere(obj, place["node"]), seconds=60)
    assert time.monotonic() - killed < LEASE_SECONDS + 30
    assert again["status"]["assignment"][0]["node"] in before
    await world.node_goes(place["node"])
    after = await world.up(3)
    assert len(set(after) - set(before)) == 1, "one came for the one that was lost"
    assert sorted(world.agents()) == after
    assert number(world.folder / "job.n") > 0
    assert not world.node_fleet.halts


def _runs_elsewhere(obj: Object, node: str) -> bool:
    status = obj["status"]
    return status["phase"] == "Running" and status["assignment"][0]["node"] != node


async def test_a_backlog_gets_nodes_up_to_the_maximum_and_then_says_why_not(world: World) -> None:
    await world.declare_pool(maximum=2)
    for name in ("a", "b", "c"):
        await world.declare(name)
    await world.phase("a", "Running", seconds=60)
    await world.phase("b", "Running", seconds=60)
    full = "every pool that has such nodes is at its maximum"
    waits = await world.until("c", lambda obj: full in obj.get("status", {}).get("reason", ""), seconds=60)
    assert waits["status"]["phase"] == "Pending"
    await world.pool_is(lambda status: "at its maximum of 2" in status.get("reason", "") and status.get("nodes") == 2)
    assert len(world.agents()) == 2


async def test_idle_nodes_are_drained_and_given_back_down_to_the_minimum(world: World) -> None:
    await world.declare_pool(minimum=3)
    nodes = await world.up(3)
    await world.declare("job")
    [place] = (await world.phase("job", "Running"))["status"]["assignment"]
    pids = world.agents()
    async with world.nodes.informer() as informer:
        await informer.wait_synced()
        stages = Stages(informer)
        await world.policy(scaling={"backlogAge": "0s", "idleNodesAfter": "1s"})
        await world.declare_pool(minimum=2)
        await eventually(lambda: any(seen[-1] == "gone" for seen in stages.of.values()), 60)
        [gone] = [name for name, seen in stages.of.items() if seen[-1] == "gone"]
        assert gone != place["node"], "the one with work on it stays"
        assert [stage for stage in stages.of[gone] if stage != "Open"] == ["Draining", "GivingBack", "gone"]
    assert await world.up(2) == sorted({*nodes} - {gone})
    assert not alive(pids[gone])
    assert (await world.phase("job", "Running"))["status"]["suspensions"] == 0


async def test_nodes_beyond_a_lowered_maximum_are_emptied_first(world: World) -> None:
    await world.declare_pool(minimum=2, gpusPerNode=2)
    await world.up(2)
    for name in ("a", "b"):
        await world.declare(name, resources={"gpus": 1}, preemption={"mode": "Restart", "grace": "1s"})
        await world.phase(name, "Running")
    await world.declare_pool(minimum=1, maximum=1, gpusPerNode=2)
    [left] = await world.up(1)
    for name in ("a", "b"):
        runs = await world.until(name, lambda obj: obj["status"]["phase"] == "Running")
        assert runs["status"]["assignment"][0]["node"] == left
    await eventually(lambda: [*world.agents()] == [left], 30)


async def test_when_most_nodes_are_silent_at_once_none_is_replaced(world: World) -> None:
    await world.declare_pool(minimum=4)
    nodes = await world.up(4)
    agents = world.agents()
    async with world.nodes.informer() as informer:
        await informer.wait_synced()
        stages = Stages(informer)
        for name in nodes[:3]:
            os.kill(agents[name], signal.SIGSTOP)
        await world.pool_is(lambda status: status.get("ready") == 1)
        for name in nodes[:3]:
            os.kill(agents[name], signal.SIGCONT)
        assert await world.up(4) == nodes
        assert {stage for seen in stages.of.values() for stage in seen} == {"Open"}
    assert world.agents() == agents


async def test_a_node_without_a_pool_that_keeps_coming_back_takes_no_work_for_a_while(world: World) -> None:
    await world.policy(failure={"lease": "4s", "flaps": 1, "flapWindow": "10s"})
    governor = world.provider.governor
    async with world.node("steady"):
        async with world.node("n1"):
            await eventually(lambda: not governor.lost("n1"), 30)
        await eventually(lambda: governor.lost("n1"), 30)
        async with world.node("n1"):
            cordoned = await world.node_is("n1", lambda obj: obj["status"].get("stage") == "Cordoned")
            assert cordoned["status"]["reason"] == "n1 takes no more work: lost and back 1 times lately"
            await world.node_is("n1", lambda obj: obj["status"].get("stage") == "Open")


async def test_a_pool_that_is_deleted_goes_when_its_nodes_were_given_back(world: World) -> None:
    await world.declare_pool(minimum=2)
    await world.up(2)
    await world.pools.delete("p")
    async with world.pools.informer(fields="metadata.name=p") as informer:
        await informer.wait_synced()
        await eventually(lambda: informer.get("p") is None, 90)
    assert world.agents() == {}
    assert not (world.folder / "pools" / "p").exists() or not any((world.folder / "pools" / "p").iterdir())


async def test_after_a_restart_of_the_loop_the_same_agents_are_still_there(world: World) -> None:
    await world.declare_pool(minimum=2)
    nodes = await world.up(2)
    agents = world.agents()
    await world.end()
    await world.begin()
    await world.declare("job")
    await world.phase("job", "Running")
    assert await world.up(2) == nodes
    assert world.agents() == agents
