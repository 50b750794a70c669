"""How processes leave a real GPU: what is asked of the driver, in which order, and what is undone when a step fails."""

from __future__ import annotations

import asyncio
import ctypes
import json
import mmap
import os
from pathlib import Path

import pytest
from tests.gpu.agent.world import World, alive, eventually, number, place, python, report_of, stands

from homeostat.gpu.agent import cuda, hosted
from homeostat.gpu.agent.cuda import CHECKPOINTED, FAILED, LOCKED, RUNNING, DriverError
from homeostat.gpu.agent.simulated import Simulated
from homeostat.gpu.agent.suspend import CannotSuspend, CudaCheckpoint
from homeostat.providers.process.record import Identity


class Fake(cuda.Driver):
    """A driver that keeps processes in mind, and refuses what it is told to refuse."""

    def __init__(self, *pids: int, refuses: tuple[str, int] | None = None, breaks: bool = False) -> None:
        self.states: dict[int, int | None] = dict.fromkeys(pids, RUNNING)
        self.refuses, self.breaks = refuses, breaks
        self.calls: list[tuple[str, int]] = []

    def state(self, pid: int) -> int | None:
        return self.states.get(pid)

    def lock(self, pid: int, milliseconds: int) -> None:
        assert milliseconds > 0
        self._turn("lock", pid, RUNNING, LOCKED)

    def checkpoint(self, pid: int) -> None:
        self._turn("checkpoint", pid, LOCKED, CHECKPOINTED)

    def restore(self, pid: int) -> None:
        self._turn("restore", pid, CHECKPOINTED, LOCKED)

    def unlock(self, pid: int) -> None:
        self._turn("unlock", pid, LOCKED, RUNNING)

    def _turn(self, call: str, pid: int, before: int, after: int) -> None:
        self.calls.append((call, pid))
        if self.refuses == (call, pid):
            self.states[pid] = FAILED if self.breaks else self.states[pid]
            raise DriverError(f"{call} of pid {pid} failed")
        assert self.states[pid] == before
        self.states[pid] = after


def test_all_are_locked_before_the_first_is_moved_and_back_before_the_first_goes_on() -> None:
    driver = Fake(1, 2)
    assert cuda.answer(driver, "suspend", 1000, [1, 2, 3]) == {}  # 3 does not use CUDA
    assert driver.calls == [("lock", 1), ("lock", 2), ("checkpoint", 1), ("checkpoint", 2)]
    driver.calls.clear()
    assert cuda.answer(driver, "resume", 1000, [1, 2, 3]) == {}
    assert driver.calls == [("restore", 1), ("restore", 2), ("unlock", 1), ("unlock", 2)]


@pytest.mark.parametrize("step", [("lock", 2), ("checkpoint", 1), ("checkpoint", 2)])
def test_where_a_step_fails_all_run_on(step: tuple[str, int]) -> None:
    driver = Fake(1, 2, refuses=step)
    assert "failed" in str(cuda.answer(driver, "suspend", 1000, [1, 2])["error"])
    assert driver.states == {1: RUNNING, 2: RUNNING}


def test_what_is_half_done_is_finished() -> None:
    driver = Fake(1, 2, 3)
    driver.states = {1: LOCKED, 2: CHECKPOINTED, 3: RUNNING}
    assert cuda.answer(driver, "suspend", 1000, [1, 2, 3]) == {}
    assert set(driver.states.values()) == {CHECKPOINTED}
    driver.states[1] = LOCKED
    assert cuda.answer(driver, "resume", 1000, [1, 2, 3]) == {}
    assert set(driver.states.values()) == {RUNNING}


def test_a_process_that_begins_to_use_cuda_meanwhile_is_moved_too() -> None:
    class Compiling(Fake):
        def checkpoint(self, pid: int) -> None:
            super().checkpoint(pid)
            self.states.setdefault(2, RUNNING)

    driver = Compiling(1)
    assert cuda.answer(driver, "suspend", 1000, [1, 2]) == {}
    assert driver.states == {1: CHECKPOINTED, 2: CHECKPOINTED}


def test_a_process_that_never_leaves_is_given_up_in_time_and_runs_on() -> None:
    class Deaf(Fake):
        def lock(self, pid: int, milliseconds: int) -> None:
            pass

    driver = Deaf(1)
    assert "in time" in str(cuda.answer(driver, "suspend", 50, [1])["error"])
    assert driver.states == {1: RUNNING}


def test_a_process_that_the_driver_gave_up_is_named() -> None:
    driver = Fake(1, refuses=("checkpoint", 1), breaks=True)
    assert cuda.answer(driver, "suspend", 1000, [1])["broken"] == [1]


def test_the_arguments_of_all_calls_have_the_size_that_the_driver_wants() -> None:
    assert ctypes.sizeof(cuda.Arguments) == 64


def test_without_a_driver_it_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda-that-is-not-there.so.1")
    monkeypatch.setattr(cuda.Driver.__init__, "__defaults__", (cuda.LIBRARY,))
    cuda.main(["suspend", "1000", "1"])
    assert "570 or later" in json.loads(capsys.readouterr().out)["error"]


