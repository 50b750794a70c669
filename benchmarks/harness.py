"""What the benchmarks share: a control plane in a process of its own, a client that drives it, and how figures are told."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import orjson
import yaml

from homeostat.cli.progress import progress

Json = dict[str, Any]
T = TypeVar("T")
Job = tuple[str, str, Json]

RESULTS = Path(__file__).parent / "results"
LESS_IS_BETTER = (" ms", " s", " MiB", " writes")
TICK = os.sysconf("SC_CLK_TCK")


def percentile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class Server:
    """A control plane in a process of its own; `arguments` are further ones of `homeostat up`."""

    directory: Path
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[str] = field(init=False)
    started: float = 0.0
    ready_seconds: float = 0.0

    def start(self) -> None:
        self.started = time.perf_counter()
        command = [sys.executable, "-m", "homeostat", "up", "--data", str(self.directory), "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen([*command, *self.arguments], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        while "is ready at" not in self.process.stdout.readline():
            if self.process.poll() is not None:
                raise SystemExit("the control plane did not start")
        self.ready_seconds = time.perf_counter() - self.started

    def stop(self) -> float:
        started = time.perf_counter()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        return time.perf_counter() - started

    def kill(self) -> None:
        """Ends it, whatever it does; also where it never started."""
        if hasattr(self, "process"):
            self.process.kill()
            self.process.wait(10)

    def cpu(self) -> float:
        """Seconds of processor time so far, of all threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def ran(self) -> float:
        """The same, to the nanosecond, of the threads that are there."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def memory(self) -> int:
        """Resident MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024


class Driver:
    """A client of a server, over HTTPS with a token. Figures go into `results`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.results: Json = {}
        self.url = ""
        self.session: aiohttp.ClientSession
        self.tls: ssl.SSLContext
        self.token = ""

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Requests can be made inside. A server that was started again wants it again, and knows the token still."""
        directory = self.server.directory
        self.token = self.token or _token(directory)
        config = yaml.safe_load((directory / "admin.kubeconfig").read_text())
        self.url = config["clusters"][0]["cluster"]["server"]
        self.tls = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
        connector = aiohttp.TCPConnector(limit=0, ssl=self.tls)
        headers = {"Authorization": f"Bearer {self.token}"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as self.session:
            yield

    def note(self, name: str, value: float, digits: int = 0) -> None:
        self.results[name] = round(value, digits) if digits else round(value)

    async def call(self, method: str, url: str, **options: Any) -> tuple[float, bytes]:
        started = time.perf_counter()
        async with self.session.request(method, url, **options) as response:
            body = await response.read()
            if response.status >= 300:
                raise SystemExit(f"{method} {url}: {response.status} {body[:300]!r}")
        return time.perf_counter() - started, body

    async def pool(self, width: int, jobs: Iterable[Job]) -> tuple[float, float, list[float]]:
        """Runs jobs `width` at a time: operations per second, server CPU ms per operation, latencies."""
        work: Iterator[Job] = iter(list(jobs))
        latencies: list[float] = []

        async def worker() -> None:
            for method, url, options in work:
                latencies.append((await self.call(method, url, **options))[0])

        before, started = self.server.cpu(), time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(width)))
        wall = time.perf_counter() - started
        return len(latencies) / wall, (self.server.cpu() - before) / len(latencies) * 1000, latencies

    async def revision(self, url: str) -> int:
        """The store's revision, which counts its writes; `url` is any collection."""
        _, body = await self.call("GET", url + "?limit=1")
        return int(orjson.loads(body)["metadata"]["resourceVersion"])


