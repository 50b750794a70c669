"""Which change set a declaration came with: the one that its writer named, or the one that its writers' last writes form.

What one writer writes without a longer pause than `WINDOW` is one change set, named by who and when:
`kubectl-edit@2026-11-15T14:00:03Z`. Who and when stands in the managed fields of every Kubernetes object, in whole seconds. A name
that an object carries is that of an earlier change where somebody else has written since.

While writes keep coming their change set is *gathering*, so that guards judge it whole. A lone write gathers nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from homeostat.loop.diff import Change
from homeostat.loop.fleet import Cause
from homeostat.model.clock import format_time, parse_time
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET

WINDOW = 2.0
"""Seconds between two writes of one writer up to which they are one change set."""
LONGEST = 300.0
"""Seconds from the first write of a change set that nobody named to the last. What comes later is another one."""
PATIENCE = 4
"""A change set is taken to be complete when nothing came for so many times its longest pause so far, `WINDOW` at most."""
GATHERING_MOST = 30.0
"""Seconds after which a change set is judged as far as it has come, though more of it comes in."""
KEPT = 600.0
"""Seconds for which a change set is remembered after its last write was seen."""
WRITES_KEPT = 4096
"""How many writes of a change set are told apart from second looks at them."""
DELETED = "deleted"
"""Who is named where something was deleted: managed fields do not say by whom."""


_TAKEN_AWAY = "Delete"
"""The operation in the managed fields of a child that its parent wants no more. Kubernetes has none of that name."""


class Write(NamedTuple):
    """The write that made a declaration what it is: by which manager, when (wall seconds), and the change set that it named."""

    by: str = ""
    at: float = 0.0
    name: str = ""


def last_write(metadata: Mapping[str, Any], changes: Sequence[Change] = ()) -> Write:
    """The write that a difference comes from, as the metadata of the declaration tells it.

    `changes` are attributed (`writers.attribute`): where one of them says who meant it, that counts, and not who wrote last to
    some other field. Nothing is known of an object without managed fields but the name that it carries.
    """
    notes = metadata.get("annotations") or {}
    entries = metadata.get("managedFields") or ()
    if deleted := metadata.get("deletionTimestamp"):
        said = ((entry["time"], entry["manager"]) for entry in entries if entry.get("operation") == _TAKEN_AWAY)
        time, by = next(said, (deleted, DELETED))
        return Write(by, _time(time), notes.get(DELETION_CHANGE_SET, ""))
    meant = [(c.who.time, c.who.manager) for c in changes if c.who is not None and c.cause is not Cause.DRIFT]
    time, by = max(meant or _owners(entries, "f:spec"), default=("", ""))
    name = notes.get(CHANGE_SET, "")
    if name and by:
        named = list(_owners(entries, "f:metadata", "f:annotations", f"f:{CHANGE_SET}"))
        if named and not any(manager == by or at >= time for at, manager in named):
            name = ""
    return Write(by, _time(time), name)


def inherited(parent: Mapping[str, Any], leaves: bool) -> dict[str, Any]:
    """The metadata by which a child that is composed, or taken away, belongs to the last change of its parent's declaration."""
    write = last_write(parent)
    if write.name:
        return {"annotations": {DELETION_CHANGE_SET if leaves else CHANGE_SET: write.name}}
    if not write.by:
        return {}
    return {"managedFields": _meant(write.by, write.at, leaves)}


@lru_cache(256)
def _meant(by: str, at: float, leaves: bool) -> list[dict[str, Any]]:
    """Managed fields that say who meant it and when; the same for all that were meant together, and nobody's to change."""
    entry = {"manager": by, "time": format_time(at), "fieldsV1": {"f:spec": {}}}
    return [{**entry, "operation": _TAKEN_AWAY if leaves else "Update"}]


def _owners(entries: Sequence[Mapping[str, Any]], *path: str) -> Iterator[tuple[str, str]]:
    for entry in entries:
        below: Any = entry.get("fieldsV1")
        for step in path:
            below = below.get(step) if isinstance(below, dict) else None
        if below is not None and entry.get("subresource") != "status":
            yield str(entry.get("time") or ""), str(entry.get("manager") or "")


class _Coming(msgspec.Struct):
    """A change set as its writes come in. `first` and `last` are by the server's clock, the others by ours."""

    name: str
    first: float
    last: float
    began: float
    seen: float
    pause: float = 0.0  # the longest between two writes
    writes: set[Hashable] = msgspec.field(default_factory=set)

    def reaches(self, at: float) -> bool:
        longest = max(self.last, at) - min(self.first, at)
        return self.first - WINDOW <= at <= self.last + WINDOW and longest <= LONGEST


class ChangeSets:
    """The change sets that come in. Tell it of each write by `place`."""

    def __init__(self) -> None:
        self._named: dict[str, _Coming] = {}
        self._near: dict[tuple[str, int], _Coming] = {}  # by writer and time, those that nobody named
        self._until: dict[str, float] = {}
        self._swept = 0.0

    def place(self, of: Hashable, write: Write, now: float, known: str = "") -> str:
        """The change set of a write to the declaration `of`, seen `now`; empty where nothing tells it.

        Of a child, `of` is its parent: what was written there is one write, however long its children take to follow it.
        `known` is the name that it was given before a restart; others that belong to it find it by that.
        """
        if not (write.name or known or write.by):
            return ""
        found = self._find(write, now, known)
        found.first, found.last = min(found.first, write.at), max(found.last, write.at)
        if not write.name:
            self._near[write.by, int(write.at // WINDOW)] = found
        if (of, write.at) not in found.writes:
            if len(found.writes) >= WRITES_KEPT:
                found.writes.clear()  # what is looked at again then counts as written again, and is waited for a moment more
            found.writes.add((of, write.at))
            self._came(found, now)
        self._sweep(now)
        return found.name

    def gathering(self, now: float) -> dict[str, float]:
        """Change sets whose writes are still coming in, and until when they are waited for if nothing more comes."""
        self._until = {name: until for name, until in self._until.items() if until > now}
        return dict(self._until)

    def clock_set(self, by: float) -> None:
        """The wall clock was set, by so many seconds: nobody waits longer or shorter for it."""
        self._until = {name: until + by for name, until in self._until.items()}
        self._swept += by
        for one in self._named.values():
            one.began, one.seen = one.began + by, one.seen + by

    def _find(self, write: Write, now: float, known: str) -> _Coming:
        name = known or write.name
        if not name:
            place = int(write.at // WINDOW)
            for near in (place, place - 1, place + 1):
                if (one := self._near.get((write.by, near))) is not None and one.reaches(write.at):
                    return one
            name = f"{write.by}@{format_time(write.at)}"
        if name not in self._named:
            self._named[name] = _Coming(name, write.at, write.at, now, now)
        return self._named[name]

    def _came(self, one: _Coming, now: float) -> None:
        pause, one.seen = now - one.seen, now
        if pause > WINDOW:
            one.began, one.pause = now, 0.0
        else:
            one.pause = max(one.pause, pause)
        until = min(now + min(WINDOW, PATIENCE * one.pause), one.began + GATHERING_MOST)
        if until > now:
            self._until[one.name] = until

    def _sweep(self, now: float) -> None:
        if now - self._swept < KEPT / 10:
            return
        self._swept = now
        self._named = {name: one for name, one in self._named.items() if one.seen > now - KEPT}
        self._near = {place: one for place, one in self._near.items() if one.seen > now - KEPT}


@lru_cache(256)
def _time(text: str) -> float:
    try:
        return parse_time(text) if text else 0.0
    except ValueError:
        return 0.0
