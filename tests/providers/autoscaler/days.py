"""A control plane and an autoscaler in virtual time: hours pass in a moment, and every write is counted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from homeostat.api.local import LocalAnswer
from homeostat.client import Client, Unreachable
from homeostat.client.transport import Headers
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.loop.engine import Engine
from homeostat.providers.autoscaler import Autoscaler
from homeostat.sim.loop import SimClock, SimLoop
from homeostat.sim.server import Line, Server, template

Object = dict[str, Any]

TARGET: Object = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def metric(name: str, law: Object) -> Object:
    """A metric that is the number in a ConfigMap of this name; without the ConfigMap it cannot be read."""
    over = {"apiVersion": "v1", "kind": "ConfigMap", "labels": f"metric={name}"}
    return {"name": name, "cel": {"expression": "double(objects[0].data.value)", "over": over}, "law": law}


def deployment(replicas: int, name: str = "web") -> Object:
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


class Wire(Line):
    """The loop's way to the server, on which the scaling of one Deployment may get lost."""

    lost = ""

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> LocalAnswer:
        if method == "PATCH" and self.lost and f"/deployments/{self.lost}/scale" in target:
            raise Unreachable("not now", sent=False)
        return await super().send(method, target, headers, body)


class Days:
    """A Deployment `web`, an Autoscaler `web`, and the loop."""

    def __init__(self, server: Server, clock: SimClock) -> None:
        self.server = server
        self.clock = clock
        self.people = Client(Line(server, "people"), source=random.Random(1))
        self.scalers = self.people.kind("homeostat.dev/v1alpha1", "Autoscaler", namespace="default")
        self.deployments = self.people.kind("apps/v1", "Deployment", namespace="default")
        self.maps = self.people.kind("v1", "ConfigMap", namespace="default")
        self.engine: Engine
        self.wire: Wire

    async def start(self, mode: Mode = Mode.ENFORCE) -> None:
        """Starts the loop, with a provider that remembers nothing."""
        self.wire = Wire(self.server, "loop")
        client = Client(self.wire, source=random.Random(2))
        source = random.Random(3)
        provider = Autoscaler(clock=self.clock)
        self.engine = Engine(client, [provider], PolicyGate(mode=mode), clock=self.clock, source=source)
        await self.engine.start()

    async def declare(
        self, *metrics: Object, name: str = "web", annotations: dict[str, str] | None = None, **spec: Any
    ) -> None:
        whole = {"target": TARGET, "minReplicas": 1, "maxReplicas": 20, "metrics": list(metrics), **spec}
        metadata = {"name": name, "annotations": annotations or {}}
        await self.scalers.apply({"metadata": metadata, "spec": whole}, field_manager="test", force=True)

    async def measure(self, **values: float | str | None) -> None:
        """What metrics say from now on; None: they cannot be read."""
        for name, value in values.items():
            if value is None:
                await self.maps.delete(name)
                continue
            found = {"metadata": {"name": name, "labels": {"metric": name}}, "data": {"value": str(value)}}
            await self.maps.apply(found, field_manager="test", force=True)

    async def scale(self, replicas: int) -> None:
        """By hand."""
        await self.deployments.patch("web", {"spec": {"replicas": replicas}}, field_manager="kubectl")

    async def replicas(self) -> int:
        return int((await self.deployments.get("web"))["spec"]["replicas"])

    async def status(self, name: str = "web") -> Object:
        return dict((await self.scalers.get(name)).get("status") or {})

    async def path(self, seconds: float, every: float = 15.0) -> list[int]:
        """How many replicas there were, each time that the number changed, over so many seconds from now."""
        seen = [await self.replicas()]
        for _ in range(round(seconds / every)):
            await asyncio.sleep(every)
            if (now := await self.replicas()) != seen[-1]:
                seen.append(now)
        return seen

    @property
    def writes(self) -> int:
        return self.server.store.revision


def over_time(story: Callable[[Days], Awaitable[None]], replicas: int = 2) -> None:
    """Plays a story in virtual time, from a Deployment of so many replicas on."""
    template()

    async def play() -> None:
        clock = SimClock(asyncio.get_running_loop())
        server = Server(random.Random(0), clock, lambda events, revision: None)
        await server.start()
        days = Days(server, clock)
        await days.deployments.apply(deployment(replicas), field_manager="test")
        await days.start()
        try:
            await story(days)
        finally:
            await days.engine.stop()
            await server.close()

    with asyncio.Runner(loop_factory=lambda: SimLoop(random.Random(0))) as runner:
        runner.run(play())
