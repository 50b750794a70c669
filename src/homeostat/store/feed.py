"""Recent events in memory, and who wants to hear of new ones. Every backend publishes here what it committed."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import attrgetter

from homeostat.store.base import Deliver, Event

log = logging.getLogger(__name__)

_revision_of = attrgetter("revision")
_OVERHEAD = 200  # what an Event costs in memory beside its bytes


class Feed:
    """The newest events, bounded by bytes and by number; older ones must be read from the backend's own log.

    It holds every event after `floor`, up to `revision`. What readers put into `Event.memo` is not counted: a reader
    that keeps much there should choose a smaller `max_bytes`.
    """

    def __init__(self, revision: int, max_bytes: int = 8 << 20, max_events: int = 20_000) -> None:
        self.floor = revision
        self.revision = revision
        self._max_bytes = max_bytes
        self._max_events = max_events
        self._events: list[Event] = []
        self._first = 0  # events before it are forgotten; the list is cut now and then, not at each publication
        self._bytes = 0
        self._subscribers: list[Deliver] = []

    def subscribe(self, deliver: Deliver) -> Callable[[], None]:
        """Calls `deliver` at each publication; gives the function that ends it (calling it twice is harmless)."""
        # A new list each time, so that a subscriber may come or go while events are being delivered.
        self._subscribers = [*self._subscribers, deliver]

        def end() -> None:
            self._subscribers = [s for s in self._subscribers if s is not deliver]

        return end

    def publish(self, events: Sequence[Event], revision: int) -> None:
        """Remembers the events of whole transactions and hands them to the subscribers."""
        self._events += events
        self._bytes += sum(map(_size, events))
        self.revision = revision
        self._forget()
        for deliver in self._subscribers:
            try:
                deliver(events, revision)
            except Exception:
                log.exception("a subscriber failed at revision %d; it may have missed events", revision)

    def since(self, prefix: str, revision: int, limit: int) -> tuple[list[Event], int] | None:
        """As `Store.since`, from memory alone; None where memory does not reach back to `revision`."""
        if revision < self.floor:
            return None
        events = self._events
        found: list[Event] = []
        for index in range(bisect_right(events, revision, lo=self._first, key=_revision_of), len(events)):
            event = events[index]
            if len(found) >= limit and event.revision != found[-1].revision:
                return found, event.revision - 1
            if event.key.startswith(prefix):
                found.append(event)
        return found, self.revision

    def _forget(self) -> None:
        events, first = self._events, self._first
        while len(events) - first > self._max_events or self._bytes > self._max_bytes:
            self.floor = events[first].revision
            while first < len(events) and events[first].revision == self.floor:
                self._bytes -= _size(events[first])
                first += 1
        if first > 1000 and first > len(events) // 2:
            del events[:first]
            first = 0
        self._first = first


def _size(event: Event) -> int:
    return _OVERHEAD + len(event.key) + len(event.value or b"") + len(event.previous or b"")
