"""Server-side apply: merges a configuration into an object, prunes what its manager gave up, and finds conflicts."""

from __future__ import annotations

from typing import Any, cast

import orjson

from homeostat.api.fields.compare import claimed, claimed_by_object, compare_objects
from homeostat.api.fields.managed import (
    Entry,
    Identity,
    Ledger,
    Object,
    Reset,
    SchemaFor,
    entries_of,
    identity,
    make_entry,
    put_entries,
    reset_of,
)
from homeostat.api.fields.merge import merge, problems, remove, with_empty, with_structures
from homeostat.api.fields.sets import Fields, difference, has, intersection, paths, show, union
from homeostat.api.fields.types import Type, Untypable, type_of
from homeostat.api.wording import json_text
from homeostat.model.equality import same
from homeostat.model.errors import ApiError, apply_conflict, bad_request
from homeostat.model.names import ANNOTATIONS_MAX
from homeostat.model.schema import Schema

BEFORE_FIRST_APPLY = "before-first-apply"
"""Owns what was there when an object without any owner is applied for the first time."""

KUBECTL = "kubectl"
"""The manager name for which client-side apply is taken over and its annotation kept up to date."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_IDENTITY_FIELDS: Fields = {"f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:name": {}}}

Conflict = tuple[Entry, tuple[str, ...]]


def apply(
    schema: Schema,
    live: Object | None,
    config: Object,
    *,
    manager: str,
    api_version: str,
    now: str,
    schema_for_version: SchemaFor,
    subresource: str = "",
    force: bool = False,
    reset: Fields | None = None,
    current: bool = False,
) -> Object:
    """The object after `manager` applied `config`, with `managedFields` up to date.

    `live` is the stored object in the version of the request, or None to create one; neither argument is changed, but
    the result shares parts with both. Fields that `manager` applied before, declares no longer and nobody else owns are
    gone. A field that another manager owns with another value is a conflict (409 with every field) unless `force` takes
    it over. When nothing changes at all, the result is `live` itself. `current`: as for `track`.

    The result is not defaulted: do that next, with the nulls of non-nullable fields dropped, and do not `track` it.
    """
    if config["metadata"].get("managedFields") is not None:
        raise bad_request("metadata.managedFields must be nil")
    t = type_of(schema)
    _check(t, config)
    if live is None and config["metadata"]:
        created = _created(t, config, manager or "unknown", api_version, subresource, now, reset_of(reset))
        return _with_last_applied(created, config) if manager == KUBECTL else created
    base: Object = live if live is not None else {"apiVersion": api_version, "kind": config["kind"], "metadata": {}}

    def attempt(forced: bool) -> Object:
        ledger = Ledger(entries_of(live), schema_for_version, api_version, t, reset, current=current)
        if live is not None and not ledger.by_identity and not entries_of(live):
            ledger.write(None, live, BEFORE_FIRST_APPLY, api_version, subresource, now)
        return _Apply(t, base, config, manager or "unknown", api_version, subresource, now).run(ledger, forced)

    try:
        result = attempt(force)
    except _Conflicts as found:
        allowed = _client_side_applied(t, base, api_version) if manager == KUBECTL else {}
        left = [(entry, path) for entry, path in found.conflicts if not has(allowed, path)]
        if left:
            raise _refusal(left) from None
        result = attempt(True)
    except Untypable as error:
        raise _untyped("live", base, str(error)) from None
    return _with_last_applied(result, config) if manager == KUBECTL else result


def _created(
    t: Type, config: Object, manager: str, api_version: str, subresource: str, now: str, reset: Reset
) -> Object:
    """The object that an apply makes where there is none: what is declared, all of it the manager's own."""
    created = {"apiVersion": api_version, "kind": config["kind"], "metadata": {}, **config}
    created["metadata"] = dict(config["metadata"])
    fields = reset.left(claimed_by_object(t, config))
    put_entries(created, [make_entry(manager, "Apply", api_version, subresource, fields, now)] if fields else [])
    return created


class _Conflicts(Exception):
    def __init__(self, conflicts: list[Conflict]) -> None:
        self.conflicts = conflicts


