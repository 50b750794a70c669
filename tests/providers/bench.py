"""A control plane in process, the real engine on it, and ways to wait for what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homeostat.api.local import local_client
from homeostat.api.server import Listen, Server
from homeostat.client import Client, Resource
from homeostat.guards import Mode
from homeostat.guards.gate import PolicyGate
from homeostat.loop.engine import Engine
from homeostat.loop.provider import Provider
from homeostat.model.errors import ApiError

WAIT_SECONDS = 10.0


class Bench:
    """One kind under the loop. Everything is in the namespace `default`."""

    def __init__(self, client: Client, make: Callable[[], Provider[Any, Any]]) -> None:
        self.client = client
        self.patience = WAIT_SECONDS
        self._make = make
        self.provider = make()
        info = self.provider.info
        self.kind: Resource[dict[str, Any]] = client.kind(info.api_version, info.kind, namespace="default")
        self.engine: Engine
        self.gate: PolicyGate

    async def start(self) -> None:
        """Starts the loop, with a provider that remembers nothing."""
        self.provider = self._make()
        self.gate = PolicyGate(mode=Mode.ENFORCE)
        self.engine = Engine(self.client, [self.provider], self.gate, settle=0.005, workers=4)
        await self.engine.start()

    async def stop(self) -> None:
        await self.engine.stop()

    async def declare(self, name: str, spec: dict[str, Any], annotations: dict[str, str] | None = None) -> None:
        metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
        await self.kind.apply({"metadata": metadata, "spec": spec}, field_manager="test", force=True)

    async def secret(self, name: str, **values: str) -> None:
        obj = {"metadata": {"name": name}, "stringData": values}
        await self.client.kind("v1", "Secret", namespace="default").apply(obj, field_manager="test", force=True)

    async def until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The resource, once the condition holds of it."""
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(self.patience):
                while not holds(found := await self.kind.get(name)):
                    await asyncio.sleep(min(self.patience / 2000, 0.05))
        except TimeoutError:
            raise AssertionError(f"{name} never was so; it is {found.get('status')}") from None
        return found

    async def ready(self, name: str) -> dict[str, Any]:
        return await self.until(name, lambda obj: condition(obj, "Ready") == "True")

    async def reason(self, name: str, reason: str) -> str:
        """The message of Ready, once it has this reason."""
        found = await self.until(name, lambda obj: ready(obj).get("reason") == reason)
        return str(ready(found)["message"])

    async def gone(self, name: str) -> None:
        async with asyncio.timeout(self.patience):
            while True:
                try:
                    await self.kind.get(name)
                except ApiError as error:
                    if error.code != 404:
                        raise
                    return
                await asyncio.sleep(0.005)

    def look_again(self) -> None:
        self.engine.passes.begin()

    async def whole_pass(self) -> None:
        """Looks at everything once."""
        while self.engine.passes.under_way:
            await asyncio.sleep(0.002)
        self.look_again()
        while self.engine.passes.under_way:
            await asyncio.sleep(0.002)


def ready(obj: dict[str, Any]) -> dict[str, Any]:
    """The condition Ready, if it is about the present generation."""
    for found in (obj.get("status") or {}).get("conditions", ()):
        if found["type"] == "Ready" and found["observedGeneration"] == obj["metadata"]["generation"]:
            return dict(found)
    return {}


def condition(obj: dict[str, Any], kind: str) -> str:
    for found in (obj.get("status") or {}).get("conditions", ()):
        if found["type"] == kind and found["observedGeneration"] == obj["metadata"]["generation"]:
            return str(found["status"])
    return ""


@asynccontextmanager
async def running(tmp_path: Path, make: Callable[[], Provider[Any, Any]]) -> AsyncIterator[Bench]:
    server = Server(tmp_path / "data", Listen("127.0.0.1", 0), durable=False)
    await server.start()
    client = local_client(server.plane, "loop")
    bench = Bench(client, make)
    await bench.start()
    try:
        yield bench
    finally:
        await bench.stop()
        await client.close()
        await server.stop()
