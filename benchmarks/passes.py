"""Full passes over many resources that are as declared, of a provider that observes them all in one call.

    python benchmarks/passes.py DIRECTORY COUNT      # prints JSON: seconds of a pass, memory

Converges a few through the loop, writes the others into the stopped store as the loop left those, and starts server, store and
loop in a process of their own, whose passes and memory are then measured.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

from homeostat import Absent, Client, Diff, Provider, Ref, Spec
from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.cli.up import GC_THRESHOLD
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.loop.engine import Engine
from homeostat.loop.listener import Listener
from homeostat.loop.passes import PassPolicy
from homeostat.store import Put, SqliteStore

PREFIX = "stones.bench.example.com/default/"
PASSES = 3
EVERY = 1.0
"""Seconds from pass to pass; one that takes longer is followed at once."""
OFTEN = 0.002
"""Seconds of the waits that show for how long nothing else gets its turn."""
TOGETHER = 1000
"""How many objects are written into the store at once."""


class StoneSpec(Spec):
    colour: str = "grey"
    weight: int = 1


class Stone(Provider[StoneSpec, StoneSpec], group="bench.example.com"):
    """A thing that stays as it is."""

    async def observe(self, spec: StoneSpec) -> StoneSpec | Absent:
        return StoneSpec(colour=spec.colour, weight=spec.weight)

    async def observe_all(self, specs: Mapping[Ref, StoneSpec]) -> Mapping[Ref, StoneSpec]:
        return {ref: StoneSpec(colour=spec.colour, weight=spec.weight) for ref, spec in specs.items()}

    async def apply(self, spec: StoneSpec, diff: Diff) -> None:
        raise AssertionError("a stone needs no repair")


class Passes(Listener):
    """Notes how long each pass took."""

    def __init__(self) -> None:
        self.took: list[tuple[int, float]] = []
        self.news = asyncio.Event()

    def pass_done(self, count: int, seconds: float) -> None:
        self.took.append((count, seconds))
        self.news.set()

    async def over(self, count: int, passes: int) -> list[float]:
        """Waits until so many passes went over so many resources each: their seconds."""
        while len(found := [seconds for size, seconds in self.took if size == count]) < passes:
            self.news.clear()
            await self.news.wait()
        return found


class Loop:
    """Server, store and loop in this process, as `homeostat up` has them, less the wait between passes."""

    def __init__(self, directory: Path) -> None:
        self._server = Server(directory, Listen(port=0))
        self._policy = PassPolicy(every=EVERY)
        self.passes = Passes()
        self.client: Client
        self.engine: Engine

    async def __aenter__(self) -> Loop:
        await self._server.start()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLD)
        self.client = local_client(self._server.plane, "bench")
        gate = PolicyGate(mode=Mode.ENFORCE)
        self.engine = Engine(self.client, [Stone()], gate, passes=self._policy, listeners=[self.passes])
        self._keeper = Keeper(self.client, gate, self.engine.controllers)
        self._keeper.attach(self.engine)
        await self._keeper.start()
        await self.engine.start()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.engine.stop()
        await self._keeper.stop()
        await self.client.close()
        await self._server.stop()

    @property
    def revision(self) -> int:
        return self._server.store.revision


async def seed(directory: Path, count: int) -> None:
    """As many converged stones as asked for: one by the loop, the others like it."""
    async with Loop(directory) as loop:
        stones = loop.client.kind("bench.example.com/v1", "Stone")
        declared = {"metadata": {"name": "pattern", "namespace": "default"}, "spec": {"colour": "grey", "weight": 1}}
        await stones.create({"apiVersion": stones.api_version, "kind": stones.kind, **declared})
        async with stones.informer() as informer, asyncio.timeout(30):
            await informer.wait_synced()
            async for _ in informer.changes():
                if is_ready(informer.get("pattern", "default")):
                    break
    store = await SqliteStore.open(directory)
    pattern = await store.get(PREFIX + "pattern")
    assert pattern is not None
    uid = json.loads(pattern.value)["metadata"]["uid"].encode()
    for start in range(1, count, TOGETHER):
        writes = [_like(pattern.value, uid, number) for number in range(start, min(count, start + TOGETHER))]
        await store.txn([], writes)
    await store.close()


def is_ready(obj: Mapping[str, Any] | None) -> bool:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _like(pattern: bytes, uid: bytes, number: int) -> Put:
    name = f"stone-{number:07}"
    made = uid[:-12] + f"{number:012x}".encode()
    return Put(PREFIX + name, pattern.replace(b'"pattern"', f'"{name}"'.encode()).replace(uid, made))


async def _wait_often(pauses: list[float]) -> None:
    """Notes by how much a short wait was too long: so long a request waits during a pass before anybody looks at it."""
    while True:
        started = time.perf_counter()
        await asyncio.sleep(OFTEN)
        pauses.append(time.perf_counter() - started - OFTEN)


async def measure(directory: Path, count: int) -> dict[str, float]:
    started = time.perf_counter()
    async with Loop(directory) as loop:
        (first, *_) = await loop.passes.over(count, 1)
        begun = time.perf_counter() - started
        await loop.passes.over(count, 2)
        before = loop.revision  # only now: of a fleet that grew like this, its policy is told once
        pauses: list[float] = []
        waiter = asyncio.create_task(_wait_often(pauses))
        took = (await loop.passes.over(count, 2 + PASSES))[2:]
        await asyncio.sleep(2 * OFTEN)
        waiter.cancel()
        status = Path("/proc/self/status").read_text()
        return {
            "s": round(statistics.median(took), 2),
            "first s": round(first, 2),
            "from start s": round(begun, 2),
            "longest pause ms": round(max(pauses) * 1000, 1),
            "writes": loop.revision - before,
            "memory MiB": int(status.split("VmRSS:")[1].split()[0]) // 1024,
        }


def main() -> None:
    directory, count = Path(sys.argv[1]), int(sys.argv[2])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if sys.argv[3:] == ["--measure"]:
            print(json.dumps(runner.run(measure(directory, count))))
            return
        runner.run(seed(directory, count))
    subprocess.run([sys.executable, *sys.argv, "--measure"], check=True)


if __name__ == "__main__":
    main()
