"""Looking at, making and taking away what one declaration is about. All of this blocks: call it in a thread."""

from __future__ import annotations

import grp
import os
import pwd
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Refused
from homeostat.providers.file.content import SIZE_MOST, Digest, contents_of
from homeostat.providers.file.kind import EntryState, FileSpec, FileState
from homeostat.providers.file.tree import (
    Found,
    Look,
    Place,
    Watch,
    dress_directory,
    kind_of,
    look_at,
    make_directory,
    mode_text,
    opened,
    put,
    remove,
    remove_directory,
    strays,
)
from homeostat.providers.references import Values

DIRECTORY_MODE = 0o755
"""Of directories that are made on the way to what is declared."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A declaration, made out: values put in, names looked up."""

    spec: FileSpec
    look: Look
    files: Mapping[str, tuple[bytes, Look]] = field(repr=False)
    """Content and look of each file by its path below the place; under "" for one that stands by itself."""
    digest: Digest

    @property
    def on_the_way(self) -> Look:
        """Of directories that are made for it."""
        return Look(DIRECTORY_MODE, self.look.owner, self.look.group)

    def state(self) -> FileState:
        """What will be seen once it is so."""
        spec, look = self.spec, self.look
        state = FileState(path=spec.path, kind=spec.kind, mode=mode_text(look.mode), owner=look.owner, group=look.group)
        if spec.kind == "file":
            state.digest = self.digest.of(self.files[""][0])
            return state
        state.files = {
            name: EntryState(
                digest=self.digest.of(content), mode=mode_text(look.mode), owner=look.owner, group=look.group
            )
            for name, (content, look) in self.files.items()
        }
        state.strays = [] if spec.purge else None
        return state


def make_out(spec: FileSpec, values: Values, limit: int = SIZE_MOST) -> Wanted:
    """What a declaration means on this host. Raises `Refused` or `MissingValue` where that cannot be told."""
    owner, group = _owner(spec.owner), _group(spec.group)
    default = "0644" if spec.kind == "file" else "0755"
    look = Look(int(spec.mode or default, 8), owner, group)
    contents = contents_of(spec, values, limit)
    if spec.kind == "file":
        files = {"": (contents[""], look)}
    else:
        files = {name: (data, Look(int(spec.files[name].mode, 8), owner, group)) for name, data in contents.items()}
    return Wanted(spec, look, files, Digest(values.seal))


def _owner(name: int | str | None) -> int | None:
    if name is None or isinstance(name, int):
        return name
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Refused(f"there is no user {name!r} on this host") from None


def _group(name: int | str | None) -> int | None:
    if name is None or isinstance(name, int):
        return name
    try:
        return int(name) if name.isdecimal() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise Refused(f"there is no group {name!r} on this host") from None


# Looking


def see(
    place: Place,
    spec: FileSpec,
    also: Iterable[str],
    digest: Digest,
    limit: int,
    declared: Callable[[str], bool],
    watch: Watch,
) -> FileState | Absent:
    """What is there now. `also` are files of the directory to look at beside those that are declared."""
    found = _look(place, digest, limit, watch)
    if found is None:
        return ABSENT
    state = FileState(path=spec.path, kind=found.kind, mode=found.mode, owner=found.owner, group=found.group)
    if spec.kind == "file":
        state.digest = found.digest
    elif found.kind == "directory":
        state.files = {}
        for name in sorted({*spec.files, *also}):
            if (entry := _look(place.below(name), digest, limit, watch)) is not None:
                state.files[name] = EntryState(
                    digest=entry.digest, mode=entry.mode, owner=entry.owner, group=entry.group
                )
        if spec.purge:
            with opened(place, len(place.parts)) as (fd, depth):
                state.strays = strays(fd, declared, str(place), watch) if depth == len(place.parts) else []
    return _comparable(state, spec)


def _comparable(state: FileState, spec: FileSpec) -> FileState:
    """Without what the declaration leaves open, so that what was applied stays comparable."""
    if spec.owner is None:
        state.owner = None
    if spec.group is None:
        state.group = None
    for entry in (state.files or {}).values():
        entry.owner = None if spec.owner is None else entry.owner
        entry.group = None if spec.group is None else entry.group
    return state


def _look(place: Place, digest: Digest | None, limit: int, watch: Watch) -> Found | None:
    with opened(place, len(place.parts) - 1) as (fd, depth):
        watch(fd, place.parts[depth])
        if depth < len(place.parts) - 1:
            return None
        return look_at(fd, place.parts[-1], digest, limit)


def see_rest(place: Place, spec: FileSpec, ours: Iterable[str], made: Iterable[Place]) -> FileState | Absent:
    """What is left of what was made, when it is to go: files, and directories that have nothing in them."""
    rest = FileState(path=spec.path, kind=spec.kind, mode="")
    for file in _places(place, spec, ours):
        if _kind_at(file) not in ("", "directory"):
            return rest
    for directory in made:
        with opened(directory, len(directory.parts)) as (fd, depth):
            if depth == len(directory.parts) and _empty(fd):
                return rest
    return ABSENT


