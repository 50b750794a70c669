"""Approvals in the running loop: good once, over a restart, and of a change set before it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homeostat.guards.keeper import Keeper
from homeostat.loop.fleet import plan_hash
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHANGE_SET

from .test_engine import FLEET, Bench, running

KIND = "lamps.lamps.test.dev"
SIZE = 12


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def kept(bench: Bench) -> AsyncIterator[Any]:
    """People can approve; gives the handle on what they approved."""
    keeper = Keeper(bench.client, bench.gate)
    await keeper.start()
    keeper.attach(bench.engine)
    try:
        yield bench.client.kind("homeostat.dev/v1alpha1", "Approval")
    finally:
        await keeper.stop()


async def restart(bench: Bench) -> None:
    await bench.engine.stop()
    await bench.start_engine().start()


async def halted_plan(bench: Bench) -> str:
    """The plan of a change of everything, once all of it was seen and halted."""
    fleet = bench.engine.fleets[FLEET]

    def whole() -> bool:
        plans = {halt.plan for halt in fleet.halts.values()}
        return len(fleet.drifts) + black(bench) >= SIZE and plan_hash(fleet.drifts.values()) in plans

    await eventually(whole)
    return plan_hash(fleet.drifts.values())


def black(bench: Bench) -> int:
    return sum(lamp["colour"] == "black" for lamp in bench.provider.world.values())


async def declare_all(bench: Bench, names: list[str], colour: str, change_set: str = "") -> None:
    for name in names:
        marks = {"annotations": {CHANGE_SET: change_set}} if change_set else {}
        body = {"metadata": {"name": name, **marks}, "spec": {"colour": colour}}
        await bench.lamps.apply(body, field_manager="test", force=True)


async def used(approvals: Any, name: str) -> None:
    async with asyncio.timeout(10):
        while not (await approvals.get(name)).get("status", {}).get("used"):
            await asyncio.sleep(0.01)


async def approved_on_all(bench: Bench) -> None:
    """Waits until it stands with each open difference that a person approved it."""
    async with asyncio.timeout(10):
        while True:
            lines = [lamp["status"]["drift"] for lamp in await bench.lamps.list() if "drift" in lamp.get("status", {})]
            if lines and all(line.get("approved") == line["madeFrom"] for line in lines):
                return
            await asyncio.sleep(0.01)


async def test_a_restart_amid_the_waves_of_an_approved_plan_needs_no_second_approval(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        names = await bench.full_house(SIZE)
        async with kept(bench) as approvals:
            await declare_all(bench, names, "black")
            plan = await halted_plan(bench)
            bench.provider.broken["apply"] = "no bulb"
            await approvals.create({"metadata": {"name": "yes"}, "spec": {"plan": plan}})
            await used(approvals, "yes")
            await approved_on_all(bench)
        bench.provider.broken.clear()
        assert black(bench) < SIZE
        await restart(bench)
        await eventually(lambda: black(bench) == SIZE)
        assert not bench.gate.approvals


async def test_what_was_approved_is_not_approved_for_the_next_time_it_differs_so(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        names = await bench.full_house(SIZE)
        async with kept(bench) as approvals:
            for name in names:
                bench.provider.world[name]["colour"] = "green"
            bench.look_again()
            await eventually(lambda: bool(bench.engine.fleets[FLEET].halts))
            plan = await halted_plan(bench)
            await approvals.create({"metadata": {"name": "yes"}, "spec": {"plan": plan}})
            for name in names:
                await bench.until(name, lambda lamp: "drift" not in lamp["status"] and "repairedAt" in lamp["status"])
        await bench.engine.stop()  # it would look at one of them before all differ
        for name in names:
            bench.provider.world[name]["colour"] = "green"
        await bench.start_engine().start()
        await eventually(lambda: FLEET in bench.engine.fleets and bool(bench.engine.fleets[FLEET].halts))
        assert {lamp["colour"] for lamp in bench.provider.world.values()} == {"green"}


async def test_the_same_plan_can_be_approved_again_by_another_approval(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, kept(bench) as approvals:
        names = await bench.full_house(SIZE)
        for number in ("first", "second"):
            for name in names:
                bench.provider.world[name]["colour"] = "green"
            bench.look_again()
            await eventually(lambda: bool(bench.engine.fleets[FLEET].halts))
            plan = await halted_plan(bench)
            await approvals.create({"metadata": {"name": number}, "spec": {"plan": plan}})
            await eventually(lambda: {lamp["colour"] for lamp in bench.provider.world.values()} == {"red"})
            await used(approvals, number)
            for name in names:
                await bench.until(name, lambda lamp: "drift" not in lamp["status"])
            await eventually(lambda: not bench.engine.fleets[FLEET].halts)


async def test_an_approved_change_set_flows_in_waves_and_its_approval_is_used_once(tmp_path: Path) -> None:
    async with running(tmp_path) as bench:
        names = await bench.full_house(SIZE)
        async with kept(bench) as approvals:
            spec = {"changeSet": {"name": "paint", "kinds": {KIND: {"changes": SIZE}}}}
            await approvals.create({"metadata": {"name": "yes"}, "spec": spec})
            await eventually(lambda: bool(bench.gate.grants.carried))
            await declare_all(bench, names, "black", "paint")
            await eventually(lambda: black(bench) == SIZE)
            await used(approvals, "yes")
        await restart(bench)
        async with kept(bench):
            assert not bench.gate.grants.carried, "it was used before the restart"


async def test_an_approval_is_for_a_plan_or_a_change_set_and_not_for_both(tmp_path: Path) -> None:
    async with running(tmp_path) as bench, kept(bench) as approvals:
        both = {"plan": "0123456789abcdef", "changeSet": {"name": "paint", "kinds": {KIND: {"changes": 1}}}}
        with pytest.raises(ApiError, match="not for both"):
            await approvals.create({"metadata": {"name": "yes"}, "spec": both})
