"""Delete: at once where nothing holds an object, otherwise marked, until its finalizers are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from homeostat.api.builtin.types import schema_of
from homeostat.api.call import Call, integer
from homeostat.api.changesets import mark_deleted
from homeostat.api.codec import encode
from homeostat.api.intake import decode_body
from homeostat.api.read import PAGE, Window, encode_token, not_older, pages, unreadable
from homeostat.api.request import Response, success_response
from homeostat.api.resource import Object, split_key
from homeostat.api.schema import FOREGROUND, ORPHAN, decode_errors
from homeostat.api.select import matcher_for
from homeostat.api.shape import Shape
from homeostat.api.write import MOVED, RETRIES, finished
from homeostat.model.errors import ApiError, FieldError, bad_request, conflict, invalid
from homeostat.store import Compacted, Compare, Conflict, Delete, Entry, FutureRevision, Put

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane

POLICIES = ("Foreground", "Background", "Orphan")


class DeleteOptions(msgspec.Struct):
    """How to delete: what becomes of dependents, and for which object and state of it this was meant."""

    policy: str = ""
    unsaid: str = ""  # the policy where neither the request nor the object says one
    orphan_asked: bool = False  # the old spelling of the policy was used
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


def read_options(call: Call) -> DeleteOptions:
    """From the body, or from the query where there is none."""
    raw: dict[str, Any] = {}
    if call.request.body:
        raw, _ = decode_body(call.request, "DeleteOptions")
        if isinstance(raw, dict) and (kind := raw.get("kind") or "DeleteOptions") != "DeleteOptions":
            raise bad_request(f"the body of a delete must be DeleteOptions, not {kind}")
        named = {"kind": "DeleteOptions", **raw} if isinstance(raw, dict) else raw
        _, problems = decode_errors(schema_of("v1", "DeleteOptions"), named)
        if problems:
            raise bad_request(problems[0])
        raw = named
    params = call.request.params
    policy = raw.get("propagationPolicy") or params.get("propagationPolicy", "")
    orphan = raw.get("orphanDependents")
    if orphan is None and "orphanDependents" in params:
        orphan = call.request.flag("orphanDependents")
    dry_run = raw.get("dryRun") or ([params["dryRun"]] if params.get("dryRun") else [])
    integer(params, "gracePeriodSeconds")  # nobody is given time here, but what is asked for must make sense
    preconditions = raw.get("preconditions") or {}
    _check(policy, orphan, dry_run)
    rules = call.resource.rules
    if orphan is not None:
        policy = "Orphan" if orphan else "Background"
    elif not policy and rules.orphans_warning:
        call.warnings.append(rules.orphans_warning)
    return DeleteOptions(
        policy=policy,
        unsaid="Orphan" if rules.orphans else "",
        orphan_asked=orphan is not None,
        uid=preconditions.get("uid") or "",
        revision=preconditions.get("resourceVersion") or "",
        dry_run=bool(dry_run),
    )


def _check(policy: str, orphan: bool | None, dry_run: list[str]) -> None:
    errors: list[FieldError] = []
    if policy and orphan is not None:
        errors.append(
            FieldError.invalid(
                "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
            )
        )
    if policy and policy not in POLICIES:
        errors.append(FieldError.not_supported("propagationPolicy", policy, [*POLICIES, "nil"]))
    if dry_run not in ([], ["All"]):
        errors.append(FieldError.not_supported("dryRun", dry_run, ["All"]))
    if errors:
        raise invalid("meta.k8s.io", "DeleteOptions", "", errors)


async def delete(plane: ControlPlane, call: Call) -> Response:
    """DELETE of one object: answers with what is left of it, or that nothing is."""
    options = read_options(call)
    obj, gone, revision = await remove(plane, call, options)
    if not gone or call.resource.returns_deleted:
        status = 200 if gone or not options.orphan_asked or options.policy == "Orphan" else 202
        # Only a kind that ends gracefully is marked before it goes; the others are shown as they were.
        shown = obj if not gone or call.resource.rules.graceful else call.before or obj
        return Response(status, call.codec.serve(encode(shown), revision))
    details: dict[str, Any] = {"name": call.name, "kind": call.resource.plural, "uid": obj["metadata"]["uid"]}
    if call.resource.group:
        details["group"] = call.resource.group
    return success_response(details=details)


async def remove(plane: ControlPlane, call: Call, options: DeleteOptions) -> tuple[Object, bool, int]:
    """Deletes or marks one object; gives its last form, whether it is gone, and the revision of that."""
    for _ in range(RETRIES):
        entry = await plane.store.get(call.key)
        if entry is None:
            raise call.not_found()
        live = plane.hub(call).load_entry(entry)
        _preconditions(call, live, options)
        obj = _marked(plane, call, live, options)
        call.before, call.after = live, None
        gone = finished(call, obj)
        plane.admission.deleting(call)
        plane.permit(call, None, live)
        if plane.policies.active and not call.subresource:
            await plane.admit(call, "DELETE", None, live, dry_run=options.dry_run)
        value = encode(obj)
        if options.dry_run or (not gone and value == entry.value):
            return obj, gone, entry.revision
        write = Delete(entry.key) if gone else Put(entry.key, value)
        result = await plane.store.txn([Compare(entry.key, entry.revision)], [write])
        if not isinstance(result, Conflict):
            return obj, gone, result
        if options.revision:
            break
    raise conflict(call.resource.group, call.resource.plural, call.name, MOVED)


def _preconditions(call: Call, live: Object, options: DeleteOptions) -> None:
    metadata = live["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        why = f"UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']})"
        what = "deleted and then recreated"
    elif options.revision and options.revision != metadata["resourceVersion"]:
        given, found = options.revision, metadata["resourceVersion"]
        why = f"ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({found})"
        what = "modified"
    else:
        return
    # Here, and only here, upstream names the kind where it otherwise names the resource.
    raise conflict(call.resource.group, call.resource.kind, call.name, f"the {why}. The object might have been {what}")


def _marked(plane: ControlPlane, call: Call, live: Object, options: DeleteOptions) -> Object:
    """The object as it is once its deletion was asked for."""
    metadata = dict(live["metadata"])
    obj = {**live, "metadata": metadata}
    finalizers = [f for f in metadata.get("finalizers", ()) if f not in (FOREGROUND, ORPHAN)]
    policy = options.policy or _standing_policy(metadata) or options.unsaid
    if policy == "Orphan":
        finalizers.append(ORPHAN)
    elif policy == "Foreground":
        finalizers.append(FOREGROUND)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if not metadata.get("deletionTimestamp"):
        metadata["deletionTimestamp"] = plane.clock.timestamp()
        metadata["deletionGracePeriodSeconds"] = 0
        if metadata.get("generation"):
            metadata["generation"] += 1
        mark_deleted(call, obj)
        call.resource.rules.begin_deletion(obj)
    return obj


def _standing_policy(metadata: dict[str, Any]) -> str:
    """What an earlier delete, or the creator by a finalizer, already decided."""
    finalizers = metadata.get("finalizers", ())
    return "Orphan" if ORPHAN in finalizers else "Foreground" if FOREGROUND in finalizers else ""


async def delete_collection(plane: ControlPlane, call: Call) -> Response:
    """Deletes everything the selectors mean, or as many as the limit says, one by one; answers with the list of what was."""
    options = read_options(call)
    matcher = matcher_for(call)
    window = Window(call)
    not_older(plane, window.at_least)
    shape = Shape(call.resource, call.codec)
    meant: list[Entry] = []
    token = ""
    try:
        first = await plane.store.range(call.prefix, after=window.after, revision=window.revision, limit=PAGE)
    except (Compacted, FutureRevision) as error:
        raise unreadable(error, window, call.prefix) from None
    async for page in pages(plane.store, call.prefix, first):
        for entry in page.entries:
            if window.limit and len(meant) == window.limit:
                token = encode_token(first.revision, meant[-1].key, call.prefix)
                break
            if matcher is None or matcher.matches(entry.key, entry.value):
                await _remove_if_there(plane, _one_of(call, entry.key), options)
                meant.append(entry)
        if token:
            break
    body = shape.open_list(first.revision, token) + b",".join(shape.items(meant)) + shape.close
    return Response(200, body)


async def _remove_if_there(plane: ControlPlane, call: Call, options: DeleteOptions) -> None:
    try:
        await remove(plane, call, options)
    except ApiError as error:
        if error.reason != "NotFound":
            raise


def _one_of(call: Call, key: str) -> Call:
    """The same call, for one object of the collection."""
    _, namespace, name = split_key(key)
    return Call(call.request, call.user, "delete", call.resource, call.codec, namespace, name)