def _kind_at(place: Place) -> str:
    with opened(place, len(place.parts) - 1) as (fd, depth):
        return kind_of(fd, place.parts[-1]) if depth == len(place.parts) - 1 else ""


def _empty(fd: int) -> bool:
    listing = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        with os.scandir(listing) as entries:
            return next(entries, None) is None
    finally:
        os.close(listing)


def _places(place: Place, spec: FileSpec, ours: Iterable[str]) -> list[Place]:
    return [place] if spec.kind == "file" else [place.below(name) for name in ours]


# Changing


class Maker(msgspec.Struct):
    """Makes a declaration true. What it makes of directories is in `made`, also where it fails half-way."""

    wanted: Wanted
    place: Place
    by: str
    limit: int = SIZE_MOST
    made: list[str] = msgspec.field(default_factory=list)
    given_up: threading.Event = msgspec.field(default_factory=threading.Event)

    def file(self, new: bool) -> None:
        """Writes the one file. FileExistsError where `new`, and something has come there meanwhile."""
        self._directories(self.place, len(self.place.parts) - 1)
        self._put(self.place, *self.wanted.files[""], new)

    def directory(self, gone: Iterable[str], rubbish: Iterable[str], made_before: Iterable[Place]) -> None:
        """Writes the directory and those of its files that differ; takes away files that are `gone`, and `rubbish`."""
        for name in self.wanted.files:
            if _kind_at(self.place.below(name)) == "directory":
                raise Refused(f"{self.place.below(name)} is a directory, and is not removed to make room for a file")
        self._root()
        for name, (content, look) in self.wanted.files.items():
            self._file_below(name, content, look)
        for name in gone:
            self._take(self.place.below(name))
        for name in sorted(rubbish, key=lambda name: -name.rstrip("/").count("/")):
            self._take(self.place.below(name.rstrip("/")), directory=name.endswith("/"))
        needed = [self.place.below(name) for name in self.wanted.files] or [self.place]
        take_directories(
            d for d in made_before if not any(n.related(d) and len(d.parts) <= len(n.parts) for n in needed)
        )

    def _root(self) -> None:
        place, look = self.place, self.wanted.look
        self._directories(place, len(place.parts) - 1)
        with opened(place, len(place.parts) - 1) as (fd, _):
            name = place.parts[-1]
            found = look_at(fd, name, None, 0)
            if found is None:
                make_directory(fd, name, look)
                self.made.append(str(place))
            elif found.kind != "directory":
                raise Refused(f"{place} is a {found.kind}, and is not removed to make room for a directory")
            elif not _fits(found, look):
                dress_directory(fd, name, look)

    def _file_below(self, name: str, content: bytes, look: Look) -> None:
        place = self.place.below(name)
        self._directories(place, len(place.parts) - 1, always=len(self.place.parts))
        with opened(place, len(place.parts) - 1) as (fd, _):
            found = look_at(fd, place.parts[-1], self.wanted.digest, self.limit)
        if found is None or found.digest != self.wanted.digest.of(content) or not _fits(found, look):
            self._put(place, content, look, new=found is None)

    def _put(self, place: Place, content: bytes, look: Look, new: bool) -> None:
        with opened(place, len(place.parts) - 1) as (fd, depth):
            if depth < len(place.parts) - 1:
                raise FileNotFoundError(2, "a directory on the way has gone")
            put(fd, place.parts[-1], content, look, new=new, by=self.by, given_up=self.given_up)

    def _directories(self, place: Place, depth: int, always: int | None = None) -> None:
        """Makes the missing ones of the first `depth` parts: those beyond `always` in any case, others where `parents` is said."""
        while True:
            with opened(place, depth) as (fd, there):
                if there == depth:
                    return
                missing = place.above(there + 1)
                if not self.wanted.spec.parents and (always is None or there < always):
                    raise Refused(
                        f"the directory {missing} is not there; declare it as a File of its own, or say `parents: true`"
                    )
                make_directory(fd, place.parts[there], self.wanted.on_the_way)
                self.made.append(missing)

    def _take(self, place: Place, directory: bool = False) -> None:
        if self.given_up.is_set():
            return
        with opened(place, len(place.parts) - 1) as (fd, depth):
            if depth == len(place.parts) - 1:
                (remove_directory if directory else remove)(fd, place.parts[-1])


def _fits(found: Found, look: Look) -> bool:
    return (
        found.mode == mode_text(look.mode) and look.owner in (None, found.owner) and look.group in (None, found.group)
    )


def take_away(place: Place, spec: FileSpec, ours: Iterable[str], made: Iterable[Place]) -> None:
    """Removes the files that are ours, and directories that we made and that have nothing in them."""
    for file in _places(place, spec, ours):
        with opened(file, len(file.parts) - 1) as (fd, depth):
            if depth == len(file.parts) - 1 and kind_of(fd, file.parts[-1]) != "directory":
                remove(fd, file.parts[-1])
    take_directories(made)


def take_directories(made: Iterable[Place]) -> None:
    """Removes empty directories, the deepest first."""
    for directory in sorted(made, key=lambda place: -len(place.parts)):
        with opened(directory, len(directory.parts) - 1) as (fd, depth):
            if depth == len(directory.parts) - 1:
                remove_directory(fd, directory.parts[-1])
