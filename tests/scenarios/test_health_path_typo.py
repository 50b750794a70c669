"""A typo in a health-check path: a bad declaration makes every instance unhealthy."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

INCIDENT = "A typo in a health-check path"
MUST_HOLD = "the canary stops at its first wave, and says how to go back"
MEANT = {"massDrift": {"limit": "100%"}}
"""Of a person who means to change all of them."""


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy=MEANT)
    fleet.world.sick = lambda thing: "its health path is not found" if thing.fields["colour"] == "typo" else ""
    await fleet.declare("typo")
    told = await fleet.told()
    await asyncio.sleep(PASS if fleet.naive else 600)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    (halt,) = (await fleet.house.policies.get("things"))["status"]["halts"]
    assert halt["guard"] == "canary"
    assert "go back to the last good one" in halt["whatToDo"]
    await fleet.declare("red", change_set="correction")
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by itself, once corrected" if came else "not")


async def unasked(fleet: Fleet) -> Figures:
    """The same without anybody who meant it."""
    await fleet.stand()
    fleet.world.sick = lambda thing: "its health path is not found" if thing.fields["colour"] == "typo" else ""
    await fleet.declare("typo")
    told = await fleet.told()
    await asyncio.sleep(600)
    return Figures(await fleet.damage(), fleet.size, told, "—")


async def honest(fleet: Fleet) -> Figures:
    """all instances get another path, and it is right"""
    await fleet.stand(policy=MEANT)
    await fleet.declare("blue")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


@pytest.mark.parametrize("size", [2, 10, 50])
def test_the_canary_stops_at_the_first_wave(size: int) -> None:
    figures = live_through(incident, size=size, seed=size)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.told_after < 5
    assert figures.came_back == "by itself, once corrected"


@pytest.mark.parametrize("size", [9, 10])
def test_and_so_it_does_where_nobody_said_a_word(size: int) -> None:
    figures = live_through(unasked, size=size, seed=size)
    assert figures.damage <= 1
    assert figures.told_after is not None


def test_an_honest_change_of_all_goes_through_at_once() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_breaks_the_whole_fleet() -> None:
    assert live_through(incident, naive=True).damage == 20
