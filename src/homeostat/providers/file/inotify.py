"""Linux's inotify, as much of it as hints need: which directory changed, and which name in it."""

from __future__ import annotations

import ctypes
import os
import struct
from enum import IntFlag
from typing import NamedTuple

_HEADER = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Mask(IntFlag):
    """What happened, or what to tell of."""

    MODIFY = 0x2
    ATTRIB = 0x4
    CLOSE_WRITE = 0x8
    MOVED_FROM = 0x40
    MOVED_TO = 0x80
    CREATE = 0x100
    DELETE = 0x200
    DELETE_SELF = 0x400
    MOVE_SELF = 0x800
    OVERFLOW = 0x4000
    IGNORED = 0x8000
    ONLYDIR = 0x1000000


CHANGES = (
    Mask.MODIFY
    | Mask.ATTRIB
    | Mask.CLOSE_WRITE
    | Mask.MOVED_FROM
    | Mask.MOVED_TO
    | Mask.CREATE
    | Mask.DELETE
    | Mask.DELETE_SELF
    | Mask.MOVE_SELF
)


class Event(NamedTuple):
    """Something happened in a watched directory: to `name`, or where that is empty, to the directory itself."""

    watch: int
    mask: int
    name: str


class Inotify:
    """One queue of events. OSError where the kernel has none left (`fs.inotify.max_user_instances`)."""

    def __init__(self) -> None:
        self.fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch(self, fd: int) -> int:
        """Tells of changes in an open directory from now on; the same directory has the same number. OSError: no more to be had."""
        path = f"/proc/self/fd/{fd}".encode()  # the very directory that is open, wherever it has been moved to
        return _checked(_libc.inotify_add_watch(self.fd, path, int(CHANGES | Mask.ONLYDIR)))

    def unwatch(self, watch: int) -> None:
        """Tells no more. Fine if the kernel has ended it by itself."""
        _libc.inotify_rm_watch(self.fd, watch)

    def read(self) -> list[Event]:
        """What has happened since; empty where nothing has."""
        try:
            raw = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        events = []
        at = 0
        while at < len(raw):
            watch, mask, _, size = _HEADER.unpack_from(raw, at)
            at += _HEADER.size
            events.append(Event(watch, mask, os.fsdecode(raw[at : at + size].rstrip(b"\0"))))
            at += size
        return events

    def close(self) -> None:
        os.close(self.fd)


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
