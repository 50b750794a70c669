"""Where Prometheus finds the figures of a loop that has no server of its own: plain HTTP, one path, no login."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from homeostat.api.http import HttpServer
from homeostat.api.request import Request, Response
from homeostat.api.server import Listen
from homeostat.loop.figures import CONTENT_TYPE

PATH = "/metrics"
_TEXT = "text/plain; charset=utf-8"


@asynccontextmanager
async def serving(where: Listen, text: Callable[[], bytes]) -> AsyncIterator[str]:
    """Serves what `text` gives for as long as the block runs; gives the URL. Raises `CannotListen`."""

    async def answer(request: Request) -> Response:
        if request.path != PATH:
            return Response(404, f"the figures are at {PATH}\n".encode(), _TEXT)
        if request.method != "GET":
            return Response(405, b"figures can only be read\n", _TEXT)
        return Response(200, text(), CONTENT_TYPE)

    server = HttpServer(answer)
    try:
        port = await server.start(where.host, where.port)
    except OSError as error:
        raise where.explain(error) from error
    try:
        yield f"http://{where.url_host}:{port}{PATH}"
    finally:
        await server.stop()
