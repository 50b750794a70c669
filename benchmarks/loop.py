"""Measures the loop as people feel it, beside two ways of writing the same controller for a real cluster.

    make bench                                  # among others; this one takes about three minutes
    python benchmarks/loop.py --only drift      # one of: work, latency, drift, file, restart, pass
    python benchmarks/loop.py --only work --parents 200
    python benchmarks/loop.py --only pass --million

Each section starts `homeostat up` in a process of its own (TLS, durable commits, the loop inside) and drives it over HTTPS
from this one, so our API server is in every figure. The controller is `shop.py`: one parent, one ConfigMap, one status.
Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import ClassVar

from harness import (
    Driver,
    Follower,
    Job,
    Json,
    Server,
    clean_up_when_terminated,
    condition,
    one_by_one,
    percentile,
    print_table,
    warn_if_busy,
    write,
)

from homeostat.loop.settling import SETTLE_SECONDS

HERE = Path(__file__).parent
JSON = {"Content-Type": "application/json"}
MERGE = {"Content-Type": "application/merge-patch+json"}

# The same work on two cores with kube-apiserver: the better end of what was measured.
PEERS = {
    "controller-runtime": {
        "reconciles/s at 16": 176,
        "reconciles/s at 64": 176,
        "CPU per object ms": 1.7,
        "create to Ready p50 ms": 9,
        "create to Ready max ms": 43,
        "drift of child p50 ms": 4.5,
        "drift of child max ms": 17,
        "restart quiescent s": 3.0,
    },
    "kopf": {
        "reconciles/s at 16": 77,
        "reconciles/s at 64": 77,
        "CPU per object ms": 6.5,
        "create to Ready p50 ms": 28,
        "create to Ready max ms": 78,
        "drift of child p50 ms": 6.6,
        "drift of child max ms": 14,
        "restart quiescent s": 77,
        "restart writes": 20_010,
    },
}
# What we want to keep to, on two cores.
LIMITS = {
    "reconciles/s at 16": 1000,
    "reconciles/s at 64": 1000,
    "CPU per object ms": 0.8,
    "create to Ready p50 ms": 5,
    "create to Ready max ms": 20,
    "drift of child p50 ms": 4,
    "drift of file p99 ms": 50,
    "restart quiescent s": 1,
    "restart writes": 0,
    "restart memory MiB": 180,
    "pass 100,000 s": 3,
    "pass 100,000 memory MiB": 400,
}
APART = 1.5 * SETTLE_SECONDS
"""Between drifts. A lone one is repaired at once; of those that come together, all but one wait until the whole can be judged."""
IN_A_ROW = 20
"""How many drifts without a pause show what that wait costs."""
QUIET_SECONDS = 2.0
"""So long next to nothing must happen before we say that a restarted server came to rest."""
WINDOW_SECONDS = 0.05
BUSY = 0.3
"""The part of a window that a process is at work in when we call it busy: more than one tick of the kernel's clock, which counts in
hundredths of a second."""


class Shops(Driver):
    """Parents of one child each, and the loop that keeps them."""

    arguments: ClassVar[tuple[str, ...]] = ("--provider", str(HERE / "shop.py"), "--enforce")

    @property
    def base(self) -> str:
        return f"{self.url}/apis/bench.example.com/v1/namespaces/default/shops"

    @property
    def children(self) -> str:
        return f"{self.url}/api/v1/namespaces/default/configmaps"

    def creates(self, prefix: str, count: int) -> Iterator[Job]:
        for number in range(count):
            shop = {
                "apiVersion": "bench.example.com/v1",
                "kind": "Shop",
                "metadata": {"name": f"{prefix}-{number}", "namespace": "default"},
                "spec": {"till": f"till {number}"},
            }
            yield "POST", self.base, {"data": json.dumps(shop), "headers": JSON}

    async def stock(self, prefix: str, count: int, width: int) -> tuple[float, float]:
        """Creates parents and waits until all are Ready: seconds of it, and of the server's processor time."""
        async with Follower(self, self.base).following(condition) as follower:
            before, started = self.server.cpu(), time.perf_counter()
            await self.pool(width, self.creates(prefix, count))
            try:
                await follower.until(lambda: follower.count >= count, 60 + count / 20)
            except TimeoutError:
                raise SystemExit(f"only {follower.count} of {count} came to be Ready") from None
            return time.perf_counter() - started, self.server.cpu() - before

    async def work(self, parents: int) -> None:
        """Many parents at once, from the first request to the last one Ready."""
        for width in (16, 64):
            before = await self.revision(self.base)
            seconds, cpu = await self.stock(f"w{width}", parents, width)
            self.note(f"reconciles/s at {width}", parents / seconds)
        self.note("CPU per object ms", cpu / parents * 1000, 3)
        self.note("writes per object", (await self.written(before))[0] / parents, 2)

    async def written(self, since: int) -> tuple[int, int]:
        """How many writes there were after a revision, and apart from those how many renewals of leases."""
        now = await self.revision(self.base)
        leases = f"{self.url}/apis/coordination.k8s.io/v1/leases?watch=1&resourceVersion={since}&timeoutSeconds=1"
        _, body = await self.call("GET", leases)
        events = [json.loads(line)["object"]["metadata"]["resourceVersion"] for line in body.splitlines()]
        renewals = sum(int(revision) <= now for revision in events)
        return now - since - renewals, renewals

    async def latency(self, parents: int) -> None:
        """One parent at a time, from the answer to its creation until a watch shows it Ready."""
        await self.stock("warm", 20, 1)
        took = []
        async with Follower(self, self.base).following() as follower:
            for number, (method, url, options) in enumerate(self.creates("one", parents)):
                await self.call(method, url, **options)
                acknowledged = time.perf_counter()
                took.append(await follower.seen(f"one-{number}", condition) - acknowledged)
        self.spread("create to Ready", took)

    async def drift(self, children: int) -> None:
        """Somebody changes one child after the other; from the answer to that until a watch shows it repaired.

        One in so many is below every limit of the guards, so none is held.
        """
        await self.stock("shelf", children, 16)
        async with Follower(self, self.children).following() as follower:
            took = [await self.repaired(follower, number, APART) for number in range(children)]
            in_a_row = [await self.repaired(follower, number) for number in range(min(children, IN_A_ROW))]
        self.spread("drift of child", took)
        self.settling("drift of child", in_a_row)

    async def repaired(self, follower: Follower, number: int, pause: float = 0.0) -> float:
        """Seconds until a child is as composed again, after so long a pause."""
        await asyncio.sleep(pause)
        name = f"shelf-{number}"
        _, body = await self.call(
            "PATCH", f"{self.children}/{name}", data=json.dumps({"data": {"till": "robbed"}}), headers=MERGE
        )
        acknowledged = time.perf_counter()
        revision = int(json.loads(body)["metadata"]["resourceVersion"])

        def back(obj: Json) -> bool:
            return obj["data"]["till"] == f"till {number}" and int(obj["metadata"]["resourceVersion"]) > revision

        return await follower.seen(name, back) - acknowledged

    async def fill(self, parents: int) -> None:
        """So many parents with their children, all of them as declared and at rest."""
        await self.stock("stay", parents, 64)
        await at_rest(self.server)
        self.results["restart objects"] = parents * 2
        self.before = await self.revision(self.base)

    async def rested(self) -> None:
        """The same server started again: when it comes to rest, what it wrote, and what it holds."""
        self.note("restart ready s", self.server.ready_seconds, 3)
        self.note("restart quiescent s", await at_rest(self.server) - self.server.started, 2)
        self.note("restart CPU s", self.server.cpu(), 2)
        async with self.connected():
            await asyncio.sleep(max(0.0, 10 - (time.perf_counter() - self.server.started)))
            self.results["restart writes"], self.results["restart renewals"] = await self.written(self.before)
            self.results["restart memory MiB"] = self.server.memory()
            async with Follower(self, self.children).following() as follower:
                name, wanted = "stay-0", "till 0"
                await self.call(
                    "PATCH", f"{self.children}/{name}", data=json.dumps({"data": {"till": "x"}}), headers=MERGE
                )
                await follower.seen(name, lambda obj: obj["data"]["till"] == wanted)  # it did not only look at rest

    def spread(self, what: str, took: list[float], last: str = "max") -> None:
        """Notes the middle and the end of some times."""
        worst = max(took) if last == "max" else percentile(took, 0.99)
        self.note(f"{what} p50 ms", statistics.median(took) * 1000, 2)
        self.note(f"{what} {last} ms", worst * 1000, 2)

    def settling(self, what: str, took: list[float]) -> None:
        """Notes what it takes where the guards wait for more of the same before they judge the whole."""
        self.note(f"{what}, settling max ms", max(took) * 1000, 2)
        self.note("settle ms", SETTLE_SECONDS * 1000)


