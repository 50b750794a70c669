"""An edit of a template, made to look harmless, deleted every service in every region."""

from __future__ import annotations

import asyncio

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, live_through
from tests.scenarios.services import REGIONS, RegionSpec, Services, as_declared

INCIDENT = "Skyscanner, 2021"
MUST_HOLD = "what a template renders is judged as the whole that it is, and halted before its first action"


def with_a_brace_too_few(spec: RegionSpec, region: str) -> dict[str, str]:
    return {f"{region}-name": spec.setting}  # the service's name is not put in: there is one of that name, and no other


async def incident(fleet: Fleet) -> Figures:
    services = Services(fleet, regions=REGIONS)
    await services.stand()
    await services.deploy(with_a_brace_too_few)
    told = await services.told()
    await asyncio.sleep(3 * PASS)
    damage = await services.damage()
    if fleet.naive:
        return Figures(damage, fleet.size, told, "—")
    await services.deploy(as_declared)
    cleared = await services.honest(
        services.calm, approve=True
    )  # what the bad template had made beside them goes again
    return Figures(damage, fleet.size, told, cleared.came_back)


async def drop_by_drop(fleet: Fleet) -> Figures:
    """The edit reaches one region after the other, a second apart, and each has but one service."""
    services = Services(fleet, regions=fleet.size)
    await services.stand()
    for region in services.regions:
        await services.set(region, services=[], change_set="edit")
        await asyncio.sleep(1)
    told = await services.told()
    await asyncio.sleep(3 * PASS)
    return Figures(await services.damage(), fleet.size, told, "—")


async def honest(fleet: Fleet) -> Figures:
    """a new version of the template sets every service anew"""
    services = Services(fleet)
    await services.stand()
    await services.deploy(lambda spec, region: dict.fromkeys(as_declared(spec, region), "blue"))
    return await services.honest(lambda: services.all_there("blue"), approve=True)


@pytest.mark.parametrize(("size", "seed"), [(9, 1), (10, 2), (31, 3)])
def test_no_service_is_deleted_by_an_edit_of_a_template(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by one approval"


@pytest.mark.parametrize("size", [9, 20])
def test_an_edit_that_comes_in_drop_by_drop_is_stopped_at_the_cap(size: int) -> None:
    figures = live_through(drop_by_drop, size=size)
    assert figures.damage <= max(1, size // 10)
    assert figures.told_after is not None


def test_an_honest_edit_of_all_needs_one_approval() -> None:
    assert live_through(honest).came_back.startswith("by one approval")


def test_a_naive_loop_deletes_every_service() -> None:
    assert live_through(incident, naive=True).damage == 20
