"""The list `metadata.managedFields`: who owns which fields, and how a create, update or patch changes that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from homeostat.api.fields.compare import compare_objects
from homeostat.api.fields.merge import reconcile
from homeostat.api.fields.sets import SELF, Fields, difference, recursive_difference, sanitize, union
from homeostat.api.fields.types import Type, Untypable, type_of
from homeostat.model.equality import same
from homeostat.model.schema import Schema

Object = dict[str, Any]
Entry = dict[str, Any]
"""One element of `managedFields`, as stored. Never changed in place: stored objects share them."""

SchemaFor = Callable[[str], Schema | None]
"""The schema of the kind at an apiVersion; None where that version does not exist (any more)."""

MAX_UPDATE_ENTRIES = 10
"""Entries of plain writers kept apart; the oldest beyond that are put together under `OLD_WRITERS`."""

OLD_WRITERS = "ancient-changes"



class Reset(dict[str, Any]):
    """The fields that a way of writing cannot change; beside them, what follows from that for a comparison."""

    __slots__ = ("skip",)

    def __init__(self, fields: Fields) -> None:
        super().__init__(fields)
        # Top-level fields that are reset as a whole need not be looked at; the rest is taken away afterwards.
        self.skip = frozenset(key[2:] for key, below in fields.items() if not below)

    def left(self, fields: Fields) -> Fields:
        """What of these fields the writer can change."""
        return recursive_difference(fields, self) if self else fields


class Only(Reset):
    """`reset` for writes that change nothing but these fields and what is below them; `*` stands for any item of a list."""

    __slots__ = ("_changed",)

    def __init__(self, fields: Fields) -> None:
        super().__init__({})
        self._changed = fields

    def left(self, fields: Fields) -> Fields:
        return _within(fields, self._changed)


def _within(fields: Fields, mask: Fields) -> Fields:
    kept: Fields = {}
    for key, below in fields.items():
        inner = mask.get(key, mask.get("*"))
        if inner is None or key == SELF:
            continue
        if not inner:
            kept[key] = below
        elif found := _within(below, inner):
            kept[key] = found
    return kept


STATUS_ONLY = Reset({"f:metadata": {}, "f:spec": {}})
"""`reset` for writes through the status subresource: what such a write cannot change, its writer cannot own."""


@lru_cache
def all_but_spec(kept: tuple[str, ...]) -> Reset:
    """`reset` for writes of the status of a kind whose metadata, but for the fields that are `kept`, may be changed by them."""
    metadata: Fields = {"f:metadata": {f"f:{field}": {} for field in kept}} if kept else {}
    return Reset({**metadata, "f:spec": {}})


ALL_BUT_STATUS = Reset({"f:status": {}})
"""`reset` for writes through the main resource of a kind that has the status subresource."""

_NOTHING = Reset({})


def reset_of(fields: Fields | None) -> Reset:
    """The same with what follows from it, made once where it is one of ours."""
    return _NOTHING if fields is None else fields if isinstance(fields, Reset) else Reset(fields)


Identity = tuple[str, str, str, str]


def identity(entry: Entry) -> Identity:
    """What tells two entries apart: manager, operation, version (plain writers only) and subresource."""
    applied = entry["operation"] == "Apply"
    version = "" if applied else entry["apiVersion"]
    return entry.get("manager", ""), entry["operation"], version, entry.get("subresource", "")


def make_entry(
    manager: str, operation: str, api_version: str, subresource: str, fields: Fields, time: str | None
) -> Entry:
    """An entry with its keys in upstream's order. `time` is left out when None."""
    entry: Entry = {"manager": manager or "unknown", "operation": operation, "apiVersion": api_version}
    if time is not None:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = fields
    if subresource:
        entry["subresource"] = subresource
    return entry


def with_fields(entry: Entry, fields: Fields) -> Entry:
    """The entry with another set; the same entry if it is the same set."""
    return entry if fields is entry["fieldsV1"] else {**entry, "fieldsV1": fields}


def entries_of(obj: Mapping[str, Any] | None) -> list[Entry]:
    """The entries of a stored object; an empty list where there are none."""
    if obj is None:
        return []
    entries: list[Entry] | None = obj["metadata"].get("managedFields")
    return entries or []


