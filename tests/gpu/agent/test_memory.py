"""How much more memory a process may take: the least of what the machine and its cgroups leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from homeostat.gpu.agent.memory import room_for

GIB = 1024**3


class Machine:
    """The files in which a kernel tells of memory."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self._write(self.proc / "meminfo", f"MemTotal: {128 * GIB // 1024} kB\nMemAvailable: {100 * GIB // 1024} kB\n")

    def process(self, pid: int, cgroup: str) -> None:
        self._write(self.proc / str(pid) / "cgroup", cgroup)

    def limit(self, path: str, most: int | str, used: int, cache: int = 0) -> None:
        self._write(self.cgroups / path / "memory.max", f"{most}\n")
        self._write(self.cgroups / path / "memory.current", f"{used}\n")
        self._write(self.cgroups / path / "memory.stat", f"anon {used - cache}\nactive_file 0\ninactive_file {cache}\n")

    def room(self, *pids: int) -> tuple[int, str]:
        mib, of = room_for(pids, self.proc, self.cgroups)
        return mib // 1024, of.replace(str(self.cgroups), "")

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_limits_it_is_what_the_machine_has(machine: Machine) -> None:
    machine.process(7, "0::/user.slice\n")
    machine.limit("user.slice", "max", 5 * GIB)
    assert machine.room(7) == (100, "the machine")
    assert machine.room() == (100, "the machine")


def test_a_limit_of_its_cgroup_or_of_one_above_it_counts(machine: Machine) -> None:
    machine.process(7, "0::/kube/pod/agent\n")
    machine.limit("kube/pod/agent", "max", 5 * GIB)
    machine.limit("kube/pod", 16 * GIB, 5 * GIB)
    machine.limit("kube", 64 * GIB, 5 * GIB)
    assert machine.room(7) == (11, "the limit in /kube/pod/memory.max")


def test_what_the_kernel_gives_up_first_is_room(machine: Machine) -> None:
    machine.process(7, "0::/pod\n")
    machine.limit("pod", 16 * GIB, 15 * GIB, cache=9 * GIB)
    assert machine.room(7)[0] == 10


def test_in_a_container_the_limit_is_at_the_root(machine: Machine) -> None:
    machine.process(7, "0::/\n")
    machine.process(8, "0::/../elsewhere\n")
    machine.limit("", 8 * GIB, 2 * GIB)
    assert machine.room(7) == machine.room(8) == (6, "the limit in /memory.max")


def test_the_first_version_of_cgroups(machine: Machine) -> None:
    machine.process(7, "9:cpuset:/\n4:hugetlb,memory:/slurm/job_1\n0::/other\n")
    for name, text in (("limit_in_bytes", 8 * GIB), ("usage_in_bytes", 3 * GIB), ("stat", f"total_inactive_file {GIB}")):
        machine._write(machine.cgroups / "memory/slurm/job_1" / f"memory.{name}", str(text))
    assert machine.room(7) == (6, "the limit in /memory/slurm/job_1/memory.limit_in_bytes")


def test_who_has_ended_takes_nothing(machine: Machine) -> None:
    assert machine.room(4711) == (100, "the machine")


def test_on_this_machine_something_can_be_told() -> None:
    assert room_for([1]).mib > 0
