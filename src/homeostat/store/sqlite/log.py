"""The SQL: how a revisioned log lies in tables, and how it is read and written. No asyncio, no threads.

`log` has one row per change. Its id is the revision and the position in the transaction, so the table itself maps a
revision to its changes; the index (key, id) finds a key as of any revision. `current` names the newest row of each
living key; triggers keep it, so one INSERT is the whole write. A row's seal is a checksum over all of it: SQLite
notices damage to its own structure, the seal notices damage to what we stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apsw
from xxhash import xxh3_64_intdigest

from homeostat.store.base import Entry, Event
from homeostat.store.sqlite.files import DataDirectory

POSITION_BITS = 20
MAX_WRITES = 1 << POSITION_BITS
"""Writes in one transaction."""

_COLUMNS = 5
_ALL_BITS = (1 << 64) - 1
_MOST_ROWS = 256
_CHUNK_BYTES = 4 << 20
_KEYS_AT_ONCE = 10_000

Row = tuple[Any, ...]
"""id, key, created, seal, value: an int, a str, two ints, and bytes or None, unless the file is damaged."""

# LEFT, and the key from `current`: a row that is missing or is another key's fails its seal instead of going unnoticed.
_GET = "SELECT l.id, c.key, l.created, l.seal, l.value FROM current c LEFT JOIN log l ON l.id = c.id WHERE c.key = ?"
_GET_AT = "SELECT id, key, created, seal, value FROM log WHERE key = ? AND id < ? ORDER BY id DESC LIMIT 1"
_KEYS = "SELECT key FROM current WHERE key > ? ORDER BY key LIMIT ?"
_LIVE = """SELECT l.id, c.key, l.created, l.seal, l.value FROM current c LEFT JOIN log l ON l.id = c.id
  WHERE c.key >= ? AND c.key < ? ORDER BY c.key LIMIT ?"""
_AS_OF = """SELECT l.id, l.key, l.created, l.seal, l.value FROM
  (SELECT key, max(id) AS id FROM log INDEXED BY log_by_key
    WHERE key >= ? AND key < ? AND id < ? GROUP BY key ORDER BY key LIMIT ?) v
  CROSS JOIN log l ON l.id = v.id ORDER BY v.key"""
_COUNT_LIVE = """SELECT count(*), count(*), max(key) FROM
  (SELECT key FROM current WHERE key >= ? AND key < ? ORDER BY key LIMIT ?)"""
_COUNT_AS_OF = f"SELECT count(*), coalesce(sum(value IS NOT NULL), 0), max(key) FROM ({_AS_OF})"
_SCAN = "SELECT count(*), max(id) FROM (SELECT id FROM log WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)"
# The plus keeps SQLite on the order of ids: what it reads is bounded by the ids, not by the keys.
_CHANGES = """SELECT l.id, l.key, l.created, l.seal, l.value, p.id, p.key, p.created, p.seal, p.value
  FROM log l LEFT JOIN log p ON p.id = (SELECT max(id) FROM log WHERE key = l.key AND id < l.id)
  WHERE l.id >= ? AND l.id < ? AND +l.key >= ? AND +l.key < ? ORDER BY l.id"""
_HISTORY = "SELECT id, key, created, seal, value FROM log WHERE key = ? ORDER BY id DESC LIMIT ?"
_OVERWRITTEN = """DELETE FROM log WHERE id IN
  (SELECT (SELECT max(p.id) FROM log p WHERE p.key = r.key AND p.id < r.id) FROM log r WHERE r.id >= ? AND r.id < ?)"""
_DELETED = "DELETE FROM log WHERE id >= ? AND id < ? AND value IS NULL"


def first_id(revision: int) -> int:
    """The smallest id of a revision."""
    return revision << POSITION_BITS


def bounds(prefix: str, after: str = "") -> tuple[str, str | bytes]:
    """The first key to look at, and the first one beyond `prefix`, in byte order (which is that of code points)."""
    start = max(prefix, after + "\0") if after else prefix
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return start, b""  # any BLOB sorts after every TEXT
    last = ord(head[-1]) + 1
    return start, head[:-1] + chr(0xE000 if last == 0xD800 else last)


def seal(id: int, key: str, created: int, value: bytes | None) -> int:
    """A signed 64-bit checksum of a row."""
    if value is None:
        return xxh3_64_intdigest(key.encode(), id ^ created) - (1 << 63)
    return xxh3_64_intdigest(value, xxh3_64_intdigest(key.encode(), id ^ ~created & _ALL_BITS)) - (1 << 63)


def rows_of(events: Sequence[Event]) -> list[Any]:
    """One transaction's events as `Writer.append` wants them: flat, ready to bind."""
    flat: list[Any] = []
    for id, event in enumerate(events, first_id(events[0].revision)):
        key, created, value = event.key, event.created, event.value
        flat += (id, key, created, seal(id, key, created, value), value)
    return flat


