"""A repository cannot be read, and a directory is not where it was: neither is an empty one."""

from __future__ import annotations

import shutil
from unittest.mock import patch

from tests.scenarios.fleet import SIZE, Figures
from tests.scenarios.shop import SERVICES, Shop, live_from_git
from tests.sources.repo import config_map

from homeostat.sources import rendering
from homeostat.sources.files import RenderError

INCIDENT = "Argo CD #18480, from Git"
MUST_HOLD = "a repository, branch or directory that cannot be read is not empty: nothing is deleted for it"
live = live_from_git

APPS: dict[str, str | None] = {f"apps/{name}.yaml": config_map(name) for name in SERVICES}


async def incident(shop: Shop) -> Figures:
    await _apps(shop)
    if not shop.naive:  # that a fetch fails keeps even a naive loop from acting; that a directory is gone does not
        shutil.move(shop.repo.path, f"{shop.repo.path}-gone")
        shop.poke()
        await shop.says("SourceUnknown")
        await shop.whole_pass()
        assert await shop.damage() == 0
        shutil.move(f"{shop.repo.path}-gone", shop.repo.path)
    shop.repo.git("mv", "apps", "applications")
    await shop.fault()
    bad = await shop.push({}, "tidy up")
    told = await shop.told()
    if shop.naive:
        await shop.at(bad)
        return Figures(await shop.damage(), SIZE, told, "—")
    for _ in range(3):
        await shop.whole_pass()
    damage = await shop.damage()
    shop.repo.git("revert", "--no-edit", "HEAD")
    shop.poke()
    await shop.at(shop.repo.git("rev-parse", "HEAD"))
    return Figures(damage + await shop.damage(), SIZE, told, "by itself, once corrected")


async def _apps(shop: Shop) -> None:
    shop.repo.commit({**APPS, "README.md": "apps"})
    await shop.begin(path="apps")
    await shop.whole_pass()
    await shop.fault()


async def honest(shop: Shop) -> Figures:
    """one of them is removed by a commit"""
    await _apps(shop)
    await shop.push({f"apps/{SERVICES[0]}.yaml": None})

    async def one_less() -> bool:
        return sorted(await shop.values()) == SERVICES[1:]

    return Figures(await shop.damage(), SIZE, None, await shop.through(one_less))


async def obedient(shop: Shop) -> Figures:
    """A naive loop takes what it cannot read for empty."""
    render = rendering.render

    def render_or_nothing(*given: object) -> object:
        try:
            return render(*given)  # type: ignore[arg-type]
        except RenderError:
            return rendering.Rendered("", [])

    with patch("homeostat.sources.readying.render", render_or_nothing):
        return await incident(shop)


def test_what_cannot_be_read_deletes_nothing() -> None:
    figures = live_from_git(incident)
    assert (figures.damage, figures.came_back) == (0, "by itself, once corrected")
    assert figures.told_after is not None


def test_what_a_commit_really_removes_is_pruned() -> None:
    assert live_from_git(honest).came_back.startswith(("at once", "by itself"))


def test_a_naive_loop_deletes_every_application() -> None:
    assert live_from_git(obedient, naive=True).damage == SIZE
