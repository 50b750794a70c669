"""Create and update, and what they have in common with patches.

Every change of an object goes the same way: read it, make the new form, settle what the server alone decides (identity,
generation, who manages which field), check, and write it under the condition that nothing moved meanwhile. A change
that changes nothing is not written and keeps its resourceVersion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from homeostat.api import changesets, fields
from homeostat.api.call import Call, WriteOptions
from homeostat.api.codec import metadata_of, shown
from homeostat.api.intake import check, conform, read_object
from homeostat.api.quotas import Charge
from homeostat.api.request import Response
from homeostat.api.resource import Object, at
from homeostat.model.equality import same
from homeostat.model.errors import FieldError, already_exists, bad_request, conflict, invalid
from homeostat.model.protocol import FINALIZER
from homeostat.model.schema import Schema
from homeostat.store import Compare, Conflict, Delete, Entry, Put

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

RETRIES = 20
"""How often a change that names no resourceVersion is made again when another writer came first."""
NAME_TRIES = 8
"""How many generated names are tried before it is said that they are all taken."""
GENERATED_NAME_BASE = 58
"""Characters of generateName that are kept before the random part."""

MOVED = "the object has been modified; please apply your changes to the latest version and try again"
_SERVER_OWNED = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds")
_FIXED = ("resourceVersion", "creationTimestamp", "generation", "selfLink")
"""Metadata that an update may say what it likes about; it stays as it is."""

_PARTS = {"status": "status", "finalize": "spec"}
"""The only field that a write through a subresource changes."""

Change = Callable[[Object], Object]
"""From the live object to the wanted one. The live one must not be altered."""


async def create(plane: ControlPlane, call: Call) -> Response:
    """POST: an object that is not there yet."""
    options = WriteOptions(call, "CreateOptions")
    obj = await plane.apart(call, 0, read_object, call, options)
    return await insert(plane, call, obj, options)


async def insert(
    plane: ControlPlane, call: Call, obj: Object, options: WriteOptions, *, applied: bool = False
) -> Response:
    """Writes an object that does not exist yet. `applied`: its managed fields are settled already."""
    resource = call.resource
    base = obj["metadata"].get("generateName") or ""
    generated = bool(base) and not obj["metadata"].get("name")
    obj = await plane.apart(call, 0, _prepared, plane, call, obj, options, applied)
    # As upstream has it: whether it may be here at all is asked before whether it is right.
    plane.admission.placing(call, obj)
    plane.admission.completing(call, obj, None)
    plane.permit(call, obj, None)
    await plane.apart(call, 0, check, call, obj, None)
    plane.admission.limiting(call, obj)
    if plane.policies.active:
        await plane.admit(call, "CREATE", obj, None, dry_run=options.dry_run)
    compares, writes = await plane.admission.creating(call, obj)
    tries = NAME_TRIES if generated else 1
    while tries:
        call.name = obj["metadata"]["name"]
        value = call.codec.encode(obj)
        plane.limit(value)
        call.after = obj
        if options.dry_run:
            if await plane.store.get(call.key) is None:
                return Response(201, shown(served(call, obj)))
        else:
            result = await plane.store.txn([Compare(call.key, 0), *compares], [Put(call.key, value), *writes])
            if isinstance(result, int):
                return Response(201, call.codec.serve(value, result))
            if result.compare.key != call.key:
                # A quota moved, so somebody else got on: count again.
                compares, writes = await plane.admission.creating(call, obj)
                continue
        tries -= 1
        if generated:
            obj["metadata"]["name"] = base[:GENERATED_NAME_BASE] + plane.ids.suffix()
    error = already_exists(resource.group, resource.plural, call.name)
    entry = await plane.store.get(call.key)
    if entry is not None and metadata_of(entry.value).get("deletionTimestamp"):
        error.message = f"object is being deleted: {error.message}"
    raise error


def _prepared(plane: ControlPlane, call: Call, obj: Object, options: WriteOptions, applied: bool) -> Object:
    """An object that was sent to be created in the form in which it is stored; not yet checked."""
    resource = call.resource
    metadata = obj["metadata"]
    if metadata.pop("resourceVersion", None) not in (None, "", "0") and not applied:
        raise bad_request("resourceVersion should not be set on objects to be created")
    base = metadata.get("generateName") or ""
    generated = bool(base) and not metadata.get("name")
    _stamp(plane, call, obj)
    conform(call, obj, options)
    if call.codec.version.decode is not None:
        obj = call.codec.version.decode(obj)
    if generated:
        obj["metadata"]["name"] = base[:GENERATED_NAME_BASE] + plane.ids.suffix()
    resource.rules.default(obj)
    resource.rules.prepare_create(obj)
    if call.codec.version.status and resource.custom:
        obj.pop("status", None)
    if not applied:
        changesets.mark(call, obj)
        _track(plane, call, None, obj, options)
    return obj


def _stamp(plane: ControlPlane, call: Call, obj: Object) -> None:
    """Identity is the server's to give."""
    metadata = obj["metadata"]
    for field in _SERVER_OWNED:
        metadata.pop(field, None)
    metadata["uid"] = plane.ids.uid()
    metadata["creationTimestamp"] = plane.clock.timestamp()
    if call.resource.counts_generation:
        metadata["generation"] = 1
    else:
        metadata.pop("generation", None)


