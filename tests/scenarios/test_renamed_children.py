"""A new version of a template gives every object another name: those of the old name are no longer wanted."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through
from tests.scenarios.services import RegionSpec, Services, as_declared

INCIDENT = "A template that renames all it renders"
MUST_HOLD = "those of the new name are made beside, and those of the old stay until a person says that they may go"


def with_a_suffix(spec: RegionSpec, region: str) -> dict[str, str]:
    return {f"{name}-v2": setting for name, setting in as_declared(spec, region).items()}


async def incident(fleet: Fleet) -> Figures:
    services = Services(fleet)
    await services.stand()
    await services.deploy(with_a_suffix)
    told = await services.told()
    await asyncio.sleep(3 * PASS)
    damage = await services.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    await services.deploy(as_declared)
    cleared = await services.honest(services.calm, approve=True)  # what was made beside them goes again
    return Figures(damage, fleet.size, told, cleared.came_back)


async def honest(fleet: Fleet) -> Figures:
    """all are to have another name"""
    services = Services(fleet)
    await services.stand()
    await services.deploy(with_a_suffix)
    return await services.honest(lambda: _renamed(services), approve=True)


async def _renamed(services: Services) -> bool:
    return sorted(await services.found()) == [f"{name}-v2" for name in services.names]


@pytest.mark.parametrize(("size", "seed"), [(9, 1), (20, 2)])
def test_none_of_the_old_name_is_deleted(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back.startswith("by one approval")


def test_a_rename_that_is_meant_needs_one_approval() -> None:
    assert live_through(honest).came_back.startswith("by one approval")


def test_a_naive_loop_deletes_them_all() -> None:
    assert live_through(incident, naive=True).damage == 20
