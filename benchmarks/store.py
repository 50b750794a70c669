"""What the embedded store costs. Run it on a quiet machine: `python benchmarks/store.py [directory]`.

Each line is the median of several rounds. The directory (default: a temporary one) should be on the disk that you care
about: one durable commit is one sync of it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from harness import one_by_one

from homeostat.store import Compare, Put, SqliteStore

VALUE = os.urandom(512).hex().encode()
WIDTHS = ((1, 1000), (16, 6000), (64, 20_000))
"""How many write at a time, and how much."""


async def writes(store: SqliteStore, concurrency: int, total: int, mark: str) -> tuple[float, float, list[float]]:
    """Creates `total` keys with so many writers; gives seconds, CPU seconds, and each write's seconds."""
    numbers = iter(range(total))
    took: list[float] = []

    async def writer() -> None:
        for number in numbers:
            key = f"widgets.example.com/{mark}/{number * 7919 % 1_000_003:07}"
            start = time.perf_counter()
            await store.txn([Compare(key, 0)], [Put(key, VALUE)])
            took.append(time.perf_counter() - start)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(writer() for _ in range(concurrency)))
    return time.perf_counter() - wall, time.process_time() - cpu, took


async def timed(rounds: int, work: Callable[[], Awaitable[object]]) -> float:
    """The median of seconds that `work` takes."""
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        await work()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


def sync_cost(directory: Path) -> float:
    """Seconds of one small append with sync: no durable commit can be faster."""
    took = []
    with open(directory / "sync", "wb", buffering=0) as file:
        for _ in range(100):
            start = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - start)
    return statistics.median(took)


async def main(directory: Path) -> None:
    print(f"a sync of this disk                {sync_cost(directory) * 1e3:10.2f} ms")
    start = time.perf_counter()
    store = await SqliteStore.open(directory / "store")
    print(f"open                               {(time.perf_counter() - start) * 1e3:10.2f} ms")
    for _, (concurrency, total) in one_by_one({f"{width} at a time": (width, count) for width, count in WIDTHS}):
        wall, cpu, took = await writes(store, concurrency, total, f"c{concurrency}")
        took.sort()
        print(
            f"create, concurrency {concurrency:<3}           {total / wall:10.0f} /s   "
            f"p50 {took[total // 2] * 1e3:.2f} ms   p99 {took[total * 99 // 100] * 1e3:.2f} ms   "
            f"max {took[-1] * 1e3:.1f} ms   CPU {cpu / total * 1e6:.0f} us each"
        )
    keys = [entry.key for entry in (await store.range("widgets.example.com/c64/", limit=5000)).entries]

    async def gets() -> None:
        for key in keys:
            await store.get(key)

    print(f"get                                {await timed(3, gets) / len(keys) * 1e6:10.1f} us")
    old = store.revision
    await store.txn([], [Put("other", b"")])
    prefix = "widgets.example.com/c64/"
    now = await timed(5, lambda: store.range(prefix, limit=10_000))
    print(f"range of 10,000 now                {now * 1e3:10.1f} ms")
    past = await timed(5, lambda: store.range(prefix, limit=10_000, revision=old))
    print(f"range of 10,000 at a revision      {past * 1e3:10.1f} ms")
    print(f"count of 27,001                    {await timed(5, lambda: store.count('')) * 1e3:10.2f} ms")
    print(f"1,000 events from memory           {await timed(5, lambda: store.since('', old - 1000)) * 1e3:10.2f} ms")
    print(f"1,000 events from the log          {await timed(5, lambda: store.since('', 2)) * 1e3:10.2f} ms")
    start = time.perf_counter()
    await store.close()
    print(f"close                              {(time.perf_counter() - start) * 1e3:10.2f} ms")
    size = sum(file.stat().st_size for file in (directory / "store").iterdir())
    print(f"files                              {size / 2**20:10.1f} MiB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            asyncio.run(main(Path(scratch)))
