"""Patch and apply: what comes in as a patch, of whichever kind, and the objects that it makes of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api import changesets, fields
from homeostat.api.call import Call, WriteOptions
from homeostat.api.intake import fit, locate, metadata_problem, place, strictness, unnamed, wrong_kind, wrong_type
from homeostat.api.patch import (
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_merge_patch,
    unknown_operation_fields,
)
from homeostat.api.request import Response
from homeostat.api.resource import Object
from homeostat.api.schema import refused_nulls
from homeostat.api.wording import json_word, plain
from homeostat.api.write import change, insert, intent_changed, reset_of, served
from homeostat.model.encoding import Malformed, decode_json, decode_yaml
from homeostat.model.errors import ApiError, FieldError, bad_request, conflict, invalid, unsupported_media_type
from homeostat.model.protocol import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from homeostat.model.schema import Schema

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane


async def patch(plane: ControlPlane, call: Call) -> Response:
    """PATCH, of whichever kind the content type says."""
    media = patch_media(call)
    if media == APPLY_PATCH:
        return await apply(plane, call)
    options = WriteOptions(call, "PatchOptions")
    unused = [await plane.apart(call, 0, read_patch, call, options, media)]

    def patched(live: Object) -> Object:
        document = served(call, _own(call, live))
        # The outcome is made of the patch and is altered in place: where it must be made again, the patch is read again.
        body = unused.pop() if unused else orjson.loads(call.request.body)
        new, text = patch_document(call, document, body, media, call.codec.version.schema)
        return from_patch(call, new, options, text, document)

    return await change(plane, call, patched, options, conformed=True)


def _own(call: Call, live: Object) -> Object:
    """The live object for a change to start from. The rules of built-in kinds work in place: they get their own copy."""
    return live if call.resource.custom else orjson.loads(orjson.dumps(live))


async def apply(plane: ControlPlane, call: Call) -> Response:
    """Server-side apply: creates the object, or merges what this manager declares into it."""
    options = WriteOptions(call, "PatchOptions", applying=True)
    config = await plane.apart(call, 0, read_configuration, call, options)
    unused = [config]

    def declared() -> Object:
        """As it was sent: who takes it may alter it, so it is read anew for the next one."""
        return unused.pop() if unused else read_configuration(call)

    entry = await plane.store.get(call.key)
    if entry is None:
        plane.authorize_create(call)
        if call.subresource:
            raise call.not_found()
        if not config["metadata"].get("name"):
            raise unnamed(call)
        if config["metadata"].get("uid"):
            why = f"the provided object specified uid {config['metadata']['uid']}, and no existing object was found"
            raise conflict(call.resource.group, call.resource.plural, call.name, f"uid mismatch: {why}")
        merged = await plane.apart(call, 0, _merge_marked, plane, call, None, declared, options)
        try:
            return await insert(plane, call, merged, options, applied=True)
        except ApiError as refusal:
            if refusal.reason != "AlreadyExists":
                raise  # another writer created it between: merge into that

    def merge(live: Object) -> Object:
        merged = _merge_marked(plane, call, live, declared, options)
        return live if merged is live else _own(call, merged)

    return await change(plane, call, merge, options, applied=True)


def read_configuration(
    call: Call, options: WriteOptions | None = None, *, kind: str = "", api_version: str = ""
) -> Object:
    """What the manager declares, as it was sent: neither pruned nor defaulted, for it owns only what it says.

    It must be of the kind that the path names, or of the one given. Without options it is read once more: what stands in it
    twice has been judged.
    """
    try:
        config, doubled = decode_yaml(call.request.body)
    except Malformed as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: yaml: {error}") from None
    if config is None:
        config = {}
    if not isinstance(config, dict):
        why = f"json: cannot unmarshal {json_word(config)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    said, said_version = config.get("kind") or "", config.get("apiVersion") or ""
    if said != (kind or call.resource.kind) or said_version != (api_version or call.codec.api_version):
        group, _, version = str(said_version).rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={said}")
    if options is not None and strictness(call, options, doubled):
        raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: {', '.join(doubled)}")
    place(call, config, nameless=True)
    return config


def _merge(plane: ControlPlane, call: Call, live: Object | None, config: Object, options: WriteOptions) -> Object:
    merged = fields.apply(
        call.codec.version.schema,
        live,
        config,
        manager=options.manager,
        api_version=call.codec.api_version,
        subresource=call.subresource,
        force=options.force,
        now=plane.clock.timestamp(),
        schema_for_version=plane.schemas(call.resource),
        reset=reset_of(call),
        current=call.codec.is_current(live),
    )
    body = call.request.body
    if call.resource.custom and (b"null" in body or body[:1] != b"{"):
        options.nulls = refused_nulls(call.codec.version.schema, config, merged)
    return merged


def _merge_marked(
    plane: ControlPlane, call: Call, live: Object | None, declared: Callable[[], Object], options: WriteOptions
) -> Object:
    """The merged object with the change set of the request; one that changes nothing keeps the change set it came with."""
    config, name = declared(), changesets.change_set(call)
    if not name or changesets.says_change_set(config):
        return _merge(plane, call, live, config, options)
    base = changesets.released(live) if live is not None else None
    merged = _merge(plane, call, base, changesets.declared_with(config, name), options)
    if live is None or intent_changed(merged, live, call.codec.version.status):
        return merged
    before = changesets.own_change_set(live, options.manager)
    config = changesets.declared_with(declared(), before) if before else declared()
    return _merge(plane, call, live, config, options)


def patch_media(call: Call) -> str:
    """The kind of patch that was sent; 415 where it is none that this kind takes."""
    media = call.request.header(b"content-type").partition(";")[0].strip().lower()
    if media in (JSON_PATCH, MERGE_PATCH, APPLY_PATCH) or (media == STRATEGIC_PATCH and not call.resource.custom):
        return media
    if call.resource.custom:
        raise unsupported_media_type(f"{JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}")
    raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type")


def read_patch(call: Call, options: WriteOptions, media: str) -> Any:
    """The patch in the body; what it says twice, or a JSON patch says beyond its operations, goes to the options."""
    try:
        body, doubled = decode_json(call.request.body)
    except Malformed as error:
        prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
        raise bad_request(f"{prefix}{error}") from None
    options.doubled = doubled
    if media == JSON_PATCH and isinstance(body, list) and all(isinstance(step, dict) for step in body):
        options.doubled = [f"json patch {problem}" for problem in doubled] + unknown_operation_fields(body)
    return body


def patch_document(call: Call, document: Object, patch: Any, media: str, schema: Schema) -> tuple[Any, str]:
    """The document after the patch of a call, and the text by which a refusal of the outcome shows what was wanted."""
    if media == JSON_PATCH:
        new = apply_json_patch(document, patch)
    elif media == MERGE_PATCH:
        new = apply_merge_patch(document, patch, nulls=b"null" in call.request.body)
    else:
        return apply_strategic_merge_patch(document, patch, schema), plain(patch)
    return new, ""


def from_patch(call: Call, new: Any, options: WriteOptions, text: str, document: Object) -> Object:
    """The outcome of a patch of `document` as an object of its kind, in its stored form."""
    if not isinstance(new, dict):
        raise bad_outcome(new, text, f"json: cannot unmarshal {json_word(new)} into an object")
    kind, api_version = call.resource.kind, call.codec.api_version
    if text:  # the typed patch of built-in kinds: what it says about the kind does not count
        new |= {"apiVersion": api_version, "kind": kind}
    elif not call.resource.custom:
        new = {"apiVersion": api_version, "kind": kind, **new}
        if new["kind"] != kind or new["apiVersion"] != api_version:
            problem = wrong_kind(new["kind"], new["apiVersion"], kind).message
            raise bad_outcome(new, text, problem.partition(": ")[2])
    elif not new.get("kind") or not new.get("apiVersion"):
        missing = "apiVersion" if new.get("kind") else "Kind"
        shown = orjson.dumps(new).decode()
        raise bad_outcome(new, text, f"Object '{missing}' is missing in '{shown}'")
    elif new["kind"] != kind:
        raise wrong_type(call, new, "kind", new["kind"], kind)
    elif new["apiVersion"] != api_version:
        raise wrong_type(call, new, "apiVersion", new["apiVersion"], api_version)
    metadata = new.get("metadata")
    if isinstance(metadata, dict):
        new["metadata"] = dict(metadata)
    if not _as_it_was(metadata, document["metadata"]):  # what the patch does not touch lies where it lay
        problem = metadata_problem(call, new)
        if problem:
            raise bad_outcome(new, text, problem)
        locate(call, new["metadata"])
    problem = fit(call, new, options, document)
    if problem:
        raise bad_outcome(new, text, problem)
    return call.codec.version.decode(new) if call.codec.version.decode is not None else new


def _as_it_was(metadata: Any, before: Object) -> bool:
    """Also where the patch says what it was made for, as most do: the uid and the version that are there."""
    return metadata is before or orjson.dumps(metadata) == orjson.dumps(before)


def bad_outcome(new: Any, text: str, problem: str) -> ApiError:
    """422: the patch applies, but makes no object of the kind."""
    shown = text or orjson.dumps(new).decode()
    return invalid("", "", "", [FieldError.invalid("patch", shown, problem)])
