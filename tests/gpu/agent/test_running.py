"""Workloads that are placed on a node run there as real processes, once, and their ends are told."""

from __future__ import annotations

import json
from pathlib import Path

from tests.gpu.agent.world import COUNTER, World, alive, eventually, number, place, python, report_of

from homeostat.gpu.agent.launching import Rules
from homeostat.providers.process.kind import Logs

ENVIRONMENT = "import os, json; print(json.dumps(dict(os.environ)), flush=True); import time; time.sleep(1000)"


async def test_a_replica_runs_with_its_gpus_and_knows_who_it_is(world: World) -> None:
    async with world.agent():
        uid = await world.submit(
            "train",
            python(ENVIRONMENT),
            places=[place(gpus=(2, 5), replica=0), place(gpus=(3,), milli=250, replica=1), place("n2", replica=2)],
            replicas=3,
            env={"MODE": "fast", "CUDA_VISIBLE_DEVICES": "7"},
            resources={"gpuMemoryMib": 2000},
        )
        first = await world.reported("train", "Running")
        await world.reported("train", "Running", replica=1)
        assert first["gpus"] == [2, 5]
        assert world.pids(uid) == {0: [first["pid"]], 1: world.pids(uid)[1]}
        env = [json.loads(await eventually(lambda i=i: _line(world.log(uid, f"{i}.out")))) for i in (0, 1)]
    assert env[0]["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert env[0]["MODE"] == "fast"
    assert env[0]["HOMEOSTAT_WORKLOAD"] == "default/train"
    assert env[0]["HOMEOSTAT_REPLICA"].startswith(f"{uid}/0/")
    assert [one["HOMEOSTAT_INDEX"] for one in env] == ["0", "1"]
    assert env[0]["HOMEOSTAT_NODES"] == "n1,n1,n2"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in env[0]
    assert env[1]["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert env[1]["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2000M"
    assert "HOME" not in env[0]  # nothing of the agent's


async def test_what_is_placed_elsewhere_does_not_run_here(world: World) -> None:
    async with world.agent():
        other = await world.submit("there", python(COUNTER, world.folder / "n"), places=[place("n2")])
        here = await world.submit("here", python(COUNTER, world.folder / "m"))
        await world.reported("here", "Running")
        assert world.pids(other) == {}
        assert len(world.pids(here)[0]) == 1
        assert not report_of(await world.workloads.get("there"))


async def test_a_replica_that_ends_with_0_has_exited_and_is_not_run_again(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python("print('done')"))
        report = await world.reported("job", "Exited")
        assert report["exitCode"] == 0
        assert "pid" not in report
        await world.govern("job", phase="Running", reason="still")
        await world.submit("other", python(COUNTER, world.folder / "n"), places=[place(gpus=(1,))])
        await world.reported("other", "Running")
        assert world.pids(uid) == {}
        assert world.log(uid).read_text() == "done\n"


async def test_a_new_attempt_runs_it_once_more(world: World) -> None:
    marker = world.folder / "runs"
    code = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit(3)"
    async with world.agent():
        await world.submit("job", python(code, marker))
        report = await world.reported("job", "Failed")
        assert (report["exitCode"], report["attempt"]) == (3, 0)
        await world.govern("job", attempt=1)
        await world.until("job", lambda obj: report_of(obj).get("attempt") == 1 and report_of(obj)["state"] == "Failed")
    assert marker.read_text() == "xx"


async def test_a_failure_tells_what_it_said_last(world: World) -> None:
    async with world.agent():
        await world.submit("job", python("import sys; sys.exit('out of luck')"))
        report = await world.reported("job", "Failed")
        assert report["reason"] == "exit status 1: out of luck"
        await world.submit("crash", python("import os; os.kill(os.getpid(), 9)"))
        assert (await world.reported("crash", "Failed"))["reason"] == "killed by signal 9"


async def test_what_cannot_be_started_says_why(world: World, tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    async with world.agent(rules=Rules(allowed=["/usr/bin", "/bin"])):
        await world.submit("nothing", ["no-such-program"])
        await world.submit("empty", [])
        await world.submit("forbidden", [str(script)])
        await world.submit("nowhere", ["true"], workingDir="/no/such/place")
        await world.submit("nogpu", ["true"], places=[place(gpus=(8,))])
        reasons = {
            n: (await world.reported(n, "Failed"))["reason"]
            for n in ("nothing", "empty", "forbidden", "nowhere", "nogpu")
        }
    assert "no-such-program is not a program that can be run" in reasons["nothing"]
    assert "no command" in reasons["empty"]
    assert "is not allowed to run: commands may lie in" in reasons["forbidden"]
    assert reasons["nowhere"] == "the working directory /no/such/place does not exist"
    assert reasons["nogpu"] == "this node has no GPU 8"


async def test_a_reason_is_passed_on_in_short_whatever_is_in_it(world: World) -> None:
    async with world.agent():
        await world.submit("long", ["x" * 50_000])
        reason = (await world.reported("long", "Failed"))["reason"]
    assert len(reason) == 500
    assert reason.startswith("xxx")
    assert "x is not a program that can be run" in reason


async def test_a_deleted_workload_ends_and_nothing_of_it_is_left(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
        await world.workloads.delete("job")
        await eventually(lambda: not alive(pid))
        await eventually(lambda: not world.log(uid).parent.exists())


async def test_the_children_of_a_replica_that_ended_do_not_keep_its_gpu(world: World) -> None:
    left = world.folder / "left"
    code = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"], start_new_session=True)
open({str(left)!r}, "w").write(str(child.pid))
"""
    async with world.agent():
        await world.submit("job", python(code))
        await world.reported("job", "Exited")
        await eventually(lambda: not alive(number(left)))


async def test_who_ignores_the_signal_is_killed_after_its_grace(world: World) -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(1000)"
    )
    async with world.agent():
        uid = await world.submit("job", python(code), preemption={"mode": "Restart", "grace": "100ms"})
        pid = (await world.reported("job", "Running"))["pid"]
        await eventually(lambda: _line(world.log(uid)))
        await world.govern("job", phase="Suspending")
        report = await world.reported("job", "Suspended")
        assert not alive(pid)
        assert "pid" not in report


async def test_other_gpus_mean_another_process(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, world.folder / "n"), preemption={"mode": "Restart"})
        before = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", assignment=[place(gpus=(4,))])
        found = await world.until(
            "job", lambda o: report_of(o).get("gpus") == [4] and report_of(o)["state"] == "Running"
        )
        assert report_of(found)["pid"] != before
        assert world.pids(uid) == {0: [report_of(found)["pid"]]}


async def test_the_order_of_gpus_means_nothing(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"), places=[place(gpus=(5, 2))])
        before = (await world.reported("job", "Running"))["pid"]
        await world.govern("job", assignment=[place(gpus=(2, 5))], phase="Suspended")
        await world.reported("job", "Suspended")
        await world.govern("job", phase="Running")
        assert (await world.reported("job", "Running"))["pid"] == before


async def test_logs_are_rotated_while_it_writes(world: World) -> None:
    code = "i = 0\nwhile True:\n    i += 1\n    print(f'line {i:06} ' + 'x' * 100, flush=True)\n    if i % 200 == 0: import time; time.sleep(0.02)"
    async with world.agent(output=Logs(max_bytes=64 * 1024, keep=2)):
        uid = await world.submit("chatty", python(code))
        await eventually(lambda: world.log(uid, "0.out.1").exists())
        await eventually(lambda: world.log(uid, "0.out.2").exists())
    rotated = [
        line for n in (2, 1) for line in world.log(uid, f"0.out.{n}").read_text().split("\n") if line.strip(" \0")
    ]
    numbers = [int(line.split()[1]) for line in rotated]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_gpu_time_is_counted_while_it_runs(world: World) -> None:
    async with world.agent():
        await world.submit("job", python("import time; time.sleep(0.4)"), places=[place(gpus=(0, 1), milli=500)])
        report = await world.reported("job", "Exited")
        assert 0.4 <= report["gpuSeconds"] < 4.0


async def test_a_note_that_cannot_be_read_is_reported_and_nothing_is_started(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
    world.log(uid, "0.note").write_text("{")
    async with world.agent():
        report = await world.reported("job", "Unknown")
        assert "cannot be read" in report["reason"]
        assert world.pids(uid) == {0: [pid]}


def _line(path: Path) -> str:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return ""
    return text if text.endswith("\n") else ""
