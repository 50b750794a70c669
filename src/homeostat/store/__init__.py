"""Where objects live: a revisioned, watchable log of bytes under keys.

One global revision counts transactions. A transaction compares the revisions of keys and writes several at once;
whoever reads names a revision and sees one consistent state; whoever follows the log from a revision sees every later
change once, in order. Old revisions are readable until they are compacted away.

`base` is the contract. `SqliteStore` keeps everything in a local directory and is the default. A backend passes the one
suite in `tests/store/conformance.py`, and shares `Feed`, the recent events in memory.

    store = await SqliteStore.open("data")
    revision = await store.txn([Compare("pods/web", 0)], [Put("pods/web", b"{}")])   # an int, or a Conflict
    page = await store.range("pods/", limit=500)
    events, reached = await store.since("pods/", page.revision)
"""

from homeostat.store.base import (
    Compacted,
    Compare,
    Conflict,
    Corrupt,
    Delete,
    Deliver,
    Entry,
    Event,
    Full,
    FutureRevision,
    Locked,
    Page,
    Put,
    ReadOnly,
    Store,
    StoreError,
)
from homeostat.store.feed import Feed
from homeostat.store.sqlite import SqliteStore

__all__ = [
    "Compacted",
    "Compare",
    "Conflict",
    "Corrupt",
    "Delete",
    "Deliver",
    "Entry",
    "Event",
    "Feed",
    "Full",
    "FutureRevision",
    "Locked",
    "Page",
    "Put",
    "ReadOnly",
    "SqliteStore",
    "Store",
    "StoreError",
]
