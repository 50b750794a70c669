"""Schemas of custom kinds as documents show them. v2 cannot say all that v3 can.

What v2 must leave out is what kubectl stumbles over: it refuses objects by a schema that it only half understands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
Raw = Mapping[str, Any]

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_UNSAID_IN_V2 = frozenset({"allOf", "anyOf", "oneOf", "not", "nullable", "default"})


def custom_v3(raw: Raw, head: dict[str, Json]) -> Json:
    """The schema with the fields that every object has (`head`). An absent one says only that it is an object."""
    if "type" not in raw:
        return {"type": "object"}
    schema = _v3(raw, head)
    return {**schema, "properties": {**schema.get("properties", {}), **head}}


def custom_v2(raw: Raw, head: dict[str, Json]) -> Json:
    """The schema as far as v2 can say it. Where unknown fields are kept at the root, no field may be named at all."""
    if "type" not in raw or raw.get(_PRESERVE):
        return {"type": "object"}
    schema = _v2(raw, head)
    return {**schema, "properties": {**schema.get("properties", {}), **head}}


def _v3(raw: Raw, head: dict[str, Json]) -> Json:
    schema = _nested(raw, head, _v3)
    if raw.get(_INT_OR_STRING) and "anyOf" not in schema:
        schema["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return _embed(schema, head) if raw.get(_EMBEDDED) else schema


def _v2(raw: Raw, head: dict[str, Json]) -> Json:
    schema = {key: value for key, value in raw.items() if key not in _UNSAID_IN_V2}
    if raw.get("nullable") or raw.get(_PRESERVE):
        for key in ("items", "properties"):
            schema.pop(key, None)
    untyped_object = raw.get(_PRESERVE) and schema.get("type") == "object"
    if raw.get("nullable") or untyped_object or (schema.get("type") == "array" and "items" not in schema):
        schema.pop("type", None)
    nullable = {field for field, prop in schema.get("properties", {}).items() if prop.get("nullable")}
    if nullable and "required" in schema:
        schema["required"] = [field for field in schema["required"] if field not in nullable]
    if not schema.get("required", True):
        del schema["required"]
    schema = _nested(schema, head, _v2)
    return _embed(schema, head) if raw.get(_EMBEDDED) and not raw.get(_PRESERVE) else schema


def _nested(raw: Raw, head: dict[str, Json], convert: Any) -> Json:
    schema = dict(raw)
    if "properties" in schema:
        schema["properties"] = {field: convert(prop, head) for field, prop in schema["properties"].items()}
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), Mapping):
            schema[inner] = convert(schema[inner], head)
    return schema


def _embed(schema: Json, head: dict[str, Json]) -> Json:
    required = list(schema.get("required", ()))
    required += [field for field in ("kind", "apiVersion") if field not in required]
    return {**schema, "properties": {**schema.get("properties", {}), **head}, "required": required}
