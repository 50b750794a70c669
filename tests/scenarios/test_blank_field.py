"""A declaration with a blank field spread everywhere in seconds; what it brought down then came back all at once, as a herd."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from tests.scenarios.fleet import Figures, Fleet, live_through
from tests.scenarios.test_health_path_typo import MEANT

from homeostat.loop.fleet import Op
from homeostat.loop.passes import PassPolicy, first_pass
from homeostat.model.errors import ApiError
from homeostat.sim.world import NONE, Trouble

INCIDENT = "Google Service Control, 2025"
MUST_HOLD = (
    "what is blank is not accepted; what gets through goes in waves; who comes back does so at a time of its own"
)
OUTAGE = 60.0
WINDOW = 0.25
"""Seconds in which calls count as one herd."""


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy=MEANT)
    for name in fleet.names:
        with pytest.raises(ApiError, match="should be at least 1 chars long"):
            await fleet.house.declare(name, {"colour": ""})
    fleet.world.sick = lambda thing: "it crashes on the blank" if not thing.fields["colour"].strip() else ""
    await fleet.declare(" ")  # as blank, and no schema sees it
    return await fleet.corrected()


async def herd(fleet: Fleet) -> Figures:
    """Everything is to be made anew while nothing works: how many knock together once they have been refused some times."""
    await fleet.stand()
    fleet.world.trouble = Trouble(fails=1.0)
    fleet.world.things.clear()
    await asyncio.sleep(OUTAGE)
    began = fleet.now
    await asyncio.sleep(OUTAGE)
    knocks = [call.at for call in fleet.world.calls[fleet.before :] if call.op is Op.CREATE and call.at > began]
    most = max(Counter(int(at / WINDOW) for at in knocks).values())
    fleet.world.trouble = NONE
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(most, fleet.size, None, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """the field is filled in everywhere"""
    await fleet.stand(policy=MEANT)
    await fleet.declare("blue")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


@pytest.mark.parametrize(("size", "seed"), [(9, 1), (40, 7)])
def test_a_blank_gets_no_further_than_the_first(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once corrected"


def test_who_was_refused_together_does_not_come_back_together() -> None:
    figures = live_through(herd, size=20)
    assert figures.damage <= 8
    assert figures.came_back == "by itself"


def test_loops_that_start_together_do_not_look_together() -> None:
    due = [first_pass(PassPolicy(every=60), 0.0, random.Random(n)) for n in range(600)]
    assert max(Counter(int(at) for at in due).values()) < 30  # in any second, of 600


def test_a_field_that_is_filled_in_goes_through_at_once() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_spreads_it_and_comes_back_as_a_herd() -> None:
    assert live_through(incident, naive=True).damage == 20
    assert live_through(herd, naive=True).damage > 12
