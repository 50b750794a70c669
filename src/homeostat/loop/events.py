"""Kubernetes Events, as far as they can be decided without I/O: what is the same event again, and what is too much.

As client-go's recorder does it: the same event again counts up the one there is; many that differ only in their message become one;
and an object about which there is more than a burst is heard of only every few minutes.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from homeostat.model.clock import format_time

COMPONENT = "homeostat"
"""Who reports, in `kubectl describe` and `kubectl events`."""
BURST, REFILL_SECONDS = 25, 300.0
"""So many events about one object at once; then one in so many seconds."""
SIMILAR, SIMILAR_SECONDS = 10, 600.0
"""More than so many events within the time that differ only in their message are one."""
REMEMBERED = 4096
"""Objects and events that are remembered; of more, the latest."""
LONGEST_MESSAGE = 1024
"""Bytes of a message, which is what the API takes."""
COMBINED = "(combined from similar events): "

_CREDENTIALS = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_SECRETS = re.compile(
    r"(?i)\b((?:authorization|password|passwd|secret|token|api[-_]?key)\"?\s*[=:]\s*\"?(?:(?:bearer|basic)\s+)?|(?:bearer|basic)\s+)"
    r"[^\s\"',;&]{6,}"
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class About(NamedTuple):
    """The object that an event is about. `namespace` is empty for one of the cluster."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def to_reference(self) -> dict[str, str]:
        """As `involvedObject` has it."""
        shown = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name, "uid": self.uid}
        return shown | ({"namespace": self.namespace} if self.namespace else {})


class Notice(NamedTuple):
    """Something that a person would want to be told about an object. `reason` is one word in CamelCase."""

    about: About
    reason: str
    message: str
    warning: bool = False


class _Seen(msgspec.Struct):
    """An event that was written: under which name, and how often it came."""

    name: str = ""
    count: int = 0


class Write(NamedTuple):
    """What to write of a notice: a new Event; or, where it came `again`, what changes in the one of this name."""

    name: str
    namespace: str
    event: dict[str, Any]
    notice: Notice
    again: _Seen | None = None


@dataclass(slots=True)
class Bucket:
    """Lets a burst through, and then one in `every` seconds."""

    burst: float
    every: float
    left: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.left = self.burst

    def take(self, now: float) -> bool:
        """Whether one more may pass now (seconds, on any clock that goes forward)."""
        if self.at:
            self.left = min(self.burst, self.left + max(0.0, now - self.at) / self.every)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


class Recent(Generic[K, V]):
    """What was used last, by key, up to a limit."""

    def __init__(self, make: Callable[[], V], most: int = REMEMBERED) -> None:
        self._make = make
        self._most = most
        self._known: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: K) -> V:
        """The one of the key, made where there is none."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make()
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
        return found


class _Alike(msgspec.Struct):
    """Messages of events that are otherwise the same."""

    since: float = 0.0
    messages: set[str] = msgspec.field(default_factory=set)


class Correlator:
    """Says what to write of each notice. Call it in the order in which they came."""

    def __init__(self) -> None:
        self._buckets: Recent[About, Bucket] = Recent(lambda: Bucket(BURST, REFILL_SECONDS))
        self._alike: Recent[tuple[About, str, bool], _Alike] = Recent(_Alike)
        self._seen: Recent[Notice, _Seen] = Recent(_Seen)
        self._last = 0

    def write(self, notice: Notice, now: float) -> Write | None:
        """The write for this notice at this time (wall seconds); None where there has been enough about its object."""
        notice = notice._replace(message=fitting(masked(notice.message)))
        key = self._key(notice, now)
        if key is not notice:
            notice = notice._replace(message=fitting(COMBINED + notice.message))
        known = self._seen.get(key)
        known.count += 1  # those that are not written count too: the next that is says them all
        if not self._buckets.get(notice.about).take(now):
            return None
        if not known.name:
            return self._new(notice, known, now)
        change = {"count": known.count, "lastTimestamp": format_time(now), "message": notice.message}
        return Write(known.name, namespace_of(notice.about), change, notice, known)

    def anew(self, lost: Write, now: float) -> Write:
        """The write where the event that was to be counted up is gone: a server keeps them for an hour."""
        assert lost.again is not None
        lost.again.count = 1
        return self._new(lost.notice, lost.again, now)

    def _new(self, notice: Notice, known: _Seen, now: float) -> Write:
        self._last = max(self._last + 1, int(now * 1e6))  # two within a microsecond have two names
        known.name, at = f"{notice.about.name[:230]}.{self._last:x}", format_time(now)
        namespace = namespace_of(notice.about)
        event = {
            "metadata": {"name": known.name, "namespace": namespace},
            "involvedObject": notice.about.to_reference(),
            "type": "Warning" if notice.warning else "Normal",
            "reason": notice.reason,
            "message": notice.message,
            "count": known.count,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
        }
        return Write(known.name, namespace, event, notice)

    def _key(self, notice: Notice, now: float) -> Notice:
        """What makes it the same event again: all of it; or, where many differ only in their message, all but that."""
        alike = self._alike.get((notice.about, notice.reason, notice.warning))
        if now - alike.since > SIMILAR_SECONDS:
            alike.messages.clear()
        alike.since = now
        if len(alike.messages) <= SIMILAR:
            alike.messages.add(notice.message)
        return notice if len(alike.messages) <= SIMILAR else notice._replace(message=COMBINED)


def namespace_of(about: About) -> str:
    """Where the events of an object are: those of the cluster's are in `default`, where `kubectl describe` looks."""
    return about.namespace or "default"


def masked(text: str) -> str:
    """The text without what looks like credentials: messages of others may quote what they were sent."""
    text = _CREDENTIALS.sub("***", text)
    return _SECRETS.sub(r"\1***", text)


def fitting(text: str) -> str:
    """The text in one line, and no longer than the API takes."""
    text = " ".join(text.split())
    if len(text.encode()) <= LONGEST_MESSAGE:
        return text
    return text.encode()[: LONGEST_MESSAGE - 3].decode(errors="ignore") + "…"
