"""A package manager switched an autoscaler back on that a person had stopped; it acted on partial data."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.fleet import plan_hash
from homeostat.model.clock import format_time

INCIDENT = "Reddit, 2016"
MUST_HOLD = "a freeze is a declared state that nothing else lifts; looking goes on"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    if not fleet.naive:
        await fleet.policy({"freezes": [{"reason": "we move the database", "author": "ana"}]})
    await asyncio.sleep(1)
    fleet.fault()
    fleet.house.crash()  # and the supervisor starts it again, as a package manager would
    await fleet.house.start_engine(fleet.gates, workers=16)
    if not fleet.naive:
        await fleet.policy({"cap": 5})  # somebody edits the policy, and has nothing to do with the freeze
    fleet.drift(fleet.names[:4])
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = len(fleet.touched)
    if fleet.naive:
        return Figures(damage, len(fleet.names), told, "—")
    assert "frozen by ana: we move the database" in await fleet.says()
    await fleet.policy({"freezes": []})
    came = await fleet.until(lambda: fleet.colours() == {"red": len(fleet.names)}, PASS)
    return Figures(damage, len(fleet.names), told, "by the person who froze it" if came else "not")


async def approved(fleet: Fleet) -> Figures:
    """Somebody approves what is frozen: that is no unfreezing."""
    await fleet.stand()
    await fleet.policy({"freezes": [{"reason": "we move the database", "author": "ana"}]})
    await fleet.declare("blue")
    await asyncio.sleep(1)
    for fleets in fleet.house.engine.fleets.values() if fleet.house.engine else ():
        await fleet.house.approve(plan_hash(fleets.drifts.values()))
    await asyncio.sleep(3 * PASS)
    return Figures(await fleet.damage(), fleet.size, None, "—")


async def partial(fleet: Fleet) -> Figures:
    """Nothing is frozen, and the loop comes up while a third of the fleet cannot be read."""
    await fleet.stand()
    fleet.house.crash()
    fleet.world.blinded = set(fleet.names[: fleet.size // 3]).__contains__
    fleet.drift(fleet.names[-1:])
    await fleet.house.start_engine(fleet.gates, workers=16)
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    fleet.world.blinded = None
    came = await fleet.until(lambda: fleet.colours() == {"red": fleet.size})
    return Figures(damage, fleet.size, told, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """a freeze ends after an hour, as was said"""
    await fleet.stand()
    end = format_time(fleet.house.clock.now() + 3600)
    await fleet.policy({"freezes": [{"reason": "we move the database", "author": "ana", "until": end}]})
    fleet.drift(fleet.names[:1])
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size})


def test_no_approval_lifts_a_freeze() -> None:
    assert live_through(approved).damage == 0


@pytest.mark.parametrize("size", [9, 20])
def test_partial_data_after_a_restart_holds_everything(size: int) -> None:
    figures = live_through(partial, size=size)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself"


def test_a_freeze_with_an_end_ends_by_itself() -> None:
    assert live_through(honest).came_back in ("by itself, in 60 min", "by itself, in 61 min")


@pytest.mark.parametrize(("size", "seed"), [(9, 1), (20, 0)])
def test_nothing_but_a_person_lifts_a_freeze(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by the person who froze it"


def test_a_naive_loop_acts_as_soon_as_it_runs_again() -> None:
    assert live_through(incident, naive=True).damage == 4