def put_entries(obj: Object, entries: Sequence[Entry]) -> None:
    """Writes the list into the object, in upstream's order; no list where nobody owns anything."""
    if entries:
        obj["metadata"]["managedFields"] = sorted(entries, key=_place) if len(entries) > 1 else list(entries)
    else:
        obj["metadata"].pop("managedFields", None)


def _place(entry: Entry) -> tuple[str, ...]:
    return (
        entry["operation"],
        entry.get("time") or "",
        entry.get("manager", ""),
        entry["apiVersion"],
        entry.get("subresource", ""),
    )


def decode(raw: Any) -> list[Entry] | None:
    """Entries that a client sent, put in order; None where any of them cannot be read."""
    if not isinstance(raw, list):
        return None
    out: dict[Identity, Entry] = {}
    for item in raw:
        if not isinstance(item, dict) or item.get("operation") not in ("Apply", "Update"):
            return None
        version, manager, time = item.get("apiVersion"), item.get("manager", ""), item.get("time")
        subresource = item.get("subresource", "")
        texts = (version, manager, subresource, "" if time is None else time)
        if not version or not all(isinstance(text, str) for text in texts) or item.get("fieldsType") != "FieldsV1":
            return None
        fields = sanitize(item.get("fieldsV1") or {})
        if fields is None:
            return None
        fields.pop(".", None)
        entry = make_entry(manager, item["operation"], str(version), subresource, fields, time)
        entry["manager"] = manager
        out[identity(entry)] = entry
    return list(out.values())


def _starting_point(live: list[Entry], new: Object, subresource: str) -> list[Entry]:
    """The entries a write starts from: the stored ones, unless the client sent its own or asked to forget them."""
    meta = new["metadata"]
    if subresource or "managedFields" not in meta:
        return live
    sent = meta["managedFields"]
    if sent is live or sent == live:
        return live
    if sent == [] or sent == [{}]:
        return []
    return decode(sent) or live


def track(
    schema: Schema,
    old: Object | None,
    new: Object,
    *,
    manager: str,
    api_version: str,
    now: str,
    schema_for_version: SchemaFor,
    subresource: str = "",
    reset: Fields | None = None,
    current: bool = False,
) -> None:
    """Gives the writer of a create, update or patch what it changed, and writes `new["metadata"]["managedFields"]`.

    `old` is the stored object (None for a creation) and is not changed; `new` is what the writer wants,
    defaulted, but without what the server itself adds afterwards (admission, finalizers, generation, cluster IPs): that
    is nobody's. `now` is RFC 3339 with seconds. `reset` names fields this way of
    writing cannot change (`ALL_BUT_STATUS`, `STATUS_ONLY`). A write that changes nothing leaves the list as it is,
    times included. An object that is stored without any owner stays so until it is applied. `current`: the stored entries were
    written under the schemas of today.
    """
    live = entries_of(old)
    entries = _starting_point(live, new, subresource)
    if old is not None and not entries:
        new["metadata"].pop("managedFields", None)
        return
    t = type_of(schema)
    try:
        if old is None and not entries:
            put_entries(new, _first(t, new, manager, api_version, subresource, now, reset_of(reset)))
            return
        ledger = Ledger(entries, schema_for_version, api_version, t, reset, current=current and entries is live)
        ledger.write(old, new, manager or "unknown", api_version, subresource, now)
    except Untypable:
        # Upstream keeps what was there when an object cannot be read by its type.
        put_entries(new, live)
        return
    put_entries(new, ledger.entries)


def _first(
    t: Type, new: Object, manager: str, api_version: str, subresource: str, now: str, reset: Reset
) -> list[Entry]:
    """The entry of who creates an object that nobody else owns anything of."""
    created = reset.left(compare_objects(t, None, new, reset.skip)[0])
    return [make_entry(manager, "Update", api_version, subresource, created, now)] if created else []


