"""Who wrote a field, as the managed fields of a Kubernetes object tell it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from homeostat.loop.diff import Change, Diff, Item, Path, Who
from homeostat.loop.fleet import Cause


class Writers:
    """The field managers of one object. `root` is where in it the compared value stands: `("spec",)`."""

    __slots__ = ("_entries", "_root")

    def __init__(self, managed_fields: Iterable[Mapping[str, Any]], root: Path = ()) -> None:
        self._root = root
        known = [entry for entry in managed_fields if isinstance(entry.get("fieldsV1"), dict)]
        self._entries = sorted(known, key=_time, reverse=True) if len(known) > 1 else known

    def of(self, path: Path, besides: Collection[str] = ()) -> Who | None:
        """Who last wrote the field, or something below it; None where nobody is known. `besides` leaves managers out.

        Fields that were removed have no writer any more. The time is that of the manager's last write to the object, which may
        have been to another field.
        """
        steps = [step.text if isinstance(step, Item) else f"f:{step}" for step in (*self._root, *path)]
        for entry in self._entries:
            manager = str(entry.get("manager") or "")
            if manager not in besides and _owns(entry["fieldsV1"], steps):
                return Who(manager, str(entry.get("operation") or ""), str(entry.get("time") or ""))
        return None


def _time(entry: Mapping[str, Any]) -> str:
    return str(entry.get("time") or "")


def _owns(fields: Mapping[str, Any], steps: list[str]) -> bool:
    for depth, step in enumerate(steps):
        if not fields:
            return depth > 0  # what lies above is owned as a whole
        below = fields.get(step)
        if not isinstance(below, dict):
            return False
        fields = below
    return True


def attribute(
    diff: Diff,
    *,
    declared_by: Writers | None = None,
    observed_by: Writers | None = None,
    besides: Collection[str] = (),
) -> Diff:
    """The diff with a name beside each change that can have one and has none yet.

    Intent is the work of who wrote the declaration; drift, and what both have changed, of who wrote the observed object, our
    own managers (`besides`) left out.
    """
    if declared_by is None and observed_by is None:
        return diff

    def named(change: Change) -> Change:
        if change.who is not None:
            return change
        who = None
        if change.cause is not Cause.INTENT and observed_by is not None:
            who = observed_by.of(change.path, besides)
        if who is None and change.cause is not Cause.DRIFT and declared_by is not None:
            who = declared_by.of(change.path)
        return replace(change, who=who)

    return replace(diff, changes=tuple(map(named, diff.changes)))
