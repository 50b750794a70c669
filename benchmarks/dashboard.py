"""Measures the dashboard as a person sees it: Chromium before a live control plane with 10,000 resources.

    make bench                                    # among others; this one takes about two minutes
    python benchmarks/dashboard.py --resources 2000

Starts `homeostat up` in a process of its own (TLS, durable commits, the loop inside, real files as the world). A view counts from the
start of the navigation until its figures stand in the page; a live update from when the write is sent until the page shows it.
Nothing here passes or fails.
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
from collections.abc import Iterator
from pathlib import Path

from harness import (
    Driver,
    Follower,
    Job,
    Json,
    Server,
    clean_up_when_terminated,
    condition,
    percentile,
    print_table,
    warn_if_busy,
    write,
)
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

KIND = "files.files.homeostat.dev"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
LIMITS = {"first view ms": 1000, "live update p50 ms": 250, "live update max ms": 250}

# When the page holds a text: milliseconds since the navigation began, and the wall clock.
SHOWS = """(text) => new Promise((done) => {
  const look = () => document.body.innerText.includes(text) && (seen.disconnect(), done([performance.now(), Date.now()]));
  const seen = new MutationObserver(look);
  seen.observe(document.body, { childList: true, subtree: true, characterData: true });
  look();
})"""


class Dashboard(Driver):
    """A server that keeps files, and people who look at it."""

    def __init__(self, directory: Path, resources: int) -> None:
        self.room = directory / "room"
        self.room.mkdir(parents=True)
        super().__init__(Server(directory / "data", ("--allow", f"file:{self.room}", "--enforce")))
        self.resources = resources

    @property
    def base(self) -> str:
        return f"{self.url}/apis/files.homeostat.dev/v1/namespaces/default/files"

    def creates(self) -> Iterator[Job]:
        for number in range(self.resources):
            yield "POST", self.base, {"json": self.file(f"file{number}", "as declared")}

    def file(self, name: str, content: str) -> Json:
        spec = {"path": str(self.room / name), "content": content}
        return {"apiVersion": "files.homeostat.dev/v1", "kind": "File", "metadata": {"name": name, "namespace": "default"}, "spec": spec}

    async def run(self, rounds: int) -> Json:
        async with self.connected(), async_playwright() as play:
            await self.stock()
            browser = await play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            await self.views(browser)
            await self.updates(browser, rounds)
            self.note("memory with a viewer MiB", self.server.memory())
            await browser.close()
        return self.results

    async def stock(self) -> None:
        """All of them declared, and made true."""
        while True:  # the kind comes with the loop
            async with self.session.get(self.base) as reply:
                if reply.status == 200:
                    break
            await asyncio.sleep(0.1)
        async with Follower(self, self.base).following(condition) as follower:
            await self.pool(32, self.creates())
            await follower.until(lambda: follower.count >= self.resources, seconds=600)

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

    async def views(self, browser: Browser) -> None:
        context = await self.signed_in(browser)
        page = await context.new_page()
        total = f"{self.resources:,}"
        self.note("first view, by the first who looks ms", await self.view(page, "", f"{total} converged"))
        fleet = [await self.view(page, "", f"{total} converged") for _ in range(5)]
        self.note("first view ms", percentile(fleet, 0.5))
        kind = [await self.view(page, f"kinds/{KIND}", f"{total} resources") for _ in range(5)]
        self.note(f"list of {total} ms", percentile(kind, 0.5))
        self.note("one resource ms", await self.view(page, f"resources/{KIND}/default/file1", "Last applied"))
        await context.close()

    async def updates(self, browser: Browser, rounds: int) -> None:
        """How long after a write the list shows it, with all the others in it."""
        context = await self.signed_in(browser)
        page = await context.new_page()
        await self.view(page, f"kinds/{KIND}?q=live", f"{self.resources:,} resources")
        took = []
        for number in range(rounds):
            name = f"live{number}"
            shown = asyncio.create_task(page.evaluate(SHOWS, f"default/{name}"))
            await asyncio.sleep(0.3)  # the page looks out for it
            sent = time.time() * 1000
            await self.call("POST", self.base, json=self.file(name, "new"))
            _, at = await shown
            took.append(at - sent)
        self.note("live update p50 ms", percentile(took, 0.5))
        self.note("live update max ms", max(took))
        await context.close()


async def measure(resources: int, rounds: int) -> Json:
    directory = Path(tempfile.mkdtemp(prefix="homeostat-bench-"))
    driver = Dashboard(directory, resources)
    try:
        driver.server.start()
        return await driver.run(rounds)
    finally:
        driver.server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--resources", type=int, default=10_000, help="files that are kept (default 10,000)")
    parser.add_argument("--rounds", type=int, default=20, help="live updates (default 20)")
    options = parser.parse_args()
    clean_up_when_terminated()
    warn_if_busy()
    results = asyncio.run(measure(options.resources, options.rounds))
    print_table(results, {"": {}}, LIMITS)
    write("dashboard.json", {"resources": options.resources, "results": results})


if __name__ == "__main__":
    main()
