"""What tests of the agent share: a control plane, a hand that places workloads as the governor does, and a look at what really runs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from homeostat.client import Client
from homeostat.gpu.agent import Agent, Machine
from homeostat.gpu.agent.devices import Devices
from homeostat.gpu.agent.simulated import Simulated
from homeostat.gpu.agent.suspend import Standstill
from homeostat.gpu.kinds import NODE, WORKLOAD
from homeostat.loop.election import Timing
from homeostat.model.kinds import crd_for
from homeostat.providers.process import kernel
from homeostat.testing import TestPlane

QUICK = Timing(lease=4.0, deadline=3.0, renew=0.5, retry=0.2, patience=1.0)
SECONDS = 15.0

Object = dict[str, Any]

COUNTER = """
import os, pathlib, sys, time
place, n = pathlib.Path(sys.argv[1]), 0
beside = place.with_name(f"{place.name}.{os.getpid()}")
while True:
    n += 1
    beside.write_text(str(n))
    beside.rename(place)
    time.sleep(0.005)
"""


def python(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-S", "-c", code, *map(str, arguments)]


class World:
    """A control plane with the kinds of GPUs, and what a governor would write there."""

    def __init__(self, plane: TestPlane, client: Client, folder: Path) -> None:
        self.plane, self.client, self.folder = plane, client, folder
        self.workloads = client.kind(WORKLOAD.api_version, WORKLOAD.kind, namespace="default")
        self.nodes = client.kind(NODE.api_version, NODE.kind)
        self.keeping: dict[str, asyncio.Task[None]] = {}
        """By node, those that run in this process."""

    def state(self, node: str = "n1") -> Path:
        return self.folder / node

    @contextlib.asynccontextmanager
    async def agent(self, node: str = "n1", devices: Devices | None = None, **options: Any) -> AsyncIterator[Agent]:
        """An agent in this process; what it runs goes on afterwards."""
        machine = options.pop("machine", Machine(node))
        options = {"timing": QUICK, "read_seconds": 0.1, "suspend_seconds": 10.0, **options}
        devices = devices or Simulated.parse("8xH100")
        async with self.plane.client() as client:
            agent = Agent(client, machine, devices, self.state(node), f"agent-{node}", **options)
            task = self.keeping[node] = asyncio.create_task(agent.run())
            ready = asyncio.create_task(agent.ready.wait())
            try:
                await asyncio.wait({task, ready}, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    task.result()
                yield agent
            finally:
                ready.cancel()
                task.cancel()
                await asyncio.gather(task, ready, return_exceptions=True)

    async def submit(
        self,
        name: str,
        command: Iterable[str],
        *,
        places: list[Object] | None = None,
        phase: str = "Running",
        **spec: Any,
    ) -> str:
        """Declares a workload and places it; gives its uid."""
        obj = {"metadata": {"name": name}, "spec": {"tenant": "t", "command": [*command], **spec}}
        made = await self.workloads.create(obj)
        await self.govern(name, phase=phase, assignment=[place()] if places is None else places)
        return str(made["metadata"]["uid"])

    async def govern(self, name: str, **status: Any) -> None:
        """Writes what the governor writes."""
        await self.workloads.patch(name, {"status": status}, subresource="status")

    async def until(self, name: str, holds: Callable[[Object], bool], seconds: float = SECONDS) -> Object:
        """Waits until it holds of a workload, and gives it."""
        return await until(self.workloads, name, holds, seconds)

    async def reported(self, name: str, state: str, replica: int = 0, seconds: float = SECONDS) -> Object:
        """Waits until a replica is reported in this state; gives the report."""
        found = await self.until(name, lambda obj: report_of(obj, replica).get("state") == state, seconds)
        return report_of(found, replica)

    def pids(self, uid: str, node: str = "n1") -> dict[int, list[int]]:
        """The processes that run as replicas of a workload, as the kernel tells it."""
        found: dict[int, list[int]] = {}
        for one in kernel.marked(self.state(node) / "workloads", lambda mark: mark.uid == uid):
            if one.leads:
                found.setdefault(one.mark.index, []).append(one.process.pid)
        return found

    def alive(self, node: str = "n1") -> set[str]:
        """The uids of all workloads of which a replica runs on a node, as the kernel tells it."""
        return {one.mark.uid for one in kernel.marked(self.state(node) / "workloads", lambda mark: True) if one.leads}

    def log(self, uid: str, name: str = "0.out", node: str = "n1") -> Path:
        return self.state(node) / "workloads" / uid / name

    def clean(self) -> None:
        """After a test: nothing of it runs on."""
        while found := kernel.marked(self.folder, lambda mark: True):
            for one in found:
                kernel.kill(one.process)


class Moody(Simulated):
    """Simulated GPUs whose way of suspending fails as it is told to."""

    def __init__(self) -> None:
        super().__init__(8, "H100")
        self.suspension = self
        self.fails: Exception | None = None
        self._real = Standstill()

    def suspend(self, family: Callable[[], list], seconds: float, *, gang: bool) -> None:  # type: ignore[type-arg]
        if self.fails:
            raise self.fails
        self._real.suspend(family, seconds, gang=gang)

    def room(self, family: Callable[[], list]) -> dict[int, int]:  # type: ignore[type-arg]
        return {}

    def resume(self, family: Callable[[], list], seconds: float, room: Mapping[int, int]) -> None:  # type: ignore[type-arg]
        if self.fails:
            raise self.fails
        self._real.resume(family, seconds, room)


async def until(kind: Any, name: str, holds: Callable[[Object], bool], seconds: float = SECONDS) -> Object:
    current: Object | None = None
    async with kind.informer(fields=f"metadata.name={name}") as informer:
        try:
            async with asyncio.timeout(seconds):
                async for change in informer.changes():
                    current = change.object
                    if current is not None and holds(current):
                        return current
        except TimeoutError:
            raise AssertionError(f"{name} is not as awaited: {current}") from None
    raise AssertionError


async def eventually(holds: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Waits for something that nobody tells of: a file, a process."""
    async with asyncio.timeout(seconds):
        while not (found := holds()):
            await asyncio.sleep(0.01)
    return found


