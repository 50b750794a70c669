"""The loop and its leases: it runs what it holds, and ends that when it cannot be sure of it any more."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.auth.user import AUTHENTICATED, MASTERS, User
from homeostat.api.local import LocalAnswer, LocalTransport
from homeostat.api.server import Listen, Server
from homeostat.cli import identity as module
from homeostat.cli.controllers import Loop
from homeostat.cli.identity import identity
from homeostat.client import Client, Unreachable
from homeostat.client.kinds import served_kinds
from homeostat.client.transport import Headers
from homeostat.guards import Mode
from homeostat.insight.fleets import look
from homeostat.insight.loops import Keeping, clock_of, loops_of, unkept_lines
from homeostat.loop.diff import Diff
from homeostat.loop.election import LAST_PASS, Election, Timing
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.clock import format_micro_time
from homeostat.model.errors import ApiError
from homeostat.model.kinds import Spec, crd_for

QUICK = Timing(lease=2.0, deadline=1.0, renew=0.3, retry=0.2, patience=0.3)


class LampSpec(Spec):
    colour: str


class Lamp(Provider[LampSpec, LampSpec], group="lamps.test.dev"):
    """A lamp in memory, which all loops share; an act may be made to last."""

    def __init__(self, world: dict[str, str], begun: list[str], done: list[str], gate: asyncio.Event) -> None:
        self.world, self.begun, self.done, self.gate = world, begun, done, gate

    async def observe(self, spec: LampSpec) -> LampSpec | Absent:
        colour = self.world.get(current().ref.name)
        return ABSENT if colour is None else LampSpec(colour=colour)

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        self.begun.append(f"{current().ref.name} {spec.colour}")
        await self.gate.wait()
        self.done.append(self.begun[-1])
        self.world[current().ref.name] = spec.colour

    async def delete(self, spec: LampSpec) -> None:
        self.world.pop(current().ref.name, None)


class Bell(Lamp, Provider[LampSpec, LampSpec], group="bells.test.dev"):
    """What opens only when its line is up."""

    up = False

    async def open(self, client: Client) -> None:
        if not self.up:
            raise ConnectionError("the line is dead")


class Way(LocalTransport):
    """A way to the server that can be cut."""

    cut = False
    refuses = "nothing"

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> LocalAnswer:
        if method == "PATCH" and self.refuses in target:
            raise ApiError(403, "Forbidden", "you may not")
        if self.cut:
            await asyncio.sleep(0.05)
            raise Unreachable("no way there", sent=False)
        return await super().send(method, target, headers, body)


class House:
    """A server, lamps, and loops that keep them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.world: dict[str, str] = {}
        self.begun: list[str] = []
        self.done: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.people = Client(self.way())
        self.lamps = self.people.kind("lamps.test.dev/v1", "Lamp", namespace="default")
        self.loops: list[Loop] = []

    def way(self) -> Way:
        return Way(self.server.plane, User("somebody", "", (MASTERS, AUTHENTICATED)))

    def loop(self, name: str, *beside: Provider[Any, Any], refuses: str = "nothing") -> tuple[Loop, Way]:
        way = self.way()
        way.refuses = refuses
        client = Client(way)
        loop = Loop(client, [*beside, Lamp(self.world, self.begun, self.done, self.gate)], Mode.ENFORCE, name)
        loop.election = Election(client, loop.names, name, timing=QUICK, notes=loop._notes)
        loop.begin()
        self.loops.append(loop)
        return loop, way

    async def unkept(self) -> dict[str, Keeping]:
        return (await look(self.people, [kind for kind in await served_kinds(self.people) if kind.kept])).unkept

    async def declare(self, name: str, colour: str) -> None:
        await self.lamps.apply({"metadata": {"name": name}, "spec": {"colour": colour}}, field_manager="me", force=True)


@pytest.fixture
def house(tmp_path: Path) -> Callable[[], Any]:
    @asynccontextmanager
    async def make() -> AsyncIterator[House]:
        server = Server(tmp_path, Listen.parse("127.0.0.1:0"), durable=False)
        await server.start()
        found = House(server)
        definitions = found.people.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        await definitions.apply(crd_for(Lamp.info), field_manager="me")
        try:
            yield found
        finally:
            for loop in found.loops:
                await loop.stop()
            await found.people.close()
            await server.stop()

    return make


