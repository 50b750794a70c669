"""What a client sent, made into an object of the kind it was sent to: decoded, recognised, pruned, defaulted, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from homeostat.api.builtin.checks import INT32_MAX
from homeostat.api.builtin.namespaces import FINALIZER as NAMESPACE_FINALIZER
from homeostat.api.builtin.wire import decode_protobuf
from homeostat.api.call import Call, WriteOptions
from homeostat.api.request import Request
from homeostat.api.resource import Object, Rules, Scale
from homeostat.api.schema import (
    FILL_LIMIT,
    FOREGROUND,
    NOTHING,
    ORPHAN,
    decode_errors,
    default,
    embedded_type_error,
    metadata_type_error,
    prune,
    refit,
    validate,
    validate_metadata,
)
from homeostat.api.wording import json_word, plain, type_word
from homeostat.model.encoding import YAML_DOUBLES, Malformed, decode_json, decode_yaml
from homeostat.model.errors import UNSET, ApiError, FieldError, bad_request, invalid, too_large, unsupported_media_type
from homeostat.model.protocol import JSON, PROTOBUF, YAML, YAML_TYPES

OBJECT_TYPES = f"{JSON}, {YAML}, {PROTOBUF}"
"""What the body of a write may be."""
_BREAKING = frozenset(
    {
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
        "FieldValueNotSupported",
    }
)
_RULES_SKIPPED = FieldError.invalid(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
)
_SCHEME = "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"
_SHOWN = 30
STANDARD_FINALIZERS = frozenset({NAMESPACE_FINALIZER, ORPHAN, FOREGROUND})
"""Finalizers that need no domain: the control plane's own."""
WARNING_LIMIT = 40
"""Warnings sent with one answer; more would only hide the first."""


def decode_body(request: Request, kind: str) -> tuple[Any, list[str]]:
    """The body, which should be a `kind`, and its fields that stand twice. JSON unless the content type says YAML."""
    given = request.header(b"content-type")
    media = given.partition(";")[0].strip().lower()
    if not given or media == JSON:
        decode, how = decode_json, "couldn't get version/kind; json parse error: "
    elif media in YAML_TYPES:
        decode, how = decode_yaml, "yaml: "
    elif media == PROTOBUF:
        decode, how = decode_protobuf, ""
    else:
        raise unsupported_media_type(OBJECT_TYPES)
    try:
        return decode(request.body)
    except Malformed as error:
        raise _unrecognised(kind, f"{how}{error}", request.body) from None


def _unrecognised(kind: str, why: str, body: bytes) -> ApiError:
    """The body is no object at all; it is shown, as far as it can be, for the person who sent it."""
    text = body[:_SHOWN].decode(errors="replace") if body[:1] == b"{" else body[:_SHOWN].hex()
    shown = (text + " ..." if len(body) > _SHOWN else text) or "<empty>"
    return bad_request(f"the object provided is unrecognized (must be of type {kind}): {why} ({shown})")


def read_object(call: Call, options: WriteOptions) -> Object:
    """The object in the body, fit for `conform`: of the right kind, in the right namespace, under the right name."""
    obj, options.doubled = decode_body(call.request, call.resource.kind)
    if not isinstance(obj, dict):
        if obj is not None or call.resource.custom:
            why = f"couldn't get version/kind; json parse error: json: cannot unmarshal {json_word(obj)} into an object"
            raise _unrecognised(call.resource.kind, why, call.request.body)
        obj = {}
    _recognise(call, obj)
    place(call, obj)
    return obj


def _recognise(call: Call, obj: Object) -> None:
    """Refuses an object of another kind than the path names. Built-in kinds may leave out what the path says."""
    kind, given_kind, given = call.resource.kind, obj.get("kind") or "", obj.get("apiVersion") or ""
    if not call.resource.custom:
        given_kind = obj["kind"] = given_kind or kind
        given = obj["apiVersion"] = given or call.codec.api_version
        if given_kind != kind or given != call.codec.api_version:
            raise wrong_kind(given_kind, given, kind)
    elif not given_kind:
        body = call.request.body
        raise _unrecognised(kind, f"Object 'Kind' is missing in '{body.decode(errors='replace')}'", body)
    elif given != call.codec.api_version:
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({call.codec.api_version})"
        )
    elif given_kind != kind:
        raise wrong_type(call, obj, "kind", given_kind, kind)


def wrong_kind(given: str, api_version: str, kind: str) -> ApiError:
    """400: a built-in kind cannot be made of what was sent."""
    why = f'no kind "{given}" is registered for version "{api_version}" in scheme "{_SCHEME}"'
    version = str(api_version).rpartition("/")[2]
    return bad_request(f'{given} in version "{version}" cannot be handled as a {kind}: {why}')


