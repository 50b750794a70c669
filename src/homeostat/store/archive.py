"""What the log forgets and people may want back: values that were overwritten or deleted, kept longer than the log is.

It is a file of its own beside the store, whichever store that is: etcd forgets everything before a revision at once, and a log that
kept some keys longer than others would be another log on each backend. Whoever compacts puts here first what is to stay. A row says
what a key held from one revision (`since`) until the one that changed it (`until`). Marks say which revision each second had reached.

Blocking, and used by one thread at a time; nothing here knows JSON or Kubernetes.
"""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
from xxhash import xxh3_64_intdigest

from homeostat.store.base import StoreError
from homeostat.store.sqlite.log import bounds

FORMAT = 1
THIN_SECONDS = 86_400
"""Marks older than this are kept one a minute."""

_SCHEMA = f"""
CREATE TABLE past (id INTEGER PRIMARY KEY, key TEXT NOT NULL, until INTEGER NOT NULL, since INTEGER NOT NULL,
  revision INTEGER NOT NULL, created INTEGER NOT NULL, gone INTEGER NOT NULL, mark TEXT NOT NULL, seal INTEGER NOT NULL,
  value BLOB NOT NULL);
CREATE UNIQUE INDEX past_by_key ON past (key, until, since);
CREATE INDEX past_by_mark ON past (mark) WHERE mark != '';
CREATE TABLE floors (key TEXT PRIMARY KEY, until INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE marks (second INTEGER PRIMARY KEY, revision INTEGER NOT NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
"""
_ROW = "key, until, since, revision, created, gone, mark, seal, value"
_OF_KEY = f"SELECT {_ROW} FROM past WHERE key = ? AND until > ? ORDER BY until LIMIT 1"
_AT = f"""SELECT {_ROW} FROM past WHERE id IN
  (SELECT (SELECT id FROM past f WHERE f.key = k.key AND f.until > ?1 ORDER BY f.until LIMIT 1)
   FROM (SELECT DISTINCT key FROM past WHERE key >= ?2 AND key < ?3) k) ORDER BY key"""
_FLOOR = "INSERT INTO floors VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET until = max(until, ?2)"
_THIN = """DELETE FROM marks WHERE second < ?1 AND EXISTS
  (SELECT 1 FROM marks later WHERE later.second > marks.second AND later.second / 60 = marks.second / 60)"""


class Past(NamedTuple):
    """What a key held from `since` until `until` (not included), as it was written last, at `revision`.

    `created` is the revision that made the key, `gone` whether it ended by being deleted, `mark` a name to find it by.
    """

    key: str
    until: int
    since: int
    revision: int
    created: int
    gone: bool
    mark: str
    value: bytes


