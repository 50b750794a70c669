"""As whom a loop stands for the leases of its kinds. Its name must be that of no other living loop, and had better be known again.

A loop that was killed has given nothing back. If its successor goes by the same name, it goes on at once, with a lease that is its own;
if not, it waits until the lease has run out. So a name is kept on disk and held by a lock, which ends with the process that holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import time
import uuid
from pathlib import Path

EMBEDDED = "homeostat-up"
"""Of the loop inside of `homeostat up`. Nobody else has it: the store that its leases are in is open in one process at a time."""
LOCK_SECONDS = 0.2
"""How long a lock is waited for: who was killed a moment ago may still be ending."""
_FILE = "loop-identity"
_ID = re.compile(r"[0-9a-f]{32}").fullmatch

_held: list[int] = []  # locks, until the process ends


def identity(state: Path) -> str:
    """The name of a loop with this state directory: always the same, while no other process uses it; then, and where it cannot be
    kept, a new one. It begins with the name of the host, so that a copy of the directory elsewhere is somebody else.
    """
    kept = ""
    with contextlib.suppress(OSError):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept = _kept(state / _FILE)
    return f"{socket.gethostname()}_{kept or uuid.uuid4().hex}"


def _kept(path: Path) -> str:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        if not _lock(descriptor):
            return ""
        found = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
        if not _ID(found):
            found = uuid.uuid4().hex
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{found}\n".encode(), 0)
            os.fsync(descriptor)
        _held.append(descriptor)
        return found
    finally:
        if descriptor not in _held:
            os.close(descriptor)


def _lock(descriptor: int) -> bool:
    end = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
