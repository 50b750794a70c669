"""A halt had no way out but switching the guard off, and stayed off."""

from __future__ import annotations

from tests.scenarios.fleet import Figures, Fleet, live_through

MUST_HOLD = "one approval of the exact plan lets it through, once; the next is halted again"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    await fleet.declare("blue")
    return await fleet.figures(lambda: fleet.colours() == {"blue": len(fleet.names)}, approve=True)


async def again(fleet: Fleet) -> Figures:
    """The same once more: the approval was for that plan, and is spent."""
    await incident(fleet)
    fleet.fault()
    await fleet.declare("black", change_set="another")
    return await fleet.figures(lambda: fleet.colours() == {"black": len(fleet.names)}, approve=True)


def test_an_honest_change_of_everything_needs_one_approval() -> None:
    figures = live_through(incident)
    assert figures.damage <= 1
    assert figures.came_back == "by one approval"


def test_an_approval_is_good_once() -> None:
    figures = live_through(again)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.came_back == "by one approval"


def test_a_naive_loop_asks_nobody() -> None:
    assert live_through(incident, naive=True).damage == 20
