"""The API behind the things answers, with an empty page: after a failover, from a stale cache, or to a token that sees less."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

INCIDENT = "An API that answers an empty page"
MUST_HOLD = "where more than 20 % are read as gone, one is made first: while it does not show, nothing more is made beside what is there"
OUTAGE = 1800.0


async def incident(fleet: Fleet, seen: int = 0) -> Figures:
    await fleet.stand()
    fleet.world.hidden = lambda name: name not in fleet.names[:seen]
    told = await _halted(fleet)
    if not fleet.naive:
        (halt,) = (await fleet.house.policies.get("things"))["status"]["halts"]
        assert halt["guard"] == "unknown"
        assert "the observer is suspected" in halt["reason"]
        assert "homeostat approve" in halt["whatToDo"]
    await asyncio.sleep(OUTAGE)
    made = len({call.name for call in fleet.world.calls[fleet.before :]})
    calls = len(fleet.world.calls) - fleet.before
    assert fleet.naive or calls == made, "it was made again and again"
    if fleet.naive:
        return Figures(made, fleet.size, told, "—")
    fleet.world.hidden = None
    came = await fleet.until(lambda: _calm(fleet))
    return Figures(made, fleet.size, told, "by itself" if came else "not")


async def truncated(fleet: Fleet) -> Figures:
    """Only the first half of the list is there, and what is made anew does not come into it."""
    return await incident(fleet, fleet.size // 2)


async def dropped(fleet: Fleet) -> Figures:
    """All are gone, and what is made is dropped: a person says so once it is no more."""
    await fleet.stand()
    fleet.world.hidden = lambda name: True
    await _halted(fleet)
    fleet.world.things.clear()
    fleet.world.hidden = None
    await asyncio.sleep(3 * PASS)
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size}, approve=True)


async def honest(fleet: Fleet) -> Figures:
    """all are gone, and are made again"""
    await fleet.stand()
    fleet.world.things.clear()
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


async def _halted(fleet: Fleet) -> float | None:
    """Waits until a person could read that the observer is suspected; gives after how long."""

    async def halted() -> bool:
        return not fleet.naive and await fleet.halted_by() == "unknown"

    return round(fleet.now - fleet.fault_at, 1) if await fleet.until(halted, 5 * PASS, every=0.1) else None


async def _calm(fleet: Fleet) -> bool:
    return not await fleet.says()


@pytest.mark.parametrize("size", [5, 9, 20])
def test_two_at_most_are_made_beside_those_that_are_there(size: int) -> None:
    figures = live_through(incident, size=size, seed=size)
    assert figures.damage <= 2
    assert figures.told_after is not None
    assert figures.told_after <= 2 * PASS
    assert figures.came_back == "by itself"


def test_nor_more_where_the_list_is_cut_off() -> None:
    figures = live_through(truncated)
    assert figures.damage <= 2
    assert figures.came_back == "by itself"


def test_what_is_really_gone_is_made_again_by_one_approval() -> None:
    assert live_through(dropped).came_back.startswith("by one approval")


def test_what_is_gone_and_can_be_seen_again_is_made_by_itself() -> None:
    figures = live_through(honest)
    assert figures.damage == 0  # only creations
    assert figures.came_back.startswith("by itself")


def test_a_naive_loop_makes_them_all_a_second_time() -> None:
    assert live_through(incident, naive=True).damage == 20