class Files(Shops):
    """Files on this host."""

    @property
    def base(self) -> str:
        return f"{self.url}/apis/files.homeostat.dev/v1/namespaces/default/files"

    async def file(self, place: Path, files: int, edits: int) -> None:
        """Somebody edits one file after the other; from the end of the write until its content is back."""
        async with Follower(self, self.base).following(condition) as follower:
            names = [*(f"file-{number}" for number in range(files)), *(f"row-{number}" for number in range(IN_A_ROW))]
            for name in names:
                declared = {
                    "apiVersion": "files.homeostat.dev/v1",
                    "kind": "File",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"path": str(place / name), "content": f"as declared {name}\n"},
                }
                await self.call("POST", self.base, data=json.dumps(declared), headers=JSON)
            await follower.until(lambda: follower.count >= len(names))
        await at_rest(self.server)
        took = [await _content_back(place / f"file-{number % files}", APART) for number in range(edits)]
        in_a_row = [await _content_back(place / f"row-{number}") for number in range(IN_A_ROW)]
        self.spread("drift of file", took, "p99")
        self.settling("drift of file", in_a_row)


async def _content_back(file: Path, pause: float = 0.0) -> float:
    await asyncio.sleep(pause)
    wanted = file.read_bytes()
    file.write_bytes(b"edited by hand\n")
    edited = time.perf_counter()
    while True:
        await asyncio.sleep(0.0002)
        try:
            if file.read_bytes() == wanted:
                return time.perf_counter() - edited
        except FileNotFoundError:
            pass
        if time.perf_counter() - edited > 30:
            raise SystemExit(f"{file} is not as declared after 30 s")