async def until(holds: Callable[[], Any], within: float = 10.0) -> None:
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_loop_that_is_cut_off_ends_what_is_under_way_before_another_begins(house: Callable[[], Any]) -> None:
    async def work() -> None:
        async with house() as here:
            first, way = here.loop("first")
            await here.declare("hall", "red")
            await until(lambda: here.world.get("hall") == "red")
            here.gate.clear()
            await here.declare("hall", "green")
            await until(lambda: here.begun == ["hall red", "hall green"])
            way.cut = True
            await until(lambda: not first.election.held)
            await until(lambda: not first._running)
            here.gate.set()  # nobody waits for it any more
            await asyncio.sleep(0.1)
            assert here.done == ["hall red"]
            second, _ = here.loop("second")
            await until(lambda: here.world.get("hall") == "green")
            assert second.election.held
            way.cut = False
            await asyncio.sleep(1.0)
            assert not first.election.held
            assert here.done == ["hall red", "hall green"]

    asyncio.run(work())


def test_a_loop_that_was_cut_off_alone_goes_on_when_it_is_back(house: Callable[[], Any]) -> None:
    async def work() -> None:
        async with house() as here:
            first, way = here.loop("first")
            await until(lambda: first.election.held)
            way.cut = True
            await until(lambda: not first.election.held)
            way.cut = False
            await until(lambda: first.election.held)
            await here.declare("hall", "red")
            await until(lambda: here.world.get("hall") == "red")

    asyncio.run(work())


def test_a_provider_that_does_not_open_is_told_and_retried_while_the_others_are_kept(house: Callable[[], Any]) -> None:
    async def work() -> None:
        async with house() as here:
            bell = Bell(rung := {}, [], [], here.gate)
            here.loop("first", bell)
            await here.declare("hall", "red")
            await until(lambda: here.world.get("hall") == "red")
            bells = here.people.kind("bells.test.dev/v1", "Bell", namespace="default")
            await bells.create({"metadata": {"name": "door"}, "spec": {"colour": "brass"}})
            async with asyncio.timeout(5):
                while not (unkept := await here.unkept()):
                    await asyncio.sleep(0.05)
            (told,) = unkept_lines(unkept, 0.0)
            assert told.startswith("the loop cannot keep bells.bells.test.dev: ")
            assert "the line is dead; Bell.open raised it" in told
            bell.up = True
            await until(lambda: rung.get("door") == "brass")
            await here.declare("hall", "green")
            await until(lambda: here.world.get("hall") == "green")
            async with asyncio.timeout(5):
                while await here.unkept():
                    await asyncio.sleep(0.05)

    asyncio.run(work())


def test_a_loop_that_cannot_begin_says_why_where_people_look(house: Callable[[], Any]) -> None:
    async def work() -> None:
        async with house() as here:
            await here.declare("hall", "red")
            _, way = here.loop("first", refuses="guardpolicies")
            async with asyncio.timeout(5):
                while not (unkept := await here.unkept()):
                    await asyncio.sleep(0.05)
            assert unkept_lines(unkept, 0.0)[0].endswith("it tries again (you may not)")
            way.refuses = "nothing"
            await until(lambda: here.world.get("hall") == "red")
            async with asyncio.timeout(5):
                while await here.unkept():
                    await asyncio.sleep(0.05)

    asyncio.run(work())


def test_an_identity_is_known_again_and_never_shared(tmp_path: Path) -> None:
    name = identity(tmp_path)
    other = identity(tmp_path)  # while the first is held
    assert name != other
    for descriptor in module._held:  # as when the process ends
        os.close(descriptor)
    module._held.clear()
    assert identity(tmp_path) == name


def test_where_nothing_can_be_kept_it_is_a_new_one_each_time(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert identity(tmp_path / "file") != identity(tmp_path / "file")


def test_who_has_not_renewed_its_lease_for_long_or_gave_it_back_keeps_nothing() -> None:
    def lease(kind: str, holder: str, ago: float) -> dict[str, Any]:
        spec = {"holderIdentity": holder, "renewTime": format_micro_time(1000.0 - ago)}
        return {"metadata": {"name": f"homeostat-{kind}", "annotations": {LAST_PASS: "1970-01-01T00:15:00Z"}}, "spec": spec}

    found = loops_of([lease("alive", "a", 29), lease("silent", "b", 31), lease("left", "", 1), {"metadata": {"name": "other"}}], 1000.0)
    assert {kind: loop.there for kind, loop in found.items()} == {"alive": True, "silent": False, "left": False}
    assert found["silent"].heard == 969.0
    assert found["silent"].last_pass == 900.0
    behind = loops_of([lease("alive", "a", 0), lease("silent", "b", 31)], 900.0)  # the clock of who asks
    assert clock_of([lease("alive", "a", 0), {"metadata": {"name": "agent"}, "spec": lease("", "b", -420)["spec"]}], 900.0) == 1000.0
    assert [loop.there for loop in behind.values()] == [True, False]
