"""The real command in real processes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

COMMAND = [str(Path(sys.executable).with_name("homeostat"))]


@dataclass
class Up:
    """A `homeostat up` that is ready."""

    process: subprocess.Popen[str]
    data: Path
    url: str
    said: str

    @property
    def kubeconfig(self) -> Path:
        return self.data / "admin.kubeconfig"

    def stop(self, number: int = signal.SIGTERM) -> float:
        """Asks it to stop; gives how many seconds that took."""
        began = time.monotonic()
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=20)
        self.said += rest
        return time.monotonic() - began


def environment_in(home: Path) -> dict[str, str]:
    """A home of its own, and no kubeconfig."""
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return {**kept, "HOME": str(home)}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of this test alone, see `environment_in`."""
    return environment_in(tmp_path / "home")


def command_in(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `homeostat …` to its end; keywords are environment variables."""

    def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        call = [*COMMAND, *map(str, arguments)]
        full = {**environment, **variables}
        return subprocess.run(call, env=full, capture_output=True, text=True, timeout=30, check=False)

    return run


@pytest.fixture
def homeostat_command(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """In the environment of this test, see `command_in`."""
    return command_in(environment)


@contextlib.contextmanager
def starting(environment: dict[str, str], folder: Path) -> Iterator[Callable[..., Up]]:
    """Starts `homeostat up` on a free port and waits until it says that it is ready; `before` is a command that runs it."""
    running: list[Up] = []

    def begin(
        *arguments: object, data: Path = folder / "data", listen: str = "127.0.0.1:0", before: Sequence[str] = ()
    ) -> Up:
        call = [*before, *COMMAND, "up", "--data", str(data), "--listen", listen, *map(str, arguments)]
        process = subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, f"it ended: {said}"
            said += line
        found = re.search(r"ready at (\S+)", said)
        assert found, said
        running.append(Up(process, data, found[1], said))
        return running[-1]

    try:
        yield begin
    finally:
        for up in running:
            if up.process.poll() is None:
                up.process.kill()
            up.process.communicate()


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., Up]]:
    """In the folder of this test, see `starting`."""
    with starting(environment, tmp_path) as begin:
        yield begin
