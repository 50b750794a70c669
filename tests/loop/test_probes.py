"""Probes: believed when they say so often enough; what could not be asked is no failure."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from homeostat.api.auth import pki
from homeostat.loop.checks import ExecCheck, GrpcCheck, HttpCheck, TcpCheck, from_spec
from homeostat.loop.probes import Check, Outcome, ProbePolicy, ProbeState, Result, Verdict, look, run_probe

from .virtual import run

PASSED, FAILED, UNKNOWN = Outcome
OUTCOMES = {"+": Result(PASSED), "-": Result(FAILED), "?": Result(UNKNOWN)}
VERDICTS = {Verdict.PASSING: "P", Verdict.FAILING: "F", Verdict.UNKNOWN: "U"}


def verdicts(results: str, policy: ProbePolicy | None = None) -> str:
    """The verdict after each result."""
    state, seen = ProbeState(), ""
    for second, result in enumerate(results):
        state = state.observe(policy or ProbePolicy(), OUTCOMES[result], 100.0 + second)
        seen += VERDICTS[state.verdict]
    return seen


# What is believed


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ("+", "P"),
        ("---", "UUF"),
        ("+--+--+", "PPPPPPP"),
        ("+---+", "PPPFP"),
        ("+-?-?-", "PPPPPF"),
        ("+--?+--", "PPPPPPP"),
        ("+??", "PPP"),
        ("+???+", "PPPUP"),
        ("---???-", "UUFFFUU"),
        ("+--???-", "PPPPPUU"),
        ("?-?-?-", "UUUUUF"),
    ],
)
def test_a_verdict_turns_after_enough_equal_results_in_a_row(results: str, expected: str) -> None:
    assert verdicts(results) == expected


def test_it_may_take_several_successes() -> None:
    assert verdicts("++-+++---+++", ProbePolicy(success_threshold=3)) == "UUUUUPPPFFFP"


def test_it_says_since_when_and_why() -> None:
    state = ProbeState().observe(ProbePolicy(), Result(PASSED), 100)
    for second in range(4):
        state = state.observe(ProbePolicy(), Result(FAILED, "connection refused"), 110 + second)
    assert (state.since, state.at, state.run) == (112, 113, 4)
    assert state.message == "the probe is failing: connection refused"


@given(st.text(alphabet="+-?", max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_it_never_turns_on_less_than_its_threshold(results: str, successes: int, failures: int) -> None:
    policy = ProbePolicy(success_threshold=successes, failure_threshold=failures)
    seen = verdicts(results, policy)
    before = "U"
    for index, verdict in enumerate(seen):
        if verdict != before:
            last = results[: index + 1]
            real = last.replace("?", "")
            needed = {"P": "+" * successes, "F": "-" * failures}
            assert last.endswith("?" * failures) if verdict == "U" else real.endswith(needed[verdict])
        before = verdict


@pytest.mark.parametrize("bad", [{"period": 0}, {"timeout": 0}, {"initial_delay": -1}, {"failure_threshold": 0}])
def test_settings_that_make_no_sense_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="probe"):
        ProbePolicy(**bad)


# When it is looked


def timeline(policy: ProbePolicy, check: Check, until: float, **options: Any) -> list[tuple[float, Verdict]]:
    """When the state was told, and the verdict, in virtual seconds from the start."""

    async def work() -> list[tuple[float, Verdict]]:
        loop = asyncio.get_running_loop()
        start, told = loop.time(), []
        running = run_probe(
            policy, check, lambda state: told.append((loop.time() - start, state.verdict)), now=loop.time, **options
        )
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(running, until)
        return told

    return run(work())


async def passing() -> Result:
    return Result(PASSED)


async def hanging() -> Result:
    await asyncio.Event().wait()
    return Result(PASSED)


def test_it_looks_after_the_delay_and_then_every_period() -> None:
    told = timeline(ProbePolicy(initial_delay=3, period=10), passing, 25)
    assert told == [(3, Verdict.PASSING), (13, Verdict.PASSING), (23, Verdict.PASSING)]


def test_many_that_start_at_once_spread_out() -> None:
    source = random.Random(5)
    first = [timeline(ProbePolicy(period=10), passing, 11, source=source)[0][0] for _ in range(20)]
    assert max(first) - min(first) > 5


def test_no_answer_in_time_is_a_failure() -> None:
    told = timeline(ProbePolicy(period=10, timeout=2, failure_threshold=2), hanging, 25)
    assert told == [(2, Verdict.UNKNOWN), (12, Verdict.FAILING), (22, Verdict.FAILING)]


def test_looks_do_not_overlap_when_they_take_longer_than_the_period() -> None:
    busy = 0

    async def slow() -> Result:
        nonlocal busy
        busy += 1
        assert busy == 1
        await asyncio.sleep(3)
        busy -= 1
        return Result(PASSED)

    told = timeline(ProbePolicy(period=1, timeout=10), slow, 10)
    assert [at for at, _ in told] == [3, 6, 9]


async def test_a_check_that_breaks_is_unknown() -> None:
    async def broken() -> Result:
        raise RuntimeError("out of paper")

    assert await look(broken, 1) == Result(UNKNOWN, "the probe could not look: RuntimeError: out of paper")


async def test_a_prober_that_was_too_busy_blames_nobody() -> None:
    async def answered() -> Result:
        time.sleep(0.1)  # the whole process is held up, while the answer lies there
        await asyncio.sleep(0.05)
        return Result(PASSED)

    assert await look(answered, 0.02) == Result(UNKNOWN, "the prober was too busy to tell")


# Commands


def script(text: str) -> ExecCheck:
    return ExecCheck(("sh", "-c", text))


async def test_a_command_passes_with_status_0_and_fails_with_others() -> None:
    assert await script("echo fine")() == Result(PASSED, "fine")
    assert await script("echo bad >&2; exit 3")() == Result(FAILED, "exit status 3: bad")
    assert await script("kill -9 $$")() == Result(FAILED, "killed by signal 9")


@pytest.mark.parametrize("command", [("/does/not/exist",), ("/etc/passwd",), ("a\0b",)])
async def test_a_command_that_cannot_be_run_is_unknown(command: tuple[str, ...]) -> None:
    assert (await ExecCheck(command)()).outcome is UNKNOWN


async def test_a_command_sees_only_what_it_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SECRET", "hidden")
    result = await ExecCheck(("sh", "-c", 'echo "$SECRET$GIVEN in $PWD"'), {"GIVEN": "shown"}, str(tmp_path))()
    assert result.message == f"shown in {tmp_path}"


async def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = await look(script(f"sleep 100 & echo $! $$ > {pids}; wait"), 0.5)
    assert result == Result(FAILED, "no answer within 0.5 s")
    for pid in map(int, pids.read_text().split()):
        assert await _gone(pid)


async def _gone(pid: int) -> bool:
    """Whether a process ends within a while: its new parent may take a moment to reap it."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if f"{pid} (sleep) Z" in Path(f"/proc/{pid}/stat").read_text():
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_who_a_command_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    result = await look(script(f"sleep 100 & echo $! > {note}; echo up"), 10)
    assert result == Result(PASSED, "up")
    os.kill(int(note.read_text()), signal.SIGKILL)


