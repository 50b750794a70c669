"""Structural schemas: the rules that make pruning and defaulting possible, with upstream's paths and words.

In short: every field has a type, outside of the logic (`allOf`, `anyOf`, `oneOf`, `not`); the logic may only restrict
values of fields that are declared outside of it; metadata is not restricted beyond the name.
"""

from __future__ import annotations

from typing import Any

from homeostat.api.schema.values import compile_pattern
from homeostat.model.errors import FieldError

Raw = dict[str, Any]

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_NOT_IN_LOGIC = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_IGNORED_ON_METADATA = ("type", "default", "example", "externalDocs")


def structural_errors(raw: Raw, path: str) -> list[FieldError]:
    """Why a schema is not structural, sorted as upstream sorts it. The schema must be of the right form already."""
    errors: list[FieldError] = []
    _node(raw, path, "root", errors)
    _complete(raw, raw, path, path, errors)
    return sorted(errors, key=str)


def _node(raw: Raw, path: str, level: str, errors: list[FieldError]) -> None:
    kind, items, properties = raw.get("type") or "", raw.get("items"), raw.get("properties") or {}
    embedded = raw.get("x-kubernetes-embedded-resource") is True
    if kind == "array" and items is None:
        errors.append(FieldError.required(f"{path}.items", "must be specified"))
    if items is not None:
        _node(items, f"{path}.items", "item", errors)
    for name, child in properties.items():
        _node(child, f"{path}.properties[{name}]", "field", errors)
    extra = raw.get("additionalProperties")
    if extra is not None:
        if level == "root":
            errors.append(FieldError.forbidden(f"{path}.additionalProperties", "must not be used at the root"))
        if type(extra) is dict:
            _node(extra, f"{path}.additionalProperties", "field", errors)
        if embedded:
            why = "must not be used if x-kubernetes-embedded-resource is set"
            errors.append(FieldError.forbidden(f"{path}.additionalProperties", why))
    _extensions(raw, path, errors)
    any_of, all_of = raw.get("anyOf") or [], raw.get("allOf") or []
    _logic(
        raw,
        path,
        errors,
        skip_any_of=any_of == _INT_OR_STRING,
        skip_first_all_of=bool(all_of) and all_of[0].get("anyOf") == _INT_OR_STRING,
    )
    _type(raw, kind, path, level, errors)
    _resource(raw, path, level, errors)


def _extensions(raw: Raw, path: str, errors: list[FieldError]) -> None:
    if raw.get("x-kubernetes-int-or-string") is True:
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if raw.get(name) is True:
                why = "must be false if x-kubernetes-int-or-string is true"
                errors.append(FieldError.invalid(f"{path}.{name}", True, why))


def _type(raw: Raw, kind: str, path: str, level: str, errors: list[FieldError]) -> None:
    if raw.get("x-kubernetes-embedded-resource") is True and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        at = f"{path}.type"
        errors.append(FieldError.invalid(at, kind, why) if kind else FieldError.required(at, why))
    elif not kind and not (
        raw.get("x-kubernetes-int-or-string") is True or raw.get("x-kubernetes-preserve-unknown-fields") is True
    ):
        errors.append(FieldError.required(f"{path}.type", _EMPTY_TYPE[level]))
    if level == "root" and kind and kind != "object":
        errors.append(FieldError.invalid(f"{path}.type", kind, "must be object at the root"))


def _resource(raw: Raw, path: str, level: str, errors: list[FieldError]) -> None:
    """What holds where apiVersion, kind and metadata have their usual meaning: the root and embedded resources."""
    properties = raw.get("properties") or {}
    embedded = raw.get("x-kubernetes-embedded-resource") is True
    checked = level == "root" or embedded
    for name in ("kind", "apiVersion"):
        if checked and name in properties and (given := properties[name].get("type") or "") != "string":
            errors.append(FieldError.invalid(f"{path}.properties[{name}].type", given, "must be string"))
    meta = properties.get("metadata")
    if meta is not None:
        at = f"{path}.properties[metadata]"
        if checked and meta.get("type") != "object":
            errors.append(FieldError.invalid(f"{at}.type", meta.get("type") or "", "must be object"))
        if level == "root" and not _only_names(meta):
            why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errors.append(FieldError.forbidden(at, why))
    if embedded and raw.get("x-kubernetes-preserve-unknown-fields") is not True and not properties:
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        errors.append(FieldError.required(f"{path}.properties", why))


