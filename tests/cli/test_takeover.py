"""Two loops for one kind, as processes of their own: one keeps it, the other takes over when the first is gone."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from homeostat.loop.election import TIMING

from .conftest import COMMAND, Up

Start = Callable[..., Up]
Command = Callable[..., subprocess.CompletedProcess[str]]
KIND = "lamps.lamps.example.com"

PROVIDER = '''
import os
from pathlib import Path

from homeostat import ABSENT, Absent, Diff, Provider, Spec, current


class LampSpec(Spec):
    colour: str


class Lamp(Provider[LampSpec, LampSpec], group="lamps.example.com"):
    """A lamp, and a book in which every act is written with who did it."""

    def _file(self) -> Path:
        return Path(os.environ["LAMPS"], current().ref.name)

    async def observe(self, spec: LampSpec) -> LampSpec | Absent:
        try:
            return LampSpec(colour=self._file().read_text())
        except FileNotFoundError:
            return ABSENT

    async def apply(self, spec: LampSpec, diff: Diff) -> None:
        with Path(os.environ["BOOK"]).open("a") as book:
            book.write(f"{os.getpid()} {current().ref.name} {spec.colour}\\n")
        self._file().write_text(spec.colour)

    async def delete(self, spec: LampSpec) -> None:
        self._file().unlink(missing_ok=True)
'''


class Lamps:
    """A server, lamps, and loops that keep them."""

    def __init__(self, up: Up, directory: Path, environment: dict[str, str], command: Command) -> None:
        self._up, self._directory, self._command = up, directory, command
        self._provider, self.book = directory / "lamps.py", directory / "book"
        self._provider.write_text(PROVIDER)
        self._place = directory / "lamps"
        self._place.mkdir()
        self.book.touch()
        self._environment = {**environment, "LAMPS": str(self._place), "BOOK": str(self.book)}
        self.running: list[subprocess.Popen[str]] = []

    def loop(self, name: str) -> subprocess.Popen[str]:
        """A loop with a state directory of this name; its log has the same."""
        options = ["--kubeconfig", self._up.kubeconfig, "--provider", self._provider, "--enforce"]
        call = [*COMMAND, "controllers", *map(str, options), "--state", str(self._directory / name)]
        with (self._directory / f"{name}.log").open("a") as log:
            process = subprocess.Popen(call, env=self._environment, stdout=log, stderr=log, text=True)
        self.running.append(process)
        return process

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def declare(self, name: str, colour: str) -> None:
        manifest = self._directory / "lamp.yaml"
        manifest.write_text(
            f"apiVersion: lamps.example.com/v1\nkind: Lamp\nmetadata: {{name: {name}}}\nspec: {{colour: {colour}}}\n"
        )
        done = self._command("apply", "--yes", "-f", manifest, KUBECONFIG=str(self._up.kubeconfig))
        assert done.returncode == 0, done.stderr

    def lit(self, name: str, colour: str) -> bool:
        file = self._place / name
        return file.exists() and file.read_text() == colour

    def holder(self) -> str:
        done = self._command("get", "leases", "-n", "kube-system", KUBECONFIG=str(self._up.kubeconfig))
        return next((line.split()[1] for line in done.stdout.splitlines() if KIND in line), "")


@pytest.fixture
def lamps(start: Start, environment: dict[str, str], homeostat_command: Command, tmp_path: Path) -> Iterator[Lamps]:
    found = Lamps(start(), tmp_path, environment, homeostat_command)
    yield found
    for process in found.running:
        if process.poll() is None:
            process.kill()
        process.wait()


def until(holds: Callable[[], bool], what: str, within: float = 20.0) -> float:
    """Waits; gives how long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() < began + within, f"not within {within:g} s: {what}"
        time.sleep(0.05)
    return time.monotonic() - began


def test_the_second_takes_over_from_one_that_was_killed_and_nothing_is_done_twice(lamps: Lamps) -> None:
    first = lamps.loop("first")
    until(lambda: KIND in lamps.holder() or bool(lamps.holder()), "the first holds the lease")
    lamps.declare("hall", "red")
    until(lambda: lamps.lit("hall", "red"), "the first acts")
    second = lamps.loop("second")
    until(lambda: f"{KIND} is kept by another loop" in lamps.log("second"), "the second stands by")
    first.send_signal(signal.SIGKILL)
    lamps.declare("hall", "green")
    lamps.declare("yard", "blue")
    until(
        lambda: lamps.lit("hall", "green") and lamps.lit("yard", "blue"),
        "the second acts",
        TIMING.lease + 2 * TIMING.retry + 10,
    )
    time.sleep(0.5)
    done = lamps.book.read_text().splitlines()
    assert sorted(done) == sorted([f"{first.pid} hall red", f"{second.pid} hall green", f"{second.pid} yard blue"])
    second.terminate()
    assert second.wait(10) == 0
    assert "Traceback" not in lamps.log("second")


def test_one_that_stops_in_order_hands_over_at_once(lamps: Lamps) -> None:
    first = lamps.loop("first")
    until(lambda: bool(lamps.holder()), "the first holds the lease")
    second = lamps.loop("second")
    until(lambda: f"{KIND} is kept by another loop" in lamps.log("second"), "the second stands by")
    first.terminate()
    assert first.wait(10) == 0
    lamps.declare("hall", "red")
    until(lambda: lamps.lit("hall", "red"), "the second acts", TIMING.lease / 2)
    assert lamps.book.read_text() == f"{second.pid} hall red\n"


def test_one_that_was_killed_goes_on_at_once_when_it_is_started_again(lamps: Lamps) -> None:
    first = lamps.loop("first")
    until(lambda: bool(lamps.holder()), "the first holds the lease")
    lamps.declare("hall", "red")
    until(lambda: lamps.lit("hall", "red"), "it acts")
    first.kill()
    again = lamps.loop("first")
    lamps.declare("hall", "green")
    until(lambda: lamps.lit("hall", "green"), "it acts again", TIMING.lease / 2)
    assert lamps.book.read_text().splitlines()[1:] == [f"{again.pid} hall green"]


def test_two_that_were_given_one_state_directory_are_still_two(lamps: Lamps) -> None:
    lamps.loop("both")
    until(lambda: bool(lamps.holder()), "the first holds the lease")
    lamps.loop("both")
    until(lambda: f"{KIND} is kept by another loop" in lamps.log("both"), "the second stands by")


def test_up_that_was_killed_goes_on_at_once_when_it_is_started_again(start: Start, tmp_path: Path) -> None:
    place = tmp_path / "site"
    place.mkdir()
    options = ("--allow", f"file:{place}", "--enforce")
    up = start(*options)
    manifest = tmp_path / "motd.yaml"
    manifest.write_text(
        "apiVersion: files.homeostat.dev/v1\nkind: File\nmetadata: {name: motd}\n"
        f"spec: {{path: {place}/motd, content: hello}}\n"
    )
    apply = [*COMMAND, "apply", "--yes", "--kubeconfig", str(up.kubeconfig), "-f", str(manifest)]
    until(lambda: subprocess.run(apply, capture_output=True, check=False).returncode == 0, "the kind is known")
    until((place / "motd").exists, "it is made")
    up.process.kill()
    up.process.wait()
    (place / "motd").unlink()
    again = start(*options)
    until((place / "motd").exists, "it is made again", TIMING.lease / 2)
    again.stop()
    assert "stands by" not in again.said