def served(call: Call, obj: Object) -> Object:
    """A stored-form object as the request's version shows it."""
    if call.codec.version.encode is not None:
        obj = call.codec.version.encode(obj)
    return {**obj, "apiVersion": call.codec.api_version, "kind": call.codec.kind}


async def update(plane: ControlPlane, call: Call) -> Response:
    """PUT: the object as it should be, whole."""
    options = WriteOptions(call, "UpdateOptions")
    obj = await plane.apart(call, 0, _read_update, call, options)
    if call.resource.create_on_update and not call.subresource and await plane.store.get(call.key) is None:
        plane.authorize_create(call)
        if uid := obj["metadata"].get("uid"):
            raise conflict(call.resource.group, call.resource.plural, call.name, _other_uid(call, uid, ""))
        return await insert(plane, call, obj, options)
    return await change(plane, call, lambda _: obj, options, conformed=True)


def _read_update(call: Call, options: WriteOptions) -> Object:
    obj = read_object(call, options)
    conform(call, obj, options)
    return call.codec.version.decode(obj) if call.codec.version.decode is not None else obj


async def change(
    plane: ControlPlane,
    call: Call,
    make: Change,
    options: WriteOptions,
    *,
    conformed: bool = False,
    applied: bool = False,
) -> Response:
    """Takes an existing object to the form that `make` gives, or says why not."""
    said = len(call.warnings)
    for _ in range(RETRIES):
        entry = await plane.store.get(call.key)
        if entry is None:
            raise call.not_found()
        del call.warnings[said:]
        live = plane.hub(call).load_entry(entry)

        def changed(live: Object = live) -> tuple[Object, bool]:
            wanted = make(live)
            conditional = _preconditions(call, wanted, live)
            if wanted is live:
                return live, conditional
            if not conformed:
                conform(call, wanted, options, live)
                if call.codec.version.decode is not None:
                    wanted = call.codec.version.decode(wanted)
            return settle(plane, call, wanted, live, options, applied=applied), conditional

        obj, conditional = await plane.apart(call, len(entry.value), changed)
        if obj is live:
            if plane.policies.active:
                await plane.admit(call, "UPDATE", obj, live, dry_run=options.dry_run)
            return Response(200, call.codec.serve(entry.value, entry.revision))
        plane.permit(call, obj, live)
        await plane.apart(call, len(entry.value), check, call, obj, live)
        if plane.policies.active:
            await plane.admit(call, "UPDATE", obj, live, dry_run=options.dry_run)
        charged = await plane.admission.changing(call, obj, live)
        call.before, call.after = live, obj
        response = await _commit(plane, call, entry, obj, live, options, charged)
        if response is not None:
            return response
        if conditional:
            break
    raise conflict(call.resource.group, call.resource.plural, call.name, MOVED)


