"""A mistyped number took away more servers than was meant."""

from __future__ import annotations

from tests.scenarios.fleet import Figures, Fleet, live_through

MUST_HOLD = "more deletions than the cap want a person's word, all of them together"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    await fleet.delete(fleet.names[:5])  # one was meant
    return await fleet.figures(lambda: len(fleet.world.things) == 15, approve=True)


def test_a_few_too_many_are_not_deleted_unasked() -> None:
    figures = live_through(incident)
    assert figures.damage == 0
    assert figures.told_after is not None
    assert figures.came_back == "by one approval"


def test_a_naive_loop_deletes_what_the_number_says() -> None:
    assert live_through(incident, naive=True).damage == 5
