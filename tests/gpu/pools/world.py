"""What tests of node pools share: a control plane whose loop shares out GPUs, and pools whose nodes are real agents in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from tests.gpu.agent.world import eventually, until
from tests.gpu.controller import world as sharing

from homeostat.cli.controllers import assemble
from homeostat.client import Client, Key
from homeostat.gpu.controller import GpuNode, NodePool, Reach, providers
from homeostat.gpu.kinds import POLICY, POOL
from homeostat.guards import Mode
from homeostat.loop.fleet import Fleet, Ref
from homeostat.providers.addresses import Hosts
from homeostat.testing import TestPlane

Object = dict[str, Any]
LEASE_SECONDS = 6
SECONDS = 60.0


class World(sharing.World):
    """As the governor's tests have it, with nodes and pools under the loop as well."""

    def __init__(self, plane: TestPlane, client: Client, folder: Path, own: Client) -> None:
        super().__init__(plane, client, folder, own)
        self.pools = client.kind(POOL.api_version, POOL.kind)
        self.policies = client.kind(POLICY.api_version, POLICY.kind)

    async def begin(self, kept: Sequence[Any] = ()) -> None:
        """Starts a loop that may do everything, or with these providers."""
        reach = Reach(("/",), Hosts(["127.0.0.1"]), self.folder / "pools", str(self.plane.kubeconfig))
        kept = kept or providers(reach)
        self.provider = kept[0]
        self.keeper, self.engine = assemble(self._own, kept, Mode.ENFORCE)
        await self.keeper.start()
        await self.engine.start()

    async def policy(self, **more: Any) -> None:
        """The GpuPolicy: quick, and without patience."""
        spec: Object = {
            "every": "500ms",
            "failure": {"lease": f"{LEASE_SECONDS}s"},
            "scaling": {"backlogAge": "0s", "idleNodesAfter": "1h"},
        }
        for name, part in more.items():
            spec[name] = {**spec.get(name, {}), **part}
        await self.policies.apply({"metadata": {"name": "default"}, "spec": spec}, field_manager="test", force=True)

    async def declare_pool(self, name: str = "p", **spec: Any) -> str:
        """A pool of simulated nodes with one H100 each, and its uid."""
        spec = {"model": "H100", "gpusPerNode": 1, "maximum": 4, "provision": {"simulated": True}, **spec}
        made = await self.pools.apply({"metadata": {"name": name}, "spec": spec}, field_manager="test", force=True)
        return str(made["metadata"]["uid"])

    async def pool_is(self, holds: Callable[[Object], bool], name: str = "p", seconds: float = SECONDS) -> Object:
        """Waits until it holds of the status of a pool; gives it."""
        found = await until(self.pools, name, lambda obj: holds(obj.get("status") or {}), seconds)
        status: Object = found["status"]
        return status

    async def up(self, count: int, name: str = "p") -> list[str]:
        """Waits until a pool has so many nodes that take work; gives their names."""
        await self.pool_is(lambda status: status.get("ready") == count and not status.get("coming"), name)
        found = [one for one in await self.nodes.list() if one["spec"].get("pool") == name]
        return sorted(one["metadata"]["name"] for one in found if one["status"].get("stage", "Open") == "Open")

    async def node_is(self, name: str, holds: Callable[[Object], bool], seconds: float = SECONDS) -> Object:
        """Waits until it holds of a node."""
        return await until(self.nodes, name, holds, seconds)

    async def node_goes(self, name: str, seconds: float = SECONDS) -> None:
        """Waits until a node is no more."""
        async with self.nodes.informer(fields=f"metadata.name={name}") as informer:
            await informer.wait_synced()
            await eventually(lambda: informer.get(name) is None, seconds)

    def agents(self, pool: str = "p") -> dict[str, int]:
        """The agents of simulated nodes that run, by node."""
        found = {}
        for record in (self.folder / "pools" / pool).glob("*/node.json"):
            pid = json.loads(record.read_bytes())["process"]["pid"]
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if b"agent" in words:
                    found[record.parent.name] = pid
        return found

    def kill(self, node: str, pool: str = "p") -> None:
        """Kills the agent of a simulated node with -9."""
        os.kill(self.agents(pool)[node], signal.SIGKILL)

    def pool_ref(self, name: str, uid: str) -> Ref:
        """As the loop knows a pool."""
        return Ref(NodePool.info.name, "", name, uid)

    @property
    def node_fleet(self) -> Fleet:
        """The nodes under their default policy."""
        return self.engine.fleets[f"default/{GpuNode.info.name}"]

    @property
    def pool_fleet(self) -> Fleet:
        """The pools under their default policy."""
        return self.engine.fleets[f"default/{NodePool.info.name}"]


class Stages:
    """Follows the stages that nodes go through."""

    def __init__(self, informer: Any) -> None:
        self._informer = informer
        self.of: dict[str, list[str]] = {}
        for obj in informer.all():
            self._heard(Key("", obj["metadata"]["name"]))
        informer.subscribe(self._heard)

    def _heard(self, key: Key) -> None:
        obj = self._informer.get(key.name)
        seen = self.of.setdefault(key.name, [])
        stage = "gone" if obj is None else (obj.get("status") or {}).get("stage", "Open")
        if not seen or seen[-1] != stage:
            seen.append(stage)


@contextlib.asynccontextmanager
async def pooled(plane: TestPlane, folder: Path) -> AsyncIterator[World]:
    """A control plane whose loop shares out GPUs, and gets and gives back nodes."""
    async with plane.client() as client, plane.client() as own:
        world = World(plane, client, folder, own)
        await world.begin()
        await world.policy()
        await world.quota(64)
        try:
            yield world
        finally:
            await world.end()
            world.clean()


CLOUD = """
place = pathlib.Path(asked["values"].get("place") or sys.argv[1])
with open(place.with_suffix(".log"), "a") as log:
    log.write(json.dumps(asked) + chr(10))
if place.with_suffix(".broken").exists():
    sys.exit("the cloud is not to be seen")
place.mkdir(exist_ok=True)
if asked["action"] == "get":
    (place / asked["key"]).touch()
    print(json.dumps({"node": "m-" + asked["key"]}))
elif asked["action"] == "giveBack":
    (place / asked["key"]).unlink(missing_ok=True)
else:
    print(json.dumps({"nodes": [{"key": one.name, "node": "m-" + one.name} for one in place.iterdir()]}))
"""


class Cloud:
    """A program by which a pool has nodes: files in a folder, whose agents a test starts. It writes down what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cloud"
        self.program = folder / "cloud.py"
        self.program.write_text(f"#!{sys.executable} -S\nimport json, os, pathlib, sys\nasked = json.load(sys.stdin)\n{CLOUD}")
        self.program.chmod(0o700)

    @property
    def provision(self) -> Object:
        return {"exec": [str(self.program), str(self.folder)]}

    def asked(self, action: str) -> list[Object]:
        """All that it was asked of a kind."""
        try:
            lines = self.folder.with_suffix(".log").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [one for one in map(json.loads, lines) if one["action"] == action]

    def holds(self) -> list[str]:
        """What it has."""
        return sorted(one.name for one in self.folder.iterdir()) if self.folder.exists() else []

    def fail(self, *, broken: bool = True) -> None:
        """From now on it cannot be read, or can again."""
        mark = self.folder.with_suffix(".broken")
        mark.touch() if broken else mark.unlink()
