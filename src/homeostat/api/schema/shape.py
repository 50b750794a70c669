"""Is an OpenAPI schema of the right form at all: strings where strings belong, schemas where schemas belong?

The built-in type of a CustomResourceDefinition is checked when a request is decoded; this stands behind it, so that the
rules that follow never meet a list where they look for a map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from homeostat.model.errors import FieldError

_STRING = (
    "id",
    "$schema",
    "$ref",
    "description",
    "type",
    "format",
    "title",
    "pattern",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
)
_NUMBER = ("maximum", "minimum", "multipleOf")
_COUNT = ("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties")
_FLAG = (
    "exclusiveMaximum",
    "exclusiveMinimum",
    "uniqueItems",
    "nullable",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)
_MAP = ("properties", "patternProperties", "definitions", "dependencies", "externalDocs")
_SCHEMAS = ("allOf", "anyOf", "oneOf")


def _strings(value: Any) -> bool:
    return type(value) is list and all(type(v) is str for v in value)


def _rules(value: Any) -> bool:
    texts = ("rule", "message", "messageExpression", "reason", "fieldPath")
    return _objects(value) and all(
        all(type(rule.get(text, "")) is str for text in texts) and type(rule.get("optionalOldSelf", True)) is bool
        for rule in value
    )


def _objects(value: Any) -> bool:
    return type(value) is list and all(type(v) is dict for v in value)


_FORM: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(_STRING, ("a string", lambda v: type(v) is str)),
    **dict.fromkeys(_NUMBER, ("a number", lambda v: type(v) in (int, float))),
    **dict.fromkeys(_COUNT, ("an integer", lambda v: type(v) is int)),
    **dict.fromkeys(_FLAG, ("a boolean", lambda v: type(v) is bool)),
    **dict.fromkeys(_MAP, ("an object", lambda v: type(v) is dict)),
    **dict.fromkeys(_SCHEMAS, ("a list of schemas", _objects)),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), ("a list of strings", _strings)),
    "enum": ("a list", lambda v: type(v) is list),
    "x-kubernetes-validations": ("a list of rules", _rules),
    "not": ("a schema", lambda v: type(v) is dict),
    "items": ("a schema", lambda v: type(v) is dict or _objects(v)),
    "additionalProperties": ("a schema or a boolean", lambda v: type(v) in (dict, bool)),
    "additionalItems": ("a schema or a boolean", lambda v: type(v) in (dict, bool)),
}


def shape_errors(raw: Any, path: str) -> list[FieldError]:
    """Every field of a schema, at any depth, that is not of the form it must have."""
    if type(raw) is not dict:
        return [FieldError.type_invalid(path, raw, "must be a schema")]
    errors: list[FieldError] = []
    for name, value in raw.items():
        form = _FORM.get(name)
        if form is not None and value is not None and not form[1](value):
            errors.append(FieldError.type_invalid(f"{path}.{name}", value, f"must be {form[0]}"))
    if not errors:
        for at, child in children(raw, path):
            errors.extend(shape_errors(child, at))
    return errors


def children(raw: dict[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """The schemas directly under a schema, with their paths as upstream writes them."""
    yield from ((f"{path}.properties[{name}]", child) for name, child in (raw.get("properties") or {}).items())
    for name in ("not", "items", "additionalProperties", "additionalItems"):
        child = raw.get(name)
        if type(child) is dict:
            yield f"{path}.{name}", child
        elif type(child) is list:
            yield from ((f"{path}.{name}[{i}]", entry) for i, entry in enumerate(child))
    for name in _SCHEMAS:
        yield from ((f"{path}.{name}[{i}]", child) for i, child in enumerate(raw.get(name) or ()))
    for name in ("patternProperties", "definitions"):
        yield from ((f"{path}.{name}[{key}]", child) for key, child in (raw.get(name) or {}).items())
