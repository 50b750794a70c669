"""Beside the policy for all, each team has a stricter one for its own: what is pushed to all of them is little in each."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

from homeostat.model.protocol import CHANGE_SET
from homeostat.sim.house import KIND

INCIDENT = "A stricter policy for each team"
MUST_HOLD = "what a policy says of all that it selects holds, however many others select a part of it"
TEAMS = 5


async def incident(fleet: Fleet) -> Figures:
    await _teams(fleet)
    await fleet.declare("blue")
    return await fleet.corrected()


async def honest(fleet: Fleet) -> Figures:
    """one team of five changes all of its own"""
    await _teams(fleet)
    await fleet.declare("blue", fleet.names[::TEAMS])
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size // TEAMS, "red": fleet.size - fleet.size // TEAMS})


async def approved(fleet: Fleet) -> Figures:
    """All are to be changed: a person says so, for each fleet that the runbook names."""
    await _teams(fleet)
    await fleet.declare("blue")
    await fleet.told()
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size}, approve=True)


async def carried(fleet: Fleet) -> Figures:
    """The change set carries the approval of the whole."""
    await _teams(fleet)
    kinds = {KIND: {"changes": fleet.size}}
    await fleet.house.approvals.create({"metadata": {"name": "yes"}, "spec": {"changeSet": {"name": "push", "kinds": kinds}}})
    await fleet.declare("blue", change_set="push")
    return await fleet.honest(lambda: fleet.colours() == {"blue": fleet.size})


def deleted(count: int, teams: int) -> Figures:
    """So many are deleted, of each team one."""

    async def live(fleet: Fleet) -> Figures:
        await _teams(fleet, teams)
        await fleet.delete(fleet.names[:count])
        await asyncio.sleep(3 * PASS)
        assert fleet.house.engine is not None
        held = {hold.guard for hold in fleet.house.engine.ledger.holds.values()}
        return Figures(await fleet.damage(), fleet.size, None, ",".join(sorted(held)))

    return live_through(live)


async def _teams(fleet: Fleet, teams: int = TEAMS) -> None:
    await fleet.stand()
    for team in range(0 if fleet.naive else teams):
        own = {"kinds": [KIND], "selector": {"matchLabels": {"team": f"t{team}"}}}
        await fleet.house.policies.create({"metadata": {"name": f"team-{team}"}, "spec": {"fleet": own, "mode": "Enforce", "massDrift": {"limit": "10%"}}})
    for number, name in enumerate(fleet.names):
        await fleet.house.things.patch(name, {"metadata": {"labels": {"team": f"t{number % teams}"}, "annotations": {CHANGE_SET: "labels"}}})
    await asyncio.sleep(3 * PASS)
    fleet.fault()


def test_what_the_policy_for_all_says_holds() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.told_after < 3.0
    assert figures.came_back == "by itself, once corrected"


def test_a_team_changes_what_is_its_own_at_once() -> None:
    assert live_through(honest).came_back == "at once"


def test_what_is_meant_goes_through_by_approvals() -> None:
    assert live_through(approved).came_back.startswith(f"by {TEAMS} approvals")


def test_a_change_set_that_carries_its_approval_is_asked_about_nowhere() -> None:
    assert live_through(carried).came_back == "at once"


def test_what_is_deleted_in_many_fleets_is_counted_together() -> None:
    assert deleted(20, teams=20) == Figures(0, 20, None, "mass-drift")
    assert deleted(3, teams=20) == Figures(0, 20, None, "deletion")
    assert deleted(2, teams=20).damage == 2


def test_a_naive_loop_changes_them_all() -> None:
    assert live_through(incident, naive=True).damage == 20
