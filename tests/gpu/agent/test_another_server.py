"""What a server does not know of was deleted by nobody: an agent that comes to the wrong one, or to one that has forgotten, ends nothing."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.gpu.agent.world import (
    COUNTER,
    SECONDS,
    Plane,
    World,
    alive,
    eventually,
    install_kinds,
    number,
    place,
    python,
)

from homeostat.gpu.agent.origin import FILE, OtherServer
from homeostat.testing import control_plane

LEASE = ("coordination.k8s.io/v1", "Lease")
HOMEOSTAT = [sys.executable, "-m", "homeostat"]


@contextlib.asynccontextmanager
async def elsewhere(world: World) -> AsyncIterator[World]:
    """Another control plane, for the same machines."""
    with control_plane() as plane:
        async with plane.client() as client:
            await install_kinds(client)
            yield World(plane, client, world.folder)


async def runs_on(pid: int, file: Path) -> None:
    before = number(file)
    await eventually(lambda: number(file) > before + 20)
    assert alive(pid)


async def refused(world: World) -> str:
    """Starts an agent, which ends by itself; gives why."""
    with pytest.raises(ExceptionGroup) as caught:
        async with world.agent():
            pass
    return str(caught.value.exceptions[0])


async def test_an_agent_at_the_wrong_server_ends_nothing_and_does_not_join_it(world: World) -> None:
    file = world.folder / "n"
    async with world.agent():
        uid = await world.submit("job", python(COUNTER, file))
        pid = (await world.reported("job", "Running"))["pid"]
    async with elsewhere(world) as other:
        await other.submit("stranger", python(COUNTER, world.folder / "stranger"))
        why = await refused(other)
        assert "another server" in why
        assert f"rm {world.state() / FILE}" in why
        assert await other.nodes.list() == []
        assert await other.client.kind(*LEASE, namespace="kube-system").list() == []
        await runs_on(pid, file)
    async with world.agent():
        await world.govern("job", phase="Suspended")
        assert (await world.reported("job", "Suspended"))["pid"] == pid
        assert world.pids(uid) == {0: [pid]}


async def test_a_machine_on_which_nothing_runs_may_have_any_server(world: World) -> None:
    async with world.agent():
        await world.submit("job", python("pass"))
        await world.reported("job", "Exited")
    async with elsewhere(world) as other, other.agent():
        await other.submit("job", python("pass"))
        await other.reported("job", "Exited")


async def test_who_takes_the_file_away_means_the_new_server_and_what_that_does_not_know_is_ended(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
    (world.state() / FILE).unlink()
    async with elsewhere(world) as other, other.agent():
        await eventually(lambda: not alive(pid))


async def test_the_command_says_what_to_do(world: World) -> None:
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
    async with elsewhere(world) as other:
        command = [*HOMEOSTAT, "agent", "--kubeconfig", other.plane.kubeconfig, "--state", world.state(), "--name", "n1"]
        done = await asyncio.to_thread(
            subprocess.run, [*command, "--simulate", "8xH100"], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert done.stderr.startswith("Error: this is another server"), done.stderr
        assert alive(pid)


async def test_a_lease_that_somebody_deleted_is_made_again_and_changes_nothing(world: World) -> None:
    leases = world.client.kind(*LEASE, namespace="kube-system")
    async with world.agent():
        await world.submit("job", python(COUNTER, world.folder / "n"))
        pid = (await world.reported("job", "Running"))["pid"]
        first = (await leases.get("n1"))["metadata"]["uid"]
        await leases.delete("n1")
        async with asyncio.timeout(SECONDS):
            while first in (found := [one["metadata"]["uid"] for one in await leases.list()]) or not found:
                await asyncio.sleep(0.05)
        assert alive(pid)
        await world.workloads.delete("job")  # no governor holds it: it is gone, and that is news of the right server
        await eventually(lambda: not alive(pid))


# A server that was begun anew, or restored


@contextlib.asynccontextmanager
async def machine(plane: Plane, folder: Path) -> AsyncIterator[World]:
    async with plane.client() as client:
        await install_kinds(client)
        world = World(plane, client, folder)  # type: ignore[arg-type]
        try:
            yield world
        finally:
            world.clean()


def set_back(plane: Plane, checkpoint: Path | None) -> None:
    """What is left when the disk of a server was lost, but for its certificates: an old checkpoint, or nothing."""
    plane.kill()
    before = plane.data.rename(plane.data.with_name(f"{plane.data.name}.lost"))
    if checkpoint is not None:
        command = [*HOMEOSTAT, "checkpoint", "restore", str(checkpoint), "--data", str(plane.data)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    shutil.copytree(before / "pki", plane.data / "pki", dirs_exist_ok=True)
    plane.start()


async def checkpoint_of(plane: Plane, path: Path) -> Path:
    command = [*HOMEOSTAT, "checkpoint", "create", str(path), "--kubeconfig", str(plane.kubeconfig)]
    await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
    return path


async def test_a_server_that_begins_anew_under_an_agent_has_nothing_ended(plane: Plane, tmp_path: Path) -> None:
    file = tmp_path / "n"
    async with machine(plane, tmp_path) as world:
        async with world.agent():
            await world.submit("job", python(COUNTER, file))
            pid = (await world.reported("job", "Running"))["pid"]
            await asyncio.to_thread(set_back, plane, None)
            async with plane.client() as client:
                await install_kinds(client)
            await asyncio.wait({world.keeping["n1"]}, timeout=30.0)
            with pytest.raises(ExceptionGroup, match="unhandled") as caught:
                world.keeping["n1"].result()
        assert caught.group_contains(OtherServer, match="another server")
        await runs_on(pid, file)


@pytest.mark.parametrize("meanwhile", ["runs", "is down"])
async def test_what_a_restored_server_has_forgotten_runs_on_until_a_person_says_so(plane: Plane, tmp_path: Path, meanwhile: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    async with machine(plane, tmp_path) as world, contextlib.AsyncExitStack() as agents:
        await agents.enter_async_context(world.agent())
        await world.submit("old", python(COUNTER, old), phase="Suspended")
        await world.reported("old", "Suspended")
        checkpoint = await checkpoint_of(plane, tmp_path / "backup.checkpoint")
        await world.govern("old", phase="Running")
        await world.submit("new", python(COUNTER, new), places=[place(gpus=(1,))])
        pids = [(await world.reported(name, "Running"))["pid"] for name in ("old", "new")]
        await lease_renewed(world)
        if meanwhile == "is down":
            await agents.aclose()
        await asyncio.to_thread(set_back, plane, checkpoint)
        if meanwhile == "is down":
            await agents.enter_async_context(world.agent())
        told = await world.until("old", lambda obj: "restored from a backup" in str(obj["status"].get("reports")), 30.0)
        assert "kubectl -n kube-system delete lease n1" in str(told["status"]["reports"])
        for pid, file in zip(pids, (old, new), strict=True):
            await runs_on(pid, file)
        assert not world.keeping["n1"].done()
        await world.client.kind(*LEASE, namespace="kube-system").delete("n1")
        await eventually(lambda: not alive(pids[1]), 30.0)
        await world.until("old", lambda obj: obj["status"]["reports"][0]["state"] == "Suspended", 30.0)


async def lease_renewed(world: World) -> None:
    """Waits until the lease was renewed once more."""
    leases = world.client.kind(*LEASE, namespace="kube-system")
    before = (await leases.get("n1"))["spec"]["renewTime"]
    async with asyncio.timeout(SECONDS):
        while (await leases.get("n1"))["spec"]["renewTime"] == before:
            await asyncio.sleep(0.05)