class Reader:
    """Reads through one connection, used by one thread. Every row is checked against its seal."""

    def __init__(self, place: DataDirectory, connection: apsw.Connection) -> None:
        self._place = place
        self._connection = connection
        self._cursor = connection.cursor()

    def pin(self) -> None:
        """Reads see the file as it is now until `unpin`, whatever is committed meanwhile."""
        self._query("BEGIN")
        self._query("SELECT value FROM meta WHERE name = 'compacted'")  # the snapshot is taken by the first read

    def unpin(self) -> None:
        """Reads see what is committed. Never fails: it ends a transaction that wrote nothing."""
        if self._connection.in_transaction:
            self._cursor.execute("ROLLBACK")

    def state(self) -> tuple[int, int, int]:
        """The revision reached, the revision compacted to, and how far its sweep has come (a revision)."""
        newest = self._query("SELECT max(id) FROM log")[0][0] or 0
        meta = dict(self._query("SELECT name, value FROM meta"))
        # The newest row may be a deletion that was compacted away: a revision never goes back.
        return max(newest >> POSITION_BITS, meta["compacted"], 1), meta["compacted"], meta["swept"]

    def keys(self) -> Iterator[str]:
        """Every living key, in order."""
        key = ""
        while rows := self._query(_KEYS, (key, _KEYS_AT_ONCE)):
            for (key,) in rows:
                yield key

    def get(self, key: str) -> Entry | None:
        rows = self._query(_GET, (key,))
        return self._entry(rows[0]) if rows else None

    def get_at(self, key: str, revision: int) -> Entry | None:
        rows = self._query(_GET_AT, (key, first_id(revision + 1)))
        return self._entry(rows[0]) if rows else None

    def live(self, start: str, end: str | bytes, limit: int) -> tuple[list[Entry], str | None]:
        """Keys from `start` to before `end` as they are now, and where to go on (None: that was all)."""
        return self._entries(_LIVE, (start, end, limit), limit)

    def as_of(self, start: str, end: str | bytes, revision: int, limit: int) -> tuple[list[Entry], str | None]:
        """The same as of a revision; keys that did not exist then count toward `limit`."""
        return self._entries(_AS_OF, (start, end, first_id(revision + 1), limit), limit)

    def count(self, start: str, end: str | bytes, revision: int | None, limit: int) -> tuple[int, str | None]:
        """How many keys there are among the next `limit` ones, and where to go on."""
        if revision is None:
            seen, found, last = self._query(_COUNT_LIVE, (start, end, limit))[0]
        else:
            seen, found, last = self._query(_COUNT_AS_OF, (start, end, first_id(revision + 1), limit))[0]
        return found, last + "\0" if seen == limit else None

    def changes(self, prefix: str, after: int, upto: int, limit: int) -> tuple[list[Event], int]:
        """Events after one revision up to another, and the revision reached after looking at about `limit` rows."""
        low, high, reached = first_id(after + 1), first_id(upto + 1), upto
        seen, last = self._query(_SCAN, (low, high, limit))[0]
        if seen == limit:
            reached = last >> POSITION_BITS
            high = first_id(reached + 1)
        rows = self._query(_CHANGES, (low, high, *bounds(prefix)))
        return [self._event(row[:_COLUMNS], row[_COLUMNS:]) for row in rows], reached

    def history(self, key: str, limit: int) -> list[Event]:
        rows = self._query(_HISTORY, (key, limit + 1))
        older: list[Any] = [*rows[1:], (None,)]
        return [self._event(row, before) for row, before in zip(rows[:limit], older, strict=False)]

    def close(self) -> None:
        self._place.disconnect(self._connection)

    def _query(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        if self._place.damage is not None:
            raise self._place.damage
        try:
            return self._cursor.execute(sql, bindings).fetchall()
        except UnicodeDecodeError as error:
            raise self._place.damaged("a text in it is not UTF-8") from error
        except apsw.Error as error:
            raise self._place.explain(error, self._connection.system_errno) from error

    def _entries(self, sql: str, bindings: tuple[Any, ...], limit: int) -> tuple[list[Entry], str | None]:
        if self._place.damage is not None:
            raise self._place.damage
        found: list[Entry] = []
        seen = size = 0
        key = ""
        try:
            for row in self._cursor.execute(sql, bindings):
                id, key, created, _, value = self._sound(row)
                seen += 1
                if value is not None:
                    found.append(Entry(key, value, id >> POSITION_BITS, created))
                    size += len(value)
                    if size > _CHUNK_BYTES:  # `limit` bounds the rows; large values are bounded here
                        return found, key + "\0"
        except UnicodeDecodeError as error:
            raise self._place.damaged("a text in it is not UTF-8") from error
        except apsw.Error as error:
            raise self._place.explain(error, self._connection.system_errno) from error
        return found, key + "\0" if seen == limit else None

    def _entry(self, row: Row) -> Entry | None:
        id, key, created, _, value = self._sound(row)
        return None if value is None else Entry(key, value, id >> POSITION_BITS, created)

    def _event(self, row: Row, before: Row) -> Event:
        id, key, created, _, value = self._sound(row)
        previous = self._sound(before)[4] if before[0] is not None else None
        return Event(key, id >> POSITION_BITS, value, previous, created)

    def _sound(self, row: Row) -> Row:
        """The row, if it is what was written."""
        try:
            id, key, created, sealed, value = row
            if seal(id, key, created, value) == sealed:
                return row
        except (TypeError, AttributeError, ValueError, OverflowError):
            pass  # damage can make a column any type
        where = f"at revision {row[0] >> POSITION_BITS}" if isinstance(row[0], int) else "in its newest revision"
        raise self._place.damaged(f"the value of {row[1]!r} {where} is not what was written")


class Writer:
    """Writes through one connection, used by one thread. Each method is durable when it returns, or did nothing."""

    def __init__(self, place: DataDirectory, connection: apsw.Connection) -> None:
        self._place = place
        self._connection = connection
        self._flushed = 0
        self.unflushed = 0
        """Pages in the write-ahead log that the database file does not have yet."""

    def append(self, rows: list[Any]) -> None:
        """Writes rows (flat, as `rows_of` gives them) in one commit.

        Each call into SQLite lets go of Python's lock and has to win it back from a busy event loop, which can take
        milliseconds. So a batch is one statement that commits by itself: a few texts, each twice as long as the one
        before, the unused places filled with NULL.
        """
        statements = [rows[i : i + _MOST_ROWS * _COLUMNS] for i in range(0, len(rows), _MOST_ROWS * _COLUMNS)]
        self._commit((_insert(chunk) for chunk in statements), explicit=len(statements) > 1)

    def mark_compacted(self, revision: int) -> None:
        """From now on, also after a restart, revisions before this one are not readable."""
        self._commit([("UPDATE meta SET value = ? WHERE name = 'compacted'", (revision,))])

    def sweep(self, swept: int, compacted: int, limit: int) -> int:
        """Deletes, of about `limit` changes, what they overwrote or deleted; gives the revision swept to.

        Changes are taken in order, so all but the newest older row of a key is gone already when a change is looked at.
        """
        low, high, reached = first_id(swept + 1), first_id(compacted + 1), compacted
        seen, last = self._query(_SCAN, (low, high, limit))[0]
        if seen == limit:
            reached = last >> POSITION_BITS
            high = first_id(reached + 1)
        mark = ("UPDATE meta SET value = ? WHERE name = 'swept'", (reached,))
        self._commit([(_OVERWRITTEN, (low, high)), (_DELETED, (low, high)), mark], explicit=True)
        return reached

    def checkpoint(self) -> None:
        """Moves the write-ahead log into the database file, so that the log starts again from its beginning."""
        try:
            self._flushed, self.unflushed = self._written(), 0  # also if it fails: tried again after as much more
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            raise self._place.explain(error, self._connection.system_errno) from error

    def close(self) -> None:
        self._place.disconnect(self._connection)

    def _query(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise self._place.explain(error, self._connection.system_errno) from error

    def _written(self) -> int:
        return self._connection.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]

    def _commit(self, statements: Iterable[tuple[str, Sequence[Any]]], explicit: bool = False) -> None:
        if self._place.damage is not None:
            raise self._place.damage
        connection = self._connection
        try:
            if explicit:
                connection.execute("BEGIN IMMEDIATE")
            for sql, bindings in statements:
                connection.execute(sql, bindings)
            if explicit:
                connection.execute("COMMIT")
            self.unflushed = self._written() - self._flushed
        except apsw.Error as error:
            system_errno = connection.system_errno
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise self._place.explain(error, system_errno) from error


def _insert(rows: list[Any]) -> tuple[str, list[Any]]:
    count = len(rows) // _COLUMNS
    places = 1 << (count - 1).bit_length()
    if places > count:
        rows = rows + [None] * ((places - count) * _COLUMNS)
    return _INSERTS[places], rows


_INSERTS = {
    places: "INSERT INTO log SELECT * FROM (VALUES "
    + ",".join(["(?,?,?,?,?)"] * places)
    + ") WHERE column1 IS NOT NULL"
    for places in (1 << n for n in range(_MOST_ROWS.bit_length()))
}
