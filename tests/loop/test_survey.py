"""Many resources by few calls: a full pass opens only what has moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.loop.diff import Diff
from homeostat.loop.engine import Engine
from homeostat.loop.fleet import Ref
from homeostat.loop.observation import ABSENT, Absent, Unknown
from homeostat.loop.provider import Provider, current
from homeostat.model.kinds import Spec

SIZE = 30


class BulbSpec(Spec):
    """A bulb as it should be."""

    watts: int = 10


class BulbState(Spec):
    """A bulb as it is."""

    watts: int


class Bulb(Provider[BulbSpec, BulbState], group="bulbs.test.dev"):
    """A bulb in memory, of which many can be seen at once."""

    def __init__(self) -> None:
        self.world: dict[str, int] = {}
        self.looked: list[str] = []
        self.surveyed = 0
        self.lost: set[str] = set()
        self.down = False

    async def observe(self, spec: BulbSpec) -> BulbState | Absent:
        name = current().ref.name
        self.looked.append(name)
        return BulbState(watts=self.world[name]) if name in self.world else ABSENT

    async def apply(self, spec: BulbSpec, diff: Diff) -> None:
        self.world[current().ref.name] = spec.watts

    async def delete(self, spec: BulbSpec) -> None:
        self.world.pop(current().ref.name, None)

    async def observe_all(self, specs: Mapping[Ref, BulbSpec]) -> Mapping[Ref, BulbState | Absent | Unknown]:
        self.surveyed += 1
        if self.down:
            raise ConnectionError("no answer")
        return {ref: BulbState(watts=self.world[ref.name]) for ref in specs if ref.name in self.world and ref.name not in self.lost}


class House:
    def __init__(self, client: Client) -> None:
        self.bulbs = client.kind("bulbs.test.dev/v1", "Bulb", namespace="default")
        self.provider = Bulb()
        self.engine = Engine(client, [self.provider], PolicyGate(mode=Mode.ENFORCE), settle=0.01)

    async def until_quiet(self) -> None:
        """Until all is as declared, and nothing is worked on."""
        async with asyncio.timeout(10):
            while len(self.provider.world) < SIZE or self.engine.passes.under_way or self.engine.ledger.seen:
                await asyncio.sleep(0.005)
            await self.engine.queue.join()

    async def whole_pass(self) -> list[str]:
        """A pass; gives who was looked at by itself."""
        await self.until_quiet()
        self.provider.looked.clear()
        self.engine.passes.begin()
        await self.until_quiet()
        return sorted(set(self.provider.looked))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0), durable=False)
    await server.start()
    client = local_client(server.plane, "loop")
    house = House(client)
    await house.engine.start()
    for n in range(SIZE):
        await house.bulbs.create({"metadata": {"name": f"bulb-{n:02}"}, "spec": {}})
    await house.until_quiet()
    await asyncio.sleep(0.05)  # the fleet is new, and wants a pass of its own
    await house.until_quiet()
    yield house
    await house.engine.stop()
    await client.close()
    await server.stop()


async def test_what_has_not_moved_is_not_opened(house: House) -> None:
    before = house.provider.surveyed
    assert await house.whole_pass() == []
    assert house.provider.surveyed > before


async def test_what_drifted_is_found_and_repaired(house: House) -> None:
    house.provider.world["bulb-07"] = 60
    assert await house.whole_pass() == ["bulb-07"]
    assert house.provider.world["bulb-07"] == 10


async def test_what_vanished_is_found_and_made_again(house: House) -> None:
    del house.provider.world["bulb-07"]
    house.provider.looked.clear()
    house.engine.passes.begin()
    await house.until_quiet()
    assert house.provider.world["bulb-07"] == 10


async def test_what_the_answer_leaves_out_is_looked_at_by_itself(house: House) -> None:
    house.provider.lost = {"bulb-01", "bulb-02"}
    assert await house.whole_pass() == ["bulb-01", "bulb-02"]


async def test_where_the_many_cannot_be_seen_each_one_is(house: House) -> None:
    house.provider.down = True
    assert len(await house.whole_pass()) == SIZE


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (None, "Bulb.observe_all returned None; it returns a mapping from the Refs that it was given to their states"),
        ({"bulb-01": BulbState(watts=10)}, "Bulb.observe_all returned a mapping with a str as a key"),
        ({Ref("bulbs.bulbs.test.dev", "default", "bulb-01", ""): {"watts": 10}}, "Bulb.observe_all returned a dict for bulb-01; it returns a BulbState"),
    ],
)
async def test_an_answer_about_many_that_is_none_is_named_and_each_is_looked_at(
    house: House, states: Any, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def observe_all(specs: object) -> Any:
        return states

    monkeypatch.setattr(house.provider, "observe_all", observe_all)
    assert len(await house.whole_pass()) == SIZE
    assert told in caplog.text


async def test_health_that_is_never_told_of_many_keeps_no_pass_from_its_end(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unhealthy(self: Bulb, spec: BulbSpec, state: BulbState) -> str:
        if not house.provider.looked:
            await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(Bulb, "unhealthy", unhealthy)
    monkeypatch.setattr(Bulb, "deadline", 0.05)
    assert len(await house.whole_pass()) == SIZE


async def test_what_was_written_to_is_looked_at_by_itself_once(house: House) -> None:
    await house.bulbs.patch("bulb-03", {"metadata": {"labels": {"room": "hall"}}})
    assert await house.whole_pass() == ["bulb-03"]
    assert await house.whole_pass() == []


async def test_a_pass_over_what_has_not_moved_writes_nothing(house: House) -> None:
    before = (await house.bulbs.list()).resource_version
    await house.whole_pass()
    assert (await house.bulbs.list()).resource_version == before
