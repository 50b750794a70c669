"""One unused block was removed, a bug made an empty configuration of what was left, and it was rolled out everywhere."""

from __future__ import annotations

import pytest
from tests.scenarios.fleet import Figures, Fleet, live_through
from tests.scenarios.services import RegionSpec, Services, as_declared

INCIDENT = "GCE network, 2016: an empty configuration"
MUST_HOLD = "a configuration that came out empty is a mass deletion, and halted as one"


def that_gives_up_without_it(spec: RegionSpec, region: str) -> dict[str, str]:
    return as_declared(spec, region) if "service-0" in spec.services else {}


async def incident(fleet: Fleet) -> Figures:
    network = Services(fleet, regions=1)
    network.template.render = that_gives_up_without_it
    await network.stand()
    await network.set("region-0", services=network.regions["region-0"][1:])
    return await network.figures(lambda: _left(network, 0), approve=True)


async def corrected(fleet: Fleet) -> Figures:
    """The block is put back before anybody approves anything."""
    network = Services(fleet, regions=1)
    network.template.render = that_gives_up_without_it
    await network.stand()
    await network.set("region-0", services=network.regions["region-0"][1:])
    told = await network.told()
    await network.set("region-0")
    came = await network.until(network.calm)
    return Figures(await network.damage(), fleet.size, told, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """one unused block is removed, and nothing else"""
    network = Services(fleet, regions=1)
    await network.stand()
    await network.set("region-0", services=network.regions["region-0"][1:])
    return await network.honest(lambda: _left(network, fleet.size - 1))


async def _left(network: Services, count: int) -> bool:
    return len(await network.found()) == count


@pytest.mark.parametrize(("size", "seed"), [(2, 5), (9, 1), (33, 4)])
def test_an_empty_configuration_deletes_nothing_unasked(size: int, seed: int) -> None:
    figures = live_through(incident, size=size, seed=seed)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.told_after < 5
    assert figures.came_back == "by one approval"


@pytest.mark.parametrize("size", [9, 20])
def test_it_goes_on_by_itself_where_the_block_is_put_back(size: int) -> None:
    figures = live_through(corrected, size=size)
    assert figures.damage == 0
    assert figures.came_back == "by itself"


def test_one_block_is_removed_at_once() -> None:
    figures = live_through(honest)
    assert (figures.damage, figures.came_back) == (1, "at once")


def test_a_naive_loop_rolls_the_empty_configuration_out() -> None:
    assert live_through(incident, naive=True).damage == 20
