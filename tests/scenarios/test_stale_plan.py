"""A delayed worker applies an old plan over a newer one."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through
from tests.sim.bugs import it_does_not_read_again_before_it_acts

from homeostat.client import Informer
from homeostat.sim.network import FINE, Weather

MUST_HOLD = "a plan is refused at the write if what it was made from moved"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(size=5)
    fleet.house.weather = Weather(held=1.0, longest=100_000.0)  # the worker does not hear of what is written
    await fleet.declare("black", fleet.names[:1], change_set="old")
    await fleet.declare("blue", fleet.names[:1], change_set="new")
    fleet.drift(fleet.names[:1])  # and has a reason to act on what it knows
    told = await fleet.told(4 * PASS)
    await asyncio.sleep(4 * PASS)
    wrong = {call.name for call in fleet.world.calls[fleet.before :] if call.fields["colour"] != "blue"}
    fleet.house.weather = FINE
    fleet.house.network.release()
    came = await fleet.until(lambda: fleet.colours() == {"red": 4, "blue": 1})
    return Figures(len(wrong), 5, told, "by itself" if came else "not")


async def obedient(fleet: Fleet) -> Figures:
    """A naive loop acts on the copy that it has, whatever anybody wrote since."""
    with pytest.MonkeyPatch.context() as patch:
        it_does_not_read_again_before_it_acts(patch)
        patch.setattr(Informer, "wrote", lambda *_: None)  # nor learns from its own writes, as our client does
        return await incident(fleet)


def test_nothing_is_done_by_a_plan_that_is_no_longer_declared() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.came_back == "by itself"


def test_a_naive_loop_applies_what_was_replaced_long_ago() -> None:
    assert live_through(obedient, naive=True).damage == 1
