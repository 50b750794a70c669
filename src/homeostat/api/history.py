"""The past: what the log of the store still has, and what is kept of it when the log lets go.

For a while (`ControlPlane.keep_seconds`) the log has every write, and any revision can be read exactly. Before it is compacted, what
people declared goes into the archive: for each change of a declaration the object as it was before, with the last status it had. What
only changed the status does not. So the past beyond the log is a past of declarations.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import orjson

from homeostat.api.auth import usertokens
from homeostat.api.resource import Object
from homeostat.model.clock import Clock, parse_time
from homeostat.model.errors import ApiError, bad_request, expired
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET
from homeostat.store import Compacted, Entry, Event, Store, StoreError
from homeostat.store.archive import Archive, Past

T = TypeVar("T")

log = logging.getLogger("homeostat.api")

DAY = 86_400.0
CHUNK = 200
"""Changes that are looked at before others have their turn."""
SAVE_SECONDS = 1.0
"""How long it may take until it is written down which second had which revision."""
DROP_SECONDS = 600.0
"""How often what is past its keeping is dropped."""
_SERVERS = ("managedFields", "generation", "resourceVersion", "finalizers")


class Keep(msgspec.Struct, frozen=True):
    """How much of an object's past is kept beyond the log: for how long, and how many changes at most. Zero seconds: nothing."""

    seconds: float = 30 * DAY
    changes: int = 100


NOTHING = Keep(0, 0)
UNKEPT = {"events": NOTHING, "leases.coordination.k8s.io": NOTHING, usertokens.QUALIFIED: NOTHING}
"""Kinds whose past is worth nothing an hour later, or is better not kept."""


class Retention(msgspec.Struct, frozen=True):
    """How much is kept, by kind (`configmaps`, `files.files.homeostat.dev`); `default` for all others."""

    default: Keep = Keep()
    kinds: Mapping[str, Keep] = msgspec.field(default_factory=lambda: UNKEPT)

    def of(self, kind: str) -> Keep:
        return self.kinds.get(kind, self.default)


