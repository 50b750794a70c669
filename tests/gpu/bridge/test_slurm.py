"""A Slurm cluster under the governor: a real Slurm, real jobs, the whole way from a declaration to an exit status."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.agent.world import SECONDS, eventually, report_of, until
from tests.gpu.bridge.slurm import SlurmCluster
from tests.gpu.bridge.world import Program, bridged, running, submit, traced
from tests.gpu.controller.world import World

from homeostat.gpu.bridge import Bridge
from homeostat.gpu.bridge.slurm import Options, Slurm

Object = dict[str, Any]
CHECKPOINT = {"mode": "Checkpoint", "signal": "SIGUSR1", "grace": "20s"}


def kept(world: World, slurm: SlurmCluster, **options: Any) -> contextlib.AbstractAsyncContextManager[Bridge]:
    return bridged(world, lambda state: Slurm(state, Options(conf=str(slurm.conf))), **options)


@pytest.fixture
async def empty(slurm: SlurmCluster) -> AsyncIterator[SlurmCluster]:
    """The cluster with nothing on it; what a test leaves is ended."""
    yield slurm
    slurm.run("scancel", "--me", "--signal=KILL", "--full")
    slurm.run("scancel", "--me")
    await eventually(lambda: not slurm.run("squeue", "--noheader", "--me"), 2 * SECONDS)


def jobs(slurm: SlurmCluster, uid: str, states: str = "all") -> list[str]:
    """The numbers of the jobs that Slurm has of a workload."""
    found = slurm.run("squeue", "--noheader", "--me", f"--states={states}", "--format=%i %k").splitlines()
    return [line.split()[0] for line in found if f"homeostat:{uid}." in line]


async def lease_of(world: World, node: str) -> str:
    leases = world.client.kind("coordination.k8s.io/v1", "Lease", namespace="kube-system")
    return str((await leases.get(node))["spec"]["renewTime"])


async def test_workloads_run_to_their_end_and_tell_how_they_ended(world: World, empty: SlurmCluster) -> None:
    async with kept(world, empty):
        node = await until(world.nodes, "n1", lambda obj: bool(obj.get("status", {}).get("gpus")))
        assert (node["spec"]["model"], len(node["spec"]["gpus"]), node["spec"]["cpuMilli"]) == ("H100", 8, 64_000)
        await world.quota(16)
        good = await submit(world, "good", 0.1, gpus=2, env={"GREETING": "it's $HOME `here`\n#SBATCH --nonsense"})
        await submit(world, "bad", 0.1, code=3)
        await submit(world, "part", 0.1, gpus="0.5")
        found = await world.phase("good", "Succeeded", "Failed")
        report = report_of(found)
        assert (found["status"]["phase"], report["state"], report["exitCode"]) == ("Succeeded", "Exited", 0)
        assert "pid" not in report
        output = Path(world.folder, "bridge", "jobs", report["node"], good, "0.out")
        assert output.read_text() == "out: it's $HOME `here`\n#SBATCH --nonsense\n"
        failed = await world.phase("bad", "Succeeded", "Failed")
        assert failed["status"]["phase"] == "Failed"
        assert report_of(failed)["exitCode"] == 3
        assert "exit status 3: err: 3" in failed["status"]["reason"]
        assert "a part of a GPU cannot be had from Slurm" in (await world.phase("part", "Failed"))["status"]["reason"]


async def test_a_lowered_quota_brings_use_down_and_a_raised_one_brings_it_back(world: World, empty: SlurmCluster) -> None:
    async with kept(world, empty):
        await world.quota(14)
        uids = {f"job-{n}": await submit(world, f"job-{n}", gpus=2, preemption=CHECKPOINT) for n in range(7)}
        await running(world, *uids)
        await world.quota(12)
        async with asyncio.timeout(SECONDS):
            while len(await world.running()) > 6:
                await asyncio.sleep(0.05)
        (name,) = set(uids) - set(await world.running())
        suspended = await world.phase(name, "Suspended")
        assert traced(world, name) == ["begun", "SIGUSR1"]
        assert (report_of(suspended)["state"], report_of(suspended).get("pid")) == ("Suspended", None)
        assert not jobs(empty, uids[name], "running,pending,completing")
        await world.quota(14)
        await world.phase(name, "Running")
        await eventually(lambda: traced(world, name) == ["begun", "SIGUSR1", "begun"])


async def test_what_should_be_suspended_with_its_state_runs_on_and_says_so_unless_it_may_be_restarted(
    world: World, empty: SlurmCluster
) -> None:
    await world.quota(8)
    async with kept(world, empty):
        uid = await submit(world, "train")
        await running(world, "train")
        await world.workloads.patch("train", {"spec": {"suspended": True}})
        found = await world.until("train", lambda obj: "runs on" in report_of(obj).get("reason", ""))
        assert report_of(found)["state"] == "Running"
        assert "--suspend-as restart" in report_of(found)["reason"]
        assert traced(world, "train") == ["begun"]
    async with kept(world, empty, restarts=True):
        found = await world.phase("train", "Suspended")
        assert traced(world, "train") == ["begun", "SIGTERM"]
        assert "pid" not in report_of(found)
        await world.workloads.delete("train")
        await until_gone(world, "train")
    assert not jobs(empty, uid, "running,pending,completing")


async def test_all_of_a_gang_comes_to_its_nodes_and_goes_with_its_workload(world: World, empty: SlurmCluster) -> None:
    async with kept(world, empty):
        await world.quota(16)
        uid = await submit(world, "gang", gpus=6, replicas=2)
        found = await running(world, "gang", replicas=2)
        assert {report_of(found, replica)["node"] for replica in (0, 1)} == {"n1", "n2"}
        assert len(jobs(empty, uid, "running")) == 2
        await world.workloads.delete("gang")
        await until_gone(world, "gang")
        assert not jobs(empty, uid, "running,pending")
        assert sorted(traced(world, "gang")) == ["SIGTERM", "SIGTERM", "begun", "begun"]
        assert not list(Path(world.folder, "bridge").glob(f"*/*/{uid}/*"))


async def test_a_bridge_that_is_killed_again_and_again_starts_nothing_twice(world: World, empty: SlurmCluster) -> None:
    await world.quota(16)
    arguments = ("slurm", "--slurm-conf", str(empty.conf), "--lease-seconds", "4")
    program = Program(world, *arguments)
    await program.ready()
    uids = [await submit(world, f"job-{n}", 2.0 if n else 0.2) for n in range(4)]
    for _ in range(3):
        await eventually(lambda: any(jobs(empty, uid) for uid in uids))
        program.kill()
        program = Program(world, *arguments)
    for n in range(4):
        await world.phase(f"job-{n}", "Succeeded", seconds=60)
        assert traced(world, f"job-{n}") == ["begun", "done"]
    assert [len(jobs(empty, uid)) for uid in uids] == [1, 1, 1, 1]
    assert program.kill(signal.SIGTERM) == 0


@pytest.mark.parametrize("name", ["the same", "another"])
async def test_what_is_submitted_twice_runs_once(world: World, empty: SlurmCluster, name: str) -> None:
    """As after an answer that got lost: the same start is in Slurm's queue a second time, which of one name runs one at a time."""
    async with kept(world, empty):
        await world.quota(8)
        uid = await submit(world, "train", 1.5)
        await running(world, "train")
        (first,) = jobs(empty, uid)
        script, comment, called = (empty.run("scontrol", "write", "batch_script", first, "-"), *_named(empty, first))
        called += "" if name == "the same" else "x"
        more = ("--dependency=singleton", "--nodelist=n1", "--output=/dev/null", "--parsable")
        second = empty.run("sbatch", f"--comment={comment}", f"--job-name={called}", *more, given=script)
        await world.phase("train", "Succeeded")
        if name == "the same":
            assert "CANCELLED" in empty.run("squeue", "--noheader", "--states=all", f"--jobs={second}", "--format=%T")
    assert traced(world, "train") == ["begun", "done"]