def wrong_type(call: Call, obj: Object, field: str, given: str, wanted: str) -> ApiError:
    """422: an object of a custom kind says that it is of another."""
    group = str(obj.get("apiVersion") or "").rpartition("/")[0]
    error = FieldError.invalid(field, given, f"must be {wanted}")
    return invalid(group, str(obj.get("kind") or ""), call.name or name_of(obj), [error])


def name_of(obj: Object) -> str:
    """The name an object was sent with; empty where it has none, or metadata is no metadata."""
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def cannot_handle(call: Call, problem: str) -> ApiError:
    """400: what was sent cannot be read as the kind that it should be."""
    kind = call.resource.kind
    return bad_request(f'{kind} in version "{call.codec.version.name}" cannot be handled as a {kind}: {problem}')


def place(call: Call, obj: Object, *, nameless: bool = False) -> None:
    """Sees to it that the object's metadata is metadata, and that it lies where the path says (`locate`)."""
    problem = metadata_problem(call, obj)
    if problem:
        raise cannot_handle(call, problem)
    locate(call, obj["metadata"], nameless=nameless)


def locate(call: Call, metadata: Object, *, nameless: bool = False) -> None:
    """Sees to it that an object lies where the path says. It must say its name, unless `nameless`."""
    given = metadata.get("namespace") or ""
    if call.resource.namespaced:
        if given and given != call.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = call.namespace
    elif given:
        del metadata["namespace"]
    name = metadata.get("name") or ""
    if call.name and not name:
        if not nameless:
            raise unnamed(call)
    elif call.name and name != call.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({call.name})")
    if not nameless and metadata.get("ownerReferences"):
        _name_owners_once(call, metadata)


def metadata_problem(call: Call, obj: Object) -> str:
    """Why the object's metadata cannot be read; empty where it can. None becomes empty metadata."""
    metadata = obj.get("metadata")
    if metadata is None:
        metadata = obj["metadata"] = {}
    problem = metadata_type_error(metadata)
    if problem and not call.resource.custom:  # the decoder of the whole type names the field from there
        whole = {"kind": call.resource.kind, "metadata": metadata}
        problem = decode_errors(call.codec.version.schema, whole)[1][0]
    return problem


def _name_owners_once(call: Call, metadata: Object) -> None:
    """Leaves out owners that are there twice, and says so: the same claim made again is no second one."""
    kept: list[Object] = []
    twice: list[str] = []
    for owner in metadata["ownerReferences"]:
        if owner in kept:
            twice.append(owner.get("uid") or "")
        else:
            kept.append(owner)
    if twice:
        metadata["ownerReferences"] = kept
        when = " after mutating admission happens" if call.verb == "patch" else ""
        call.warnings.append(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and "
            f"may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {', '.join(twice)}"
        )


def unnamed(call: Call) -> ApiError:
    """400: the object must say its name, although the path does."""
    why = "was undeterminable: name must be provided"
    return bad_request(f"the name of the object ({call.name} based on URL) {why}")


def strictness(call: Call, options: WriteOptions, problems: list[str]) -> str:
    """Unknown and doubled fields: warned about, let be, or given back as the reason to refuse, as the request asks."""
    if not problems or options.validation == "Ignore":
        return ""
    if options.validation == "Strict":
        return f"strict decoding error: {', '.join(problems)}"
    for problem in problems:
        lines = problem.split("\n")[1:] if problem.startswith(YAML_DOUBLES) else [problem]
        call.warnings.extend(line.strip() for line in lines[: WARNING_LIMIT - len(call.warnings)])
    return ""


def fit(call: Call, obj: Object, options: WriteOptions, before: Object | None = None) -> str:
    """Prunes what the schema does not know and fills in its defaults, in place. Gives why that cannot be, or nothing.

    `before`: what it was made of, as it was read.
    """
    schema = call.codec.version.schema
    unknown: list[str] = []
    if call.resource.custom:
        before = None if call.codec.narrows else before
        fitting = refit(schema, obj, before or NOTHING, current=call.codec.is_current(before))
        call.fitting = fitting or NOTHING
        if fitting is None:
            problem = embedded_type_error(schema, obj)
            if problem:
                return problem
            unknown = prune(schema, obj)
            if not default(schema, obj):
                raise too_large(FILL_LIMIT)
    else:
        unknown, problems = decode_errors(schema, obj)
        if problems:
            return problems[0]
    return strictness(call, options, options.doubled + unknown)


def conform(call: Call, obj: Object, options: WriteOptions, before: Object | None = None) -> None:
    """`fit`, for what a client sent whole: 400 where it does not."""
    problem = fit(call, obj, options, before)
    if problem:
        raise cannot_handle(call, problem)
    for holder, name in options.nulls:
        holder[name] = None
        call.fitting = NOTHING


