"""Much of a fleet lost its mirror at once, all of it looked for room to mirror again, and the storm exhausted what was left."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.fleet import Op
from homeostat.sim.world import NONE, Trouble

INCIDENT = "AWS EBS, 2011"
MUST_HOLD = "a mass failure halts; what is repaired goes in waves; what fails waits, each for a time of its own"


def lost(fleet: Fleet) -> list[str]:
    """Those that lost their mirror: a little more than half."""
    return fleet.names[: fleet.size // 2 + 1]


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    fleet.drift(lost(fleet), "unmirrored")
    fleet.world.trouble = Trouble(fails=1.0)  # there is no room
    told = await fleet.told()
    await asyncio.sleep(10 * PASS)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    fleet.world.trouble = NONE
    for plan in fleet.house.plans():
        await fleet.house.approve(plan)
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by one approval" if came else "not")


async def tries(fleet: Fleet) -> Figures:
    """How often it was tried while there was no room."""
    figures = await incident(fleet)
    return Figures(
        sum(1 for call in fleet.world.calls[fleet.before :] if not call.done), 1, figures.told_after, figures.came_back
    )


async def mirrors_return(fleet: Fleet) -> Figures:
    """The network is back, and with it the mirrors: there is nothing to repair."""
    await fleet.stand()
    fleet.drift(lost(fleet), "unmirrored")
    told = await fleet.told()
    fleet.drift(lost(fleet), "red")
    came = await fleet.until(lambda: _calm(fleet))
    return Figures(await fleet.damage(), fleet.size, told, "by itself" if came else "not")


async def creations(fleet: Fleet) -> Figures:
    """What is lost altogether is made anew, a few at a time where the policy says so."""
    await fleet.stand(policy={"creations": "10%"})
    fleet.world.trouble = Trouble(slow=1.0)
    for name in lost(fleet):
        del fleet.world.things[name]
    most = 0

    def all_done() -> bool:
        nonlocal most
        most = max(most, sum(1 for call in fleet.world.under_way() if call.op is Op.CREATE))
        return len(fleet.world.things) == fleet.size

    came = await fleet.until(all_done, every=0.05)
    return Figures(most, fleet.size, None, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """half of the fleet is to be mirrored again, and there is room"""
    await fleet.stand()
    fleet.drift(lost(fleet), "unmirrored")
    await fleet.told()
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size}, approve=True)


async def _calm(fleet: Fleet) -> bool:
    return not await fleet.says()


@pytest.mark.parametrize(("size", "seed"), [(10, 2), (33, 5)])
def test_a_mass_failure_is_not_followed_by_a_storm(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by one approval"


def test_in_a_small_fleet_it_is_tried_seldom_and_no_more_than_the_cap_and_one_are_touched() -> None:
    assert live_through(incident, size=9).damage <= 2
    assert live_through(tries, size=9).damage < live_through(tries, size=9, naive=True).damage


def test_mirrors_that_come_back_end_the_halt() -> None:
    figures = live_through(mirrors_return)
    assert figures.damage <= 1
    assert figures.came_back == "by itself"


def test_few_are_made_anew_at_a_time_and_all_in_the_end() -> None:
    figures = live_through(creations)
    assert figures.damage <= 2
    assert figures.came_back == "by itself"


def test_half_of_a_fleet_is_repaired_by_one_approval() -> None:
    assert live_through(honest).came_back.startswith("by one approval")


def test_a_naive_loop_starts_the_storm() -> None:
    assert live_through(incident, naive=True).damage == 11
    assert live_through(creations, naive=True).damage >= 4
