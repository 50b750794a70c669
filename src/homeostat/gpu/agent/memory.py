"""How much more memory of the machine a process may take: what it had on a GPU has to go there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
_MIB = 1024 * 1024


class Room(NamedTuple):
    """So many MiB are left, by what sets the limit."""

    mib: int
    of: str


class _Version(NamedTuple):
    """Where a version of cgroups says what."""

    limit: str
    used: str
    cache: tuple[str, ...]
    """In `memory.stat`, what is given up before anybody is killed."""


_ONE = _Version("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))
_TWO = _Version("memory.max", "memory.current", ("inactive_file", "active_file"))


def room_for(pids: Iterable[int], proc: Path = PROC, cgroups: Path = CGROUPS) -> Room:
    """What all of these may still take: the least that the machine and the limits of their cgroups leave. Who takes more is killed."""
    found = [Room(_available_mib(proc), "the machine")]
    for folder, version in {place for pid in pids for place in _places(pid, proc, cgroups)}:
        if (left := _left_mib(folder, version)) is not None:
            found.append(Room(left, f"the limit in {folder / version.limit}"))
    return min(found)


def _available_mib(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0


def _places(pid: int, proc: Path, cgroups: Path) -> Iterator[tuple[Path, _Version]]:
    """The folders of the cgroup that a process is in and of all above it, as far as they are seen here. None where it has ended."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, version = cgroups, _TWO
        elif "memory" in controllers.split(","):
            root, version = cgroups / "memory", _ONE
        else:
            continue
        steps = [step for step in path.split("/") if step]
        if ".." in steps:  # above what is seen here: only the limits at the root are known
            steps = []
        yield from ((root.joinpath(*steps[:depth]), version) for depth in range(len(steps) + 1))


def _left_mib(folder: Path, version: _Version) -> int | None:
    """What a limit leaves; None where there is no limit, or none can be read."""
    with contextlib.suppress(OSError, ValueError):  # "max" is no number either
        limit = int((folder / version.limit).read_text())
        stat = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
        cache = sum(int(stat.get(name, 0)) for name in version.cache)
        return max(0, limit - int((folder / version.used).read_text()) + cache) // _MIB
    return None
