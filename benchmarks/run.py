"""Measures the control plane as a client sees it, beside the figures of a real cluster's API server.

    make bench                               # among others; this one takes about two minutes
    python benchmarks/run.py --objects 2000 --ops 500   # a quick look

Starts `homeostat up` in a process of its own (TLS, durable commits), drives it with an aiohttp client from this one, and
prints what was measured. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from harness import (
    Driver,
    Job,
    Json,
    Server,
    clean_up_when_terminated,
    one_by_one,
    percentile,
    print_table,
    warn_if_busy,
    write,
)

GROUP, VERSION, PLURAL, KIND = "bench.io", "v1", "widgets", "Widget"
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": PLURAL, "singular": "widget", "kind": KIND, "listKind": "WidgetList"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer", "minimum": 0},
                                    "image": {"type": "string"},
                                    "payload": {"type": "string"},
                                    "env": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                                        },
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "phase": {"type": "string"},
                                    "observedGeneration": {"type": "integer"},
                                    "n": {"type": "integer"},
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}

# kube-apiserver 1.36 with etcd 3.6 on a two-core machine, client included, TLS, durable commits, 1 KB objects.
PEER = {
    "ready s": 3.0,
    "create/s at 1": 200,
    "create/s at 16": 600,
    "create/s at 64": 640,
    "get/s at 64": 1300,
    "patch status/s at 64": 480,
    "apply/s at 64": 440,
    "list 10,000 ms": 490,
    "watch last of 100 p50 ms": 12,
    "watch last of 100 p99 ms": 27,
    "watch burst events/s": 25_000,
    "memory idle MiB": 255 + 75,
    "memory 10,000 objects MiB": 575 + 75,
    "memory 100 watchers MiB": 750 + 75,
    "create CPU ms": 3.5,
    "get CPU ms": 1.2,
}


def widget(name: str, size: int = 1024) -> Json:
    """An object of about `size` bytes."""
    shard = str(zlib.crc32(name.encode()) % 10)
    obj: Json = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "bench", "shard": shard}},
        "spec": {
            "replicas": 3,
            "image": "registry/app:1.0",
            "env": [{"name": f"E{i}", "value": f"v{i}"} for i in range(5)],
            "payload": "",
        },
    }
    obj["spec"]["payload"] = "x" * max(0, size - len(json.dumps(obj)))
    return obj


class Bench(Driver):
    """The work, in order; figures go into `results`."""

    def __init__(self, server: Server, objects: int, ops: int) -> None:
        super().__init__(server)
        self.objects = objects
        self.ops = ops
        self.names: list[str] = []

    @property
    def base(self) -> str:
        return f"{self.url}/apis/{GROUP}/{VERSION}/namespaces/default/{PLURAL}"

    async def run(self) -> Json:
        async with self.connected():
            await asyncio.sleep(1)
            self.results["ready s"] = round(self.server.ready_seconds, 3)
            self.results["memory idle MiB"] = self.server.memory()
            await self.call("POST", f"{self.url}/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=CRD)
            await self.pool(8, self.creates("warm", 100))
            steps = (self.create, self.read, self.lists, self.patch, self.apply, self.watch)
            for _, step in one_by_one({step.__name__: step for step in steps}):
                await step()
        return self.results

    def creates(self, prefix: str, count: int) -> Iterator[Job]:
        for i in range(count):
            name = f"{prefix}-{i}"
            self.names.append(name)
            yield "POST", self.base, {"data": json.dumps(widget(name)), "headers": {"Content-Type": "application/json"}}

    async def create(self) -> None:
        for width in (1, 16, 64):
            count = self.ops if width > 1 else self.ops // 2
            rate, cpu, latencies = await self.pool(width, self.creates(f"c{width}", count))
            self.note(f"create/s at {width}", rate)
            self.note(f"create p99 ms at {width}", percentile(latencies, 0.99) * 1000, 2)
        left = max(0, self.objects - len(self.names))
        if left:
            _, cpu, _ = await self.pool(64, self.creates("fill", left))
        self.note("create CPU ms", cpu, 3)
        await asyncio.sleep(2)
        self.results["objects"] = len(self.names)
        self.results["memory 10,000 objects MiB"] = self.server.memory()

    def some(self, count: int, step: int) -> list[str]:
        return [self.names[(i * step) % len(self.names)] for i in range(count)]

    async def read(self) -> None:
        for width in (1, 16, 64):
            rate, cpu, _ = await self.pool(width, [("GET", f"{self.base}/{n}", {}) for n in self.some(self.ops, 7919)])
            self.note(f"get/s at {width}", rate)
        self.note("get CPU ms", cpu, 3)

    async def lists(self) -> None:
        async def best(query: str) -> float:
            return min([(await self.call("GET", self.base + query))[0] for _ in range(5)]) * 1000

        self.note("list 10,000 ms", await best(""), 1)
        self.note("list by label ms", await best("?labelSelector=shard%3D3"), 1)
        self.note("list first 500 ms", await best("?limit=500"), 1)

    async def patch(self) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        for width in (1, 16, 64):
            count = self.ops if width > 1 else self.ops // 2
            jobs: list[Job] = [
                (
                    "PATCH",
                    f"{self.base}/{name}/status",
                    {"data": json.dumps({"status": {"phase": "Ready", "n": i * 100 + width}}), "headers": headers},
                )
                for i, name in enumerate(self.some(count, 104_729))
            ]
            rate, cpu, _ = await self.pool(width, jobs)
            self.note(f"patch status/s at {width}", rate)
        self.note("patch status CPU ms", cpu, 3)

    async def apply(self) -> None:
        headers = {"Content-Type": "application/apply-patch+yaml"}
        jobs: list[Job] = []
        for i, name in enumerate(self.some(min(1000, self.ops), 31)):
            config = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "metadata": {"name": name},
                "spec": {"replicas": i % 7},
            }
            url = f"{self.base}/{name}?fieldManager=b&force=true"
            jobs.append(("PATCH", url, {"data": json.dumps(config), "headers": headers}))
        rate, cpu, _ = await self.pool(64, jobs)
        self.note("apply/s at 64", rate)
        self.note("apply CPU ms", cpu, 3)

    async def watch(self, watchers: int = 100, writes: int = 100, burst: int = 500) -> None:
        """From a write to the last watcher that saw it; then many writes at once."""
        seen: dict[bytes, list[float]] = {}
        _, body = await self.call("GET", self.base + "?limit=1")
        version = json.loads(body)["metadata"]["resourceVersion"]
        open_watches = asyncio.Semaphore(0)

        async def follow() -> None:
            async with self.session.get(f"{self.base}?watch=1&resourceVersion={version}") as response:
                open_watches.release()
                rest = b""
                async for chunk in response.content.iter_any():
                    now = time.perf_counter()
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        at = line.find(b'"payload":"mark-')
                        if at >= 0:
                            seen.setdefault(line[at + 11 : line.find(b'"', at + 16)], []).append(now)

        tasks = [asyncio.create_task(follow()) for _ in range(watchers)]
        for _ in range(watchers):
            await open_watches.acquire()
        await asyncio.sleep(1)
        self.results["memory 100 watchers MiB"] = self.server.memory()
        headers = {"Content-Type": "application/merge-patch+json"}

        def mark(text: str, name: str) -> Job:
            return "PATCH", f"{self.base}/{name}", {"data": json.dumps({"spec": {"payload": text}}), "headers": headers}

        async def arrived(text: str) -> None:
            while len(seen.get(text.encode(), ())) < watchers:
                await asyncio.sleep(0.0005)

        last: list[float] = []
        for i in range(writes):
            method, url, options = mark(f"mark-{i}", self.names[i])
            started = time.perf_counter()
            await self.call(method, url, **options)
            await asyncio.wait_for(arrived(f"mark-{i}"), 30)
            last.append(max(seen[f"mark-{i}".encode()]) - started)
        self.note("watch last of 100 p50 ms", percentile(last, 0.5) * 1000, 2)
        self.note("watch last of 100 p99 ms", percentile(last, 0.99) * 1000, 2)
        seen.clear()
        started = time.perf_counter()
        await self.pool(16, [mark(f"mark-b{i}", self.names[i]) for i in range(burst)])
        while sum(map(len, seen.values())) < burst * watchers and time.perf_counter() - started < 60:
            await asyncio.sleep(0.01)
        took = max(max(times) for times in seen.values()) - started
        self.note("watch burst events/s", sum(map(len, seen.values())) / took)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000, help="objects in the store for reads and lists")
    parser.add_argument("--ops", type=int, default=2000, help="operations per step")
    options = parser.parse_args()
    warn_if_busy()
    clean_up_when_terminated()
    directory = Path(tempfile.mkdtemp(prefix="homeostat-bench-"))
    server = Server(directory / "data")
    try:
        server.start()
        results = asyncio.run(Bench(server, options.objects, options.ops).run())
        results["stop s"] = round(server.stop(), 3)
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)
    print_table(results, {"kube-apiserver": PEER})
    write("api.json", {"results": results, "peer": PEER})


if __name__ == "__main__":
    main()
