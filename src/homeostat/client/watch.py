"""Watch: the changes of a collection, one after another, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self, TypeVar, cast

import msgspec
import orjson

from homeostat.client.backoff import Backoff
from homeostat.client.errors import PASSING, from_status, is_expired
from homeostat.client.objects import Selection
from homeostat.client.transport import Answer, Unreachable
from homeostat.model.errors import ApiError
from homeostat.model.protocol import INITIAL_EVENTS_END

if TYPE_CHECKING:
    from homeostat.client.resource import Resource

T = TypeVar("T")

IDLE_SECONDS = 150.0
"""A watch that brings nothing for this long is taken for dead and opened anew: servers send a bookmark each minute."""
TIMEOUT_SECONDS = (290, 580)
"""For how long a server is asked to keep a watch open; a random time between, so that reconnects spread."""
EVENT_LIMIT = 64 * 1024 * 1024
"""Bytes of one event: what is longer is no Kubernetes object."""

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class Event(NamedTuple, Generic[T]):
    """One change. A DELETED event carries the object as it was last; leaving a selector looks the same."""

    type: EventType
    object: T


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_read_line = msgspec.json.Decoder(_Line)
_plain_line = re.compile(rb'{"type":"([A-Z]+)","object":').match
"""How our own server begins a line, which it ends with a brace."""


class Lines:
    """One connection of a watch, as (type, object) pairs; the object still encoded."""

    def __init__(self, answer: Answer, idle: float | None) -> None:
        self._answer = answer
        self._idle = idle  # None: of a server in this process, whose answers cannot get lost, and whose lines need not be read to be cut
        self._ready: list[bytes] = []  # in reverse
        self._rest: list[bytes] = []
        self._size = 0

    async def next(self) -> tuple[str, bytes] | None:
        """The next event; None at the end. Raises `Unreachable` on silence or a break, `ApiError` on an ERROR event."""
        while not self._ready:
            piece = await self._answer.piece() if self._idle is None else await self._awaited(self._idle)
            if not piece:
                return None
            self._take(piece)
        kind, body = self._cut(self._ready.pop())
        if kind == "ERROR":
            status = orjson.loads(body)
            raise from_status(status if isinstance(status, dict) else {})
        return kind, body

    def _cut(self, line: bytes) -> tuple[str, bytes]:
        if self._idle is None and (begun := _plain_line(line)) is not None:
            return begun[1].decode(), line[begun.end() : -1]
        read = _read_line.decode(line)
        return read.type, bytes(read.object)

    async def _awaited(self, idle: float) -> bytes:
        try:
            async with asyncio.timeout(idle):
                return await self._answer.piece()
        except TimeoutError:
            raise Unreachable(f"the watch was silent for {idle:g} s") from None

    def _take(self, piece: bytes) -> None:
        first, newline, after = piece.partition(b"\n")
        self._rest.append(first)
        self._size += len(first)
        if self._size > EVENT_LIMIT:
            raise Unreachable(f"an event of the watch is longer than {EVENT_LIMIT} bytes")
        if newline:
            *lines, rest = after.split(b"\n")
            whole = [b"".join(self._rest), *lines]
            self._ready = [line for line in reversed(whole) if line and not line.isspace()]
            self._rest, self._size = [rest], len(rest)

    def close(self) -> None:
        """Lets go of the connection."""
        self._answer.close()


async def open_lines(resource: Resource[Any], which: Selection, params: Mapping[str, str], idle: float) -> Lines:
    """Opens one connection of a watch with bookmarks and a random end."""
    path = await resource.collection(which.namespace)
    seconds = resource.client.random.randint(*TIMEOUT_SECONDS)
    common = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}
    answer = await resource.client.stream(path, {**common, **which.params, **params})
    return Lines(answer, None if resource.client.timeout is None else idle)


def bookmark_of(body: bytes) -> tuple[str, bool]:
    """The resourceVersion of a bookmark, and whether it ends the initial events."""
    meta = orjson.loads(body).get("metadata") or {}
    return meta.get("resourceVersion", ""), (meta.get("annotations") or {}).get(INITIAL_EVENTS_END) == "true"


class Watch(Generic[T]):
    """An endless iterator of events, made by `Resource.watch`.

    It survives disconnects, servers that end watches, silent connections and busy servers: it goes on after the last
    event or bookmark it saw, so nothing is lost and nothing comes twice. What it cannot survive is a past that the
    server has forgotten: then it raises `ApiError` with code 410, and the caller lists and watches anew. Where that is
    not wanted, use an `Informer`. Other refusals (403, 404) are raised as they come.

    A watch without a `resource_version` lists first and gives what is there as ADDED. (Of the initial events of a
    server no version to go on from could be told before the last of them.) `resource_version` is where it stands.
    """

    def __init__(self, resource: Resource[T], which: Selection, resource_version: str, idle: float) -> None:
        self.resource_version = resource_version
        self._resource = resource
        self._which = which
        self._idle = idle
        self._lines: Lines | None = None
        self._closed = False
        self._present: list[T] | None = None  # in reverse
        self._backoff = Backoff(source=resource.client.random)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[T]:
        if not self.resource_version:
            listing = await self._resource.select(self._which)
            self.resource_version = listing.resource_version
            self._present = listing[::-1]
        if self._present:
            return Event("ADDED", self._present.pop())
        while not self._closed:
            try:
                if self._lines is None:
                    self._lines = await self._open()
                found = await self._lines.next()
            except Unreachable:
                found = None
            except ApiError as error:
                self._drop()
                if is_expired(error) or error.code not in PASSING:
                    raise
                found = None
            if found is None:
                self._drop()
                if not self._closed:
                    await asyncio.sleep(self._backoff.next())
                continue
            self._backoff.reset()
            event = self._event(*found)
            if event is not None:
                return event
        raise StopAsyncIteration

    async def _open(self) -> Lines:
        params = {"resourceVersion": self.resource_version}
        return await open_lines(self._resource, self._which, params, self._idle)

    def _event(self, kind: str, body: bytes) -> Event[T] | None:
        if kind == "BOOKMARK":
            self.resource_version = bookmark_of(body)[0] or self.resource_version
            return None
        resource = self._resource
        obj = resource.form.decode(body, resource.api_version, resource.kind)
        self.resource_version = resource.form.identity(obj).revision or self.resource_version
        return Event(cast(EventType, kind), obj)

    def _drop(self) -> None:
        if self._lines is not None:
            self._lines.close()
            self._lines = None

    def close(self) -> None:
        """Ends it; whoever waits for the next event is not woken, so end that task too."""
        self._closed = True
        self._drop()
