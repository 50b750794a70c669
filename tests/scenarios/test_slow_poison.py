"""A change that is well when it is looked at, and falls ill half a minute later: a leak, a cache that runs full, a certificate that ends."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through
from tests.scenarios.test_health_path_typo import MEANT

from homeostat.sim.world import Thing

INCIDENT = "A change that falls ill later"
MUST_HOLD = "with `canary.rest` each wave has to stay well for so long before the next: it stops at the first"
LATER = 30.0
RESTING = {**MEANT, "canary": {"rest": "2m"}}


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy=RESTING)

    def leaks(thing: Thing) -> str:
        changed = max((call.at for call in fleet.world.calls[fleet.before :] if call.name == thing.name), default=fleet.now)
        return "its memory is full" if thing.fields["colour"] == "leaky" and fleet.now > changed + LATER else ""

    fleet.world.sick = leaks
    await fleet.declare("leaky")
    await fleet.until(lambda: _halted(fleet), PASS * 5)
    told = round(fleet.now - fleet.fault_at, 1)
    await asyncio.sleep(1800)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, None, "—")
    assert "is as declared and not healthy" in await fleet.says()
    await fleet.declare("red", change_set="correction")
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by itself, once corrected" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """all are changed, and stay well"""
    await fleet.stand(policy=RESTING)
    await fleet.declare("blue")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


async def _halted(fleet: Fleet) -> bool:
    return not fleet.naive and await fleet.halted_by() == "canary"


@pytest.mark.parametrize("size", [9, 20])
def test_it_stops_at_the_first_wave(size: int) -> None:
    figures = live_through(incident, size=size, seed=size)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.told_after < 2 * PASS
    assert figures.came_back == "by itself, once corrected"


def test_what_stays_well_goes_out_wave_by_wave() -> None:
    assert live_through(honest).came_back.startswith("by itself, in ")


def test_a_naive_loop_breaks_the_whole_fleet() -> None:
    assert live_through(incident, naive=True).damage == 20