class Follower:
    """Follows a collection by a watch. `latest` holds each object as last seen, with the time at which it came."""

    def __init__(self, driver: Driver, url: str) -> None:
        self._driver = driver
        self._url = url
        self._news = asyncio.Event()
        self._open = asyncio.Event()
        self.latest: dict[str, tuple[float, Json]] = {}
        self.count = 0
        self.counts: Callable[[Json], bool] = lambda obj: False

    @asynccontextmanager
    async def following(self, counts: Callable[[Json], bool] | None = None) -> AsyncIterator[Follower]:
        """Follows from now on. `count` is how many objects met `counts` so far, at their latest."""
        self.counts = counts or self.counts
        since = await self._driver.revision(self._url)
        task = asyncio.create_task(self._follow(since))
        await self._open.wait()
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, since: int) -> None:
        async with self._driver.session.get(f"{self._url}?watch=1&resourceVersion={since}") as response:
            self._open.set()
            rest = b""
            async for chunk in response.content.iter_any():
                now = time.perf_counter()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(orjson.loads(line)["object"], now)
                self._news.set()

    def _take(self, obj: Json, now: float) -> None:
        name = obj["metadata"]["name"]
        before = self.latest.get(name)
        self.count += self.counts(obj) - (self.counts(before[1]) if before else False)
        self.latest[name] = (now, obj)

    async def until(self, met: Callable[[], bool], seconds: float = 60.0) -> None:
        """Waits until something holds; looks at each event."""
        async with asyncio.timeout(seconds):
            while not met():
                self._news.clear()
                await self._news.wait()

    async def seen(self, name: str, met: Callable[[Json], bool], seconds: float = 30.0) -> float:
        """When an object came that is so."""
        try:
            await self.until(lambda: name in self.latest and met(self.latest[name][1]), seconds)
        except TimeoutError:
            raise SystemExit(f"{name} is not as awaited after {seconds:g} s: {self.latest.get(name)}") from None
        return self.latest[name][0]


def condition(obj: Json, kind: str = "Ready") -> bool:
    """Whether a condition is true of an object as it is declared now."""
    for one in (obj.get("status") or {}).get("conditions") or ():
        if one["type"] == kind:
            known = one.get("observedGeneration", obj["metadata"].get("generation"))
            return bool(one["status"] == "True" and known == obj["metadata"].get("generation"))
    return False


def _token(directory: Path) -> str:
    command = [sys.executable, "-m", "homeostat", "token", "create", "--user", "bench", "--group", "system:masters"]
    kubeconfig = ["--kubeconfig", str(directory / "admin.kubeconfig")]
    return subprocess.run([*command, *kubeconfig], check=True, capture_output=True, text=True).stdout.strip()


def machine() -> Json:
    model = next(
        (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), ""
    )
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}


def clean_up_when_terminated() -> None:
    """Has a run that is told to end do so as if it had been interrupted: no server and no directory stay behind."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def one_by_one(sections: Mapping[str, T], only: Iterable[str] | None = None) -> Iterator[tuple[str, T]]:
    """The sections that are wanted (default: all), with a bar that says where it is, and how much longer it may take."""
    wanted = {name: section for name, section in sections.items() if only is None or name in only}
    with progress(len(wanted), "measuring", patience=0.0) as bar:
        for done, (name, section) in enumerate(wanted.items()):
            bar.at(done, f"measuring {name}")
            yield name, section


def warn_if_busy() -> None:
    """Says so where others use the machine: times are worse then, and processor time is less so."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy with other things (load {load:.1f}): what is measured now is not what it can do")


def print_table(
    results: Json, peers: Mapping[str, Mapping[str, float]], limits: Mapping[str, float] | None = None
) -> None:
    """Ours beside each peer, how many times better than the first, and what we want to keep to."""
    (first, *_) = peers.values()
    print(f"{'':34}{'Homeostat':>12}" + "".join(f"{name:>20}" for name in peers) + f"{'better':>9}")
    for name, value in results.items():
        line = f"{name:34}{value:>12,}"
        line += "".join(f"{peer[name]:>20,}" if name in peer else " " * 20 for peer in peers.values())
        less = name.endswith(LESS_IS_BETTER)
        better = f"{first[name] / value if less else value / first[name]:.1f}×" if name in first and value else ""
        limit = f"   {'≤' if less else '≥'} {limits[name]:,}" if limits and name in limits else ""
        print(f"{line}{better:>9}{limit}".rstrip())


def write(file: str, content: Json) -> None:
    """Writes figures under `results/`, with the machine that they are of."""
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / file
    target.write_text(json.dumps({"machine": machine(), **content}, indent=1) + "\n")
    print(f"\nwritten to {target.relative_to(Path.cwd()) if target.is_relative_to(Path.cwd()) else target}")
