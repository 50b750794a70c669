"""Halts over the end of a loop: the next one goes on with them, and they have stood since they began."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from homeostat.loop.fleet import Halt
from homeostat.model.clock import format_time

from .told import House, eventually, house, until

NAMES = [f"lamp-{n:02}" for n in range(12)]
KIND = "lamps.told.test.dev"
LONG_AGO = "2020-01-31T12:00:00Z"


@pytest.fixture
async def lamps(tmp_path: Path) -> AsyncIterator[House]:
    async with house(tmp_path) as one:
        yield one


async def halted(lamps: House) -> dict[str, Any]:
    """The policy's status, once it tells of the halt."""

    async def told() -> dict[str, Any]:
        status: dict[str, Any] = (await lamps.policies.get(KIND)).get("status") or {}
        return status if status.get("halts") else {}

    return await eventually(told)


def halts(lamps: House) -> list[Halt]:
    return [halt for fleet in lamps.engine.fleets.values() for halt in fleet.halts.values()]


async def test_a_halt_has_stood_since_it_began_whoever_keeps_the_loop(lamps: House) -> None:
    await lamps.start()
    await lamps.lit(NAMES)
    lamps.provider.world.update(dict.fromkeys(NAMES, "black"))
    await lamps.whole_pass()
    status = await halted(lamps)
    await lamps.stop()
    status["halts"] = [{**halt, "since": LONG_AGO} for halt in status["halts"]]
    status["conditions"] = [{**one, "lastTransitionTime": LONG_AGO} for one in status["conditions"]]
    await lamps.policies.patch(KIND, {"status": status}, subresource="status")
    await lamps.start()
    await until(lambda: bool(halts(lamps)))
    await lamps.whole_pass()
    await lamps.declare("another", "red")

    async def told() -> dict[str, Any]:
        status: dict[str, Any] = (await lamps.policies.get(KIND))["status"]
        return status if status["fleetSize"] > len(NAMES) else {}

    again = await eventually(told)
    assert [format_time(halt.since) for halt in halts(lamps)] == [LONG_AGO]
    assert [halt["since"] for halt in again["halts"]] == [LONG_AGO]
    assert {one["type"]: one["lastTransitionTime"] for one in again["conditions"]}["Halted"] == LONG_AGO
    await lamps.stop()


async def test_a_halt_that_ended_while_no_loop_ran_dates_no_later_one(lamps: House) -> None:
    await lamps.start()
    await lamps.lit(NAMES)
    lamps.provider.world.update(dict.fromkeys(NAMES, "black"))
    await lamps.whole_pass()
    began = (await halted(lamps))["halts"][0]["since"]
    await lamps.stop()
    await lamps.policies.patch(KIND, {"status": {"halts": [{"guard": "mass-drift", "reason": "", "since": LONG_AGO, "fleet": f"default/{KIND}"}]}}, subresource="status")
    lamps.provider.world.update(dict.fromkeys(NAMES, "red"))
    await lamps.start()
    await lamps.whole_pass()

    async def over() -> bool:
        return not (await lamps.policies.get(KIND))["status"]["halts"]

    await eventually(over)
    lamps.provider.world.update(dict.fromkeys(NAMES, "black"))
    await lamps.whole_pass()
    assert (await halted(lamps))["halts"][0]["since"] >= began
    await lamps.stop()
