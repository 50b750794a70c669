"""The three-way diff: what is declared, what was applied last, what is observed.

Only fields that are ours count: those that are declared, and those that were applied and are declared no more. The latter
are taken back where they still have the value that we gave them; whoever has changed one since keeps it. What anybody else
put beside ours is neither looked at nor touched.

What does not make a difference, so that no drift is seen where there is none:
- null is nothing: a field that is null is not declared, not applied, not there;
- a field that is not there has the default of its type;
- 1 and 1.0 are the same (1 and true are not);
- lists that tell their items by key or value have no order; so an item comes and goes as a whole, with its key;
- what is empty (`{}`, `[]`, "", 0, false), was applied so, and reads back as nothing: many APIs leave such fields out;
- what the provider's `normalise` makes equal (quantities, paths, case, …).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

import orjson
from xxhash import xxh3_128_digest

from homeostat.loop.diff import NOTHING, Change, Diff, Item, Path, item_of, list_kind, whole_cause
from homeostat.loop.fleet import Cause, Op
from homeostat.loop.observation import ABSENT, Absent, Unknown
from homeostat.model.errors import UNSET
from homeostat.model.schema import ANY, Schema

Normalise: TypeAlias = Callable[[Path, Any], Any]
"""Brings a value to a form in which equal things are equal. Called only for values that differ at first sight."""

K = TypeVar("K", bound=Hashable)


def compare(
    declared: Mapping[str, Any] | Absent,
    last_applied: Mapping[str, Any] | None,
    observed: Mapping[str, Any] | Absent,
    schema: Schema | None = None,
    *,
    normalise: Normalise | None = None,
) -> Diff:
    """The least that makes the world as declared, with the cause of each change.

    `last_applied` is None where nothing was ever applied. With `declared` ABSENT, what is there is deleted if something of it
    was applied by us, and left alone otherwise. `schema` says how lists and maps are merged, and defaults; without it maps are
    compared field by field and lists as a whole. TypeError for an `Unknown`: there is nothing to compare.
    """
    for given in (declared, observed):
        if type(given) is not dict and not isinstance(given, Mapping | Absent):
            raise _incomparable(given)
    if isinstance(declared, Absent):
        return _deletion(last_applied, observed)
    if isinstance(observed, Absent):
        return _creation(declared, last_applied, schema or ANY)
    walk = _Walk(last_applied is not None, normalise)
    walk.maps(declared, last_applied or {}, observed, schema or ANY, ())
    if not walk.changes:
        return NOTHING
    return Diff(Op.UPDATE, tuple(walk.changes), whole_cause(change.cause for change in walk.changes))


def fingerprint(
    declared: Mapping[str, Any] | Absent, last_applied: Mapping[str, Any] | None, observed: Mapping[str, Any] | Absent
) -> bytes:
    """16 bytes that are the same for the same three values, whatever the order of their keys."""
    text = orjson.dumps((declared, last_applied, observed), default=_plain, option=orjson.OPT_SORT_KEYS)
    return xxh3_128_digest(text)


def _plain(value: Any) -> Any:
    if value is ABSENT:
        return 0  # nothing that is there is a number
    if isinstance(value, Mapping):
        return dict(value)
    raise _incomparable(value)


def _incomparable(value: Any) -> TypeError:
    if isinstance(value, Unknown):
        return TypeError(f"what is unknown cannot be compared: {value.reason}")
    return TypeError(f"a state is as JSON has it, or ABSENT; not {value!r}")


class Comparer(Generic[K]):
    """Compares things of one kind, and remembers for each what it saw last: the same three values give the same diff at once.

    Give it a new one when schema or `normalise` change.
    """

    __slots__ = ("_differing", "_normalise", "_schema", "_seen")

    def __init__(self, schema: Schema | None = None, *, normalise: Normalise | None = None) -> None:
        self._schema = schema
        self._normalise = normalise
        self._seen: dict[K, bytes] = {}
        self._differing: dict[K, Diff] = {}  # apart, for most things are as declared, and there may be millions

    def compare(
        self,
        key: K,
        declared: Mapping[str, Any] | Absent,
        last_applied: Mapping[str, Any] | None,
        observed: Mapping[str, Any] | Absent,
    ) -> Diff:
        """As `compare`, for the thing of this key."""
        return self.marked(key, declared, last_applied, observed)[0]

    def marked(
        self,
        key: K,
        declared: Mapping[str, Any] | Absent,
        last_applied: Mapping[str, Any] | None,
        observed: Mapping[str, Any] | Absent,
    ) -> tuple[Diff, bytes]:
        """The same, with the `fingerprint` of the three."""
        mark = fingerprint(declared, last_applied, observed)
        if self._seen.get(key) == mark:
            return self._differing.get(key, NOTHING), mark
        diff = compare(declared, last_applied, observed, self._schema, normalise=self._normalise)
        self._seen[key] = mark
        if diff:
            self._differing[key] = diff
        else:
            self._differing.pop(key, None)
        return diff, mark

    def forget(self, key: K) -> None:
        """For a thing that is gone."""
        self._seen.pop(key, None)
        self._differing.pop(key, None)

    def __len__(self) -> int:
        return len(self._seen)


def _creation(declared: Mapping[str, Any], last: Mapping[str, Any] | None, schema: Schema) -> Diff:
    if last is None:
        meant = [Change((name,), ABSENT, value, Cause.INTENT) for name, value in declared.items() if value is not None]
        return Diff(Op.CREATE, tuple(meant), Cause.INTENT)
    walk = _Walk(True, None)
    for name, value in declared.items():
        if value is not None:
            walk.change((name,), _get(last, name), ABSENT, value, schema.child(name) or ANY)
    # What was applied was there once.
    return Diff(Op.CREATE, tuple(walk.changes), whole_cause([Cause.DRIFT, *(change.cause for change in walk.changes)]))


def _deletion(last: Mapping[str, Any] | None, observed: Mapping[str, Any] | Absent) -> Diff:
    if last is None or isinstance(observed, Absent):
        return NOTHING
    ours = [name for name in last if last[name] is not None and observed.get(name) is not None]
    changes = tuple(Change((name,), observed[name], ABSENT, Cause.INTENT) for name in ours)
    return Diff(Op.DELETE, changes, Cause.INTENT)


class _Walk:
    """One comparison: goes down the three values together and collects changes. Nothing is ABSENT here, never null."""

    __slots__ = ("_applied", "_normalise", "changes")

    def __init__(self, applied: bool, normalise: Normalise | None) -> None:
        self._applied = applied
        self._normalise = normalise
        self.changes: list[Change] = []

    def maps(self, new: Mapping[str, Any], last: Any, old: Mapping[str, Any], schema: Schema, path: Path) -> None:
        """Granular maps: the keys that are declared, then those that no longer are."""
        for name, value in new.items():
            if value is not None:
                self._value(value, _get(last, name), _get(old, name), schema.child(name) or ANY, (*path, name))
        if isinstance(last, Mapping):
            for name, value in last.items():
                if value is not None and new.get(name) is None:
                    self.changes += self._withdrawn(value, _get(old, name), schema.child(name) or ANY, (*path, name))

    def _value(self, new: Any, last: Any, old: Any, schema: Schema, path: Path) -> None:
        if old is ABSENT:
            if _matters(new, last, schema):
                self.change(path, last, old, new, schema)
        elif _identical(new, old):
            return  # and what was applied beside it is not there
        elif _granular(new, old, schema):
            self.maps(new, last, old, schema, path)
        elif (items := _indexed(new, schema)) is not None and (there := _indexed(old, schema)) is not None:
            self._items(items, _indexed(last, schema) or {}, there, schema.items or ANY, path)
        elif not self._alike(new, old, schema, path):
            self.change(path, last, old, new, schema)

    def _items(
        self, new: dict[Item, Any], last: dict[Item, Any], old: dict[Item, Any], schema: Schema, path: Path
    ) -> None:
        for item, value in new.items():
            if item in old:
                self._value(value, last.get(item, ABSENT), old[item], schema, (*path, item))
            else:
                self.change((*path, item), last.get(item, ABSENT), ABSENT, value, schema)
        gone = [item for item in last if item not in new and item in old]
        self.changes += [Change((*path, item), old[item], ABSENT, Cause.INTENT) for item in gone]

    def _withdrawn(self, last: Any, old: Any, schema: Schema, path: Path) -> list[Change]:
        """Takes back what is declared no more; a container that has nothing left in it goes as a whole."""
        if old is ABSENT:
            return []
        everything = [Change(path, old, ABSENT, Cause.INTENT)]
        if _granular(last, old, schema):
            found: list[Change] = []
            for name, value in last.items():
                if value is not None:
                    found += self._withdrawn(value, _get(old, name), schema.child(name) or ANY, (*path, name))
            whole = {change.path[-1] for change in found if len(change.path) == len(path) + 1}
            return everything if all(name in whole or old[name] is None for name in old) else found
        if (items := _indexed(last, schema)) is not None and (there := _indexed(old, schema)) is not None:
            gone = [item for item in there if item in items]
            if len(gone) == len(there):
                return everything
            return [Change((*path, item), there[item], ABSENT, Cause.INTENT) for item in gone]
        return everything if self._alike(last, old, schema, path) else []

    def change(self, path: Path, last: Any, old: Any, new: Any, schema: Schema) -> None:
        """Notes a change, and why it is one."""
        if not self._applied or last is ABSENT or last is None:
            cause = Cause.INTENT
        else:
            meant = not self._alike(new, last, schema, path)
            moved = old is ABSENT or not self._alike(old, last, schema, path)
            cause = Cause.BOTH if meant and moved else Cause.INTENT if meant else Cause.DRIFT
        self.changes.append(Change(path, old, new, cause))

    def _alike(self, a: Any, b: Any, schema: Schema, path: Path) -> bool:
        if alike(a, b, schema):
            return True
        return self._normalise is not None and alike(self._normalise(path, a), self._normalise(path, b), schema)


def _identical(a: Any, b: Any) -> bool:
    """Whether two values are equal to the letter: told fast, and it is what most of them are."""
    if a != b:
        return False
    return type(a) is str or orjson.dumps(a) == orjson.dumps(b)  # True equals 1 in Python, but not in JSON


def alike(a: Any, b: Any, schema: Schema = ANY) -> bool:
    """Whether two values mean the same to the type: see the top of this module."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_alike_field(a.get(name), b.get(name), schema.child(name) or ANY) for name in a.keys() | b.keys())
    if isinstance(a, list) and isinstance(b, list):
        left, right, items = _indexed(a, schema), _indexed(b, schema), schema.items or ANY
        if left is not None and right is not None:
            return left.keys() == right.keys() and all(alike(left[item], right[item], items) for item in left)
        return len(a) == len(b) and all(alike(x, y, items) for x, y in zip(a, b, strict=True))
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _alike_field(a: Any, b: Any, schema: Schema) -> bool:
    if a is None or b is None:
        default = None if schema.default is UNSET else schema.default
        a, b = (default if a is None else a), (default if b is None else b)
        if a is None or b is None:
            return a is b
    return alike(a, b, schema)


