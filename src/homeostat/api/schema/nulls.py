"""Nulls that somebody applied on purpose, in fields that may not be null.

A null in what is created, updated or patched is dropped before anybody looks at it. What is applied is not read that way, upstream:
there such a null stays, and is refused.
"""

from __future__ import annotations

from typing import Any

from homeostat.model.errors import UNSET
from homeostat.model.schema import TYPE_AND_METADATA, Schema

Place = tuple[dict[str, Any], str]
"""An object and the name of the field in it."""


def refused_nulls(schema: Schema, said: dict[str, Any], merged: dict[str, Any]) -> list[Place]:
    """Where `said` has a null that the schema refuses and that is still there in what it was `merged` into."""
    found: list[Place] = []
    for name, value in said.items():
        if name not in TYPE_AND_METADATA and name in merged:
            _field(schema.child(name), name, value, merged, found)
    return found


def _field(schema: Schema | None, name: str, said: Any, holder: dict[str, Any], found: list[Place]) -> None:
    if schema is None:
        return
    if said is None:
        typed = bool(schema.type or schema.int_or_string)
        if holder[name] is None and typed and not schema.nullable and schema.default in (UNSET, None):
            found.append((holder, name))
    else:
        _value(schema, said, holder[name], found)


def _value(schema: Schema, said: Any, merged: Any, found: list[Place]) -> None:
    if type(said) is dict and type(merged) is dict:
        for name, value in said.items():
            if name in merged:
                _field(schema.child(name), name, value, merged, found)
    elif type(said) is list and type(merged) is list and schema.items is not None:
        for item, partner in _pairs(schema, said, merged):
            _value(schema.items, item, partner, found)


def _pairs(schema: Schema, said: list[Any], merged: list[Any]) -> list[tuple[Any, Any]]:
    keys = schema.list_keys if schema.list_type == "map" else ()
    if not keys:
        return list(zip(said, merged, strict=False))

    def key(item: Any) -> str:
        return repr([item.get(name) for name in keys]) if type(item) is dict else ""

    partners = {key(item): item for item in merged}
    return [(item, partners.get(key(item))) for item in said]
