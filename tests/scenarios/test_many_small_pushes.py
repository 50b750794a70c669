"""A bad value goes out in many small pushes, each of one thing and below every limit."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

INCIDENT = "A bad change, split into many small ones"
MUST_HOLD = "what a push made ill keeps its place in the wave, whatever comes after it: it stops at the cap"
APART = 20.0


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    fleet.world.sick = lambda thing: "it does not answer" if thing.fields["colour"] == "bad" else ""
    told = None
    for number, name in enumerate(fleet.names):
        await fleet.declare("bad", [name], change_set=f"push-{number}")
        await asyncio.sleep(APART)
        if told is None and await fleet.says():
            told = round(fleet.now - fleet.fault_at, 1)
    await asyncio.sleep(600)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, None, "—")
    for halt in (await fleet.house.policies.get("things"))["status"]["halts"]:
        assert ("homeostat approve" in halt["whatToDo"]) is bool(halt.get("plan")), "there is nothing to approve"
    await fleet.declare("red", change_set="correction")
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by itself, once corrected" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """many teams push, one right after the other"""
    await fleet.stand()
    for number, name in enumerate(fleet.names):
        await fleet.declare("blue", [name], change_set=f"push-{number}")
        await asyncio.sleep(1)
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


@pytest.mark.parametrize("size", [9, 20])
def test_it_stops_at_the_cap(size: int) -> None:
    figures = live_through(incident, size=size, seed=size)
    assert figures.damage <= max(1, size // 10)
    assert figures.told_after is not None
    assert figures.told_after <= 2 * PASS
    assert figures.came_back == "by itself, once corrected"


def test_small_pushes_that_are_well_go_through_at_once() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_breaks_the_whole_fleet() -> None:
    assert live_through(incident, naive=True).damage == 20