def _preconditions(call: Call, wanted: Object, live: Object) -> bool:
    """Refuses a change made for another object or another state of it; says whether it was bound to a state."""
    metadata = wanted["metadata"]
    uid = metadata.get("uid")
    if uid and call.verb == "update" and uid != live["metadata"]["uid"]:
        raise conflict(call.resource.group, call.resource.plural, call.name, _other_uid(call, uid, live["metadata"]["uid"]))
    given = metadata.get("resourceVersion")
    if not given or given == "0":
        if call.resource.unconditional_update:
            return False
        error = FieldError.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(call.resource.group, call.resource.plural, call.name, [error])
    if given != live["metadata"]["resourceVersion"]:
        if not given.isdigit():
            error = FieldError.invalid("metadata.resourceVersion", given, "must be an unsigned integer")
            raise call.invalid(call.name, [error])
        raise conflict(call.resource.group, call.resource.plural, call.name, MOVED)
    # A patch starts from the live object and carries its version along: made again, it is checked again.
    return call.verb != "patch"


def _other_uid(call: Call, wanted: str, uid: str) -> str:
    """Upstream's words for an update that was meant for an object of the same name that is gone."""
    resource = call.resource
    folder = f"{resource.group}/{resource.plural}" if resource.custom else resource.plural
    key = "/".join(part for part in ("/registry", folder, call.namespace, call.name) if part)
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
    return f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"


def settle(
    plane: ControlPlane, call: Call, wanted: Object, live: Object, options: WriteOptions, *, applied: bool = False
) -> Object:
    """The new object with everything that clients do not decide put right; not yet checked."""
    resource, version = call.resource, call.codec.version
    old_meta = live["metadata"]
    part = _PARTS.get(call.subresource)
    if part is not None:
        resource.rules.default(wanted)  # fills in what a status has by itself
        obj = {**live, "metadata": _part_metadata(call, wanted["metadata"], old_meta)}
        if part in wanted:
            obj[part] = wanted[part]
        else:
            obj.pop(part, None)
        if call.rules is not resource.rules:
            call.rules.prepare_update(obj, live)
    else:
        obj = wanted
        if call.rules is resource.rules:
            _restore(obj["metadata"], old_meta, _FIXED)
        else:
            obj["metadata"] = _same_metadata(obj["metadata"], old_meta)
        if version.status:
            if "status" in live:
                obj["status"] = live["status"]
            else:
                obj.pop("status", None)
        call.rules.default(obj)
        call.rules.prepare_update(obj, live)
    metadata = obj["metadata"]
    if resource.held_by and at(obj, "status", resource.held_by) and not old_meta.get("deletionTimestamp"):
        # Also where a manifest that names no finalizers replaces it: what is held cannot go past the loop by that.
        metadata["finalizers"] = list(dict.fromkeys((*(metadata.get("finalizers") or ()), FINALIZER)))
    meant = intent_changed(obj, live, version.status)
    if meant and not applied:
        changesets.mark(call, obj, live)
    if not applied:
        _track(plane, call, live, obj, options)
    if plane.admission.completing(call, obj, live):
        meant = intent_changed(obj, live, version.status)
    annotated = part is None and resource.rules.counts_annotations
    if resource.counts_generation and (
        meant or (annotated and metadata.get("annotations") != old_meta.get("annotations"))
    ):
        metadata["generation"] = old_meta.get("generation", 0) + 1
    if applied:
        fields.keep_times(live, obj)
    return obj