async def test_while_slurm_does_not_answer_nothing_is_known_and_nothing_is_lost(world: World, empty: SlurmCluster) -> None:
    async with kept(world, empty):
        await world.quota(16)
        await submit(world, "long")
        await submit(world, "short", 2.0)
        await running(world, "long", "short")
        empty.stop("slurmctld", signal.SIGTERM)
        try:
            found = await world.until("long", lambda obj: report_of(obj).get("state") == "Unknown")
            assert "Slurm cannot be asked" in report_of(found)["reason"]
            assert report_of(found)["pid"]
            await submit(world, "new")
            before = await lease_of(world, "n1")
            await eventually(lambda: traced(world, "short") == ["begun", "done"])
            async with asyncio.timeout(SECONDS):
                while await lease_of(world, "n1") == before:
                    await asyncio.sleep(0.1)
            assert (await world.workloads.get("long"))["status"]["phase"] == "Running"
            node = await world.nodes.get("n1")
            assert {one["health"] for one in node["status"]["gpus"]} <= {"Suspect", "Healthy"}
        finally:
            empty.start_controller()
            empty.wait_ready()
        await world.phase("short", "Succeeded")
        await world.phase("new", "Running")
        await world.reported("long", "Running")
        assert traced(world, "long") == ["begun"]


