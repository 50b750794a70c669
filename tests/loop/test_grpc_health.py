"""The health of a gRPC server, asked by hand: against servers that frame, compress and pad as they like."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.auth import pki
from homeostat.loop.checks import GrpcCheck
from homeostat.loop.probes import Outcome, Result

h2_connection = pytest.importorskip("h2.connection")
h2_config = pytest.importorskip("h2.config")
h2_events = pytest.importorskip("h2.events")

HEAD = [(":status", "200"), ("content-type", "application/grpc"), ("x-" + "long" * 40, "value" * 40)]
OK = [("grpc-status", "0"), ("grpc-message", "")]

Behave = Callable[[Any, int], None]
Serve = Callable[..., Awaitable[int]]


class Server(asyncio.Protocol):
    """An HTTP/2 server by the h2 library, which checks every byte that comes; `behave` answers a whole request."""

    def __init__(self, behave: Behave, asked: list[tuple[dict[str, str], bytes]]) -> None:
        self._behave = behave
        self._asked = asked
        self._headers: dict[str, str] = {}
        self._body = b""
        self._h2 = h2_connection.H2Connection(h2_config.H2Configuration(client_side=False, header_encoding="utf-8"))

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._h2.initiate_connection()
        self._h2.ping(b"homeosta")
        transport.write(self._h2.data_to_send())

    def data_received(self, data: bytes) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, h2_events.RequestReceived):
                self._headers = dict(event.headers)
            elif isinstance(event, h2_events.DataReceived):
                self._body += event.data
            elif isinstance(event, h2_events.StreamEnded):
                self._asked.append((self._headers, self._body))
                self._behave(self._h2, event.stream_id)
        self._transport.write(self._h2.data_to_send())


@pytest.fixture
def asked() -> list[tuple[dict[str, str], bytes]]:
    return []


@pytest.fixture
async def serve(asked: list[tuple[dict[str, str], bytes]]) -> AsyncIterator[Serve]:
    servers = []

    async def start(behave: Behave, tls: ssl.SSLContext | None = None) -> int:
        server = await asyncio.get_running_loop().create_server(lambda: Server(behave, asked), "127.0.0.1", 0, ssl=tls)
        servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    yield start
    for server in servers:
        server.close()


def says(message: bytes) -> Behave:
    """Answers a message as a gRPC server does: headers, data, trailers."""

    def behave(h2: Any, stream: int) -> None:
        h2.send_headers(stream, HEAD)
        h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)
        h2.send_headers(stream, OK, end_stream=True)

    return behave


@pytest.mark.parametrize(
    ("message", "result"),
    [
        (b"\x08\x01", Result(Outcome.PASSED, "SERVING")),
        (b"\x08\x02", Result(Outcome.FAILED, "NOT_SERVING")),
        (b"\x08\x03", Result(Outcome.FAILED, "SERVICE_UNKNOWN")),
        (b"", Result(Outcome.FAILED, "UNKNOWN")),
        (b"\x08\x07", Result(Outcome.FAILED, "status 7")),
        (b"\x12\x01x", Result(Outcome.FAILED, "the answer is no health status")),
    ],
)
async def test_only_serving_passes(serve: Serve, message: bytes, result: Result) -> None:
    assert await GrpcCheck("127.0.0.1", await serve(says(message)))() == result


@pytest.mark.parametrize("service", ["", "shop.Cart", "s" * 300])
async def test_it_asks_properly(serve: Serve, asked: list[tuple[dict[str, str], bytes]], service: str) -> None:
    port = await serve(says(b"\x08\x01"))
    assert (await GrpcCheck("127.0.0.1", port, service)()).outcome is Outcome.PASSED
    headers, body = asked[0]
    assert headers == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/grpc.health.v1.Health/Check",
        ":authority": f"127.0.0.1:{port}",
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "homeostat-probe",
    }
    assert body[5:].endswith(service.encode())
    assert int.from_bytes(body[1:5], "big") == len(body) - 5


async def test_pieces_and_padding_are_put_together(serve: Serve) -> None:
    def behave(h2: Any, stream: int) -> None:
        h2.send_headers(stream, HEAD)
        for byte in b"\0\0\0\0\x02\x08\x01":
            h2.send_data(stream, bytes((byte,)), pad_length=byte + 3)
        h2.send_headers(stream, OK, end_stream=True)

    assert (await GrpcCheck("127.0.0.1", await serve(behave))()).outcome is Outcome.PASSED


async def test_a_server_without_health_fails_and_says_so(serve: Serve) -> None:
    def behave(h2: Any, stream: int) -> None:
        h2.send_headers(stream, [*HEAD, ("grpc-status", "12")], end_stream=True)

    result = await GrpcCheck("127.0.0.1", await serve(behave), "shop.Cart")()
    assert result.outcome is Outcome.FAILED
    assert "does not know service 'shop.Cart'" in result.message


@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (lambda h2, stream: h2.reset_stream(stream, 7), "reset the call with error 7"),
        (lambda h2, stream: h2.close_connection(1, b"too many pings", 0), "too many pings"),
        (lambda h2, stream: (h2.send_headers(stream, HEAD), h2.send_data(stream, b"x" * 9000, True)), "too long"),
        (lambda h2, stream: (h2.send_headers(stream, HEAD), h2.send_data(stream, b"<html>", True)), "no gRPC message"),
    ],
)
async def test_a_server_that_refuses_fails(serve: Serve, behave: Behave, why: str) -> None:
    result = await GrpcCheck("127.0.0.1", await serve(behave))()
    assert result.outcome is Outcome.FAILED
    assert why in result.message


async def test_it_speaks_tls_where_asked(serve: Serve, tmp_path: Path) -> None:
    pki.ensure_server(tmp_path, ["127.0.0.1"])
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    serving.set_alpn_protocols(["h2"])
    port = await serve(says(b"\x08\x01"), serving)
    trusting = ssl.create_default_context(cadata=pki.authority(tmp_path).decode())
    assert await GrpcCheck("127.0.0.1", port, tls=trusting)() == Result(Outcome.PASSED, "SERVING")
    assert (await GrpcCheck("127.0.0.1", port, tls=ssl.create_default_context())()).outcome is Outcome.FAILED
