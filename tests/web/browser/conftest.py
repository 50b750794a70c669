"""Debian's Chromium before a live control plane: `homeostat up` in a process of its own, files as the world."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright

COMMAND = str(Path(sys.executable).with_name("homeostat"))
CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
WAIT_SECONDS = 30.0
expect.set_options(timeout=WAIT_SECONDS * 1000)

if CHROMIUM is None and os.environ.get("CI") != "true":
    pytest.skip("chromium is not installed: `make tools` installs it", allow_module_level=True)


class House:
    """A running server with a room that it keeps files in."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.room, self.data = folder / "room", folder / "data"
        self.room.mkdir()
        call = [COMMAND, "up", "--data", str(self.data), "--listen", "127.0.0.1:0", "--allow", f"file:{self.room}", *arguments]
        self.environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | {"HOME": str(folder)}
        self.process = subprocess.Popen(call, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = ""
        assert self.process.stdout is not None
        while "Ctrl-C" not in said:
            line = self.process.stdout.readline()
            assert line, f"it ended: {said}"
            said += line
        found = re.search(r"ready at (\S+)", said)
        assert found
        self.url = found[1]
        self.kubeconfig = self.data / "admin.kubeconfig"
        self.until(lambda: "files" in self.run("get", "customresourcedefinitions", "-o", "name"))

    def run(self, *arguments: object, ok: bool = True) -> str:
        call = [COMMAND, *map(str, arguments)]
        done = subprocess.run(call, env=self.environment | {"KUBECONFIG": str(self.kubeconfig)}, capture_output=True, text=True, timeout=60, check=False)
        assert not ok or done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def until(self, holds: Callable[[], Any]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not holds():
            assert time.monotonic() < deadline, "it never was so"
            time.sleep(0.05)

    def declare(self, *arguments: str, **contents: str) -> None:
        """Files of these names and contents; `arguments` are further ones of `homeostat apply`."""
        items = [
            {"apiVersion": "files.homeostat.dev/v1", "kind": "File", "metadata": {"name": name, "namespace": "default"}, "spec": {"path": str(self.room / name), "content": content}}
            for name, content in contents.items()
        ]
        manifest = self.data.parent / "files.json"
        manifest.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        self.run("apply", "-f", manifest, "--yes", *arguments)
        self.until(lambda: all((self.room / name).exists() for name in contents))

    def link(self) -> str:
        return self.run("ui", "--no-browser").strip()

    def token(self, user: str, *groups: str) -> str:
        return self.run("token", "create", "--user", user, *(word for group in groups for word in ("--group", group))).strip()

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=20)


class Watched:
    """A page that must stay clean: no error in its console, no request to another host."""

    def __init__(self, page: Page, house: House) -> None:
        self.page = page
        self.troubles: list[str] = []
        self._url = house.url
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self._url, "data:", "blob:")):
            self.troubles.append(f"request to {request.url}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("house"), "--enforce")
    yield house
    house.stop()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, house: House) -> Iterator[Page]:
    """Signed in as the administrator by a link; what troubles it meets on the way fail the test."""
    page = context.new_page()
    watched = Watched(page, house)
    page.goto(house.link())
    expect(page.get_by_role("status")).to_have_text("live")
    yield page
    assert watched.troubles == []