class _Apply:
    """One apply request."""

    def __init__(
        self, t: Type, live: Object, config: Object, manager: str, api_version: str, subresource: str, now: str
    ) -> None:
        self.t = t
        self.live = live
        self.config = config
        self.own: Identity = (manager, "Apply", "", subresource)
        self.api_version = api_version
        self.now = now
        self.merged: Object = merge(t, live, config)
        self.claimed = claimed_by_object(t, config)

    def run(self, ledger: Ledger, force: bool) -> Object:
        manager, _, _, subresource = self.own
        live = self.live
        before = ledger.by_identity.get(self.own)
        fields = ledger.without_reset(self.claimed)
        time = before.get("time") if before is not None else None
        mine = make_entry(manager, "Apply", self.api_version, subresource, fields, time)
        ledger.by_identity[self.own] = mine
        new = self._prune(ledger, before, fields)
        self._settle(ledger, new, force)
        noop = same(live, new)
        if not noop and self.own in ledger.by_identity:
            ledger.by_identity[self.own] = make_entry(manager, "Apply", self.api_version, subresource, fields, self.now)
        result = {**new, "metadata": dict(new["metadata"])}
        put_entries(result, ledger.entries)
        return live if noop and entries_of(result) == entries_of(live) else result

    def _settle(self, ledger: Ledger, new: Object, force: bool) -> None:
        """Finds who else owns what is about to change; refuses, or takes it from them."""
        if not any(key != self.own for key in ledger.by_identity):
            ledger.take(self.api_version, {}, {}, self.live, new, keep=self.own)
            return
        changed, removed = ledger.changes(self.api_version, self.live, new)
        if changed and not force:
            conflicts: list[Conflict] = []
            for key, entry in sorted(ledger.by_identity.items(), key=lambda pair: _identity_text(pair[1])):
                if key != self.own:
                    version = entry["apiVersion"]
                    theirs = changed
                    if version != self.api_version:
                        theirs = ledger.changes(version, self.live, new)[0]
                    conflicts += [(entry, path) for path in paths(intersection(entry["fieldsV1"], theirs))]
            if conflicts:
                raise _Conflicts(conflicts)
        ledger.take(self.api_version, changed, removed, self.live, new, keep=self.own)

    def _prune(self, ledger: Ledger, before: Entry | None, fields: Fields) -> Object:
        """The merged object without what this manager gave up and nobody else owns."""
        if before is None or not difference(before["fieldsV1"], fields):
            return self.merged
        version = before["apiVersion"]
        t = ledger.type_at(version)
        assert t is not None
        managed: dict[str, Fields] = {version: {}}
        for entry in ledger.by_identity.values():
            at = entry["apiVersion"]
            managed[at] = union(managed.get(at, {}), entry["fieldsV1"])
        managed[self.api_version] = union(managed[self.api_version], _IDENTITY_FIELDS)
        last = with_structures(t, before["fieldsV1"])
        merged = self.merged
        pruned: Object = remove(t, merged, last) or {}
        for at, owned in managed.items():
            there = ledger.type_at(at)
            assert there is not None
            kept = union(_members(there, pruned), with_structures(there, owned))
            pruned = remove(there, merged, difference(_members(there, merged), kept)) or {}
        gone = intersection(difference(_members(t, merged), _members(t, pruned)), last)
        if not gone:
            return merged
        result: Object = remove(t, merged, gone)
        said = {name: value for name, value in self.config.items() if name != "metadata"}
        return cast(Object, with_empty(said, result))


def _members(t: Type, obj: Object) -> Fields:
    """Every field of the object, structures included where they are declared, also what nobody owns."""
    return with_structures(t, claimed(t, obj) or {})


def _check(t: Type, config: Object) -> None:
    found = problems(t, config)
    if found:
        lines = [f"{path}: {what}" if path else what for path, what in found]
        raise _untyped("patch", config, lines[0] if len(lines) == 1 else "\n  ".join(["errors:", *lines]))


def _untyped(which: str, obj: Object, why: str) -> ApiError:
    meta = obj["metadata"]
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = f"{group}/{version}, Kind={obj['kind']}"
    where = f"{meta.get('namespace', '')}/{meta.get('name', '')}; {kind}"
    return bad_request(f"failed to create typed {which} object ({where}): {why}")


def _refusal(conflicts: list[Conflict]) -> ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_who(entry)}", "field": show(path)}
        for entry, path in conflicts
    ]
    if len(conflicts) == 1:
        entry, path = conflicts[0]
        return apply_conflict(f"Apply failed with 1 conflict: conflict with {_who(entry)}: {show(path)}", causes)
    lines = []
    last: Identity | None = None
    for entry, path in conflicts:
        if identity(entry) != last:
            last = identity(entry)
            lines.append(f"conflicts with {_who(entry)}:")
        lines.append(f"- {show(path)}")
    return apply_conflict(f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines), causes)


def _who(entry: Entry) -> str:
    text = json_text(entry.get("manager", ""))
    if entry.get("subresource"):
        text += f' with subresource "{entry["subresource"]}"'
    return f"{text} using {entry['apiVersion']}" if entry["operation"] == "Update" else text


def _identity_text(entry: Entry) -> str:
    """Upstream's name for an entry; managers are listed in its order."""
    manager, operation, version, subresource = identity(entry)
    parts = {"manager": manager, "operation": operation, "apiVersion": version, "subresource": subresource}
    return orjson.dumps({key: value for key, value in parts.items() if value}).decode()


def _client_side_applied(t: Type, live: Object, api_version: str) -> Fields:
    """Fields that client-side apply wrote and that still hold its values: server-side kubectl may take them over."""
    try:
        config: Any = orjson.loads(live["metadata"]["annotations"][LAST_APPLIED])
        if config["apiVersion"] != api_version or problems(t, config) or problems(t, live):
            return {}
        changed, removed = compare_objects(t, config, live)
        return difference(difference(claimed_by_object(t, config), changed), removed)
    except (KeyError, TypeError, ValueError):
        return {}


def _with_last_applied(obj: Object, config: Object) -> Object:
    """Keeps the annotation of client-side apply in step, so that a person can go back to it."""
    annotations = obj["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return obj
    meta = config["metadata"]
    if LAST_APPLIED in (meta.get("annotations") or {}):
        others = {key: value for key, value in meta["annotations"].items() if key != LAST_APPLIED}
        meta = {**meta, "annotations": others}
    text = json_text({**config, "metadata": meta}) + "\n"
    if annotations[LAST_APPLIED] == text:
        return obj
    updated = {**annotations, LAST_APPLIED: text}
    if sum(len(key.encode()) + len(value.encode()) for key, value in updated.items()) > ANNOTATIONS_MAX:
        del updated[LAST_APPLIED]
    return {**obj, "metadata": {**obj["metadata"], "annotations": updated}}
