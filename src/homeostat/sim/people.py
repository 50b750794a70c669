"""People in a simulation: they ask again until they are answered, and see what waits for their word."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from homeostat.client import Unreachable
from homeostat.loop.engine import Engine

T = TypeVar("T")


async def insist(work: Callable[[], Awaitable[T]]) -> T:
    """Does it again until it is answered: a person whose request found no answer does not know whether it was done."""
    while True:
        try:
            return await work()
        except Unreachable:
            await asyncio.sleep(1.0)


def plans_of(engine: Engine | None) -> list[str]:
    """All plans that the guards hold and that a person may approve."""
    if engine is None:
        return []
    halted = [halt.plan for fleet in engine.fleets.values() for halt in fleet.halts.values()]
    held = [hold.plan for hold in engine.ledger.holds.values()]
    return list(dict.fromkeys(plan for plan in (*halted, *held) if plan))
