"""A machine that can begin nothing, for its disk is full, gets no new work; what runs there stays, and all who ask are told."""

from __future__ import annotations

import pytest
from tests.gpu.agent.world import until
from tests.gpu.controller.world import World

from homeostat.gpu.agent.origin import Origin
from homeostat.model.conditions import condition_is, find_condition

FULL = "No space left on device"


async def test_no_new_work_goes_to_a_node_whose_disk_is_full_until_there_is_room(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.node("n1", 2):
        await world.quota(2)
        await world.declare("old")
        await world.phase("old", "Running")
        monkeypatch.setattr(Origin, "trouble", FULL)
        told = await until(world.nodes, "n1", lambda node: condition_is(node, "DiskPressure"))
        assert (find_condition(told, "DiskPressure") or {})["message"] == FULL
        await world.declare("new")
        waits = await world.until("new", lambda obj: FULL in obj.get("status", {}).get("reason", ""))
        assert not waits["status"].get("assignment")
        assert (await world.phase("old", "Running"))["status"]["assignment"]
        monkeypatch.setattr(Origin, "trouble", "")
        await world.phase("new", "Running")
        await until(world.nodes, "n1", lambda node: condition_is(node, "DiskPressure", "False"))
