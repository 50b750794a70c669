"""The embedded store: SQLite in write-ahead mode, durable at each commit, one directory, one process.

`store` runs on the event loop, `decide` says what a transaction comes to, `log` is all the SQL there is, `files` knows
the directory and its errors, `thread` is where blocking work runs.
"""

from homeostat.store.sqlite.store import SqliteStore
from homeostat.store.sqlite.thread import Inline, Runs, WriterThread

__all__ = ["Inline", "Runs", "SqliteStore", "WriterThread"]
