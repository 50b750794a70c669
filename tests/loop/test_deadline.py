"""Deadlines: what takes too long fails, and nothing else notices."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.loop.virtual import run

from homeostat.loop.deadline import Deadlines

SOON = 1.0
NEVER = 3600.0


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def virtual() -> None:
        run(test())

    return virtual


@in_virtual_time
async def test_what_takes_too_long_fails_as_a_timeout() -> None:
    deadlines = Deadlines()
    with pytest.raises(TimeoutError), deadlines.within(SOON):
        await asyncio.sleep(NEVER)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # and the task goes on


@in_virtual_time
async def test_what_ends_in_time_is_let_be_also_after_its_deadline() -> None:
    deadlines = Deadlines()
    with deadlines.within(SOON):
        await asyncio.sleep(0)
    await asyncio.sleep(3 * SOON)


@in_virtual_time
async def test_an_earlier_deadline_is_kept_though_a_later_one_was_set_first() -> None:
    deadlines, order = Deadlines(), []

    async def work(seconds: float) -> None:
        with pytest.raises(TimeoutError), deadlines.within(seconds):
            await asyncio.sleep(NEVER)
        order.append(seconds)

    await asyncio.gather(work(4 * SOON), work(SOON), work(2 * SOON))
    assert order == [SOON, 2 * SOON, 4 * SOON]


@in_virtual_time
async def test_a_deadline_inside_of_another_fails_by_itself() -> None:
    deadlines = Deadlines()
    with deadlines.within(NEVER):
        with pytest.raises(TimeoutError), deadlines.within(SOON):
            await asyncio.sleep(NEVER)
        await asyncio.sleep(0)


@in_virtual_time
async def test_who_is_cancelled_by_another_is_cancelled_and_not_late() -> None:
    deadlines = Deadlines()

    async def work() -> None:
        with deadlines.within(NEVER):
            await asyncio.sleep(NEVER)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_virtual_time
async def test_who_is_cancelled_at_the_very_deadline_is_cancelled() -> None:
    deadlines = Deadlines()

    async def work() -> None:
        with deadlines.within(SOON):
            try:
                await asyncio.sleep(NEVER)
            except asyncio.CancelledError:
                task.cancel()  # somebody gives up the work in the same moment
                raise

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


@in_virtual_time
async def test_an_error_at_the_deadline_is_told_as_it_is() -> None:
    async def work() -> None:
        with Deadlines().within(SOON):
            try:
                await asyncio.sleep(NEVER)
            except asyncio.CancelledError:
                raise ValueError("broken") from None

    with pytest.raises(ValueError, match="broken"):
        await work()


@in_virtual_time
async def test_no_time_at_all_is_over_at_once() -> None:
    with pytest.raises(TimeoutError), Deadlines().within(0.0):
        await asyncio.sleep(NEVER)
