"""From a schema to CEL types: what a rule may see of an object, under which names, and how large it may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from homeostat.model.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    STRING,
    TIMESTAMP,
    Field,
    Type,
)
from homeostat.model.errors import UNSET
from homeostat.model.protocol import BODY_LIMIT
from homeostat.model.schema import Schema

LARGEST_REQUEST = BODY_LIMIT
"""Bounds the size of everything that a schema does not bound."""

RESERVED = frozenset({
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
    "let", "loop", "package", "namespace", "return", "var", "void", "while",
})  # fmt: skip
"""Words of the language, which cannot be names in it."""
_ESCAPED = re.compile(r"__|[-./]")
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_NAME = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*").fullmatch


def has_rules(raw: Mapping[str, Any]) -> bool:
    """Whether a schema has any rule anywhere."""
    if raw.get("x-kubernetes-validations"):
        return True
    nested: Iterable[Any] = (
        *raw.get("properties", {}).values(), raw.get("items"), raw.get("additionalProperties"), *raw.get("allOf", ()),
    )  # fmt: skip
    return any(isinstance(n, Mapping) and has_rules(n) for n in nested)


def escape(name: str) -> str | None:
    """The name of a property inside an expression; None where it has none."""
    if name in RESERVED:
        return f"__{name}__"
    if not _NAME(name):
        return None
    return _ESCAPED.sub(lambda m: _ESCAPES[m[0]], name)


def declare(schema: Schema, root: bool, name: str = "selfType") -> Type | None:
    """The CEL type of a schema; None where rules cannot see it.

    `root` is set at the root of a resource, embedded ones included: apiVersion, kind and the names in metadata are
    always visible there. `name` becomes the name of the type, and the beginning of the names of types inside.
    """
    raw = schema.raw
    if schema.int_or_string:
        longest = _bound(raw, "maxLength", LARGEST_REQUEST - 2, 4)
        return Type("dyn", max_elements=longest, min_size=1)
    if schema.type == "array":
        return _declare_list(schema, name)
    if schema.type == "object" or root:
        if schema.additional is not None and not root:
            return _declare_map(schema, schema.additional, name)
        return _declare_object(schema, root, name)
    if schema.type == "string":
        return _declare_string(raw)
    scalar = {"boolean": (BOOL, 4), "number": (DOUBLE, 1), "integer": (INT, 1)}.get(schema.type)
    return Type(scalar[0].kind, min_size=scalar[1]) if scalar else None


def _bound(raw: Mapping[str, Any], key: str, otherwise: int, factor: int = 1) -> int:
    limit = raw.get(key)
    return max(0, int(limit)) * factor if limit is not None else otherwise


def _declare_list(schema: Schema, name: str) -> Type | None:
    items = schema.items
    item = declare(items, items.embedded, f"{name}.@idx") if items is not None else None
    if item is None:
        return None
    most = _bound(schema.raw, "maxItems", (LARGEST_REQUEST - 2) // (item.min_size + 1))
    return Type(
        "list", params=(item,), max_elements=most, min_size=2, list_type=schema.list_type, list_keys=schema.list_keys
    )


def _declare_map(schema: Schema, values: Schema, name: str) -> Type | None:
    value = declare(values, values.embedded, f"{name}.@elem")
    if value is None:
        return None
    most = _bound(schema.raw, "maxProperties", (LARGEST_REQUEST - 2) // (value.min_size + 6))
    # Keys count as empty in estimates: so the real server has it, and rules were written to fit.
    key = Type(STRING.kind, max_elements=0, min_size=2)
    return Type("map", params=(key, value), max_elements=most, min_size=2)


_META = Schema({"type": "object", "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}})
_TEXT = Schema({"type": "string"})


def _declare_object(schema: Schema, root: bool, name: str) -> Type:
    properties = schema.properties
    if root:
        properties = {**properties, "kind": _TEXT, "apiVersion": _TEXT, "metadata": _META}
    required = frozenset(schema.raw.get("required", ()))
    fields: dict[str, Field] = {}
    smallest = 2
    for key, child in properties.items():
        escaped = escape(key)
        found = declare(child, child.embedded, f"{name}.{escaped or key}")
        if found is None:
            continue
        if escaped is not None:
            fields[escaped] = Field(key, found)
        if key in required and child.default is UNSET:
            smallest += len(key.encode()) + found.min_size + 4
    return Type("object", name, fields=fields, min_size=smallest)


def _declare_string(raw: Mapping[str, Any]) -> Type:
    text_format = raw.get("format")
    if text_format == "byte":
        return Type(BYTES.kind, max_elements=_bound(raw, "maxLength", LARGEST_REQUEST - 2), min_size=2)
    if text_format == "duration":
        return Type(DURATION.kind, max_elements=32, min_size=3)
    if text_format == "date":
        return Type(TIMESTAMP.kind, max_elements=12, min_size=12)
    if text_format == "date-time":
        return Type(TIMESTAMP.kind, max_elements=32, min_size=21)
    longest = LARGEST_REQUEST - 2
    if raw.get("enum"):
        longest = max((len(v.encode()) for v in raw["enum"] if isinstance(v, str)), default=0)
    return Type(STRING.kind, max_elements=_bound(raw, "maxLength", longest, 4), min_size=2)
