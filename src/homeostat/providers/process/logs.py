"""The output of replicas: files that only ever grow at their end, rotated from their beginning, so that no line is lost
that there is room for.

A replica writes to its file by itself, at any moment, and nobody stands between; so the file cannot be swapped, and emptying it would
lose what is written just then. Instead its beginning is copied to the rotated file, and then cut off: on ext4 and XFS the blocks are
taken out and the file gets shorter; elsewhere a hole takes their place, which reads as NUL and needs no room. The writer notices
neither. Cuts are made behind a line; what is left of a block is written over with spaces.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
from pathlib import Path

from homeostat.providers.process.kind import Logs

log = logging.getLogger("homeostat.providers.process")

_KEEP_SIZE, _PUNCH_HOLE, _COLLAPSE_RANGE = 0x01, 0x02, 0x08
_PIECE = 1024 * 1024
_SUFFIXES = (".out", ".err")
_OVERGROWN = 64 * 1024 * 1024
"""So many bytes more than are kept of a log at all, and its beginning is dropped instead of copied."""


def paths_of(folder: Path, index: int) -> tuple[Path, Path]:
    """Where standard output and standard error of a replica go."""
    return folder / f"{index}{_SUFFIXES[0]}", folder / f"{index}{_SUFFIXES[1]}"


def open_log(path: Path) -> int:
    """A descriptor that appends."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def rotate(path: Path, policy: Logs) -> bool:
    """Rotates a log if it is too large; says whether it did. A kill in the midst loses nothing: the next call finishes or drops it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        _finish(descriptor, path, policy.keep)
        if _used(descriptor) <= policy.max_bytes:
            return False
        begin, cut = _written(descriptor)
        if cut == begin:
            return False  # one endless line: it is cut when it ends
        if policy.keep and cut - begin > policy.keep * policy.max_bytes + _OVERGROWN:
            # It is written faster than it is copied, and would be larger each time. In time, all but the newest had gone anyway.
            _cut_off(descriptor, _line_from(descriptor, cut - policy.keep * policy.max_bytes, cut))
            begin, cut = _written(descriptor)
        copied = policy.keep > 0 and _find_room(descriptor, begin, cut, path)
        _cut_off(descriptor, cut)
        if copied:
            _shift(path, policy.keep)
        return True
    finally:
        os.close(descriptor)


def _used(descriptor: int) -> int:
    """Bytes that it takes, holes not counted."""
    stat = os.fstat(descriptor)
    return min(stat.st_size, stat.st_blocks * 512)


def _written(descriptor: int) -> tuple[int, int]:
    """From where to where it holds whole lines: after a hole at its beginning, up to behind the last line break."""
    size = os.fstat(descriptor).st_size
    begin = _first_data(descriptor)
    end = size
    while end > begin:
        start = max(begin, end - _PIECE)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return begin, start + found + 1
        end = start
    return begin, begin


def _line_from(descriptor: int, start: int, end: int) -> int:
    """Where the first line begins that lies behind `start`; `end` where none does."""
    while start < end:
        piece = os.pread(descriptor, min(_PIECE, end - start), start)
        found = piece.find(b"\n")
        if found >= 0:
            return start + found + 1
        start += len(piece) or end
    return end


def _first_data(descriptor: int) -> int:
    """Where what was cut off before ends: holes, then NUL to the end of a block, or spaces."""
    try:
        begin = os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:
        return os.fstat(descriptor).st_size
    block = os.pread(descriptor, os.fstatvfs(descriptor).f_bsize, begin)
    return begin + len(block) - len(block.lstrip(b"\0"))


def _find_room(descriptor: int, begin: int, end: int, path: Path) -> bool:
    """Copies what is to be cut off. On a full disk the oldest that are kept make room; False where that is not enough."""
    while True:
        try:
            _copy(descriptor, begin, end, _partial(path))
            return True
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _partial(path).unlink(missing_ok=True)
            if not (kept := _rotated(path)):
                log.warning("there is no room to rotate the log %s: its oldest lines are dropped", path)
                return False
            log.warning("there is no room to rotate the log %s: %s is dropped", path, kept[-1].name)
            kept[-1].unlink()


def _rotated(path: Path) -> list[Path]:
    """The rotated logs, the newest first."""
    numbers = (other.name.removeprefix(f"{path.name}.") for other in path.parent.glob(f"{path.name}.*"))
    return [path.with_name(f"{path.name}.{number}") for number in sorted(int(n) for n in numbers if n.isdecimal())]


def _copy(descriptor: int, begin: int, end: int, target: Path) -> None:
    copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        while begin < end:
            sent = os.sendfile(copy, descriptor, begin, min(_PIECE, end - begin))
            if not sent:
                raise OSError(errno.EIO, "a log became shorter while it was copied", str(target))
            begin += sent
        os.fsync(copy)
    finally:
        os.close(copy)


def _cut_off(descriptor: int, cut: int) -> None:
    block = os.fstatvfs(descriptor).f_bsize
    whole = cut // block * block
    if whole == os.fstat(descriptor).st_size:
        whole -= block  # the kernel does not take out the end of a file
    if whole > 0:
        try:
            _fallocate(descriptor, _COLLAPSE_RANGE, 0, whole)
            cut -= whole
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
            _fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, 0, cut)
            return
    if cut:
        os.pwrite(descriptor, b" " * (cut - 1) + b"\n", 0)


def _fallocate(descriptor: int, mode: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.fallocate(ctypes.c_int(descriptor), ctypes.c_int(mode), ctypes.c_int64(offset), ctypes.c_int64(length))
    if done != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _partial(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial")


def _finish(descriptor: int, path: Path, keep: int) -> None:
    """What a kill interrupted: a copy whose original was not cut off is dropped, one whose was is put in its place."""
    partial = _partial(path)
    try:
        with partial.open("rb") as copy:
            copied = copy.read(_PIECE)
    except FileNotFoundError:
        return
    if os.pread(descriptor, len(copied), _first_data(descriptor)) == copied:
        partial.unlink()
    else:
        _shift(path, max(keep, 1))


def _shift(path: Path, keep: int) -> None:
    """Puts the copy where the newest rotated log is, and each of them one further; those beyond `keep` go."""
    for number in range(keep - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.rename(path.with_name(f"{path.name}.{number + 1}"))
    _partial(path).rename(path.with_name(f"{path.name}.1"))
    number = keep + 1
    while (beyond := path.with_name(f"{path.name}.{number}")).exists():
        beyond.unlink()
        number += 1
