"""Answers in another form than they were made in: as YAML, or the object of a write as a row or as its metadata."""

from __future__ import annotations

import asyncio

import orjson

from homeostat.api.codec import encode
from homeostat.api.request import Response, Stream
from homeostat.api.shape import Shape
from homeostat.model.encoding import encode_yaml
from homeostat.model.protocol import JSON, YAML
from homeostat.store import Entry

AT_ONCE = 32 * 1024
"""Bytes that are turned into YAML where they are; more would keep others waiting, and goes to a thread."""


async def to_yaml(response: Response) -> Response:
    """The same answer in YAML. Long lists are gathered first: YAML sorts its fields."""
    if response.headers[0][1] != JSON.encode():
        return response
    if response.stream is not None:
        whole = _Whole()
        await response.stream(whole)
        response.body, response.stream = bytes(whole.body), None
    if len(response.body) > AT_ONCE:
        response.body = await asyncio.to_thread(_as_yaml, response.body)
    else:
        response.body = _as_yaml(response.body)
    response.headers[0] = (b"content-type", YAML.encode())
    return response


def _as_yaml(body: bytes) -> bytes:
    return encode_yaml(orjson.loads(body))


class _Whole(Stream):
    """Gathers what is streamed."""

    congested = False

    def __init__(self) -> None:
        self.body = bytearray()
        self.closed = self.stopping = False
        self.notify = None

    def write(self, data: bytes) -> None:
        self.body += data

    async def drained(self) -> None:
        pass


def reshape(response: Response, shape: Shape) -> None:
    """The written object in an answer, as its metadata alone or as a table row."""
    if type(shape) is not Shape and response.status < 300:
        obj = orjson.loads(response.body)
        revision = int(obj["metadata"].get("resourceVersion") or 0)
        response.body = shape.single(Entry("", encode(obj), revision, revision))
