"""What tests of processes share: a provider worked by hand, and a look at the processes that really run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from homeostat.loop.compare import compare
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Ref
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Task, _current
from homeostat.model.kinds import decode, encode
from homeostat.providers.process import Process, ProcessSpec, ProcessState, kernel
from homeostat.providers.process.record import Identity

REF = Ref("processes.processes.homeostat.dev", "default", "web", "7b0c6f5e-0000-4000-8000-000000000001")
SLEEP = ["sleep", "1000"]
FIELDS = ("replicas", "command", "env", "workingDir", "user", "limits")


def spec_of(**fields: Any) -> ProcessSpec:
    return decode(ProcessSpec, {"command": SLEEP, "minReadySeconds": 0.05, "gracefulSeconds": 2, **fields})


class Hand:
    """Does what the loop does for one resource, one step at a time and with no guard."""

    def __init__(self, provider: Process, ref: Ref = REF) -> None:
        self.provider = provider
        self.ref = ref

    async def observe(self, spec: ProcessSpec) -> ProcessState | Absent:
        return await self._as(self.provider.observe, spec)

    async def unhealthy(self, spec: ProcessSpec) -> str:
        state = await self.observe(spec)
        assert not isinstance(state, Absent)
        return await self._as(self.provider.unhealthy, spec, state)

    async def diff(self, spec: ProcessSpec) -> Diff:
        seen = await self.observe(spec)
        declared = {name: value for name, value in encode(spec).items() if name in FIELDS}
        return compare(declared, declared, seen if isinstance(seen, Absent) else encode(seen))

    async def apply(self, spec: ProcessSpec) -> None:
        await self._as(self.provider.apply, spec, await self.diff(spec))

    async def converge(self, spec: ProcessSpec) -> None:
        await self.apply(spec)
        assert not await self.diff(spec)

    async def delete(self, spec: ProcessSpec) -> None:
        await self._as(self.provider.delete, spec)
        assert await self.observe(spec) is ABSENT

    async def until(self, spec: ProcessSpec, holds: Callable[[Any], bool], seconds: float = 10.0) -> Any:
        """Looks again at each hint until it is so."""
        hints = self.provider.watch()
        try:
            async with asyncio.timeout(seconds):
                while not holds(state := await self.observe(spec)):
                    await anext(hints)
                return state
        finally:
            await hints.aclose()  # type: ignore[attr-defined]

    async def _as(self, method: Any, *args: Any) -> Any:
        token = _current.set(Task(self.ref, {}, {}))
        try:
            return await method(*args)
        finally:
            _current.reset(token)


def replicas(state_dir: Path, uid: str = REF.uid) -> dict[int, list[int]]:
    """The pids that run with our mark, first of their session, by index: as the kernel tells it, whatever the records say."""
    found: dict[int, list[int]] = {}
    for one in kernel.marked(state_dir, lambda mark: mark.uid == uid):
        if one.leads:
            found.setdefault(one.mark.index, []).append(one.process.pid)
    return found


def one_each(state_dir: Path, count: int) -> dict[int, int]:
    """The pid of each index; fails unless exactly these indexes run, once each."""
    found = replicas(state_dir)
    assert {index: len(pids) for index, pids in found.items()} == dict.fromkeys(range(count), 1)
    return {index: pids[0] for index, pids in found.items()}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def identity(pid: int) -> Identity:
    stat = kernel.stat_of(pid)
    return Identity(pid, stat.start if stat else 0, kernel.boot_id())


def gone(pid: int) -> bool:
    stat = kernel.stat_of(pid)
    return stat is None or stat.state in "ZX"


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-c", code]


def kill_all(state_dir: Path) -> None:
    """After a test: nothing of it runs on."""
    while found := kernel.marked(
        state_dir, lambda mark: True
    ):  # what is killed may have been starting something just then
        for one in found:
            kernel.kill(one.process)
