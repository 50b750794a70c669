"""The real kubectl, driven as a person at a terminal drives it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

PATIENCE = 30.0
"""Seconds after which a command, or a line of a running one, is given up."""


def find_kubectl() -> str:
    """The program that HOMEOSTAT_KUBECTL names, or the one on the PATH. With CI=true a missing one is a failure."""
    program = shutil.which(os.environ.get("HOMEOSTAT_KUBECTL", "kubectl"))
    if program is None:
        complain = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        complain("kubectl is not on the PATH: install it, or name one in HOMEOSTAT_KUBECTL")
    return program


@cache
def minor_version(program: str) -> int:
    """kubectl is 1.`minor`."""
    said = subprocess.run([program, "version", "--client", "-o", "json"], capture_output=True, text=True, check=True)
    digits = json.loads(said.stdout)["clientVersion"]["minor"]
    return int("".join(c for c in digits if c.isdigit()))


class Running:
    """A kubectl that has not ended yet, such as `get --watch`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._lines: Queue[str] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))

    def line(self) -> str:
        """The next line it prints."""
        try:
            return self._lines.get(timeout=PATIENCE)
        except Empty:
            raise AssertionError("kubectl printed nothing more") from None

    @property
    def printed(self) -> bool:
        """Whether there is a line to read."""
        return not self._lines.empty()

    def ends(self) -> int:
        """Its exit status, once it has ended."""
        return self.process.wait(PATIENCE)


@dataclass(frozen=True)
class Kubectl:
    """kubectl with the administrator's kubeconfig, in one namespace.

    Call it with the arguments of a command: it asserts that the command succeeds and gives what it printed. `stdin` may be
    text, or an object, or a list of them.
    """

    program: str
    kubeconfig: Path
    home: Path
    namespace: str = ""

    @property
    def minor(self) -> int:
        return minor_version(self.program)

    def run(self, *args: str, stdin: Any = None, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, however it ends."""
        if stdin is not None and not isinstance(stdin, str):
            stdin = "\n".join(map(json.dumps, stdin if isinstance(stdin, list) else [stdin]))
        return subprocess.run(
            self._command(args),
            input=stdin,
            env=self._env(env),
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            stdin=None if stdin is not None else subprocess.DEVNULL,
        )

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [self.program, *(("-n", self.namespace) if self.namespace else ()), *args]

    def _env(self, more: dict[str, str]) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig), **more}

    def __call__(self, *args: str, stdin: Any = None, **env: str) -> str:
        done = self.run(*args, stdin=stdin, **env)
        assert done.returncode == 0, f"kubectl {' '.join(args)}: {done.stderr or done.stdout}"
        return done.stdout

    def refused(self, *args: str, stdin: Any = None, **env: str) -> str:
        """What a command that must fail says on stderr."""
        done = self.run(*args, stdin=stdin, **env)
        assert done.returncode != 0, f"kubectl {' '.join(args)} succeeded: {done.stdout}"
        return done.stderr

    def json(self, *args: str, stdin: Any = None) -> Any:
        """What a command prints with `-o json`."""
        return json.loads(self(*args, "-o", "json", stdin=stdin))

    def lines(self, *args: str) -> list[list[str]]:
        """The words of each line of a table, its heading included."""
        return [line.split() for line in self(*args).splitlines()]

    @contextmanager
    def start(self, *args: str) -> Iterator[Running]:
        """A command that goes on until the end of the block."""
        process = subprocess.Popen(
            self._command(args), env=self._env({}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            yield Running(process)
        finally:
            process.terminate()
            process.wait(PATIENCE)

    def within(self, namespace: str) -> Kubectl:
        return replace(self, namespace=namespace)

    def with_config(self, kubeconfig: Path) -> Kubectl:
        return replace(self, kubeconfig=kubeconfig)
