"""A control plane with its dashboard and a loop over lamps in memory, and people who look at it over HTTPS."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.guards.keeper import Keeper
from homeostat.loop.diff import Diff
from homeostat.loop.engine import Engine
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Provider, current
from homeostat.model.kinds import Spec
from homeostat.web.mount import Dashboard

WAIT_SECONDS = 20.0
LAMPS = "lamps.lamps.test.dev"


class LampSpec(Spec):
    """A lamp."""

    colour: str


class LampState(Spec):
    """The same, as it is."""

    colour: str


class Lamp(Provider[LampSpec, LampState], group="lamps.test.dev"):
    """A lamp in memory."""

    def __init__(self) -> None:
        self.lit: dict[str, str] = {}

    async def observe(self, spec: LampSpec) -> LampState | Absent:
        colour = self.lit.get(current().ref.name)
        return ABSENT if colour is None else LampState(colour=colour)

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        self.lit[current().ref.name] = spec.colour

    async def delete(self, spec: LampSpec) -> None:
        self.lit.pop(current().ref.name, None)


class Page:
    """Somebody's browser, as far as the server can tell: no certificate, a token or none."""

    def __init__(self, url: str, http: aiohttp.ClientSession, token: str = "") -> None:
        self.url, self.http, self.token = url, http, token

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        data = None if body is None else json.dumps(body)
        async with self.http.request(
            method, self.url + path, data=data, headers=self.headers | headers, allow_redirects=False
        ) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if text.startswith("{") else text, reply.headers

    @asynccontextmanager
    async def stream(self, **topics: dict[str, str]) -> AsyncIterator[Lines]:
        async with self.http.post(
            self.url + "/ui/stream", data=json.dumps({"topics": topics}), headers=self.headers
        ) as reply:
            assert reply.status == 200, await reply.text()
            yield Lines(reply)


class Lines:
    """What a stream says, line by line."""

    def __init__(self, reply: aiohttp.ClientResponse) -> None:
        self._reply = reply

    async def next(self, name: str) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            while line := await self._reply.content.readline():
                if line.strip() and (said := json.loads(line)).pop("id") == name:
                    return dict(said)
        raise AssertionError("the stream ended")

    async def until(self, name: str, holds: Any) -> dict[str, Any]:
        said: dict[str, Any] = {}
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not holds(said := await self.next(name)):
                    pass
        except TimeoutError:
            raise AssertionError(f"it never said so; the last was {said}") from None
        return said


class House:
    """The server, its loop, and its data."""

    def __init__(self, server: Server, client: Client, lamp: Lamp, dashboard: Dashboard, http: aiohttp.ClientSession) -> None:
        self.server, self.client, self.lamp, self.dashboard, self.http = server, client, lamp, dashboard, http
        self.lamps = client.kind("lamps.test.dev/v1", "Lamp", namespace="default")

    def page(self, token: str = "") -> Page:
        return Page(self.server.url, self.http, token)

    async def admin(self) -> Page:
        page = self.page()
        code = self.dashboard.admin_link().partition("#code=")[2]
        _, session, _ = await page.ask("POST", "/ui/session", {"code": code})
        return self.page(session["token"])

    async def person(self, name: str, *groups: str) -> Page:
        spec = {"user": name, "groups": list(groups), "expirationSeconds": 3600}
        made = await self.client.kind("homeostat.dev/v1", "UserToken").create({"metadata": {"generateName": "t-"}, "spec": spec})
        return self.page(made["status"]["token"])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0), durable=False)
    await server.start()
    client, lamp = local_client(server.plane, "loop"), Lamp()
    gate = PolicyGate(mode=Mode.ENFORCE)
    engine = Engine(client, [lamp], gate, settle=0.005, workers=4)
    keeper = Keeper(client, gate, engine.controllers)
    keeper.attach(engine)
    await keeper.start()
    await engine.start()
    dashboard = Dashboard(server)
    trust = ssl.create_default_context(cafile=str(tmp_path / "data/pki/ca.crt"))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as http:
        yield House(server, client, lamp, dashboard, http)
    await engine.stop()
    await keeper.stop()
    await dashboard.stop()
    await client.close()
    await server.stop()
