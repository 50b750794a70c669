"""A mistyped number took away more servers than was meant, and what was left could not carry the load."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

INCIDENT = "AWS S3, 2017"
MUST_HOLD = (
    "no plan leaves less than the least that is needed, whoever approves it; more than a few want a person's word"
)


def policy(least: int) -> dict[str, object]:
    """So many servers have to be there. Nothing else stands in the way of a deletion."""
    enough = {"name": "enough-servers", "expression": f"after.size() >= {least}", "message": f"{least} carry the load"}
    return {"invariants": [enough], "massDrift": {"limit": "100%"}, "deletion": {"confirmAbove": "100%"}}


def least(fleet: Fleet) -> int:
    return fleet.size * 3 // 4


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy=policy(least(fleet)))
    wrong = fleet.names[: fleet.size - least(fleet) + 1]  # one more than there may be
    await fleet.delete(wrong)
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    assert f"{least(fleet)} carry the load" in await fleet.says()
    await fleet.have_back(wrong[1:])  # one was meant
    came = await fleet.until(lambda: len(fleet.world.things) == fleet.size - 1)
    return Figures(damage, fleet.size, told, "by itself, once corrected" if came else "not")


async def approved(fleet: Fleet) -> Figures:
    """All of it was approved, by somebody who read the same wrong number."""
    await fleet.stand(policy={"invariants": policy(least(fleet))["invariants"]})
    await fleet.delete(fleet.names[: fleet.size - least(fleet) + 1])
    return await fleet.figures(lambda: len(fleet.world.things) < fleet.size, approve=True)


async def unasked(fleet: Fleet) -> Figures:
    """Nobody has declared how many there have to be: more than the cap want a person's word."""
    await fleet.stand()
    count = fleet.size // 4
    await fleet.delete(fleet.names[:count])
    return await fleet.figures(lambda: len(fleet.world.things) == fleet.size - count, approve=True)


async def honest(fleet: Fleet) -> Figures:
    """as many are taken away as can be spared"""
    await fleet.stand(policy=policy(least(fleet)))
    count = fleet.size - least(fleet)
    await fleet.delete(fleet.names[:count])
    return await fleet.honest(lambda: len(fleet.world.things) == least(fleet))


@pytest.mark.parametrize(("size", "seed"), [(4, 1), (9, 2), (31, 3)])
def test_no_server_is_taken_away_by_a_plan_that_leaves_too_few(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.told_after < 5
    assert figures.came_back == "by itself, once corrected"


def test_no_approval_lifts_it() -> None:
    figures = live_through(approved)
    assert (figures.damage, figures.came_back) == (0, "not")


@pytest.mark.parametrize("size", [8, 20])
def test_without_it_a_few_too_many_want_a_word(size: int) -> None:
    figures = live_through(unasked, size=size)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by one approval"


def test_what_can_be_spared_goes_at_once() -> None:
    figures = live_through(honest)
    assert (figures.damage, figures.came_back) == (5, "at once")


def test_a_naive_loop_deletes_what_the_number_says() -> None:
    assert live_through(incident, naive=True).damage == 6
