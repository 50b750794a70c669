"""Random structural schemas and random JSON, small enough to shrink well."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from("abcdk")


def json_values(leaves: int = 12) -> st.SearchStrategy[Any]:
    """JSON of any form, with names that meet those of the schemas."""
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-5, 5)
        | st.sampled_from([1.0, 1.5, -2.25, 2**31, 2**63, 10.0**20])
        | st.sampled_from(["", "a", "ab", "abc", "x", "1", "TCP"])
    )
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=leaves,
    )


@st.composite
def structural_schemas(draw: st.DrawFn, depth: int = 3) -> dict[str, Any]:
    """The root schema of a custom kind."""
    return {"type": "object", "properties": draw(st.dictionaries(NAMES, schemas(depth), max_size=4))}


@st.composite
def schemas(draw: st.DrawFn, depth: int) -> dict[str, Any]:
    kinds = ["string", "integer", "number", "boolean", "int-or-string", "any"] + ["object", "map", "array"] * (
        depth > 0
    )
    kind = draw(st.sampled_from(kinds))
    raw: dict[str, Any] = {}
    if kind == "int-or-string":
        raw["x-kubernetes-int-or-string"] = True
    elif kind == "any":
        raw["x-kubernetes-preserve-unknown-fields"] = True
    elif kind == "map":
        raw = {"type": "object", "additionalProperties": draw(st.booleans() | schemas(depth - 1))}
    else:
        raw["type"] = kind
    if kind == "object":
        raw["properties"] = draw(st.dictionaries(NAMES, schemas(depth - 1), max_size=3))
        raw.update(draw(st.sampled_from([{}, {"required": ["a"]}, {"x-kubernetes-preserve-unknown-fields": True}])))
    if kind == "array":
        raw["items"] = draw(schemas(depth - 1))
        raw.update(draw(st.sampled_from([{}, {"minItems": 1}, {"maxItems": 2}])))
    if draw(st.booleans()):
        raw["nullable"] = True
    if draw(st.integers(0, 3)) == 0:
        raw["default"] = draw(json_values(3))
    raw.update(draw(limits(kind)))
    return raw


def limits(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Restrictions that make sense for a type, and logic for all."""
    own: dict[str, list[dict[str, Any]]] = {
        "string": [{"minLength": 2}, {"maxLength": 1}, {"pattern": "^a"}, {"enum": ["a", "x"]}, {"format": "ipv4"}],
        "integer": [{"minimum": 0}, {"maximum": 2, "exclusiveMaximum": True}, {"multipleOf": 2}, {"format": "int32"}],
        "number": [{"minimum": 0.5}, {"multipleOf": 0.5}, {"enum": [1, 1.5]}],
        "map": [{"minProperties": 1}, {"maxProperties": 1}],
    }
    logic: list[dict[str, Any]] = [
        {"anyOf": [{"minLength": 2}, {"minimum": 1}]},
        {"oneOf": [{"maxLength": 2}, {"pattern": "b"}, {"minItems": 1}]},
        {"allOf": [{"maxProperties": 2}, {"enum": ["a", 1, True, {"a": 1}]}]},
        {"not": {"enum": ["ab", 1]}},
        {"anyOf": [{"required": ["a"]}, {"format": "ipv4"}]},
    ]
    return st.sampled_from([{}, {}, *own.get(kind, []), *logic])
