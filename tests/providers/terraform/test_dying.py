"""Who dies in the midst of an apply leaves nothing doubled: the next one waits for what goes on, and looks at what was done."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.providers.bench import Bench, condition, running
from tests.providers.terraform.conftest import data, file, look, module, plain
from tests.providers.tools import PATIENCE

from homeostat.providers.terraform import TerraformModule

pytestmark = pytest.mark.timeout(300)


async def killed_in_the_midst(tmp_path: Path, things: Path) -> int:
    """A control plane dies by kill -9 while Terraform makes something; gives the pid of that Terraform."""
    spec = json.dumps(module(file("slow", things)))
    call = (sys.executable, "-m", "tests.providers.terraform.plane", str(tmp_path), spec)
    plane = await asyncio.create_subprocess_exec(*call, cwd=Path(__file__).parents[3])
    async with asyncio.timeout(PATIENCE):
        while not (things / "begun").exists():
            assert plane.returncode is None
            await asyncio.sleep(0.02)
    run = json.loads((tmp_path / "modules/default/web/run.json").read_text())
    assert run["what"] == "apply"
    plane.kill()
    await plane.wait()
    return int(run["process"]["pid"])


async def looked_at_until_ready(bench: Bench) -> None:
    async with asyncio.timeout(PATIENCE):
        while condition(await bench.kind.get("web"), "Ready") != "True":
            await look(bench)


async def test_a_run_that_outlives_its_control_plane_is_waited_for(tmp_path: Path, terraform: None, things: Path) -> None:
    await killed_in_the_midst(tmp_path, things)
    async with running(tmp_path, lambda: TerraformModule(tmp_path / "modules")) as bench:
        bench.patience = PATIENCE
        try:
            message = await bench.reason("web", "Unreadable")
            assert "the apply that an earlier control plane began" in message
            assert "is still at work" in message
        finally:
            (things / "go").touch()
        await looked_at_until_ready(bench)
    assert (things / "made").read_text().split() == ["slow"]


async def test_a_run_that_dies_with_its_control_plane_is_looked_at_and_done_again(
    tmp_path: Path, terraform: None, things: Path
) -> None:
    pid = await killed_in_the_midst(tmp_path, things)
    os.killpg(pid, signal.SIGKILL)
    (things / "go").touch()
    async with running(tmp_path, lambda: TerraformModule(tmp_path / "modules")) as bench:
        bench.patience = PATIENCE
        await looked_at_until_ready(bench)
    assert (things / "made").read_text().split() == ["slow"]


class States:
    """A state over HTTP, with a lock, as Terraform's backend `http` wants it."""

    def __init__(self) -> None:
        self.state = b""
        self.lock: dict[str, Any] | None = None

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.method == "LOCK":
            if self.lock is not None:
                return web.json_response(self.lock, status=423)
            self.lock = json.loads(body)
        elif request.method == "UNLOCK":
            self.lock = None
        elif request.method == "POST":
            self.state = body
        elif not self.state:
            return web.Response(status=404)
        return web.Response(body=self.state)


@asynccontextmanager
async def states() -> AsyncIterator[tuple[States, str]]:
    one, app = States(), web.Application()
    app.router.add_route("*", "/state", one.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield one, f"http://127.0.0.1:{runner.addresses[0][1]}/state"
    finally:
        await runner.cleanup()


async def test_a_lock_that_a_dead_run_left_is_named_with_the_way_to_take_it_off(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homeostat.providers.terraform.provider.LOCK_SECONDS", 0)
    async with states() as (kept, url):
        kept.lock = {"ID": "dead-1", "Operation": "OperationTypeApply", "Who": "root@gone", "Created": "2026-01-01T00:00:00Z"}
        backend = f'terraform {{\n  backend "http" {{\n    address = "{url}"\n    lock_address = "{url}"\n    unlock_address = "{url}"\n  }}\n}}\n'
        await bench.declare("web", plain(backend, data(1)))
        message = await bench.reason("web", "Unreadable")
        assert "the state is locked (dead-1)" in message
        assert "force-unlock dead-1" in message
        assert not kept.state
        kept.lock = None
        await look(bench)
        await bench.ready("web")
        assert json.loads(kept.state)["resources"]