# The agent with a driver in its place: a program that knows the state of each process from a file

DRIVER = """
import json, pathlib, sys, time
what, _, *pids = sys.argv[1:]
folder = pathlib.Path(__file__).parent
mood = folder / "mood"
said = mood.read_text() if mood.exists() else ""
if said == "hangs" and what == "suspend":
    time.sleep(1000)
if said == what:
    code = folder / "code"
    print(json.dumps({"error": "the driver has a bad day", "code": int(code.read_text()) if code.exists() else 304}))
    sys.exit()
for pid in pids:
    (folder / pid).write_text("off" if what == "suspend" else "on")
print("{}")
"""
JOB = """
import mmap, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with open(folder / "libcuda.so.1", "rb") as library:
    driver = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
(folder / "pid").write_text(str(os.getpid()))  # not the one that is reported, which is its witness's
state, n = folder / str(os.getpid()), 0
while True:
    if not state.exists() or state.read_text() == "on":
        n += 1
        (folder / "n.new").write_text(str(n))
        (folder / "n.new").rename(folder / "n")
    time.sleep(0.005)
"""


class Carded(Simulated):
    """Simulated GPUs with the real way of suspending, but for the driver."""

    def __init__(self, folder: Path, held: dict[int, dict[int, int]], free: dict[int, int] | None = None) -> None:
        super().__init__(8, "H100")
        (folder / "driver.py").write_text(DRIVER)
        (folder / "libcuda.so.1").write_bytes(b"x")
        self.suspension = CudaCheckpoint(lambda: held, lambda: free or {}, folder / "driver.py")


async def test_a_process_leaves_the_gpu_is_stopped_and_comes_back(world: World, tmp_path: Path) -> None:
    async with world.agent(devices=Carded(tmp_path, {})):
        await world.submit("job", python(JOB, tmp_path))
        await eventually(lambda: number(tmp_path / "n") > 3)
        pid = number(tmp_path / "pid")
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        assert stands(pid)
        assert (tmp_path / str(pid)).read_text() == "off"
        before = number(tmp_path / "n")
        await world.govern("job", phase="Running")
        await world.reported("job", "Running")
        await eventually(lambda: number(tmp_path / "n") > before + 3)
        assert (tmp_path / str(pid)).read_text() == "on"


async def test_a_driver_that_refuses_or_hangs_leaves_the_process_running(world: World, tmp_path: Path) -> None:
    devices = Carded(tmp_path, {})
    async with world.agent(devices=devices, suspend_seconds=1.0):
        await world.submit("job", python(JOB, tmp_path))
        await world.reported("job", "Running")
        await eventually(lambda: number(tmp_path / "n") > 3)
        for mood, said in (("suspend", "bad day"), ("hangs", "did not answer within 1 s")):
            (tmp_path / "mood").write_text(mood)
            await world.govern("job", phase="Suspending")
            found = await world.until("job", lambda o, said=said: said in report_of(o).get("reason", ""))
            assert report_of(found)["state"] == "Running"
            before = number(tmp_path / "n")
            await eventually(lambda before=before: number(tmp_path / "n") > before)
        (tmp_path / "mood").write_text("")
        await world.reported("job", "Suspended")


async def test_memory_that_stays_on_the_gpu_is_found_and_the_process_runs_on(world: World, tmp_path: Path) -> None:
    held: dict[int, dict[int, int]] = {}
    async with world.agent(devices=Carded(tmp_path, held)):
        await world.submit("job", python(JOB, tmp_path))
        pid = (await world.reported("job", "Running"))["pid"]
        await eventually(lambda: number(tmp_path / "n") > 3)
        held[pid] = {0: 1}
        await world.govern("job", phase="Suspending")
        await world.until("job", lambda o: "still holds memory" in report_of(o).get("reason", ""))
        before = number(tmp_path / "n")
        await eventually(lambda: number(tmp_path / "n") > before)
        held.clear()
        await world.reported("job", "Suspended")


async def test_what_can_neither_leave_nor_come_back_has_failed(world: World, tmp_path: Path) -> None:
    class Stuck(CudaCheckpoint):
        def _ask(self, what: str, pids: list[int], seconds: float) -> None:
            raise CannotSuspend(f"no {what}")

    devices = Carded(tmp_path, {})
    devices.suspension = Stuck(dict, dict)
    async with world.agent(devices=devices):
        await world.submit("job", python(JOB, tmp_path))
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Suspending")
        report = await world.reported("job", "Failed")
        assert "neither leave the GPU nor come back" in report["reason"]
        assert not alive(pid)


def test_who_has_more_on_the_gpu_than_the_machine_has_room_for_is_left_there() -> None:
    with pytest.raises(CannotSuspend, match="the machine has room for"):
        CudaCheckpoint(lambda: {1: {0: 10**9}}, dict)._check_room([1])