def check(call: Call, obj: Object, old: Object | None) -> None:
    """Everything that may be wrong with an object, or with the step from its old form, in one 422."""
    resource = call.resource
    version = call.codec.version
    metadata = obj["metadata"]
    errors: list[FieldError] = list(
        validate_metadata(
            metadata,
            namespaced=resource.namespaced,
            name_problems=resource.rules.name_problems,
            old=old["metadata"] if old else None,
        )
    )
    if resource.custom:
        errors += _schema_errors(call, obj, old)
        if version.scale is not None:
            errors += _scale_errors(version.scale, obj)
        call.warnings += _finalizer_warnings(metadata, old)
        expressions = version.cel_rules()
        if expressions is not None:
            # Rules trust the types that the schema promises: where it was broken, they are not run.
            broken = any(e.reason in _BREAKING for e in errors)
            current = call.codec.is_current(old)
            errors += [_RULES_SKIPPED] if broken else expressions.validate(obj, old, forgiven=call.warnings, current=current)
    else:
        if resource.group != "apiextensions.k8s.io":  # definitions are held by a finalizer of the older form
            errors += _finalizer_errors(metadata)
        rules = call.rules
        errors += _judged(rules, obj, old)
        errors += rules.validate_create(obj) if old is None else rules.validate_update(obj, old)
        if not errors:
            call.warnings += rules.warnings(obj, old)
    if errors:
        raise call.invalid(metadata.get("name") or metadata.get("generateName") or "", errors)


def _judged(rules: Rules, obj: Object, old: Object | None) -> Sequence[FieldError]:
    """What is wrong with an object by itself. What was stored before it was judged so can still be labelled, and let go."""
    errors = rules.validate(obj)
    if not errors or old is None:
        return errors
    said = (obj.keys() | old.keys()) - {"metadata", "apiVersion", "kind"}
    known = rules.validate(old) if all(obj.get(field) == old.get(field) for field in said) else ()
    return [error for error in errors if error not in known]


def _schema_errors(call: Call, obj: Object, old: Object | None) -> list[FieldError]:
    """What the schema has against a custom object; through the status subresource only the status is looked at."""
    schema, current = call.codec.version.schema, call.codec.is_current(old)
    if call.subresource != "status" or old is None:
        return validate(schema, obj, old, current=current, fitting=call.fitting)
    status = schema.properties.get("status")
    if status is None or "status" not in obj or obj["status"] is call.fitting.get("status", UNSET):
        return []
    return validate(status, obj["status"], old.get("status"), "status", current=current)


def _finalizer_errors(metadata: Object) -> list[FieldError]:
    """Finalizers of built-in kinds belong to a domain, but for the few that the control plane itself knows."""
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        FieldError.invalid(f"metadata.finalizers[{i}]", name, why)
        for i, name in enumerate(metadata.get("finalizers") or ())
        if "/" not in name and name not in STANDARD_FINALIZERS
    ]


def _finalizer_warnings(metadata: Object, old: Object | None) -> list[str]:
    """Custom kinds may have any finalizer; new ones that others could have thought of as well are warned about."""
    finalizers = metadata.get("finalizers")
    if not finalizers:
        return []
    known = (old["metadata"].get("finalizers") or ()) if old else ()
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name '
        f"{'including a path (/) ' if '.' in name else ''}to avoid accidental conflicts with other finalizer writers"
        for name in finalizers
        if "/" not in name and name not in known and name not in STANDARD_FINALIZERS
    ]


def _scale_errors(layout: Scale, obj: Object) -> list[FieldError]:
    """The numbers of the scale subresource must be countable, also where the schema would let anything through."""
    errors = []
    for path in (layout.spec_replicas, layout.status_replicas):
        value: Any = obj
        for part in path.lstrip(".").split("."):
            if not isinstance(value, dict):
                errors.append(_inaccessible(path, value, "map[string]interface{}"))
                break
            value = value.get(part)
            if value is None:
                break
        else:
            if isinstance(value, bool) or not isinstance(value, int):
                errors.append(_inaccessible(path, value, "int64"))
            elif value < 0:
                errors.append(FieldError.invalid(path, value, "should be a non-negative integer"))
            elif value > INT32_MAX:
                errors.append(FieldError.invalid(path, value, f"should be less than or equal to {INT32_MAX}"))
    return errors


def _inaccessible(path: str, value: Any, wanted: str) -> FieldError:
    why = f"{path} accessor error: {plain(value)} is of the type {type_word(value)}, expected {wanted}"
    return FieldError.invalid(path, 0, why)
