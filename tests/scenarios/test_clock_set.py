"""The clock of the host was put forward by hours, and everything that was to wait was over."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.sim.world import NONE, Trouble

INCIDENT = "A clock that jumps by hours"
MUST_HOLD = "a grace, a wait and a verdict that is due are lengths of time: no clock that is set makes them shorter or longer"
KEPT = {"deletion": {"grace": "2h"}}
JUMP = 5 * 3600.0
WRONG = 2


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy=KEPT)
    wrong = fleet.names[:WRONG]
    await fleet.delete(wrong)
    told = await fleet.told()
    await asyncio.sleep(PASS)
    fleet.house.clock.set(JUMP)
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    await fleet.have_back(wrong)
    came = await fleet.until(lambda: _calm(fleet))
    return Figures(damage, fleet.size, told, "by declaring them anew" if came and not fleet.touched else "not")


async def put_back(fleet: Fleet) -> Figures:
    """What failed waits for its next try when the clock is put back."""
    await fleet.stand()
    fleet.world.trouble = Trouble(fails=1.0)
    fleet.drift(fleet.names[:2])
    await asyncio.sleep(3 * PASS)
    fleet.house.clock.set(-JUMP)
    fleet.world.trouble = NONE
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


async def in_a_wave(fleet: Fleet) -> Figures:
    """A change set has a minute for its verdict, takes half of one, and the clock jumps meanwhile."""
    await fleet.stand(policy={"canary": {"verifyWithin": "1m", "onFailure": "Return"}})
    ready = {"at": fleet.now + 35}
    fleet.world.sick = lambda thing: "it starts" if thing.fields["colour"] == "blue" and fleet.now < ready["at"] else ""
    await fleet.declare("blue", fleet.names[:5])
    await asyncio.sleep(5)
    fleet.house.clock.set(JUMP)
    came = await fleet.until(lambda: fleet.colours() == {"blue": 5, "red": fleet.size - 5}, PASS)
    return Figures(await fleet.damage(), fleet.size, None, await fleet.halted_by() if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """two are to go, and are kept for two hours by whatever clock"""
    await fleet.stand(policy=KEPT)
    await fleet.delete(fleet.names[:WRONG])
    await asyncio.sleep(PASS)
    fleet.house.clock.set(JUMP)
    return await fleet.honest(lambda: len(fleet.world.things) == fleet.size - WRONG)


async def _calm(fleet: Fleet) -> bool:
    return len(await fleet.house.things.list()) == fleet.size and not await fleet.says()


@pytest.mark.parametrize(("size", "seed"), [(20, 0), (33, 3)])
def test_a_grace_is_not_over_because_the_clock_says_so(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by declaring them anew"


def test_what_waits_does_not_wait_for_hours_when_the_clock_is_put_back() -> None:
    figures = live_through(put_back)
    assert figures.came_back.startswith("by itself, in ")
    assert figures.came_back.endswith((" s", " 2 min", " 3 min", " 4 min", " 5 min"))


def test_a_verdict_is_not_late_because_the_clock_says_so() -> None:
    figures = live_through(in_a_wave)
    assert (figures.damage, figures.came_back) == (5, "")


def test_a_grace_lasts_as_long_as_was_said() -> None:
    assert live_through(honest).came_back in ("by itself, in 119 min", "by itself, in 120 min")


def test_a_naive_loop_keeps_nothing_for_anybody() -> None:
    assert live_through(incident, naive=True).damage == WRONG
