"""What was read or written lately, as it is committed: most keys that are asked for were asked for a moment ago."""

from __future__ import annotations

from homeostat.store.base import Entry, Event

BYTES = 24 << 20
"""Of all that is kept together."""
OVERHEAD = 256
"""Bytes of an entry beside its value; of a key that does not exist, all."""
LARGEST = 16 << 10
"""Bytes of a value that is kept; a larger one is read from the file each time."""
UNKNOWN = Entry("", b"", 0, 0)
"""Stands for a key of which nothing is known."""


class Recent:
    """The committed state of the keys that were last read from the file, or written. That a key does not exist is worth knowing too."""

    __slots__ = ("_entries", "_size")

    def __init__(self) -> None:
        self._entries: dict[str, Entry | None] = {}
        self._size = 0

    def get(self, key: str) -> Entry | None:
        """The entry of a key, None where the key does not exist, `UNKNOWN` where nothing is known of it."""
        return self._entries.get(key, UNKNOWN)

    def keep(self, key: str, entry: Entry | None) -> None:
        """What the file says of a key."""
        entries, before = self._entries, self._entries.pop(key, UNKNOWN)
        if before is not UNKNOWN:
            self._size -= _size(before)
        size = _size(entry)
        if size > LARGEST + OVERHEAD:
            return
        entries[key] = entry
        self._size += size
        while self._size > BYTES:
            self._size -= _size(entries.pop(next(iter(entries))))

    def committed(self, event: Event) -> None:
        """A change of a key is durable."""
        value = event.value
        self.keep(event.key, None if value is None else Entry(event.key, value, event.revision, event.created))


def _size(entry: Entry | None) -> int:
    return OVERHEAD if entry is None else len(entry.value) + OVERHEAD
