"""A Slurm cluster, through its own commands: sinfo or scontrol, squeue, sbatch, scancel. They are run as an ordinary user."""

from __future__ import annotations

import asyncio
import math
import os
import re
import shutil
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import orjson

from homeostat.gpu.agent import witness
from homeostat.gpu.agent.outcome import last_line
from homeostat.gpu.bridge.cluster import Job, Mark, Order, Sight, Stage, Unreadable
from homeostat.gpu.bridge.environment import environment
from homeostat.gpu.bridge.models import Models
from homeostat.gpu.bridge.slurm.reading import PREFIX, jobs_of, listed, members_of, signalled
from homeostat.gpu.bridge.slurm.script import script
from homeostat.loop.provider import Refused
from homeostat.providers.exec import PATH, CommandFailed, Input, Said, run

COMMAND_SECONDS = 30.0
"""How long one command may take. A controller that is busy takes seconds."""
OUTPUT_MOST = 256 * 1024 * 1024
"""Bytes that a command may print: some KiB for each node and each of our jobs."""
_PROGRAMS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue")
_VERSION = re.compile(r"(\d+)\.(\d+)").search
_OLDEST, _NODES_BY_SCONTROL = (21, 8), (23, 2)
_AWAY = (
    "Unable to contact", "timed out", "temporarily", "Connection refused", "Transport endpoint", "Zero Bytes", "ommunication",
    "backup controller", "authentication", "busy", "Slurm controller",
)  # fmt: skip
_GONE = ("Invalid job id", "already completing or completed", "already finished")


class Options(msgspec.Struct, frozen=True):
    """What a person says of a cluster."""

    partition: str = ""
    """Only its nodes are kept, and jobs go there. Default: all nodes with GPUs, and Slurm's default partition."""
    account: str = ""
    qos: str = ""
    programs: str = ""
    """The folder of Slurm's commands. Default: where the PATH has them."""
    conf: str = ""
    """The slurm.conf. Default: $SLURM_CONF, or where Slurm looks for it."""
    models: Models = msgspec.field(default_factory=Models)


