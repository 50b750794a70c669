"""The same edit of a template, as a commit: rendered, it leaves none of the services."""

from __future__ import annotations

from tests.scenarios.fleet import SIZE, Figures
from tests.scenarios.shop import SERVICES, TEMPLATE, Shop, live_from_git

INCIDENT = "Skyscanner, 2021, from Git"
MUST_HOLD = "a commit is one change set, however its files are rendered: what it would delete is halted before the first is gone"
live = live_from_git

BROKEN = TEMPLATE.replace("name: {{ name }}", "name: name").replace("{% for name in vars.SERVICES.split() %}", "{% for _ in [1] %}")


async def incident(shop: Shop) -> Figures:
    await shop.stand()
    bad = await shop.push({"services.yaml.j2": BROKEN}, "harmless")
    told = await shop.told()
    if shop.naive:
        await shop.at(bad)
        return Figures(await shop.damage(), SIZE, told, "—")
    for _ in range(3):
        await shop.whole_pass()
    damage = await shop.damage()
    back = await shop.push({"services.yaml.j2": TEMPLATE}, "Revert")

    async def came() -> bool:
        return bool((await shop.syncs.get("shop"))["status"].get("commit") == back and await shop.values() == dict.fromkeys(SERVICES, "1"))

    said = await shop.through(came)
    return Figures(damage, SIZE, told, "by itself, once corrected" if said != "not" else said)


async def honest(shop: Shop) -> Figures:
    """a new version of all services, out of the same template"""
    await shop.stand()
    await shop.services("2")

    async def all_new() -> bool:
        return await shop.values() == dict.fromkeys(SERVICES, "2")

    said = await shop.through(all_new, approve=True)
    return Figures(await shop.damage(), SIZE, None, said)


def test_a_commit_that_renders_no_service_deletes_none() -> None:
    figures = live_from_git(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once corrected"


def test_an_honest_commit_of_all_needs_one_approval() -> None:
    assert live_from_git(honest).came_back == "by one approval"


def test_a_naive_loop_deletes_every_service() -> None:
    assert live_from_git(incident, naive=True).damage == SIZE
