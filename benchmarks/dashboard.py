"""Measures the dashboard as a person sees it: Chromium before a live control plane with 10,000 resources, then before one with 10,000 GPUs.

    make bench                                    # among others; this one takes about three minutes
    python benchmarks/dashboard.py --resources 2000 --gpus 0

Starts `homeostat up` in a process of its own (TLS, durable commits, the loop inside, real files as the world; of the GPUs, which no
machine of ours has, the objects that agents would write). A view counts from the start of the navigation until its figures stand in the
page; a live update from when the write is sent until the page shows it. Of each view also the processor time that the server spent on
it: on a machine that does other things, that is what can be compared. Nothing here passes or fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from homeostat.gpu.kinds import NODE, POLICY, TENANT, WORKLOAD
from homeostat.model.clock import format_time
from homeostat.model.kinds import KindInfo

KIND = "files.files.homeostat.dev"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
LIMITS = {
    "first view, by the first who looks ms": 1000,
    "first view ms": 1000,
    "live update p50 ms": 250,
    "live update max ms": 250,
    "GPUs, by the first who looks ms": 1000,
    "GPUs ms": 1000,
    "GPU reading p50 ms": 250,
    "GPU reading max ms": 250,
    "GPU queue p50 ms": 250,
    "GPU queue max ms": 250,
}
GPUS_A_NODE, GPUS_A_JOB, TENANTS, WAITING = 8, 2, 10, 500

# When the page holds a text: milliseconds since the navigation began, and the wall clock.
SHOWS = """(text) => new Promise((done) => {
  const look = () => document.body.innerText.includes(text) && (seen.disconnect(), done([performance.now(), Date.now()]));
  const seen = new MutationObserver(look);
  seen.observe(document.body, { childList: true, subtree: true, characterData: true });
  look();
})"""


class Dashboard(Driver):
    """A server, and people who look at it."""

    async def signed_in(self, browser: Browser) -> BrowserContext:
        """A browser of somebody who has come by a link."""
        command = [sys.executable, "-m", "homeostat", "ui", "--no-browser", "--kubeconfig", str(self.server.directory / "admin.kubeconfig")]
        link = await asyncio.to_thread(subprocess.check_output, command, text=True)
        _, body = await self.call("POST", f"{self.url}/ui/session", json={"code": link.strip().partition("#code=")[2]})
        context = await browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800})
        kept = json.dumps(body.decode())
        await context.add_init_script(f"sessionStorage.setItem('homeostat.session', {kept})")
        return context

    async def view(self, page: Page, path: str, text: str) -> float:
        """Milliseconds from the start of the navigation until the page shows a text."""
        await page.goto(f"{self.url}/ui/{path}", wait_until="commit")
        since, _ = await page.evaluate(SHOWS, text)
        return float(since)

    async def noted_first_view(self, page: Page, name: str, path: str, text: str) -> None:
        """The view of who looks first: what it shows was read since they signed in."""
        before = self.server.ran()
        self.note(f"{name}, by the first who looks ms", await self.view(page, path, text))
        self.note(f"{name}, the server's CPU for that one ms", (self.server.ran() - before) * 1000)

    async def rest(self) -> None:
        """Waits until the server has done what it has to do after so many writes; a minute at most."""
        for _ in range(60):
            before = self.server.ran()
            await asyncio.sleep(1)
            if self.server.ran() - before < 0.1:
                return

    async def noted_views(self, page: Page, name: str, path: str, text: str) -> None:
        """A view five times over: the median, and what one costs the server."""
        before = self.server.ran()
        took = [await self.view(page, path, text) for _ in range(5)]
        self.note(f"{name} ms", percentile(took, 0.5))
        self.note(f"{name}, the server's CPU ms", (self.server.ran() - before) / 5 * 1000)

    async def served(self, url: str) -> None:
        """Waits until a collection is there: kinds come with the loop."""
        while True:
            async with self.session.get(url) as reply:
                if reply.status == 200:
                    return
            await asyncio.sleep(0.1)

    async def noted_updates(self, page: Page, name: str, rounds: int, update: Callable[[int], tuple[Job, str]]) -> None:
        """How long after a write the page shows a text."""
        took = []
        for number in range(rounds):
            (method, url, options), text = update(number)
            shown = asyncio.create_task(page.evaluate(SHOWS, text))
            await asyncio.sleep(0.3)  # the page looks out for it
            sent = time.time() * 1000
            await self.call(method, url, **options)
            _, at = await shown
            took.append(at - sent)
        self.note(f"{name} p50 ms", percentile(took, 0.5))
        self.note(f"{name} max ms", max(took))


class Files(Dashboard):
    """A server that keeps files."""

    def __init__(self, directory: Path, resources: int) -> None:
        self.room = directory / "room"
        self.room.mkdir(parents=True)
        super().__init__(Server(directory / "data", ("--allow", f"file:{self.room}", "--enforce")))
        self.resources = resources

    @property
    def base(self) -> str:
        return f"{self.url}/apis/files.homeostat.dev/v1/namespaces/default/files"

    def file(self, name: str, content: str) -> Json:
        spec = {"path": str(self.room / name), "content": content}
        return {"apiVersion": "files.homeostat.dev/v1", "kind": "File", "metadata": {"name": name, "namespace": "default"}, "spec": spec}

    async def run(self, browser: Browser, rounds: int) -> None:
        await self.stock()
        await self.views(browser)
        await self.updates(browser, rounds)
        self.note("memory with a viewer MiB", self.server.memory())

    async def stock(self) -> None:
        """All of them declared, and made true."""
        await self.served(self.base)
        creates = [("POST", self.base, {"json": self.file(f"file{number}", "as declared")}) for number in range(self.resources)]
        async with Follower(self, self.base).following(condition) as follower:
            await self.pool(32, creates)
            await follower.until(lambda: follower.count >= self.resources, seconds=600)
        await self.rest()

    async def views(self, browser: Browser) -> None:
        context = await self.signed_in(browser)
        page = await context.new_page()
        total = f"{self.resources:,}"
        await self.noted_first_view(page, "first view", "", f"{total} converged")
        await self.noted_views(page, "first view", "", f"{total} converged")
        await self.noted_views(page, f"list of {total}", f"kinds/{KIND}", f"{total} resources")
        self.note("one resource ms", await self.view(page, f"resources/{KIND}/default/file1", "Last applied"))
        await context.close()

    async def updates(self, browser: Browser, rounds: int) -> None:
        """How long after a write the list shows it, with all the others in it."""
        context = await self.signed_in(browser)
        page = await context.new_page()
        await self.view(page, f"kinds/{KIND}?q=live", f"{self.resources:,} resources")
        await self.noted_updates(
            page, "live update", rounds, lambda number: (("POST", self.base, {"json": self.file(f"live{number}", "new")}), f"default/live{number}")
        )
        await context.close()


class Machines(Dashboard):
    """A server that shares out GPUs. All of them are held, and some jobs wait: what agents and the governor would have said is written here."""

    def __init__(self, directory: Path, gpus: int) -> None:
        super().__init__(Server(directory / "data", ("--allow", "gpu", "--enforce")))
        self.nodes = gpus // GPUS_A_NODE

    async def run(self, browser: Browser, rounds: int) -> None:
        await self.stock()
        await self.views(browser)
        await self.updates(browser, rounds)
        self.note("memory with a viewer of GPUs MiB", self.server.memory())

    def base(self, info: KindInfo) -> str:
        where = "namespaces/default/" if info.scope == "Namespaced" else ""
        return f"{self.url}/apis/{info.api_version}/{where}{info.plural}"

    def create(self, info: KindInfo, name: str, spec: Json) -> Job:
        return "POST", self.base(info), {"json": {"apiVersion": info.api_version, "kind": info.kind, "metadata": {"name": name}, "spec": spec}}

    def says(self, info: KindInfo, name: str, status: Json) -> Job:
        """What an agent or the governor writes of an object."""
        kept = {"data": json.dumps({"status": status}), "headers": {"Content-Type": "application/merge-patch+json"}}
        return "PATCH", f"{self.base(info)}/{name}/status", kept

    def reading(self, node: int, use: float) -> Job:
        gpus = [{"index": at, "utilisation": use, "powerWatts": 300, "memoryUsedMib": 2048, "temperature": 50} for at in range(GPUS_A_NODE)]
        return self.says(NODE, f"node-{node:05}", {"reportedAt": format_time(time.time()), "gpus": gpus})

    def job(self, name: str, tenant: int) -> Job:
        return self.create(WORKLOAD, name, {"tenant": f"tenant-{tenant}", "command": ["sleep", "9"], "resources": {"gpus": GPUS_A_JOB}})

    def running(self, node: int, slot: int) -> Job:
        first = slot * GPUS_A_JOB
        place = {"replica": 0, "node": f"node-{node:05}", "gpus": list(range(first, first + GPUS_A_JOB))}
        return self.says(WORKLOAD, f"job-{node:05}-{slot}", {"phase": "Running", "startedAt": format_time(time.time()), "assignment": [place]})

    async def stock(self) -> None:
        """Jobs run before there are nodes to run others on: so the governor has nothing to share out."""
        await self.served(self.base(WORKLOAD))
        slots = [(node, slot) for node in range(self.nodes) for slot in range(GPUS_A_NODE // GPUS_A_JOB)]
        quota = {"quotas": [{"model": "H100", "nominal": self.nodes * GPUS_A_NODE // TENANTS}], "namespaces": ["default"]}
        node = {"model": "H100", "simulated": True, "gpus": [{"index": at, "memoryMib": 81920} for at in range(GPUS_A_NODE)]}
        leases = f"{self.url}/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
        stages: list[list[Job]] = [
            [self.create(POLICY, "default", {"failure": {"lease": "24h"}, "idle": {"enabled": False}})],
            [self.create(TENANT, f"tenant-{number}", quota) for number in range(TENANTS)],
            [self.job(f"job-{at:05}-{slot}", at % TENANTS) for at, slot in slots],
            [self.running(*where) for where in slots],
            [("POST", leases, {"json": lease(f"node-{number:05}")}) for number in range(self.nodes)],
            [self.create(NODE, f"node-{number:05}", node) for number in range(self.nodes)],
            [self.reading(number, 0.5) for number in range(self.nodes)],
            [self.job(f"wait-{number:05}", number % TENANTS) for number in range(WAITING)],
        ]
        for jobs in stages:
            await self.pool(32, jobs)
        await self.rest()

    async def views(self, browser: Browser) -> None:
        context = await self.signed_in(browser)
        page = await context.new_page()
        total = f"{self.nodes:,} nodes"
        await self.noted_first_view(page, "GPUs", "gpu", total)
        await self.noted_views(page, "GPUs", "gpu", total)
        await context.close()

    async def updates(self, browser: Browser, rounds: int) -> None:
        """How long after an agent's report a GPU is shown so, and after a job was declared it stands in the queue."""
        context = await self.signed_in(browser)
        page = await context.new_page()
        await self.view(page, "gpu?as=table&q=node-00007", "50 %")
        await self.noted_updates(page, "GPU reading", rounds, lambda number: (self.reading(7, (51 + number) / 100), f"{51 + number} %"))
        await self.view(page, "gpu?q=live", f"{self.nodes:,} nodes")
        await self.noted_updates(page, "GPU queue", rounds, lambda number: (self.job(f"live-{number}", number % TENANTS), f"default/live-{number}"))
        await context.close()


