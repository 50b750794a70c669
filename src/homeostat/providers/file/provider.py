"""The File provider: what the loop calls."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeVar

from homeostat.client import Client
from homeostat.loop.declarations import ADOPT
from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Op, Ref
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import Declared, Moved, Provider, Refused, Task, Undeclared, current
from homeostat.model.kinds import Column
from homeostat.providers.file.content import SIZE_MOST, Digest
from homeostat.providers.file.discover import undeclared
from homeostat.providers.file.hints import Hints
from homeostat.providers.file.keeping import Maker, make_out, see, see_rest, take_away
from homeostat.providers.file.kind import FileSpec, FileState
from homeostat.providers.file.tree import DiskTrouble, Place, Roots, well_formed
from homeostat.providers.references import Values, read_values

T = TypeVar("T")

_MADE = "directories"
"""Under which name the status keeps the directories that we made."""


class File(Provider[FileSpec, FileState], group="files.homeostat.dev", host=True, columns=(Column("Path", ".spec.path"),)):
    """A file or a directory on this host.

    `allowed` are the directories below which files may be kept; without any, everything is refused. `limit` is in bytes, for one
    file.
    """

    def __init__(self, allowed: Iterable[str | os.PathLike[str]] = (), *, limit: int = SIZE_MOST) -> None:
        self._roots = Roots(allowed)
        self._limit = limit
        self._client: Client | None = None
        self._hints: Hints | None = None

    async def open(self, client: Client) -> None:
        self._client = client

    async def close(self) -> None:
        if self._hints is not None:
            self._hints.close()
            self._hints = None

    def watch(self) -> AsyncIterator[Ref]:
        """Hints from inotify, and from the ConfigMaps and Secrets in use."""
        self._hints = Hints(self._client)
        return self._hints.stream()

    def forget(self, ref: Ref) -> None:
        if self._hints is not None:
            self._hints.forget(ref)

    def target(self, spec: FileSpec) -> str:
        """A disk that is full or gone fails all below the same root."""
        try:
            return self._roots.place(spec.path).root
        except Refused:
            return ""

    def identity(self, spec: FileSpec, state: FileState) -> str:
        """Of a directory none: it is not one thing, but what each declaration put into it."""
        return "" if spec.kind == "directory" else str(self._roots.place(spec.path))

    # Looking

    async def observe(self, spec: FileSpec) -> FileState | Absent:
        task = current()
        place = self._roots.place(spec.path)
        if task.deleting:
            ours, made = _ours(task, spec), self._made(task, place)
            return await self._thread(f"{place} cannot be read", lambda: see_rest(place, spec, ours, made))
        digest = Digest((await self._values(task, spec)).seal)
        declared = await self._declared(task, spec, place) if spec.purge else _nothing
        also = _ours(task, spec)
        hints = self._hints
        watch, now = hints.watching(task.ref) if hints is not None else (_unwatched, set[int]())

        def look() -> FileState | Absent:
            return see(place, spec, also, digest, self._limit, declared, watch)

        try:
            return await self._thread(f"{place} cannot be read", look)
        finally:
            if hints is not None:
                hints.watched(task.ref, now)

    async def wanted(self, spec: FileSpec) -> FileState:
        values = await self._values(current(), spec)
        return await self._thread("it cannot be made out", lambda: make_out(spec, values, self._limit).state())

    async def _values(self, task: Task, spec: FileSpec) -> Values:
        if self._hints is not None:
            self._hints.uses(task.ref, spec.values)
        return await read_values(self._client, task.ref.namespace, spec.values)

    async def _declared(self, task: Task, spec: FileSpec, place: Place) -> Callable[[str], bool]:
        """Which paths below a directory somebody has declared: we, or any other File."""
        if self._client is None:
            raise DiskTrouble(
                "what others declare cannot be read, so nothing can be purged: there is no API server at hand"
            )
        others: list[dict[str, Any]] = await self._client.kind(self.info.api_version, self.info.kind).list()
        paths, whole = set(spec.files), set[str]()
        for obj in others:
            if obj["metadata"]["uid"] != task.ref.uid:
                self._others(obj.get("spec") or {}, place, paths, whole)
        needed = {str(above) for path in paths for above in (PurePosixPath(path), *PurePosixPath(path).parents)}
        return lambda path: path in needed or any(path.startswith(tree) for tree in whole)

    def _others(self, spec: Mapping[str, Any], place: Place, paths: set[str], whole: set[str]) -> None:
        """Enters what another File declares below the place: single paths, and directories that are its own affair."""
        try:
            at = self._roots.place(spec.get("path") or "")
        except Refused:
            return
        own = [at.below(name) for name in _safe(spec.get("files") or ())]
        for other in (at, *own):
            if other.related(place) and len(other.parts) > len(place.parts):
                below = "/".join(other.parts[len(place.parts) :])
                paths.add(below)
                if other is at and spec.get("kind") == "directory":
                    whole.add(below + "/")

    async def discover(self, declared: Sequence[Declared[FileSpec]]) -> list[Undeclared]:
        return await asyncio.to_thread(lambda: list(undeclared(self._roots, [one.spec for one in declared])))

    def foreign(self, spec: FileSpec, diff: Diff) -> str:
        """Files that are in a directory of ours, but not from us, are not overwritten for being declared now."""
        task = current()
        if task.last_applied is None or task.annotations.get(ADOPT) == "true":
            return ""
        ours = (task.last_applied.get("files") or {}).keys()
        for change in diff.changes:
            if (
                len(change.path) == 2
                and change.path[0] == "files"
                and change.old is not ABSENT
                and change.path[1] not in ours
            ):
                return f"{spec.path}/{change.path[1]} exists and is not ours; to take it over, annotate it with {ADOPT}=true"
        return ""

    # Acting

    async def apply(self, spec: FileSpec, diff: Diff) -> None:
        task = current()
        place = self._roots.place(spec.path)
        values = await self._values(task, spec)
        wanted = await self._thread("it cannot be made out", lambda: make_out(spec, values, self._limit))
        maker = Maker(wanted, place, _mark(task.ref), self._limit)
        try:
            await self._thread(f"{place} cannot be written", lambda: self._make(maker, task, diff), maker)
        except FileExistsError:
            if maker.made:
                raise DiskTrouble(f"{place} has come to be meanwhile") from None
            raise Moved(f"{place} has come to be meanwhile") from None
        finally:
            if maker.made:
                task.kept[_MADE] = sorted({*task.kept.get(_MADE, ()), *maker.made})

    def _make(self, maker: Maker, task: Task, diff: Diff) -> None:
        if maker.wanted.spec.kind == "file":
            maker.file(new=diff.op is Op.CREATE)
            return
        gone = [str(c.path[1]) for c in diff.changes if len(c.path) == 2 and c.path[0] == "files" and c.new is ABSENT]
        rubbish = next((c.old for c in diff.changes if c.path == ("strays",)), ())
        maker.directory(_safe(gone), rubbish, self._made(task, maker.place))

    async def delete(self, spec: FileSpec) -> None:
        task = current()
        place = self._roots.place(spec.path)
        ours, made = _ours(task, spec), self._made(task, place)
        await self._thread(f"{place} cannot be removed", lambda: take_away(place, spec, ours, made))

    def _made(self, task: Task, place: Place) -> list[Place]:
        """The directories that we made for it. A status can be written by others: what is not on its way is not believed."""
        found = []
        for path in task.kept.get(_MADE) or ():
            try:
                directory = self._roots.place(path)
            except Refused:
                continue
            if directory.related(place):
                found.append(directory)
        return found

    async def _thread(self, trouble: str, work: Callable[[], T], maker: Maker | None = None) -> T:
        """Does blocking work in a thread. When nobody waits any more, the thread is told not to change anything."""
        try:
            return await asyncio.to_thread(work)
        except FileExistsError:
            raise
        except OSError as error:
            raise DiskTrouble(f"{trouble}: {error.strerror or error}") from None
        finally:
            if maker is not None:
                maker.given_up.set()


def _ours(task: Task, spec: FileSpec) -> list[str]:
    """The files of a directory that we have written: by what was applied last, or, before that is known, by the declaration."""
    applied = (task.last_applied or {}).get("files")
    return _safe(spec.files if applied is None and task.deleting else applied or ())


def _safe(names: Iterable[str]) -> list[str]:
    """Without what does not stay below its directory: it was never written."""
    return [name for name in names if well_formed(name.split("/"))]


def _mark(ref: Ref) -> str:
    return hashlib.sha256(ref.uid.encode()).hexdigest()[:16]


def _nothing(path: str) -> bool:
    return False


def _unwatched(fd: int, name: str) -> None:
    pass