class Archive:
    """One file. `begins` is the revision from which on it knows of every change, `reached` the one up to which."""

    def __init__(self, path: Path) -> None:
        """Opens it, or makes it. Raises `StoreError` where it cannot be used."""
        self.path = path
        try:
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
            self._db = apsw.Connection(str(path))
            self._db.set_busy_timeout(5000)
            self._db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA mmap_size = 0")
            version = self._db.execute("PRAGMA user_version").get
            if version == 0:
                self._db.execute(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT")
            elif version != FORMAT:
                raise StoreError(f"{path} has format {version}, this Homeostat reads {FORMAT}; use a newer Homeostat")
        except (apsw.Error, OSError) as error:
            raise self._explain(error) from error

    def close(self) -> None:
        """Lets the file go."""
        self._db.close()

    # What it knows

    @property
    def begins(self) -> int:
        return self._meta("begins")

    @property
    def reached(self) -> int:
        return self._meta("reached")

    def start_at(self, revision: int) -> None:
        """Knows nothing of the time before `revision`, except what it has."""
        self._write([("INSERT OR REPLACE INTO meta VALUES ('begins', ?1), ('reached', ?1)", (revision,))])

    def cut(self, revision: int) -> None:
        """Forgets what came after a revision: the store went back to it, and what came then never was."""
        self._write([
            ("DELETE FROM past WHERE until > ?", (revision,)),
            ("DELETE FROM floors WHERE until > ?", (revision,)),
            ("DELETE FROM marks WHERE revision > ?", (revision,)),
            ("UPDATE meta SET value = min(value, ?)", (revision,)),
        ])  # fmt: skip

    # Keeping

    def keep(self, rows: Iterable[Past], reached: int) -> None:
        """Adds rows and says how far the log was looked at. Doing it again is harmless. Durable when it returns."""
        insert = f"INSERT OR IGNORE INTO past ({_ROW}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        statements: list[tuple[str, tuple[Any, ...]]] = [
            (insert, (*row[:5], int(row.gone), row.mark, _seal(row), zlib.compress(row.value, 1))) for row in rows
        ]
        statements.append(("INSERT OR REPLACE INTO meta VALUES ('reached', ?)", (reached,)))
        self._write(statements, durable=True)

    def last_until(self, key: str) -> int:
        """The revision of the last change of a key that is here, or was; 0 where none was."""
        found = self._read(
            "SELECT max(until) FROM (SELECT max(until) AS until FROM past WHERE key = ?1 UNION ALL SELECT until FROM floors WHERE key = ?1)",
            (key,),
        )
        return found[0][0] or 0

    def drop(self, prefix: str, before: int, most: int) -> int:
        """Forgets under `prefix` what ended at or before a revision, and all but the newest `most` of each key; says how many went.

        The newest of a key that was not deleted stays, however old: the way back that everything has.
        """
        low, high = bounds(prefix)
        ranked = """SELECT id, key, until, gone, row_number() OVER (PARTITION BY key ORDER BY until DESC) AS place
          FROM past WHERE key >= ?1 AND key < ?2"""
        rows = self._read(
            f"SELECT id, key, until FROM ({ranked}) WHERE place > ?4 OR (until <= ?3 AND (place > 1 OR gone))",
            (low, high, before, max(1, most)),
        )
        statements: list[tuple[str, tuple[Any, ...]]] = [
            ("DELETE FROM floors WHERE key > ? AND key < ? AND until <= ?", (low, high, before)),
            (_FLOOR, (prefix, before)),
        ]
        for id, key, until in rows:
            statements.append(("DELETE FROM past WHERE id = ?", (id,)))
            if until > before:  # what is older is told by the floor of the whole
                statements.append((_FLOOR, (key, until)))
        self._write(statements)
        return len(rows)

    def forget(self, prefix: str) -> None:
        """Forgets all that is under `prefix`, the newest too."""
        low, high = bounds(prefix)
        self._write([
            ("DELETE FROM past WHERE key >= ? AND key < ?", (low, high)),
            ("DELETE FROM floors WHERE key > ? AND key < ?", (low, high)),
            (_FLOOR, (prefix, self.reached)),
        ])  # fmt: skip

    # Reading

    def at(self, key: str, revision: int) -> Past | None:
        """The first that ended after a revision: it held then if its `since` is no later."""
        rows = self._read(_OF_KEY, (key, revision))
        return self._past(rows[0]) if rows else None

    def all_at(self, prefix: str, revision: int) -> Iterator[Past]:
        """The same for each key under `prefix`, in order."""
        low, high = bounds(prefix)
        return map(self._past, self._read(_AT, (revision, low, high)))

    def floor(self, key: str) -> int:
        """Of this key, or of all under this prefix, some was dropped that ended up to this revision; 0 where nothing was."""
        rows = self._read("SELECT until FROM floors WHERE key = ?", (key,))
        return rows[0][0] if rows else 0

    def dropped(self, prefix: str, revision: int) -> str:
        """A key under `prefix` of which what held at `revision` was dropped; empty where there is none."""
        low, high = bounds(prefix)
        rows = self._read("SELECT key FROM floors WHERE key >= ? AND key < ? AND until > ? LIMIT 1", (low, high, revision))
        return rows[0][0] if rows else ""

    def history(self, key: str, before: int, limit: int) -> list[Past]:
        """What a key held and that ended at or before a revision, newest first."""
        sql = f"SELECT {_ROW} FROM past WHERE key = ? AND until <= ? ORDER BY until DESC LIMIT ?"
        return [self._past(row) for row in self._read(sql, (key, before, limit))]

    def marked(self, mark: str) -> list[Past]:
        """Everything that carries a mark."""
        return [self._past(row) for row in self._read(f"SELECT {_ROW} FROM past WHERE mark = ? ORDER BY key, until", (mark,))]

    def lately_marked(self, limit: int) -> list[tuple[str, str, int]]:
        """Mark, key and `since` of what carries a mark, what was archived last first."""
        sql = "SELECT mark, key, since FROM past NOT INDEXED WHERE mark != '' ORDER BY id DESC LIMIT ?"  # the index is by mark: no help
        return [(mark, key, since) for mark, key, since in self._read(sql, (limit,))]

    def kinds(self) -> list[str]:
        """What stands before the first slash of its keys."""
        return [row[0] for row in self._read("SELECT DISTINCT substr(key, 1, instr(key, '/') - 1) FROM past")]

    def size(self) -> tuple[int, int]:
        """How many rows there are, and how many bytes the file has."""
        return self._read("SELECT count(*) FROM past")[0][0], self.path.stat().st_size

    # Time

    def mark(self, marks: Sequence[tuple[int, int]]) -> None:
        """Says which revision had been reached at the end of each second."""
        self._write([("INSERT OR REPLACE INTO marks VALUES (?, ?)", mark) for mark in marks])

    def thin(self, now: float, oldest: float) -> None:
        """Lets go of marks that nobody needs: before `oldest`, and all but one a minute of those that are a day old."""
        self._write([("DELETE FROM marks WHERE second < ?", (int(oldest),)), (_THIN, (int(now) - THIN_SECONDS,))])

    def revision_at(self, second: float) -> int:
        """The revision at the end of a second; 0 where that is before all that is known."""
        rows = self._read("SELECT revision FROM marks WHERE second <= ? ORDER BY second DESC LIMIT 1", (int(second),))
        return rows[0][0] if rows else 0

    def time_of(self, revision: int) -> int:
        """The second in which a revision was reached; 0 where that is not known."""
        rows = self._read("SELECT second FROM marks WHERE revision >= ? ORDER BY second LIMIT 1", (revision,))
        first = self._read("SELECT min(revision) FROM marks")[0][0]
        return rows[0][0] if rows and first <= revision else 0

    # SQLite

    def _meta(self, name: str) -> int:
        rows = self._read("SELECT value FROM meta WHERE name = ?", (name,))
        return rows[0][0] if rows else 0

    def _past(self, row: tuple[Any, ...]) -> Past:
        try:
            key, until, since, revision, created, gone, mark, _, value = row
            found = Past(key, until, since, revision, created, bool(gone), mark, zlib.decompress(value))
            if _seal(found) == row[7]:
                return found
        except (zlib.error, TypeError, AttributeError):
            pass
        raise StoreError(
            f"{self.path} is damaged: what {row[0]!r} held before revision {row[1]} is not what was written. "
            f"The store itself is not touched by that; move the file away to begin a new history"
        )

    def _read(self, sql: str, bindings: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._db.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise self._explain(error) from error

    def _write(self, statements: Iterable[tuple[str, tuple[Any, ...]]], durable: bool = False) -> None:
        try:
            # What is taken out of the store next must be on the disk first.
            self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}; BEGIN IMMEDIATE")
            for sql, bindings in statements:
                self._db.execute(sql, bindings)
            self._db.execute("COMMIT")
        except apsw.Error as error:
            system_errno = self._db.system_errno
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise self._explain(error, system_errno) from error

    def _explain(self, error: Exception, system_errno: int = 0) -> StoreError:
        if isinstance(error, apsw.FullError):
            return StoreError(f"no space is left for the history in {self.path}: nothing of it is lost. Free some space")
        if system_errno == errno.EROFS:
            return StoreError(f"the file system of the history in {self.path} is read-only: nothing of it is lost")
        return StoreError(f"the history in {self.path} cannot be used: {error}; move it away to begin a new one")


def _seal(row: Past) -> int:
    text = "\0".join((row.key, row.mark)).encode()
    facts = f"{row.until} {row.since} {row.revision} {row.created} {int(row.gone)}".encode()
    return xxh3_64_intdigest(row.value, xxh3_64_intdigest(text, xxh3_64_intdigest(facts))) - (1 << 63)
