"""A control plane, a loop whose people get told, and lamps in memory that can be broken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.guards.policy import Alert
from homeostat.guards.posting import Hosts
from homeostat.guards.telling import Telling
from homeostat.loop.diff import Diff
from homeostat.loop.engine import Engine
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.kinds import Spec

KIND = "lamps.told.test.dev"
T = TypeVar("T")


class LampSpec(Spec):
    """A lamp as it should be."""

    colour: str


class LampState(Spec):
    """A lamp as it is."""

    colour: str


class Lamp(Provider[LampSpec, LampState], group="told.test.dev"):
    """A lamp in memory."""

    def __init__(self) -> None:
        self.world: dict[str, str] = {}
        self.broken: dict[str, str] = {}  # by what to break: observe, apply

    def _fail(self, what: str) -> None:
        if what in self.broken:
            raise ConnectionError(self.broken[what])

    async def observe(self, spec: LampSpec) -> LampState | Absent:
        self._fail("observe")
        colour = self.world.get(current().ref.name)
        return ABSENT if colour is None else LampState(colour=colour)

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        self._fail("apply")
        self.world[current().ref.name] = spec.colour

    async def delete(self, spec: LampSpec) -> None:
        self.world.pop(current().ref.name, None)


class House:
    """Lamps under a loop. `start` it as often as you like: it forgets everything in between, but the API and the lamps."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client: Client = local_client(server.plane, "loop")
        self.lamps = self.client.kind("told.test.dev/v1", "Lamp", namespace="default")
        self.policies = self.client.kind("homeostat.dev/v1alpha1", "GuardPolicy")
        self.provider = Lamp()
        self.engine: Engine
        self.keeper: Keeper
        self.telling: Telling

    async def start(self, always: tuple[Alert, ...] = (), calm: float = 0.05, hosts: Hosts | None = None) -> None:
        gate = PolicyGate(mode=Mode.ENFORCE)
        self.telling = Telling(self.client, gate, always, calm=calm, hosts=hosts)
        self.engine = Engine(self.client, [self.provider], gate, workers=4, listeners=self.telling.listeners)
        self.keeper = Keeper(self.client, gate, self.engine.controllers)
        self.keeper.attach(self.engine)
        self.telling.attach(self.keeper, self.engine)
        await self.keeper.start()
        await self.engine.start()

    async def stop(self) -> None:
        await self.engine.stop()
        await self.keeper.stop()

    async def declare(self, name: str, colour: str) -> None:
        await self.lamps.apply(
            {"metadata": {"name": name}, "spec": {"colour": colour}}, field_manager="test", force=True
        )

    async def lit(self, names: list[str], colour: str = "red") -> None:
        """Declares lamps and waits until they are there and were looked at as a whole."""
        for name in names:
            await self.declare(name, colour)
        await until(lambda: all(self.provider.world.get(name) == colour for name in names))
        await self.whole_pass()

    async def whole_pass(self) -> None:
        fleets = self.engine.fleets
        await until(lambda: not self.engine.passes.under_way)
        self.engine.passes.begin()
        await until(lambda: not self.engine.passes.under_way and all(fleet.passes_done for fleet in fleets.values()))

    async def calm(self) -> None:
        """Looks again and again until nothing is halted any more."""
        async with asyncio.timeout(10):
            while any(fleet.halts for fleet in self.engine.fleets.values()):
                await self.whole_pass()
                await asyncio.sleep(0.15)  # a decision waits for the last look

    async def events(self, name: str, reason: str = "") -> list[dict[str, Any]]:
        """The events about an object, the oldest first."""
        fields = f"involvedObject.name={name}" + (f",reason={reason}" if reason else "")
        found = await self.client.kind("v1", "Event", namespace="default").list(fields=fields)
        return sorted(found, key=lambda event: event["metadata"]["name"])

    async def event(self, name: str, reason: str) -> dict[str, Any]:
        """The first event about an object with this reason, once it is there."""
        return (await eventually(lambda: self.events(name, reason)))[0]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


async def eventually(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, once it is a yes."""
    async with asyncio.timeout(10):
        while not (found := await ask()):
            await asyncio.sleep(0.005)
        return found


@asynccontextmanager
async def house(tmp_path: Path) -> AsyncIterator[House]:
    """A house whose loop has not begun."""
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0))
    await server.start()
    one = House(server)
    try:
        yield one
    finally:
        await one.client.close()
        await server.stop()
