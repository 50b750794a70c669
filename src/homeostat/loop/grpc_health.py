"""Asks a server for its health over gRPC: one unary call of grpc.health.v1.Health/Check, on a connection of its own.

A whole gRPC stack for two bytes of answer would be the heaviest dependency of all, and little of it is needed: what is
sent are constant headers, written out without compression; of what comes back only the message counts. The headers of
the answer stay unread: a status other than OK comes without a message, which says enough.
"""

from __future__ import annotations

import asyncio
import ssl
import struct

SERVING_STATUS = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}
MESSAGE_LIMIT = 4096
FRAME_LIMIT = 16384
"""Bytes of a frame: what HTTP/2 allows as long as nobody agreed on more."""

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0, 1, 3, 4, 6, 7
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED = 0x4, 0x8
_STREAM = 1
_NO_TABLE_NO_PUSH = struct.pack("!HIHI", 1, 0, 2, 0)


class NotHttp2(Exception):
    """The answer is none that a gRPC server would give."""


async def ask_health(host: str, port: int, service: str = "", tls: ssl.SSLContext | None = None) -> str:
    """The serving status, by name. Raises `NotHttp2`, OSError, or `asyncio.IncompleteReadError`; has no timeout."""
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        writer.write(_request(authority, service, "https" if tls else "http"))
        return _status(await _answer(reader, writer), service)
    finally:
        writer.transport.abort()  # one call, one connection: no farewell is waited for


def _request(authority: str, service: str, scheme: str) -> bytes:
    """All that is to be said: preface, settings, headers, and the message."""
    headers = (
        (":method", "POST"),
        (":scheme", scheme),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "homeostat-probe"),
    )
    block = b"".join(b"\x00" + _literal(name) + _literal(value) for name, value in headers)
    name = service.encode()
    message = b"\x0a" + _varint(len(name)) + name if name else b""
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, _NO_TABLE_NO_PUSH)
        + _frame(_HEADERS, _END_HEADERS, _STREAM, block)
        + _frame(_DATA, _END_STREAM, _STREAM, struct.pack("!BI", 0, len(message)) + message)
    )


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """The data of our stream, when it has come to its end."""
    data = bytearray()
    while True:
        head = await reader.readexactly(9)
        length, kind, flags = int.from_bytes(head[:3]), head[3], head[4]
        stream = int.from_bytes(head[5:]) & 0x7FFFFFFF
        if length > FRAME_LIMIT:
            raise NotHttp2("the server does not speak HTTP/2 here")
        payload = await reader.readexactly(length)
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY and int.from_bytes(payload[:4]) & 0x7FFFFFFF < _STREAM:
            raise NotHttp2(f"the server does not take the call: {payload[8:200].decode(errors='replace') or 'GOAWAY'}")
        elif stream == _STREAM:
            if kind == _RST_STREAM:
                raise NotHttp2(f"the server reset the call with error {int.from_bytes(payload)}")
            if kind == _DATA:
                data += payload[1 : len(payload) - payload[0]] if flags & _PADDED and payload else payload
            if len(data) > MESSAGE_LIMIT:
                raise NotHttp2("the answer is too long for a health status")
            if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                return bytes(data)


def _status(data: bytes, service: str) -> str:
    """What the message says."""
    if not data:
        asked = f", or does not know service {service!r}" if service else ""
        raise NotHttp2(f"the server answered without a health status: it does not serve grpc.health.v1.Health{asked}")
    if len(data) < 5 or data[0] != 0 or int.from_bytes(data[1:5]) != len(data) - 5:
        raise NotHttp2("the answer is no gRPC message")
    message = data[5:]
    if not message:
        return SERVING_STATUS[0]  # a field of value 0 is not sent
    if len(message) != 2 or message[0] != 0x08:
        raise NotHttp2("the answer is no health status")
    return SERVING_STATUS.get(message[1], f"status {message[1]}")


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def _literal(text: str) -> bytes:
    """A string as HPACK has it, uncompressed: its length with a prefix of seven bits, and itself."""
    raw = text.encode()
    if len(raw) < 127:
        return bytes((len(raw),)) + raw
    return b"\x7f" + _varint(len(raw) - 127) + raw


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first: as HPACK and protobuf both have it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
