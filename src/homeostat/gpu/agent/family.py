"""All the processes of one replica, and how they are stopped and continued together. For threads: it waits for the kernel."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from homeostat.providers.process import kernel
from homeostat.providers.process.kernel import Stat
from homeostat.providers.process.record import Identity, Mark

Family = Callable[[], list[Identity]]
"""Looks for the processes of a replica, the oldest first. Asked again and again, for they may start others meanwhile."""
_PAUSE = 0.005
_STANDS = "TtZX"


def relatives(people: Mapping[int, Stat], first: int, more: Iterable[int] = ()) -> set[int]:
    """The pids of a session, named by its first process, of `more`, and of all that descend from these. Pure."""
    found = {pid for pid, stat in people.items() if stat.session == first or pid == first} | (set(more) & people.keys())
    while new := {pid for pid, stat in people.items() if stat.parent in found and pid not in found}:
        found |= new
    return found


def family_of(first: Identity, mark: Mark, logs: Path) -> list[Identity]:
    """The process that a replica was started as, its session, all that descend from these, and whatever else carries its mark."""
    people = kernel.everybody()
    marked = kernel.marked(logs, lambda one: one == mark, frozenset((first.pid,)))
    pids = relatives(people, first.pid, (one.process.pid for one in marked))
    alive = [Identity(pid, people[pid].start, kernel.boot_id()) for pid in pids if people[pid].state not in "ZX"]
    return sorted(alive, key=lambda one: (one.start, one.pid))


def stop(family: Family, seconds: float) -> None:
    """Stops all of them, parents before their children. TimeoutError where one does not stand still within the time."""
    give_up = time.monotonic() + seconds
    while going := [one for one in family() if not stands(one)]:
        for one in going:
            _send(one, signal.SIGSTOP)
        if time.monotonic() > give_up:
            raise TimeoutError(f"pid {going[0].pid} does not stop within {seconds:g} s")
        time.sleep(_PAUSE)


def go_on(family: Family) -> None:
    """Continues all of them, children before their parents."""
    for one in reversed(family()):
        _send(one, signal.SIGCONT)


def stands(process: Identity) -> bool:
    """Whether a process is stopped, or is no more."""
    stat = kernel.stat_of(process.pid)
    return stat is None or stat.start != process.start or stat.state in _STANDS


def uses_cuda(process: Identity) -> bool:
    """Whether a process has NVIDIA's driver loaded. Its open devices would tell less: who is off the GPU has none."""
    return _maps(process, b"/libcuda.so")


def shares_memory(process: Identity) -> bool:
    """Whether a process shows that it shares memory on GPUs with others: by the files through which CUDA and NCCL do it. Who shares it by
    bare handles shows nothing."""
    return _maps(process, b"/dev/shm/cuda.shm.", b"/dev/shm/nccl-")


def _maps(process: Identity, *names: bytes) -> bool:
    """Whether a process has a file in its memory whose path has one of these in it."""
    try:
        with open(f"/proc/{process.pid}/maps", "rb") as file:
            return any(name in line for line in file for name in names)
    except OSError:
        return False  # gone


def cpu_seconds(stats: Iterable[Stat]) -> float:
    """CPU time that processes and the children they waited for have used so far."""
    return sum(stat.ticks for stat in stats) / os.sysconf("SC_CLK_TCK")


def resident_mib(stats: Iterable[Stat]) -> int:
    """Memory that processes have in the machine."""
    return sum(stat.resident for stat in stats) * os.sysconf("SC_PAGE_SIZE") // (1024 * 1024)


def _send(process: Identity, sig: signal.Signals) -> None:
    pidfd = kernel.hold(process)
    if pidfd is not None:
        try:
            kernel.send(pidfd, sig)
        finally:
            os.close(pidfd)