def place(node: str = "n1", gpus: Iterable[int] = (0,), replica: int = 0, milli: int = 1000) -> Object:
    return {"replica": replica, "node": node, "gpus": [*gpus], "milli": milli}


def report_of(obj: Object, replica: int = 0, node: str = "") -> Object:
    reports = obj.get("status", {}).get("reports", ())
    return next((one for one in reports if one["replica"] == replica and node in ("", one["node"])), {})


def number(path: Path) -> int:
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0


def alive(pid: int) -> bool:
    stat = kernel.stat_of(pid)
    return stat is not None and stat.state not in "ZX"


def stands(pid: int) -> bool:
    stat = kernel.stat_of(pid)
    return stat is not None and stat.state == "T"


class Program:
    """The agent as people start it: a process of its own, to be killed."""

    def __init__(self, kubeconfig: Path, state: Path, node: str = "n1", *more: str) -> None:
        command = [sys.executable, "-m", "homeostat", "agent", "--kubeconfig", str(kubeconfig), "--state", str(state)]
        self.process = subprocess.Popen(
            [*command, "--name", node, "--simulate", "8xH100", *more], stdout=subprocess.PIPE, text=True
        )

    async def ready(self) -> None:
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        assert line.startswith("keeping "), line

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(self.process.wait, SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


async def install_kinds(client: Client) -> None:
    definitions = client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    for info in (WORKLOAD, NODE):
        definition = crd_for(info)
        await definitions.apply(definition, field_manager="test")
        await until(definitions, definition["metadata"]["name"], _established)


def _established(obj: Object) -> bool:
    conditions = obj.get("status", {}).get("conditions", ())
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


class Plane:
    """A control plane as people start it, on a port that stays."""

    def __init__(self, data: Path) -> None:
        self.data, self.port = data, 0
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "homeostat",
            "up",
            "--data",
            str(self.data),
            "--listen",
            f"127.0.0.1:{self.port}",
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.port = int(line.strip().rpartition(":")[2])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def kubeconfig(self) -> Path:
        return self.data / "admin.kubeconfig"

    def client(self) -> Client:
        return Client.from_kubeconfig(self.kubeconfig)
