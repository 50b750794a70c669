"""The log as people and machines read it, and where the figures are found."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from homeostat.cli.logs import configure
from homeostat.client import Client
from homeostat.loop.breaker import Breaker, Circuit
from homeostat.loop.fleet import Cause, Drift, Fleet, Halt, Hold, Op, Ref, Verdict
from homeostat.loop.listener import Closed, Outcome
from homeostat.loop.logs import Logs

from .conftest import COMMAND, Up

Start = Callable[..., Up]
Command = Callable[..., subprocess.CompletedProcess[str]]

REF = Ref("lamps.example.com", "default", "hall", "1")
DRIFT = Drift(
    REF, Op.UPDATE, Cause.DRIFT, 0.0, "x", changes=("colour: red → hunter2",), change_set="push-7", by=("eve",)
)
FLEET = Fleet("house", 3)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """The log belongs to the process: other tests have theirs back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_that_is_not_for_a_terminal_is_json_with_its_fields() -> None:
    stream = io.StringIO()
    configure(log_level="info", stream=stream)
    Logs().acted(FLEET, DRIFT, 0.0123, Outcome.DONE)
    (line,) = lines(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "event": "acted",
        "level": "info",
        "logger": "homeostat.loop",
        "kind": "lamps.example.com",
        "namespace": "default",
        "name": "hall",
        "op": "update",
        "cause": "drift",
        "change_set": "push-7",
        "outcome": "done",
        "seconds": 0.0123,
    }


def test_every_logger_comes_out_the_same_way() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("somebody.else").error("%d lamps are out", 3)
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("3 lamps are out", "error", "somebody.else")


def test_a_traceback_stays_on_its_line() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    try:
        raise ValueError("no such lamp")
    except ValueError:
        logging.getLogger("homeostat").exception("it failed")
    (line,) = lines(stream)
    assert "ValueError: no such lamp" in line["exception"]


def test_people_read_plain_lines() -> None:
    stream = io.StringIO()
    configure("human", "info", stream)
    Logs().held(FLEET, REF, Hold("cap", "too many at once"))
    (line,) = stream.getvalue().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[info +\] held", line)
    assert "guard=cap" in line
    assert "reason='too many at once'" in line
    assert "\x1b" not in line  # colours are for terminals


def test_a_terminal_gets_lines_for_people() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    configure(stream=stream)
    logging.getLogger("homeostat").warning("careful")
    assert "careful" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_a_field_does_not_replace_what_every_line_has() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logging.getLogger("homeostat").error("true", extra={"fields": {"event": "false", "level": "debug"}})
    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("true", "error")


def test_only_what_needs_a_person_is_told_unasked() -> None:
    stream = io.StringIO()
    configure(stream=stream)
    logs, halt = Logs(), Halt("mass-drift", "9 of 10 would be changed", 1.0, "0123456789abcdef", change_set="push-7")
    logs.drift_opened(FLEET, DRIFT)
    logs.acted(FLEET, DRIFT, 0.1, Outcome.DONE)
    logs.drift_closed(FLEET, DRIFT, 0.2, Closed.ACTED)
    logs.decided(FLEET, Verdict(), 0.1)
    logs.pass_done(3, 0.1)
    assert lines(stream) == []
    logs.acted(FLEET, DRIFT, 0.1, Outcome.FAILED, "no power")
    logs.halted(FLEET, halt)
    logs.lifted(FLEET, halt)
    logs.breaker_moved(FLEET, "api.example.com", Breaker(Circuit.OPEN, 5))
    told = lines(stream)
    assert [line["event"] for line in told] == ["acted", "halted", "halt lifted", "breaker moved"]
    assert told[0]["error"] == "no power"
    assert (told[1]["guard"], told[1]["change_set"], told[1]["plan"]) == ("mass-drift", "push-7", "0123456789abcdef")
    assert (told[3]["circuit"], told[3]["target"]) == ("open", "api.example.com")


def test_no_value_that_was_declared_or_found_is_logged() -> None:
    stream = io.StringIO()
    configure(log_level="debug", stream=stream)
    logs = Logs()
    logs.drift_opened(FLEET, DRIFT)
    logs.acted(FLEET, DRIFT, 0.1, Outcome.DONE)
    logs.drift_closed(FLEET, DRIFT, 0.2, Closed.ACTED)
    assert len(lines(stream)) == 3
    assert "hunter2" not in stream.getvalue()


def test_help_imports_none_of_it() -> None:
    code = "import sys, homeostat.cli as c\ntry: c.main(['{}', '--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    for command in ("up", "controllers"):
        done = subprocess.run([sys.executable, "-c", code.format(command)], capture_output=True, text=True, check=True)
        assert not {"structlog", "prometheus_client", "opentelemetry", "rich"} & set(done.stdout.split())


# The commands


async def test_the_server_shows_the_figures_of_its_loop_to_those_who_may_see_them(start: Start) -> None:
    up = await asyncio.to_thread(start, "--allow", "process", "--log-level", "info")
    async with Client.from_kubeconfig(up.kubeconfig) as client:
        async with asyncio.timeout(20):
            while b"homeostat_pass_seconds_count" not in (shown := (await client.request("GET", "/metrics")).body):
                await asyncio.sleep(0.05)
    assert b"apiserver_request_total" in shown
    assert b"workqueue_depth" in shown
    assert re.search(rb'leader_election_master_status{name="processes\.[a-z.]+"} 1', shown)
    anyone = ssl.create_default_context(cafile=up.data / "pki" / "ca.crt")
    with pytest.raises(urllib.error.HTTPError, match=r"401|403"):
        await asyncio.to_thread(urllib.request.urlopen, f"{up.url}/metrics", context=anyone)
    await asyncio.to_thread(up.stop)
    events = [json.loads(line) for line in up.said.splitlines() if line.startswith("{")]
    assert "pass done" in [event["event"] for event in events]


def test_controllers_serve_figures_where_they_are_told_to(start: Start, environment: dict[str, str]) -> None:
    up = start()
    call = [*COMMAND, "controllers", "--kubeconfig", str(up.kubeconfig), "--metrics", "0"]
    process = subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline() + process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/metrics", said)
        assert found, said
        with urllib.request.urlopen(found[0]) as answer:
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert b"\nworkqueue_adds_total{" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(found[0].removesuffix("metrics"))
    finally:
        process.terminate()
        process.communicate(timeout=10)
    assert process.returncode == 0


@pytest.mark.parametrize("place", ["127.0.0.1:99999", "192.0.2.1:0"])
def test_a_place_for_figures_that_is_none_is_said(start: Start, homeostat_command: Command, place: str) -> None:
    up = start()
    done = homeostat_command("controllers", "--kubeconfig", up.kubeconfig, "--metrics", place)
    assert done.returncode == 1
    assert "--metrics" in done.stderr
    assert "Traceback" not in done.stderr
