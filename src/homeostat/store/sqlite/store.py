"""The store on SQLite: one logical writer on the event loop, one thread that makes its batches durable.

A transaction is decided on the event loop against what is committed plus what is on its way (`_ahead`); it gets its
revision, joins the batch that forms, and waits. While one batch is being written the next one forms: under load many
transactions share one sync, and a lone one waits for nothing. At most one piece of work is with the thread at a time (a
batch, a step of compaction, a checkpoint), and the reader is pinned while it runs, so every read shows exactly the
revision that was last announced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from homeostat.store.base import (
    Compacted,
    Compare,
    Conflict,
    Delete,
    Deliver,
    Entry,
    Event,
    FutureRevision,
    Page,
    Put,
    Store,
    StoreError,
)
from homeostat.store.feed import Feed
from homeostat.store.sqlite.decide import Transaction, check, decide
from homeostat.store.sqlite.files import DataDirectory
from homeostat.store.sqlite.log import Reader, Writer, bounds
from homeostat.store.sqlite.present import Present
from homeostat.store.sqlite.recent import UNKNOWN, Recent
from homeostat.store.sqlite.thread import Runs, WriterThread

log = logging.getLogger(__name__)

T = TypeVar("T")

CHUNK = 1000
"""Rows read before other tasks get their turn."""
COUNT_CHUNK = 50_000
SWEEP_CHUNK = 200
"""Changes that one step of a compaction looks at: a write waits for at most one step."""
BATCH_EVENTS = 256
BATCH_BYTES = 4 << 20
"""A batch is closed when it holds this much; a single larger transaction goes alone."""
GATHERS = 64
GATHER_SECONDS = 0.005
"""A batch waits for the next turn of the event loop while each turn brings more to it, till it has so many transactions, or so long."""
WAL_PAGES = 1000
WAL_PAGES_BUSY = 4000
"""Pages in the write-ahead log at which it is moved to the database file: in a quiet moment, or in any case."""


class SqliteStore(Store):
    """A durable store in a directory of this machine. Make one with `open` or `in_memory`."""

    def __init__(self, place: DataDirectory, reader: Reader, writer: Writer, runs: Runs, feed_bytes: int) -> None:
        self._place = place
        self._reader = reader
        self._writer = writer
        self._runs = runs
        self._loop = asyncio.get_running_loop()
        self._revision, self._compacted, self._swept = reader.state()
        self._assigned = self._revision
        self._feed = Feed(self._revision, feed_bytes)
        self._recent = Recent()
        self._present = Present(reader.keys())
        self._ahead: dict[str, Event] = {}  # the newest change of each key that is not durable yet
        self._pending: deque[Transaction] = deque()
        self._busy = False  # a piece of work is with the thread
        self._pump_soon = False
        self._gathered = 0  # transactions that waited at the last turn of the event loop
        self._gathers_till = 0.0
        self._trouble = False  # the last batch failed
        self._sweep_next = False  # writes and steps of a compaction take turns
        self._compact_to = self._compacted
        self._compactions: list[tuple[int, asyncio.Future[None]]] = []
        self._idle = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        commit_on: Runs | None = None,
        durable: bool = True,
        feed_bytes: int = 8 << 20,
        cache_bytes: int = 8 << 20,
    ) -> SqliteStore:
        """Opens the store in the directory `path`, which is made where it does not exist.

        `commit_on` runs the blocking writes (default: a thread of its own). `durable=False` leaves the moment of
        writing to the operating system: fast, and a power loss takes what was acknowledged; for tests. `feed_bytes` is
        what recent events may hold in memory, `cache_bytes` the same for pages of the file.

        Raises `Locked` when somebody holds the directory, `Corrupt` when the file is damaged or not ours.
        """
        with contextlib.ExitStack() as undo:
            place = DataDirectory(Path(path).absolute())
            undo.callback(place.release)
            place.inspect(durable=durable)
            writing = place.connect(cache=cache_bytes // 4, durable=durable)
            undo.callback(place.disconnect, writing)
            place.prepare(writing)
            reading = place.connect(cache=cache_bytes - cache_bytes // 4, durable=durable)
            undo.callback(place.disconnect, reading)
            runs = commit_on or WriterThread("store-writer")
            store = cls(place, Reader(place, reading), Writer(place, writing), runs, feed_bytes)
            undo.pop_all()
        store._pump()  # a compaction that was cut short goes on
        return store

    @classmethod
    async def in_memory(cls, *, commit_on: Runs | None = None) -> SqliteStore:
        """A store that vanishes when it is closed, for tests: the same code, on files in memory where possible."""
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        scratch = tempfile.TemporaryDirectory(prefix="homeostat-", dir=memory)
        store = await cls.open(scratch.name, commit_on=commit_on, durable=False)
        store._scratch = scratch
        return store

    @property
    def revision(self) -> int:
        return self._revision

    @property
    def compacted(self) -> int:
        return self._compacted

    # Reading

    async def get(self, key: str, revision: int | None = None) -> Entry | None:
        self._check_open()
        if revision is None or revision == self._revision:
            return self._committed(key)
        return self._reader.get_at(key, self._readable(revision))

    def _committed(self, key: str) -> Entry | None:
        """A key as it is in the file."""
        if self._place.damage is not None:
            raise self._place.damage
        entry = self._recent.get(key)
        if entry is not UNKNOWN:
            return entry
        if key not in self._present:
            return None
        entry = self._reader.get(key)
        self._recent.keep(key, entry)
        return entry

    async def range(
        self, prefix: str, *, after: str = "", revision: int | None = None, limit: int = 0, count: bool = False
    ) -> Page:
        self._check_open()
        while True:
            try:
                return await self._range(prefix, after, self._readable(revision), limit, count)
            except Compacted:
                if revision is not None:
                    raise  # else it was overtaken while it read the present: read that again

    async def _range(self, prefix: str, after: str, revision: int, limit: int, count: bool) -> Page:
        next_key, end = bounds(prefix, after)
        start: str | None = next_key
        entries: list[Entry] = []
        while start is not None and (not limit or len(entries) <= limit):  # one more than asked shows whether it cuts
            rows = min(CHUNK, limit + 1 - len(entries)) if limit else CHUNK
            if self._readable(revision) == self._revision:
                found, start = self._reader.live(start, end, rows)
            else:
                found, start = self._reader.as_of(start, end, revision, rows)
            entries = entries + found if entries else found
            if start is not None and (not limit or len(entries) <= limit):
                await self._let_others()
        if not limit or len(entries) <= limit:
            return Page(entries, revision)
        del entries[limit:]
        remaining = await self._count(prefix, entries[-1].key, revision) if count else 0
        return Page(entries, revision, more=True, remaining=remaining)

    async def count(self, prefix: str) -> int:
        self._check_open()
        while True:
            try:
                return await self._count(prefix, "", self._revision)
            except Compacted:
                continue

    async def _count(self, prefix: str, after: str, revision: int) -> int:
        next_key, end = bounds(prefix, after)
        start: str | None = next_key
        total = 0
        while start is not None:
            now = self._readable(revision) == self._revision
            found, start = self._reader.count(start, end, None if now else revision, COUNT_CHUNK)
            total += found
            if start is not None:
                await self._let_others()
        return total

    def subscribe(self, deliver: Deliver) -> Callable[[], None]:
        return self._feed.subscribe(deliver)

    async def since(self, prefix: str, revision: int, limit: int = 1000) -> tuple[list[Event], int]:
        self._check_open()
        events: list[Event] = []
        limit = max(limit, 1)
        while True:
            self._readable(revision)
            recent = self._feed.since(prefix, revision, limit - len(events))
            if recent is not None:
                return events + recent[0], recent[1]
            found, revision = self._reader.changes(prefix, revision, self._feed.floor, CHUNK // 2)
            events += found
            if len(events) >= limit:
                return events, revision
            await self._let_others()

    async def history(self, key: str, limit: int = 100) -> list[Event]:
        self._check_open()
        return self._reader.history(key, limit)

    def _readable(self, revision: int | None) -> int:
        if revision is None:
            return self._revision
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        if revision < self._compacted:
            raise Compacted(revision, self._compacted)
        return revision

    async def _let_others(self) -> None:
        await asyncio.sleep(0)
        self._check_open()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise StoreError(f"the store in {self._place.path} is closed")

    # Writing

    async def txn(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> int | Conflict:
        self._check_open()
        check(writes)
        asked = Transaction(compares, writes)
        self._decide(asked)
        if not asked.events and not asked.waits:
            return self._revision if asked.outcome is None else asked.outcome
        asked.done = self._loop.create_future()
        self._pending.append(asked)
        self._pump_later()
        return await asked.done

    def _decide(self, asked: Transaction) -> None:
        decide(asked, self._ahead, self._committed, self._assigned + 1)
        if asked.events:
            self._assigned += 1
            for event in asked.events:
                self._ahead[event.key] = event

    def _pump_later(self) -> None:
        # At the end of this turn of the event loop, so that all who write in the same turn share a batch.
        if not self._pump_soon and not self._busy:
            self._pump_soon = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Gives the thread its next piece of work, if it is free and there is any."""
        self._pump_soon = False
        if self._busy:
            return
        unflushed = self._writer.unflushed
        sweeping = self._swept < self._compact_to and self._closing is None
        if unflushed >= WAL_PAGES_BUSY or (unflushed >= WAL_PAGES and not self._pending):
            self._work(self._writer.checkpoint, self._checkpointed)
        elif sweeping and (self._sweep_next or not self._pending):
            self._compact_step()
        elif self._gathers():
            self._pump_later()
        elif self._pending:
            self._sweep_next = True
            self._write_batch()
        elif self._closing is not None:
            self._idle.set()

    def _gathers(self) -> bool:
        """Whether others are about to join the batch: where many write, one sync for all of them costs less than it takes to wait.

        A lone write never waits, and neither does what was all there is to do.
        """
        count, before, now = len(self._pending), self._gathered, self._loop.time()
        if not before:
            self._gathers_till = now + GATHER_SECONDS
        self._gathered = count if max(before, 1) < count < GATHERS and now < self._gathers_till else 0
        return bool(self._gathered)

    def _work(self, work: Callable[[], T], then: Callable[[T | None, StoreError | None], None]) -> None:
        """Runs `work` in the thread and `then` with its result or error on the event loop."""

        def done(result: T | None, error: StoreError | None) -> None:
            self._busy = False
            try:
                then(result, error)
            finally:
                self._pump_later()

        def run() -> None:
            result, failure = None, None
            try:
                result = work()
            except StoreError as error:
                failure = error
            except Exception as error:
                log.exception("the store's writer failed")
                failure = StoreError(f"the store in {self._place.path} failed: {error!r}")
            with contextlib.suppress(RuntimeError):  # the event loop is gone, and with it everybody who waited
                self._loop.call_soon_threadsafe(done, result, failure)

        self._busy = True
        self._runs.submit(run)

    def _write_batch(self) -> None:
        batch: list[Transaction] = []
        rows: list[Any] = []
        count = size = 0
        while self._pending:
            asked = self._pending[0]
            count += len(asked.events)
            size += asked.size
            if batch and (count > BATCH_EVENTS or size > BATCH_BYTES):
                break
            batch.append(self._pending.popleft())
            rows += asked.rows
        if not rows:  # only verdicts that waited for the batch before
            self._acknowledge(batch)
            self._pump_later()
            return
        try:
            self._reader.pin()
        except StoreError as error:
            self._reader.unpin()
            self._undo(batch, error)
            self._pump_later()
            return

        def written(_: None, error: StoreError | None) -> None:
            self._reader.unpin()
            if error is None or self._is_there(batch):
                self._acknowledge(batch)
            else:
                self._undo(batch, error)

        self._work(lambda: self._writer.append(rows), written)

    def _is_there(self, batch: list[Transaction]) -> bool:
        """Whether a batch is in the log in spite of an error. To deny it then would use its revisions twice."""
        try:
            return self._reader.state()[0] >= max(asked.events[-1].revision for asked in batch if asked.events)
        except StoreError:
            return False

    def _acknowledge(self, batch: list[Transaction]) -> None:
        """The batch is durable: tells those who wait, and everybody who follows the log."""
        ahead = self._ahead
        events: list[Event] = []
        for asked in batch:
            for event in asked.events:
                self._recent.committed(event)
                self._present.add(event.key)
                if ahead[event.key] is event:
                    del ahead[event.key]
            if asked.events:
                events += asked.events
                self._revision = asked.events[-1].revision
            elif asked.outcome is None:
                asked.outcome = self._revision
        for asked in sorted(batch, key=_purpose):  # those who go on in the same way do so one after the other: their code is in the caches
            asked.settle()
        if events:
            if self._trouble:
                log.warning("writes work again")
                self._trouble = False
            self._feed.publish(events, self._revision)

    def _undo(self, batch: list[Transaction], error: StoreError) -> None:
        """The batch was not written. Who wrote in it hears so; all others are decided again, on what is there."""
        if not self._trouble:  # once, not for each of the batches that a full disk refuses
            log.error("writes fail: %s", error)
        self._trouble = True
        again = [asked for asked in batch if not asked.events]
        again += self._pending
        self._pending.clear()
        self._ahead.clear()
        self._assigned = self._revision
        for asked in batch:
            if asked.events:
                asked.fail(error)
        for asked in again:
            try:
                self._decide(asked)
            except StoreError as unreadable:
                asked.fail(unreadable)
                continue
            if asked.events or asked.waits:
                self._pending.append(asked)
            else:
                asked.outcome = self._revision if asked.outcome is None else asked.outcome
                asked.settle()

    # Upkeep

    async def compact(self, revision: int) -> None:
        self._check_open()
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        if revision <= self._compacted and self._swept >= self._compacted:
            return
        self._compact_to = max(self._compact_to, revision)
        done = self._loop.create_future()
        self._compactions.append((revision, done))
        self._pump_later()
        await done

    def _compact_step(self) -> None:
        goal = self._compact_to
        self._sweep_next = False
        if goal > self._compacted:  # first written down, then done: after a crash nothing is half readable

            def marked(_: None, error: StoreError | None) -> None:
                if error is None:
                    self._compacted = goal
                self._compaction_went(error)

            self._work(lambda: self._writer.mark_compacted(goal), marked)
            return

        def swept(reached: int | None, error: StoreError | None) -> None:
            self._swept = reached or self._swept
            self._compaction_went(error)

        self._work(lambda: self._writer.sweep(self._swept, goal, SWEEP_CHUNK), swept)

    def _compaction_went(self, error: StoreError | None) -> None:
        if error is not None:
            log.error("compaction to revision %d stopped: %s", self._compact_to, error)
            self._compact_to = 0  # the next call, or the next start, takes it up again
        waiting = self._compactions
        self._compactions = []
        for revision, done in waiting:
            if done.done():
                continue
            if error is not None:
                done.set_exception(type(error)(*error.args))
            elif self._swept >= revision:
                done.set_result(None)
            else:
                self._compactions.append((revision, done))

    def _checkpointed(self, _: None, error: StoreError | None) -> None:
        if error is not None:  # nothing is lost: the write-ahead log stays, and grows until it works again
            log.warning("the write-ahead log could not be moved into the database: %s", error)

    async def close(self) -> None:
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._pump_later()
        await self._idle.wait()
        for revision, done in self._compactions:
            if done.done():
                continue
            if revision <= self._compacted:  # it is written down, and taken up again at the next start
                done.set_result(None)
            else:
                done.set_exception(StoreError(f"the store in {self._place.path} was closed before it was compacted"))
        self._reader.close()
        closed = self._loop.create_future()
        self._work(self._writer.close, lambda _, error: closed.set_result(error))
        if error := await closed:
            log.warning("the store was closed, its write-ahead log stays for the next start: %s", error)
        if isinstance(self._runs, WriterThread):
            self._runs.stop()
        self._place.release()
        if self._scratch is not None:
            self._scratch.cleanup()


def _purpose(asked: Transaction) -> tuple[str, bool]:
    """What a transaction was for, as far as that can be told: the kind of its first key, and whether that is new."""
    if not asked.events:
        return "", False
    event = asked.events[0]
    return event.key.partition("/")[0], event.previous is None
