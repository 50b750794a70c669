"""A name that was used again replaced production."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.declarations import ADOPT
from homeostat.sim.world import Thing

INCIDENT = "InfluxData, 2022"
MUST_HOLD = "what exists and is not ours is never touched; taking it over needs a declaration"
GOLD = {"colour": "gold", "size": 99}


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    fleet.world.things["production"] = [Thing("production", "", "somebody", dict(GOLD))]
    fleet.world.things["beside"] = [Thing("beside", "", "somebody", dict(GOLD))]
    fleet.fault()
    await fleet.house.declare("production", {"colour": "red"})
    told = await fleet.told(PASS)
    await asyncio.sleep(3 * PASS)
    damage = sum(1 for name in ("production", "beside") if fleet.world.things[name][0].fields != GOLD)
    if fleet.naive:
        return Figures(damage, 2, told, "—")
    made = await fleet.house.declare("production", {"colour": "red"}, annotations={ADOPT: "true"})
    fleet.world.things["production"][0].owner = made["metadata"]["uid"]  # its owner agrees
    came = await fleet.until(lambda: fleet.world.things["production"][0].fields["colour"] == "red")
    return Figures(damage, 2, told, "by adoption, declared" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """one is deleted, and declared anew under the same name"""
    await fleet.stand()
    await fleet.delete(fleet.names[:1])
    await fleet.until(lambda: fleet.names[0] not in fleet.world.things)
    await asyncio.sleep(1)
    await fleet.house.declare(fleet.names[0], {"colour": "blue"})
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size - 1, "blue": 1})


async def while_it_was_away(fleet: Fleet) -> Figures:
    """A name is deleted and used again while the loop is down, and the thing of the first still stands: it is another's now."""
    await fleet.stand()
    name = fleet.names[0]
    fleet.house.crash()
    await fleet.house.things.patch(name, {"metadata": {"finalizers": None}})
    await fleet.house.things.delete(name)
    await fleet.house.declare(name, {"colour": "blue"})
    await fleet.house.start_engine(fleet.gates, workers=16)
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    return Figures(await fleet.damage(), fleet.size, told, "—")


def test_what_is_not_ours_is_left_alone_until_its_adoption_is_declared() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by adoption, declared"


def test_a_name_that_was_used_again_while_nobody_looked_is_another_thing() -> None:
    figures = live_through(while_it_was_away)
    assert figures.damage == 0
    assert figures.told_after is not None


def test_a_name_that_is_free_can_be_used_again() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_overwrites_it() -> None:
    assert live_through(incident, naive=True).damage == 1
