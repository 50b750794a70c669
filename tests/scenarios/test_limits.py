"""Where the limits are, to the very thing: more than the limit trips, shares are rounded down, and are never below one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, Incident, live_through


def changing(count: int) -> Incident:
    """So many are changed by one change set."""

    async def live(fleet: Fleet) -> Figures:
        await fleet.stand()
        await fleet.declare("blue", fleet.names[:count])
        await asyncio.sleep(3 * PASS)
        return Figures(await fleet.damage(), fleet.size, None, await fleet.halted_by())

    return live


def drifting(count: int) -> Incident:
    """So many are changed by somebody else."""

    async def live(fleet: Fleet) -> Figures:
        await fleet.stand()
        fleet.drift(fleet.names[:count])
        await asyncio.sleep(3 * PASS)
        return Figures(await fleet.damage(), fleet.size, None, await fleet.halted_by())

    return live


def deleting(count: int) -> Incident:
    """So many are deleted."""

    async def live(fleet: Fleet) -> Figures:
        await fleet.stand()
        await fleet.delete(fleet.names[:count])
        await asyncio.sleep(3 * PASS)
        held = {hold.guard for hold in fleet.house.engine.ledger.holds.values()} if fleet.house.engine else set()
        return Figures(await fleet.damage(), fleet.size, None, ",".join(sorted(held)))

    return live


def blinding(count: int) -> Incident:
    """So many cannot be read, and one that can is not as declared."""

    async def live(fleet: Fleet) -> Figures:
        await fleet.stand()
        fleet.world.blinded = set(fleet.names[:count]).__contains__
        fleet.drift(fleet.names[-1:])
        await asyncio.sleep(3 * PASS)
        return Figures(await fleet.damage(), fleet.size, None, await fleet.halted_by())

    return live


@pytest.mark.parametrize("how", [changing, drifting])
@pytest.mark.parametrize(
    ("size", "count", "through"),
    [
        (9, 9, True),
        (10, 3, True),
        (10, 4, False),
        (13, 3, True),
        (13, 4, False),
        (20, 6, True),
        (20, 7, False),
        (33, 9, True),
        (33, 10, False),
    ],
)
def test_mass_drift_is_more_than_three_tenths_of_ten_or_more(
    how: Callable[[int], Incident], size: int, count: int, through: bool
) -> None:
    figures = live_through(how(count), size=size, seed=count)
    assert (figures.damage, figures.came_back) == ((count, "") if through else (0, "mass-drift"))


@pytest.mark.parametrize(
    ("size", "count", "through"),
    [
        (1, 1, True),
        (2, 2, False),
        (9, 1, True),
        (9, 2, False),
        (10, 1, True),
        (10, 2, False),
        (19, 2, False),
        (20, 2, True),
        (20, 3, False),
        (39, 3, True),
    ],
)
def test_more_deletions_than_a_tenth_want_a_word(size: int, count: int, through: bool) -> None:
    figures = live_through(deleting(count), size=size, seed=count)
    assert (figures.damage, figures.came_back) == ((count, "") if through else (0, "deletion"))


@pytest.mark.parametrize("count", [7, 20])
def test_many_deletions_are_mass_drift(count: int) -> None:
    figures = live_through(deleting(count), seed=count)
    assert (figures.damage, figures.came_back) == (0, "mass-drift")


@pytest.mark.parametrize(
    ("size", "count", "through"),
    [
        (2, 1, True),
        (5, 1, True),
        (5, 2, False),
        (9, 1, True),
        (9, 2, False),
        (10, 2, True),
        (10, 3, False),
        (20, 4, True),
        (20, 5, False),
    ],
)
def test_more_than_a_fifth_unreadable_holds_everything(size: int, count: int, through: bool) -> None:
    figures = live_through(blinding(count), size=size, seed=count)
    assert (figures.damage, figures.came_back) == ((1, "") if through else (0, "unknown"))
