"""A package manager switched an autoscaler back on that a person had stopped; it acted on partial data."""

from __future__ import annotations

import asyncio

from tests.scenarios.fleet import PASS, Figures, Fleet, live_through

MUST_HOLD = "a freeze is a declared state that nothing else lifts; looking goes on"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    if not fleet.naive:
        await fleet.policy({"freezes": [{"reason": "we move the database", "author": "ana"}]})
    await asyncio.sleep(1)
    fleet.fault()
    fleet.house.crash()  # and the supervisor starts it again, as a package manager would
    await fleet.house.start_engine(fleet.gates, workers=16)
    if not fleet.naive:
        await fleet.policy({"cap": 5})  # somebody edits the policy, and has nothing to do with the freeze
    fleet.drift(fleet.names[:4])
    told = await fleet.told()
    await asyncio.sleep(3 * PASS)
    damage = len(fleet.touched)
    if fleet.naive:
        return Figures(damage, len(fleet.names), told, "—")
    await fleet.policy({"freezes": []})
    came = await fleet.until(lambda: fleet.colours() == {"red": len(fleet.names)}, PASS)
    return Figures(damage, len(fleet.names), told, "by the person who froze it" if came else "not")


def test_nothing_but_a_person_lifts_a_freeze() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by the person who froze it"


def test_a_naive_loop_acts_as_soon_as_it_runs_again() -> None:
    assert live_through(incident, naive=True).damage == 4
