"""Reading a metric: the number that is there, or why there is none; never 0 for want of a better one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from homeostat.api.auth import pki
from homeostat.loop.observation import Unknown
from homeostat.loop.prometheus import BadQuery, Combine, Matcher, PrometheusSource, Query
from homeostat.loop.readings import Metric, MetricSource, Reading

PAGE = """\
# HELP queue_length Jobs that wait.
# TYPE queue_length gauge
queue_length{queue="mail",zone="a"} 3
queue_length{queue="mail", zone="b",} 4.5 1395066363000
  queue_length{queue="dead letters\\n\\"x\\" }",zone="a"}\t100
queue_length_total{queue="mail"} 999
plain 5
tight{a="b"}7
openmetrics_total 17.0 1520879607.789 # {trace_id="KOO5S4vxi0o"} 0.67
{"with.dots", zone="a"} 8
broken{a="b} 1
strange{a!="b"} 1
nothing
word many
grouped 1_000
not_a_number NaN
endless +Inf
mixed{a="1"} 1
mixed{a="2"} NaN
"""


def read(query: str, combine: Combine = Combine.SUM, page: str = PAGE) -> Metric:
    return Query.parse(query, combine).evaluate(page, 7.0)


@pytest.mark.parametrize(
    ("query", "value"),
    [
        ("plain", 5),
        ("queue_length", 107.5),
        ('queue_length{queue="mail"}', 7.5),
        ('queue_length{queue="mail",zone!="a"}', 4.5),
        ('queue_length{queue=~"ma.*", zone=~"a|c"}', 3),
        ('queue_length{queue!~"dead.*"}', 7.5),
        ('queue_length{queue="dead letters\\n\\"x\\" }"}', 100),
        ('queue_length{colour=""}', 107.5),
        ("tight", 7),
        ("openmetrics_total", 17),
        ('{"with.dots"}', 8),
        ('{"with.dots", zone="a"}', 8),
    ],
)
def test_a_selector_finds_its_series(query: str, value: float) -> None:
    assert read(query) == Reading(value, 7.0)


@pytest.mark.parametrize(
    ("query", "at"), [("queue_length", 1395066363.0), ("openmetrics_total", 1520879607.789), ("plain", 1.6e9)]
)
def test_a_reading_is_as_old_as_its_oldest_sample(query: str, at: float) -> None:
    found = Query.parse(query).evaluate(PAGE, 1.6e9)
    assert isinstance(found, Reading)
    assert found.at == at


@pytest.mark.parametrize(
    ("combine", "value"),
    [(Combine.SUM, 7.5), (Combine.AVERAGE, 3.75), (Combine.MAX, 4.5), (Combine.MIN, 3), (Combine.COUNT, 2)],
)
def test_several_series_come_to_one_number(combine: Combine, value: float) -> None:
    assert read('queue_length{queue="mail"}', combine) == Reading(value, 7.0)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("absent", "no series matches absent"),
        ('queue_length{queue="sms"}', 'no series matches queue_length{queue="sms"}'),
        ('queue_length{queue=~"ai"}', "no series matches"),
        ("broken", "line 11 cannot be read"),
        ("strange", "labels that make no sense"),
        ("nothing", "no series matches"),
        ("word", "'many' is no number"),
        ("grouped", "'1_000' is no number"),
        ("not_a_number", "is nan"),
        ("endless", "is inf"),
        ("mixed", "is nan"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_a_reason(query: str, why: str) -> None:
    metric = read(query)
    assert isinstance(metric, Unknown)
    assert why in metric.reason


def test_a_page_that_is_broken_off_is_not_read_in_part() -> None:
    metric = read("plain", page='plain 1\nplain{a="b"} 20')
    assert isinstance(metric, Unknown)
    assert "broken off" in metric.reason


@given(st.text(max_size=40), st.text(max_size=40), st.floats(-1e300, 1e300))
def test_any_label_value_survives(value: str, other: str, number: float) -> None:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    page = f"m{{a={quoted(value)},b={quoted(other)}}} {number!r}\n"
    query = Query("m", (Matcher("a", "=", value), Matcher("b", "=", other)))
    assert query.evaluate(page, 1.0) == Reading(number, 1.0)
    assert Query.parse(str(query)) == query


@given(st.text(alphabet='m{}",=\\ \n1.a#', max_size=60))
def test_no_page_breaks_the_reader(page: str) -> None:
    assert isinstance(read("m", page=page), Reading | Unknown)


@pytest.mark.parametrize("text", ["", "{}", "a b", "a{b}", 'a{b="c"', 'a{b="c"}}', 'a{b=~"("}', "a{b=c}", '{a="b"}'])
def test_a_query_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        Query.parse(text)


# Over HTTP

Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a server that answers as told; gives the URL of its metrics."""
    runners = []

    async def start(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> str:
        app = web.Application()
        app.router.add_get("/metrics", answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"

    yield start
    for runner in runners:
        await runner.cleanup()


def source(url: str, query: str = "plain", **options: float) -> MetricSource:
    return PrometheusSource(url, Query.parse(query), now=lambda: 42.0, **options)  # type: ignore[arg-type]


async def failure(of: MetricSource) -> str:
    metric = await of.read()
    assert isinstance(metric, Unknown)
    return metric.reason


async def test_a_metric_is_read_from_an_endpoint(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert "text/plain" in request.headers["Accept"]
        return web.Response(text=PAGE)

    assert await source(await serve(answer)).read() == Reading(5, 42.0)


async def test_any_status_but_200_is_unknown(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=503, text=PAGE)

    assert "503 Service Unavailable" in await failure(source(await serve(answer)))


async def test_a_redirect_is_not_followed(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/metrics")

    assert "302" in await failure(source(await serve(answer)))


async def test_nobody_there_is_unknown() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/metrics"
    reason = await failure(source(url))
    assert reason.startswith(f"{url}: Cannot connect")


async def test_a_server_that_takes_too_long_is_unknown(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"plain 5\n")
        await over.wait()
        return response

    over = asyncio.Event()
    assert "no answer within 0.2 s" in await failure(source(await serve(answer), timeout=0.2))
    over.set()


async def test_a_page_without_end_is_unknown(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"plain 5\n" * 1000)

    assert "larger than 100000 bytes" in await failure(source(await serve(answer), limit=100_000))


async def test_an_answer_that_breaks_off_is_unknown(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"plain 5\n")
        assert request.transport is not None
        request.transport.close()
        return response

    assert await failure(source(await serve(answer)))


async def test_what_was_encoded_unasked_is_unknown(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

    assert "encoded as gzip" in await failure(source(await serve(answer)))


async def test_what_is_no_text_is_unknown(serve: Serve) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=b"plain 5\nother\xff 3\n")

    assert "not UTF-8" in await failure(source(await serve(answer)))


async def test_a_server_that_is_not_trusted_is_unknown(tmp_path: Path) -> None:
    pki.ensure_server(tmp_path, ["127.0.0.1"])

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(text=PAGE)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=pki.server_context(tmp_path)).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}/metrics"
    trusting = ssl.create_default_context(cadata=pki.authority(tmp_path).decode())
    try:
        assert "ertificate" in await failure(source(url))
        known = PrometheusSource(url, Query.parse("plain"), now=lambda: 42.0, tls=trusting)
        assert await known.read() == Reading(5, 42.0)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("url", ["file:///etc/passwd", "metrics", "http:///metrics", "unix:/run/x"])
def test_only_http_is_read(url: str) -> None:
    with pytest.raises(BadQuery, match="http"):
        source(url)
