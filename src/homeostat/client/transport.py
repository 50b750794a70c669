"""How requests travel: a small contract with two forms, HTTPS (`client.http`) and in process (`api.local`)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from homeostat.client import errors
from homeostat.model.errors import ApiError

Headers = Sequence[tuple[str, str]]


class Unreachable(Exception):
    """No answer came. `sent` says whether the server may have acted on the request all the same."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class Untrusted(Unreachable):
    """The server's certificate does not check. `why` is OpenSSL's number of the reason."""

    def __init__(self, message: str, why: int) -> None:
        super().__init__(message, sent=False)
        self.why = why


class Answer(Protocol):
    """An answer that has begun to arrive. Whoever asked must read it to its end or `close` it."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names are lower case; of a repeated header the first."""

    async def read(self) -> bytes:
        """The whole body. Raises `Unreachable` where it breaks off."""

    async def piece(self) -> bytes:
        """The next bytes of a stream; empty at its end in order. Raises `Unreachable` where it breaks off."""

    def close(self) -> None:
        """Lets go of it, read or not. Doing so twice is harmless."""


class Reply:
    """A whole answer: an `Answer` of which nothing is left to come."""

    __slots__ = ("_body", "_error", "_taken", "headers", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, error: ApiError | None = None) -> None:
        self.status = status
        self.headers = headers
        self._body = body
        self._error = error
        self._taken = False

    @property
    def body(self) -> bytes:
        """What was answered. A refusal that was handed over as the error itself is written out when somebody reads it."""
        if not self._body and self._error is not None:
            self._body = orjson.dumps(self._error.status())
        return self._body

    def json(self) -> Any:
        """The body, decoded."""
        return orjson.loads(self.body)

    def refusal(self) -> ApiError:
        """What an answer that says no means; the error itself, once, where whoever refused is in this process.

        It is not kept here: who raises it holds this answer, and both would stay until the garbage collector comes by.
        """
        error, self._error = self._error, None
        return error or errors.from_answer(self.status, self.headers, self.body)

    async def read(self) -> bytes:
        taken, self._taken = self._taken, True
        return b"" if taken else self.body

    piece = read

    def close(self) -> None:
        self._taken = True


class Transport(Protocol):
    """Carries requests to one server. Timeouts are the caller's: a transport waits for as long as it is let."""

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        """Sends a request and waits for the head of its answer: a `Reply` where nothing more is to come. Raises `Unreachable`.

        `target` is an absolute path with its query, already quoted.
        """

    async def close(self) -> None:
        """Ends what is open."""


def http_date(text: str) -> float:
    """The time that a Date header tells; ours where it tells none."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except ValueError:
        return time.time()
