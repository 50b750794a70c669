"""Every site judged itself unhealthy, and withdrew: when everything looks broken, the observer is."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

MUST_HOLD = "more than 20 % unreadable, or 30 % different: hold everything"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    blind = set(fleet.names[:10])
    fleet.world.blinded = blind.__contains__
    fleet.drift(fleet.names[15:])  # as the same broken observer shows it
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = len(fleet.touched)
    if fleet.naive:
        return Figures(damage, len(fleet.names), told, "—")
    fleet.world.blinded = None
    came = await fleet.until(lambda: fleet.colours() == {"red": len(fleet.names)})
    return Figures(damage, len(fleet.names), told, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """A few that cannot be read do not keep the others from being repaired."""
    await fleet.stand()
    fleet.world.blinded = set(fleet.names[:3]).__contains__
    fleet.drift(fleet.names[18:])
    came = await fleet.until(lambda: fleet.colours() == {"red": len(fleet.names)}, 3 * PASS)
    return Figures(len(fleet.touched), len(fleet.names), None, "by itself" if came else "not")


def test_nothing_is_done_on_the_word_of_an_observer_that_sees_little() -> None:
    figures = live_through(incident)
    assert figures.damage <= 2  # a wave may have begun before the pass had come that far
    assert figures.told_after is not None
    assert figures.came_back == "by itself"


def test_the_rest_is_repaired_while_a_few_cannot_be_read() -> None:
    assert live_through(honest).came_back == "by itself"


def test_a_naive_loop_acts_on_all_that_it_is_shown() -> None:
    assert live_through(incident, naive=True).damage == 5
