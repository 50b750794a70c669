"""Services that are rendered from a template: regions declare which they have, a composer makes an object of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.scenarios.fleet import PASS, Fleet

from homeostat.loop.compose import Composer
from homeostat.model.kinds import Spec
from homeostat.model.protocol import CHANGE_SET

GROUP = "scenarios.homeostat.dev"
REGIONS = 4

Render = Callable[["RegionSpec", str], dict[str, str]]
"""A template: the services of a region by name, and what each is set to."""


class RegionSpec(Spec):
    """What a region has."""

    services: list[str] = []
    setting: str = "red"


class Region(Composer[RegionSpec], group=GROUP, scope="Namespaced"):
    """A region with services: a ConfigMap each."""

    def __init__(self) -> None:
        self.render: Render = as_declared

    def compose(self, spec: RegionSpec, parent: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
        for name, setting in self.render(spec, parent["metadata"]["name"]).items():
            labels = {"scenario": "services"}
            yield {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "labels": labels},
                "data": {"setting": setting},
            }


def as_declared(spec: RegionSpec, region: str) -> dict[str, str]:
    return {f"{region}-{service}": spec.setting for service in spec.services}


class Services(Fleet):
    """`size` services in `REGIONS` regions, all as declared."""

    def __init__(self, fleet: Fleet, regions: int = REGIONS) -> None:
        super().__init__(fleet.house, fleet.naive, fleet.size)
        self.template = Region()
        self.regions = {f"region-{i}": [f"service-{n}" for n in range(i, self.size, regions)] for i in range(regions)}
        self.maps = self.house.people.kind("v1", "ConfigMap", namespace="default")
        self.parents = self.house.people.kind(f"{GROUP}/v1", "Region", namespace="default")
        self._before: dict[str, tuple[str, str]] = {}

    async def stand(self, zones: int = 1, policy: dict[str, Any] | None = None, mode: str = "Enforce") -> None:
        self.house.composers = [self.template]
        await self.house.start_engine(self.gates, workers=16)
        if not self.naive:
            spec = {"fleet": {"kinds": ["configmaps"]}, "mode": mode, **(policy or {})}
            await self.house.policies.create({"metadata": {"name": "things"}, "spec": spec})
        self.names = sorted(f"{region}-{name}" for region, services in self.regions.items() for name in services)
        for region in self.regions:
            await self.set(region)
        await self.until(self.all_there)
        await asyncio.sleep(3 * PASS)
        self._before = await self.found()
        self.fault()

    async def set(
        self, region: str, setting: str = "red", services: list[str] | None = None, change_set: str = ""
    ) -> None:
        """Declares a region."""
        spec = {"services": self.regions[region] if services is None else services, "setting": setting}
        marks = {"annotations": {CHANGE_SET: change_set}} if change_set else {}
        await self.parents.apply(
            {"metadata": {"name": region, **marks}, "spec": spec}, field_manager="people", force=True
        )

    async def deploy(self, render: Render) -> None:
        """A new version of the template is rolled out: the loop is started anew with it."""
        self.house.crash()
        self.template.render = render
        await self.house.start_engine(self.gates, workers=16)

    async def found(self) -> dict[str, tuple[str, str]]:
        """The services that there are: their uid and what they are set to."""
        return {
            o["metadata"]["name"]: (o["metadata"]["uid"], o["data"]["setting"])
            for o in await self.maps.list(labels="scenario=services")
        }

    async def all_there(self, setting: str = "red") -> bool:
        """Whether all services are there, and set so."""
        found = await self.found()
        return sorted(found) == self.names and all(one[1] == setting for one in found.values())

    async def calm(self) -> bool:
        """Whether all services are there, and nothing is halted or held."""
        return await self.all_there() and not await self.says()

    async def damage(self) -> int:
        after = await self.found()
        return sum(1 for name, before in self._before.items() if after.get(name) != before)

    async def says(self) -> str:
        if not self.naive:
            policy = await self.house.policies.get("things")
            for halt in (policy.get("status") or {}).get("halts") or ():
                return str(halt["reason"])
        for region in await self.parents.list():
            for condition in (region.get("status") or {}).get("conditions", ()):
                if condition["type"] == "Ready" and "held by" in condition["message"]:
                    return str(condition["message"])
        return ""