def _matters(new: Any, last: Any, schema: Schema) -> bool:
    """Whether a declared value differs from nothing at all being there."""
    if schema.default is not UNSET and alike(new, schema.default, schema):
        return False
    if isinstance(new, dict) and schema.map_type != "atomic":
        inner = [(name, value) for name, value in new.items() if value is not None]
        if inner:
            return any(_matters(value, _get(last, name), schema.child(name) or ANY) for name, value in inner)
        return not isinstance(last, dict)
    return bool(new) or last is ABSENT or not alike(new, last, schema)


def _granular(new: Any, old: Any, schema: Schema) -> bool:
    return isinstance(new, dict) and isinstance(old, dict) and schema.map_type != "atomic"


def _indexed(value: Any, schema: Schema) -> dict[Item, Any] | None:
    """The items of a list by what tells them apart; None where nothing does, or two have the same name."""
    if not isinstance(value, list) or list_kind(schema)[0] == "atomic":
        return None
    found: dict[Item, Any] = {}
    for entry in value:
        item = item_of(schema, entry)
        if item is None or item in found:
            return None
        found[item] = entry
    return found


def _get(value: Any, name: str) -> Any:
    """A field, or ABSENT; null is nothing."""
    found = value.get(name) if isinstance(value, Mapping) else None
    return ABSENT if found is None else found
