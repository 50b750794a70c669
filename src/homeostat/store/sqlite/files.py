"""The data directory: who holds it, whether its file is ours and sound, and what an error of SQLite means."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import apsw

from homeostat.store.base import Corrupt, Full, Locked, ReadOnly, StoreError

APPLICATION = 0x486F6D65  # "Home", in the header of every file of ours
FORMAT = 1
RESTORING = "store.restoring"
"""What a restore builds before it appears whole."""

_MAGIC = b"SQLite format 3\0"
_SMALL = 1 << 20  # a file up to this size is checked whole when it is opened: that takes a few milliseconds
_LONGEST = 480  # bytes of the directory's path: SQLite opens no file whose own is longer than about 500
_REFUSED = {errno.EACCES, errno.EPERM}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

SCHEMA = f"""
CREATE TABLE log
  (id INTEGER PRIMARY KEY, key TEXT NOT NULL, created INTEGER NOT NULL, seal INTEGER NOT NULL, value BLOB);
CREATE INDEX log_by_key ON log (key, id);
CREATE TABLE current (key TEXT PRIMARY KEY, id INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TRIGGER log_put AFTER INSERT ON log WHEN new.value IS NOT NULL
  BEGIN INSERT OR REPLACE INTO current VALUES (new.key, new.id); END;
CREATE TRIGGER log_delete AFTER INSERT ON log WHEN new.value IS NULL
  BEGIN DELETE FROM current WHERE key = new.key; END;
INSERT INTO meta VALUES ('compacted', 0), ('swept', 0);
PRAGMA user_version = {FORMAT};
PRAGMA application_id = {APPLICATION};
"""


class DataDirectory:
    """A directory held by this process alone, with the database in it.

    Once damage has been seen, `damage` is set and stays: nothing more is read from or written to the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "store.db"
        self.damage: Corrupt | None = None
        self._lock = _hold(path)

    def release(self) -> None:
        """Lets another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def connect(self, *, cache: int, durable: bool) -> apsw.Connection:
        """A connection in WAL mode with a page cache of at most `cache` bytes; nothing is checkpointed by itself."""
        try:
            connection = apsw.Connection(str(self.file))
            connection.set_busy_timeout(5000)
            connection.execute(
                # With cell_size_check a damaged page is not believed; without mmap a cut file cannot kill the process.
                f"PRAGMA cache_size = -{cache >> 10}; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0;"
                f"PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF;"
                f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}; PRAGMA wal_autocheckpoint = 0;"
                f"PRAGMA journal_size_limit = {64 << 20}"
            )
            if connection.readonly("main"):  # SQLite is content with that; we would find out at the first write
                raise self.explain(apsw.ReadOnlyError("it is read-only"))
            return connection
        except apsw.Error as error:
            raise self.explain(error) from error

    def prepare(self, connection: apsw.Connection) -> None:
        """Refuses a file that is damaged, foreign, or of a newer format."""
        try:
            if _pragma(connection, "application_id") != APPLICATION:
                raise self.damaged("it is a database of another program")
            version = _pragma(connection, "user_version")
            if version > FORMAT:
                raise StoreError(
                    f"{self.file} has format {version}, this Homeostat reads up to {FORMAT}; use a newer Homeostat"
                )
            connection.execute("PRAGMA journal_mode = WAL")
            if os.path.getsize(self.file) <= _SMALL:
                found = connection.execute("PRAGMA quick_check(1)").get
                if found != "ok":
                    raise self.damaged(str(found).replace("\n", " "))
        except apsw.Error as error:
            raise self.explain(error, connection.system_errno) from error

    def inspect(self, *, durable: bool) -> None:
        """Looks at the file's first bytes before SQLite does, so that nothing foreign or broken is ever touched.

        Where there is no file, it makes one.
        """
        wal = self.file.with_name(self.file.name + "-wal")
        wal_size = wal.stat().st_size if wal.exists() else 0
        if not self.file.exists():
            if wal_size:
                raise self.damaged(f"it is gone, yet {wal.name} holds data")
            if (self.path / RESTORING).exists():
                raise StoreError(f"a restore into {self.path} was cut short: do it again, or remove {self.path / RESTORING}")
            self._create(durable)
            return
        with self.file.open("rb") as file:
            header = file.read(100)
        if not header:
            raise self.damaged("it is empty")
        if header[:16] != _MAGIC or len(header) < 100:
            raise self.damaged("it is not a database")
        page = int.from_bytes(header[16:18], "big")
        pages = int.from_bytes(header[28:32], "big")
        if not wal_size and pages * (65536 if page == 1 else page) > self.file.stat().st_size:
            raise self.damaged("its end is missing")

    def _create(self, durable: bool) -> None:
        """A new file appears whole: so one that is empty or half is damage, and never taken for a new one."""
        draft = self.file.with_name("store.new")
        for left in (draft, draft.with_name("store.new-journal")):  # by a start that was cut short
            left.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL, 0o600))
        connection = apsw.Connection(str(draft))
        try:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}; PRAGMA page_size = 4096")
            connection.execute(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT")
        except apsw.Error as error:
            raise self.explain(error, connection.system_errno) from error
        finally:
            connection.close()
        draft.replace(self.file)
        if durable:
            sync(self.path)

    def disconnect(self, connection: apsw.Connection) -> None:
        """Closes a connection; the last one tidies the write-ahead log away, unless the file is damaged."""
        try:
            if self.damage is not None:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.close()
        except apsw.Error as error:
            raise self.explain(error) from error

    def damaged(self, what: str) -> Corrupt:
        """The error to raise for damage; from then on every use of the store raises it."""
        self.damage = Corrupt(
            f"{self.file} is damaged: {what}. Nothing was deleted or overwritten. Move {self.path} away and "
            f"restore a copy, or recover what can be read with `sqlite3 {self.file} .recover`"
        )
        return self.damage

    def explain(self, error: apsw.Error, system_errno: int = 0) -> StoreError:
        """What an error of SQLite means."""
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return self.damaged(str(error))
        if isinstance(error, apsw.FullError) or system_errno in _NO_SPACE:
            return Full(
                f"no space is left for {self.path}: the write was not done, what was acknowledged is safe. "
                f"Free some space; no restart is needed"
            )
        if system_errno == errno.EROFS:
            return ReadOnly(
                f"the file system of {self.path} is read-only: the write was not done, what was acknowledged is safe. "
                f"Look in the system's log for why; once it is writable again, no restart is needed"
            )
        if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError | apsw.AuthError):
            return StoreError(f"{self.file} cannot be opened for writing ({error}); check its owner and permissions")
        reason = f"{error}: {os.strerror(system_errno)}" if system_errno else str(error)
        return StoreError(f"{self.file} could not be used: {reason}")


def _pragma(connection: apsw.Connection, name: str) -> int:
    value = connection.execute(f"PRAGMA {name}").get
    assert isinstance(value, int)
    return value


def sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _hold(path: Path) -> int:
    """Takes the directory's lock. It dies with the process, so a file left behind does not matter."""
    if len(os.fsencode(path)) > _LONGEST:
        raise StoreError(f"the data directory {path} cannot be used: its path is longer than {_LONGEST} bytes")
    try:
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync(path.parent)  # SQLite syncs the directory of its files, not the directory's own name
        lock = os.open(path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise Full(f"no space is left for {path}: free some and start again") from error
        reason = "it is a file" if error.errno == errno.EEXIST else error.strerror
        check = "check its owner and permissions, or " if error.errno in _REFUSED else ""
        raise StoreError(f"the data directory {path} cannot be used: {reason}; {check}use another") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise StoreError(f"the data directory {path} cannot be locked: {error.strerror}") from error
        who = f"this process (pid {holder})" if holder == str(os.getpid()) else f"process {holder or 'unknown'}"
        raise Locked(f"{path} is in use by {who}: stop it, or use another data directory") from None
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # a full disk: the lock holds all the same, only its holder's name is missing
    return lock
