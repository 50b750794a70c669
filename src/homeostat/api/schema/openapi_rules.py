"""What upstream asks of the OpenAPI schema in a CustomResourceDefinition, beyond being structural."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from homeostat.model.errors import FieldError
from homeostat.model.schema import TYPE_AND_METADATA

Raw = dict[str, Any]

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_QUADRATIC = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"


class _Place(msgspec.Struct, frozen=True):
    """Where in the resource a schema stands, as far as rules depend on it."""

    root: bool = False
    in_metadata: bool = False
    no_defaults: str | None = None  # why defaults are forbidden here


def openapi_errors(raw: Raw, path: str) -> list[FieldError]:
    """Everything upstream forbids in the schema of a custom resource; `path` is that of the root schema."""
    errors: list[FieldError] = []
    _check(raw, path, _Place(root=True), errors)
    return errors


def unsupported_field(raw: Raw) -> str:
    """The first field that no structural schema may have, worded as upstream does; empty where there is none."""
    for name, label in (("id", "id"), ("$schema", "schema"), ("$ref", "$ref")):
        if raw.get(name):
            return f"OpenAPIV3Schema '{label}' is not supported"
    return ""


def _check(raw: Raw, path: str, place: _Place, errors: list[FieldError]) -> None:
    _standard(raw, path, place, errors)
    if raw.get("uniqueItems") is True:
        errors.append(FieldError.forbidden(f"{path}.uniqueItems", _QUADRATIC))
    below = replace(place, root=False)
    _properties(raw, path, place, below, errors)
    if raw.get("not") is not None:
        _check(raw["not"], f"{path}.not", below, errors)
    for name in ("allOf", "oneOf", "anyOf"):
        for i, branch in enumerate(raw.get(name) or ()):
            _check(branch, f"{path}.{name}[{i}]", below, errors)
    for name, child in (raw.get("definitions") or {}).items():
        _check(child, f"{path}.definitions[{name}]", below, errors)
    items = raw.get("items")
    if type(items) is dict:
        _check(items, f"{path}.items", below, errors)
    elif type(items) is list:
        for i, child in enumerate(items):
            _check(child, f"{path}.items[{i}]", below, errors)
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        at = f"{path}.x-kubernetes-preserve-unknown-fields"
        errors.append(FieldError.invalid(at, False, "must be true or undefined"))
    _map_type(raw, path, errors)
    _list_type(raw, path, errors)


def _standard(raw: Raw, path: str, place: _Place, errors: list[FieldError]) -> None:
    kind = raw.get("type") or ""
    if kind and kind not in TYPES:
        errors.append(FieldError.not_supported(f"{path}.type", kind, TYPES))
    if raw.get("default") is not None and place.no_defaults is not None:
        errors.append(FieldError.forbidden(f"{path}.default", f"must not be set {place.no_defaults}".rstrip()))
    for name in _UNSUPPORTED:
        value = raw.get(name)
        # Some of these are only looked at where they say something, others where they are there at all.
        given = value is not None if name in ("additionalItems", "dependencies", "$ref") else bool(value)
        if given:
            errors.append(FieldError.forbidden(f"{path}.{name}", f"{name} is not supported"))
    if kind == "null":
        why = "type cannot be set to null, use nullable as an alternative"
        errors.append(FieldError.forbidden(f"{path}.type", why))
    if type(raw.get("items")) is list and raw["items"]:
        errors.append(FieldError.forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if place.in_metadata and raw.get("x-kubernetes-embedded-resource") is True:
        at = f"{path}.x-kubernetes-embedded-resource"
        errors.append(FieldError.forbidden(at, "must not be used inside of resource meta"))


def _properties(raw: Raw, path: str, place: _Place, below: _Place, errors: list[FieldError]) -> None:
    properties, extra = raw.get("properties") or {}, raw.get("additionalProperties")
    if extra is not None:
        if properties and extra is not True:
            why = "additionalProperties and properties are mutual exclusive"
            errors.append(FieldError.forbidden(f"{path}.additionalProperties", why))
        if type(extra) is dict:
            inside = below
            if place.in_metadata:
                inside = replace(below, no_defaults="inside additionalProperties applying to object metadata")
            _check(extra, f"{path}.additionalProperties", inside, errors)
    resource = place.root or raw.get("x-kubernetes-embedded-resource") is True
    for name, child in properties.items():
        inside = below
        if resource and name in TYPE_AND_METADATA:
            no_defaults = f"in top-level {name}" if place.root else below.no_defaults
            inside = replace(below, in_metadata=True, no_defaults=no_defaults)
        _check(child, f"{path}.properties[{name}]", inside, errors)


def _map_type(raw: Raw, path: str, errors: list[FieldError]) -> None:
    map_type = raw.get("x-kubernetes-map-type")
    if map_type is None:
        return
    _wants_type(raw, path, "object", "x-kubernetes-map-type", errors)
    if map_type not in ("atomic", "granular"):
        at = f"{path}.x-kubernetes-map-type"
        errors.append(FieldError.not_supported(at, map_type, ("atomic", "granular")))


def _wants_type(raw: Raw, path: str, wanted: str, reason: str, errors: list[FieldError]) -> bool:
    kind = raw.get("type") or ""
    if kind == wanted:
        return True
    why = f"must be {wanted} if {reason} is specified"
    errors.append(FieldError.invalid(f"{path}.type", kind, why) if kind else FieldError.required(f"{path}.type", why))
    return False


def _list_type(raw: Raw, path: str, errors: list[FieldError]) -> None:
    list_type, items = raw.get("x-kubernetes-list-type"), raw.get("items")
    keys = raw.get("x-kubernetes-list-map-keys") or []
    at = f"{path}.x-kubernetes-list-type"
    if list_type is not None:
        is_array = _wants_type(raw, path, "array", "x-kubernetes-list-type", errors)
        if is_array and list_type == "set" and type(items) is dict:
            _set_items(items, path, errors)
        if list_type not in ("atomic", "set", "map"):
            errors.append(FieldError.not_supported(at, list_type, ("atomic", "set", "map")))
    if keys and list_type != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        errors.append(FieldError.required(at, why) if list_type is None else FieldError.invalid(at, list_type, why))
    if list_type == "map":
        _map_items(items, keys, path, errors)
    if list_type in ("set", "map") and type(items) is dict:
        _no_nulls(items, keys if list_type == "map" else [], list_type, path, errors)


def _set_items(items: Raw, path: str, errors: list[FieldError]) -> None:
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    inner = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and inner not in (None, "atomic"):
        errors.append(FieldError.invalid(f"{path}.items.x-kubernetes-list-type", inner, why))
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        errors.append(FieldError.invalid(f"{path}.items.x-kubernetes-map-type", inner, why))


def _map_items(items: Any, keys: list[str], path: str, errors: list[FieldError]) -> None:
    at_keys = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        errors.append(FieldError.required(at_keys, "must not be empty if x-kubernetes-list-type is map"))
    if items is None:
        errors.append(FieldError.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map"))
        return
    if type(items) is not dict:
        why = "must only have a single schema if x-kubernetes-list-type is map"
        errors.append(FieldError.invalid(f"{path}.items", items, why))
        return
    kind = items.get("type") or ""
    if kind != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        errors.append(FieldError.invalid(f"{path}.items.type", kind, why))
        return
    properties = items.get("properties") or {}
    for i, key in enumerate(keys):
        if key not in properties:
            errors.append(FieldError.invalid(at_keys, keys, "entries must all be names of item properties"))
        elif properties[key].get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            errors.append(FieldError.invalid(f"{path}.items.properties[{key}].type", kind, why))
        if key in keys[:i]:
            errors.append(FieldError.invalid(at_keys, keys, "must not contain duplicate entries"))


def _no_nulls(items: Raw, keys: list[str], list_type: str, path: str, errors: list[FieldError]) -> None:
    if items.get("nullable") is True:
        why = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        errors.append(FieldError.forbidden(f"{path}.items.nullable", why))
    properties, required = items.get("properties") or {}, items.get("required") or []
    for key in keys:
        child = properties.get(key)
        if child is None:
            continue
        at = f"{path}.items.properties[{key}]"
        if key not in required and child.get("default") is None:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            errors.append(FieldError.required(f"{at}.default", why))
        if child.get("nullable") is True:
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            errors.append(FieldError.forbidden(f"{at}.nullable", why))
