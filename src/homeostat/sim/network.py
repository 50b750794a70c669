"""The way between the loop and the API server, on which everything may happen that happens to networks and caches.

Requests are late, get lost before or after the server acted on them, or are refused for the moment. A watch breaks off, is held
back (its reader does not see what everybody else sees), or begins in the past: the server it reached had fallen behind, so time
goes backwards for the reader. These are the three patterns that break controllers: unobserved, stale, and time travel.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import parse_qsl, urlencode

import msgspec
import orjson

from homeostat.client.transport import Answer, Headers, Unreachable
from homeostat.model.errors import unavailable
from homeostat.model.protocol import INITIAL_EVENTS_END
from homeostat.sim.server import Server


class Weather(msgspec.Struct, frozen=True):
    """How bad the way is: each a chance from 0 to 1, or seconds. The default is a fine day."""

    late: float = 0.0
    """That a request or its answer takes up to `latest` seconds."""
    latest: float = 2.0
    lost: float = 0.0
    """That a request, or its answer, does not arrive."""
    refused: float = 0.0
    """That the server says 503."""
    broken: float = 0.0
    """That a watch breaks off, at each of its events."""
    held: float = 0.0
    """That a watch is held back for up to `longest` seconds, at each of its events."""
    longest: float = 90.0
    past: float = 0.0
    """That a watch that begins with the whole collection begins in the past."""
    behind: int = 40
    """How many revisions the past may be away."""


FINE = Weather()


class Place(Protocol):
    """Where a network is: what its weather is at present, how far the server's store has come, and who hears what is sent."""

    weather: Weather

    @property
    def revision(self) -> int: ...

    def sent(self, method: str, target: str, body: bytes) -> None: ...


class Network:
    """A transport to the server. Requests are served in the life of the server: they go on when the client dies."""

    def __init__(self, server: Server, user: str, source: random.Random, place: Place) -> None:
        self._server = server
        self._user = user
        self._random = source
        self._place = place
        self._open: list[_Stream] = []

    @property
    def weather(self) -> Weather:
        return self._place.weather

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        weather = self.weather
        self._place.sent(method, target, body)
        await self._be_late(weather)
        if self._happens(weather.lost / 2):
            raise Unreachable("the connection was refused", sent=False)
        if self._happens(weather.refused):
            return _Whole(503, orjson.dumps(unavailable("try again").status()))
        streams = "watch=true" in target
        if streams and "sendInitialEvents=true" in target and self._happens(weather.past):
            return self._keep(_Stream(self, await self._from_the_past(target, headers)))
        answer = await self._ask(method, target, headers, body)
        if streams:
            return self._keep(_Stream(self, answer)) if answer.status < 400 else answer
        received = await answer.read()
        await self._be_late(weather)
        if self._happens(weather.lost / 2):
            raise Unreachable("the connection broke off", sent=True)
        return _Whole(answer.status, received, answer.headers)

    async def close(self) -> None:
        self.cut()

    def cut(self) -> None:
        """The client died: the server sees its connections closed."""
        for stream in self._open:
            stream.answer.close()
        self._open.clear()

    def release(self) -> None:
        """What is held back arrives."""
        for stream in self._open:
            stream.released.set()

    async def _ask(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        return await self._server.ask(self._user, method, target, headers, body)

    async def _from_the_past(self, target: str, headers: Headers) -> Answer:
        """A watch that begins with the collection as it was, and goes on from there after a while."""
        path, _, query = target.partition("?")
        params = dict(parse_qsl(query))
        then = max(1, self._place.revision - self._random.randint(1, self.weather.behind))
        chosen = {k: v for k, v in params.items() if k.endswith("Selector")}
        when = {"resourceVersion": str(then), "resourceVersionMatch": "Exact"}
        listed = await self._ask("GET", f"{path}?{urlencode({**chosen, **when})}", headers, b"")
        received = await listed.read()
        if listed.status >= 400:
            return _Whole(listed.status, received, listed.headers)
        collection = orjson.loads(received)
        lines = [orjson.dumps({"type": "ADDED", "object": one}) for one in collection["items"]]
        end = {"resourceVersion": str(then), "annotations": {INITIAL_EVENTS_END: "true"}}
        kind = collection["kind"].removesuffix("List")
        mark = {"apiVersion": collection["apiVersion"], "kind": kind, "metadata": end}
        lines.append(orjson.dumps({"type": "BOOKMARK", "object": mark}))
        del params["sendInitialEvents"], params["resourceVersionMatch"]
        params["resourceVersion"] = str(then)
        rest = await self._ask("GET", f"{path}?{urlencode(params)}", headers, b"")
        return _Joined(b"\n".join(lines) + b"\n", rest) if rest.status < 400 else rest

    def _keep(self, stream: _Stream) -> Answer:
        self._open.append(stream)
        return stream

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    async def _be_late(self, weather: Weather) -> None:
        if self._happens(weather.late):
            await asyncio.sleep(self._random.uniform(0, weather.latest))


class _Whole:
    """An answer that is here."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.headers = headers or {}
        self._body = body

    async def read(self) -> bytes:
        body, self._body = self._body, b""
        return body

    async def piece(self) -> bytes:
        return await self.read()

    def close(self) -> None:
        self._body = b""


class _Joined:
    """A stream with something put before it."""

    def __init__(self, first: bytes, rest: Answer) -> None:
        self.status = rest.status
        self.headers = rest.headers
        self._first = first
        self._rest = rest

    async def read(self) -> bytes:
        return self._first + await self._rest.read()

    async def piece(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self._rest.piece()

    def close(self) -> None:
        self._rest.close()


class _Stream:
    """A watch on its way."""

    def __init__(self, network: Network, answer: Answer) -> None:
        self.answer = answer
        self.status = answer.status
        self.headers = answer.headers
        self.released = asyncio.Event()
        self._network = network

    async def read(self) -> bytes:
        return await self.answer.read()

    async def piece(self) -> bytes:
        piece = await self.answer.piece()
        network = self._network
        if network._happens(network.weather.broken):
            self.close()
            raise Unreachable("the watch broke off")
        if network._happens(network.weather.held):
            self.released.clear()
            try:
                async with asyncio.timeout(network._random.uniform(0, network.weather.longest)):
                    await self.released.wait()
            except TimeoutError:
                pass
        return piece

    def close(self) -> None:
        self.answer.close()
        if self in self._network._open:
            self._network._open.remove(self)
