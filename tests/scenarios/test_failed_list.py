"""A list of clusters failed, was read as empty, and every application was deleted."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from tests.scenarios.fleet import Figures, Fleet, live_through

from homeostat.sim.world import World

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


def test_nothing_is_done_while_nothing_can_be_read() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself"


def test_a_naive_loop_makes_everything_a_second_time() -> None:
    assert live_through(obedient, naive=True).damage == 20