class History:
    """The past of one store. Without an archive it is as long as the log."""

    def __init__(self, store: Store, clock: Clock, archive: Archive | None = None, retention: Retention | None = None) -> None:
        self.store = store
        self.retention = retention or Retention()
        self._archive = archive
        self._clock = clock
        self._turn = asyncio.Lock()  # one thread at a time
        self._marks: deque[tuple[int, int]] = deque()  # second, and the revision at its end: as long as the log
        self._unsaved: dict[int, int] = {}
        self._held: list[int] = []
        self._dropped_at = 0.0
        self._saving: asyncio.TimerHandle | None = None
        self._saver: asyncio.Task[None] | None = None
        self._end = store.subscribe(self._committed)

    async def start(self) -> None:
        """Looks whether the archive goes on where it stopped."""
        if self._archive is not None:
            reached, now, oldest = await self._with(lambda a: a.reached), self.store.revision, max(self.store.compacted, 1)
            if reached > now:
                await self._with(lambda a: a.cut(now))  # an older copy of the store was put in its place
            elif reached < oldest:
                await self._with(lambda a: a.start_at(oldest))  # it is new, or the log was compacted without it
        self._note(self.store.revision, int(self._clock.now()) - 1)  # what comes in this very second came after that

    async def stop(self) -> None:
        """Saves what it knows of time, and lets the file go."""
        self._end()
        if self._saving is not None:
            self._saving.cancel()
        if self._saver is not None:
            await asyncio.gather(self._saver, return_exceptions=True)
        await self._save()
        if self._archive is not None:
            await self._with(lambda a: a.close())
            self._archive = None

    async def _with(self, work: Callable[[Archive], T]) -> T:
        assert self._archive is not None
        archive = self._archive
        async with self._turn:
            return await asyncio.to_thread(work, archive)

    # Time

    def _committed(self, events: Sequence[Event], revision: int) -> None:
        self._note(revision, int(self._clock.now()))

    def _note(self, revision: int, second: int) -> None:
        if self._marks and self._marks[-1][0] == second:
            self._marks.pop()
        self._marks.append((second, revision))
        if self._archive is None:
            return
        self._unsaved[second] = revision
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(SAVE_SECONDS, self._save_soon)

    def _save_soon(self) -> None:
        self._saving = None
        self._saver = asyncio.get_running_loop().create_task(self._save())

    async def _save(self) -> None:
        try:
            await self.save_marks()
        except StoreError as error:
            log.warning("what time it was cannot be kept: %s", error)

    async def save_marks(self) -> None:
        """Writes down which second had which revision."""
        saved, self._unsaved = self._unsaved, {}
        if saved and self._archive is not None:
            await self._with(lambda a: a.mark(list(saved.items())))

    async def revision_at(self, text: str) -> int:
        """The revision that a person means by a number or a time (RFC 3339): the state at the end of that second.

        400 where it is neither, 410 where it is before all that is known.
        """
        if text.isascii() and text.isdecimal() and len(text) < 19:
            return int(text)
        try:
            second = int(parse_time(text))
        except ValueError:
            raise bad_request(f'at: "{text}" is neither a revision nor a time such as 2026-01-31T12:00:00Z') from None
        if self._marks and self._marks[0][0] <= second:
            return next(revision for at, revision in reversed(self._marks) if at <= second)
        found = 0 if self._archive is None else await self._with(lambda a: a.revision_at(second))
        if not found:
            raise expired(f"the past is not known as far back as {text}")
        return found

    async def times_of(self, revisions: Sequence[int]) -> dict[int, int]:
        """The second in which each revision came, where it is known."""
        await self.save_marks()
        known = list(self._marks)
        found: dict[int, int] = {}
        for revision in revisions:
            if known and known[0][1] <= revision:
                found[revision] = next((at for at, reached in known if reached >= revision), 0)
            elif self._archive is not None:
                found[revision] = await self._with(lambda a, revision=revision: a.time_of(revision))  # type: ignore[misc]
        return {revision: at for revision, at in found.items() if at}

    # Letting go

    @contextmanager
    def held(self, revision: int) -> Iterator[None]:
        """While it lasts, the log stays readable at a revision."""
        self._held.append(revision)
        try:
            yield
        finally:
            self._held.remove(revision)

    async def let_go(self, revision: int, keep_seconds: float) -> None:
        """Compacts the log to a revision, after what is to be kept is in the archive."""
        revision = min([revision, *self._held])
        await self.save_marks()
        now = self._clock.now()
        while len(self._marks) > 1 and self._marks[1][0] < now - keep_seconds:
            self._marks.popleft()
        if self._archive is not None:
            await self._archive_to(revision)
            if now - self._dropped_at >= DROP_SECONDS:
                await self.drop(now)
                self._dropped_at = now
        if revision > self.store.compacted:
            await self.store.compact(revision)

    async def _archive_to(self, revision: int) -> None:
        reached = await self._with(lambda a: a.reached)
        while reached < revision:
            events, reached = await self.store.since("", reached, CHUNK)
            kept = [await self._past(event) for event in events if event.revision <= revision and self._ends(event)]
            reached = min(reached, revision)
            upto = reached
            await self._with(lambda a: a.keep(_linked(a, kept), upto))  # noqa: B023  (awaited at once)

    def _ends(self, event: Event) -> bool:
        """Whether a declaration ended with this change, and is to be kept."""
        if event.previous is None or not self.retention.of(event.key.partition("/")[0]).seconds:
            return False
        return event.value is None or not same_declaration(event.previous, event.value)

    async def _past(self, event: Event) -> Past:
        before = await self.store.get(event.key, event.revision - 1)
        assert event.previous is not None
        written = before.revision if before is not None else event.created
        mark = change_set_of(event.previous)
        return Past(event.key, event.revision, 0, written, event.created, event.value is None, mark, event.previous)

    async def drop(self, now: float) -> None:
        """Drops from the archive what is past its keeping."""
        for kind in sorted({*self.retention.kinds, *await self._kinds()}):
            keep = self.retention.of(kind)
            prefix = f"{kind}/"
            if not keep.seconds:
                await self._with(lambda a, prefix=prefix: a.forget(prefix))  # type: ignore[misc]
                continue
            cut = await self._with(lambda a, keep=keep: a.revision_at(now - keep.seconds))  # type: ignore[misc]
            await self._with(lambda a, prefix=prefix, cut=cut, keep=keep: a.drop(prefix, cut, keep.changes))  # type: ignore[misc]
        longest = max([self.retention.default.seconds, *(keep.seconds for keep in self.retention.kinds.values())])
        await self._with(lambda a: a.thin(now, now - 2 * longest - DAY))

    async def _kinds(self) -> list[str]:
        return await self._with(lambda a: a.kinds())

    # Reading

    async def entry(self, key: str, revision: int) -> Entry | None:
        """What a key held at a revision, None where it was not there. Raises 410 where that is no longer known."""
        try:
            return await self.store.get(key, revision)
        except Compacted:
            pass
        kind = await self._known(key, revision)
        past, floor = await self._with(lambda a: (a.at(key, revision), max(a.floor(key), a.floor(kind))))
        if past is not None and past.since <= revision:
            return Entry(key, past.value, past.revision, past.created)
        if past is None:
            now = await self.store.get(key, self.store.compacted)
            if now is not None and now.created <= revision:
                return now
        if revision < floor:
            raise too_old(revision)
        return None

    async def entries(self, prefix: str, revision: int) -> list[Entry]:
        """All under a prefix as declared at a revision that the log no longer has. Raises 410 where that is not known."""
        kind = await self._known(prefix, revision)
        found: dict[str, Entry] = {}
        past, gap = await self._with(lambda a: (list(a.all_at(prefix, revision)), _gap(a, prefix, kind, revision)))
        if gap:
            raise too_old(revision)
        ended = {one.key for one in past}
        for one in past:
            if one.since <= revision:
                found[one.key] = Entry(one.key, one.value, one.revision, one.created)
        after = ""
        compacted = self.store.compacted
        with self.held(compacted):
            while True:
                page = await self.store.range(prefix, after=after, revision=compacted, limit=1000)
                for entry in page.entries:
                    if entry.key not in ended and entry.created <= revision:
                        found[entry.key] = entry
                if not page.more:
                    return [found[key] for key in sorted(found)]
                after = page.entries[-1].key

    async def _known(self, key: str, revision: int) -> str:
        """The prefix of a key's kind; 410 where its past is not kept at all, or not so far back."""
        kind = key.partition("/")[0]
        if self._archive is None or not self.retention.of(kind).seconds:
            raise too_old(revision)
        if revision < await self._with(lambda a: a.begins):
            raise too_old(revision)
        return f"{kind}/"

    async def past(self, key: str, limit: int) -> list[Past]:
        """What the archive has of a key, newest first: from before the log begins."""
        if self._archive is None:
            return []
        compacted = self.store.compacted
        return await self._with(lambda a: a.history(key, compacted, limit))

    async def marked(self, change_set: str) -> list[Past]:
        """What the archive has of a change set."""
        return [] if self._archive is None else await self._with(lambda a: a.marked(change_set))

    async def lately_marked(self, limit: int) -> list[tuple[str, str, int]]:
        """Change set, key and revision of what the archive took in last."""
        return [] if self._archive is None else await self._with(lambda a: a.lately_marked(limit))


