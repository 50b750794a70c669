"""The disk, read and written so that no symbolic link leads away and nothing is ever seen half-written.

Every step goes from an open directory to a name in it (`openat`), so what was checked is what is used, whoever moves things
meanwhile. All of this blocks: call it in a thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from homeostat.loop.provider import Refused
from homeostat.providers.file.content import Digest

TEMPORARY = ".homeostat-"
"""How the names of files begin that are being written."""
STRAYS_MOST = 1000
"""Where more than this is in a directory that nobody declared, purging it is most likely a mistake."""

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_RENAME_NOREPLACE = 1
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)

Watch = Callable[[int, str], None]
"""Is told the directory (open) and the name in it that decide what is seen; an empty name for all of them."""


class DiskTrouble(Exception):
    """The disk did not do as it was asked; in words for people."""


class GivenUp(Exception):
    """Nobody waits for this work any more; it must not change anything now."""


# Where


@dataclass(frozen=True, slots=True)
class Place:
    """A path below an allowed root."""

    root: str
    parts: tuple[str, ...]
    device: int | None = field(default=None, compare=False)
    """The file system that the root was on when it was allowed; None where it was not there."""

    def __str__(self) -> str:
        return os.path.join(self.root, *self.parts)

    def above(self, count: int) -> str:
        """The path of the first `count` parts."""
        return os.path.join(self.root, *self.parts[:count])

    def below(self, path: str) -> Place:
        """What has this path below it; "" is itself. Raises `Refused` where it leads anywhere else."""
        if not path:
            return self
        parts = tuple(path.split("/"))
        if not well_formed(parts):
            raise Refused(f"{path!r} is not a plain path below {self}: no '.', '..', empty parts or control characters")
        return Place(self.root, self.parts + parts, self.device)

    def related(self, other: Place) -> bool:
        """Whether one of the two lies below the other."""
        return self.root == other.root and all(a == b for a, b in zip(self.parts, other.parts, strict=False))


class Roots:
    """The directories below which files may be touched. None allows nothing. ValueError for one that is not absolute."""

    def __init__(self, allowed: Iterable[str | os.PathLike[str]]) -> None:
        self._roots: list[tuple[tuple[str, ...], str]] = []
        self._devices: dict[str, int] = {}
        for root in allowed:
            path = Path(root)
            if not path.is_absolute():
                raise ValueError(f"an allowed root is an absolute path, not {str(root)!r}")
            real = path.resolve()  # an operator's own links are fine; nobody else's are
            with contextlib.suppress(OSError):
                self._devices[str(real)] = real.stat().st_dev
            self._roots += [(way.parts[1:], str(real)) for way in {path, real}]
        self._roots.sort(key=lambda root: -len(root[0]))

    def real(self) -> list[str]:
        """The roots themselves, without what lies below another."""
        found = sorted({real for _, real in self._roots})
        return [root for root in found if not any(root.startswith(f"{other}/") for other in found)]

    def place(self, path: str) -> Place:
        """Where a path leads. Raises `Refused` where it is none, or not allowed."""
        parts = tuple(path.split("/")[1:])
        if not path.startswith("/") or not well_formed(parts):
            raise Refused(f"{path!r} is not a plain absolute path: no '.', '..', empty parts or control characters")
        for prefix, real in self._roots:
            if parts[: len(prefix)] == prefix and len(parts) > len(prefix):
                return Place(real, parts[len(prefix) :], self._devices.get(real))
        allowed = ", ".join(sorted({root for _, root in self._roots}))
        why = f"files may be kept below {allowed}" if allowed else "no files may be kept on this host"
        raise Refused(
            f"{path} is not allowed: {why}; whoever runs the control plane can allow more (--allow file:PATH)"
        )


def well_formed(parts: Iterable[str]) -> bool:
    """Whether these are names of files, and none of them leads anywhere else."""
    return all(
        part not in ("", ".", "..")
        and part.isprintable()
        and len(part.encode(errors="replace")) <= 255
        and not part.startswith(TEMPORARY)
        for part in parts
    )


@contextmanager
def opened(place: Place, depth: int) -> Iterator[tuple[int, int]]:
    """The directory of the first `depth` parts, open, and `depth`; where that is not there, the deepest that is, and how deep.

    Raises `Refused` where a link or a file stands in the way, `DiskTrouble` where the root itself is not there, or is on another file
    system than it was: then a disk may be missing, and nothing can be said.
    """
    try:
        fd = os.open(place.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise DiskTrouble(f"the allowed root {place.root} cannot be opened: {error.strerror}") from None
    try:
        if place.device not in (None, os.fstat(fd).st_dev):
            raise DiskTrouble(
                f"the allowed root {place.root} is on another file system than when the loop began: something was mounted there, or is no "
                f"more. Put it back; where it is meant, start the loop anew"
            )
        for index, name in enumerate(place.parts[:depth]):
            below = enter(fd, name, place.above(index + 1))
            if below is None:
                yield fd, index
                return
            os.close(fd)
            fd = below
        yield fd, depth
    finally:
        os.close(fd)


def enter(fd: int, name: str, shown: str) -> int | None:
    """Opens a directory in a directory; None where there is none. Never over a link. `shown` is its path for people."""
    try:
        return os.open(name, _WALK, dir_fd=fd)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise DiskTrouble(f"{shown} cannot be entered: {error.strerror}") from None
    kind = "a symbolic link" if kind_of(fd, name) == "link" else "no directory"
    raise Refused(f"{shown} is {kind}, and the way to a file may only go over directories")


# Looking


class Found(msgspec.Struct, frozen=True):
    """What has a name. `digest` says what it is where it is no file."""

    kind: str
    mode: str
    owner: int
    group: int
    digest: str


def kind_of(fd: int, name: str) -> str:
    """`file`, `directory`, `link` or `other`; empty where there is nothing."""
    try:
        return _kind(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return ""


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    return "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"


def look_at(fd: int, name: str, digest: Digest | None, limit: int) -> Found | None:
    """What has this name in a directory; None for nothing. Only plain files of at most `limit` bytes are read."""
    try:
        seen = os.stat(name, dir_fd=fd, follow_symlinks=False)
        if digest is None or not stat.S_ISREG(seen.st_mode):
            return _found(seen, _kind(seen.st_mode))
        file = os.open(name, _READ, dir_fd=fd)
    except FileNotFoundError:
        return None
    with open(file, "rb", buffering=0) as reader:
        seen = os.fstat(file)
        if not stat.S_ISREG(seen.st_mode):
            return _found(seen, _kind(seen.st_mode))
        hasher, left = digest.hasher(), limit
        while piece := reader.read(min(1 << 20, left + 1)):
            left -= len(piece)
            if left < 0:
                return _found(seen, f"more than {limit} bytes")
            hasher.update(piece)
    return _found(seen, digest.name(hasher))


def _found(seen: os.stat_result, digest: str) -> Found:
    return Found(_kind(seen.st_mode), mode_text(stat.S_IMODE(seen.st_mode)), seen.st_uid, seen.st_gid, digest)


def mode_text(mode: int) -> str:
    """`0644`."""
    return format(mode, "04o")


def strays(fd: int, declared: Callable[[str], bool], shown: str, watch: Watch) -> list[str]:
    """What is below a directory and not declared, sorted; directories end with a slash. Other file systems are left alone.

    `declared` is asked of paths below the directory. Raises `Refused` for more than `STRAYS_MOST`.
    """
    found: list[str] = []
    device = os.fstat(fd).st_dev

    def walk(fd: int, above: str) -> None:
        watch(fd, "")
        with _listed(fd) as entries:
            names = [(e.name, e.is_dir(follow_symlinks=False)) for e in entries if not e.name.startswith(TEMPORARY)]
        for name, is_directory in sorted(names):
            path = above + name
            if not well_formed((name,)):
                raise Refused(f"{shown} holds {path!r}, a name that cannot be written down: remove it by hand")
            if not declared(path):
                found.append(path + "/" if is_directory else path)
                if len(found) > STRAYS_MOST:
                    raise Refused(
                        f"{shown} holds more than {STRAYS_MOST} things that nobody declared: purging it looks like a mistake"
                    )
            if is_directory and (below := enter(fd, name, os.path.join(shown, path))) is not None:
                try:
                    if os.fstat(below).st_dev == device:
                        walk(below, path + "/")
                    elif found and found[-1] == path + "/":
                        found.pop()  # a mount point
                finally:
                    os.close(below)

    walk(fd, "")
    return sorted(found)


@contextmanager
def _listed(fd: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        with os.scandir(listing) as entries:
            yield entries
    finally:
        os.close(listing)


# Changing


class Look(msgspec.Struct, frozen=True):
    """How something shall look from the outside. Owner and group None: as they are."""

    mode: int
    owner: int | None = None
    group: int | None = None


def put(
    fd: int, name: str, content: bytes, look: Look, *, new: bool, by: str, given_up: threading.Event | None = None
) -> None:
    """Writes a file as a whole: beside, durable, and then in place of what is there, in one step.

    Always a fresh file, also where only its mode changes: what has the name now may be a hard link to something that is none of
    our business. `new` refuses to replace anything. `by` tells writers apart; what a crash of one left is written over.
    """
    beside = f"{TEMPORARY}{by}"
    before = None if new else _stat(fd, name)
    if before is not None and stat.S_ISDIR(before.st_mode):
        raise Refused(f"{name} is a directory, and is not removed to make room for a file")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=fd)
    try:
        with open(os.open(beside, _NEW, 0o600, dir_fd=fd), "wb", buffering=0) as writer:
            view = memoryview(content)
            while view:
                view = view[writer.write(view) :]
            _dress(writer.fileno(), look, before if before is not None and stat.S_ISREG(before.st_mode) else None)
            os.fsync(writer.fileno())
        if given_up is not None and given_up.is_set():
            raise GivenUp(f"{name} was not written in time")
        _rename(fd, beside, name, new)
    except BaseException as error:
        if not isinstance(error, GivenUp):  # who came after us may have made it anew
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=fd)
        raise
    settle(fd)


def _stat(fd: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _dress(file: int, look: Look, before: os.stat_result | None) -> None:
    now = os.fstat(file)
    owner = look.owner if look.owner is not None else before.st_uid if before else now.st_uid
    group = look.group if look.group is not None else before.st_gid if before else now.st_gid
    if (owner, group) != (now.st_uid, now.st_gid):
        os.fchown(file, owner, group)
    os.fchmod(file, look.mode)


def _rename(fd: int, old: str, name: str, new: bool) -> None:
    if not new:
        os.rename(old, name, src_dir_fd=fd, dst_dir_fd=fd)
        return
    if _renameat2 is not None:
        if _renameat2(fd, os.fsencode(old), fd, os.fsencode(name), _RENAME_NOREPLACE) == 0:
            return
        error = ctypes.get_errno()
        if error not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(error, os.strerror(error), name)
    os.link(old, name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)  # file systems that know no such rename
    os.unlink(old, dir_fd=fd)


def settle(fd: int) -> None:
    """Makes durable which names a directory has. One that we may not read is left to the kernel."""
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    except PermissionError:
        return
    try:
        os.fsync(readable)
    finally:
        os.close(readable)


def make_directory(fd: int, name: str, look: Look) -> None:
    """Makes a directory that is not there. Nobody gets in before it looks as it shall."""
    os.mkdir(name, 0o700, dir_fd=fd)
    dress_directory(fd, name, look)
    settle(fd)


def dress_directory(fd: int, name: str, look: Look) -> None:
    """Gives a directory its mode and owner."""
    directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        _dress(directory, look, None)
    finally:
        os.close(directory)


def remove(fd: int, name: str) -> None:
    """Takes a file or a link away; fine if it is gone. A directory is not a file."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=fd)
        settle(fd)


def remove_directory(fd: int, name: str) -> bool:
    """Takes an empty directory away. False where something is in it; fine if it is gone."""
    try:
        os.rmdir(name, dir_fd=fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY, errno.ENOTDIR):
            return False
        raise
    settle(fd)
    return True
