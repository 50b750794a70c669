"""How long a decision waits for more after a change: as short as what comes allows."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.loop.virtual import run

from homeostat.gpu.controller import governing
from homeostat.gpu.controller.governing import Governor
from homeostat.model.clock import Clock


def settles_after(changes: list[float], *, wishes: dict[str, Any] | None = None, starts: set[str] | None = None, starts_end: float = 0.0) -> float:
    """Milliseconds that the governor waits where these changes come, at so many milliseconds after the first."""

    async def waits() -> float:
        governor, loop = Governor(Clock()), asyncio.get_running_loop()
        governor.wishes, governor._starts = wishes or {}, starts or set()
        for at in changes:
            loop.call_later(at / 1000, governor._wake.set)
        loop.call_later(starts_end / 1000, governor._starts.clear)
        begun = loop.time()
        await governor._settle()
        return round((loop.time() - begun) * 1000, 1)

    return run(waits())


def test_a_lone_change_is_decided_on_at_once() -> None:
    assert settles_after([]) == 5


def test_what_comes_together_is_decided_on_together() -> None:
    assert settles_after([2, 4, 8]) == 15


def test_what_never_ends_to_come_is_decided_on_all_the_same() -> None:
    assert settles_after([float(at) for at in range(1, 500, 3)]) == 20


def test_while_somebody_makes_way_it_waits_until_that_is_done() -> None:
    leaving: dict[str, Any] = {"leaves": None}
    assert settles_after([], wishes=leaving) == 20
    assert settles_after([8, 16, 29], wishes=leaving) == 50
    assert 1000 <= settles_after([float(at) for at in range(1, 3000, 3)], wishes=leaving) <= 1005


def test_no_more_is_decided_while_very_many_are_about_to_start() -> None:
    starts = {str(number) for number in range(governing.PLENTY + 1)}
    assert settles_after([], wishes=dict.fromkeys(starts), starts=starts, starts_end=102) == 105