async def at_rest(server: Server) -> float:
    """Waits until a process was at rest for some seconds; gives the time at which its rest began.

    Seen from outside, by its processor time: so it counts whatever the process does, and asks it nothing.
    """
    ran, last_busy = server.ran(), time.perf_counter()
    while time.perf_counter() - last_busy < QUIET_SECONDS:
        await asyncio.sleep(WINDOW_SECONDS)
        now, before = time.perf_counter(), ran
        ran = server.ran()
        if ran - before > BUSY * WINDOW_SECONDS:
            last_busy = now
    return last_busy


# The sections


async def served(driver: Shops) -> None:
    """Waits until the loop, which begins after the server is ready, has made its kind known."""
    for _ in range(200):
        async with driver.session.get(driver.base) as response:
            if response.status == 200:
                return
        await asyncio.sleep(0.05)
    raise SystemExit(f"{driver.base} is not served")


async def with_shops(data: Path, work: Callable[[Shops], Awaitable[None]]) -> Json:
    server = Server(data, Shops.arguments)
    driver = Shops(server)
    try:
        server.start()
        async with driver.connected():
            await served(driver)
            await work(driver)
    finally:
        server.kill()
    return driver.results


async def restart(data: Path, parents: int) -> Json:
    server = Server(data, Shops.arguments)
    driver = Shops(server)
    try:
        server.start()
        async with driver.connected():
            await served(driver)
            await driver.fill(parents)
        server.stop()
        server.start()
        await driver.rested()
    finally:
        server.kill()
    return driver.results


async def files(data: Path, count: int, edits: int) -> Json:
    place = data / "files"
    place.mkdir(parents=True)
    server = Server(data / "plane", ("--allow", f"file:{place}", "--enforce"))
    driver = Files(server)
    try:
        server.start()
        async with driver.connected():
            await served(driver)
            await driver.file(place, count, edits)
    finally:
        server.kill()
    return driver.results


async def full_pass(data: Path, counts: list[int]) -> Json:
    """Passes over so many resources, in a process of its own each time; see `passes.py`."""
    results: Json = {}
    for count in counts:
        done = subprocess.run(
            [sys.executable, str(HERE / "passes.py"), str(data / str(count)), str(count)],
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"the passes over {count:,} failed")
        found = json.loads(done.stdout)
        results |= {f"pass {count:,} {name}": value for name, value in found.items()}
        results[f"pass {count:,} µs each"] = round(
            found["s"] / count * 1e6, 1
        )  # the same for any count: growth is linear
    return results


def sections(options: argparse.Namespace, directory: Path) -> dict[str, Callable[[], Awaitable[Json]]]:
    """What can be measured, by name, in order."""

    def place(name: str) -> Path:
        return directory / name

    counts = [options.resources // 10, options.resources, *([1_000_000] if options.million else [])]
    return {
        "work": lambda: with_shops(place("work"), lambda shops: shops.work(options.parents)),
        "latency": lambda: with_shops(place("latency"), lambda shops: shops.latency(options.rounds)),
        "drift": lambda: with_shops(place("drift"), lambda shops: shops.drift(options.rounds)),
        "file": lambda: files(place("file"), 50, options.rounds),
        "restart": lambda: restart(place("restart"), options.restart),
        "pass": lambda: full_pass(place("pass"), counts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", metavar="SECTION", action="append", help="one section; may be repeated; writes no file"
    )
    parser.add_argument("--parents", type=int, default=2000, help="parents created at once (default 2,000)")
    parser.add_argument("--rounds", type=int, default=100, help="creations, and drifts, one at a time (default 100)")
    parser.add_argument("--restart", type=int, default=10_000, help="parents at the restart (default 10,000)")
    parser.add_argument("--resources", type=int, default=100_000, help="resources of a full pass (default 100,000)")
    parser.add_argument("--million", action="store_true", help="also a full pass over 1,000,000 resources (minutes)")
    options = parser.parse_args()
    warn_if_busy()
    clean_up_when_terminated()
    directory = Path(tempfile.mkdtemp(prefix="homeostat-bench-"))
    found = sections(options, directory)
    if unknown := set(options.only or ()) - found.keys():
        parser.error(f"--only {', '.join(sorted(unknown))}: the sections are {', '.join(found)}")
    results: Json = {}
    try:
        for name, measure in one_by_one(found, options.only):
            results |= asyncio.run(measure())  # type: ignore[arg-type]
            shutil.rmtree(directory / name, ignore_errors=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print_table(results, PEERS, LIMITS)
    if not options.only:
        write("loop.json", {"results": results, "peers": PEERS, "limits": LIMITS})


if __name__ == "__main__":
    main()
