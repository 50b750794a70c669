"""HTTP at the wire: what a careless, slow or hostile peer sends, and what it gets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from homeostat.api import http
from homeostat.api.http import HEADER_LIMIT, HttpServer
from homeostat.api.request import Request, Response, Stream
from homeostat.model.protocol import BODY_LIMIT

Send = Callable[[bytes], Awaitable[bytes]]


async def echo(request: Request) -> Response:
    if request.path == "/stream":
        return Response(200, stream=_tick)
    if request.path == "/fail":
        raise RuntimeError("a defect")
    return Response(200, f"{request.method} {request.path} {len(request.body)}".encode())


async def _tick(stream: Stream) -> None:
    woken = asyncio.Event()
    stream.notify = woken.set
    stream.write(b"one\n")
    await woken.wait()


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    server = HttpServer(echo)
    server.port = await server.start("127.0.0.1", 0)  # type: ignore[attr-defined]
    yield server
    await server.stop(0.1)


async def connect(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 24)  # type: ignore[attr-defined]


async def send(server: HttpServer, data: bytes) -> bytes:
    """Sends everything, then reads until the server closes or falls silent."""
    reader, writer = await connect(server)
    writer.write(data)
    received = b""
    try:
        while chunk := await asyncio.wait_for(reader.read(65536), 0.8):
            received += chunk
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return received


async def test_answers_a_plain_request(server: HttpServer) -> None:
    answer = await send(server, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\nGET /a 0")


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"https://x:1/a", b"/a"),
        (b"HTTP://X:1/a?b=c", b"/a"),
        (b"https://x:1", b"/"),
        (b"https://x:1?b=c", b"/"),
        (b"https://elsewhere/a", b"https://elsewhere/a"),
        (b"https://x:11/a", b"https://x:11/a"),
    ],
)
async def test_a_target_may_be_a_whole_url_of_the_host_that_is_asked(
    server: HttpServer, target: bytes, path: bytes
) -> None:
    answer = await send(server, b"GET %b HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n" % target)
    assert answer.endswith(b"\r\n\r\nGET %b 0" % path)


async def test_keeps_the_connection_for_the_next_request(server: HttpServer) -> None:
    reader, writer = await connect(server)
    for path in (b"/a", b"/b", b"/c"):
        writer.write(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
        await asyncio.wait_for(reader.readuntil(b"GET %b 0" % path), 10)
    writer.close()


async def test_answers_pipelined_requests_in_order(server: HttpServer) -> None:
    answer = await send(server, b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % i for i in range(5)))
    assert [answer.index(b"GET /%d 0" % i) for i in range(5)] == sorted(answer.index(b"GET /%d 0" % i) for i in range(5))


async def test_answers_head_without_a_body(server: HttpServer) -> None:
    answer = await send(server, b"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"content-length: 8" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_tells_a_waiting_client_to_go_on(server: HttpServer) -> None:
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
    answer = await send(server, head + b"abc")
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")
    assert answer.endswith(b"POST /a 3")


async def test_refuses_a_declared_body_over_the_limit_at_once(server: HttpServer) -> None:
    answer = await send(server, b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (BODY_LIMIT + 1))
    assert b" 413 " in answer.splitlines()[0]
    assert b"RequestEntityTooLarge" in answer


async def test_refuses_a_chunked_body_that_grows_over_the_limit(server: HttpServer) -> None:
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    answer = await send(server, b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 64)
    assert b" 413 " in answer.splitlines()[0]


async def test_takes_a_body_at_the_limit(server: HttpServer) -> None:
    answer = await send(
        server, b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % BODY_LIMIT + b"x" * BODY_LIMIT
    )
    assert answer.endswith(b"POST /a %d" % BODY_LIMIT)


async def test_refuses_headers_over_the_limit(server: HttpServer) -> None:
    answer = await send(server, b"GET /a HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (b"y" * HEADER_LIMIT))
    assert b" 413 " in answer.splitlines()[0]


async def test_refuses_headers_that_never_end(server: HttpServer) -> None:
    answer = await send(server, b"GET /a HTTP/1.1\r\n" + (b"X-Filler: " + b"y" * 8000 + b"\r\n") * 200)
    assert b" 413 " in answer.splitlines()[0]


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"],
)
async def test_answers_garbage_with_400_and_closes(server: HttpServer, garbage: bytes) -> None:
    assert b" 400 " in (await send(server, garbage)).splitlines()[0]


async def test_answers_an_upgrade_as_an_ordinary_request(server: HttpServer) -> None:
    answer = await send(server, b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    assert b" 200 " in answer.splitlines()[0]


async def test_a_defect_closes_only_its_own_connection(
    server: HttpServer, caplog: pytest.LogCaptureFixture
) -> None:
    assert await send(server, b"GET /fail HTTP/1.1\r\nHost: x\r\n\r\n") == b""
    assert "a defect" in caplog.text
    assert b" 200 " in await send(server, b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_a_slow_client_is_cut_off_and_an_idle_one_too(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SLOW_SECONDS", 0.0)
    monkeypatch.setattr(http, "IDLE_SECONDS", 0.0)
    reader, writer = await connect(server)
    writer.write(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Le")
    idle, idle_writer = await connect(server)
    while len(server.connections) < 2:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    server._sweep()
    for stream in (reader, idle):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await stream.readuntil(b"x")
    writer.close()
    idle_writer.close()


async def test_stopping_ends_open_streams_in_order_and_soon(server: HttpServer) -> None:
    reader, writer = await connect(server)
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"one\n")
    started = time.monotonic()
    await server.stop()
    assert time.monotonic() - started < 1
    assert (await reader.read()).endswith(b"0\r\n\r\n")
    writer.close()


async def test_a_client_that_leaves_a_stream_is_noticed(server: HttpServer) -> None:
    reader, writer = await connect(server)
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await reader.readuntil(b"one\n")
    writer.close()
    while server.connections:
        await asyncio.sleep(0.001)
