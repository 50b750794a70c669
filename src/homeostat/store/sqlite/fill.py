"""A new store with given contents: the same keys, values and revisions as somewhere else. Only a file of our own can be made so:
etcd gives its revisions itself."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw

from homeostat.store.base import Entry, StoreError
from homeostat.store.sqlite.files import RESTORING, SCHEMA, DataDirectory, sync
from homeostat.store.sqlite.log import MAX_WRITES, first_id, seal


def fill(path: Path, revision: int, entries: Iterable[Entry]) -> int:
    """Makes the store of a data directory, at `revision`, with these entries; says how many. Nothing before `revision` can be read.

    The directory is made where there is none, and must have no store yet. What is built appears whole or not at all: whatever
    `entries` raises leaves nothing behind. Raises `Locked`, `Full`, `StoreError`.
    """
    place = DataDirectory(path.absolute())
    draft = place.path / RESTORING
    try:
        if place.file.exists():
            raise StoreError(f"{place.path} has a store already: choose a fresh directory, or restore in place")
        with contextlib.ExitStack() as undo:
            for left in (draft, draft.with_name(RESTORING + "-journal")):
                left.unlink(missing_ok=True)
                undo.callback(left.unlink, missing_ok=True)
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL, 0o600))
            connection = apsw.Connection(str(draft))
            undo.callback(connection.close)
            count = _fill(place, connection, revision, entries)
            connection.close()
            draft.replace(place.file)
            sync(place.path)
            undo.pop_all()
        return count
    finally:
        place.release()


def _fill(place: DataDirectory, connection: apsw.Connection, revision: int, entries: Iterable[Entry]) -> int:
    try:
        connection.execute(f"PRAGMA synchronous = FULL; PRAGMA page_size = 4096; BEGIN IMMEDIATE; {SCHEMA}")
        connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?)", _rows(revision, entries))
        count = connection.execute("SELECT count(*) FROM current").get
        connection.execute("UPDATE meta SET value = ? WHERE name IN ('compacted', 'swept')", (revision,))
        connection.execute("COMMIT")
    except apsw.Error as error:
        raise place.explain(error, connection.system_errno) from error
    assert isinstance(count, int)
    return count


def _rows(revision: int, entries: Iterable[Entry]) -> Iterator[tuple[Any, ...]]:
    used: dict[int, int] = {}  # keys that one transaction wrote share its revision, and differ by their place in it
    for entry in entries:
        key, written, created = entry.key, entry.revision, entry.created
        place = used.get(written, 0)
        if not 0 < created <= written <= revision or place >= MAX_WRITES:
            raise StoreError(f"{key!r} cannot have been written at revision {written}: nothing was restored")
        used[written] = place + 1
        id = first_id(written) + place
        yield id, key, created, seal(id, key, created, entry.value), entry.value
