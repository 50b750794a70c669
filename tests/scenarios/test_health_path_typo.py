"""A typo in a health-check path: a bad declaration makes every instance unhealthy."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import Figures, Fleet, live_through

MUST_HOLD = "the canary stops at its first wave"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy={"massDrift": {"limit": "100%"}})  # a person meant to change all of them
    fleet.world.sick = lambda thing: "its health path is not found" if thing.fields["colour"] == "typo" else ""
    fleet.fault()
    await fleet.declare("typo")
    told = await fleet.told()
    await asyncio.sleep(300)
    damage = len(fleet.touched)
    if fleet.naive:
        return Figures(damage, len(fleet.names), told, "—")
    await fleet.declare("red", change_set="correction")
    came = await fleet.until(lambda: fleet.colours() == {"red": len(fleet.names)})
    return Figures(damage, len(fleet.names), told, "by itself, once corrected" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    await fleet.stand(policy={"massDrift": {"limit": "100%"}})
    await fleet.declare("blue")
    came = await fleet.until(lambda: fleet.colours() == {"blue": len(fleet.names)}, 60)
    return Figures(len(fleet.touched), len(fleet.names), None, "by itself" if came else "not")


def test_the_canary_stops_at_the_first_wave() -> None:
    figures = live_through(incident)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once corrected"


def test_an_honest_change_of_all_goes_through_at_once() -> None:
    assert live_through(honest).came_back == "by itself"


def test_a_naive_loop_breaks_the_whole_fleet() -> None:
    assert live_through(incident, naive=True).damage == 20
