"""A halt had no way out but switching the guard off, and stayed off."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

INCIDENT = "A guard that never clears"
MUST_HOLD = "one approval of the exact plan lets it through, once; the next is halted again"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    await fleet.declare("blue")
    return await fleet.figures(lambda: fleet.colours() == {"blue": len(fleet.names)}, approve=True)


async def again(fleet: Fleet) -> Figures:
    """The same once more: the approval was for that plan, and is spent."""
    await incident(fleet)
    fleet.fault()
    await fleet.declare("black", change_set="another")
    return await fleet.figures(lambda: fleet.colours() == {"black": len(fleet.names)}, approve=True)


async def moved(fleet: Fleet) -> Figures:
    """The plan is another by the time it is approved: the approval fits nothing."""
    await fleet.stand()
    await fleet.declare("blue")
    await fleet.until(lambda: bool(fleet.house.plans()), every=0.1)
    (plan,) = fleet.house.plans()
    await fleet.declare("black", fleet.names[:1], change_set="another")
    await asyncio.sleep(1)
    await fleet.house.approve(plan)
    await asyncio.sleep(3 * PASS)
    return Figures(await fleet.damage(), fleet.size, None, "—")


async def fixed(fleet: Fleet) -> Figures:
    """It was a mistake, and is taken back: nobody has to approve anything."""
    await fleet.stand()
    await fleet.declare("blue")
    told = await fleet.told()
    await fleet.declare("red", change_set="taken back")
    came = await fleet.until(lambda: _open_again(fleet))
    return Figures(await fleet.damage(), fleet.size, told, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """everything is changed, and meant so"""
    await fleet.stand()
    await fleet.declare("blue")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size}, approve=True)


async def _open_again(fleet: Fleet) -> bool:
    return not await fleet.halted_by()


def test_an_approval_fits_no_other_plan() -> None:
    assert live_through(moved).damage == 0


def test_a_fix_ends_the_halt_without_a_word() -> None:
    figures = live_through(fixed)
    assert (figures.damage, figures.came_back) == (0, "by itself")


@pytest.mark.parametrize(("size", "seed"), [(10, 2), (20, 0), (37, 3)])
def test_an_honest_change_of_everything_needs_one_approval(size: int, seed: int) -> None:
    assert live_through(honest, size=size, seed=seed).came_back.startswith("by one approval")


def test_nothing_is_done_before_it_is_approved() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.came_back == "by one approval"


def test_an_approval_is_good_once() -> None:
    figures = live_through(again)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by one approval"


def test_a_naive_loop_asks_nobody() -> None:
    assert live_through(incident, naive=True).damage == 20
