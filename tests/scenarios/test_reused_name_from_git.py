"""The name of what runs in production is declared once more, by a commit in another directory."""

from __future__ import annotations

from tests.scenarios.fleet import Figures
from tests.scenarios.shop import Shop, live_from_git
from tests.sources.repo import config_map

from homeostat.loop.declarations import ADOPT

INCIDENT = "InfluxData, 2022, from Git"
MUST_HOLD = "a Sync of the same name is another Sync: what it finds is not its own, and stays until it is adopted"
live = live_from_git


async def incident(shop: Shop) -> Figures:
    await _production(shop)
    await shop.syncs.delete("shop")  # its objects stay
    await shop.fault()
    await shop.declare(path="test")  # the name is free again, and somebody takes it
    told = await shop.told()
    if shop.naive:
        await shop.says("Applied")
        return Figures(await shop.damage(), 1, told, "—")
    for _ in range(3):
        await shop.whole_pass()
    damage = await shop.damage()
    await shop.declare(path="prod", metadata={"annotations": {ADOPT: "true"}})
    await shop.says("Applied")
    return Figures(damage + await shop.damage(), 1, told, "by adoption, declared")


async def _production(shop: Shop) -> None:
    shop.repo.commit({"prod/db.yaml": config_map("db", "production"), "test/db.yaml": config_map("db", "empty")})
    await shop.begin(path="prod")
    await shop.whole_pass()


async def honest(shop: Shop) -> Figures:
    """the Sync itself commits another value"""
    await _production(shop)
    await shop.push({"prod/db.yaml": config_map("db", "newer")})

    async def newer() -> bool:
        return await shop.values() == {"db": "newer"}

    return Figures(0, 1, None, await shop.through(newer))


def test_a_reused_name_touches_nothing_of_what_has_it() -> None:
    figures = live_from_git(incident)
    assert (figures.damage, figures.came_back) == (0, "by adoption, declared")
    assert figures.told_after is not None


def test_a_commit_of_its_own_goes_through() -> None:
    assert live_from_git(honest).came_back.startswith(("at once", "by itself"))


def test_a_naive_loop_writes_over_production() -> None:
    assert live_from_git(incident, naive=True).damage == 1
