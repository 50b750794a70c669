"""A definition keeps the fields that objects declare, also where a program defines the kind that does not know them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.loop.definitions import define
from homeostat.model.kinds import KindInfo, Spec, crd_for


class Bulb(Spec):
    watts: int = 10


class NewBulb(Spec):
    watts: int = 10
    socket: str = "E27"


class OldLamp(Spec):
    colour: str
    bulbs: list[Bulb] = []


class NewLamp(Spec):
    colour: str
    bulbs: list[NewBulb] = []
    dim: int = 0


def definition(spec: type[Spec]) -> dict[str, Any]:
    return crd_for(KindInfo("old.test.dev", "v1", "Lamp", spec))


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0))
    await server.start()
    found = local_client(server.plane, "loop")
    yield found
    await found.close()
    await server.stop()


async def touched(client: Client, spec: dict[str, Any]) -> Any:
    """What is left of a spec that the newer program knows, when the older has defined the kind and somebody writes a label."""
    await define(client, definition(NewLamp), "loop")
    lamps = client.kind("old.test.dev/v1", "Lamp", namespace="default")
    await lamps.create({"metadata": {"name": "hall"}, "spec": spec})
    await define(client, definition(OldLamp), "loop")
    return (await lamps.patch("hall", {"metadata": {"labels": {"a": "b"}}}))["spec"]


async def test_what_an_older_program_does_not_know_is_not_lost(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    spec = {"colour": "red", "dim": 3, "bulbs": [{"watts": 5, "socket": "E14"}]}
    assert await touched(client, spec) == spec
    assert "spec.bulbs.*.socket, spec.dim of lamps.old.test.dev is declared, and this program does not know it" in caplog.text


async def test_what_nobody_declares_otherwise_than_by_default_goes_with_its_field(client: Client) -> None:
    assert await touched(client, {"colour": "red", "bulbs": [{"watts": 5}]}) == {"colour": "red", "bulbs": [{"watts": 5}]}
    crd = await client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition").get("lamps.old.test.dev")
    assert "dim" not in str(crd["spec"])
