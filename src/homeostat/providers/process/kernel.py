"""What the kernel tells of processes: who one is, that it ended and how, which ones carry our mark. All of it may be called in threads."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from homeostat.providers.process.record import MARK, Identity, Mark

_PIDFD_GET_INFO = 0xC040FF0B  # _IOWR(0xFF, 11, 64 bytes)
_PIDFD_INFO_EXIT = 1 << 3
_INFO_BYTES = 64
_EXIT_CODE_AT = 60
_LOOKS = 50
"""How often, a millisecond apart, one is asked for its mark that has no environment yet."""


class Stat(NamedTuple):
    """The few fields of /proc/PID/stat that matter here."""

    state: str
    parent: int
    session: int
    ticks: int
    """CPU time of it and of the children that it waited for, in clock ticks."""
    start: int
    resident: int
    """Pages of memory."""
    exit_code: int


@cache
def boot_id() -> str:
    """Another one each time the machine starts: pids and start times of one boot say nothing of the next."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat_of(pid: int) -> Stat | None:
    """What there is to know of a process; None where there is none of this pid."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        text = os.read(descriptor, 4096)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    fields = text.rpartition(b") ")[2].split()  # a name may hold anything, also parentheses
    ticks = sum(map(int, fields[11:15]))
    return Stat(
        fields[0].decode(), int(fields[1]), int(fields[3]), ticks, int(fields[19]), int(fields[21]), int(fields[49])
    )


def everybody() -> dict[int, Stat]:
    """All processes at this moment by their pid, zombies among them."""
    return {pid: stat for pid in _pids() if (stat := stat_of(pid)) is not None}


def runs(process: Identity) -> bool:
    """Whether exactly this process still runs; a zombie does not."""
    stat = stat_of(process.pid)
    return stat is not None and stat.start == process.start and process.boot == boot_id() and stat.state not in "ZX"


def hold(process: Identity) -> int | None:
    """A pidfd for exactly this process; None where it is no more; a zombie still is. Held so, its pid cannot come to mean another."""
    if process.boot != boot_id():
        return None
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError as error:
        if error.errno in (
            errno.ESRCH,
            errno.EINVAL,
            errno.ENOENT,
        ):  # nobody has this number now, or a thread of another has
            return None
        raise
    stat = stat_of(process.pid)
    if stat is not None and stat.start == process.start:
        return pidfd
    os.close(pidfd)
    return None


def has_ended(pidfd: int) -> bool:
    """Whether the process is no more, or is a zombie."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def exit_status(pidfd: int, process: Identity) -> int | None:
    """How an ended process ended: negative for a signal, None where the kernel does not tell. Reaps it if it is our child."""
    try:
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return _status_of_another(pidfd, process)
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _status_of_another(pidfd: int, process: Identity) -> int | None:
    """Of a process that is not our child, as after a restart: while it is a zombie, and after that where Linux is new (6.15)."""
    stat = stat_of(process.pid)
    if stat is not None and stat.start == process.start and stat.state == "Z":
        return os.waitstatus_to_exitcode(stat.exit_code)
    info = bytearray(_INFO_BYTES)
    struct.pack_into("Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    if not struct.unpack_from("Q", info)[0] & _PIDFD_INFO_EXIT:
        return None
    return os.waitstatus_to_exitcode(struct.unpack_from("i", info, _EXIT_CODE_AT)[0])


async def wait_ended(pidfd: int, seconds: float) -> bool:
    """Waits until a process has ended; False where it did not within the time. The pidfd is one that nobody else waits on."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
        return True
    except TimeoutError:
        return has_ended(pidfd)
    finally:
        loop.remove_reader(pidfd)


def send(pidfd: int, sig: signal.Signals) -> None:
    """Sends a signal; fine if the process is gone."""
    try:
        signal.pidfd_send_signal(pidfd, sig)
    except ProcessLookupError:
        pass


def kill(process: Identity) -> None:
    """Kills a process, and waits a moment until it is no more; fine if it is gone already."""
    pidfd = hold(process)
    if pidfd is None:
        return
    try:
        send(pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(1000)
    finally:
        os.close(pidfd)


def members(session: int) -> list[Identity]:
    """All processes of a session. Its number is sure to mean this session only while its first process is held and not reaped."""
    return [
        Identity(pid, stat.start, boot_id())
        for pid, stat in everybody().items()
        if stat.session == session and stat.state != "Z"
    ]


class Marked(NamedTuple):
    """A process that carries a mark."""

    process: Identity
    mark: Mark
    leads: bool
    """Whether it is the first of its session, as every replica is; what a replica starts may be too."""


def marked(logs_below: Path, wanted: Callable[[Mark], bool], sessions: frozenset[int] = frozenset()) -> list[Marked]:
    """All processes with a wanted mark, oldest first.

    The environment of others is none of our business: only who writes to our log files, or is of one of these sessions, is asked.
    """
    root = f"{logs_below}/"
    found = []
    for pid in _pids():
        if not (_writes_below(pid, root) or (sessions and _session_of(pid) in sessions)):
            continue
        stat = stat_of(pid)
        if stat is None or stat.state in "ZX":
            continue
        mark = _mark_of(pid)
        if mark is not None and wanted(mark):
            found.append(Marked(Identity(pid, stat.start, boot_id()), mark, stat.session == pid))
    return sorted(found, key=lambda one: (one.process.start, one.process.pid))


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _writes_below(pid: int, root: str) -> bool:
    for descriptor in (1, 2):
        try:
            if os.readlink(f"/proc/{pid}/fd/{descriptor}").startswith(root):
                return True
        except OSError:
            continue  # gone, closed, or not ours to look at
    return False


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def _mark_of(pid: int) -> Mark | None:
    is_whole = False
    for _ in range(_LOOKS):
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return None
        if environ or is_whole:
            break
        is_whole = any(command_line(pid))  # while it becomes another program, it has neither arguments nor an environment
        time.sleep(0.001)
    prefix = f"{MARK}=".encode()
    for entry in environ.split(b"\0"):
        if entry.startswith(prefix):
            return Mark.read(entry[len(prefix) :].decode(errors="replace"))
    return None


def command_line(pid: int) -> list[bytes]:
    """The arguments of a process as it has them now; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