class Slurm:
    """Talks to Slurm. `state` lies on a file system that all nodes see: jobs leave there how they ended, and their output."""

    what = "Slurm"
    queues = True

    def __init__(self, state: Path, options: Options | None = None) -> None:
        self._root = state / "jobs"
        self._options = options or Options()
        self._programs: dict[str, str] = {}
        self._version = (0, 0)
        if any(letter in str(state) for letter in "%\\"):
            raise ValueError(f"{state}: Slurm gives % and \\ in the names of output files a meaning of their own; choose another --state")

    async def open(self, wake: Callable[[], None]) -> None:
        for name in _PROGRAMS:
            found = await asyncio.to_thread(shutil.which, name, path=self._options.programs or None)
            if found is None:
                where = self._options.programs or "the PATH"
                raise RuntimeError(f"Slurm's {name} is not in {where}: install Slurm's client commands, or say where with --slurm-bin")
            self._programs[name] = found
        answer = await self._run("sinfo", "--version")
        if answer.status:
            raise RuntimeError(f"{answer.trouble('sinfo --version')}: is this machine part of a Slurm cluster? --slurm-conf says where its slurm.conf is")
        said = answer.output.decode(errors="replace")
        match = _VERSION(said)
        if match is None or (int(match[1]), int(match[2])) < _OLDEST:
            raise RuntimeError(f"{said.strip()[:100]!r}: Slurm 21.08 or later is needed, whose commands print JSON")
        self._version = int(match[1]), int(match[2])
        await asyncio.to_thread(self._root.mkdir, mode=0o700, parents=True, exist_ok=True)

    async def close(self) -> None:
        pass

    # Looking

    async def look(self) -> Sight:
        nodes = ("scontrol", "show", "nodes", "--json") if self._version >= _NODES_BY_SCONTROL else ("sinfo", "--all", "--json")
        printed = await asyncio.gather(self._print("squeue", "--all", "--me", "--states=all", "--json"), self._print(*nodes))
        return await asyncio.to_thread(self._sight, *printed)

    def _sight(self, jobs: bytes, nodes: bytes) -> Sight:
        models, partition = self._options.models, self._options.partition
        members = members_of(listed(_json(nodes), "nodes"), models.name_of, models.of, partition)
        return Sight({one.name: one for one in members}, jobs_of(listed(_json(jobs), "jobs"), self._exit))

    async def left(self, mark: Mark) -> Job | None:
        return await asyncio.to_thread(self._left, mark)

    def _left(self, mark: Mark) -> Job | None:
        status, since = self._exit(mark), None
        if status is None and not self._file(mark, "begun").exists():
            return None
        with suppress(OSError):
            since = self._file(mark, "exit").stat().st_mtime
        words = "" if status is not None else "Slurm knows nothing of it any more"
        return Job(mark, "", Stage.OVER, 0, status=signalled(status), words=words, since=since)

    def _exit(self, mark: Mark) -> int | None:
        return witness.seen(self._file(mark, "exit"), str(mark))

    async def said(self, mark: Mark) -> str:
        return await asyncio.to_thread(last_line, self._log(mark, "err"))

    # Doing

    async def start(self, order: Order) -> None:
        mark, spec = order.mark, order.workload.spec
        env = {"PATH": PATH, **environment(spec.env, order.env, "SLURM_")}
        text = script(self._folder(mark), _stem(mark), str(mark), spec.command, env, spec.working_dir or "/")
        await asyncio.to_thread(self._folder(mark).mkdir, mode=0o700, parents=True, exist_ok=True)
        said = await self._run("sbatch", *self._asked_for(order), given=text.encode())
        if said.status != 0:
            why = said.errors.removeprefix("sbatch: ").strip()
            if any(word in why for word in _AWAY):
                raise Unreadable(f"sbatch: {why}")
            raise Refused(f"Slurm does not take it: {why}")

    def _asked_for(self, order: Order) -> list[str]:
        mark, needs, member, options = order.mark, order.workload.spec.resources, order.member, self._options
        longest = order.workload.spec.maximum_runtime
        words = {
            "job-name": f"homeostat-{mark.uid}-{mark.replica}",
            "comment": f"{PREFIX}{mark}",
            "dependency": "singleton",  # of one name, one runs at a time: whatever happens to us, no replica is there twice
            "nodelist": member.id,
            "nodes": "1",
            "ntasks": "1",
            "gres": f"gpu:{member.type + ':' if member.type else ''}{len(order.place.gpus)}" if order.place.gpus else "",
            "cpus-per-task": str(math.ceil(needs.cpu_milli / 1000)) if needs.cpu_milli else "",
            "mem": f"{needs.memory_mib}M" if needs.memory_mib else "",
            "time": str(math.ceil(longest.total_seconds() / 60) + 1) if longest else "",
            "partition": options.partition,
            "account": options.account,
            "qos": options.qos,
            "chdir": "/",
            "output": str(self._log(mark, "out")),
            "error": str(self._log(mark, "err")),
            "open-mode": "append",
            "export": "ALL",  # which is what `_run` gives it; with any other word Slurm has a login shell run for each job
        }
        return [*(f"--{name}={value}" for name, value in words.items() if value), "--no-requeue", "--parsable"]

    async def ask_to_end(self, job: Job, name: str, grace: float) -> None:
        if await asyncio.to_thread(self._file(job.mark, "begun").exists):
            await self._cancel("--batch", f"--signal={int(signal.Signals[name])}", job.id)
        else:  # a signal to what Slurm has not launched yet is lost
            await self._cancel(job.id)

    async def end(self, job: Job) -> None:
        await self._cancel(job.id)

    async def _cancel(self, *arguments: str) -> None:
        said = await self._run("scancel", *arguments)
        if said.status != 0 and not any(word in said.errors for word in _GONE):
            raise Unreadable(said.trouble("scancel"))

    async def noted(self, job: Job) -> None:
        pass  # Slurm forgets it by itself

    async def forget(self, mark: Mark) -> None:
        await asyncio.to_thread(self._forget, mark)

    def _forget(self, mark: Mark) -> None:
        folder = self._folder(mark)
        for path in [*folder.glob(f"{mark.replica}.*")] if folder.is_dir() else ():
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()

    # Files and commands

    def _folder(self, mark: Mark) -> Path:
        return self._root / mark.node / mark.uid

    def _file(self, mark: Mark, suffix: str) -> Path:
        return self._folder(mark) / f"{_stem(mark)}.{suffix}"

    def _log(self, mark: Mark, suffix: str) -> Path:
        return self._folder(mark) / f"{mark.replica}.{suffix}"

    async def _print(self, *command: str) -> bytes:
        said = await self._run(*command)
        if said.status != 0:
            raise Unreadable(said.trouble(command[0]))
        return said.output

    async def _run(self, name: str, *arguments: str, given: bytes = b"") -> Said:
        env = {"PATH": PATH, "LANG": "C.UTF-8", "HOME": os.environ.get("HOME", "/")}
        if conf := self._options.conf or os.environ.get("SLURM_CONF", ""):
            env["SLURM_CONF"] = conf
        program = self._programs[name]
        with Input(given) as stdin:
            try:
                return await run(program, [program, *arguments], stdin, env, "/", COMMAND_SECONDS, _as_it_is, OUTPUT_MOST)
            except CommandFailed as error:
                raise Unreadable(str(error)) from None


def _stem(mark: Mark) -> str:
    return f"{mark.replica}.{mark.attempt}.{mark.start}"


def _as_it_is(text: str) -> str:
    return text


def _json(printed: bytes) -> Mapping[str, Any]:
    try:
        found = orjson.loads(printed)
    except orjson.JSONDecodeError as error:
        raise Unreadable(f"Slurm did not print JSON: {error}") from None
    return found if isinstance(found, dict) else {}
