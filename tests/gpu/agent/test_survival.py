"""What runs outlives the agent, the control plane, and whatever happens to either; and it is never doubled."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.gpu.agent.world import (
    COUNTER,
    Plane,
    Program,
    World,
    alive,
    eventually,
    install_kinds,
    number,
    place,
    python,
    stands,
)

from homeostat.gpu.agent import journal
from homeostat.gpu.agent.keeper import Keeper
from homeostat.gpu.agent.simulated import Simulated
from homeostat.gpu.agent.wanted import Off
from homeostat.gpu.kinds import ReplicaState
from homeostat.providers.process import kernel


@contextlib.asynccontextmanager
async def program(world: World, node: str = "n1", *more: str) -> AsyncIterator[Program]:
    agent = Program(world.plane.kubeconfig, world.state(node), node, *more)
    try:
        await agent.ready()
        yield agent
    finally:
        if agent.process.poll() is None:
            agent.kill()


async def test_an_agent_that_was_killed_takes_its_processes_up_again(world: World) -> None:
    file = world.folder / "n"
    async with program(world) as first:
        uid = await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
        first.kill()
    before = number(file)
    await eventually(lambda: number(file) > before)
    async with program(world) as second:
        await world.govern("job", phase="Suspended")
        assert (await world.reported("job", "Suspended"))["pid"] == pid
        assert world.pids(uid) == {0: [pid]}
        second.kill()
    assert stands(pid)
    async with program(world) as third:
        await world.govern("job", phase="Running")
        assert (await world.reported("job", "Running"))["pid"] == pid
        before = number(file)
        await eventually(lambda: number(file) > before)
        assert await third.stop() == 0
    assert alive(pid)


async def test_an_end_that_no_agent_saw_is_told_by_the_next(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
    os.kill(pid, signal.SIGKILL)
    async with world.agent():
        report = await world.reported("job", "Failed")
        assert "signal 9" in report["reason"] or "nobody saw" in report["reason"]


async def test_who_ended_while_its_agent_was_dead_is_not_said_to_run_before_it_is_known_how(world: World) -> None:
    go = world.folder / "go"
    code = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)"
    async with program(world) as agent:
        uid = await world.submit("job", python(code))
        pid = (await world.reported("job", "Running"))["pid"]
        agent.kill()
    next_one = Keeper(world.client, "n1", Simulated.parse("1xH100"), world.state("n1"))
    await next_one.load()
    assert [report.state for one in next_one._hosted[uid].values() if (report := one.report())] == [ReplicaState.RUNNING]
    await next_one.close()
    go.touch()
    await eventually(lambda: not alive(pid))
    next_one = Keeper(world.client, "n1", Simulated.parse("1xH100"), world.state("n1"))
    await next_one.load()
    assert [one.report() for one in next_one._hosted[uid].values()] == [None]
    await next_one.close()


async def test_who_ends_well_while_its_agent_is_dead_has_not_failed(world: World) -> None:
    go = world.folder / "go"
    code = f"import pathlib, sys, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\nsys.exit(int(sys.argv[1]))"
    async with program(world) as first:
        for gpu, status in enumerate((0, 5)):
            await world.submit(f"job-{status}", python(code, status), places=[place(gpus=(gpu,))])
        pids = [(await world.reported(f"job-{status}", "Running"))["pid"] for status in (0, 5)]
        first.kill()
    go.touch()
    await eventually(lambda: not any(alive(pid) for pid in pids))
    async with program(world):
        assert (await world.reported("job-0", "Exited"))["exitCode"] == 0
        assert (await world.reported("job-5", "Failed"))["exitCode"] == 5


async def test_an_end_that_an_agent_saw_and_could_not_write_down_is_told_by_the_next(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python("pass"))
        await world.reported("job", "Exited")
    path = world.log(uid, "0.note")
    note = journal.load(path)
    assert note is not None
    journal.save(
        path, note.but(state=ReplicaState.RUNNING, ended="", exit_code=None)
    )  # as a kill between the two leaves it
    async with world.agent():
        await world.submit("other", ["true"], places=[place(gpus=(1,))])
        await world.reported("other", "Exited")
        assert (await world.reported("job", "Exited"))["exitCode"] == 0


async def test_a_workload_deleted_while_no_agent_was_there_is_ended_by_the_next(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
    await world.workloads.delete("job")
    assert alive(pid)
    async with world.agent():
        await eventually(lambda: not alive(pid))
        await eventually(lambda: not world.log(uid).parent.exists())


async def test_a_suspension_that_was_cut_short_is_finished_by_the_next_agent(world: World) -> None:
    file = world.folder / "n"
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
    path = world.log(uid, "0.note")
    note = journal.load(path)
    assert note is not None
    journal.save(path, note.but(off=Off.LEAVING))  # as a kill in the midst leaves it: half of it may have happened
    os.kill(pid, signal.SIGSTOP)
    async with world.agent():
        before = number(file)
        await eventually(lambda: number(file) > before)  # it is wanted on the GPU, so it comes back
    journal.save(path, note.but(off=Off.RETURNING))
    await world.govern("job", phase="Suspended")
    async with world.agent():
        await world.reported("job", "Suspended")
        assert stands(pid)


async def test_a_start_that_was_cut_short_is_made_again_or_taken_back(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
    os.kill(pid, signal.SIGKILL)
    world.log(uid, "0.json").unlink()  # as a kill leaves it that comes before the process was recorded
    await eventually(lambda: not alive(pid))
    await world.govern("job", phase="Suspended")
    async with world.agent():
        assert (await world.reported("job", "Suspended"))["reason"] == "it had not begun"
        await world.govern("job", phase="Running")
        assert (await world.reported("job", "Running"))["pid"] != pid


async def test_a_process_without_a_record_is_found_and_not_doubled(world: World) -> None:
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
    for name in ("0.json", "0.note"):
        world.log(uid, name).unlink()
    async with world.agent():
        await world.submit("other", ["true"], places=[place(gpus=(1,))])
        await world.reported("other", "Exited")
        assert world.pids(uid) == {0: [pid]}
        await world.govern("job", phase="Suspended")
        assert (await world.reported("job", "Suspended"))["pid"] == pid


async def test_a_second_agent_with_the_same_state_is_turned_away(world: World) -> None:
    async with world.agent():
        with pytest.raises(RuntimeError, match="another agent works with"):
            async with world.agent():
                pass


async def test_a_second_agent_of_the_same_name_stands_by(world: World, tmp_path: Path) -> None:
    async with program(world):
        await world.submit("job", python(COUNTER, world.folder / "n"))
        await world.reported("job", "Running")
        second = Program(world.plane.kubeconfig, tmp_path / "elsewhere", "n1", "--log-format", "json")
        try:
            leases = world.client.kind("coordination.k8s.io/v1", "Lease", namespace="kube-system")
            holder = (await leases.get("n1"))["spec"]["holderIdentity"]
            await asyncio.sleep(1.5)
            assert (await leases.get("n1"))["spec"]["holderIdentity"] == holder
            assert not list((tmp_path / "elsewhere" / "workloads").glob("*/*.json"))
        finally:
            second.kill()


async def test_the_control_plane_may_die_and_come_back(plane: Plane, tmp_path: Path) -> None:
    file = tmp_path / "n"
    async with plane.client() as client:
        await install_kinds(client)
        world = World(plane, client, tmp_path)  # type: ignore[arg-type]
        try:
            async with world.agent():
                uid = await world.submit("job", python(COUNTER, file))
                short = await world.submit("short", python("import time; time.sleep(0.3)"), places=[place(gpus=(1,))])
                pid = (await world.reported("job", "Running"))["pid"]
                await world.reported("short", "Running")
                plane.kill()
                await eventually(lambda: not world.pids(short))  # it ends while nobody can be told
                before = number(file)
                await eventually(lambda: number(file) > before)
                plane.start()
                await world.reported("short", "Exited", seconds=30)
                await world.govern("job", phase="Suspended")
                assert (await world.reported("job", "Suspended", seconds=30))["pid"] == pid
                assert world.pids(uid) == {0: [pid]}
        finally:
            world.clean()


@pytest.mark.parametrize("mode", ["Restart", "Suspend"])
async def test_no_replica_is_ever_doubled_however_often_the_agent_is_killed(world: World, mode: str) -> None:
    """Kills at random moments, while the wishes change; in the end exactly what is wished for runs."""
    chance = random.Random(7)
    uid = await world.submit(
        "job",
        python(COUNTER, world.folder / "n"),
        replicas=2,
        places=[place(gpus=(0,)), place(gpus=(1,), replica=1)],
        preemption={"mode": mode, "grace": "50ms"},
    )

    def most() -> int:
        return max(map(len, world.pids(uid).values()), default=0)

    for _ in range(6):
        agent = Program(world.plane.kubeconfig, world.state())
        try:
            for _ in range(3):
                await world.govern("job", phase=chance.choice(["Running", "Suspended"]))
                await asyncio.sleep(chance.uniform(0, 0.25))
                assert most() <= 1
        finally:
            agent.kill()
    await world.govern("job", phase="Running")
    async with program(world):
        for replica in (0, 1):
            await world.reported("job", "Running", replica=replica)
        await eventually(lambda: {k: len(v) for k, v in world.pids(uid).items()} == {0: 1, 1: 1})
        pids = {r: (await world.reported("job", "Running", replica=r))["pid"] for r in (0, 1)}
        assert world.pids(uid) == {0: [pids[0]], 1: [pids[1]]}
        assert all(kernel.stat_of(pid) for pid in pids.values())
