"""Simulated nodes: real agents on this host, in processes of their own, with GPUs that are there only in name.

A node is a directory; its record is written before its agent is let through a gate, so that one that nobody wrote down never began. Who
is killed and started again finds them all, running or not. A node whose agent ended is there all the same, as a machine is whose agent
crashed: it is for the governor to have it replaced. Given back, a node is ended with all that runs on it. What was there before the host
started anew is gone.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from homeostat.gpu.pools.ways import Had, Pool, PoolFailed
from homeostat.loop.provider import Refused
from homeostat.providers.process import kernel
from homeostat.providers.process.launch import Start, launch
from homeostat.providers.process.record import Identity, Mark

_RECORD, _STATE, _OUTPUT = "node.json", "agent", "agent.log"


class _Record(msgspec.Struct, frozen=True):
    """What is known of the agent of a node."""

    node: str
    process: Identity


class Simulated:
    """`folder` is where nodes are kept, `kubeconfig` what their agents join by; None: none may be run here. `lease` tells how many seconds
    the governor waits for a word of a node."""

    def __init__(self, folder: Path | None, kubeconfig: str | None, lease: Callable[[], float]) -> None:
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._lease = lease
        self._children: dict[str, int] = {}  # pidfds, to be reaped
        self._one = asyncio.Lock()

    async def has(self, pool: Pool) -> list[Had]:
        async with self._one:
            return await asyncio.to_thread(self._list, pool)

    async def get(self, pool: Pool, key: str) -> str:
        async with self._one:
            return await asyncio.to_thread(self._get, pool, key)

    async def give_back(self, pool: Pool, had: Had) -> None:
        async with self._one:
            await asyncio.to_thread(self._end, pool, had.key)

    def close(self) -> None:
        """Lets go of the agents, which run on."""
        for pidfd in self._children.values():
            os.close(pidfd)
        self._children.clear()

    # on threads

    def _place(self, pool: Pool) -> Path:
        if self._folder is None or self._kubeconfig is None:
            raise Refused(
                "spec.provision.simulated: agents and what is placed on them would run on this host; "
                "whoever runs the control plane can allow it (--allow process)"
            )
        return self._folder / pool.name

    def _list(self, pool: Pool) -> list[Had]:
        self._reap()
        place = self._place(pool)
        try:
            keys = sorted(os.listdir(place))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise PoolFailed(f"list: {place}: {error.strerror}") from None
        found = [(key, self._record(place / key)) for key in keys]
        return [Had(key, one.node) for key, one in found if one is not None and one.process.boot == kernel.boot_id()]

    def _record(self, place: Path) -> _Record | None:
        """None where it was never begun."""
        try:
            return msgspec.json.decode((place / _RECORD).read_bytes(), type=_Record)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise PoolFailed(f"{place / _RECORD} cannot be read: {error}") from None

    def _get(self, pool: Pool, key: str) -> str:
        place = self._place(pool) / key
        known = self._record(place)
        if known is not None and known.process.boot == kernel.boot_id():
            return known.node
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(place / _OUTPUT, "ab") as output:
                start = Start(self._command(pool, key, place / _STATE), self._environment(), "/", {}, None)
                mark = Mark(key, 0, f"{pool.name}-agent")
                self._children[key] = launch(start, mark, output.fileno(), output.fileno(), lambda one: _write(place, key, one))
        except OSError as error:
            raise PoolFailed(f"get: no agent can be started in {place}: {error.strerror or error}") from None
        return key

    def _command(self, pool: Pool, key: str, state: Path) -> tuple[str, ...]:
        spec = pool.spec
        memory = f":{spec.gpu_memory_mib}M" if spec.gpu_memory_mib else ""
        options = {
            "--name": key,
            "--pool": pool.name,
            "--simulate": f"{spec.gpus_per_node}x{spec.model}{memory}",
            "--cost-per-hour": f"{spec.cost_per_hour:g}",
            "--lease-seconds": f"{self._lease():g}",
            "--kubeconfig": str(self._kubeconfig),
            "--state": str(state),
        }
        if spec.cpu_milli:
            options["--cpu-milli"] = str(spec.cpu_milli)
        if spec.memory_mib:
            options["--memory-mib"] = str(spec.memory_mib)
        said = [word for pair in options.items() for word in pair]
        return (sys.executable, "-m", "homeostat", "agent", *said, *(("--spot",) if spec.spot else ()))

    @staticmethod
    def _environment() -> dict[str, str]:
        return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}

    def _end(self, pool: Pool, key: str) -> None:
        place = self._place(pool) / key
        known = self._record(place)
        if known is not None:
            kernel.kill(known.process)
            while found := kernel.marked(place, lambda mark: True):
                for one in found:
                    kernel.kill(one.process)
        self._reap()
        try:
            shutil.rmtree(place)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise PoolFailed(f"giveBack: {place}: {error.strerror or error}") from None

    def _reap(self) -> None:
        for key, pidfd in list(self._children.items()):
            if kernel.has_ended(pidfd):
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
                os.close(self._children.pop(key))


def _write(place: Path, node: str, process: Identity) -> None:
    """Before the agent is let through: whole, and on the disk."""
    beside = place / f"{_RECORD}.new"
    with open(beside, "wb") as file:
        file.write(msgspec.json.encode(_Record(node, process)))
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, place / _RECORD)
