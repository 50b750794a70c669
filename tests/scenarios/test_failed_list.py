"""A list of clusters failed, was read as empty, and every application was deleted."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through
from tests.scenarios.services import RegionSpec, Services, as_declared

from homeostat.sim.world import World

INCIDENT = "Argo CD #18480"
MUST_HOLD = "a read error is not an empty list: nothing is done on what is unknown"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    fleet.world.blinded = lambda name: True
    told = await fleet.told()
    await asyncio.sleep(300)
    made = len({call.name for call in fleet.world.calls[fleet.before :]})
    if fleet.naive:
        return Figures(made, len(fleet.names), told, "—")
    fleet.drift(fleet.names[:1])
    fleet.world.blinded = None
    came = await fleet.until(lambda: fleet.colours() == {"red": len(fleet.names)})
    return Figures(made, len(fleet.names), told, "by itself" if came else "not")


async def generated(fleet: Fleet) -> Figures:
    """Applications are made of a list, and the list cannot be had."""
    apps = Services(fleet)
    await apps.stand()

    def render(spec: RegionSpec, region: str) -> dict[str, str]:
        raise ConnectionError("the list of clusters does not answer")

    await apps.deploy(render)
    await asyncio.sleep(3 * PASS)
    damage = await apps.damage()
    (said,) = {r["status"]["conditions"][0]["message"] for r in await apps.parents.list()}
    assert "the list of clusters does not answer" in said
    await apps.deploy(as_declared)
    came = await apps.until(apps.calm)
    return Figures(damage, fleet.size, None, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """a thing is gone, and that was read: it is made anew"""
    await fleet.stand()
    del fleet.world.things[fleet.names[0]]
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


async def obedient(fleet: Fleet) -> Figures:
    """A naive loop takes an error for an empty answer, too."""
    read = World.read

    async def read_or_nothing(self: World, name: str) -> object:
        try:
            return await read(self, name)
        except ConnectionError:
            return None

    with patch.object(World, "read", read_or_nothing):
        return await incident(fleet)


@pytest.mark.parametrize(("size", "seed"), [(1, 1), (9, 2), (20, 0)])
def test_nothing_is_done_while_nothing_can_be_read(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself"


def test_a_list_that_cannot_be_had_deletes_no_application() -> None:
    figures = live_through(generated)
    assert (figures.damage, figures.came_back) == (0, "by itself")


def test_what_is_really_gone_is_made_anew() -> None:
    assert live_through(honest).came_back.startswith("by itself")


def test_a_naive_loop_makes_everything_a_second_time() -> None:
    assert live_through(obedient, naive=True).damage == 20
