"""The live example, as a person sees it: two teams share GPUs, a quota is lowered, a slip stops and asks; and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from homeostat.cli import demo
from homeostat.cli.demo import end_agents, end_jobs
from homeostat.client import Client
from homeostat.gpu.kinds import TENANT, WORKLOAD

from .conftest import COMMAND, Up

SECONDS = 60.0
THERE, LAST = "The example is there", "# Take it back"
Object = dict[str, Any]


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory of which no process is left, however the test ends."""
    yield tmp_path / "data"
    end_agents(tmp_path / "data" / "demo")
    end_jobs(tmp_path / "data" / "demo")


def wait_until_there(up: Up) -> None:
    assert up.process.stdout is not None
    while LAST not in up.said or not up.said.partition(LAST)[2].rstrip().endswith("'"):
        line = up.process.stdout.readline()
        assert line, f"it ended: {up.said}"
        up.said += line


def printed(up: Up) -> list[str]:
    """The lines of what to try."""
    return [line.removeprefix("  ") for line in up.said.partition(THERE)[2].splitlines()[1:] if line.startswith("  ")]


def standing(phases: dict[str, str]) -> list[Object]:
    """The jobs, all of them running but for these."""
    return [
        {"metadata": {"name": name}, "spec": spec, "status": {"phase": phases.get(name, "Running")}} for name, spec in demo.JOBS.items()
    ]


def test_what_to_try_is_told_by_how_the_example_stands() -> None:
    fresh = demo.story(14, standing({"speech-6": "Pending"}))
    assert "# Give vision 10 GPUs instead of 14: its four least urgent jobs are suspended, one by one" in fresh
    assert {"homeostat gpu explain vision-14", "homeostat gpu explain speech-6", "homeostat runbook"} <= set(fresh)
    other = demo.story(14, standing({"speech-2": "Pending"}))
    assert "homeostat gpu explain speech-2" in other
    assert "homeostat gpu explain speech-6" not in other
    nobody = demo.story(14, standing({}))
    assert not any("that one wait" in line or "speech" in line for line in nobody)
    lowered = demo.story(12, standing({"speech-6": "Pending", "vision-13": "Pending", "vision-14": "Suspended"}))
    assert "# Give vision 8 GPUs instead of 12: its least urgent jobs are suspended, one by one" in lowered
    assert "homeostat gpu explain vision-14" not in lowered, "nobody can say that it is among them"
    assert lowered[-1] == demo._QUOTA % 12
    few = demo.story(6, standing({f"vision-{n:02}": "Suspended" for n in range(7, 15)}))
    assert not any("slip" in line for line in few), "one of two is no mass, and would just be done"
    for gone in (demo.story(None, standing({})), demo.story(14, [])):
        assert not any("kubectl" in line or "explain" in line for line in gone)


