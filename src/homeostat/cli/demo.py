"""The live example of `homeostat up --demo`: two teams share four machines with GPUs.

The GPUs are there only in name; all else is real. Each machine is a `homeostat agent --simulate` in a process of its own, let in with a
token that may do no more than an agent must; what it runs are real processes, which count. The governor in the loop of this server
shares out, under the same guards as everything else. What people changed is kept over restarts.

Everything that the example starts writes below `DATA/demo`, and by that it is known again, whatever became of the server: agents that
outlived one that was killed are replaced, and take over what the others ran; when the server stops in order, all of it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from homeostat.api.local import local_client
from homeostat.api.server import Server
from homeostat.client import Client, Unreachable
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.demo")

NAME = "homeostat-demo"
NAMESPACE = "default"
LABEL = "homeostat.dev/demo"
NODES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
GPUS = "8xH100"
QUOTAS = {"vision": 14, "speech": 10}
JOBS: dict[str, dict[str, Any]] = {
    **{f"vision-{n:02}": {"tenant": "vision", "priority": 0 if n <= 10 else -1} for n in range(1, 15)},
    **{f"speech-{n}": {"tenant": "speech", "replicas": 2} for n in range(1, 7)},
}
"""The last four of vision are the least urgent. There is one more of speech than its quota has room for: it can be asked why it waits."""
COUNT = ("/bin/sh", "-c", 'n=0; while :; do n=$((n+1)); echo "step $n"; sleep 1; done')
"""What a job does. It costs next to nothing, and shows that a suspended one goes on where it stopped."""
TOKEN_SECONDS = 366 * 86_400
PAUSE_SECONDS = 0.05
SETTLED = ("quota", "tenant", "budget", "stopped")
AGENT_LOG = "agent.log"

_QUOTA = """kubectl patch tenant vision --type=merge -p '{"spec":{"quotas":[{"model":"H100","nominal":%d}]}}'"""
TAKEN = 4
"""How many GPUs are taken from vision in what is printed: as many as it has jobs that are less urgent."""
HALTS_ABOVE, HALTS_FROM = 0.3, 10
"""The guards stop and ask above this part of what runs, where at least so many do."""


def story(quota: int | None, jobs: Iterable[Mapping[str, Any]]) -> list[str]:
    """What to try, by how the example stands: people may have changed it, and whoever comes first runs. `quota` is that of vision."""
    phases = {job["metadata"]["name"]: (job["spec"]["tenant"], (job.get("status") or {}).get("phase", "Pending")) for job in jobs}
    running = [tenant for tenant, phase in phases.values() if phase in ("Starting", "Running")]
    used, waits = running.count("vision"), [name for name, (_, phase) in phases.items() if phase == "Pending"]
    lines = ["# Two teams share four machines with 8 GPUs each: who has which? Leave this open in a terminal of its own", "homeostat gpu top"]
    if quota is not None and TAKEN < used <= quota:
        left = used - TAKEN
        whose = "four least urgent jobs are" if quota == used == QUOTAS["vision"] else "least urgent jobs are"
        lines += [f"# Give vision {left} GPUs instead of {quota}: its {whose} suspended, one by one", _QUOTA % left]
        lines += ["# Why is this one suspended, and what brings it back?" + (" Why does that one wait, though GPUs are free?" if waits else "")]
        lines += ["homeostat gpu explain vision-14" if quota == used == QUOTAS["vision"] else "homeostat gpu queue --tenant vision"]
        lines += [f"homeostat gpu explain {name}" for name in sorted(waits)[-1:]]
        stays = len(running) - TAKEN
        if stays >= HALTS_FROM and left - 1 > HALTS_ABOVE * stays:
            lines += [f"# A slip, 1 instead of {left}: nothing is done, and you are asked", _QUOTA % 1, "homeostat runbook"]
        return [*lines, "# Take it back, and all go on where they stopped", _QUOTA % quota]
    lines += ["# Why does this one wait?", *(f"homeostat gpu explain {name}" for name in sorted(waits)[-1:])] if waits else []
    return [*lines, "# What may each team use, and what does it use?", "homeostat gpu quota"]


_TROUBLE = (ApiError, Unreachable, OSError, TimeoutError)


class Demo:
    """The example, beside a server that runs with a loop in it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._home = server.data / "demo"
        self._client: Client = local_client(server.plane, NAME)
        self._agents: list[asyncio.subprocess.Process] = []
        self._task: asyncio.Task[None] | None = None
        self._prepared = self._observed = False

    def begin(self) -> None:
        """Begins in the background, and says when all is there."""
        if not self._prepared:
            return
        self._task = asyncio.get_running_loop().create_task(self._run(), name="demo")

    async def stop(self) -> None:
        """Ends agents and jobs. What was declared stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await asyncio.to_thread(end_agents, self._home)
        for agent in self._agents:
            await agent.wait()
        await asyncio.to_thread(end_jobs, self._home)
        await self._client.close()

    async def _run(self) -> None:
        try:
            await self._fill()
        except _TROUBLE as error:
            log.warning("the example could not be set up: %s", error)

    async def _fill(self) -> None:
        from homeostat.gpu.kinds import TENANT, WORKLOAD

        await self._served()
        await asyncio.gather(*(self._let_in(node) for node in NODES))
        for node in NODES:
            self._agents.append(await self._start(node))
        if not await self._client.kind(TENANT.api_version, TENANT.kind).list():
            await self._declare()
        if self._observed:
            click.echo(
                "The example waits: workloads are only observed here. `homeostat enforce workloads.gpu.homeostat.dev` lets the loop act."
            )
        await self._settled(WORKLOAD.api_version)
        said = [
            f"The example is there: {len(NODES)} machines with {GPUS} each, two teams, and their jobs run. Try, in the other terminal:",
            *(f"  {line}" for line in await self._story()),
        ]
        click.echo("\n".join(said))
        await self._mind()

    async def _story(self) -> list[str]:
        from homeostat.gpu.kinds import TENANT, WORKLOAD

        jobs = await self._client.kind(WORKLOAD.api_version, WORKLOAD.kind).list(namespace=NAMESPACE, labels=LABEL)
        tenants = await self._client.kind(TENANT.api_version, TENANT.kind).list(fields="metadata.name=vision")
        model, quotas = GPUS.partition("x")[2], [quota for one in tenants for quota in one["spec"].get("quotas") or ()]
        return story(next((int(one["nominal"]) for one in quotas if one["model"] == model and str(one["nominal"]).isdecimal()), None), jobs)

    async def prepare(self) -> None:
        """Before the loop begins: puts in order what an earlier run left, and lets the loop act on what has to do with GPUs, where nobody
        said otherwise."""
        try:
            await self._prepare()
        except _TROUBLE as error:
            log.warning("the example could not be prepared, and is left out: %s", error)
        else:
            self._prepared = True

    async def _prepare(self) -> None:
        from homeostat.gpu.kinds import NODE, POOL, WORKLOAD
        from homeostat.guards.keeper import built_in_policy
        from homeostat.guards.policy import GROUP, KIND, POLICY_KIND, VERSION, Mode
        from homeostat.loop.definitions import define
        from homeostat.model.kinds import crd_for

        await asyncio.to_thread(end_agents, self._home)
        await self._renew()
        await define(self._client, crd_for(POLICY_KIND), NAME)
        policies = self._client.kind(f"{GROUP}/{VERSION}", KIND)
        for info in (WORKLOAD, NODE, POOL):
            try:
                await policies.create(built_in_policy(info.name, Mode.ENFORCE), field_manager=NAME)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
        self._observed = (await policies.get(WORKLOAD.name))["spec"].get("mode") == Mode.OBSERVE

    async def _served(self) -> None:
        """Waits until the loop has made the kinds known."""
        from homeostat.gpu.kinds import NODE, TENANT, WORKLOAD

        for info in (TENANT, NODE, WORKLOAD):
            while True:
                try:
                    await self._client.kind(info.api_version, info.kind).served()
                    break
                except ApiError as error:
                    if error.code != 404:
                        raise
                await asyncio.sleep(PAUSE_SECONDS)

    # The machines

    async def _let_in(self, node: str) -> None:
        """Gives the agent of a node the rights of one, and a token."""
        from homeostat.gpu.agent.access import AGENTS, manifests, user_of

        for obj in manifests(node):
            handle = self._client.kind(obj["apiVersion"], obj["kind"])
            await handle.apply(obj, field_manager=NAME, force=True)
        tokens, name = self._client.kind("homeostat.dev/v1", "UserToken"), f"demo-{node}"
        with contextlib.suppress(ApiError):
            await tokens.delete(name)
        spec = {"user": user_of(node), "groups": [AGENTS], "expirationSeconds": TOKEN_SECONDS}
        made = await tokens.create({"metadata": {"name": name}, "spec": spec})
        await asyncio.to_thread(_write, self._home / node / "token", made["status"]["token"])

    async def _start(self, node: str) -> asyncio.subprocess.Process:
        home = self._home / node
        with (home / AGENT_LOG).open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "homeostat", "agent", "--name", node, "--simulate", GPUS, "--state", str(home)),
                *(
                    "--join",
                    self._server.url,
                    "--ca-file",
                    str(self._server.data / "pki" / "ca.crt"),
                    "--token-file",
                    str(home / "token"),
                ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us: we end it in order
            )

    async def _mind(self) -> None:
        """Says when an agent has ended. It is not started again: that a machine may be lost is part of the example."""

        async def ended(node: str, agent: asyncio.subprocess.Process) -> None:
            await agent.wait()
            log.warning("the agent of %s has ended; its log is %s", node, self._home / node / AGENT_LOG)

        await asyncio.gather(*(ended(node, agent) for node, agent in zip(NODES, self._agents, strict=True)))

    # What is declared

    async def _declare(self) -> None:
        from homeostat.gpu.kinds import TENANT, WORKLOAD

        for tenant, nominal in QUOTAS.items():
            spec = {"quotas": [{"model": GPUS.partition("x")[2], "nominal": nominal}], "namespaces": [NAMESPACE]}
            await self._client.kind(TENANT.api_version, TENANT.kind).create(
                {"metadata": {"name": tenant}, "spec": spec}
            )
        for name in JOBS:
            await self._client.kind(WORKLOAD.api_version, WORKLOAD.kind).create(_job(name), namespace=NAMESPACE)

    async def _renew(self) -> None:
        """After a restart: jobs whose process is gone begin anew. Those that outlived a server that was killed go on."""
        from homeostat.gpu.kinds import WORKLOAD

        jobs = self._client.kind(WORKLOAD.api_version, WORKLOAD.kind)
        alive = await asyncio.to_thread(lambda: {part for pid in _pids_below(self._home) for part in _place(pid).parts})
        try:
            found = await jobs.list(namespace=NAMESPACE, labels=LABEL)
        except ApiError as error:
            if error.code == 404:
                return  # the kind is not known yet: this is the first run
            raise
        for meta in (job["metadata"] for job in found):
            if meta["uid"] in alive or meta["name"] not in JOBS:
                continue
            if "deletionTimestamp" not in meta:
                await jobs.delete(meta["name"], namespace=NAMESPACE)
            # Nobody is there to do what a finalizer waits for: no loop, no agent, no process. Where there is none, it is gone already.
            try:
                await jobs.patch(meta["name"], {"metadata": {"finalizers": None}}, namespace=NAMESPACE)
            except ApiError as error:
                if error.code != 404:
                    raise
            if "deletionTimestamp" not in meta:
                await jobs.create(_job(meta["name"]), namespace=NAMESPACE)

    async def _settled(self, api_version: str) -> None:
        """Waits until every job runs, was suspended, or waits for what no machine that joins changes: its quota, or what people did."""
        jobs = self._client.kind(api_version, "Workload")
        waits = {job["metadata"]["name"] for job in await jobs.list(namespace=NAMESPACE, labels=LABEL)}
        if not waits:
            return
        async with jobs.watch(namespace=NAMESPACE, labels=LABEL) as events:
            async for event in events:
                status = event.object.get("status") or {}
                name, pending = event.object["metadata"]["name"], status.get("phase", "Pending") == "Pending"
                if event.type == "DELETED" or (
                    status.get("constraint") in SETTLED if pending else status["phase"] != "Starting"
                ):
                    waits.discard(name)
                if not waits:
                    return


def _job(name: str) -> dict[str, Any]:
    spec = {**JOBS[name], "command": list(COUNT), "idle": {"mode": "Ignore"}}  # by design it does nearly nothing
    return {"metadata": {"name": name, "labels": {LABEL: "true"}}, "spec": spec}


def _write(path: Path, secret: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret)
    beside.rename(path)


# Processes, known by what they write to. For threads: they wait.


def end_agents(home: Path) -> None:
    """Ends the agents below a directory. At once: an agent leaves nothing half done that the next does not find."""
    _end(home, lambda place: place.name == AGENT_LOG)


def end_jobs(home: Path) -> None:
    """Ends all else below it: jobs, also those that are suspended, and what they started."""
    _end(home, lambda place: place.name != AGENT_LOG)


def _end(home: Path, mine: Callable[[Path], bool]) -> None:
    while found := [pid for pid in _pids_below(home) if mine(_place(pid))]:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _pids_below(home: Path) -> list[int]:
    own = str(home.resolve())
    return [
        int(name) for name in os.listdir("/proc") if name.isdecimal() and str(_place(int(name))).startswith(f"{own}/")
    ]


def _place(pid: int) -> Path:
    """Where a process writes to; nowhere where it is gone, or is not ours to look at."""
    try:
        return Path(os.readlink(f"/proc/{pid}/fd/1"))
    except OSError:
        return Path()
