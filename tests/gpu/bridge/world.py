"""What tests of bridges share: a bridge in this process or in one of its own, and jobs that leave traces."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.gpu.agent.world import QUICK, SECONDS, eventually, python
from tests.gpu.controller.world import World

from homeostat.gpu.bridge import Bridge, Cluster

Object = dict[str, Any]

TRACE = """
import os, pathlib, signal, sys, time
place, seconds, code = pathlib.Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
def say(word):
    with place.open("a") as file:
        file.write(f"{word}\\n")
def leave(number, frame):
    say(signal.Signals(number).name)
    sys.exit(0)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
    signal.signal(number, leave)
say("begun")
time.sleep(seconds)
say("done")
print("out:", os.environ.get("GREETING"), flush=True)
print("err:", code, file=sys.stderr)
sys.exit(code)
"""


@contextlib.asynccontextmanager
async def bridged(world: World, cluster: Callable[[Path], Cluster], seconds: float = SECONDS, **options: Any) -> AsyncIterator[Bridge]:
    """A bridge in this process, ready unless that takes more `seconds`; what it sent runs on afterwards."""
    state = world.folder / "bridge"
    options = {"timing": QUICK, "every": 0.2, "blind_after": 1.0, **options}
    async with world.plane.client() as client:
        made = Bridge(client, cluster(state), state, "bridge", **options)
        task = asyncio.create_task(made.run())
        ready = asyncio.create_task(made.ready.wait())
        try:
            await asyncio.wait({task, ready}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield made
        finally:
            ready.cancel()
            task.cancel()
            await asyncio.gather(task, ready, return_exceptions=True)


class Program:
    """The bridge as people start it: a process of its own, to be killed."""

    def __init__(self, world: World, *arguments: str, **environment: str) -> None:
        state, config = world.folder / "bridge", str(world.plane.kubeconfig)
        command = [sys.executable, "-m", "homeostat", "bridge", *arguments, "--kubeconfig", config, "--state", str(state), "--every", "0.2"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})

    async def ready(self) -> None:
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        assert line.startswith("keeping "), line

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.process.send_signal(number)
        code = self.process.wait(SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def trace(world: World, name: str, seconds: float = 1000.0, code: int = 0) -> list[str]:
    """A command that writes what happens to it into a file."""
    return python(TRACE, world.folder / f"{name}.trace", seconds, code)


def traced(world: World, name: str) -> list[str]:
    path = world.folder / f"{name}.trace"
    return path.read_text().split() if path.exists() else []


async def submit(world: World, name: str, seconds: float = 1000.0, code: int = 0, gpus: int = 1, **spec: Any) -> str:
    """Declares a workload that leaves a trace; gives its uid."""
    body = {"tenant": "t", "resources": {"gpus": gpus}, "command": trace(world, name, seconds, code), **spec}
    made = await world.workloads.create({"metadata": {"name": name}, "spec": body})
    return str(made["metadata"]["uid"])


async def running(world: World, *names: str, replicas: int = 1) -> Object:
    """Waits until these run, as it is told and as they themselves say; gives the last."""
    found: Object = {}
    for name in names:
        found = await world.phase(name, "Running")
        await eventually(lambda name=name: traced(world, name).count("begun") == replicas)  # type: ignore[misc]
    return found
