"""When a request is tried again, and when it is not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import orjson
import pytest

from homeostat.client import Answer, Client, Unreachable
from homeostat.client.backoff import Backoff
from homeostat.client.errors import from_answer
from homeostat.client.transport import Headers, Reply
from homeostat.model.errors import ApiError, not_found, too_many_requests, unavailable

Outcome = ApiError | Unreachable | bytes


class Said:
    def __init__(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.status, self.headers, self._body = status, headers, body

    async def read(self) -> bytes:
        return self._body

    async def piece(self) -> bytes:
        return b""

    def close(self) -> None: ...


class Script:
    """Answers requests as written down, the last line for ever."""

    def __init__(self, *outcomes: Outcome) -> None:
        self._outcomes = list(outcomes)
        self.calls = 0
        self.headers: Headers = ()

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> Answer:
        self.calls += 1
        self.headers = headers
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, Unreachable):
            raise outcome
        if isinstance(outcome, ApiError):
            return Said(outcome.code, orjson.dumps(outcome.status()), {})
        return Said(200, outcome, {})

    async def close(self) -> None: ...


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses are noted and not waited for."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr("homeostat.client.client.asyncio.sleep", sleep)
    return pauses


LOST = Unreachable("the connection broke")
REFUSED = Unreachable("connection refused", sent=False)


@pytest.mark.parametrize(
    ("method", "outcome", "calls"),
    [
        ("GET", LOST, 2),
        ("POST", LOST, 1),  # it may have been done
        ("POST", REFUSED, 2),  # it never left
        ("DELETE", LOST, 1),
        ("POST", too_many_requests("slow down"), 2),
        ("POST", unavailable("not now"), 2),  # the server says when to come back: it did nothing
        ("POST", ApiError(503, "ServiceUnavailable", "who knows"), 1),
        ("GET", ApiError(503, "ServiceUnavailable", "who knows"), 2),
        ("GET", ApiError(500, "InternalError", "broken"), 1),
        ("GET", not_found("", "pods", "a"), 1),
    ],
)
async def test_what_is_safe_is_tried_again(method: str, outcome: Outcome, calls: int) -> None:
    script = Script(outcome, b"{}")
    client = Client(script, source=random.Random(1))
    if calls == 1:
        with pytest.raises((ApiError, Unreachable)):
            await client.request(method, "/x")
    else:
        assert (await client.request(method, "/x")).json() == {}
    assert script.calls == calls


async def test_it_gives_up_in_the_end() -> None:
    script = Script(REFUSED)
    with pytest.raises(Unreachable, match="refused"):
        await Client(script, attempts=4).request("GET", "/x")
    assert script.calls == 4


async def test_the_server_decides_how_long_to_wait(hurry: list[float]) -> None:
    await Client(Script(too_many_requests("slow down", retry_after=7), b"{}")).request("GET", "/x")
    assert len(hurry) == 1
    assert 7 <= hurry[0] < 8


async def test_requests_say_who_asks() -> None:
    script = Script(b"{}")
    await Client(script, user_agent="painter/1").request("GET", "/x")
    assert ("User-Agent", "painter/1") in script.headers
    await Client(script).request("GET", "/x")
    assert dict(script.headers)["User-Agent"].startswith("homeostat/")


def test_pauses_grow_to_a_limit_and_differ() -> None:
    backoff = Backoff(first=1, most=10, source=random.Random(3))
    pauses = [backoff.next() for _ in range(50)]
    assert max(pauses) <= 10
    assert len(set(pauses)) == 50
    assert max(pauses[:2]) <= 2
    backoff.reset()
    assert backoff.next() <= 1
    again = Backoff(first=1, most=10, source=random.Random(3))
    assert [again.next() for _ in range(50)] == pauses


async def test_who_rests_after_a_failure_can_be_hurried() -> None:
    backoff = Backoff(first=1, most=10, source=random.Random(3))
    backoff.hurry()  # nobody rests
    for _ in range(5):
        backoff.next()
    resting = asyncio.create_task(backoff.rest(1000.0))
    await asyncio.wait({resting}, timeout=0.01)
    backoff.hurry()
    await asyncio.wait_for(resting, 10)
    assert backoff.next() <= 1
    await backoff.rest(0.001)


def test_an_answer_that_is_no_status_is_still_an_error() -> None:
    error = from_answer(502, {"retry-after": "3"}, b"<html>Bad Gateway</html>")
    assert (error.code, error.retry_after, error.message) == (502, 3, "<html>Bad Gateway</html>")
    assert from_answer(429, {}, b"").reason == "TooManyRequests"
    assert from_answer(404, {}, b"[1]").code == 404


async def test_a_refusal_in_process_is_the_one_that_would_have_been_read() -> None:
    refusal = too_many_requests("slow down")
    read = Reply(429, {}, orjson.dumps(refusal.status())).refusal()
    handed = Reply(429, {}, b"", refusal).refusal()
    assert handed is refusal
    assert vars(read) == vars(handed)


async def test_whoever_carries_a_refusal_on_can_read_it() -> None:
    refusal = too_many_requests("slow down")
    handed = Reply(429, {}, b"", refusal)
    assert orjson.loads(await handed.read()) == refusal.status()
