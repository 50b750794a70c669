"""What befalls a fleet of GPUs whose every GPU is at work: a slip in a declaration, or an observer that lies about all of it at once.

The whole GPU service in virtual time: governor, guards, server, store and agents; machines and processes alone are simulated.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from homeostat.gpu.kinds import GpuReading
from homeostat.gpu.kinds.node import GpuHealth
from homeostat.sim import simulate
from homeostat.sim.gpu.hall import Hall, gpu_template
from homeostat.sim.gpu.machine import MODEL, Rack

MACHINES, GPUS = 10, 2
SIZE = MACHINES * GPUS
AFTERWARDS = 240.0

Deed = Callable[[Hall], Awaitable[Any]]


def running(hall: Hall) -> set[tuple[str, int]]:
    """The processes that are on their GPUs."""
    return {(one.uid, one.pid) for station in hall.stations.values() for one in station.machine.on_gpus()}


async def stand(hall: Hall) -> set[tuple[str, int]]:
    """Twenty workloads of one tenant on twenty GPUs, for some minutes."""
    await hall.start_engine()
    await hall.guard({})
    await hall.tenant("research", SIZE)
    for number in range(MACHINES):
        hall.add_machine(f"node-{number}", GPUS)
    await asyncio.sleep(20)
    for number in range(SIZE):
        await hall.submit(f"job-{number:02}", {"tenant": "research", "command": ["/bin/sleep", "0", "0"], "resources": {"gpus": 1}})
    while len(running(hall)) < SIZE:
        await asyncio.sleep(1)
    await asyncio.sleep(120)
    return running(hall)


def live(story: Callable[[Hall], Awaitable[Any]]) -> Any:
    gpu_template()

    async def through() -> Any:
        hall = Hall(1)
        await hall.open()
        try:
            return await story(hall)
        finally:
            await asyncio.get_running_loop().bury()  # type: ignore[attr-defined]
            await hall.close()

    return simulate(1, through)


async def halts(hall: Hall) -> list[str]:
    return [halt["reason"] for halt in ((await hall.policies.get("gpus")).get("status") or {}).get("halts") or ()]


def of_the_tenant(spec: dict[str, Any]) -> Deed:
    return lambda hall: hall.tenants.patch("research", {"spec": spec})


def of_every_job(spec: dict[str, Any]) -> Deed:
    async def edit(hall: Hall) -> None:
        for number in range(SIZE):
            await hall.edit(f"job-{number:02}", spec)

    return edit


SLIPS: dict[str, Deed] = {
    "its quota names another model": of_the_tenant({"quotas": [{"model": f"{MODEL}-SXM", "nominal": SIZE}]}),
    "its budget is nothing": of_the_tenant({"budget": {"gpuHours": 0, "onExceeded": "Suspend"}}),
    "every job may run for a second": of_every_job({"maximumRuntime": "1s"}),
    "every job is suspended": of_every_job({"suspended": True}),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_that_would_stop_all_work_stops_none_and_asks(slip: str) -> None:
    async def story(hall: Hall) -> tuple[int, list[str]]:
        before = await stand(hall)
        await SLIPS[slip](hall)
        await asyncio.sleep(AFTERWARDS)
        return len(before - running(hall)), await halts(hall)

    lost, said = live(story)
    assert lost == 0
    assert said == [f"{SIZE} of {SIZE} would be changed, more than 6: most likely the declaration or the observer is wrong"]


def test_nothing_ends_where_the_tenant_or_its_right_to_the_namespace_is_taken_away() -> None:
    async def story(hall: Hall) -> int:
        before = await stand(hall)
        await of_the_tenant({"namespaces": ["defualt"]})(hall)
        await asyncio.sleep(AFTERWARDS)
        await hall.tenants.delete("research")
        await asyncio.sleep(AFTERWARDS)
        return len(before - running(hall))

    assert live(story) == 0


LIES: dict[str, Callable[[GpuReading], GpuReading | None]] = {
    "every GPU has failed": lambda read: structs.replace(read, health=GpuHealth.FAILED, reason="XID 79"),
    "there are no GPUs": lambda read: None,
    "use is no number": lambda read: structs.replace(read, utilisation=math.nan, memory_traffic=math.inf, cpu=-1.0),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_every_gpu_ends_no_work_and_is_forgotten_afterwards(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Rack.read

    async def story(hall: Hall) -> tuple[int, list[str]]:
        before = await stand(hall)
        with monkeypatch.context() as lying:
            lying.setattr(Rack, "read", lambda rack, held: [told for read in honest(rack, held) if (told := LIES[lie](read)) is not None])
            await asyncio.sleep(AFTERWARDS)
        await asyncio.sleep(AFTERWARDS)
        return len(before - running(hall)), await halts(hall)

    assert live(story) == (0, [])


def test_an_approval_lets_all_be_suspended_that_are_meant_to_be() -> None:
    async def story(hall: Hall) -> int:
        await stand(hall)
        await of_every_job({"suspended": True})(hall)
        while not hall.plans():
            await asyncio.sleep(1)
        for plan in hall.plans():
            await hall.approve(plan)
        await asyncio.sleep(AFTERWARDS)
        return len(running(hall))

    assert live(story) == 0
