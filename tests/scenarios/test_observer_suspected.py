"""Every site judged itself unhealthy, and withdrew: when everything looks broken, the observer is."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

INCIDENT = "Facebook, 2021"
MUST_HOLD = "where more than 20 % cannot be read, or 30 % differ, the observer is suspected, and nothing is done"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    fleet.drift(fleet.names, "withdrawn")  # as the observer sees it
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    fleet.drift(fleet.names, "red")
    came = await fleet.until(lambda: _calm(fleet))
    return Figures(damage, fleet.size, told, "by itself" if came else "not")


async def half_blind(fleet: Fleet) -> Figures:
    """It cannot read a half, and what it reads of the rest is wrong in part."""
    await fleet.stand()
    fleet.world.blinded = set(fleet.names[: fleet.size // 2]).__contains__
    fleet.drift(fleet.names[fleet.size * 3 // 4 :])
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    fleet.world.blinded = None
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by itself" if came else "not")


async def all_sick(fleet: Fleet) -> Figures:
    """All are as declared, and every one says that it does not work: that is told, and nothing is done about it."""
    await fleet.stand()
    fleet.world.sick = lambda thing: "it cannot reach the others"
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    fleet.world.sick = None
    came = await fleet.until(lambda: _calm(fleet))
    return Figures(await fleet.damage(), fleet.size, told, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """a few cannot be read, and another few are put right meanwhile"""
    await fleet.stand()
    fleet.world.blinded = set(fleet.names[: fleet.size // 5]).__contains__
    fleet.drift(fleet.names[-2:])
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


async def _calm(fleet: Fleet) -> bool:
    return not await fleet.says()


@pytest.mark.parametrize(("size", "seed"), [(10, 2), (31, 3)])
def test_nothing_is_done_when_everything_looks_broken(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.told_after <= PASS
    assert figures.came_back == "by itself"


@pytest.mark.parametrize("size", [10, 21])
def test_nothing_is_done_on_the_word_of_an_observer_that_sees_little(size: int) -> None:
    figures = live_through(half_blind, size=size)
    assert figures.damage <= max(1, size // 10)  # a wave may have begun before the pass had come that far
    assert figures.told_after is not None
    assert figures.came_back == "by itself"


def test_what_is_as_declared_is_left_alone_however_ill_it_says_it_is() -> None:
    figures = live_through(all_sick)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself"


def test_the_rest_is_repaired_while_a_few_cannot_be_read() -> None:
    figures = live_through(honest)
    assert figures.damage == 2
    assert figures.came_back.startswith("by itself")


def test_a_naive_loop_acts_on_all_that_it_is_shown() -> None:
    assert live_through(incident, naive=True).damage == 20
