"""Who must make room leaves the GPUs in the way that it declared, and loses no work where that can be helped."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.gpu.agent.world import (
    COUNTER,
    SECONDS,
    Moody,
    World,
    alive,
    eventually,
    number,
    place,
    python,
    report_of,
    stands,
)

from homeostat.gpu.agent import journal
from homeostat.gpu.agent.suspend import Broken, CannotSuspend
from homeostat.gpu.agent.wanted import Off

FAMILY = f"""
import subprocess, sys, time
code = {COUNTER!r}
subprocess.Popen([sys.executable, "-S", "-c", code, sys.argv[1]], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
time.sleep(1000)
"""
SAVES = """
import signal, sys, time, pathlib
place = pathlib.Path(sys.argv[1])
n = int(place.read_text()) if place.exists() else 0
def save(*_):
    place.write_text(str(n))
    sys.exit(0)
signal.signal(signal.SIGUSR1, save)
print("begins with", n, flush=True)
while True:
    n += 1
    time.sleep(0.005)
"""


async def counts(path: Path) -> None:
    before = number(path)
    await eventually(lambda: number(path) > before + 3)


async def stands_still(path: Path) -> int:
    before = number(path)
    await asyncio.sleep(0.15)  # nothing tells that nothing happens
    assert number(path) == before
    return before


async def test_a_suspended_process_stops_counting_and_goes_on_where_it_was(world: World) -> None:
    file = world.folder / "n"
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
        await counts(file)
        await world.govern("job", phase="Suspending")
        report = await world.reported("job", "Suspended")
        assert (report["pid"], report["gpus"]) == (pid, [0])
        assert stands(pid)
        before = await stands_still(file)
        await world.govern("job", phase="Running")
        assert (await world.reported("job", "Running"))["pid"] == pid
        await counts(file)
        assert number(file) < before + 1000  # it did not begin anew: it would have, from 1
        assert number(file) > before
        assert world.pids(uid) == {0: [pid]}


async def test_all_that_a_replica_started_is_suspended_and_ended_with_it(world: World) -> None:
    file = world.folder / "n"
    async with world.agent():
        await world.submit("job", python(FAMILY, file), preemption={"mode": "Suspend", "grace": "1s"})
        await world.reported("job", "Running")
        await counts(file)
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        await stands_still(file)
        await world.govern("job", phase="Running")
        await counts(file)
        await world.workloads.delete("job")
        before = -1
        async with asyncio.timeout(SECONDS):
            while (now := number(file)) != before:
                before = now
                await asyncio.sleep(0.15)


async def test_who_loses_its_place_is_kept_suspended_and_comes_back(world: World) -> None:
    file = world.folder / "n"
    async with world.agent():
        await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Suspended", assignment=[])
        report = await world.reported("job", "Suspended")
        assert report["reason"] == "its place was taken back"
        await world.submit("second", python(COUNTER, world.folder / "m"))
        await world.reported("second", "Running")
        await world.govern("second", phase="Suspended")
        await world.govern("job", phase="Running", assignment=[place()])
        assert (await world.reported("job", "Running"))["pid"] == pid
        await counts(file)


async def test_nobody_comes_onto_a_gpu_that_another_has_not_left_yet(world: World) -> None:
    async with world.agent():
        await world.submit("first", python(COUNTER, world.folder / "n"))
        first = (await world.reported("first", "Running"))["pid"]
        await world.submit("second", python(COUNTER, world.folder / "m"))  # on the same GPU
        await world.submit("third", python(COUNTER, world.folder / "o"), places=[place(gpus=(1,))])
        await world.reported("third", "Running")  # it was asked for last: the second was passed over
        assert not (world.folder / "m").exists()
        await world.govern("first", phase="Failed")
        await world.reported("second", "Running")
        assert not alive(first)


async def test_nobody_begins_while_another_machine_still_runs_it(world: World) -> None:
    deaf = python("import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)")
    async with world.agent("n1"), world.agent("n2"):
        await world.submit("job", deaf, preemption={"mode": "Restart", "grace": "1s"})
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Starting", assignment=[place("n2")])
        found = await world.until("job", lambda o: report_of(o, node="n2").get("state") == "Running")
        assert not report_of(found, node="n1")
        assert not alive(pid)


async def test_who_is_placed_on_another_machine_is_ended_here_and_begun_there(world: World) -> None:
    file = world.folder / "n"
    async with world.agent("n1"), world.agent("n2"):
        await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Suspended", assignment=[])
        await world.reported("job", "Suspended")
        await world.govern("job", phase="Running", assignment=[place("n2")])
        found = await world.until(
            "job", lambda o: report_of(o, node="n2").get("state") == "Running" and not report_of(o, node="n1")
        )
        assert report_of(found, node="n2")["pid"] != pid
        assert not alive(pid)


async def test_the_reports_of_two_agents_stand_side_by_side(world: World) -> None:
    async with world.agent("n1"), world.agent("n2"):
        await world.submit(
            "gang", python(COUNTER, world.folder / "n"), replicas=2, places=[place("n1"), place("n2", replica=1)]
        )
        await world.reported("gang", "Running", replica=0)
        await world.reported("gang", "Running", replica=1)
        await world.govern("gang", phase="Suspended")
        await world.reported("gang", "Suspended", replica=0)
        found = await world.until("gang", lambda o: report_of(o, 1).get("state") == "Suspended")
        assert {(r["replica"], r["node"], r["state"]) for r in found["status"]["reports"]} == {
            (0, "n1", "Suspended"),
            (1, "n2", "Suspended"),
        }
        owners = {entry["manager"] for entry in found["metadata"]["managedFields"]}
        assert {"homeostat-agent-n1", "homeostat-agent-n2"} <= owners


async def test_a_checkpoint_is_written_on_the_signal_and_the_next_start_begins_with_it(world: World) -> None:
    file = world.folder / "saved"
    leaves = {"mode": "Checkpoint", "signal": "SIGUSR1", "grace": "10s"}
    async with world.agent():
        uid = await world.submit("job", python(SAVES, file), preemption=leaves)
        await world.reported("job", "Running")
        await eventually(lambda: world.log(uid).read_text().endswith("\n"))
        await world.govern("job", phase="Suspending")
        report = await world.reported("job", "Suspended")  # not Exited, although it ended with 0: its work is not done
        assert "pid" not in report
        assert world.pids(uid) == {}
        saved = number(file)
        await world.govern("job", phase="Starting")
        await world.reported("job", "Running")
        await eventually(lambda: f"begins with {saved}\n" in world.log(uid).read_text())


async def test_a_restart_is_ended_and_begun_anew(world: World) -> None:
    file = world.folder / "n"
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, file), preemption={"mode": "Restart"})
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Suspended", assignment=[])
        await world.reported("job", "Suspended")
        assert not alive(pid)
        await world.govern("job", phase="Running", assignment=[place()])
        again = (await world.reported("job", "Running"))["pid"]
        assert world.pids(uid) == {0: [again]}


async def test_who_is_suspended_before_it_began_is_told_so_and_begun_later(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"), phase="Suspending")
        report = await world.reported("job", "Suspended")
        assert report["reason"] == "it had not begun"
        assert "pid" not in report
        await world.govern("job", phase="Running")
        await world.reported("job", "Running")


async def test_a_suspended_workload_that_is_deleted_is_killed(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        await world.workloads.delete("job")
        await eventually(lambda: not alive(pid))


async def test_a_failed_workload_is_ended_and_its_report_stays(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Failed", assignment=[], reason="it ran for too long")
        report = await world.reported("job", "Failed")
        assert not alive(pid)
        assert report["reason"] == "it was ended: the workload has failed"


async def test_each_move_is_written_down_before_it_begins(world: World) -> None:
    seen: list[Off] = []

    class Watched(Moody):
        def suspend(self, family: Callable[[], list], seconds: float, *, gang: bool) -> None:  # type: ignore[type-arg]
            self._look()
            super().suspend(family, seconds, gang=gang)

        def resume(self, family: Callable[[], list], seconds: float, room: Mapping[int, int]) -> None:  # type: ignore[type-arg]
            self._look()
            super().resume(family, seconds, room)

        def _look(self) -> None:
            note = journal.load(world.log(uid, "0.note"))
            assert note is not None
            seen.append(note.off)

    async with world.agent(devices=Watched()):
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Running")
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        await world.govern("job", phase="Running")
        await world.reported("job", "Running")
    assert seen == [Off.LEAVING, Off.RETURNING]


async def test_what_comes_back_onto_its_gpus_is_not_told_to_be_off_them(world: World) -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow(Moody):
        def resume(self, family: Callable[[], list], seconds: float, room: Mapping[int, int]) -> None:  # type: ignore[type-arg]
            begun.set()
            assert go.wait(30)
            super().resume(family, seconds, room)

    async with world.agent(devices=Slow()):
        await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Running")
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        await world.govern("job", phase="Running")
        await asyncio.to_thread(begun.wait, 30)
        await world.govern("job", phase="Suspending", reports=[])
        try:
            back = await world.reported("job", "Unknown")
            assert back["reason"] == "it comes back onto its GPUs"
        finally:
            go.set()
        await world.reported("job", "Suspended")


async def test_who_cannot_be_suspended_runs_on_and_is_tried_again(world: World) -> None:
    file, devices = world.folder / "n", Moody()
    devices.fails = CannotSuspend("the driver has a bad day")
    async with world.agent(devices=devices):
        await world.submit("job", python(COUNTER, file))
        await world.reported("job", "Running")
        await world.govern("job", phase="Suspending")
        found = await world.until("job", lambda o: "bad day" in report_of(o).get("reason", ""))
        assert report_of(found)["state"] == "Running"
        await counts(file)
        devices.fails = None
        await world.reported("job", "Suspended")
        await stands_still(file)
        devices.fails = CannotSuspend("no room")
        await world.govern("job", phase="Running")
        found = await world.until("job", lambda o: "no room" in report_of(o).get("reason", ""))
        assert report_of(found)["state"] == "Suspended"
        devices.fails = None
        assert (await world.reported("job", "Running")).get("reason") == ""


async def test_what_fails_is_not_tried_again_and_again_because_its_failure_is_told(world: World) -> None:
    tries: list[int] = []

    class Different(Moody):
        def suspend(self, family: Callable[[], list], seconds: float, *, gang: bool) -> None:  # type: ignore[type-arg]
            tries.append(1)
            raise CannotSuspend(f"{len(tries)} times")  # another report each time

    async with world.agent(devices=Different()):
        await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Running")
        await world.govern("job", phase="Suspending")
        await world.until("job", lambda o: "times" in report_of(o).get("reason", ""))
        await asyncio.sleep(0.3)  # nothing tells that nothing happens
        assert len(tries) <= 3
        await world.govern("job", phase="Running")
        await world.until("job", lambda o: o["status"]["phase"] == "Running")


async def test_how_often_it_could_not_be_suspended_is_told_and_forgotten_when_it_is_called_off(world: World) -> None:
    file, devices = world.folder / "n", Moody()
    devices.fails = CannotSuspend("the driver has a bad day")
    async with world.agent(devices=devices):
        await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", phase="Suspending")
        await world.until("job", lambda o: report_of(o).get("refusals", 0) >= 2)
        await world.govern("job", phase="Starting")
        found = await world.until("job", lambda o: not report_of(o).get("refusals"))
        assert report_of(found)["reason"] == ""
        assert report_of(found)["pid"] == pid
        await counts(file)


async def test_what_the_driver_gave_up_has_failed_until_the_next_attempt(world: World) -> None:
    devices = Moody()
    async with world.agent(devices=devices):
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
        devices.fails = Broken("the driver gave it up")
        await world.govern("job", phase="Suspending")
        report = await world.reported("job", "Failed")
        assert report["reason"] == "the driver gave it up"
        assert not alive(pid)
        devices.fails = None
        await world.govern("job", phase="Running")
        await world.submit("other", python(COUNTER, world.folder / "m"), places=[place(gpus=(1,))])
        await world.reported("other", "Running")
        assert world.pids(uid) == {}
        await world.govern("job", attempt=1)
        await world.reported("job", "Running")
