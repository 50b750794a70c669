"""Two writers undo each other for hours."""

from __future__ import annotations

import asyncio
import math

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.fleet import Op

INCIDENT = "Two controllers fighting"
MUST_HOLD = "the flap guard holds after three reversals in ten minutes, and names both writers"
HOUR = 3600.0


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    end, told, said = fleet.now + HOUR, None, ""
    while fleet.now < end:
        fleet.drift(fleet.names[:1], by="argocd")
        await asyncio.sleep(PASS)
        if told is None and (said := await fleet.says()):
            told = round(fleet.now - fleet.fault_at, 1)
    fights = sum(1 for call in fleet.world.calls[fleet.before :] if call.op is Op.UPDATE)
    assert fleet.naive or "homeostat and argocd undo each other colour" in said
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    back = "—" if fleet.naive else "by itself, when the other stopped" if came else "not"
    return Figures(fights, math.ceil(HOUR / PASS), told, back)


async def declarers(fleet: Fleet) -> Figures:
    """An old controller comes back beside the new one, and each declares what it means."""
    await fleet.stand()
    end, told, said, turn = fleet.now + HOUR, None, "", 0
    while fleet.now < end:
        turn += 1
        writer, colour = ("old-controller", "red") if turn % 2 == 0 else ("new-controller", "blue")
        await fleet.house.things.patch(fleet.names[0], {"spec": {"colour": colour}}, field_manager=writer)
        await asyncio.sleep(PASS)
        if told is None and (said := await fleet.says()):
            told = round(fleet.now - fleet.fault_at, 1)
    fights = sum(1 for call in fleet.world.calls[fleet.before :] if call.op is Op.UPDATE)
    assert fleet.naive or "old-controller" in said
    assert fleet.naive or "new-controller" in said
    assert fleet.naive or "homeostat and" not in said
    await fleet.house.things.patch(fleet.names[0], {"spec": {"colour": "red"}}, field_manager="old-controller")
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(fights, math.ceil(HOUR / PASS), told, "by itself, when the other stopped" if came else "not")


async def one_mind(fleet: Fleet) -> Figures:
    """one person tries now this and now that"""
    await fleet.stand()
    for colour in ("blue", "red", "blue", "red", "blue", "red"):
        await fleet.house.things.patch(fleet.names[0], {"spec": {"colour": colour}}, field_manager="kubectl-edit")
        assert await fleet.until(lambda colour=colour: fleet.world.one(fleet.names[0]).fields["colour"] == colour)
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


async def honest(fleet: Fleet) -> Figures:
    """somebody changes a thing once"""
    await fleet.stand()
    fleet.drift(fleet.names[:1])
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


@pytest.mark.parametrize(("size", "seed"), [(1, 3), (5, 0), (20, 1)])
def test_the_fight_ends_after_a_few_rounds_and_both_are_named(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage <= 20  # an hour of rounds at most three of which fall into any ten minutes
    assert figures.told_after is not None
    assert figures.told_after <= 600
    assert figures.came_back == "by itself, when the other stopped"


def test_two_who_declare_it_each_otherwise_are_held_and_named_as_well() -> None:
    figures = live_through(declarers, size=5, seed=2)
    assert figures.damage <= 20
    assert figures.told_after is not None
    assert figures.told_after <= 600
    assert figures.came_back == "by itself, when the other stopped"
    assert live_through(declarers, naive=True).damage > 40


def test_who_takes_back_what_they_declared_themselves_fights_nobody() -> None:
    live_through(one_mind, size=5)


def test_a_single_drift_is_put_right_with_the_next_look() -> None:
    figures = live_through(honest)
    assert figures.damage == 1
    assert figures.came_back.startswith("by itself")


def test_a_naive_loop_fights_on() -> None:
    assert live_through(incident, naive=True).damage > 40