def _part_metadata(call: Call, metadata: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The metadata after a write through a subresource. Of custom kinds it stays; built-in ones mostly let it be changed there too."""
    kept = _kept_by_status(call)
    if kept is None:
        return _same_metadata(metadata, old)
    changed = dict(metadata)
    _restore(changed, old, (*_FIXED, *kept))
    return changed


def _same_metadata(metadata: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """The metadata as it was, but for what the write says of who manages which field."""
    managed = metadata.get("managedFields")
    return {**old, "managedFields": managed} if managed is not None else dict(old)


def _kept_by_status(call: Call) -> tuple[str, ...] | None:
    return None if call.resource.custom else call.resource.rules.kept_by_status


def _restore(metadata: dict[str, Any], old: dict[str, Any], fixed: Sequence[str]) -> None:
    """Puts back what the write may not decide: the fields named, identity, and that deletion was asked for."""
    for field in fixed:
        if field in old:
            metadata[field] = old[field]
        else:
            metadata.pop(field, None)
    if not metadata.get("uid"):
        metadata["uid"] = old["uid"]
    if "deletionTimestamp" in old:
        metadata["deletionTimestamp"] = old["deletionTimestamp"]
        if metadata.get("deletionGracePeriodSeconds") is None and "deletionGracePeriodSeconds" in old:
            metadata["deletionGracePeriodSeconds"] = old["deletionGracePeriodSeconds"]


def intent_changed(obj: Object, live: Object, status_apart: bool) -> bool:
    """Anything but metadata, and status where it is a subresource, differs."""
    for key in obj.keys() | live.keys():
        if key in ("metadata", "apiVersion", "kind") or (key == "status" and status_apart):
            continue
        if obj.get(key) != live.get(key):
            return True
    return False


def _track(plane: ControlPlane, call: Call, live: Object | None, obj: Object, options: WriteOptions) -> None:
    fields.track(
        _hub_schema(call),
        live,
        obj,
        manager=options.manager,
        api_version=call.codec.api_version,
        subresource=call.subresource,
        now=plane.clock.timestamp(),
        schema_for_version=plane.schemas(call.resource),
        reset=reset_of(call),
        current=call.codec.is_current(live),
    )


def _hub_schema(call: Call) -> Schema:
    """The schema of the stored form: another one than the request's where the version is converted."""
    if call.codec.version.encode is not None:
        return call.resource.versions[call.resource.storage].schema
    return call.codec.version.schema


def reset_of(call: Call) -> dict[str, Any] | None:
    """Fields that a write through this path cannot change, and so cannot own."""
    if call.subresource == "status":
        kept = _kept_by_status(call)
        return fields.STATUS_ONLY if kept is None else fields.all_but_spec(kept)
    if call.rules is not call.resource.rules:
        return fields.Only(dict(call.rules.changes))
    return fields.ALL_BUT_STATUS if call.codec.version.status else None


async def _commit(
    plane: ControlPlane, call: Call, entry: Entry, obj: Object, live: Object, options: WriteOptions, charged: Charge
) -> Response | None:
    """Writes the settled object and what it was charged for; None where another writer came first."""
    codec = call.codec
    value = codec.encode(obj)
    gone = finished(call, obj)
    if not gone and (value == entry.value or _unchanged(obj, live)):
        return Response(200, codec.serve(entry.value, entry.revision))
    plane.limit(value)
    if options.dry_run:
        return Response(200, shown(served(call, obj)))
    compares, writes = charged
    write = Delete(entry.key) if gone else Put(entry.key, value)
    result = await plane.store.txn([Compare(entry.key, entry.revision), *compares], [write, *writes])
    if isinstance(result, Conflict):
        return None
    return Response(200, codec.serve(value, result))


def _unchanged(obj: Object, live: Object) -> bool:
    """Nothing is new but the order in which fields were written."""
    return same({**obj, "apiVersion": "", "kind": ""}, {**live, "apiVersion": "", "kind": ""})


def finished(call: Call, obj: Object) -> bool:
    """Deletion was asked for, and nothing holds the object any more."""
    metadata = obj["metadata"]
    return bool(
        metadata.get("deletionTimestamp") and not metadata.get("finalizers") and not call.resource.rules.holds(obj)
    )
