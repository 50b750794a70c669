"""The directory of one module on this host: its code, what the tool keeps, the logs of its last runs, and who is at work in it.

    work/           the code, and beside it what the tool keeps there (a local state, plug-ins)
    runs/000007-plan/  stdout and stderr of a run, secrets blotted out
    lock, run.json  who is at work: one control plane, one run
    key             what digests are made with, so that they tell nothing of short secrets
    settled         of which code and variables all was last seen to be as declared

It goes by namespace and name, so a module that is declared anew finds the state that it left. Nobody else may read it: states and
plans hold secrets. A run outlives us if we are killed; whoever comes next finds it by `run.json`, and waits for its end.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from homeostat.model.clock import format_time
from homeostat.providers.process import kernel
from homeostat.providers.process.record import Identity

RUNS_KEPT = 20
LOG_MOST = 8 * 1024 * 1024
"""Bytes of a log that are kept: its end."""


class Busy(Exception):
    """Somebody is at work on this module. Nothing can be said of it until they end."""


class Run(msgspec.Struct, frozen=True):
    """A run that was begun."""

    what: str
    folder: str
    at: float
    process: Identity | None = None


class Place:
    """One module's directory. Everything here blocks, though briefly."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.work = root / "work"
        self.home = root / "home"
        self._runs = root / "runs"
        self._run = root / "run.json"

    @contextmanager
    def held(self, blot: Callable[[str], str]) -> Iterator[None]:
        """While it lasts nobody else works here. Raises `Busy` where somebody does; tidies up after a run that we died of."""
        for folder in (self.root, self.work, self.home, self._runs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"another control plane is at work in {self.root}") from None
            self._after_death(blot)
            yield
        finally:
            os.close(lock)

    def _after_death(self, blot: Callable[[str], str]) -> None:
        run = self._left()
        if run is None:
            return
        if run.process is not None and kernel.runs(run.process):
            raise Busy(
                f"the {run.what} that an earlier control plane began at {format_time(run.at)} is still at work (process "
                f"{run.process.pid}): nothing is begun until it ends"
            )
        self.ended(self._runs / run.folder, blot)

    def _left(self) -> Run | None:
        try:
            return msgspec.json.decode(self._run.read_bytes(), type=Run)
        except (OSError, msgspec.DecodeError):
            return None

    # Runs

    def begin(self, what: str) -> Path:
        """A directory for the logs of a run; those of old runs go."""
        known = sorted(path.name for path in self._runs.iterdir())
        number = int(known[-1].partition("-")[0]) + 1 if known else 1
        for name in known[: max(0, len(known) + 1 - RUNS_KEPT)]:
            shutil.rmtree(self._runs / name, ignore_errors=True)
        folder = self._runs / f"{number:06}-{what}"
        folder.mkdir(mode=0o700)
        return folder

    def record(self, what: str, folder: Path, at: float, process: Identity) -> None:
        """Writes down that a run begins, before it does."""
        partial = self._run.with_suffix(".new")
        partial.write_bytes(msgspec.json.encode(Run(what, folder.name, at, process)))
        partial.rename(self._run)

    def ended(self, folder: Path, blot: Callable[[str], str]) -> None:
        """A run is over: its logs are kept as they may be read."""
        for name in ("stdout", "stderr"):
            path = folder / name
            if path.exists():
                text = path.read_bytes()[-LOG_MOST:].decode(errors="replace")
                clean = blot(text)
                if clean != text or path.stat().st_size > LOG_MOST:
                    path.write_text(clean)
        self._run.unlink(missing_ok=True)

    # What is remembered

    def key(self) -> bytes:
        """What digests of this module are made with."""
        path = self.root / "key"
        try:
            if len(found := path.read_bytes()) == 32:
                return found
        except FileNotFoundError:
            pass
        made = secrets.token_bytes(32)
        private(path, made)
        return made

    def settled(self) -> str:
        """The inputs with which all was last seen to be as declared; empty where it never was."""
        try:
            return (self.root / "settled").read_text()
        except FileNotFoundError:
            return ""

    def settle(self, inputs: str) -> None:
        if self.settled() != inputs:
            private(self.root / "settled", inputs.encode())


def private(path: Path, data: bytes) -> Path:
    """Writes a file that nobody else may read, whole or not at all."""
    partial = path.with_name(path.name + ".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    partial.rename(path)
    return path
