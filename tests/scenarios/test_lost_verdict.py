"""The canary found the configuration bad, its verdict got lost on the way, and the roll-out went on."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through
from tests.scenarios.test_health_path_typo import MEANT

from homeostat.sim.world import Thing

INCIDENT = "GCE network, 2016: the canary's verdict got lost"
MUST_HOLD = "a missing verdict is a failure, also for a loop that was restarted and never heard of it"
STARTING = 20.0
"""Seconds that an honest change takes until it works."""


async def incident(fleet: Fleet, change_set: str = "push") -> Figures:
    await fleet.stand(policy=MEANT)
    fleet.world.sick = lambda thing: "there are no routes" if thing.fields["colour"] == "empty" else ""
    await fleet.declare("empty", change_set=change_set)
    told = await fleet.told()
    for _ in range(5):  # whoever was to give the verdict dies, and another goes on
        await asyncio.sleep(2)
        fleet.house.crash()
        await fleet.house.start_engine(fleet.gates, workers=16)
    await asyncio.sleep(PASS if fleet.naive else 600)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    await fleet.declare("red", change_set="correction")
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by itself, once corrected" if came else "not")


async def unnamed(fleet: Fleet) -> Figures:
    """Nobody has said which change set it is: what one person wrote at one time is one."""
    return await incident(fleet, change_set="")


async def unreadable(fleet: Fleet) -> Figures:
    """What was changed cannot be read any more: nobody will ever say that it is well."""
    await fleet.stand(policy=MEANT)
    fleet.world.blinded = lambda name: (
        (thing := fleet.world.one(name)) is not None and thing.fields["colour"] == "empty"
    )
    await fleet.declare("empty")
    told = await fleet.told()
    await asyncio.sleep(600)
    return Figures(await fleet.damage(), fleet.size, told, "—")


async def silent(fleet: Fleet) -> Figures:
    """What was changed is never well, and never says that it failed."""
    await fleet.stand(policy=MEANT)
    fleet.world.sick = lambda thing: "it is still starting" if thing.fields["colour"] == "empty" else ""
    await fleet.declare("empty")
    await fleet.until(lambda: _halted(fleet), 600, every=1.0)
    return Figures(await fleet.damage(), fleet.size, round(fleet.now - fleet.fault_at), "—")


async def honest(fleet: Fleet) -> Figures:
    """each instance takes 20 s to start, and the loop is restarted meanwhile"""
    await fleet.stand(policy=MEANT)

    def starting(thing: Thing) -> str:
        changed = max(
            (call.at for call in fleet.world.calls[fleet.before :] if call.name == thing.name), default=-STARTING
        )
        return "it is starting" if fleet.now < changed + STARTING else ""

    fleet.world.sick = starting
    await fleet.declare("blue")
    await asyncio.sleep(5)
    fleet.house.crash()
    await fleet.house.start_engine(fleet.gates, workers=16)
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


async def _halted(fleet: Fleet) -> bool:
    return await fleet.halted_by() == "canary"


@pytest.mark.parametrize(("size", "seed"), [(2, 5), (10, 2), (33, 4)])
def test_a_loop_that_never_heard_the_verdict_does_not_go_on(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once corrected"


@pytest.mark.parametrize("size", [9])
def test_nor_where_the_change_set_has_no_name(size: int) -> None:
    figures = live_through(unnamed, size=size)
    assert figures.damage <= 1
    assert figures.came_back == "by itself, once corrected"


@pytest.mark.parametrize("size", [9, 20])
def test_what_cannot_be_read_back_has_failed(size: int) -> None:
    figures = live_through(unreadable, size=size)
    assert figures.damage <= 1
    assert figures.told_after is not None


def test_a_verdict_is_late_after_five_minutes() -> None:
    figures = live_through(silent)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert 300 <= figures.told_after <= 303


def test_an_honest_change_is_waited_for_and_goes_on() -> None:
    assert live_through(honest).came_back.startswith("by itself")


def test_a_naive_loop_goes_on_without_a_verdict() -> None:
    assert live_through(incident, naive=True).damage == 20
