"""A loop whose repairs do harm is restarted again and again, and forgets each time what it did."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

INCIDENT = "Repairs that do harm, by a loop in a restart loop"
MUST_HOLD = "what was repaired and is not well keeps its place, also for a loop that did not see it: it stops at the cap and one"
LIFE = 20.0


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    fleet.world.sick = lambda thing: (
        "it does not start any more" if any(call.name == thing.name for call in fleet.world.calls[fleet.before :]) else ""
    )
    few, told = max(1, fleet.size // 4), None
    for begin in range(0, fleet.size, few):  # never so many at once that it would be mass drift
        fleet.drift(fleet.names[begin : begin + few])
        await _restarts(fleet, 6)
        if begin == 0:
            told = await fleet.told(within=1)
    await asyncio.sleep(600)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, None, "—")
    fleet.world.sick = None
    await fleet.until(lambda: bool(fleet.house.plans()), PASS)
    for plan in fleet.house.plans():  # by now it is mass drift
        await fleet.house.approve(plan)
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by one approval" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """a quarter is changed by others, and the loop is restarted all the time"""
    await fleet.stand()
    fleet.drift(fleet.names[: fleet.size // 4])
    await _restarts(fleet, 6)
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


async def _restarts(fleet: Fleet, count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(LIFE)
        fleet.house.crash()
        await fleet.house.start_engine(fleet.gates, workers=16)


@pytest.mark.parametrize(("size", "seed"), [(20, 0), (40, 3)])
def test_it_stops_at_the_cap_and_one(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage <= size // 10 + 1
    assert figures.told_after is not None
    assert figures.came_back == "by one approval"


def test_repairs_that_help_go_on_through_restarts() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_breaks_the_whole_fleet() -> None:
    assert live_through(incident, naive=True).damage == 20
