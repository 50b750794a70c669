"""Web servers that waited for the network used no CPU, looked idle, and were taken away while people queued for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.providers.autoscaler.days import TARGET, deployment, metric
from tests.scenarios.fleet import Figures, Fleet, live_through

from homeostat.providers.autoscaler import Autoscaler

INCIDENT = "Slack, 2021"
MUST_HOLD = "idle is what is idle by every signal; one that cannot be read is not idle"
LEAST = 2
HOUR = 3600


class Tier(Fleet):
    """A web tier of `size` servers whose number follows what is measured: their CPU, and how many of their workers are busy.

    A naive loop follows the CPU alone.
    """

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.house, fleet.naive, fleet.size)
        people = self.house.people
        self.deployments = people.kind("apps/v1", "Deployment", namespace="default")
        self.scalers = people.kind("homeostat.dev/v1alpha1", "Autoscaler", namespace="default")
        self.maps = people.kind("v1", "ConfigMap", namespace="default")

    async def stand(self, zones: int = 1, policy: dict[str, Any] | None = None, mode: str = "Enforce") -> None:
        self.house.providers = [Autoscaler(clock=self.house.clock)]
        await self.house.start_engine(self.gates)
        await self.deployments.apply(deployment(self.size), field_manager="people")
        await self.measure(cpu=60, workers=70)
        metrics = [metric("cpu", {"proportional": {"target": 60}})]
        if not self.naive:
            metrics.append(metric("workers", {"proportional": {"target": 70}}))
        spec = {"target": TARGET, "minReplicas": LEAST, "maxReplicas": self.size, "metrics": metrics}
        await self.scalers.apply({"metadata": {"name": "web"}, "spec": spec}, field_manager="people")
        self.names = [f"web-{i}" for i in range(self.size)]
        await asyncio.sleep(600)
        self.fault()

    async def measure(self, **values: float | None) -> None:
        """What is measured from now on; None: it cannot be read."""
        for name, value in values.items():
            if value is None:
                await self.maps.delete(name)
                continue
            found = {"metadata": {"name": name, "labels": {"metric": name}}, "data": {"value": str(value)}}
            await self.maps.apply(found, field_manager="people", force=True)

    async def running(self) -> int:
        return int((await self.deployments.get("web"))["spec"]["replicas"])

    async def damage(self) -> int:
        return self.size - await self.running()

    async def all_idle(self) -> bool:
        return await self.running() == LEAST


async def incident(fleet: Fleet) -> Figures:
    tier = Tier(fleet)
    await tier.stand()
    await tier.measure(cpu=5, workers=100)
    await asyncio.sleep(HOUR)
    return Figures(await tier.damage(), fleet.size, None, "—" if fleet.naive else "nothing to come back from")


async def half_seen(fleet: Fleet) -> Figures:
    """The CPU is idle, and nobody knows of the workers."""
    tier = Tier(fleet)
    await tier.stand()
    await tier.measure(cpu=5, workers=None)
    await asyncio.sleep(HOUR)
    damage = await tier.damage()
    said = (await tier.scalers.get("web"))["status"]
    assert "workers" in str(said)
    await tier.measure(workers=1)
    came = await tier.until(tier.all_idle)
    return Figures(damage, fleet.size, None, "by itself" if came else "not")


async def honest(fleet: Fleet) -> Figures:
    """at night both signals are idle"""
    tier = Tier(fleet)
    await tier.stand()
    await tier.measure(cpu=1, workers=1)
    return await tier.honest(tier.all_idle)


@pytest.mark.parametrize("size", [4, 20])
def test_what_is_starved_is_not_idle(size: int) -> None:
    assert live_through(incident, size=size).damage == 0


def test_what_cannot_be_read_is_not_idle() -> None:
    figures = live_through(half_seen)
    assert (figures.damage, figures.came_back) == (0, "by itself")


def test_what_is_idle_by_every_signal_becomes_small() -> None:
    figures = live_through(honest)
    assert figures.damage == 20 - LEAST
    assert figures.came_back.startswith("by itself")


def test_a_naive_loop_takes_away_what_it_sees_idle() -> None:
    assert live_through(incident, naive=True).damage >= 18
