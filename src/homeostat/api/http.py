"""HTTP/1.1 over TLS: bytes in, `Request` out; `Response` in, bytes out.

A thin protocol on httptools instead of a general server, because three things of ours need the connection itself: the
peer's certificate, watches that are written straight into the transport (encoded once for all watchers), and a stop
that ends open watches at once. One request at a time per connection; those that follow wait, in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import lru_cache
from http import HTTPStatus
from typing import Any, cast

import httptools

from homeostat.api.request import Headers, Request, Response, error_response
from homeostat.model.errors import ApiError, bad_request, too_large
from homeostat.model.protocol import BODY_LIMIT

HEADER_LIMIT = 64 * 1024
"""Bytes of request line and headers together."""
IDLE_SECONDS = 120.0
"""A connection with no request under way is closed after this."""
SLOW_SECONDS = 30.0
"""A request must have arrived whole within this."""
LINGER_SECONDS = 0.5
"""How long a refused peer may go on talking before the connection is closed."""
CONNECTION_LIMIT = 4096
"""Connections open at a time; further ones are dropped."""
HIGH_WATER = 1024 * 1024
"""Bytes waiting for one peer above which its stream counts as congested."""

Handler = Callable[[Request], Awaitable[Response]]
Identify = Callable[[dict[str, Any], bytes], Any]
"""From a verified peer certificate (as `ssl` gives it, and its bytes) to whoever it stands for."""

log = logging.getLogger("homeostat.http")

_STATUS = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_BODY = frozenset({204, 304})


_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@lru_cache(1)
def _date(second: int) -> bytes:
    """Clients tell from it whether their clock is right. One second's is as good for a thousand answers."""
    year, month, day, hour, minute, of_minute, weekday, *_ = time.gmtime(second)
    text = f"{_DAYS[weekday]}, {day:02} {_MONTHS[month - 1]} {year} {hour:02}:{minute:02}:{of_minute:02} GMT"
    return f"date: {text}\r\n".encode()