def _only_names(meta: Raw) -> bool:
    fields = set(meta.get("properties") or ())
    rest = {k for k, v in meta.items() if v not in (None, "", False) and v != [] and v != {}}
    return fields <= {"name", "generateName"} and rest <= {*_IGNORED_ON_METADATA, "properties"}


def _logic(
    raw: Raw,
    path: str,
    errors: list[FieldError],
    *,
    skip_any_of: bool = False,
    skip_first_all_of: bool = False,
) -> None:
    if not skip_any_of:
        for i, branch in enumerate(raw.get("anyOf") or ()):
            _branch(branch, f"{path}.anyOf[{i}]", errors)
    for i, branch in enumerate(raw.get("allOf") or ()):
        _branch(branch, f"{path}.allOf[{i}]", errors, skip_any_of=skip_first_all_of and i == 0)
    for i, branch in enumerate(raw.get("oneOf") or ()):
        _branch(branch, f"{path}.oneOf[{i}]", errors)
    if raw.get("not") is not None:
        _branch(raw["not"], f"{path}.not", errors)
    if pattern := raw.get("pattern"):
        try:
            compile_pattern(pattern)
        except ValueError as why:
            detail = f"must be a valid regular expression, but isn't: {why}"
            errors.append(FieldError.invalid(f"{path}.pattern", pattern, detail))


def _branch(raw: Raw, path: str, errors: list[FieldError], *, skip_any_of: bool = False) -> None:
    _logic(raw, path, errors, skip_any_of=skip_any_of)
    if raw.get("items") is not None:
        _branch(raw["items"], f"{path}.items", errors)
    for name, child in (raw.get("properties") or {}).items():
        _branch(child, f"{path}.properties[{name}]", errors)
    for name, why in _NOT_IN_LOGIC.items():
        value = raw.get(name)
        # additionalProperties may be false and still be there; a default may be anything but null.
        given = value is not None if name in ("additionalProperties", "default") else bool(value)
        if given:
            errors.append(FieldError.forbidden(f"{path}.{name}", why))
    if "metadata" in (raw.get("properties") or {}):
        why = "must not be specified in a nested context"
        errors.append(FieldError.forbidden(f"{path}.properties[metadata]", why))


def _complete(logic: Raw, raw: Raw | None, path: str, logic_path: str, errors: list[FieldError]) -> None:
    """Whatever the logic speaks of must be declared outside of it."""
    branches = [(f"{logic_path}.not", logic["not"])] if logic.get("not") is not None else []
    for name in ("allOf", "anyOf", "oneOf"):
        branches += [(f"{logic_path}.{name}[{i}]", b) for i, b in enumerate(logic.get(name) or ())]
    for at, branch in branches:
        _complete_branch(branch, raw, path, at, errors)


def _complete_branch(branch: Raw, raw: Raw | None, path: str, at: str, errors: list[FieldError]) -> None:
    if raw is None:
        errors.append(FieldError.required(path, f"because it is defined in {at}"))
        return
    _complete(branch, raw, path, at, errors)
    if branch.get("items") is not None:
        _complete_branch(branch["items"], raw.get("items"), f"{path}.items", f"{at}.items", errors)
    declared = raw.get("properties") or {}
    for name, child in (branch.get("properties") or {}).items():
        field, inside = f"{path}.properties[{name}]", f"{at}.properties[{name}]"
        _complete_branch(child, declared.get(name), field, inside, errors)
