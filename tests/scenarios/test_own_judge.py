"""A commit widened the limits that would have stopped it, because the last one had been stopped by them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.model.protocol import CHANGE_SET
from homeostat.sim.house import KIND

INCIDENT = "A commit that widens its own limits"
MUST_HOLD = "a change set that changes its policy is judged by what that was, too; the next goes by what it is"
WIDE = {"massDrift": {"limit": "100%"}, "cap": "100%", "canary": {"steps": ["100%"]}}


async def widen(fleet: Fleet, change_set: str = "") -> None:
    """Somebody applies a policy that lets everything through."""
    if not fleet.naive:
        marks = {"annotations": {CHANGE_SET: change_set}} if change_set else {}
        spec: dict[str, Any] = {"fleet": {"kinds": [KIND]}, "mode": "Enforce", **WIDE}
        await fleet.house.policies.apply({"metadata": {"name": "things", **marks}, "spec": spec}, field_manager="people", force=True)


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    await widen(fleet, "push")
    await fleet.declare("blue", change_set="push")
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    assert "GuardPolicy things as it was before" in await fleet.says()
    await fleet.declare("red", change_set="taken back")
    came = await fleet.until(lambda: _calm(fleet))
    return Figures(damage, fleet.size, told, "by itself, once corrected" if came and fleet.colours() == {"red": fleet.size} else "not")


async def restarted(fleet: Fleet) -> Figures:
    """The loop is started anew while it is held."""
    await fleet.stand()
    await widen(fleet, "push")
    await fleet.declare("blue", change_set="push")
    await asyncio.sleep(PASS)
    fleet.house.crash()
    await fleet.house.start_engine(fleet.gates, workers=16)
    await asyncio.sleep(3 * PASS)
    return Figures(await fleet.damage(), fleet.size, None, await fleet.halted_by())


async def approved(fleet: Fleet) -> Figures:
    """Both are meant."""
    await fleet.stand()
    await widen(fleet, "push")
    await fleet.declare("blue", change_set="push")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size}, approve=True)


async def honest(fleet: Fleet) -> Figures:
    """a person widens the limits, and then changes everything"""
    await fleet.stand()
    await widen(fleet, "wider limits")
    await asyncio.sleep(10)
    await fleet.declare("blue", change_set="push")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


async def _calm(fleet: Fleet) -> bool:
    return not await fleet.says()


@pytest.mark.parametrize(("size", "seed"), [(10, 1), (20, 0)])
def test_a_change_set_does_not_open_its_own_gate(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once corrected"


def test_nor_does_one_that_waits_for_a_restart() -> None:
    figures = live_through(restarted)
    assert (figures.damage, figures.came_back) == (0, "mass-drift")


def test_both_go_by_one_approval() -> None:
    assert live_through(approved).came_back.startswith("by one approval")


def test_wider_limits_count_for_the_next_change() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_knows_no_limits() -> None:
    assert live_through(incident, naive=True).damage == 20
