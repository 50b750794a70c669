"""Kueue's own scheduler load, through our API and store: how many workloads a second are given their place.

    make bench                                        # among others; this one takes about four minutes
    python benchmarks/kueue.py --only "30 queues"     # one of: 30 queues, 1,000 queues, paced
    python benchmarks/kueue.py --only "30 queues" --share 0.2   # a fifth of the workloads

As Kueue's `test/performance/scheduler` has it: cohorts of queues with a quota of 20 each that may borrow 100; of ten workloads seven are
small (1 GPU, priority 50), two medium (5, priority 100) and one large (20, priority 200). `homeostat up` runs in a process of its own (TLS,
durable commits, the loop and its guards inside). This process submits, and stands for all agents: when a workload was placed it waits for
as long as that one runs, and reports that it has ended. A medium one is 5 replicas of a GPU, a large one 5 of 4, on nodes of 8. It shares the
machine with what it measures, so it submits and reports over bare HTTPS connections that do no more than they must (`Line`): what it takes of
the processor is among the figures.

`30 queues` and `1,000 queues` submit as fast as they can, with the run times of Kueue's large-scale load (50, 100 and 200 ms). `paced` is
Kueue's baseline to the letter: its pauses between submissions, its run times (200, 500 and 1000 ms), 15,000 workloads. There the quota alone
takes 66 s; Kueue was measured at 351 s, which is where its 42 admissions a second come from.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
from harness import Driver, Json, Server, clean_up_when_terminated, one_by_one, print_table, warn_if_busy, write

JSON = {"Content-Type": "application/json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
GROUP = "gpu.homeostat.dev/v1alpha1"
MODEL, PER_NODE = "H100", 8
QUOTA, BORROWING = 20, 100
WIDTH = 32
"""Submissions that are under way at the same time; and reports."""
QUIET_SECONDS = 60.0
"""After so long in which nothing ended the run is given up."""
BEAT_SECONDS, LEASE = 60.0, "5m"
"""How often each node renews its lease, and how long that holds: Kueue's load has no nodes, and 2,500 that renew it every 10 s are one of their own."""
BEATERS = 8
PEERS = {
    "Kueue": {
        "paced admissions/s": 42.7,
        "paced s": 351,
        "paced to admission large s": 6.7,
        "paced to admission medium s": 76.8,
        "paced to admission small s": 215,
        "30 queues admissions/s": 42.7,
    }
}
LIMITS = {"30 queues admissions/s": 420, "1,000 queues admissions/s": 420, "paced s": 80}


@dataclass(frozen=True)
class Size:
    """One class of workloads: how many of ten, and what each wants."""

    name: str
    of_ten: int
    priority: int
    replicas: int
    gpus: int


SIZES = (Size("small", 7, 50, 1, 1), Size("medium", 2, 100, 5, 1), Size("large", 1, 200, 5, 4))


@dataclass(frozen=True)
class Load:
    """How much comes, and how fast: run times in seconds, and pauses between two of a class in a queue (0: none)."""

    cohorts: int
    queues: int
    """In each cohort."""
    workloads: int
    """In each queue."""
    runs: tuple[float, float, float] = (0.05, 0.1, 0.2)
    pauses: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def tenants(self) -> int:
        return self.cohorts * self.queues

    def counts(self, share: float) -> list[int]:
        """How many of each size are in each queue."""
        return [max(1, round(self.workloads * share * size.of_ten / 10)) for size in SIZES]


LOADS = {
    "30 queues": Load(5, 6, 500),
    "1,000 queues": Load(100, 10, 50),
    "paced": Load(5, 6, 500, runs=(0.2, 0.5, 1.0), pauses=(0.1, 0.5, 1.2)),
}


