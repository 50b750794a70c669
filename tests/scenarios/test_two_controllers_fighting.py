"""Two writers undo each other for hours."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.fleet import Op

MUST_HOLD = "the flap guard holds after three reversals, and says who fights"
HOUR = 3600.0


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(size=5)
    end, told = fleet.now + HOUR, None
    while fleet.now < end:
        fleet.drift(fleet.names[:1])
        await asyncio.sleep(PASS)
        if told is None:
            told = await fleet.told(1)
    fights = sum(1 for call in fleet.world.calls[fleet.before :] if call.op is Op.UPDATE)
    came = await fleet.until(lambda: fleet.colours() == {"red": 5})
    return Figures(fights, int(HOUR / PASS), told, "by itself, when the other stopped" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """Somebody changes a thing once: that is put right at once."""
    await fleet.stand(size=5)
    fleet.drift(fleet.names[:1])
    came = await fleet.until(lambda: fleet.colours() == {"red": 5}, PASS)
    return Figures(1, 5, None, "by itself" if came else "not")


def test_the_fight_ends_after_a_few_rounds() -> None:
    figures = live_through(incident)
    assert figures.damage <= 20  # an hour of rounds at most three of which fall into any ten minutes
    assert figures.told_after is not None
    assert figures.came_back == "by itself, when the other stopped"


def test_a_single_drift_is_put_right_at_once() -> None:
    assert live_through(honest).came_back == "by itself"


def test_a_naive_loop_fights_on() -> None:
    assert live_through(incident, naive=True).damage > 40
