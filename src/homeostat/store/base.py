"""The contract of a store: a revisioned, watchable log of bytes under keys, as etcd taught it.

One global revision counts transactions, starting at 1 for an empty store. A transaction compares the revisions of some
keys and, if all match, writes several keys at once; all of them carry its revision. Reads are consistent at a revision
until that revision is compacted away. Whoever follows the log from a revision sees every later change exactly once, in
order, whole transactions at a time.

Nothing here knows SQL, JSON or Kubernetes. Every backend passes `tests/store/conformance.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import msgspec


class StoreError(Exception):
    """Something is wrong with the store itself. The message says what, where, and what to do."""


class Compacted(StoreError):
    """The asked revision is gone from the log; read again from the present."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"revision {asked} has been compacted; the oldest readable revision is {oldest}")
        self.asked = asked
        self.oldest = oldest


class FutureRevision(StoreError):
    """The asked revision has not happened yet."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(f"revision {asked} is in the future; the store is at {current}")
        self.asked = asked
        self.current = current


class Locked(StoreError):
    """Another process holds the data directory."""


class Corrupt(StoreError):
    """The file is damaged: nothing is served from it, nothing is written to it."""


class Full(StoreError):
    """No space is left: the write was not done; what was acknowledged before is safe."""


class ReadOnly(StoreError):
    """The file system takes no writes: the write was not done; what was acknowledged before is safe."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A key's value at a revision: the one that wrote it (`revision`) and the one that created the key (`created`)."""

    key: str
    value: bytes
    revision: int
    created: int


class Event(msgspec.Struct, gc=False, eq=False, weakref=False):
    """One change of one key. `value` is None when the key was deleted; `previous` is None when it was created.

    What readers have made of it is free for them to keep here: an event is one object, whoever watches, so what was encoded for one is
    there for all. `line` is that in one form (`form`, told as `told`), which is all there is as a rule; `memo` has the others. Thousands of
    events are kept, and the garbage collector looks at none: nothing that is kept here may lead back to the event.
    """

    key: str
    revision: int
    value: bytes | None
    previous: bytes | None
    created: int
    form: Any = None
    told: str = ""
    line: bytes = b""
    memo: Any = None

    def __repr__(self) -> str:
        kind = "deleted" if self.value is None else "created" if self.previous is None else "changed"
        return f"Event({self.key} {kind} @{self.revision})"


class Page(msgspec.Struct, frozen=True):
    """A range as it was at `revision`; `more` says that the limit cut it, `remaining` how many keys follow."""

    entries: list[Entry]
    revision: int
    more: bool = False
    remaining: int = 0


class Put(msgspec.Struct, frozen=True, gc=False):
    """Sets a key to a value."""

    key: str
    value: bytes


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Removes a key; one that does not exist is no error."""

    key: str


class Compare(msgspec.Struct, frozen=True, gc=False):
    """Holds if the key was last written at `revision`; 0 means that the key must not exist."""

    key: str
    revision: int


class Conflict(msgspec.Struct, frozen=True):
    """A comparison did not hold. `current` is what the key holds instead, None where it does not exist."""

    compare: Compare
    current: Entry | None


Deliver = Callable[[Sequence[Event], int], None]
"""Called on the store's event loop right after a commit: the events of one or more transactions, in order, and the
revision reached. Must not block and must not raise."""


class Store(ABC):
    """One store, used from one event loop."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """The last committed revision; 1 in a store that was never written."""

    @property
    @abstractmethod
    def compacted(self) -> int:
        """Reads and watches need a revision of at least this one; 0 where nothing was compacted."""

    @abstractmethod
    async def get(self, key: str, revision: int | None = None) -> Entry | None:
        """The key now, or as it was at a revision. Raises `Compacted` or `FutureRevision`."""

    @abstractmethod
    async def range(
        self, prefix: str, *, after: str = "", revision: int | None = None, limit: int = 0, count: bool = False
    ) -> Page:
        """The keys that begin with `prefix`, in byte order, from the first one greater than `after`.

        `limit` 0 means all. `remaining` is filled where `count` is asked for and the limit cut. A page of a large range
        never blocks the event loop for long. Reading the next page at the first one's revision gives one snapshot.
        """

    @abstractmethod
    async def count(self, prefix: str) -> int:
        """How many keys begin with `prefix` now."""

    @abstractmethod
    async def txn(self, compares: Sequence[Compare], writes: Sequence[Put | Delete]) -> int | Conflict:
        """Writes all if all comparisons hold and gives the new revision once it is durable; else the first that failed.

        Deleting an absent key changes nothing; a transaction that changes nothing takes no revision and gives the
        current one. A key that is empty or written twice is a `ValueError`. Raises `Full` or `StoreError` when it could
        not be made durable: then nothing of it is there.
        """

    @abstractmethod
    def subscribe(self, deliver: Deliver) -> Callable[[], None]:
        """Calls `deliver` after each commit, from now on; gives the function that ends it."""

    @abstractmethod
    async def since(self, prefix: str, revision: int, limit: int = 1000) -> tuple[list[Event], int]:
        """Changes under `prefix` after `revision`, oldest first, and the revision up to which the answer is complete.

        It may stop at about `limit` events but never inside a transaction; ask again from the revision it gave. Events
        that are still in memory are the same objects that `subscribe` delivered. Raises `Compacted` where the log no
        longer reaches back, `FutureRevision` where it has not come yet.
        """

    @abstractmethod
    async def history(self, key: str, limit: int = 100) -> list[Event]:
        """The key's changes that the log still holds, newest first.

        The oldest one has no `previous` where compaction took it.
        """

    @abstractmethod
    async def compact(self, revision: int) -> None:
        """Forgets what was overwritten or deleted at or before `revision`; what is readable at it stays.

        Returns when the space is free; writes and reads go on meanwhile. Asking for less than before does nothing.
        """

    @abstractmethod
    async def close(self) -> None:
        """Finishes the writes under way and lets the data directory go."""