class Line(asyncio.Protocol):
    """A connection that carries one request after the other."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(SystemExit(f"the server ended a connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or self._answer is None or self._answer.done():
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0] or 0)
        if len(body) >= length:
            if not head.startswith(b"HTTP/1.1 2"):
                self._answer.set_exception(SystemExit(f"{head[:30]!r} {body[:300]!r}"))
            else:
                self._answer.set_result(None)
            self._buffer = b""

    async def send(self, request: bytes) -> None:
        """Returns when it is answered. SystemExit where the server refuses."""
        if self._transport.is_closing():
            raise SystemExit("the server has ended a connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._answer

    def close(self) -> None:
        self._transport.abort()


class Lines:
    """So many connections, each used by one at a time."""

    def __init__(self, lines: list[Line], host: str, token: str) -> None:
        self._free: asyncio.Queue[Line] = asyncio.Queue()
        self._lines = lines
        for line in lines:
            self._free.put_nowait(line)
        self._head = f"Host: {host}\r\nAuthorization: Bearer {token}\r\nAccept: application/json\r\n"

    async def send(self, method: str, target: str, content_type: str, body: bytes) -> None:
        head = f"{method} {target} HTTP/1.1\r\n{self._head}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        line = await self._free.get()
        try:
            await line.send(head.encode() + body)
        finally:
            self._free.put_nowait(line)

    def close(self) -> None:
        for line in self._lines:
            line.close()


class Queues(Driver):
    """Tenants in cohorts, nodes enough for their quotas, and workloads that come and end."""

    def __init__(self, server: Server, load: Load, share: float) -> None:
        super().__init__(server)
        self.load = load
        self.counts = load.counts(share)
        self.submitted: dict[str, float] = {}
        self.placed: dict[str, float] = {}
        self.ended: set[str] = set()
        self.size_of: dict[str, int] = {}
        self._done = asyncio.Event()
        self._open = asyncio.Event()
        self._submissions: Lines
        self._reports: Lines
        self._tasks: set[asyncio.Task[object]] = set()
        self._failure = ""

    @property
    def total(self) -> int:
        return self.load.tenants * sum(self.counts)

    @property
    def nodes(self) -> int:
        return self.load.tenants * QUOTA // PER_NODE

    async def _served(self) -> None:
        """Waits until the loop has made its kinds known."""
        async with asyncio.timeout(60):
            while True:
                async with self.session.get(f"{self._workloads}?limit=1") as response:
                    if response.status == 200:
                        return
                await asyncio.sleep(0.1)

    async def prepare(self) -> None:
        """Tenants and nodes, with their heartbeats."""
        await self._served()
        gpu = f"{self.url}/apis/{GROUP}"
        now = datetime.now(UTC).isoformat()
        policy = {"apiVersion": GROUP, "kind": "GpuPolicy", "metadata": {"name": "default"}, "spec": {"failure": {"lease": LEASE}}}
        jobs = [("POST", f"{gpu}/gpupolicies", {"data": orjson.dumps(policy), "headers": JSON})]
        for number in range(self.load.tenants):
            quota = {"model": MODEL, "nominal": QUOTA, "borrowingLimit": BORROWING}
            spec = {"quotas": [quota], "cohort": f"cohort-{number // self.load.queues}", "namespaces": ["default"]}
            tenant = {"apiVersion": GROUP, "kind": "Tenant", "metadata": {"name": f"queue-{number}"}, "spec": spec}
            jobs.append(("POST", f"{gpu}/tenants", {"data": orjson.dumps(tenant), "headers": JSON}))
        for number in range(self.nodes):
            spec = {"model": MODEL, "gpus": [{"index": index} for index in range(PER_NODE)]}
            node = {"apiVersion": GROUP, "kind": "GpuNode", "metadata": {"name": f"node-{number}"}, "spec": spec}
            jobs.append(("POST", f"{gpu}/gpunodes", {"data": orjson.dumps(node), "headers": JSON}))
            jobs.append(("POST", self._leases, {"data": orjson.dumps(_lease(number, now)), "headers": JSON}))
        await self.pool(16, jobs)

    @property
    def _leases(self) -> str:
        return f"{self.url}/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

    @property
    def _workloads(self) -> str:
        return f"{self.url}/apis/{GROUP}/namespaces/default/workloads"

    @property
    def _path(self) -> str:
        return f"/apis/{GROUP}/namespaces/default/workloads"

    async def lines(self) -> Lines:
        """Connections to the server."""
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        loop = asyncio.get_running_loop()
        made = [loop.create_connection(Line, host, int(port), ssl=self.tls) for _ in range(WIDTH)]
        return Lines([line for _, line in await asyncio.gather(*made)], f"{host}:{port}", self.token)

    async def beat(self) -> None:
        """Every node says that it lives, evenly over the time between two beats."""

        async def beater(first: int) -> None:
            while True:
                for number in range(first, self.nodes, BEATERS):
                    patch = {"spec": {"renewTime": datetime.now(UTC).isoformat()}}
                    await self.call("PATCH", f"{self._leases}/node-{number}", data=orjson.dumps(patch), headers=MERGE)
                    await asyncio.sleep(BEAT_SECONDS * BEATERS / self.nodes)

        await asyncio.gather(*(beater(first) for first in range(BEATERS)))

    # What is submitted

    def _names(self) -> Iterator[tuple[str, int, int]]:
        """Name, queue and size of all, in the order in which they come where nobody waits."""
        found = [
            (f"{size.name}-{queue}-{number}", queue, at)
            for queue in range(self.load.tenants)
            for at, size in enumerate(SIZES)
            for number in range(self.counts[at])
        ]
        random.Random(1).shuffle(found)
        yield from found

    async def submit(self) -> None:
        if any(self.load.pauses):
            queues = range(self.load.tenants)
            await asyncio.gather(*(self._paced(queue, at) for queue in queues for at in range(len(SIZES))))
            return
        names = self._names()

        async def worker() -> None:
            for name, queue, at in names:
                await self._submit(name, queue, at)

        await asyncio.gather(*(worker() for _ in range(WIDTH)))

    async def _paced(self, queue: int, at: int) -> None:
        begun = time.perf_counter()
        for number in range(self.counts[at]):
            await asyncio.sleep(begun + self.load.pauses[at] * (number + 1) - time.perf_counter())
            await self._submit(f"{SIZES[at].name}-{queue}-{number}", queue, at)

    async def _submit(self, name: str, queue: int, at: int) -> None:
        size = SIZES[at]
        self.size_of[name] = at
        spec = {"tenant": f"queue-{queue}", "replicas": size.replicas, "priority": size.priority, "resources": {"gpus": size.gpus}}
        spec |= {"preemption": {"mode": "Restart"}, "command": ["train"]}
        obj = {"apiVersion": GROUP, "kind": "Workload", "metadata": {"name": name}, "spec": spec}
        self.submitted[name] = time.perf_counter()
        await self._submissions.send("POST", self._path, "application/json", orjson.dumps(obj))

    # What agents do

    async def run(self) -> None:
        """Follows all workloads; each that is placed ends after its time."""
        since = await self.revision(self._workloads)
        async with self.session.get(f"{self._workloads}?watch=1&resourceVersion={since}") as response:
            self._open.set()
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._hear(line)

    def _hear(self, line: bytes) -> None:
        if b'"phase":"' not in line:
            return
        obj = orjson.loads(line)["object"]
        name, status = obj["metadata"]["name"], obj["status"]
        if status["phase"] == "Starting" and name not in self.placed:
            self.placed[name] = time.perf_counter()
            self._spawn(self._end(name, status["assignment"]))
        elif status["phase"] in ("Pending", "Suspended"):
            self.placed.pop(name, None)
        elif status["phase"] == "Succeeded":
            self.ended.add(name)
            if len(self.ended) == self.total:
                self._done.set()

    async def _end(self, name: str, assignment: list[Json]) -> None:
        await asyncio.sleep(self.load.runs[self.size_of[name]])
        reports = [{"replica": p["replica"], "node": p["node"], "gpus": p["gpus"], "state": "Exited"} for p in assignment]
        obj = {"apiVersion": GROUP, "kind": "Workload", "metadata": {"name": name}, "status": {"reports": reports}}
        target = f"{self._path}/{name}/status?fieldManager=homeostat-agent&force=true"
        await self._reports.send("PATCH", target, "application/apply-patch+yaml", orjson.dumps(obj))

    def _spawn(self, work: Awaitable[object]) -> asyncio.Task[object]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._failure:
            self._failure = str(error) or type(error).__name__
            self._done.set()

    # What is measured

    async def measure(self, label: str) -> None:
        await self.prepare()
        before = await self.revision(self._workloads)
        self._spawn(self.run())
        self._spawn(self.beat())
        await self._open.wait()
        self._submissions, self._reports = await self.lines(), await self.lines()
        cpu, own, started = self.server.cpu(), time.process_time(), time.perf_counter()
        submitting = self._spawn(self.submit())
        await self._until_done(submitting)
        seconds = time.perf_counter() - started
        self.note(f"{label} admissions/s", self.total / seconds, 1)
        self.note(f"{label} s", seconds, 1)
        self.note(f"{label} CPU per workload ms", (self.server.cpu() - cpu) / self.total * 1000, 2)
        self.note(f"{label} CPU of the client per workload ms", (time.process_time() - own) / self.total * 1000, 2)
        self.note(f"{label} stored per workload writes", (await self.revision(self._workloads) - before) / self.total, 2)
        self.note(f"{label} memory MiB", self.server.memory())
        for at, size in enumerate(SIZES):
            waits = [self.placed[name] - self.submitted[name] for name, its in self.size_of.items() if its == at]
            self.note(f"{label} to admission {size.name} s", statistics.fmean(waits), 1)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lines in (self._submissions, self._reports):
            lines.close()

    async def _until_done(self, submitting: asyncio.Task[object]) -> None:
        """Waits until all ended; says where it stands when for a while nothing does."""
        begun = moved = time.perf_counter()
        ended = 0
        while not self._done.is_set():
            try:
                await asyncio.wait_for(self._done.wait(), 10)
            except TimeoutError:
                now = time.perf_counter()
                print(f"  {now - begun:.0f} s: {len(self.submitted)} submitted, {len(self.placed)} placed, {len(self.ended)} ended", file=sys.stderr)
                if len(self.ended) > ended:
                    ended, moved = len(self.ended), now
                elif submitting.done() and now - moved > QUIET_SECONDS:
                    raise SystemExit("nothing ends any more") from None
        if self._failure:
            raise SystemExit(f"a part of the run failed: {self._failure}")


async def measure(directory: Path, label: str, load: Load, share: float) -> Json:
    server = Server(directory, ("--allow", "gpu", "--enforce"))
    server.start()
    queues = Queues(server, load, share)
    try:
        async with queues.connected():
            await queues.measure(label)
        server.stop()
    finally:
        server.kill()
    return queues.results


def _lease(number: int, now: str) -> Json:
    spec = {"holderIdentity": "bench", "leaseDurationSeconds": 40, "renewTime": now}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": f"node-{number}"}, "spec": spec}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="LOAD", action="append", help="one load; may be repeated; writes no file")
    parser.add_argument("--share", type=float, default=1.0, help="how many of the workloads (default 1.0: all)")
    options = parser.parse_args()
    if unknown := set(options.only or ()) - LOADS.keys():
        parser.error(f"--only {', '.join(sorted(unknown))}: the loads are {', '.join(LOADS)}")
    warn_if_busy()
    clean_up_when_terminated()
    results: Json = {}
    for label, load in one_by_one(LOADS, options.only):
        directory = Path(tempfile.mkdtemp(prefix="homeostat-bench-"))
        try:
            results |= asyncio.run(measure(directory, label, load, options.share))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    print_table(results, PEERS, LIMITS)
    if not options.only:
        write("kueue.json", {"results": results, "peers": PEERS, "limits": LIMITS})


if __name__ == "__main__":
    main()
