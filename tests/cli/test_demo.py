"""The live example: a house that keeps itself warm."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homeostat.api.server import Listen, Server
from homeostat.cli import demo
from homeostat.client import Client
from homeostat.model.conditions import condition_is

from .conftest import Up

ROOM: dict[str, Any] = {"metadata": {"name": "kitchen", "generation": 3}, "spec": {"target": 21, "heater": 2}}


@given(target=st.floats(12, 30), start=st.floats(-10, 40), heater=st.floats(2, 5))
def test_a_room_comes_to_its_target_and_stays(target: float, start: float, heater: float) -> None:
    spec = {"target": target, "heater": heater}
    temperature, heating = start, False
    readings = []
    for _ in range(600):
        reading = demo.step(spec, temperature, heating)
        temperature, heating = reading.temperature, reading.heating
        readings.append(reading)
    arrived = next(n for n, reading in enumerate(readings) if reading.ready)
    assert arrived < 400
    assert all(reading.ready for reading in readings[arrived:])


def test_a_heater_that_cannot_do_it_is_named() -> None:
    reading = demo.step({"target": 30, "heater": 0.2}, 15.0, True)
    assert (reading.ready, reading.reason) == (False, "HeaterTooWeak")
    assert not demo.step({"target": 21, "heater": 0}, 15.0, False).heating


def test_status_is_written_only_where_it_says_something_new() -> None:
    reading = demo.step(ROOM["spec"], 21.0, False)
    status = demo.report(ROOM, reading, "2026-01-01T00:00:00Z")
    assert status is not None
    assert status["observedGeneration"] == 3
    room = {**ROOM, "status": status}
    assert condition_is(room, "Ready")
    assert condition_is(room, "Progressing", "False")
    assert demo.report(room, reading, "2026-01-01T00:00:09Z") is None
    cold = demo.report(room, demo.step(ROOM["spec"], 12.0, False), "2026-01-01T00:00:09Z")
    assert cold is not None
    assert cold["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:09Z"


async def test_the_house_follows_what_is_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TICK_SECONDS", 0.01)
    server = Server(tmp_path, Listen(port=0), durable=False)
    await server.start()
    house = demo.Demo(server)
    await house.start()
    async with Client.from_kubeconfig(server.kubeconfig) as client:
        rooms = client.kind(demo.API_VERSION, "Thermostat")

        async def ready(name: str, generation: int) -> dict[str, Any]:
            async with asyncio.timeout(20), rooms.watch(fields=f"metadata.name={name}") as events:
                async for event in events:
                    seen = (event.object.get("status") or {}).get("observedGeneration") == generation
                    if seen and condition_is(event.object, "Ready"):
                        return event.object
            raise AssertionError("a watch does not end")

        await ready("kitchen", 1)
        await rooms.patch("kitchen", {"spec": {"target": 25}}, namespace="default")
        warm = await ready("kitchen", 2)
        assert warm["status"]["temperature"] >= 24
        events = await client.kind("v1", "Event").list(fields="involvedObject.name=kitchen")
        assert {"HeatingUp", "AsDeclared"} <= {event["reason"] for event in events}
        # What its people did is kept: a room that is gone stays gone.
        await rooms.delete("cellar", namespace="default")
        await house.stop()
        again = demo.Demo(server)
        await again.start()
        names = [room["metadata"]["name"] for room in await rooms.list()]
        assert "cellar" not in names
        assert (await rooms.get("kitchen", namespace="default"))["spec"]["target"] == 25
        await again.stop()
    await server.stop()


def test_up_shows_what_to_try(start: Callable[..., Up]) -> None:
    up = start("--demo")
    for line in demo.TRY:
        assert f"  {line}\n" in up.said
        assert shlex.split(line)[0] == "kubectl"
    assert up.stop() < 2
    assert "Traceback" not in up.said