def _gap(archive: Archive, prefix: str, kind: str, revision: int) -> bool:
    return revision < archive.floor(kind) or bool(archive.dropped(prefix, revision))


def _linked(archive: Archive, rows: Sequence[Past]) -> list[Past]:
    """Rows with the revision from which on each held: the end of the one before, or the creation of its key."""
    ends: dict[str, int] = {}
    linked = []
    for row in rows:
        last = ends[row.key] if row.key in ends else archive.last_until(row.key)
        linked.append(row._replace(since=max(row.created, last if last < row.until else 0)))
        ends[row.key] = row.until
    return linked


def too_old(revision: int) -> ApiError:
    """410 for what is no longer known."""
    return expired(f"revision {revision} is too old: what was then is no longer kept. `homeostat history` shows what is")


def declared(value: bytes) -> dict[str, Any]:
    """What people declare of a stored object: all but the status and what the server keeps beside it."""
    obj: dict[str, Any] = orjson.loads(value)
    obj.pop("status", None)
    metadata = obj["metadata"]
    for name in _SERVERS:
        metadata.pop(name, None)
    return obj


_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def same_declaration(one: bytes, other: bytes) -> bool:
    """Whether two stored objects declare the same. Most writes are of the status, so it is asked of bytes first."""
    a, b = _parts(one), _parts(other)
    if _bytes_of(a, "status") == _bytes_of(b, "status"):
        inner, outer = _parts(a["metadata"]), _parts(b["metadata"])
        if _bytes_of(inner, *_SERVERS) == _bytes_of(outer, *_SERVERS):
            return True
    return declared(one) == declared(other)  # the same in another order is the same


def _bytes_of(parts: dict[str, msgspec.Raw], *without: str) -> dict[str, bytes]:
    return {name: bytes(raw) for name, raw in parts.items() if name not in without and name != "metadata"}


def change_set_of(value: bytes) -> str:
    """The change set that a stored object was declared with, or deleted by."""
    if b'"homeostat.dev/' not in value:
        return ""
    notes: Object = orjson.loads(value)["metadata"].get("annotations") or {}
    found = notes.get(DELETION_CHANGE_SET) or notes.get(CHANGE_SET) or ""
    return found if isinstance(found, str) else ""
