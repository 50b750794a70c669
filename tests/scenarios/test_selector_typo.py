"""A label in the selector of a policy is mistyped: it guards nothing any more, and its freeze holds nothing."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.model.conditions import find_condition
from homeostat.sim.house import KIND

INCIDENT = "A typo in the selector of a policy"
MUST_HOLD = "the default of the kind takes over, with careful limits; and the policy says that it selects nothing"
FREEZE = {"freezes": [{"reason": "the release is being examined", "author": "eve"}]}


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    if not fleet.naive:
        await fleet.policy(FREEZE)
        await fleet.policy({"fleet": {"kinds": [KIND], "selector": {"matchLabels": {"tier": "wbe"}}}})
    await fleet.declare("blue")
    told = round(fleet.now - fleet.fault_at, 1) if await fleet.until(lambda: _selects_nothing(fleet), 300, every=0.1) else None
    await asyncio.sleep(3 * PASS)
    if fleet.naive:
        return Figures(await fleet.damage(), fleet.size, None, "—")
    await fleet.policy({"fleet": {"kinds": [KIND], "selector": None}})
    guards = await fleet.until(lambda: _guards_all(fleet, "things"))
    await asyncio.sleep(PASS)
    return Figures(await fleet.damage(), fleet.size, told, "by itself, once corrected" if guards else "not")


async def honest(fleet: Fleet) -> Figures:
    """a policy is declared before what it is to guard"""
    policies = fleet.house.policies
    await fleet.stand()
    await policies.create({"metadata": {"name": "web"}, "spec": {"fleet": {"kinds": [KIND], "selector": {"matchLabels": {"tier": "web"}}}, **FREEZE}})
    await asyncio.sleep(PASS)
    for name in fleet.names:
        await fleet.house.things.patch(name, {"metadata": {"labels": {"tier": "web"}}})
    return await fleet.honest(lambda: _guards_all(fleet, "web"))


async def _said(fleet: Fleet, policy: str) -> str:
    return str((find_condition(await fleet.house.policies.get(policy), "Ready") or {}).get("reason", ""))


async def _selects_nothing(fleet: Fleet) -> bool:
    return not fleet.naive and await _said(fleet, "things") == "SelectsNothing"


async def _guards_all(fleet: Fleet, policy: str) -> bool:
    status = (await fleet.house.policies.get(policy)).get("status") or {}
    return await _said(fleet, policy) != "SelectsNothing" and status.get("fleetSize") == fleet.size


def test_the_default_takes_over_and_the_policy_says_that_it_selects_nothing() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.told_after < PASS
    assert figures.came_back == "by itself, once corrected"


def test_a_policy_may_be_there_before_what_it_guards() -> None:
    assert live_through(honest).came_back != "not"


def test_a_naive_loop_changes_the_whole_fleet() -> None:
    assert live_through(incident, naive=True).damage == 20
