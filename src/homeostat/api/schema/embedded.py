"""Objects inside objects (`x-kubernetes-embedded-resource`): they carry apiVersion, kind and metadata of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from homeostat.api.schema.compiled import anywhere, compiled
from homeostat.api.schema.decode import metadata_type_error
from homeostat.api.schema.metadata import validate_metadata
from homeostat.model.errors import FieldError
from homeostat.model.names import dns1035_problems, path_segment_problems
from homeostat.model.schema import Schema

_Judge = Callable[[dict[str, Any], str], list[FieldError]]


def has_embedded(schema: Schema) -> bool:
    """Does the schema hold an embedded resource anywhere?"""
    memo = compiled(schema)
    if memo.embedded is None:
        memo.embedded = anywhere(schema, lambda node: node.embedded)
    return memo.embedded


def embedded_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """What is wrong with the type and metadata of embedded resources, at any depth."""
    if not has_embedded(schema):
        return []
    errors: list[FieldError] = []
    _walk(schema, value, path, errors, resource_errors)
    return errors


def embedded_type_error(schema: Schema, value: Any) -> str:
    """The first embedded resource whose apiVersion, kind or metadata is of another type; empty where all are well."""
    if not has_embedded(schema):
        return ""
    errors: list[FieldError] = []
    _walk(schema, value, "", errors, _type_errors)
    return str(errors[0]) if errors else ""


def _walk(schema: Schema, value: Any, path: str, errors: list[FieldError], judge: _Judge) -> None:
    if type(value) is dict:
        if schema.embedded:
            errors.extend(judge(value, path))
        properties, extra = schema.properties, schema.additional
        for key, item in value.items():
            child = properties.get(key)
            if child is not None:
                _walk(child, item, f"{path}.{key}" if path else key, errors, judge)
            elif extra is not None:
                _walk(extra, item, f"{path}[{key}]", errors, judge)
    elif type(value) is list and schema.items is not None:
        for i, item in enumerate(value):
            _walk(schema.items, item, f"{path}[{i}]", errors, judge)


def _type_errors(value: dict[str, Any], path: str) -> list[FieldError]:
    """Where no Go type could hold the apiVersion, kind or metadata of an embedded resource."""
    at = f"{path}." if path else ""
    errors = [
        FieldError.invalid(f"{at}{name}", value[name], "must be a string")
        for name in ("apiVersion", "kind")
        if type(value.get(name, "")) is not str
    ]
    wrong = metadata_type_error(value["metadata"]) if "metadata" in value else ""
    return [*errors, FieldError.invalid(f"{at}metadata", value["metadata"], wrong)] if wrong else errors


def resource_errors(value: dict[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the apiVersion, kind and metadata of one embedded resource."""
    errors = _type_errors(value, path)
    at = f"{path}." if path else ""
    errors.extend(FieldError.required(f"{at}{name}") for name in ("apiVersion", "kind") if name not in value)
    for name in ("apiVersion", "kind"):
        if name not in value:
            continue
        text = value[name]
        if type(text) is not str:
            continue
        if not text:
            errors.append(FieldError.invalid(f"{at}{name}", text, "must not be empty"))
        elif name == "apiVersion" and text.count("/") > 1:
            errors.append(FieldError.invalid(f"{at}apiVersion", text, f"unexpected GroupVersion string: {text}"))
        elif name == "kind" and (problems := dns1035_problems(text.lower())):
            why = "may have mixed case, but should otherwise match: " + ",".join(problems)
            errors.append(FieldError.invalid(f"{at}kind", text, why))
    if "metadata" in value:
        meta = value["metadata"]
        if meta is not None and not metadata_type_error(meta):
            named = meta if meta.get("name") else {**meta, "name": "fakename"}  # a name is not asked for here
            errors.extend(
                validate_metadata(
                    named,
                    namespaced=bool(meta.get("namespace")),
                    name_problems=path_segment_problems,
                    path=f"{at}metadata",
                )
            )
    return errors
