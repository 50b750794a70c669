"""What a transaction comes to: a decision on the newest state, durable or not. No I/O but the look-up handed in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homeostat.store.base import Compare, Conflict, Delete, Entry, Event, Put, StoreError
from homeostat.store.sqlite.log import MAX_WRITES, rows_of


class Transaction:
    """What was asked, what was decided, and who waits for it."""

    __slots__ = ("compares", "done", "events", "outcome", "rows", "size", "waits", "writes")

    def __init__(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> None:
        self.compares = compares
        self.writes = writes
        self.events: list[Event] = []
        self.rows: list[Any] = []
        self.size = 0
        self.outcome: int | Conflict | None = None  # None: nothing to change, so the revision of the moment
        self.waits = False  # it was decided by something that is not durable yet
        self.done: asyncio.Future[int | Conflict] | None = None

    def settle(self) -> None:
        """Tells who waits what it came to."""
        assert self.outcome is not None
        if self.done is not None and not self.done.done():  # a caller may have been cancelled; the write counts
            self.done.set_result(self.outcome)

    def fail(self, error: StoreError) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(type(error)(*error.args))  # one error object must not be raised in many tasks


def decide(
    asked: Transaction, ahead: Mapping[str, Event], committed: Callable[[str], Entry | None], revision: int
) -> None:
    """Compares with the newest state, and makes the events of `revision` if all comparisons hold.

    `ahead` has the newest change of each key that is not durable yet, `committed` looks up all others.
    """
    known: dict[str, Entry | Event | None] = {}
    asked.events, asked.rows, asked.outcome, asked.waits, asked.size = [], [], None, False, 0
    for compare in asked.compares:
        key = compare.key
        current = known[key] = ahead.get(key) or committed(key)
        found = 0 if current is None or current.value is None else current.revision
        if found != compare.revision:
            asked.outcome = Conflict(compare, _entry(current))
            asked.waits = key in ahead
            return
    for write in asked.writes:
        key = write.key
        current = known[key] if key in known else ahead.get(key) or committed(key)
        exists = current is not None and current.value is not None
        previous, created = (current.value, current.created) if current is not None and exists else (None, revision)
        if isinstance(write, Put):
            asked.events.append(Event(key, revision, write.value, previous, created))
            asked.size += len(key) + len(write.value)
        elif exists:
            asked.events.append(Event(key, revision, None, previous, created))
            asked.size += len(key)
        elif key in ahead:
            asked.waits = True
    if asked.events:
        asked.outcome = revision
        asked.rows = rows_of(asked.events)


def check(writes: Sequence[Put | Delete]) -> None:
    """Refuses before anything is queued what would later fail for a whole batch."""
    for write in writes:
        if not write.key:
            raise ValueError("a key must not be empty")
        if not write.key.isascii():
            write.key.encode()  # raises UnicodeEncodeError, a ValueError, for half of a surrogate pair
    if len(writes) > 1 and len({write.key for write in writes}) != len(writes):
        raise ValueError("a transaction writes a key more than once")
    if len(writes) > MAX_WRITES:
        raise ValueError(f"a transaction writes at most {MAX_WRITES} keys")


def _entry(state: Entry | Event | None) -> Entry | None:
    if isinstance(state, Event):
        return None if state.value is None else Entry(state.key, state.value, state.revision, state.created)
    return state
