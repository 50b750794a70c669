"""Starts one replica: finds its program, asks whether it is allowed, and lets it through the gate once it is recorded."""

from __future__ import annotations

import os
import pwd
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from homeostat.loop.provider import Refused
from homeostat.model.quantity import QuantityError, parse_quantity
from homeostat.providers.process import kernel
from homeostat.providers.process.kind import Definition, Limits
from homeostat.providers.process.record import MARK, Identity, Mark

GATE = 'read -r HOMEOSTAT_GATE && exec "$@" </dev/null'
"""Waits for a line; where there is none, because who should send it is gone, the command is never run."""
_SHELL = "/bin/sh"
_RESERVED = "HOMEOSTAT_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*").fullmatch
_RESOURCES = {
    "address_space": resource.RLIMIT_AS,
    "open_files": resource.RLIMIT_NOFILE,
    "cpu_seconds": resource.RLIMIT_CPU,
    "processes": resource.RLIMIT_NPROC,
    "file_size": resource.RLIMIT_FSIZE,
    "core": resource.RLIMIT_CORE,
    "stack": resource.RLIMIT_STACK,
    "locked_memory": resource.RLIMIT_MEMLOCK,
}

Allowed = bool | Sequence[str | Path]
"""Which commands may run: any, none, or those whose program lies in one of these folders, also after its links are followed."""


class Start(msgspec.Struct, frozen=True):
    """All that it takes to start a definition: checked, so that what fails now fails for reasons outside of it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    working_dir: str
    limits: Mapping[int, int]
    nice: int | None
    account: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Whom to run as, as `Popen` takes it."""


def prepare(definition: Definition, allowed: Allowed) -> Start:
    """Checks a definition against the host and what is allowed. `Refused` says what is wrong, and what to do."""
    env = environment(definition)
    argv = (program(definition.command[0], env, definition.working_dir, allowed), *definition.command[1:])
    for word in (*argv, *env.values()):
        if "\0" in word:
            raise Refused("neither the command nor the environment can hold a NUL character")
    if not os.path.isdir(definition.working_dir):
        raise Refused(f"the working directory {definition.working_dir} does not exist")
    limits, account = _limits(definition.limits), _account(definition.user)
    return Start(argv, env, definition.working_dir, limits, definition.limits.nice, account)


def environment(definition: Definition) -> dict[str, str]:
    """What a replica finds in its environment, but for its index and mark. Nothing of the control plane's but PATH."""
    for name in definition.env:
        if not _NAME(name) or name.startswith(_RESERVED):
            raise Refused(
                f"env: {name!r} cannot be the name of a variable: letters, digits and _, and not {_RESERVED}…"
            )
    return {"PATH": os.environ.get("PATH", os.defpath), **definition.env}


def program(name: str, env: Mapping[str, str], working_dir: str, allowed: Allowed) -> str:
    """The path of a program that may be run; `Refused` where there is none, or it may not."""
    if allowed is False:
        raise Refused("running processes is not allowed here; start the control plane with --allow process")
    if "/" in name:
        path: str | None = os.path.join(working_dir, name)
        if not (os.path.isfile(path or "") and os.access(path or "", os.X_OK)):
            path = None
    else:
        path = shutil.which(name, path=env["PATH"])
    if path is None:
        raise Refused(f"{name} is not a program that can be run: there is none, or it is not executable")
    path = os.path.abspath(path)
    if not isinstance(allowed, bool):
        for one in {path, os.path.realpath(path)}:
            if not any(Path(one).is_relative_to(os.path.realpath(folder)) for folder in allowed):
                folders = ", ".join(map(str, allowed)) or "nowhere"
                raise Refused(f"{one} is not allowed to run: commands may lie in {folders}")
    return path


def _limits(limits: Limits) -> dict[int, int]:
    found = {}
    for name, kind in _RESOURCES.items():
        if (value := getattr(limits, name)) is not None:
            try:
                found[kind] = parse_quantity(value).value
            except QuantityError as error:
                raise Refused(f"limits: {value!r} is no amount: {error}") from None
            hard = resource.getrlimit(kind)[1]
            if os.geteuid() != 0 and hard != resource.RLIM_INFINITY and found[kind] > hard:
                raise Refused(f"limits: {name} can be at most {hard} here; only root may raise it")
    if (limits.nice or 0) < 0 and os.geteuid() != 0:
        raise Refused("limits: only root may give a nice below 0")
    return found


def _account(user: str) -> dict[str, Any]:
    if not user:
        return {}
    if os.geteuid() != 0:
        raise Refused(f"user: only a control plane that runs as root can run processes as {user}")
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise Refused(f"user: there is no {user} on this host") from None
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}


def launch(start: Start, mark: Mark, out: int, err: int, record: Callable[[Identity], None]) -> int:
    """Starts a replica and gives its pidfd. `record` is called before the command runs; if it raises, the command never does.

    For threads: it waits for the kernel and for the disk.
    """
    behind, before = os.pipe()
    try:
        child = subprocess.Popen(
            (_SHELL, "-c", GATE, "homeostat-gate", *start.argv),
            stdin=behind,
            stdout=out,
            stderr=err,
            env={**start.env, "HOMEOSTAT_INDEX": str(mark.index), MARK: str(mark)},
            cwd=start.working_dir,
            start_new_session=True,
            **start.account,
        )
        child.returncode = 0  # it is held by its pidfd from here on, and reaped through that
        pidfd = os.pidfd_open(child.pid)
        try:
            stat = kernel.stat_of(child.pid)
            assert stat is not None  # our child, and not reaped
            _hold_to(child.pid, start)
            record(Identity(child.pid, stat.start, kernel.boot_id()))
        except BaseException:
            kernel.send(pidfd, signal.SIGKILL)
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
            os.close(pidfd)
            raise
        _open_gate(before)
        return pidfd
    finally:
        os.close(behind)
        os.close(before)


def _hold_to(pid: int, start: Start) -> None:
    for kind, most in start.limits.items():
        resource.prlimit(pid, kind, (most, most))
    if start.nice is not None:
        os.setpriority(os.PRIO_PROCESS, pid, start.nice)


def _open_gate(before: int) -> None:
    try:
        os.write(before, b"\n")
    except BrokenPipeError:
        pass  # it was killed behind the gate; its end is seen as any other


def is_behind_gate(pid: int) -> bool:
    """Whether a process still waits to be let through."""
    return GATE.encode() in kernel.command_line(pid)[:3]
