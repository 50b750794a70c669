"""A definition was deleted, and with it the server deleted every object of its kind."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.loop.controller import ADOPT
from homeostat.model.conditions import find_condition
from homeostat.model.kinds import crd_for
from homeostat.sim.house import KIND
from homeostat.sim.world import Things

INCIDENT = "A definition deleted, and all its objects"
MUST_HOLD = "what is deleted with its definition is a mass deletion: the things stay, and are had back by declaring them anew"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    definitions = fleet.house.people.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    await definitions.delete(KIND)
    if fleet.naive:
        await asyncio.sleep(3 * PASS)
        return Figures(await fleet.damage(), fleet.size, None, "—")
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = await fleet.damage()
    specs = {name: (await fleet.house.things.get(name))["spec"] for name in fleet.names}
    for name in fleet.names:
        await fleet.house.things.patch(name, {"metadata": {"finalizers": None}})
    await asyncio.sleep(5)
    await definitions.create(crd_for(Things.info))
    await asyncio.sleep(5)
    for name, spec in specs.items():
        made = await fleet.house.declare(name, spec, annotations={ADOPT: "true"})
        fleet.world.things[name][0].owner = made["metadata"]["uid"]
    await fleet.until(lambda: _well(fleet))
    await fleet.declare("blue", fleet.names[:1])  # and the loop goes on with them
    came = await fleet.until(lambda: fleet.colours() == {"blue": 1, "red": fleet.size - 1}, PASS)
    return Figures(damage, fleet.size, told, "by declaring them anew" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """a kind is given up, with all that there is of it"""
    await fleet.stand()
    await fleet.house.people.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").delete(KIND)
    return await fleet.honest(lambda: not fleet.world.things, approve=True)


async def _well(fleet: Fleet) -> bool:
    return all((find_condition(thing, "Ready") or {}).get("status") == "True" for thing in await fleet.house.things.list())


@pytest.mark.parametrize(("size", "seed"), [(20, 0), (12, 1)])
def test_the_things_outlive_their_definition(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by declaring them anew"


def test_a_kind_that_is_given_up_goes_by_one_approval() -> None:
    assert live_through(honest).came_back.startswith("by one approval")


def test_a_naive_loop_deletes_them_all() -> None:
    assert live_through(incident, naive=True).damage == 20
