"""A reused name replaced production; rules were flushed that belonged to somebody else."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.controller import ADOPT
from homeostat.sim.world import Thing

MUST_HOLD = "what exists and is not ours is never touched; taking it over needs a declaration"
GOLD = {"colour": "gold", "size": 99}


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(size=5)
    fleet.world.things["production"] = [Thing("production", "", "somebody", dict(GOLD))]
    fleet.world.things["beside"] = [Thing("beside", "", "somebody", dict(GOLD))]
    fleet.fault()
    await fleet.house.declare("production", {"colour": "red"})
    told = await fleet.told(PASS)
    await asyncio.sleep(3 * PASS)
    damage = sum(1 for name in ("production", "beside") if fleet.world.things[name][0].fields != GOLD)
    if fleet.naive:
        return Figures(damage, 2, told, "—")
    fleet.world.things["production"][0].owner = fleet.world.declared["production"][-1][1]  # its owner agrees
    await fleet.house.declare("production", {"colour": "red"}, annotations={ADOPT: "true"})
    came = await fleet.until(lambda: fleet.world.things["production"][0].fields["colour"] == "red")
    return Figures(damage, 2, told, "by adoption, declared" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """Deleted, and declared anew under the same name: another resource, made anew."""
    await fleet.stand(size=5)
    await fleet.delete(fleet.names[:1])
    await fleet.until(lambda: len(fleet.world.things) == 4)
    await asyncio.sleep(1)
    await fleet.house.declare(fleet.names[0], {"colour": "blue"})
    came = await fleet.until(lambda: fleet.colours() == {"red": 4, "blue": 1}, 10)
    return Figures(1, 5, None, "by itself" if came else "not")


def test_what_is_not_ours_is_left_alone_until_its_adoption_is_declared() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by adoption, declared"


def test_a_name_that_is_free_can_be_used_again() -> None:
    assert live_through(honest).came_back == "by itself"


def test_a_naive_loop_overwrites_it() -> None:
    assert live_through(incident, naive=True).damage == 1
