"""Reads a number from a Prometheus text endpoint.

    source = PrometheusSource("http://10.0.0.7:9100/metrics", Query.parse('queue_length{queue!~"dead.*"}'))
    metric = await source.read()

What cannot be read is `Unknown`, with the reason: no answer, a page that is too large or broken off, a line that makes
no sense, a value that is no number, no series that matches. It is never 0, and never the sum of the part that arrived.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from homeostat.loop.observation import Unknown
from homeostat.loop.readings import Metric, Reading

if TYPE_CHECKING:
    import aiohttp

ACCEPT = "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
SERIES_LIMIT = 100_000
"""How many series a query may match: more is a mistake in the query."""

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_QUOTED = r'"(?:[^"\\\n]|\\.)*"'
_LABEL = re.compile(rf"({_NAME}|{_QUOTED})[ \t]*(?:(=~|!~|!=|=)[ \t]*({_QUOTED})[ \t]*)?(?:,|(?=\}}))")
_ESCAPE = re.compile(r"\\(.)")
_VALUE = re.compile(r"[ \t]*([^\s#]+)(?:[ \t]+([-+0-9.eE]+))?[ \t]*(?:#.*)?\r?")
_MILLISECONDS = 1e11
"""A time from here on is in milliseconds, as the older format has it; OpenMetrics has seconds."""


class Combine(StrEnum):
    """What several series come to."""

    SUM = "sum"
    AVERAGE = "avg"
    MAX = "max"
    MIN = "min"
    COUNT = "count"


class BadQuery(ValueError):
    """A query that cannot be understood."""


class BadText(ValueError):
    """A page that is no Prometheus text."""


class Matcher(msgspec.Struct, frozen=True):
    """One condition on a label, as PromQL has it: `=`, `!=`, `=~`, `!~`. A label that is not there is empty.

    Patterns are RE2, and must fit the whole value.
    """

    label: str
    operator: str
    value: str

    def test(self) -> Callable[[str], bool]:
        """The function that says whether a value fits."""
        if self.operator == "=":
            return self.value.__eq__
        if self.operator == "!=":
            return self.value.__ne__
        import re2

        try:
            options = re2.Options()
            options.log_errors = False
            options.dot_nl = True
            pattern = re2.compile(self.value, options)
        except re2.error as error:
            raise BadQuery(f"{self.label}{self.operator}{self.value!r} is no pattern: {_text(error)}") from None
        wanted = self.operator == "=~"
        return lambda value: (pattern.fullmatch(value) is not None) == wanted


class Query(msgspec.Struct, frozen=True):
    """Which series to read, and what they come to together."""

    name: str
    matchers: tuple[Matcher, ...] = ()
    combine: Combine = Combine.SUM

    @classmethod
    def parse(cls, text: str, combine: Combine = Combine.SUM) -> Query:
        """A selector as PromQL writes it: `http_requests_total{code=~"5..", path!="/"}`. Raises `BadQuery`."""
        found = re.fullmatch(rf"\s*({_NAME})?\s*(\{{.*\}})?\s*", text, re.DOTALL)
        if found is None:
            raise BadQuery(f'{text!r} is no selector of series; write name{{label="value"}}')
        name = found[1] or ""
        try:
            labels, end = _labels(found[2], 1) if found[2] else ([], 0)
        except BadText as error:
            raise BadQuery(f"{text!r}: {error}") from None
        if found[2] and end != len(found[2]):
            raise BadQuery(f"{text!r}: there is something after the labels")
        matchers = []
        for label, operator, value in labels:
            if operator:
                matchers.append(Matcher(label, operator, value))
            elif name:
                raise BadQuery(f"{text!r}: label {label!r} lacks a value")
            else:
                name = label
        if not name:
            raise BadQuery(f"{text!r} names no metric")
        for matcher in matchers:
            matcher.test()
        return cls(name, tuple(matchers), combine)

    def evaluate(self, page: str, at: float) -> Metric:
        """What a page of Prometheus text says. It is of the time `at`, or of the oldest sample that says an older one."""
        if page and not page.endswith("\n"):
            return Unknown("the page is broken off: its last line has no end")
        try:
            found = self._matching(page, at)
        except BadText as error:
            return Unknown(str(error))
        if not found:
            return Unknown(f"no series matches {self}")
        result = _combined([value for value, _ in found], self.combine)
        if not math.isfinite(result):
            return Unknown(f"the {self.combine} of {self} is {result}")
        return Reading(result, min(when for _, when in found))

    def _matching(self, page: str, at: float) -> list[tuple[float, float]]:
        tests = [(matcher.label, matcher.test()) for matcher in self.matchers]
        found = []
        for labels, value, stamp in _samples(page, self.name):
            if all(test(labels.get(label, "")) for label, test in tests):
                found.append((value, at if stamp is None else min(at, stamp)))
                if len(found) > SERIES_LIMIT:
                    raise BadText(f"more than {SERIES_LIMIT} series match {self}")
        return found

    def __str__(self) -> str:
        inside = ", ".join(f"{one.label}{one.operator}{_quote(one.value)}" for one in self.matchers)
        return f"{self.name}{{{inside}}}" if inside else self.name


def _text(error: Exception) -> str:
    """What RE2 says, which it says in bytes."""
    said = error.args[0] if error.args else ""
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _combined(values: list[float], combine: Combine) -> float:
    if combine is Combine.COUNT:
        return float(len(values))
    if any(map(math.isnan, values)):
        return math.nan
    if combine is Combine.MAX:
        return max(values)
    if combine is Combine.MIN:
        return min(values)
    try:
        total = math.fsum(values)
    except (OverflowError, ValueError):  # too large, or +Inf and -Inf
        return math.nan
    return total if combine is Combine.SUM else total / len(values)


# The text


def _samples(page: str, name: str) -> Iterator[tuple[Mapping[str, str], float, float | None]]:
    """The samples of one metric, with the time that they say they are of. Raises `BadText` where a line of it cannot be understood."""
    for line, end in _lines(page, name):
        labels: dict[str, str] = {}
        try:
            if (brace := _brace(page, end)) is not None:
                pairs, end = _labels(page, brace + 1)
                if any(operator not in ("=", "") for _, operator, _ in pairs):
                    raise BadText("labels that make no sense")
                labels = {label: value for label, operator, value in pairs if operator}
            written = _VALUE.match(page, end)
            if written is None or not page.startswith("\n", written.end()):
                raise BadText("no value")
            stamp = _number(written[2]) if written[2] else None
            if stamp is not None and abs(stamp) >= _MILLISECONDS:
                stamp /= 1000
            yield labels, _number(written[1]), stamp
        except BadText as error:
            number, text = page.count("\n", 0, line) + 1, page[line : line + 100].partition("\n")[0]
            raise BadText(f"line {number} cannot be read ({error}): {text!r}") from None


def _lines(page: str, name: str) -> Iterator[tuple[int, int]]:
    """Where the lines of a metric begin, and where in them its labels may.

    A page may have a hundred thousand lines of others, so it is searched for the name and not read line by line.
    """
    written = _quote(name)[1:-1]
    at = page.find(written)
    while at >= 0:
        line, end = page.rfind("\n", 0, at) + 1, at + len(written)
        before = page[line:at].strip(" \t")
        if not before and page[end] in "{ \t":
            yield line, end
        elif before.startswith("{") and before[1:].strip(" \t") == page[end] == '"':
            yield line, page.index("{", line)  # {"a name", label="value"}: a name that is not plain stands within
        at = page.find(written, page.index("\n", at))


def _brace(page: str, start: int) -> int | None:
    while page[start] in " \t":
        start += 1
    return start if page[start] == "{" else None


def _labels(text: str, start: int) -> tuple[list[tuple[str, str, str]], int]:
    """The (label, operator, value) between braces, and where they end. A quoted name alone has neither of the others."""
    found: list[tuple[str, str, str]] = []
    while True:
        while text[start : start + 1] in (" ", "\t"):
            start += 1
        if text.startswith("}", start):
            return found, start + 1
        label = _LABEL.match(text, start)
        if label is None:
            raise BadText("labels that make no sense")
        found.append((_unquote(label[1]), label[2] or "", _unquote(label[3] or "")))
        start = label.end()


def _unquote(text: str) -> str:
    if not text.startswith('"'):
        return text
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text[1:-1])


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _number(text: str) -> float:
    """A float as Go writes them: also 1e5, +Inf, NaN; not `1_000`, which is Python's alone."""
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise BadText(f"{text!r} is no number") from None


