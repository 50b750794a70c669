"""An empty set was read as everything, and the machines of a whole fleet were erased."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.scenarios.fleet import PASS, Figures, Fleet, Incident, live_through

INCIDENT = "Google Diskerase"
MUST_HOLD = "an empty selector selects nothing"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(mode="Observe")
    if not fleet.naive:
        empty = {"fleet": {}, "mode": "Enforce"}  # whoever wrote it meant one rack, and the list came out empty
        await fleet.house.policies.create({"metadata": {"name": "rack"}, "spec": empty})
    await fleet.declare("erased")
    return await fleet.corrected()


async def erase_by_labels(fleet: Fleet) -> Figures:
    """The same by the client: whoever deletes by labels, and has none."""
    await fleet.stand()
    with pytest.raises(ValueError, match="needs a selector"):
        await fleet.house.things.delete_collection(labels="")
    await asyncio.sleep(PASS)
    return Figures(await fleet.damage(), fleet.size, None, "—")


def with_selection(selection: dict[str, Any]) -> Incident:
    """A policy with this selection and no other: whether anything is done by it."""

    async def live(fleet: Fleet) -> Figures:
        await fleet.stand(mode="Observe")
        await fleet.house.policies.create(
            {"metadata": {"name": "rack"}, "spec": {"fleet": selection, "mode": "Enforce"}}
        )
        await fleet.declare("erased", fleet.names[:1])
        await asyncio.sleep(PASS)
        return Figures(await fleet.damage(), fleet.size, None, "—")

    return live


async def honest(fleet: Fleet) -> Figures:
    """a policy that names its kind lets one machine be erased"""
    await fleet.stand()
    await fleet.declare("erased", fleet.names[:1])
    return await fleet.honest(lambda: fleet.colours() == {"red": fleet.size - 1, "erased": 1})


@pytest.mark.parametrize("size", [1, 9, 20])
def test_a_policy_that_selects_nothing_opens_no_gate(size: int) -> None:
    figures = live_through(incident, size=size)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by itself, once corrected"


@pytest.mark.parametrize(
    "selection",
    [{"kinds": []}, {"namespaces": ["default"]}, {"selector": {}}, {"selector": {"matchLabels": {}}}],
)
def test_nothing_is_selected_where_no_kind_is_named(selection: dict[str, Any]) -> None:
    assert live_through(with_selection(selection), size=2).damage == 0


def test_deleting_by_no_labels_deletes_nothing() -> None:
    assert live_through(erase_by_labels, size=3).damage == 0


def test_what_is_named_is_done_at_once() -> None:
    assert live_through(honest).came_back == "at once"


def test_a_naive_loop_takes_it_for_everything() -> None:
    assert live_through(incident, naive=True).damage == 20