async def test_a_command_that_talks_without_end_takes_no_memory() -> None:
    result = await script("head -c 3000000 /dev/zero | tr '\\0' x")()
    assert result.outcome is PASSED
    assert len(result.message) == 4096


async def test_looking_leaves_no_files_open() -> None:
    await script("true")()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await look(script("echo x"), 5)
        await look(script("sleep 5"), 0.05)
    assert len(os.listdir("/proc/self/fd")) == before


# HTTP

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Serve = Callable[..., Awaitable[int]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts a web server that answers as told; gives its port."""
    runners = []

    async def start(answer: Answer, tls: ssl.SSLContext | None = None) -> int:
        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        port: int = runner.addresses[0][1]
        return port

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, PASSED), (204, PASSED), (302, PASSED), (404, FAILED), (503, FAILED)]
)
async def test_a_page_passes_from_200_to_399(serve: Serve, status: int, outcome: Outcome) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, headers={"Location": "http://127.0.0.1:1/"})

    result = await HttpCheck("127.0.0.1", await serve(answer))()
    assert (result.outcome, result.message) == (outcome, f"HTTP {status}")


async def test_a_page_is_asked_for_as_told(serve: Serve) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        said = [request.path_qs, request.headers["User-Agent"], request.headers["Host"]]
        return web.Response(status=500, text=" ".join(said))

    headers = (("user-agent", "me"), ("Host", "shop"))
    check = HttpCheck("127.0.0.1", await serve(answer), "healthz?full=1", headers=headers)
    assert (await check()).message == "HTTP 500: /healthz?full=1 me shop"


async def test_a_certificate_is_verified_only_on_demand(serve: Serve, tmp_path: Path) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response()

    pki.ensure_server(tmp_path, ["127.0.0.1"])
    port = await serve(answer, pki.server_context(tmp_path))
    assert (await HttpCheck("127.0.0.1", port, scheme="https")()).outcome is PASSED
    verified = await HttpCheck("127.0.0.1", port, scheme="https", verify=True)()
    assert verified.outcome is FAILED
    assert "ertificate" in verified.message


async def test_who_does_not_speak_http_fails() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    server = await asyncio.start_server(babble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert (await HttpCheck("127.0.0.1", port)()).outcome is FAILED
    assert (await GrpcCheck("127.0.0.1", port)()).outcome is FAILED
    server.close()


# Connections


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def test_a_connection_passes_when_somebody_accepts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert (await TcpCheck("127.0.0.1", listening.getsockname()[1])()).outcome is PASSED


@pytest.mark.parametrize("check", [TcpCheck, HttpCheck, GrpcCheck])
async def test_nobody_there_is_a_failure(check: Callable[[str, int], Check]) -> None:
    assert (await check("127.0.0.1", free_port())()).outcome is FAILED


@pytest.mark.parametrize("check", [TcpCheck, HttpCheck, GrpcCheck])
async def test_a_name_that_does_not_resolve_is_unknown(
    check: Callable[[str, int], Check], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert (await check("shop.example", 80)()).outcome is UNKNOWN


async def test_without_a_socket_left_it_is_unknown() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        check = TcpCheck("127.0.0.1", listening.getsockname()[1])
        highest = max(map(int, os.listdir("/proc/self/fd")))
        spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, hard))
        try:
            result = await check()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in spare:
                os.close(fd)
    assert result == Result(UNKNOWN, "Too many open files")


# From Kubernetes


def test_a_probe_is_read_as_kubernetes_writes_it() -> None:
    spec = {
        "httpGet": {"path": "/up", "port": 8080, "scheme": "HTTPS", "httpHeaders": [{"name": "X", "value": "y"}]},
        "initialDelaySeconds": 5,
        "timeoutSeconds": 2,
        "failureThreshold": 9,
    }
    assert from_spec(spec, "10.0.0.7") == (
        ProbePolicy(initial_delay=5, timeout=2, failure_threshold=9),
        HttpCheck("10.0.0.7", 8080, "/up", "https", (("X", "y"),)),
    )
    assert from_spec({"tcpSocket": {"port": 5432, "host": "db"}}, "::1")[1] == TcpCheck("db", 5432)
    assert from_spec({"grpc": {"port": 9000, "service": "s"}}, "::1")[1] == GrpcCheck("::1", 9000, "s")
    assert from_spec({"exec": {"command": ["true"]}}, "::1", {"A": "b"})[1] == ExecCheck(("true",), {"A": "b"})


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"exec": {"command": ["true"]}, "grpc": {"port": 1}},
        {"tcpSocket": {"port": "http"}},
        {"exec": {"command": []}},
    ],
)
def test_a_probe_that_makes_no_sense_is_refused(spec: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"probe|exec"):
        from_spec(spec, "::1")
