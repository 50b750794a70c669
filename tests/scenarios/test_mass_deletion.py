"""A template edit deletes every service everywhere; an empty configuration is generated and obeyed."""

from __future__ import annotations

from tests.scenarios.fleet import Figures, Fleet, live_through

MUST_HOLD = "the change is judged as the whole that it is, and halted before its first action"


async def incident(fleet: Fleet) -> Figures:
    await fleet.stand()
    await fleet.delete()
    return await fleet.figures(lambda: not fleet.world.things, approve=True)


async def honest(fleet: Fleet) -> Figures:
    await fleet.stand()
    await fleet.delete(fleet.names[:2])
    came = await fleet.until(lambda: len(fleet.world.things) == len(fleet.names) - 2, 60)
    return Figures(len(fleet.touched), len(fleet.names), None, "by itself" if came else "not")


def test_nothing_is_deleted_before_a_person_approves_exactly_that() -> None:
    figures = live_through(incident)
    assert figures.damage <= 1
    assert figures.told_after is not None
    assert figures.told_after < 5
    assert figures.came_back == "by one approval"


def test_a_few_deletions_go_through_at_once() -> None:
    assert live_through(honest).came_back == "by itself"


def test_a_naive_loop_deletes_everything() -> None:
    assert live_through(incident, naive=True).damage == 20