async def test_what_others_run_is_counted_and_left_alone(world: World, empty: SlurmCluster) -> None:
    theirs = empty.run("sbatch", "--parsable", "--nodelist=n1", "--gres=gpu:h100:7", "--wrap=sleep 1000", "--output=/dev/null")
    other = empty.run("sbatch", "--parsable", "--nodelist=n2", "--gres=gpu:h100:8", "--wrap=sleep 1000", "--output=/dev/null")
    mark = "homeostat:7f1c2b9e-0000-4000-8000-000000000001.0.0.1@n1"  # of a workload that is another bridge's
    alien = empty.run("sbatch", "--parsable", f"--comment={mark}", "--nodelist=n1", "--wrap=sleep 1000", "--output=/dev/null")
    await eventually(lambda: len(empty.run("squeue", "--noheader", "--states=running").splitlines()) == 3)
    async with kept(world, empty):
        await until(world.nodes, "n1", lambda obj: _suspects(obj) == 7)
        await until(world.nodes, "n2", lambda obj: _suspects(obj) == 8)
        await world.quota(16)
        await submit(world, "small")
        found = await world.phase("small", "Running")
        assert report_of(found)["node"] == "n1"
        await submit(world, "large", gpus=2)
        await world.until("large", lambda obj: obj.get("status", {}).get("constraint") == "capacity")
        empty.run("scancel", other)
        found = await world.phase("large", "Running")
        assert report_of(found)["node"] == "n2"
    assert {theirs, alien} <= set(empty.run("squeue", "--noheader", "--states=running", "--format=%i").split())


async def test_a_drained_machine_is_cordoned_and_a_dead_one_is_not_heard_of(world: World, empty: SlurmCluster) -> None:
    async with kept(world, empty) as bridge:
        await until(world.nodes, "n2", lambda obj: bool(obj.get("status", {}).get("gpus")))
        empty.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=a broken fan")
        await until(world.nodes, "n2", lambda obj: bool(obj["spec"].get("cordoned")))
        empty.run("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=dead")
        await eventually(lambda: not bridge.nodes["n2"].member.alive)
        before, other = await lease_of(world, "n2"), await lease_of(world, "n1")
        async with asyncio.timeout(SECONDS):
            while await lease_of(world, "n1") == other:
                await asyncio.sleep(0.1)
        assert await lease_of(world, "n2") == before
        empty.run("scontrol", "update", "NodeName=n2", "State=RESUME")
        await until(world.nodes, "n2", lambda obj: not obj["spec"].get("cordoned"))
        async with asyncio.timeout(SECONDS):
            while await lease_of(world, "n2") == before:
                await asyncio.sleep(0.1)


def _suspects(node: Object) -> int:
    return sum(one.get("health") == "Suspect" for one in node.get("status", {}).get("gpus", ()))


def _named(slurm: SlurmCluster, job: str) -> list[str]:
    return slurm.run("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%k %j").split()


async def until_gone(world: World, name: str) -> None:
    async with asyncio.timeout(SECONDS):
        while any(one["metadata"]["name"] == name for one in await world.workloads.list()):
            await asyncio.sleep(0.05)
