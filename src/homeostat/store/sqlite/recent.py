"""What was read or written lately, as it is committed: most keys that are asked for were asked for a moment ago."""

from __future__ import annotations

from homeostat.store.base import Entry, Event

KEYS = 8192
LARGEST = 16 << 10
"""Bytes of a value that is kept; a larger one is read from the file each time."""
UNKNOWN = Entry("", b"", 0, 0)
"""Stands for a key of which nothing is known."""


class Recent:
    """The committed state of the keys that were last new to it. That a key does not exist is worth knowing too."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, Entry | None] = {}

    def get(self, key: str) -> Entry | None:
        """The entry of a key, None where the key does not exist, `UNKNOWN` where nothing is known of it."""
        return self._entries.get(key, UNKNOWN)

    def keep(self, key: str, entry: Entry | None) -> None:
        """What the file says of a key."""
        if entry is not None and len(entry.value) > LARGEST:
            self._entries.pop(key, None)
            return
        if len(self._entries) >= KEYS and key not in self._entries:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = entry

    def committed(self, event: Event) -> None:
        """A change of a key is durable."""
        value = event.value
        self.keep(event.key, None if value is None else Entry(event.key, value, event.revision, event.created))