class Ledger:
    """The entries of one object while a write goes through, by identity, each read by the schema of its version.

    `current`: they were written under the schemas of today, and need no second reading.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        schema_for_version: SchemaFor,
        api_version: str,
        own: Type,
        reset: Fields | None,
        *,
        current: bool = False,
    ) -> None:
        self._types: dict[str, Type | None] = {api_version: own}
        self._schema_for_version = schema_for_version
        self.reset = reset_of(reset)
        self.by_identity: dict[Identity, Entry] = {}
        for entry in entries:
            t = self.type_at(entry["apiVersion"])
            if t is not None:
                self.by_identity[identity(entry)] = entry if current else with_fields(entry, reconcile(t, entry["fieldsV1"]))

    @property
    def entries(self) -> list[Entry]:
        return list(self.by_identity.values())

    def type_at(self, api_version: str) -> Type | None:
        """The type at a version; None where the version is gone, and then nothing recorded in it counts."""
        try:
            return self._types[api_version]
        except KeyError:
            schema = self._schema_for_version(api_version)
            t = self._types[api_version] = None if schema is None else type_of(schema)
            return t

    def without_reset(self, fields: Fields) -> Fields:
        """`fields` less what this way of writing cannot change."""
        return self.reset.left(fields)

    def changes(self, api_version: str, old: Object | None, new: Object) -> tuple[Fields, Fields]:
        """What the write changed and removed, as seen at a version."""
        t = self.type_at(api_version)
        assert t is not None
        changed, removed = compare_objects(t, old, new, self.reset.skip)
        return self.reset.left(changed), self.reset.left(removed)

    def write(
        self, old: Object | None, new: Object, manager: str, api_version: str, subresource: str, now: str
    ) -> None:
        """Takes what changed from everybody and gives it to the writer."""
        changed, removed = self.changes(api_version, old, new)
        self.take(api_version, changed, removed, old, new)
        if changed:
            fresh = make_entry(manager, "Update", api_version, subresource, changed, now)
            key = identity(fresh)
            mine = self.by_identity.get(key)
            if mine is not None:
                fresh["fieldsV1"] = union(mine["fieldsV1"], changed)
            self.by_identity[key] = fresh
        self.by_identity = _capped(self.by_identity)

    def take(
        self,
        api_version: str,
        changed: Fields,
        removed: Fields,
        old: Object | None,
        new: Object,
        keep: Identity | None = None,
    ) -> None:
        """Removes changed and removed fields from all entries but `keep`; drops entries with nothing left."""
        seen = {api_version: (changed, removed)}
        for key, entry in list(self.by_identity.items()):
            if key != keep:
                version = entry["apiVersion"]
                if version not in seen:
                    seen[version] = self.changes(version, old, new)
                changed, removed = seen[version]
                left = difference(difference(entry["fieldsV1"], changed), removed)
                self.by_identity[key] = entry = with_fields(entry, left)
            if not entry["fieldsV1"]:
                del self.by_identity[key]


def _capped(entries: dict[Identity, Entry]) -> dict[Identity, Entry]:
    """Puts the oldest plain writers together, one bucket a version, until no more than the limit are left."""
    if len(entries) <= MAX_UPDATE_ENTRIES:
        return entries
    writers = [key for key, entry in entries.items() if entry["operation"] == "Update"]
    over = len(writers) - MAX_UPDATE_ENTRIES
    first: dict[str, Identity] = {}
    for key in sorted(writers, key=lambda key: (entries[key].get("time") or "", key)):
        if over <= 0:
            break
        entry = entries[key]
        version = entry["apiVersion"]
        if version not in first:
            first[version] = key
            continue
        bucket = (OLD_WRITERS, "Update", version, "")
        older = entries[bucket] if bucket in entries else entries.pop(first[version])
        fields = union(entry["fieldsV1"], older["fieldsV1"])
        del entries[key]
        entries[bucket] = make_entry(OLD_WRITERS, "Update", version, "", fields, entry.get("time"))
        over -= 1
    return entries


def keep_times(old: Object, new: Object) -> bool:
    """Whether `new` is `old` but for the times of its entries; those are then set back, so that nothing is written.

    Call it last, with both objects as they would be stored.
    """
    before, after = entries_of(old), entries_of(new)
    if len(before) != len(after):
        return False
    if any({**a, "time": None} != {**b, "time": None} for a, b in zip(before, after, strict=True)):
        return False
    was = {**old, "metadata": {**old["metadata"], "managedFields": None}}
    becomes = {**new, "metadata": {**new["metadata"], "managedFields": None}}
    if not same(was, becomes):
        return False
    if before:
        new["metadata"]["managedFields"] = before
    return True