async def test_who_finds_no_room_on_the_gpu_waits_instead_of_being_lost_in_a_try(world: World, tmp_path: Path) -> None:
    held: dict[int, dict[int, int]] = {}
    free = {0: 500}
    async with world.agent(devices=Carded(tmp_path, held, free)):
        await world.submit("job", python(JOB, tmp_path))
        await eventually(lambda: number(tmp_path / "n") > 3)
        pid = number(tmp_path / "pid")
        held[pid] = {0: 400}
        asked = asyncio.create_task(world.govern("job", phase="Suspended"))
        await eventually(lambda: (tmp_path / str(pid)).exists())
        held.clear()
        await asked
        await world.reported("job", "Suspended")
        held[4711], free[0] = {0: 300}, 200
        await world.govern("job", phase="Running")
        await world.until("job", lambda o: "it needs 400 MiB on GPU 0, and 200 MiB are free: pid 4711 has 300 MiB there" in report_of(o).get("reason", ""))
        assert (tmp_path / str(pid)).read_text() == "off", "the driver was not asked"
    async with world.agent(devices=Carded(tmp_path, held, free)):  # the next one knows as well
        held.clear()
        await asyncio.sleep(0.1)
        assert (tmp_path / str(pid)).read_text() == "off"
        free[0] = 500
        await world.reported("job", "Running")


# What can be taken off, and not put back


def test_who_shows_that_it_shares_memory_on_a_gpu_is_left_there() -> None:
    me = Identity(os.getpid(), 0, "")
    way = CudaCheckpoint(lambda: {me.pid: {0: 10}}, dict)
    way._check_shared([me], [me.pid], gang=False)
    shared = Path(f"/dev/shm/cuda.shm.0.{me.pid:x}.1")
    try:
        shared.write_bytes(b"x" * 4096)
        with open(shared, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ):
            with pytest.raises(CannotSuspend, match=f"pid {me.pid} shares memory on the GPU with other processes, which only drivers from 610 on"):
                way._check_shared([me], [me.pid], gang=False)
            CudaCheckpoint(dict, dict, restores_shared=True)._check_shared([me], [me.pid], gang=True)
    finally:
        shared.unlink(missing_ok=True)


def test_who_most_likely_shares_memory_on_gpus_is_left_there() -> None:
    def check(held: dict[int, dict[int, int]], *, gang: bool = False) -> None:
        CudaCheckpoint(lambda: held, dict)._check_shared([], [7, 8], gang)

    check({7: {0: 10}, 8: {0: 10}, 9: {1: 10}})  # two on one GPU; 9 is another's
    check({7: {0: 10, 1: 10}})  # one on two
    with pytest.raises(CannotSuspend, match="its processes are on several GPUs"):
        check({7: {0: 10}, 8: {1: 10}})
    with pytest.raises(CannotSuspend, match="others of its gang are on this machine"):
        check({7: {0: 10}}, gang=True)


GANG = """
import mmap, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
with open(folder / "libcuda.so.1", "rb") as library:
    driver = mmap.mmap(library.fileno(), 0, prot=mmap.PROT_READ)
(folder / f"on.{os.getpid()}").touch()
time.sleep(1000)
"""


async def test_a_gang_that_is_together_on_a_machine_is_left_on_its_gpus(world: World, tmp_path: Path) -> None:
    async with world.agent(devices=Carded(tmp_path, {})):
        await world.submit("job", python(GANG, tmp_path), replicas=2, places=[place(), place(gpus=[1], replica=1)])
        await eventually(lambda: len([*tmp_path.glob("on.*")]) == 2)
        await world.govern("job", phase="Suspending")
        found = await world.until("job", lambda o: all("others of its gang" in report_of(o, r).get("reason", "") for r in (0, 1)))
        assert {report_of(found, replica)["state"] for replica in (0, 1)} == {"Running"}


async def test_what_the_driver_does_not_put_back_is_given_up_and_not_tried_for_ever(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "FIRST_PAUSE", 0.01)
    async with world.agent(devices=Carded(tmp_path, {})):
        await world.submit("job", python(JOB, tmp_path))
        await eventually(lambda: number(tmp_path / "n") > 3)
        pid = number(tmp_path / "pid")
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        (tmp_path / "mood").write_text("resume")
        await world.govern("job", phase="Running")
        report = await world.reported("job", "Failed")
        assert report["reason"] == "it could not be put back on its GPUs in 5 tries, and is lost: the driver has a bad day"
        assert not alive(pid)


async def test_who_lacks_memory_on_the_gpu_waits_for_it(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(hosted, "LONGEST_PAUSE", 0.02)
    async with world.agent(devices=Carded(tmp_path, {})):
        await world.submit("job", python(JOB, tmp_path))
        await eventually(lambda: number(tmp_path / "n") > 3)
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        (tmp_path / "code").write_text("2")
        (tmp_path / "mood").write_text("resume")
        await world.govern("job", phase="Running")
        await world.until("job", lambda o: "could not be resumed" in report_of(o).get("reason", ""))
        await asyncio.sleep(0.5)
        (tmp_path / "mood").write_text("")
        await world.reported("job", "Running")
