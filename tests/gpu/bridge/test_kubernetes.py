"""A Kubernetes cluster under the governor. The cluster's API is our own server's, its nodes run Pods as real processes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.agent.world import SECONDS, eventually, report_of, until
from tests.gpu.bridge.kubelet import GPU, Kubelet
from tests.gpu.bridge.world import Program, bridged, running, submit, traced
from tests.gpu.controller.world import World

from homeostat.client import Client
from homeostat.gpu.bridge import Bridge
from homeostat.gpu.bridge.kubernetes import Kubernetes, Options
from homeostat.testing import TestPlane
from homeostat.testing.plane import control_plane

Object = dict[str, Any]
CHECKPOINT = {"mode": "Checkpoint", "grace": "20s"}
IMAGE = "none:1"


class KubernetesCluster:
    """An API with two nodes of eight GPUs each."""

    def __init__(self, plane: TestPlane, client: Client, kubelets: list[Kubelet]) -> None:
        self.plane, self.client = plane, client
        self.kubelets = {one.name: one for one in kubelets}
        self.pods = client.kind("v1", "Pod", namespace="default")
        self.nodes = client.kind("v1", "Node")

    @property
    def began(self) -> list[str]:
        """The Pods that were begun on any node."""
        return [name for kubelet in self.kubelets.values() for name in kubelet.began]

    def kept(self, world: World, **options: Any) -> contextlib.AbstractAsyncContextManager[Bridge]:
        return bridged(world, lambda state: Kubernetes(self.plane.client(timeout=2.0), Options(image=IMAGE)), **options)


class Cable:
    """The way to a server, which can be cut."""

    def __init__(self, url: str) -> None:
        self._port = int(url.rpartition(":")[2])
        self._lines: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> Cable:
        await self.mend()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", int(self.url.rpartition(":")[2] or 0))
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def cut(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._lines:
            writer.transport.abort()
        self._lines.clear()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, away = await asyncio.open_connection("127.0.0.1", self._port)
        self._lines |= {writer, away}
        with contextlib.suppress(OSError):
            await asyncio.gather(_carry(reader, away), _carry(there, writer))
        writer.close()
        away.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KubernetesCluster]:
    with control_plane() as plane:
        async with plane.client() as client, Kubelet(client, "k1", tmp_path) as one, Kubelet(client, "k2", tmp_path) as two:
            yield KubernetesCluster(plane, client, [one, two])


def foreign(name: str, node: str, gpus: int) -> Object:
    container = {"name": "main", "image": IMAGE, "command": ["sleep", "1000"], "resources": {"limits": {GPU: str(gpus)}}}
    return {"metadata": {"name": name}, "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}}


async def test_workloads_run_to_their_end_and_tell_how_they_ended(world: World, cluster: KubernetesCluster) -> None:
    async with cluster.kept(world):
        node = await until(world.nodes, "k1", lambda obj: bool(obj.get("status", {}).get("gpus")))
        assert (node["spec"]["model"], len(node["spec"]["gpus"]), node["spec"]["cpuMilli"]) == ("H100", 8, 64_000)
        assert node["spec"]["gpus"][0]["memoryMib"] == 81_559
        assert not node["spec"].get("cordoned")
        await world.quota(16)
        await submit(world, "good", 0.1, gpus=2, env={"GREETING": "$(PATH) `here`"})
        await submit(world, "bad", 0.1, code=3)
        await submit(world, "asks", 0.1, preemption={"mode": "Checkpoint", "signal": "SIGUSR1"})
        found = await world.phase("good", "Succeeded", "Failed")
        report = report_of(found)
        assert (found["status"]["phase"], report["state"], report["exitCode"]) == ("Succeeded", "Exited", 0)
        failed = await world.phase("bad", "Failed", "Succeeded")
        assert report_of(failed)["exitCode"] == 3
        assert "exit status 3: err: 3" in failed["status"]["reason"]
        logs = [path.read_text() for path in world.folder.glob("homeostat-*.log")]
        assert "out: $(PATH) `here`\nerr: 0\n" in logs
        assert "by SIGTERM, and not by SIGUSR1" in (await world.phase("asks", "Failed"))["status"]["reason"]
        await world.workloads.delete("good")
        await gone(world, "good")
        async with asyncio.timeout(SECONDS):
            while len(await cluster.pods.list()) > 1:
                await asyncio.sleep(0.05)


async def test_a_lowered_quota_brings_use_down_and_a_raised_one_brings_it_back(world: World, cluster: KubernetesCluster) -> None:
    async with cluster.kept(world):
        await world.quota(14)
        names = [f"job-{n}" for n in range(7)]
        for name in names:
            await submit(world, name, gpus=2, preemption=CHECKPOINT)
        await running(world, *names)
        await world.quota(12)
        async with asyncio.timeout(SECONDS):
            while len(await world.running()) > 6:
                await asyncio.sleep(0.05)
        (name,) = set(names) - set(await world.running())
        suspended = await world.phase(name, "Suspended")
        assert traced(world, name) == ["begun", "SIGTERM"]
        assert (report_of(suspended)["state"], report_of(suspended).get("pid")) == ("Suspended", None)
        assert sum(len(one.processes) for one in cluster.kubelets.values()) == 6
        await world.quota(14)
        await world.phase(name, "Running")
        await eventually(lambda: traced(world, name) == ["begun", "SIGTERM", "begun"])


async def test_what_should_be_suspended_with_its_state_runs_on_and_says_so_unless_it_may_be_restarted(
    world: World, cluster: KubernetesCluster
) -> None:
    await world.quota(8)
    async with cluster.kept(world):
        await submit(world, "train")
        await running(world, "train")
        await world.workloads.patch("train", {"spec": {"suspended": True}})
        found = await world.until("train", lambda obj: "runs on" in report_of(obj).get("reason", ""))
        assert report_of(found)["state"] == "Running"
        assert traced(world, "train") == ["begun"]
    async with cluster.kept(world, restarts=True):
        found = await world.phase("train", "Suspended")
        assert traced(world, "train") == ["begun", "SIGTERM"]
        assert "pid" not in report_of(found)


async def test_a_bridge_that_is_killed_again_and_again_starts_nothing_twice(world: World, cluster: KubernetesCluster) -> None:
    await world.quota(16)
    config = str(cluster.plane.kubeconfig)
    arguments = ("kubernetes", "--cluster-kubeconfig", config, "--image", IMAGE, "--lease-seconds", "4")
    program = Program(world, *arguments)
    await program.ready()
    for n in range(4):
        await submit(world, f"job-{n}", 2.0 if n else 0.2)
    for _ in range(3):
        await eventually(lambda: cluster.began)
        program.kill()
        program = Program(world, *arguments)
    for n in range(4):
        await world.phase(f"job-{n}", "Succeeded", seconds=60)
        assert traced(world, f"job-{n}") == ["begun", "done"]
    assert len(cluster.began) == 4
    assert program.kill(signal.SIGTERM) == 0


async def test_a_bridge_that_lost_its_memory_takes_up_what_runs(world: World, cluster: KubernetesCluster) -> None:
    await world.quota(16)
    async with cluster.kept(world):
        await submit(world, "long")
        await submit(world, "short", 0.1)
        await running(world, "long")
        await world.phase("short", "Succeeded")
    for path in (world.folder / "bridge" / "nodes").glob("*/*/*.note"):
        path.unlink()
    async with cluster.kept(world):
        await world.workloads.patch("long", {"spec": {"preemption": {"mode": "Restart"}, "suspended": True}})
        await world.phase("long", "Suspended")
        assert traced(world, "long") == ["begun", "SIGTERM"]
        assert traced(world, "short") == ["begun", "done"]
        assert (await world.workloads.get("short"))["status"]["phase"] == "Succeeded"


async def test_what_others_run_is_counted_and_left_alone(world: World, cluster: KubernetesCluster) -> None:
    await cluster.pods.create(foreign("theirs", "k1", 7))
    await cluster.pods.create(foreign("other", "k2", 8))
    await eventually(lambda: len(cluster.began) == 2)
    async with cluster.kept(world):
        await until(world.nodes, "k1", lambda obj: _suspects(obj) == 7)
        await until(world.nodes, "k2", lambda obj: _suspects(obj) == 8)
        await world.quota(16)
        await submit(world, "small")
        assert report_of(await world.phase("small", "Running"))["node"] == "k1"
        await submit(world, "large", gpus=2)
        await world.until("large", lambda obj: obj.get("status", {}).get("constraint") == "capacity")
        cluster.kubelets["k2"].processes["other"].kill()
        assert report_of(await world.phase("large", "Running"))["node"] == "k2"
    assert "theirs" in cluster.kubelets["k1"].processes


async def test_where_a_cluster_shows_fewer_gpus_than_are_given_away_nobody_is_taken_off(world: World, cluster: KubernetesCluster) -> None:
    """Which one is no more, and whose, is not known: indexes are only counted by."""
    async with cluster.kept(world):
        await world.quota(16)
        for name in ("one", "two"):
            await submit(world, name, gpus=8)
            await world.phase(name, "Running")
        for kubelet in cluster.kubelets.values():
            kubelet.gpus = 6
            await kubelet.tell(ready=True)
        await until(world.nodes, "k1", lambda obj: len(obj["status"].get("gpus", ())) == 8)
        await submit(world, "next")
        await world.until("next", lambda obj: obj.get("status", {}).get("constraint") == "quota")
        assert [traced(world, name) for name in ("one", "two")] == [["begun"], ["begun"]]
        assert await world.running() == ["one", "two"]


async def test_while_the_cluster_does_not_answer_nothing_is_known_and_nothing_is_lost(
    world: World, cluster: KubernetesCluster, tmp_path: Path
) -> None:
    leases = world.client.kind("coordination.k8s.io/v1", "Lease", namespace="kube-system")
    async with Cable(cluster.plane.url) as cable:
        config = tmp_path / "cable.kubeconfig"
        config.write_text(cluster.plane.kubeconfig.read_text().replace(cluster.plane.url, cable.url))

        def far(state: Path) -> Kubernetes:
            return Kubernetes(Client.from_kubeconfig(config, timeout=1.0, attempts=1), Options(image=IMAGE))

        async with bridged(world, far):
            await world.quota(16)
            await submit(world, "long")
            await submit(world, "short", 2.5)
            await running(world, "long", "short")
            await cable.cut()
            found = await world.until("long", lambda obj: report_of(obj).get("state") == "Unknown")
            assert "Kubernetes cannot be asked" in report_of(found)["reason"]
            await eventually(lambda: traced(world, "short") == ["begun", "done"])
        async with bridged(world, far, seconds=0.1), asyncio.timeout(4 * SECONDS):
            await submit(world, "new")
            before = (await leases.get("k1"))["spec"]["renewTime"]
            while (await leases.get("k1"))["spec"]["renewTime"] == before:
                await asyncio.sleep(0.1)
            assert (await world.workloads.get("long"))["status"]["phase"] == "Running"
            assert len(cluster.began) == 2
            await cable.mend()
            await world.phase("short", "Succeeded")
            await world.phase("new", "Running")
            await world.reported("long", "Running")
    assert traced(world, "long") == ["begun"]


async def test_a_pod_that_somebody_else_deletes_is_begun_anew(world: World, cluster: KubernetesCluster) -> None:
    async with cluster.kept(world):
        await world.quota(16)
        await submit(world, "train")
        await running(world, "train")
        (name,) = cluster.began
        await cluster.pods.delete(name)
        await eventually(lambda: traced(world, "train") == ["begun", "SIGTERM", "begun"])
        await world.reported("train", "Running")


async def test_a_cordoned_node_takes_nothing_new_and_one_that_is_not_ready_is_not_heard_of(world: World, cluster: KubernetesCluster) -> None:
    leases = world.client.kind("coordination.k8s.io/v1", "Lease", namespace="kube-system")

    async def renewed(name: str) -> str:
        return str((await leases.get(name))["spec"]["renewTime"])

    async with cluster.kept(world) as bridge:
        await until(world.nodes, "k2", lambda obj: bool(obj.get("status", {}).get("gpus")))
        await cluster.nodes.patch("k2", {"spec": {"unschedulable": True}})
        await until(world.nodes, "k2", lambda obj: bool(obj["spec"].get("cordoned")))
        await cluster.kubelets["k2"].tell(ready=False)
        await eventually(lambda: not bridge.nodes["k2"].member.alive)
        before, other = await renewed("k2"), await renewed("k1")
        async with asyncio.timeout(SECONDS):
            while await renewed("k1") == other:
                await asyncio.sleep(0.1)
        assert await renewed("k2") == before


async def gone(world: World, name: str) -> None:
    async with asyncio.timeout(SECONDS):
        while any(one["metadata"]["name"] == name for one in await world.workloads.list()):
            await asyncio.sleep(0.05)


def _suspects(node: Object) -> int:
    return sum(one.get("health") == "Suspect" for one in node.get("status", {}).get("gpus", ()))
