"""A request and its response, apart from how they travel: over TLS by `http`, or in process by the client."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

import orjson

from homeostat.model.errors import ApiError, bad_request
from homeostat.model.protocol import IMPERSONATE, JSON

Headers = list[tuple[bytes, bytes]]


_impersonates = re.compile(IMPERSONATE).match


class Said(Headers):
    """The headers of a request, in the order in which they came, their names in lower case."""

    __slots__ = ("_first", "plain")

    def __init__(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        super().__init__(headers)
        self._first = dict(reversed(self))
        self.plain = b"origin" not in self._first and not any(map(_impersonates, self._first))
        """Neither a page in a browser asks, nor somebody as somebody else."""

    def first(self, name: bytes) -> str:
        """The first header of that name, or an empty string."""
        value = self._first.get(name)
        return value.decode("latin-1") if value is not None else ""


class Request:
    """One call. Header names are lower case. `user` is set where the connection already proved who calls.

    `head_only`: it came as HEAD; the method says GET. `audit_id` is what the audit log knows it by, once somebody asked for that.
    """

    __slots__ = ("_query", "audit_id", "body", "client", "head_only", "headers", "method", "path", "query", "user")

    def __init__(
        self, method: str, target: str, headers: Headers, body: bytes = b"", user: Any = None, client: str = ""
    ) -> None:
        self.method = method
        self.path, _, self.query = target.partition("?")
        self.headers = headers if isinstance(headers, Said) else Said(headers)
        self.body = body
        self.user = user
        self.client = client
        self.head_only = False
        self.audit_id = ""
        self._query: dict[str, str] | None = None

    def header(self, name: bytes) -> str:
        """The first header of that name (lower case), or an empty string."""
        return self.headers.first(name)

    @property
    def params(self) -> dict[str, str]:
        """Query parameters as Go reads them: where one is repeated, the first counts; a malformed one is as good as none."""
        if self._query is None:
            try:
                self._query = dict(_read_query(self.query) if len(self.query) < 256 else _pairs(self.query)) if self.query else {}
            except ValueError as error:
                raise bad_request(f"the query cannot be read: {error}") from None
        return self._query

    def flag(self, name: str) -> bool:
        """A boolean parameter, read as Go reads it: present and not false."""
        value = self.params.get(name)
        return value is not None and value not in ("false", "0", "f", "F", "FALSE", "False")


_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})|;").search


def _pairs(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    if _MALFORMED(query):
        query = "&".join(pair for pair in query.split("&") if not _MALFORMED(pair))
    for key, value in parse_qsl(query, keep_blank_values=True, max_num_fields=100):
        found.setdefault(key, value)
    return found


_read_query = lru_cache(512)(_pairs)


class Stream(Protocol):
    """Where a streaming response is written."""

    closed: bool
    """The peer has gone."""
    stopping: bool
    """The server stops: end in order."""
    notify: Callable[[], None] | None
    """Called when the peer goes, when the server stops, and when a congested stream has drained."""

    def write(self, data: bytes) -> None:
        """Sends a piece; never blocks. Look at `congested` to know when to pause."""

    @property
    def congested(self) -> bool:
        """The peer reads slower than we write."""

    async def drained(self) -> None:
        """Waits until the peer caught up or went away."""


Streaming = Callable[[Stream], Awaitable[None]]


_JSON_TYPE = (b"content-type", JSON.encode())


class Response:
    """An answer: a whole body, or a function that writes one piece by piece. `error` is the refusal that it tells, where it is one."""

    __slots__ = ("body", "error", "headers", "status", "stream")

    def __init__(
        self,
        status: int = 200,
        body: bytes = b"",
        content_type: str = JSON,
        *,
        stream: Streaming | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.stream = stream
        self.error: ApiError | None = None
        self.headers: Headers = [_JSON_TYPE if content_type is JSON else (b"content-type", content_type.encode()), *headers]

    def write_out(self) -> None:
        """Gives a refusal its body."""
        if self.error is not None:
            self.body = orjson.dumps(self.error.status())

    def warn(self, texts: Iterable[str]) -> None:
        """Adds `Warning` headers, which kubectl prints."""
        for text in texts:
            safe = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ").replace("\r", " ")
            self.headers.append((b"warning", f'299 - "{safe}"'.encode("latin-1", "replace")))


def json_response(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(status, orjson.dumps(value))


def success_response(status: int = 200, **said: Any) -> Response:
    """A `Status` that says that it was done, for what has no object to show."""
    return json_response({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **said}, status)


def error_response(error: ApiError) -> Response:
    """A refusal as it goes over the network."""
    response = refused(error)
    response.write_out()
    return response


def refused(error: ApiError) -> Response:
    """A refusal, with the headers that belong to it, for who is told the error itself: its body is written out when somebody reads it.

    What was under way when it was raised is let go of, for that holds the answer.
    """
    response = Response(error.code)
    response.error = error.with_traceback(None)
    if error.retry_after:
        response.headers.append((b"retry-after", str(error.retry_after).encode()))
    if error.code == 401:
        response.headers.append((b"www-authenticate", b'Bearer realm="homeostat"'))
    return response


def split_path(path: str) -> list[str]:
    """The segments of a path, decoded. Refuses what could mean another path to somebody else: `..`, `//`, `%2f`, NUL."""
    segments = path[1:].split("/")
    if segments[-1] == "":
        segments.pop()  # one trailing slash is harmless
    if "%" in path:
        segments = [unquote(s, errors="strict") if "%" in s else s for s in segments] if _decodable(path) else [""]
    for segment in segments:
        if segment in ("", ".", "..") or "/" in segment or "\0" in segment:
            raise bad_request("the path is not clean: empty, '.', '..' or encoded '/' segments are refused")
    return segments


def _decodable(path: str) -> bool:
    try:
        unquote(path, errors="strict")
    except UnicodeDecodeError:
        return False
    return True
