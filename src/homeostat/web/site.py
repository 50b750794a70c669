"""`/ui`: the page, how one signs in, and the stream that feeds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from homeostat.api.auth.user import User
from homeostat.api.local import LocalTransport
from homeostat.api.plane import SYSTEM, ControlPlane
from homeostat.api.request import Request, Response, json_response, split_path
from homeostat.client import Client
from homeostat.model.errors import ApiError, bad_request, path_method_not_allowed, path_not_found
from homeostat.model.protocol import CHANGE_SET_HEADER
from homeostat.web.assets import Assets
from homeostat.web.board import Board
from homeostat.web.doors import HEADERS, Codes, check_origin
from homeostat.web.viewer import Viewer

PREFIX = "ui"
PAGE = "index.html"
SESSION_SECONDS = 12 * 3600
"""How long a link signs somebody in."""
BODY_LIMIT = 64 * 1024

Answer = Callable[[Request], Awaitable[Response]]


class Site:
    """Serves the dashboard of one control plane. `hosts` are the names under which browsers reach it."""

    def __init__(self, plane: ControlPlane, board: Board, hosts: frozenset[str]) -> None:
        self._plane = plane
        self._board = board
        self._hosts = hosts
        self._assets = Assets()
        self._codes = Codes(plane.clock.now)
        self._system = Client(LocalTransport(plane, SYSTEM), user_agent="homeostat-ui", timeout=None)
        self._posts: dict[str, Answer] = {
            "codes": self._code,
            "session": self._session,
            "stream": self._stream,
            "compare": self._compare,
            "rollback": self._rollback,
        }

    def link(self, user: User) -> str:
        """Where this user is signed in, once, by who opens it first."""
        return f"{self._plane.address}/{PREFIX}/#code={self._codes.make(user)}"

    async def answer(self, request: Request) -> Response:
        """Whatever is asked for under `/ui`."""
        try:
            response = await self._route(request)
        except ApiError as error:
            response = json_response(error.status(), error.code)
        response.headers.extend(HEADERS)
        return response

    async def _route(self, request: Request) -> Response:
        check_origin(request, self._hosts)
        path = "/".join(split_path(request.path)[1:])
        if request.method in ("GET", "HEAD"):
            if request.path == f"/{PREFIX}":
                return Response(308, headers=[(b"location", f"/{PREFIX}/".encode())])
            found = self._assets.answer(request, path or PAGE)
            if found is not None:
                return found
            if "html" in request.header(b"accept"):
                return self._assets.answer(request, PAGE) or Response(404)  # every view has an address of its own
            raise path_not_found()
        post = self._posts.get(path)
        if post is None:
            raise path_not_found()
        if request.method != "POST":
            raise path_method_not_allowed()
        if len(request.body) > BODY_LIMIT:
            raise bad_request(f"more than {BODY_LIMIT} bytes")
        return await post(request)

    # Signing in

    async def _code(self, request: Request) -> Response:
        """A link for who asks, by whatever they prove themselves with on the API: `homeostat ui` does."""
        user = await self._plane.identify(request)
        self._board.expect()
        return json_response({"link": self.link(user)}, 201)

    async def _session(self, request: Request) -> Response:
        """A token for who shows a code."""
        user = self._codes.use(_text(request, "code"))
        self._board.expect()
        made = await self._token(user)
        return json_response({"token": made["status"]["token"], "expires": made["status"]["expirationTimestamp"], "user": user.name}, 201)

    async def _token(self, user: User) -> dict[str, Any]:
        """A bearer token that stands for a user and the groups they are in, no more."""
        spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups), "expirationSeconds": SESSION_SECONDS}
        return await self._system.kind("homeostat.dev/v1", "UserToken").create({"metadata": {"generateName": "ui-"}, "spec": spec})

    # Looking

    async def _stream(self, request: Request) -> Response:
        from homeostat.web.stream import open_stream

        user = await self._plane.identify(request, by_token=True)
        viewer = Viewer(user, self._client(user), self._plane.may, self._plane.may_get, self._plane.audit)
        return open_stream(viewer, self._board, request.body)

    def _client(self, user: User, change_set: str = "") -> Client:
        """The API as this user has it; what it writes is of this change set."""
        headers = {CHANGE_SET_HEADER: change_set} if change_set else {}
        return Client(LocalTransport(self._plane, user), user_agent="homeostat-ui", timeout=None, streams_lists=False, headers=headers)

    # The way back: the person's own reads and writes, put together here

    async def _compare(self, request: Request) -> Response:
        from homeostat.web.returning import asked_of, compare

        async with self._client(await self._plane.identify(request, by_token=True)) as client:
            return json_response(await compare(client, asked_of(request.body)), 200)

    async def _rollback(self, request: Request) -> Response:
        from homeostat.web.returning import asked_of, go_back

        user = await self._plane.identify(request, by_token=True)
        async with self._client(user) as client:
            return json_response(await go_back(client, asked_of(request.body), lambda name: self._client(user, name)), 200)


def _text(request: Request, name: str) -> str:
    try:
        value = orjson.loads(request.body)[name]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise bad_request(f"a JSON object with {name!r} is wanted") from None
    if not isinstance(value, str):
        raise bad_request(f"{name!r} is a text")
    return value
