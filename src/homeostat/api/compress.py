"""Large answers by gzip, for those who say that they read it. Small ones are not worth it, and watches are never compressed."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable

from homeostat.api.request import Request, Response, Stream, Streaming

LARGE = 128 * 1024
"""Bytes beyond which an answer is compressed."""
_LEVEL = 1
"""Nearly as small as the others, at a fraction of their cost."""
_GZIP = 31
"""What zlib calls its widest window, in gzip's frame."""


def reads_gzip(request: Request) -> bool:
    """Whether the client takes answers in gzip. As upstream reads it: weights do not count."""
    accepted = request.header(b"accept-encoding")
    return "gzip" in accepted and "gzip" in (token.strip() for token in accepted.split(","))


async def compress(request: Request, response: Response) -> Response:
    """The same answer, its body compressed where the client reads that. For a body beyond `LARGE`."""
    if reads_gzip(request) and not any(name == b"content-encoding" for name, _ in response.headers):
        response.body = await asyncio.to_thread(zlib.compress, response.body, _LEVEL, _GZIP)
        _say(response)
    return response


def compress_stream(response: Response) -> None:
    """What the response streams is compressed on its way; each piece goes out when it is drained."""
    assert response.stream is not None
    response.stream = _compressed(response.stream)
    _say(response)


def _say(response: Response) -> None:
    response.headers += ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))


def _compressed(streaming: Streaming) -> Streaming:
    async def run(stream: Stream) -> None:
        packed = _Packed(stream)
        await streaming(packed)
        await packed.finish()

    return run


class _Packed(Stream):
    """A stream before the real one. Pieces wait until they are drained, and are compressed on a thread then."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._waiting: list[bytes] = []
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self.notify: Callable[[], None] | None = None

    @property
    def closed(self) -> bool:  # type: ignore[override]
        return self._stream.closed

    @property
    def stopping(self) -> bool:  # type: ignore[override]
        return self._stream.stopping

    @property
    def congested(self) -> bool:
        return self._stream.congested

    def write(self, data: bytes) -> None:
        self._waiting.append(data)

    async def drained(self) -> None:
        await self._send(last=False)
        await self._stream.drained()

    async def finish(self) -> None:
        """Sends what waits, and the end."""
        await self._send(last=True)

    async def _send(self, *, last: bool) -> None:
        pieces, self._waiting = self._waiting, []

        def pack() -> bytes:
            packed = b"".join(map(self._packer.compress, pieces))
            return packed + self._packer.flush() if last else packed

        if not self.closed and (packed := await asyncio.to_thread(pack)):
            self._stream.write(packed)