def processes(data: Path) -> dict[int, str]:
    """All that write below the example's directory: by pid, the file."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                place = os.readlink(f"/proc/{name}/fd/1")
            except OSError:
                continue
            if place.startswith(f"{data / 'demo'}/"):
                found[int(name)] = place
    return found


def jobs(data: Path) -> set[int]:
    """The shells that count; what they start comes and goes."""
    found = set()
    for pid, place in processes(data).items():
        with suppress(OSError):  # it has ended meanwhile
            if not place.endswith("agent.log") and "n=$((n+1))" in Path(f"/proc/{pid}/cmdline").read_bytes().decode():
                found.add(pid)
    return found


async def used(client: Client, tenant: str, amount: int) -> None:
    """Waits until a tenant is said to use so many GPUs."""
    async with (
        asyncio.timeout(SECONDS),
        client.kind(TENANT.api_version, "Tenant").watch(fields=f"metadata.name={tenant}") as events,
    ):
        async for event in events:
            if (event.object.get("status") or {}).get("used") == str(amount):
                return


async def test_the_story_that_is_printed_comes_true(start: Callable[..., Up], data: Path) -> None:
    up = await asyncio.to_thread(start, "--demo", data=data)
    await asyncio.to_thread(wait_until_there, up)
    assert printed(up) == demo.story(14, standing({"speech-6": "Pending"}))
    story = [line for line in printed(up) if not line.startswith("#")]

    async def do(line: str) -> str:
        program, *rest = shlex.split(line)
        words = [*COMMAND, *rest] if program == "homeostat" else [program, *rest]
        env = {**os.environ, "KUBECONFIG": str(up.kubeconfig)}
        done = await asyncio.to_thread(
            subprocess.run, words, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    top, lower, suspended, waits, slip, runbook, back = story
    async with Client.from_kubeconfig(up.kubeconfig) as client:
        await used(client, "vision", 14)
        assert re.search(r"vision +H100 +14 +14", await do(top))
        before = jobs(data)
        assert len(before) == 14 + 2 * 5
        await do(lower)
        await used(client, "vision", 10)
        said = await do(suspended)
        assert "Suspended" in said
        assert "for quota: vision uses" in said
        assert "speech uses 10 of its 10" in await do(waits)
        await do(slip)
        async with asyncio.timeout(SECONDS):
            while "way out, if it is meant: homeostat approve" not in await do(runbook):
                pass
        assert re.search(r"vision +- +H100 +1 +10, 9 too many", await do("homeostat gpu quota vision"))
        await do(back)
        await used(client, "vision", 14)
    assert jobs(data) == before  # the very processes: nothing was lost
    up.stop(signal.SIGINT)
    assert up.process.returncode == 0
    assert "Traceback" not in up.said
    assert processes(data) == {}


async def test_what_outlives_a_server_that_was_killed_is_taken_up_again_and_ends_with_the_next(
    start: Callable[..., Up], data: Path
) -> None:
    up = await asyncio.to_thread(start, "--demo", data=data)
    await asyncio.to_thread(wait_until_there, up)
    agents = {pid for pid, place in processes(data).items() if place.endswith("agent.log")}
    before = jobs(data)
    await asyncio.to_thread(up.stop, signal.SIGKILL)
    assert jobs(data) == before
    again = await asyncio.to_thread(start, "--demo", data=data)
    await asyncio.to_thread(wait_until_there, again)
    assert jobs(data) == before
    now = {pid for pid, place in processes(data).items() if place.endswith("agent.log")}
    assert len(now) == len(demo.NODES)
    assert not now & agents
    async with Client.from_kubeconfig(again.kubeconfig) as client:
        patch = {"spec": {"quotas": [{"model": "H100", "nominal": 12}]}}
        await client.kind(TENANT.api_version, "Tenant").patch("vision", patch)
        await used(client, "vision", 12)
    await asyncio.to_thread(again.stop)
    assert processes(data) == {}
    # What people changed is kept, and the jobs that ended with the server begin anew.
    third = await asyncio.to_thread(start, "--demo", data=data)
    await asyncio.to_thread(wait_until_there, third)
    async with Client.from_kubeconfig(third.kubeconfig) as client:
        await used(client, "vision", 12)
        found = await client.kind(WORKLOAD.api_version, "Workload").list()
        assert {job["metadata"]["name"] for job in found} == set(demo.JOBS)
        [named] = [line.split()[-1] for line in printed(third) if "explain" in line]
        assert named in {job["metadata"]["name"] for job in found if job["status"]["phase"] == "Pending"}
    await asyncio.to_thread(third.stop)
    assert processes(data) == {}


def test_it_is_said_what_the_example_needs(
    homeostat_command: Callable[..., subprocess.CompletedProcess[str]], data: Path
) -> None:
    done = homeostat_command("up", "--demo", "--no-loop", "--data", data, "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert "the example needs the loop" in done.stderr


def test_only_what_writes_below_its_directory_is_ended(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    home.mkdir()

    def counting(place: Path) -> subprocess.Popen[bytes]:
        with place.open("wb") as output:
            return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], stdout=output)

    mine, other, agent = counting(home / "0.out"), counting(tmp_path / "demo-0.out"), counting(home / "agent.log")
    try:
        mine.send_signal(signal.SIGSTOP)  # as a suspended one
        end_jobs(home)
        assert mine.wait(10) == -signal.SIGKILL
        assert agent.poll() is None
        end_agents(home)
        assert agent.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (mine, other, agent):
            process.kill()
            process.wait()
