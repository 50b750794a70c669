"""A script that was to delete an old app was given ids of another type, and deleted whole sites."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.model.errors import ApiError

INCIDENT = "Atlassian, 2022"
MUST_HOLD = (
    "a target is named by kind and uid; few go unasked, and those are kept for a grace in which they can be had back"
)
KEPT = {"deletion": {"grace": "1h"}}
WRONG = 2
"""So many that no limit finds it too much."""


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(policy=KEPT)
    ids = fleet.names[:WRONG]
    apps = fleet.house.people.kind("v1", "ConfigMap", namespace="default")
    for name in ids:
        with pytest.raises(ApiError, match="not found"):
            await apps.delete(name)  # of the kind that was meant there is none of that name
    await fleet.delete(ids)  # and somebody makes it fit
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    assert "it is kept until" in await fleet.says()
    await fleet.have_back(ids)
    came = await fleet.until(lambda: _all_well(fleet))
    await asyncio.sleep(3600 + PASS)
    kept = not fleet.touched and len(fleet.world.things) == fleet.size
    return Figures(damage, fleet.size, told, "by declaring them anew" if came and kept else "not")


async def many(fleet: Fleet) -> Figures:
    """The ids of all of them."""
    await fleet.stand()
    await fleet.delete()
    return await fleet.figures(lambda: not fleet.world.things, approve=True)


async def another_uid(fleet: Fleet) -> Figures:
    """The id of what had that name before."""
    await fleet.stand()
    uid = (await fleet.house.things.get(fleet.names[0]))["metadata"]["uid"]
    await fleet.delete(fleet.names[:1])
    await fleet.until(lambda: fleet.names[0] not in fleet.world.things)
    await asyncio.sleep(1)
    await fleet.house.declare(fleet.names[0], {"colour": "red"})
    await fleet.until(lambda: fleet.names[0] in fleet.world.things)
    fleet.fault()
    with pytest.raises(ApiError, match="the UID in the precondition"):
        await fleet.house.things.delete(fleet.names[0], uid=uid)
    await asyncio.sleep(PASS)
    return Figures(await fleet.damage(), fleet.size, None, "—")


async def long_different(fleet: Fleet) -> Figures:
    """It was not as declared for hours, and held, when it was deleted: its grace begins with the deletion."""
    await fleet.stand(policy=KEPT)
    await fleet.policy({"freezes": [{"reason": "we look into it", "author": "ana"}]})
    fleet.drift(fleet.names[:1])
    await asyncio.sleep(2 * 3600)
    await fleet.delete(fleet.names[:1])
    await fleet.policy({"freezes": []})
    await asyncio.sleep(600)
    damage = await fleet.damage()
    gone = await fleet.until(lambda: fleet.names[0] not in fleet.world.things)
    return Figures(damage, fleet.size, None, "by itself" if gone else "not")


async def honest(fleet: Fleet) -> Figures:
    """two are deleted that are to go, and kept for an hour"""
    await fleet.stand(policy=KEPT)
    await fleet.delete(fleet.names[:WRONG])
    return await fleet.honest(lambda: len(fleet.world.things) == fleet.size - WRONG)


async def _all_well(fleet: Fleet) -> bool:
    return len(await fleet.house.things.list()) == fleet.size and not await fleet.says()


@pytest.mark.parametrize(("size", "seed"), [(20, 0)])
def test_what_was_deleted_by_mistake_can_be_had_back(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by declaring them anew"


@pytest.mark.parametrize("size", [2, 10])
def test_many_are_not_deleted_unasked(size: int) -> None:
    figures = live_through(many, size=size)
    assert figures.damage == 0
    assert figures.came_back == "by one approval"


def test_an_id_of_what_is_gone_deletes_nothing_else() -> None:
    assert live_through(another_uid).damage == 0


def test_a_grace_begins_with_the_deletion_however_old_the_difference_is() -> None:
    figures = live_through(long_different, size=3)
    assert (figures.damage, figures.came_back) == (0, "by itself")


def test_what_is_to_go_goes_when_its_grace_is_over() -> None:
    figures = live_through(honest)
    assert (figures.damage, figures.came_back) == (WRONG, "by itself, in 60 min")


def test_a_naive_loop_deletes_them_at_once() -> None:
    assert live_through(incident, naive=True).damage == WRONG