# The endpoint


class PrometheusSource:
    """A metric at an HTTP endpoint.

    `timeout` seconds for all of it (default 5), `limit` bytes of the page (default 16 MiB), `headers` such as
    Authorization, `tls` where the authority is not the system's. Redirects are not followed: who may set the URL should
    not be able to reach further than the URL. `now` is the wall clock. A session may be shared; its owner closes it.
    """

    def __init__(
        self,
        url: str,
        query: Query,
        *,
        now: Callable[[], float],
        timeout: float = 5.0,
        limit: int = 16 * 1024 * 1024,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        session: aiohttp.ClientSession | None = None,
    ) -> None:
        if not re.match(r"https?://[^/?#]+", url):
            raise BadQuery(f"{url!r} is no http or https URL")
        self._url = url
        self._query = query
        self._now = now
        self._timeout = timeout
        self._limit = limit
        self._headers = {"Accept": ACCEPT, "Accept-Encoding": "identity", **(headers or {})}
        self._tls = tls
        self._session = session

    async def read(self) -> Metric:
        """Gets the page and what it says now."""
        import aiohttp

        try:
            async with asyncio.timeout(self._timeout):
                page = await self._get()
        except TimeoutError:
            return self._nothing(f"no answer within {self._timeout:g} s")
        except BadText as error:
            return self._nothing(str(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return self._nothing(str(error) or type(error).__name__)
        metric = self._query.evaluate(page, self._now())
        return self._nothing(metric.reason) if isinstance(metric, Unknown) else metric

    def _nothing(self, reason: str) -> Unknown:
        return Unknown(f"{self._url}: {reason}")

    async def _get(self) -> str:
        import aiohttp

        session = self._session or aiohttp.ClientSession(
            auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
        )
        try:
            async with session.get(
                self._url, headers=self._headers, ssl=self._tls or True, allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise BadText(f"the answer is {response.status} {response.reason}")
                coding = response.headers.get("Content-Encoding", "identity")
                if coding != "identity":
                    raise BadText(f"the answer is encoded as {coding}, which was not asked for")
                return await self._body(response.content.iter_any())
        finally:
            if session is not self._session:
                await session.close()

    async def _body(self, pieces: AsyncIterator[bytes]) -> str:
        body = bytearray()
        async for piece in pieces:
            body += piece
            if len(body) > self._limit:
                raise BadText(f"the page is larger than {self._limit} bytes")
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise BadText(f"the page is not UTF-8: {error.reason} at byte {error.start}") from None
