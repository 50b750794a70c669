"""What tests of the governor in the loop share: a control plane with the loop inside, agents with simulated GPUs, real processes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.gpu.agent import world as agents
from tests.gpu.agent.world import COUNTER, python

from homeostat.cli.controllers import assemble
from homeostat.client import Client
from homeostat.gpu.agent.simulated import Simulated
from homeostat.gpu.controller import Workload
from homeostat.gpu.kinds import POLICY, TENANT
from homeostat.guards import Mode
from homeostat.guards.keeper import Keeper
from homeostat.loop.engine import Engine
from homeostat.loop.fleet import Fleet
from homeostat.testing import TestPlane

Object = dict[str, Any]
LEASE_SECONDS = 4


class World(agents.World):
    """As the agents' tests have it, and the governor's own hand instead of ours."""

    keeper: Keeper
    engine: Engine
    provider: Workload

    def __init__(self, plane: TestPlane, client: Client, folder: Path, own: Client) -> None:
        super().__init__(plane, client, folder)
        self._own = own
        self.tenants = client.kind(TENANT.api_version, TENANT.kind)

    async def begin(self) -> None:
        """Starts a loop."""
        self.provider = Workload()
        self.keeper, self.engine = assemble(self._own, [self.provider], Mode.ENFORCE)
        await self.keeper.start()
        await self.engine.start()

    async def end(self) -> None:
        """Stops the loop."""
        await self.engine.stop()
        await self.keeper.stop()

    @property
    def fleet(self) -> Fleet:
        """The workloads under their default policy."""
        return self.engine.fleets[f"default/{Workload.info.name}"]

    async def quota(self, nominal: int) -> None:
        """The tenant `t` may use so many GPUs."""
        quotas = [{"model": "H100", "nominal": nominal}]
        spec = {"quotas": quotas, "namespaces": ["default"], "budget": {"gpuHours": 1000}}
        await self.tenants.apply({"metadata": {"name": "t"}, "spec": spec}, field_manager="test", force=True)

    async def declare(self, name: str, **spec: Any) -> str:
        """Submits a workload that counts, and gives its uid."""
        command = python(COUNTER, self.folder / f"{name}.n")
        made = await self.workloads.create({"metadata": {"name": name}, "spec": {"tenant": "t", "command": command, **spec}})
        return str(made["metadata"]["uid"])

    async def phase(self, name: str, *phases: str, seconds: float = 30.0) -> Object:
        """Waits until a workload is in one of these phases; gives it."""
        return await self.until(name, lambda obj: obj.get("status", {}).get("phase") in phases, seconds)

    async def running(self) -> list[str]:
        """The names of those that are said to run."""
        found = await self.workloads.list()
        return sorted(one["metadata"]["name"] for one in found if one.get("status", {}).get("phase") in ("Starting", "Running"))

    def node(self, name: str, gpus: int = 8) -> Any:
        return self.agent(name, Simulated.parse(f"{gpus}xH100"))


@contextlib.asynccontextmanager
async def governed(plane: TestPlane, folder: Path) -> AsyncIterator[World]:
    """A control plane whose loop shares out GPUs, and acts."""
    async with plane.client() as client, plane.client() as own:
        world = World(plane, client, folder, own)
        await world.begin()
        policies = client.kind(POLICY.api_version, POLICY.kind)
        spec = {"every": "1s", "failure": {"lease": f"{LEASE_SECONDS}s"}}
        await policies.create({"metadata": {"name": "default"}, "spec": spec})
        try:
            yield world
        finally:
            await world.end()
            world.clean()
