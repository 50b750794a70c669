"""Turns: no more at a time than there are, in the order in which they came, and none is lost."""

from __future__ import annotations

import asyncio

import pytest

from homeostat.client.turns import Turns


async def waiting(turns: Turns, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(turns.wait()) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_there_are_no_more_than_there_are() -> None:
    turns = Turns(2)
    assert [turns.free() for _ in range(3)] == [True, True, False]
    turns.end()
    assert [turns.free() for _ in range(2)] == [True, False]


async def test_a_turn_is_handed_to_who_has_waited_longest_and_to_nobody_who_comes_later() -> None:
    turns = Turns(1)
    assert turns.free()
    first, second = await waiting(turns, 2)
    turns.end()
    assert not turns.free()
    await first
    assert not second.done()
    turns.end()
    await second


async def test_who_gave_up_waiting_is_passed_over() -> None:
    turns = Turns(1)
    assert turns.free()
    first, second = await waiting(turns, 2)
    first.cancel()
    await asyncio.sleep(0)
    turns.end()
    await second


async def test_a_turn_that_came_as_its_taker_gave_up_goes_to_the_next() -> None:
    turns = Turns(1)
    assert turns.free()
    first, second = await waiting(turns, 2)
    turns.end()
    first.cancel()  # it was handed the turn, and never takes it
    with pytest.raises(asyncio.CancelledError):
        await first
    await second
    turns.end()
    assert turns.free()
