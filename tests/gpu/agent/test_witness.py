"""A witness sees how a process ends, for whichever agent comes next: the kernel tells it only to who is there at that moment."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gpu.agent.test_suspending import SAVES
from tests.gpu.agent.world import COUNTER, World, alive, eventually, number, place, python

from homeostat.gpu.agent import witness
from homeostat.gpu.agent.launching import Rules
from homeostat.providers.process import kernel


def witnessed(folder: Path) -> list[str]:
    return [sys.executable, "-I", "-S", str(witness.PROGRAM), str(folder / "exit"), "{}"]


def told(code: str) -> dict[str, str]:
    return {witness.COMMAND: json.dumps(python(code))}


@pytest.mark.parametrize(
    ("code", "status"), [("", 0), ("import sys; sys.exit(3)", 3), ("import os; os.kill(os.getpid(), 15)", -15)]
)
def test_it_ends_as_the_command_and_writes_it_down(tmp_path: Path, code: str, status: int) -> None:
    done = subprocess.run(witnessed(tmp_path), env={"HOMEOSTAT_REPLICA": "u/0/n", **told(code)}, check=False)
    assert done.returncode == status
    assert witness.seen(tmp_path / "exit", "u/0/n") == status
    assert witness.seen(tmp_path / "exit", "u/0/another") is None


def test_signals_are_passed_on_and_a_command_sees_them_as_if_nobody_stood_between(tmp_path: Path) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); print('up', flush=True); signal.pause()"
    with subprocess.Popen(witnessed(tmp_path), stdout=subprocess.PIPE, text=True, env={**os.environ, **told(code)}) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 7
    assert json.loads((tmp_path / "exit").read_text())["status"] == 7


def test_the_command_stands_in_one_command_line_alone_and_finds_nothing_of_its_witness(tmp_path: Path) -> None:
    code = f"import os; print({witness.COMMAND!r} in os.environ, flush=True); os.read(0, 1)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(witnessed(tmp_path), text=True, env={**os.environ, **told(code)}, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "False\n"
        assert code not in Path(f"/proc/{process.pid}/cmdline").read_text()
        process.communicate("x")


async def test_an_end_is_known_to_an_agent_that_is_not_the_parent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = world.folder / "go"
    code = f"import pathlib, sys, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\nsys.exit(int(sys.argv[1]))"
    async with world.agent():
        for gpu, status in enumerate((0, 5)):
            await world.submit(f"job-{status}", python(code, status), places=[place(gpus=(gpu,))])
            await world.reported(f"job-{status}", "Running")
    monkeypatch.setattr(kernel, "exit_status", lambda pidfd, process: None)  # as it is for who is not the parent
    async with world.agent():
        go.touch()
        await world.reported("job-0", "Exited")
        assert (await world.reported("job-5", "Failed"))["exitCode"] == 5


async def test_a_witnessed_replica_is_suspended_told_and_ended_like_any_other(world: World) -> None:
    file, saved = world.folder / "n", world.folder / "saved"
    async with world.agent():
        await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
        await eventually(lambda: number(file) > 3)
        await world.govern("job", phase="Suspended")
        await world.reported("job", "Suspended")
        before = number(file)
        await world.govern("job", phase="Running")
        await eventually(lambda: number(file) > before + 3)
        uid = await world.submit("saver", python(SAVES, saved), places=[place(gpus=(1,))], preemption={"mode": "Checkpoint", "signal": "SIGUSR1"})
        await world.reported("saver", "Running")
        await eventually(lambda: world.log(uid).exists() and world.log(uid).read_text())
        await world.govern("saver", phase="Suspended")
        await world.reported("saver", "Suspended")
        assert number(saved) > 0
        await world.workloads.delete("job")
        await eventually(lambda: not alive(pid))
        before = number(file)
    assert not world.pids(uid)


async def test_a_witnessed_replica_runs_as_the_user_and_the_witness_does_not(world: World) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run processes as somebody else")
    async with world.agent(rules=Rules(user="nobody")):
        uid = await world.submit("who", ["id", "-u"])
        await world.reported("who", "Exited")
    assert world.log(uid).read_text().strip() == str(pwd.getpwnam("nobody").pw_uid)
    assert witness.seen(world.log(uid, "0.exit"), json.loads(world.log(uid, "0.exit").read_text())["mark"]) == 0
