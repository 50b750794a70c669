"""Measures Git as the source of truth: many small Syncs, one large one, and looks that find nothing.

    make bench                                     # among others; this one takes about two minutes
    python benchmarks/gitops.py --only syncs       # one of: syncs, commit
    python benchmarks/gitops.py --only commit --objects 2000

Each section starts `homeostat up` in a process of its own (TLS, durable commits, the loop inside) and a repository on this disk.
Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import hmac
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
from harness import (
    Driver,
    Follower,
    Json,
    Server,
    clean_up_when_terminated,
    condition,
    one_by_one,
    print_table,
    warn_if_busy,
    write,
)

API = "/apis/homeostat.dev/v1alpha1/namespaces/default"
TOKEN = "bench"
# Flux 2.9 on 16 cores, for 1,000 Kustomizations of one repository.
PEERS = {"Flux 2.9, 16 cores": {"1,000 Syncs applied s": 253}}
LIMITS = {
    "1,000 Syncs applied s": 30,
    "with 1,000 Syncs MiB": 300,
    "no-change poll of 1,000 Syncs CPU s": 1,
    "one of 10,000 after push ms": 1000,
}


class Git(Driver):
    """A server that applies what a repository says, and the repository."""

    def __init__(self, directory: Path) -> None:
        self.repo = directory / "repo"
        self.port = _free_port()
        allow = ("--enforce", "--allow", f"git:{self.repo}", "--allow", f"webhooks:127.0.0.1:{self.port}")
        super().__init__(Server(directory / "data", allow))
        self.repo.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> None:
        who = ["-c", "user.name=bench", "-c", "user.email=bench@example.com"]
        subprocess.run(["git", *who, *words], cwd=self.repo, check=True, capture_output=True)

    def commit(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            place = self.repo / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    async def declare_source(self) -> None:
        secret = {"metadata": {"name": "hook"}, "data": {"token": base64.b64encode(TOKEN.encode()).decode()}}
        await self.call("POST", f"{self.url}/api/v1/namespaces/default/secrets", json=secret)
        spec = {"url": str(self.repo), "interval": "1h", "webhook": {"secret": "hook"}}
        await self._declare(
            f"{self.url}{API}/gitsources", {**_kind("GitSource"), "metadata": {"name": "repo"}, "spec": spec}
        )

    async def _declare(self, url: str, obj: Json) -> None:
        """Declares something of a kind that the loop may still be making known."""
        for _ in range(600):
            async with self.session.post(url, json=obj) as response:
                if response.status != 404:
                    break
            await asyncio.sleep(0.05)
        if response.status >= 300:
            raise SystemExit(f"{url}: {response.status}")
        for _ in range(600):
            async with self.session.get(f"{self.url}{API}/syncs") as response:
                if response.status != 404:
                    return
            await asyncio.sleep(0.05)

    async def push(self) -> None:
        """What the host of the repository would send."""
        body = b"{}"
        signature = "sha256=" + hmac.new(TOKEN.encode(), body, hashlib.sha256).hexdigest()
        url = f"http://127.0.0.1:{self.port}/hooks/git/default/repo"
        await self.call("POST", url, data=body, headers={"X-Hub-Signature-256": signature})

    async def syncs(self, count: int) -> Json:
        """Many Syncs of small directories, from nothing to the last of them Ready."""
        names = [f"app-{i:04}" for i in range(count)]
        self.commit(
            {f"{name}/{part}.yaml": _config_map(f"{name}-{part}") for name in names for part in ("a", "b", "c")}
        )
        self.server.start()
        async with self.connected():
            await self.declare_source()
            url = f"{self.url}{API}/syncs"
            async with Follower(self, url).following(condition) as follower:
                started, spent = time.perf_counter(), self.server.cpu()
                jobs = [("POST", url, {"json": _sync(name)}) for name in names]
                await self.pool(16, jobs)
                await follower.until(lambda: follower.count == count, 300)
                self.note("1,000 Syncs applied s", time.perf_counter() - started, 1)
                self.note("1,000 Syncs CPU s", self.server.cpu() - spent, 1)
            self.note("with 1,000 Syncs MiB", self.server.memory())
            await asyncio.sleep(3)
            idle = await self._spent(10, poke=False)
            self.note("no-change poll of 1,000 Syncs CPU s", max(0.0, await self._spent(10, poke=True) - idle), 3)
        return self.results

    async def _spent(self, rounds: int, *, poke: bool) -> float:
        before = self.server.cpu()
        for _ in range(rounds):
            if poke:
                await self.push()
            await asyncio.sleep(0.6)
        return (self.server.cpu() - before) / rounds

    async def one_of_many(self, count: int, rounds: int) -> Json:
        """A commit that changes one object of a large Sync, from the push to the object."""
        self.commit({f"d{i // 100:03}/{i:05}.yaml": _config_map(f"map-{i:05}") for i in range(count)})
        self.server.start()
        async with self.connected():
            await self.declare_source()
            syncs, maps = f"{self.url}{API}/syncs", f"{self.url}/api/v1/namespaces/default/configmaps"
            async with (
                Follower(self, syncs).following(condition) as follower,
                Follower(self, maps).following() as objects,
            ):
                started = time.perf_counter()
                await self.call("POST", syncs, json=_sync(""))
                await follower.until(lambda: follower.count == 1, 300)
                self.note("10,000 objects applied s", time.perf_counter() - started, 1)
                await asyncio.sleep(3)
                times = [await self._changed(objects, i * 7 % count, str(i + 2)) for i in range(rounds)]
            self.note("one of 10,000 after push ms", statistics.median(times) * 1000)
            self.note("with 10,000 objects MiB", self.server.memory())
        return self.results

    async def _changed(self, objects: Follower, number: int, value: str) -> float:
        self.commit({f"d{number // 100:03}/{number:05}.yaml": _config_map(f"map-{number:05}", value)})
        started = time.perf_counter()
        await self.push()
        seen = await objects.seen(f"map-{number:05}", lambda obj: obj["data"]["value"] == value)
        await asyncio.sleep(1)
        return seen - started


def _config_map(name: str, value: str = "1") -> str:
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"value": value, "text": "x" * 100},
    }
    return orjson.dumps(obj, option=orjson.OPT_INDENT_2).decode()


def _kind(kind: str) -> Json:
    return {"apiVersion": "homeostat.dev/v1alpha1", "kind": kind}


def _sync(path: str) -> Json:
    return {**_kind("Sync"), "metadata": {"name": path or "all"}, "spec": {"source": {"name": "repo"}, "path": path}}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def _with(directory: Path, work: Callable[[Git], Awaitable[Json]]) -> Json:
    git = Git(directory)
    try:
        return await work(git)
    finally:
        git.server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", metavar="SECTION", action="append", help="one section; may be repeated; writes no file"
    )
    parser.add_argument("--syncs", type=int, default=1000, help="Syncs of one repository (default 1,000)")
    parser.add_argument("--objects", type=int, default=10_000, help="objects of one Sync (default 10,000)")
    parser.add_argument("--rounds", type=int, default=5, help="pushes that change one of them (default 5)")
    options = parser.parse_args()
    warn_if_busy()
    clean_up_when_terminated()
    sections: dict[str, Callable[[Git], Awaitable[Json]]] = {
        "syncs": lambda git: git.syncs(options.syncs),
        "commit": lambda git: git.one_of_many(options.objects, options.rounds),
    }
    if unknown := set(options.only or ()) - sections.keys():
        parser.error(f"--only {', '.join(sorted(unknown))}: the sections are {', '.join(sections)}")
    directory = Path(tempfile.mkdtemp(prefix="homeostat-bench-"))
    results: Json = {}
    try:
        for name, measure in one_by_one(sections, options.only):
            results |= asyncio.run(_with(directory / name, measure))
            shutil.rmtree(directory / name, ignore_errors=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print_table(results, PEERS, LIMITS)
    if not options.only:
        write("gitops.json", {"results": results, "peers": PEERS, "limits": LIMITS})


if __name__ == "__main__":
    main()
