"""A webhook: a real server on loopback that keeps what it is sent, and can be told to fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Hook:
    """Where alerts arrive."""

    def __init__(self) -> None:
        self.url = ""
        self.arrived: list[tuple[float, Any]] = []  # when (on the clock of the event loop), and what
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status = 200
        self.stuck: asyncio.Event | None = None

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.requests.append((dict(request.headers), body))
        if self.stuck is not None:
            await self.stuck.wait()
        if self.status == 200:
            self.arrived.append((asyncio.get_running_loop().time(), await request.json()))
        return web.Response(status=self.status)

    @property
    def messages(self) -> list[Any]:
        return [message for _, message in self.arrived]

    async def until(self, holds: Callable[[list[Any]], bool]) -> list[Any]:
        """What has arrived, once the condition holds of it."""
        async with asyncio.timeout(10):
            while not holds(self.messages):
                await asyncio.sleep(0.002)
        return self.messages

    async def count(self, number: int) -> list[Any]:
        return await self.until(lambda messages: len(messages) >= number)


@asynccontextmanager
async def hook(path: str = "/hook") -> AsyncIterator[Hook]:
    one = Hook()
    app = web.Application()
    app.router.add_post(path, one.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    one.url = f"http://127.0.0.1:{port}{path}"
    try:
        yield one
    finally:
        await runner.cleanup()
