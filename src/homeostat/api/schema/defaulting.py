"""Fills in what a schema declares as default, and drops the nulls that mean "use the default"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from homeostat.api.schema.compiled import Test, compiled
from homeostat.model.errors import UNSET
from homeostat.model.protocol import BODY_LIMIT
from homeostat.model.schema import Schema

FILL_LIMIT = BODY_LIMIT
"""Bytes that defaults may add to one object: a short list of empty items can ask for gigabytes."""


def default(schema: Schema, obj: Any) -> bool:
    """Makes an object complete, in place: on writes after pruning, and on reads.

    A null in a field that may not be null is taken away; where the field has a default, the default comes instead.
    Defaults apply inside objects and list items that are there: a missing parent is not made for its children's sake.
    False where they would add more than FILL_LIMIT: then some are left out.
    """
    return settled(schema)(obj) or _filling(schema)(obj, FILL_LIMIT) >= 0


def _declares_default(schema: Schema) -> bool:
    return schema.default is not UNSET and schema.default is not None


def wanted_fields(schema: Schema) -> frozenset[str]:
    """The fields that come by themselves where they are missing."""
    memo = compiled(schema)
    if memo.wanted is None:
        memo.wanted = frozenset(name for name, child in schema.properties.items() if _declares_default(child))
    return memo.wanted


def settled(schema: Schema) -> Test:
    """The compiled test: is there nothing to fill in and no null to look at?"""
    memo = compiled(schema)
    if memo.settled is None:
        memo.settled = _compile(schema)
    return memo.settled


def _compile(schema: Schema) -> Test:
    wanted = wanted_fields(schema)
    nested = [(name, settled(child)) for name, child in schema.properties.items() if _is_container(child)]
    properties, items = schema.properties, schema.items
    extra = settled(schema.additional) if schema.additional is not None and _is_container(schema.additional) else None
    each = settled(items) if items is not None and (_is_container(items) or _declares_default(items)) else None
    item_default = items is not None and _declares_default(items)

    def test(value: Any) -> bool:
        kind = type(value)
        if kind is dict:
            if None in value.values() or not wanted <= value.keys():
                return False
            for name, check in nested:
                item = value.get(name)
                if item is not None and not check(item):
                    return False
            if extra is not None:
                for name, item in value.items():
                    if name not in properties and not extra(item):
                        return False
        elif kind is list and each is not None:
            for item in value:
                if item is None and item_default:
                    return False
                if not each(item):
                    return False
        return True

    return test


def _is_container(schema: Schema) -> bool:
    return bool(schema.properties) or schema.items is not None or schema.additional is not None


Fill = Callable[[Any, int], int]
"""Makes a value complete while there is room, in bytes; gives the room that is left, negative where it was too little."""


def _filling(schema: Schema) -> Fill:
    """The compiled way to make a value complete: it drops nulls and fills in defaults where they are declared, and looks no deeper."""
    memo = compiled(schema)
    if memo.fill is None:
        memo.fill = _compile_fill(schema)
    return memo.fill


def _compile_fill(schema: Schema) -> Fill:
    properties, items, additional = schema.properties, schema.items, schema.additional
    fields = [(name, child) for name, child in properties.items() if _declares_default(child)]
    nested = [(name, _filling(child)) for name, child in properties.items() if _is_container(child)]
    extra = None if additional is None else _filling(additional)
    each = None if items is None else _filling(items)

    def fill(value: Any, room: int) -> int:
        if type(value) is dict:
            if None in value.values():
                _drop_nulls(schema, value)
            for name, child in fields:
                if name not in value or (value[name] is None and not child.nullable):
                    value[name], room = _fresh(child, room)
            for name, below in nested:
                if name in value and room >= 0:
                    room = below(value[name], room)
            if additional is not None and extra is not None:
                for name, item in value.items():
                    if name in properties:
                        continue
                    if item is None and not additional.nullable:
                        value[name], room = _fresh(additional, room)
                    room = extra(value[name], room)
                    if room < 0:
                        break
        elif type(value) is list and items is not None and each is not None:
            for i, item in enumerate(value):
                if item is None and not items.nullable:
                    value[i], room = _fresh(items, room)
                room = each(value[i], room)
                if room < 0:
                    break
        return room

    return fill


def _drop_nulls(schema: Schema, value: dict[str, Any]) -> None:
    for name in [name for name, item in value.items() if item is None]:
        child = schema.child(name)
        if child is not None and not child.nullable and not _declares_default(child):
            del value[name]


def _fresh(schema: Schema, room: int) -> tuple[Any, int]:
    """The default as a value of its own, so that no two objects share it, and the room that it leaves."""
    value = None if schema.default is UNSET else schema.default
    if isinstance(value, (dict, list)):
        encoded = orjson.dumps(value)
        return orjson.loads(encoded), room - len(encoded)
    return value, room - (len(value) if type(value) is str else 8)
