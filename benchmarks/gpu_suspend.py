"""Shows that a CUDA process leaves the GPU with its state and comes back, through the real API and the real agent.

    python benchmarks/gpu_suspend.py                        # on a machine with an NVIDIA GPU, driver 570 or later
    python benchmarks/gpu_suspend.py --simulate 1xH100      # the same steps where there is none
    python benchmarks/gpu_suspend.py --mib 20000 80000 --python /opt/torch/bin/python3

For each size: a job fills so much memory of the GPU and keeps checking it. It is suspended through the API; a second job runs that would
not fit beside it; the agent is killed and started again; a stranger takes the GPU, and the job waits; then it is resumed, and must find
its memory intact. The control plane is `homeostat up`, the agent joins it with a token that may do nothing else, and this script writes the
phases that the governor would write.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from harness import RESULTS, Json, Server

from homeostat.client import Client
from homeostat.gpu.agent.access import AGENTS, manifests, user_of
from homeostat.gpu.agent.nvml import Nvml
from homeostat.gpu.kinds import NODE, WORKLOAD
from homeostat.model.kinds import crd_for
from homeostat.providers.process import kernel

JOB = Path(__file__).with_name("gpu_job.py")
NODE_NAME = "gpu-node"
WAIT_SECONDS = 90.0
CONTEXT_MIB = 2048
"""What a job needs on the GPU beside its numbers."""


class Figures(dict[str, float]):
    """Figures that are printed as they come: where a step fails, one sees how far it got."""

    def __setitem__(self, name: str, value: float) -> None:
        super().__setitem__(name, round(value, 2))
        print(f"  {name:<32} {self[name]:>10}", flush=True)


class Bench:
    """A control plane, an agent, and the GPU beside them."""

    def __init__(self, folder: Path, asked: argparse.Namespace) -> None:
        self.folder, self.asked = folder, asked
        self.server = Server(folder / "data")
        self.agent: subprocess.Popen[str] | None = None
        self.nvml = None if asked.simulate else Nvml()
        self.client: Client
        self.workloads: Any = None
        self.results: Json = {}

    # The parts

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        self.server.start()
        try:
            async with Client.from_kubeconfig(self.server.directory / "admin.kubeconfig") as self.client:
                self.workloads = self.client.kind(WORKLOAD.api_version, WORKLOAD.kind, namespace="default")
                await self._prepare()
                self.start_agent()
                yield
                for workload in await self.workloads.list():
                    await self.workloads.delete(workload["metadata"]["name"])
                await eventually(
                    lambda: not list((self.folder / "state" / "workloads").glob("*/*.json")), "the jobs are gone"
                )
        finally:
            if self.agent is not None:
                self.agent.kill()
                self.agent.wait()
            for left in kernel.marked(self.folder, lambda mark: True):
                kernel.kill(left.process)
            self.server.kill()

    async def _prepare(self) -> None:
        for info in (WORKLOAD, NODE):
            await self.client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").apply(
                crd_for(info), field_manager="bench"
            )
        for obj in manifests(NODE_NAME):
            await self.client.kind(obj["apiVersion"], obj["kind"]).apply(obj, field_manager="bench")
        wanted = {"user": user_of(NODE_NAME), "groups": [AGENTS], "expirationSeconds": 3600}
        made = await self.client.kind("homeostat.dev/v1", "UserToken").create(
            {"metadata": {"generateName": "agent-"}, "spec": wanted}
        )
        token = self.folder / "token"
        token.touch(mode=0o600)
        token.write_text(made["status"]["token"])

    def start_agent(self) -> None:
        config = yaml.safe_load((self.server.directory / "admin.kubeconfig").read_text())
        url = config["clusters"][0]["cluster"]["server"]
        command = [
            sys.executable,
            "-m",
            "homeostat",
            "agent",
            "--join",
            url,
            "--token-file",
            str(self.folder / "token"),
        ]
        command += [
            "--ca-file",
            str(self.server.directory / "pki" / "ca.crt"),
            "--name",
            NODE_NAME,
            "--state",
            str(self.folder / "state"),
        ]
        command += ["--log-level", "info", *(["--simulate", self.asked.simulate] if self.asked.simulate else [])]
        self.agent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.agent.stdout is not None
        if not (line := self.agent.stdout.readline()).startswith("keeping"):
            raise SystemExit(f"the agent did not start: {line}")

    def kill_agent(self) -> None:
        assert self.agent is not None
        self.agent.send_signal(signal.SIGKILL)
        self.agent.wait()

    def used_mib(self) -> int:
        """Memory of the GPU in use, as its driver says."""
        return self.nvml.read({})[0].memory_used_mib if self.nvml else 0

    def processes(self) -> int:
        """How many processes have memory on the GPU, as its driver says."""
        return len(self.nvml.holders()) if self.nvml else 0

    @property
    def total_mib(self) -> int:
        return self.nvml.gpus()[0].memory_mib if self.nvml else 2 * CONTEXT_MIB

    # What the governor would write

    async def submit(self, name: str, *job: object, **spec: Any) -> None:
        pretend = ["--pretend"] if self.asked.simulate else []
        command = [self.asked.python, str(JOB), *map(str, job), *pretend]
        env = {name: os.environ[name] for name in ("HOME", "LD_LIBRARY_PATH") if name in os.environ}
        obj = {"metadata": {"name": name}, "spec": {"tenant": "bench", "command": command, "env": env, **spec}}
        await self.workloads.create(obj)
        await self.govern(name, "Running")

    async def govern(self, name: str, phase: str) -> None:
        place = {"replica": 0, "node": NODE_NAME, "gpus": [0], "milli": 1000}
        status = {"phase": phase, "assignment": [place]}
        await self.workloads.patch(name, {"status": status}, subresource="status")

    async def reported(self, name: str, state: str) -> Json:
        """Waits until the replica is reported so; ends with what it says where it failed."""
        async with self.workloads.informer(fields=f"metadata.name={name}") as informer, asyncio.timeout(WAIT_SECONDS):
            async for change in informer.changes():
                for report in (change.object or {}).get("status", {}).get("reports", ()):
                    if report["state"] == state:
                        return dict(report)
                    if report["state"] == "Failed" or ("could not" in report["reason"] and "it needs" not in report["reason"]):
                        raise SystemExit(f"{name}: {report}")
        raise AssertionError

    # The story

    async def story(self, mib: int, children: int) -> Figures:
        """One size: gives the figures."""
        first, progress = f"first-{mib}", self.folder / f"progress-{mib}"
        figures = Figures()
        print(f"{mib} MiB in one process, and {children} more with 1024 MiB each")
        await self.submit(first, mib, progress, "--children", children)
        await self.reported(first, "Running")
        await eventually(lambda: steps(progress) >= 3, "the first job computes")
        figures["used by the first MiB"] = self.used_mib()
        figures["processes on the GPU"] = self.processes()

        started = time.perf_counter()
        await self.govern(first, "Suspended")
        pid = (await self.reported(first, "Suspended"))["pid"]
        figures["suspended within s"] = time.perf_counter() - started
        figures["used while suspended MiB"] = self.used_mib()
        figures["processes on it while suspended"] = self.processes()
        before = steps(progress)

        second = f"second-{mib}"
        figures["the second needs MiB"] = needs = self.total_mib - mib // 2
        started = time.perf_counter()
        await self.submit(second, needs - CONTEXT_MIB, self.folder / second, "--steps", 3)
        await self.reported(second, "Exited")
        figures["the second ran s"] = time.perf_counter() - started

        self.kill_agent()
        self.start_agent()
        if self.nvml is not None:
            print("  with a stranger there:", await self.waits_for_a_stranger(first, needs))
        started = time.perf_counter()
        await self.govern(first, "Running")
        report = await self.reported(first, "Running")
        figures["resumed within s"] = time.perf_counter() - started
        assert report["pid"] == pid, "it is another process"
        assert steps(progress) >= before
        await eventually(lambda: steps(progress) >= before + 3, "the first job goes on")
        if len(sums := {line.split()[1] for line in progress.read_text().splitlines()}) != 1:
            raise SystemExit(f"its memory is not what it was: {sums}")
        figures["intact after resuming, rounds"] = steps(progress) - before
        for child in range(children):
            kept = self.folder / f"{progress.name}.{child}"
            assert len({line.split()[1] for line in kept.read_text().splitlines()}) == 1, (
                "a child's memory is not what it was"
            )
        await self.workloads.delete(first)
        await eventually(lambda: self.used_mib() < mib, "the GPU is free again")
        return figures


    async def waits_for_a_stranger(self, name: str, mib: int) -> str:
        """Has it resumed while a process that nobody placed has the GPU, and then not: a driver that ran out of memory would have lost it. What was told."""
        progress = self.folder / f"stranger-of-{name}"
        stranger = subprocess.Popen([self.asked.python, str(JOB), str(mib - CONTEXT_MIB), str(progress)])
        try:
            await eventually(lambda: steps(progress) >= 1, "the stranger computes")
            await self.govern(name, "Running")
            async with self.workloads.informer(fields=f"metadata.name={name}") as informer, asyncio.timeout(WAIT_SECONDS):
                async for change in informer.changes():
                    told = [str(report["reason"]) for report in (change.object or {}).get("status", {}).get("reports", ())]
                    if told and "it could not be resumed: it needs" in told[0]:
                        break
            await self.govern(name, "Suspended")
        finally:
            stranger.kill()
            stranger.wait()
        await eventually(lambda: not self.processes(), "the stranger is gone")
        return told[0]


def steps(progress: Path) -> int:
    """How many rounds a job has done."""
    lines = progress.read_text().splitlines() if progress.exists() else []
    return int(lines[-1].split()[0]) if lines else 0


async def eventually(holds: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > give_up:
            raise SystemExit(f"not within {WAIT_SECONDS:g} s: {what}")
        await asyncio.sleep(0.05)


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="homeostat-gpu-") as place:
        try:
            yield Path(place)
        except BaseException:
            for log in Path(place).glob("state/workloads/*/*.err"):
                print(f"--- {log.name}\n{log.read_text()[-2000:]}", file=sys.stderr)
            raise


async def main(asked: argparse.Namespace) -> None:
    with folder() as place:
        bench = Bench(place, asked)
        async with bench.running():
            for number, mib in enumerate(asked.mib):
                children = number  # the first alone, the others with processes of their own on the GPU
                figures = await bench.story(mib, children)
                node = await bench.client.kind(NODE.api_version, NODE.kind).get(NODE_NAME)
                print("the node reports", json.dumps(node["status"]))
                bench.results[f"{mib} MiB" + (f" and {children} more process" if children else "")] = figures
        if not asked.simulate:
            (Path(os.environ.get("OUT") or RESULTS) / "gpu_suspend.json").write_text(
                json.dumps(bench.results, indent=1) + "\n"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--mib", type=int, nargs="+", default=[20_000], help="how much the first job holds; several: one after another"
    )
    parser.add_argument("--python", default="python3", help="whose PyTorch the jobs use")
    parser.add_argument("--simulate", default="", help="GPUs that are there only in name: 1xH100")
    asyncio.run(main(parser.parse_args()))
