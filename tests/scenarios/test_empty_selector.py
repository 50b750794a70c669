"""An empty set was read as everything, and the machines of a whole fleet were erased."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

MUST_HOLD = "an empty selector selects nothing"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand(mode="Observe")
    if not fleet.naive:
        empty = {"fleet": {}, "mode": "Enforce"}  # whoever wrote it meant one rack, and the list came out empty
        await fleet.house.policies.create({"metadata": {"name": "rack"}, "spec": empty})
    await fleet.declare("erased")
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    return Figures(len(fleet.touched), len(fleet.names), told, "nothing to come back from")


def test_a_policy_that_selects_nothing_opens_no_gate() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None


def test_a_naive_loop_takes_it_for_everything() -> None:
    assert live_through(incident, naive=True).damage == 20
