"""Runs a tool: behind a gate until it is recorded, with its output in files, so that it neither needs us nor is doubled when we die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from homeostat.loop.provider import Refused
from homeostat.model.clock import Clock
from homeostat.providers.dryrun.place import Place
from homeostat.providers.process import kernel
from homeostat.providers.process.launch import Start, launch
from homeostat.providers.process.record import Identity, Mark

GRACE_SECONDS = 30.0
"""Between being interrupted and being killed, for a run that takes too long: time to write its state."""
OUTPUT_MOST = 256 * 1024 * 1024
"""Bytes of standard output that are read."""
REASON_MOST = 4096
"""Characters of what a tool says that are shown."""
PASSED_ON = ("PATH", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What a tool gets of this process's environment. All else, credentials among it, has to be declared."""


class ToolFailed(Exception):
    """A tool did not do its work; in words for people, its own above all."""


class Said(NamedTuple):
    """How a run ended, and what it said, secrets and all: not for showing as it is."""

    status: int
    output: bytes
    errors: str


def program(name: str) -> str:
    """The program of this name on the control plane's PATH. `ToolFailed` where there is none."""
    found = shutil.which(name)
    if found is None:
        raise ToolFailed(f"{name} is not installed on the host of the loop, or not on its PATH")
    return found


def environment(declared: Mapping[str, str], own: Mapping[str, str], home: Path) -> dict[str, str]:
    """What a tool finds in its environment. `own` is what we need it to be. `Refused` for names that would change what is run."""
    for name in declared:
        if not name.replace("_", "a").isalnum() or name[:1].isdigit():
            raise Refused(f"environmentFrom: {name!r} cannot be the name of a variable")
        if name in own or name in ("PATH", "HOME") or name.startswith(("LD_", "TF_CLI_ARGS", "HOMEOSTAT_", "RUBYOPT", "PYTHON")):
            raise Refused(f"environmentFrom: {name} is not for a declaration to set")
    passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {"LANG": "C.UTF-8", **passed, "HOME": str(home), **declared, **own}


async def run(
    place: Place,
    what: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    directory: Path,
    *,
    seconds: float,
    blot: Callable[[str], str],
    clock: Clock,
    acts: bool = False,
    log: bool = True,
) -> Said:
    """Runs a tool to its end, and keeps its log unless `log` is off. `ToolFailed` where it does not start, or takes too long.

    When we are cancelled, what only looks is killed; what `acts` is left to end by itself, for a change that is cut off is worse
    than one that goes on: whoever looks next waits for it.
    """
    folder = await asyncio.to_thread(place.begin, what)
    out, err = (os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600) for name in ("stdout", "stderr"))
    held: list[Identity] = []

    def record(process: Identity) -> None:
        held.append(process)
        place.record(what, folder, clock.now(), process)

    start = Start((program(argv[0]), *argv[1:]), env, str(directory), {}, None)
    starting = asyncio.ensure_future(asyncio.to_thread(launch, start, Mark(place.root.name, 0, what), out, err, record))
    try:
        pidfd = await asyncio.shield(starting)
    except asyncio.CancelledError:
        pidfd = await starting  # a thread cannot be stopped: what it started can
        if not acts:
            _signal(held[0], signal.SIGKILL)
        os.close(pidfd)
        raise
    except OSError as error:
        raise ToolFailed(f"{argv[0]} cannot be run: {error.strerror}") from None
    finally:
        os.close(out)
        os.close(err)
    try:
        late = not await kernel.wait_ended(pidfd, seconds)
        if late:
            await _end(pidfd, held[0])
    except asyncio.CancelledError:
        if not acts:
            _signal(held[0], signal.SIGKILL)
        raise
    else:
        status = kernel.exit_status(pidfd, held[0])
    finally:
        os.close(pidfd)
    said = await asyncio.to_thread(_read, folder, 1 if status is None else status)
    await asyncio.to_thread(place.ended, folder, blot)
    if not log:
        await asyncio.to_thread(shutil.rmtree, folder)
    if late:
        tail = blot(said.errors).strip()[-REASON_MOST:]
        raise ToolFailed(f"{what}: it did not end within {seconds:g} s, and was stopped" + (f": {tail}" if tail else ""))
    return said


def _read(folder: Path, status: int) -> Said:
    with (folder / "stdout").open("rb") as file:
        output = file.read(OUTPUT_MOST)
    return Said(status, output, (folder / "stderr").read_bytes()[-1024 * 1024 :].decode(errors="replace"))


async def _end(pidfd: int, process: Identity) -> None:
    _signal(process, signal.SIGINT)
    if not await kernel.wait_ended(pidfd, GRACE_SECONDS):
        _signal(process, signal.SIGKILL)
        await kernel.wait_ended(pidfd, GRACE_SECONDS)


def _signal(process: Identity, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
