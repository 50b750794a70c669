"""Whatever comes and goes: no GPU is promised twice, no gang is placed in part, and nothing is placed beyond a quota."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

from tests.gpu.agent.world import python
from tests.gpu.controller.world import Object, World

JOBS = 24
QUOTA = 5
SIZES: tuple[dict[str, Any], ...] = (
    {},
    {"replicas": 2},
    {"resources": {"gpus": 2}},
    {"resources": {"gpus": "0.5"}},
    {"priority": 50},
    {"priority": 100, "replicas": 3},
)


def broken(workloads: list[Object]) -> list[str]:
    """What must never be so."""
    found, held, used = [], Counter[tuple[str, int]](), 0
    for obj in workloads:
        status = obj.get("status") or {}
        if status.get("phase") not in ("Starting", "Running", "Suspending") or obj["metadata"].get("deletionTimestamp"):
            continue
        places = status.get("assignment") or []
        if len(places) != obj["spec"].get("replicas", 1):
            found.append(f"{obj['metadata']['name']} has {len(places)} places")
        for place in places:
            used += len(place["gpus"]) * place["milli"]
            held.update({(place["node"], gpu): place["milli"] for gpu in place["gpus"]})
    found += [f"{gpu} is promised {milli} times over" for gpu, milli in held.items() if milli > 1000]
    return found + ([f"{used} used of {QUOTA}"] if used > QUOTA * 1000 else [])


async def test_nothing_is_promised_twice_while_workloads_of_all_sizes_come_end_and_preempt_each_other(world: World) -> None:
    source = random.Random(7)
    await world.quota(QUOTA)
    async with world.node("n1", 4), world.node("n2", 4), world.workloads.informer() as informer:
        await informer.wait_synced()
        wrong: list[str] = []
        informer.subscribe(lambda key: wrong.extend(broken(informer.all())))
        for n in range(JOBS):
            seconds = source.choice((0.0, 0.1, 0.3))
            command = python("import sys, time; time.sleep(float(sys.argv[1]))", seconds)
            body = {"metadata": {"name": f"job-{n}"}, "spec": {"tenant": "t", "command": command, **source.choice(SIZES)}}
            await world.workloads.create(body)
            await asyncio.sleep(source.choice((0.0, 0.05)))
        async with asyncio.timeout(60):
            while any((obj.get("status") or {}).get("phase") != "Succeeded" for obj in informer.all()):
                assert not wrong
                await asyncio.sleep(0.05)
        assert len(informer) == JOBS


async def test_what_is_being_written_counts_before_it_is_there(world: World) -> None:
    """A GPU that was given away while the write of it takes long is not given to somebody else who comes first by then."""
    await world.quota(QUOTA)
    workloads = world.provider._governor._workloads
    patch, begun, go = workloads.patch, asyncio.Event(), asyncio.Event()

    async def slow(name: str, *args: Any, **more: Any) -> Any:
        if name == "first":
            begun.set()
            await go.wait()
        return await patch(name, *args, **more)

    workloads.patch = slow  # type: ignore[method-assign]
    async with world.node("n1", 1), world.workloads.informer() as informer:
        await informer.wait_synced()
        wrong: list[str] = []
        informer.subscribe(lambda key: wrong.extend(broken(informer.all())))
        await world.declare("first")
        await begun.wait()
        await world.declare("second", priority=1000)
        await world.until("second", lambda obj: bool(obj.get("status", {}).get("constraint")))
        go.set()
        await world.phase("second", "Running")
        assert not wrong
