"""An agent with another clock than the governor's lives as long as it renews its lease, and is lost when it does not."""

from __future__ import annotations

import asyncio

import pytest
from tests.gpu.agent.world import until
from tests.gpu.controller.world import World

from homeostat.model.clock import Clock
from homeostat.model.conditions import condition_is, find_condition


class Wrong(Clock):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def now(self) -> float:
        return super().now() + self.by


async def test_a_clock_that_is_so_wrong_that_nothing_is_taken_for_idle_is_told_and_that_it_is_right_again_too(world: World) -> None:
    clock = Wrong(-300.0)
    async with world.agent("n1", clock=clock):
        told = await until(world.nodes, "n1", lambda node: condition_is(node, "ClockSkewed"))
        message = (find_condition(told, "ClockSkewed") or {})["message"]
        assert "behind the server's" in message
        assert "nothing on it is taken for idle" in message
        clock.by = 0.0
        await until(world.nodes, "n1", lambda node: condition_is(node, "ClockSkewed", "False"))


@pytest.mark.parametrize("by", [-3600.0, 3600.0])
async def test_what_runs_on_a_node_with_a_wrong_clock_stays_there_and_goes_on_elsewhere_when_it_dies(world: World, by: float) -> None:
    await world.quota(1)
    async with world.agent("n1", clock=Wrong(by)):
        await world.declare("job", preemption={"mode": "Restart"})
        first = await world.phase("job", "Running")
        assert first["status"]["assignment"][0]["node"] == "n1"
        async with world.agent("n2"):
            await world.end()
            await world.begin()  # a governor that knows nothing yet of how clocks differ
            await asyncio.sleep(6.0)  # for longer than a lease
            still = await world.workloads.get("job")
            assert still["status"]["reports"] == first["status"]["reports"]
            world.keeping["n1"].cancel()
            await world.until("job", lambda obj: obj["status"]["assignment"][0]["node"] == "n2", 30.0)