def lease(name: str) -> Json:
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    spec = {"holderIdentity": name, "renewTime": renewed}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


async def measure(make: Callable[[Path], Files | Machines], rounds: int) -> Json:
    directory = Path(tempfile.mkdtemp(prefix="homeostat-bench-"))
    driver = make(directory)
    try:
        driver.server.start()
        async with driver.connected(), async_playwright() as play:
            browser = await play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            await driver.run(browser, rounds)
            await browser.close()
        return driver.results
    finally:
        driver.server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--resources", type=int, default=10_000, help="files that are kept (default 10,000); 0 leaves them out")
    parser.add_argument("--gpus", type=int, default=10_000, help="GPUs that are shared out (default 10,000); 0 leaves them out")
    parser.add_argument("--rounds", type=int, default=20, help="live updates of each sort (default 20)")
    options = parser.parse_args()
    clean_up_when_terminated()
    warn_if_busy()
    results: Json = {}
    sections = {
        "resources": lambda directory: Files(directory, options.resources),
        "gpus": lambda directory: Machines(directory, options.gpus),
    }
    for _, house in one_by_one(sections, [name for name in sections if getattr(options, name)]):
        results |= asyncio.run(measure(house, options.rounds))
    print_table(results, {"": {}}, LIMITS)
    write("dashboard.json", {"resources": options.resources, "GPUs": options.gpus, "results": results})


if __name__ == "__main__":
    main()
