"""Patches as they come in: their media types, their bodies, and the objects that they make of others."""

from __future__ import annotations

from typing import Any

import orjson

from homeostat.api.call import Call, WriteOptions
from homeostat.api.intake import fit, locate, metadata_problem, wrong_kind, wrong_type
from homeostat.api.patch import (
    apply_json_patch,
    apply_merge_patch,
    apply_strategic_merge_patch,
    unknown_operation_fields,
)
from homeostat.api.resource import Object
from homeostat.api.wording import json_word, plain
from homeostat.model.encoding import Malformed, decode_json
from homeostat.model.errors import ApiError, FieldError, bad_request, invalid, unsupported_media_type
from homeostat.model.protocol import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from homeostat.model.schema import Schema


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
