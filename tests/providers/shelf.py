"""A small REST server with things on it, and with everything that REST servers do to their clients."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
from aiohttp import web


class Shelf:
    """Things under /things/NAME, with ETags and merge patches; a collection at /things that gives ids."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []  # writes
        self.headers: list[dict[str, str]] = []  # of all requests
        self.answers: list[web.Response] = []  # given instead, first come first served
        self.refuses: dict[str, tuple[int, str]] = {}  # by method, until it is taken out
        self.lose: set[str] = set()  # methods that are done, and whose answer is lost
        self.honours_keys = True
        self.url = ""
        self._keys: dict[str, str] = {}
        self._count = 0

    def writes(self, *methods: str) -> int:
        return sum(1 for method, _ in self.calls if not methods or method in methods)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix("/things").strip("/")
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        if request.method != "GET":
            self.calls.append((request.method, name))
        if self.answers:
            return self.answers.pop(0)
        if request.method in self.refuses:
            status, text = self.refuses[request.method]
            return web.Response(status=status, text=text)
        answer = self._answer(request.method, name, request, await request.read())
        if request.method in self.lose:
            self.lose.discard(request.method)
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(0)
        return answer

    def _answer(self, method: str, name: str, request: web.Request, body: bytes) -> web.Response:
        if not name:
            return self._collection(method, request, body)
        thing = self.things.get(name)
        if request.headers.get("If-None-Match") == "*" and thing is not None:
            return web.Response(status=412)
        if "If-Match" in request.headers and (thing is None or request.headers["If-Match"] != etag(thing)):
            return web.Response(status=412)
        if method == "PUT":
            self.things[name] = orjson.loads(body)
        elif thing is None:
            return web.Response(status=404)
        elif method == "PATCH":
            assert request.content_type == "application/merge-patch+json"
            merge(thing, orjson.loads(body))
        elif method == "DELETE":
            del self.things[name]
            return web.Response(status=204)
        return shown(self.things[name])

    def _collection(self, method: str, request: web.Request, body: bytes) -> web.Response:
        if method == "GET":
            return shown({"items": [{"id": name, **thing} for name, thing in self.things.items()]})
        key = request.headers.get("Idempotency-Key", "")
        if not (self.honours_keys and key in self._keys):
            self._count += 1
            self._keys[key] = f"t{self._count}"
            self.things[self._keys[key]] = orjson.loads(body)
        return shown({"id": self._keys[key]}, 201)


def etag(thing: dict[str, Any]) -> str:
    return f'"{hashlib.sha256(orjson.dumps(thing, option=orjson.OPT_SORT_KEYS)).hexdigest()[:12]}"'


def shown(thing: dict[str, Any], status: int = 200) -> web.Response:
    headers = {"ETag": etag(thing)}
    return web.Response(status=status, body=orjson.dumps(thing), headers=headers, content_type="application/json")


def merge(thing: dict[str, Any], patch: dict[str, Any]) -> None:
    for name, value in patch.items():
        if value is None:
            thing.pop(name, None)
        elif isinstance(value, dict) and isinstance(thing.get(name), dict):
            merge(thing[name], value)
        else:
            thing[name] = value


@asynccontextmanager
async def shelf(tls: ssl.SSLContext | None = None) -> AsyncIterator[Shelf]:
    one = Shelf()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", one.handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    one.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    try:
        yield one
    finally:
        await runner.cleanup()
