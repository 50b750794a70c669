"""Maintenance took several fault domains at once."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import Figures, Fleet, live_through

from homeostat.loop.fleet import Op
from homeostat.sim.world import Trouble

INCIDENT = "Google, 2019"
MUST_HOLD = "one fault domain at a time"
ZONES = 4
ALL = {"cap": "100%", "massDrift": {"limit": "100%"}, "canary": {"steps": ["100%"]}}
"""A policy under which nothing but the domains keeps maintenance from taking all at once."""


async def most_at_once(fleet: Fleet, colour: str) -> int:
    """In how many domains things are down at once, at most, until all are as declared."""
    most = 0

    def all_done() -> bool:
        nonlocal most
        down = {int(call.name[-3:]) % ZONES for call in fleet.world.under_way() if call.op is Op.UPDATE}
        most = max(most, len(down))
        return fleet.colours() == {colour: fleet.size}

    return most if await fleet.until(all_done, every=0.05) else -1


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(zones=ZONES, policy=ALL)
    fleet.world.trouble = Trouble(slow=1.0)
    await fleet.declare("maintained")
    most = await most_at_once(fleet, "maintained")
    return Figures(most, ZONES, None, "—" if fleet.naive else "by itself" if most > 0 else "not")


async def repairs(fleet: Fleet) -> Figures:
    """The same where reality has changed, and no declaration."""
    await fleet.stand(zones=ZONES, policy=ALL)
    fleet.world.trouble = Trouble(slow=1.0)
    fleet.drift(fleet.names)
    return Figures(await most_at_once(fleet, "red"), ZONES, None, "by itself")


async def sick(fleet: Fleet) -> Figures:
    """What was maintained does not come up again: the other domains are left standing."""
    await fleet.stand(zones=ZONES, policy=ALL)
    fleet.world.sick = lambda thing: "it does not come up" if thing.fields["colour"] == "maintained" else ""
    await fleet.declare("maintained")
    told = await fleet.told()
    await asyncio.sleep(600)
    return Figures(len({int(name[-3:]) % ZONES for name in fleet.touched}), ZONES, told, "—")


async def honest(fleet: Fleet) -> Figures:
    """all domains are maintained, one after the other"""
    await fleet.stand(zones=ZONES, policy=ALL)
    await fleet.declare("maintained")
    return await fleet.honest(lambda: fleet.colours() == {"maintained": fleet.size})


@pytest.mark.parametrize(("size", "seed"), [(4, 1), (9, 2), (31, 3)])
def test_only_one_domain_is_maintained_at_a_time(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 1
    assert figures.came_back == "by itself"


def test_and_only_one_is_repaired_at_a_time() -> None:
    assert live_through(repairs).damage == 1


def test_a_domain_that_does_not_come_up_again_is_the_only_one() -> None:
    figures = live_through(sick)
    assert figures.damage == 1
    assert figures.told_after is not None


def test_honest_maintenance_goes_through_all_of_them() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_works_on_all_of_them() -> None:
    assert live_through(incident, naive=True).damage == ZONES
