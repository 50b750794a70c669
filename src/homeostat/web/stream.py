"""One connection for everything that a view shows live: topics in, lines of JSON out, each with the name of its topic.

    POST /ui/stream   {"topics": {"rows": {"topic": "rows", "kind": "files.files.homeostat.dev"}}}
    {"id": "rows", "whole": [...]}
    {"id": "rows", "rows": [...], "gone": [...]}

A topic that fails says so in a line of its own (`error`), and the others go on. A quiet stream sends an empty line now and then, so that
both sides know that it lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import orjson

from homeostat.api.request import Response, Stream
from homeostat.client import Unreachable
from homeostat.model.errors import ApiError, bad_request
from homeostat.web.board import Board
from homeostat.web.topics import TOPICS
from homeostat.web.viewer import Viewer

log = logging.getLogger("homeostat.web")

TOPICS_LIMIT = 16
HEARTBEAT_SECONDS = 15.0
RIGHTS_SECONDS = 10.0
"""How long somebody whose rights were taken away may go on looking."""
WAITING_LIMIT = 64
"""Lines that wait for a slow reader before its topics wait."""


class Asked(msgspec.Struct, forbid_unknown_fields=True):
    """What a page asks for: topics by the names under which it wants to hear of them."""

    topics: dict[str, dict[str, Any]]


def open_stream(viewer: Viewer, board: Board, body: bytes) -> Response:
    """The stream that was asked for; 400 where that cannot be understood."""
    try:
        asked = msgspec.json.decode(body, type=Asked).topics
    except msgspec.DecodeError as error:
        raise bad_request(f"the topics cannot be read: {error}") from None
    if not 0 < len(asked) <= TOPICS_LIMIT:
        raise bad_request(f"a stream has 1 to {TOPICS_LIMIT} topics, not {len(asked)}")
    for name, topic in asked.items():
        if topic.get("topic") not in TOPICS:
            raise bad_request(f"{name}: there is no topic {topic.get('topic')!r}; there are {', '.join(sorted(TOPICS))}")

    async def stream(out: Stream) -> None:
        await _Lines(viewer, board, asked, out).run()

    headers = [(b"cache-control", b"no-store")]
    return Response(200, b"", "application/x-ndjson", stream=stream, headers=headers)


class _Lines:
    """Topics on one side, a peer on the other."""

    def __init__(self, viewer: Viewer, board: Board, asked: Mapping[str, dict[str, Any]], out: Stream) -> None:
        self._viewer, self._board, self._asked, self._out = viewer, board, asked, out
        self._lines: asyncio.Queue[bytes] = asyncio.Queue(WAITING_LIMIT)
        self._gone = asyncio.Event()

    async def run(self) -> None:
        self._out.notify = self._look
        self._look()
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._follow(name, topic), name=f"topic {name}") for name, topic in self._asked.items()]
        tasks += [loop.create_task(self._beat(), name="stream beats"), loop.create_task(self._write(), name="stream writes")]
        try:
            await self._gone.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._viewer.client.close()

    def _look(self) -> None:
        if self._out.closed or self._out.stopping:
            self._gone.set()

    async def _write(self) -> None:
        while True:
            line = await self._lines.get()
            self._out.write(line)
            if self._out.congested:
                await self._out.drained()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(RIGHTS_SECONDS)
            self._viewer.look_again()
            await self._lines.put(b"\n")

    async def _follow(self, name: str, asked: dict[str, Any]) -> None:
        head = b'{"id":' + orjson.dumps(name) + b","
        try:
            params = {key: str(value) for key, value in asked.items() if key != "topic"}
            said: AsyncIterator[dict[str, Any]] = TOPICS[asked["topic"]](self._viewer, self._board, params)
            async for words in said:
                await self._lines.put(head + orjson.dumps(words)[1:] + b"\n")
        except ApiError as error:
            await self._lines.put(head + orjson.dumps({"error": error.message, "code": error.code})[1:] + b"\n")
        except (LookupError, ValueError) as error:
            await self._lines.put(head + orjson.dumps({"error": str(error), "code": 400})[1:] + b"\n")
        except Unreachable as error:
            await self._lines.put(head + orjson.dumps({"error": str(error), "code": 503})[1:] + b"\n")
        except Exception:
            log.exception("topic %s failed", asked.get("topic"))
            await self._lines.put(head + orjson.dumps({"error": "it failed; the server's log says why", "code": 500})[1:] + b"\n")