class Connection(asyncio.Protocol):
    """One client's connection. Also the `Stream` that a streaming response writes to."""

    __slots__ = (
        "_body",
        "_drain",
        "_head_only",
        "_headers",
        "_keep",
        "_parser",
        "_reading",
        "_refusal",
        "_size",
        "_streaming",
        "_target",
        "_task",
        "_waiting",
        "client",
        "closed",
        "congested",
        "notify",
        "server",
        "since",
        "stopping",
        "transport",
        "user",
    )

    def __init__(self, server: HttpServer) -> None:
        self.server = server
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.user: Any = None
        self.client = ""
        self.closed = False
        self.congested = False
        self.since = server.loop.time()  # when the present state (idle, reading, answering) began
        self._parser = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None
        self._drain: asyncio.Future[None] | None = None
        self._streaming = False
        self.notify: Callable[[], None] | None = None
        self.stopping = False
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._keep = True
        self._head_only = False
        self._reading = False
        self._refusal: ApiError | None = None
        self.on_message_begin()

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if len(self.server.connections) >= CONNECTION_LIMIT:
            self.closed = True
            self.transport.abort()
            return
        self.server.connections.add(self)
        self.transport.set_write_buffer_limits(high=HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self.client = peer[0] if isinstance(peer, tuple) else ""
        tls = transport.get_extra_info("ssl_object")
        if tls is not None and self.server.identify is not None:
            certificate = tls.getpeercert()
            if certificate:
                self.user = self.server.identify(certificate, tls.getpeercert(True))

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True
        self.server.connections.discard(self)
        self._wake()

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        self._wake()

    def _wake(self) -> None:
        if self._drain is not None and not self._drain.done():
            self._drain.set_result(None)
        if self.notify is not None:
            self.notify()

    def eof_received(self) -> bool:
        return False

    @property
    def answering(self) -> asyncio.Task[None] | None:
        """The answer under way."""
        return self._task

    # Reading

    def data_received(self, data: bytes) -> None:
        if self.closed:
            return
        if self._streaming:  # a peer that talks during a stream is not listened to
            self._keep = False
            return
        if not self._reading:
            self._reading = True
            self.since = self.server.loop.time()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._keep = False  # we speak HTTP/1.1 only: the request is answered as an ordinary one
        except httptools.HttpParserError as error:
            self._abandon(bad_request(f"not an HTTP/1.1 request: {error}"))

    def on_message_begin(self) -> None:
        self._target = b""
        self._headers: Headers = []
        self._body: list[bytes] = []
        self._size = 0

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._size += len(url)
        if self._size > HEADER_LIMIT:
            self._abandon(too_large(HEADER_LIMIT))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._refusal is None:
            self._headers.append((name.lower(), value))
        self._size += len(name) + len(value) + 4
        if self._size > HEADER_LIMIT:
            self._abandon(too_large(HEADER_LIMIT))

    def on_headers_complete(self) -> None:
        if self._refusal is not None:
            return
        self._size = 0
        for name, value in self._headers:
            if name == b"content-length" and int(value) > BODY_LIMIT:
                self._abandon(too_large(BODY_LIMIT))
                return
            if name == b"expect" and value.lower() == b"100-continue":
                self.transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        if self._refusal is None:
            self._body.append(body)
            self._size += len(body)
            if self._size > BODY_LIMIT:
                self._abandon(too_large(BODY_LIMIT))

    def on_message_complete(self) -> None:
        if self.closed or self._refusal is not None:
            return
        method = self._parser.get_method().decode()
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        target = self._target if self._target[:1] == b"/" else self._origin_form()
        request = Request(method, target.decode("latin-1"), self._headers, body, self.user, self.client)
        self._waiting.append((request, self._parser.should_keep_alive()))
        self._reading = False
        if self._task is None:
            # Nothing more is read until what has arrived is answered.
            self.transport.pause_reading()
            self._task = self.server.loop.create_task(self._answer())

    def _origin_form(self) -> bytes:
        """The path of a target that names the whole URL, as it may; of one that names another host than its header does, nothing."""
        host = next((value for name, value in self._headers if name == b"host"), b"")
        for scheme in (b"https://", b"http://"):
            if host and self._target.lower().startswith(scheme + host.lower()):
                path = self._target[len(scheme) + len(host) :]
                if path[:1] in (b"", b"?", b"/"):
                    return path if path[:1] == b"/" else b"/" + path
        return self._target

    def _abandon(self, error: ApiError) -> None:
        """Answers with an error and closes: what follows on this connection cannot be trusted."""
        self._refusal = error
        if self._task is None and not self.closed:
            self._keep = False
            self._send(error_response(error))
            self.closed = True
            # What the peer still sends is read and dropped for a while: a close in its face would lose the answer.
            self.server.loop.call_later(LINGER_SECONDS, self.transport.close)

    # Answering

    async def _answer(self) -> None:
        """Answers what waits, one after another."""
        try:
            while self._waiting and not self.closed:
                request, keep = self._waiting.popleft()
                self._keep = self._keep and keep
                self._head_only = request.head_only = request.method == "HEAD"
                if self._head_only:
                    request.method = "GET"
                response = await self.server.handler(request)
                if self.closed:
                    return
                if response.stream is None or self._head_only:
                    self._send(response)
                else:
                    await self._send_stream(response)
        except asyncio.CancelledError:
            self.transport.abort()
            raise
        except Exception:  # the handler turns its own errors into answers: this is a defect of ours
            log.exception("a response failed")
            self.transport.abort()
            return
        self._finish()

    def _finish(self) -> None:
        self._task = None
        if self.closed:
            return
        if self._refusal is not None:
            self._abandon(self._refusal)
        elif not self._keep or self.server.stopping:
            self.transport.close()
        else:
            self.since = self.server.loop.time()
            self.transport.resume_reading()

    def _head(self, response: Response, length: bytes) -> bytes:
        parts = [_STATUS.get(response.status) or f"HTTP/1.1 {response.status} \r\n".encode(), _date(int(time.time()))]
        for name, value in response.headers:
            parts += (name, b": ", value, b"\r\n")
        parts += (length, b"\r\n" if self._keep else b"connection: close\r\n\r\n")
        return b"".join(parts)

    def _send(self, response: Response) -> None:
        if response.status in _NO_BODY:
            self.transport.write(self._head(response, b""))
            return
        head = self._head(response, b"content-length: %d\r\n" % len(response.body))
        if self._head_only:
            self.transport.write(head)
        else:
            self.transport.write(head + response.body)

    async def _send_stream(self, response: Response) -> None:
        assert response.stream is not None
        self.transport.write(self._head(response, b"transfer-encoding: chunked\r\n"))
        # Reading goes on so that a peer that leaves is noticed.
        self._streaming = True
        self.transport.resume_reading()
        try:
            await response.stream(self)
        finally:
            self._streaming = False
            self.notify = None
        if not self.closed:
            self.transport.pause_reading()
            self.transport.write(b"0\r\n\r\n")

    # The stream

    def write(self, data: bytes) -> None:
        if not self.closed:
            self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def drained(self) -> None:
        if self.congested and not self.closed:
            self._drain = self.server.loop.create_future()
            await self._drain
            self._drain = None

    def stop(self) -> None:
        """Ends an open stream in order and closes an idle connection; an answer under way is finished."""
        self.stopping = True
        if self._streaming:
            self._wake()
        elif self._task is None:
            self.transport.close()

    def overdue(self, now: float) -> bool:
        """Idle for too long, or a request that never arrives whole."""
        if self._task is not None:
            return False
        return now - self.since > (SLOW_SECONDS if self._reading else IDLE_SECONDS)


class HttpServer:
    """Listens, and hands each request to `handler`.

    `identify` turns a verified client certificate into a user; without `tls` nothing is encrypted, for tests alone.
    """

    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None, identify: Identify | None = None) -> None:
        self.handler = handler
        self.identify = identify
        self.tls = tls
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self.stopping = False
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Begins to listen; gives the port, which matters when 0 was asked for."""
        # A host in bytes: of one in text uvloop loads the tables of international names, which takes longer than to begin to listen.
        known = cast(list[str], [host.encode("ascii" if host.isascii() else "idna")]) if host else None
        self._server = await self.loop.create_server(
            lambda: Connection(self), known, port, ssl=self.tls, backlog=1024,
            ssl_handshake_timeout=10 if self.tls else None, ssl_shutdown_timeout=1 if self.tls else None,
        )
        self._sweep()
        return int(self._server.sockets[0].getsockname()[1])

    def _sweep(self) -> None:
        now = self.loop.time()
        for connection in [c for c in self.connections if c.overdue(now)]:
            connection.transport.abort()
        self._sweeper = self.loop.call_later(5, self._sweep)

    async def stop(self, grace: float = 1.0) -> None:
        """Stops listening, ends streams, waits for answers under way up to `grace` seconds."""
        self.stopping = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.stop()
        if tasks := [c.answering for c in self.connections if c.answering is not None]:
            await asyncio.wait(tasks, timeout=grace)
        for connection in list(self.connections):
            with contextlib.suppress(Exception):
                connection.transport.abort()
