"""Fills in what a schema declares as default, and drops the nulls that mean "use the default"."""

from __future__ import annotations

from typing import Any

import orjson

from homeostat.api.schema.compiled import Test, anywhere, compiled
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
    if _settled(schema)(obj):
        return True
    _drop_nulls(schema, obj)
    return not _has_defaults(schema) or _fill(schema, obj, FILL_LIMIT) >= 0


def _has_defaults(schema: Schema) -> bool:
    """Does the schema declare a default anywhere?"""
    memo = compiled(schema)
    if memo.defaults is None:
        memo.defaults = anywhere(schema, _declares_default)
    return memo.defaults


def _declares_default(schema: Schema) -> bool:
    return schema.default is not UNSET and schema.default is not None


def _settled(schema: Schema) -> Test:
    """The compiled test: is there nothing to fill in and no null to look at?"""
    memo = compiled(schema)
    if memo.settled is None:
        memo.settled = _compile(schema)
    return memo.settled


def _compile(schema: Schema) -> Test:
    wanted = frozenset(name for name, child in schema.properties.items() if _declares_default(child))
    nested = [(name, _settled(child)) for name, child in schema.properties.items() if _is_container(child)]
    properties, items = schema.properties, schema.items
    extra = _settled(schema.additional) if schema.additional is not None and _is_container(schema.additional) else None
    each = _settled(items) if items is not None and (_is_container(items) or _declares_default(items)) else None
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


def _drop_nulls(schema: Schema | None, value: Any) -> None:
    if type(value) is dict:
        for name in list(value):
            child = schema.child(name) if schema is not None else None
            if value[name] is None and child is not None and not child.nullable and not _declares_default(child):
                del value[name]
            elif child is not None:
                _drop_nulls(child, value[name])
    elif type(value) is list and schema is not None and schema.items is not None:
        for item in value:
            _drop_nulls(schema.items, item)


def _fill(schema: Schema, value: Any, room: int) -> int:
    """Fills in defaults while there is room; gives the room that is left, negative where it was too little."""
    if type(value) is dict:
        for name, child in schema.properties.items():
            if _declares_default(child) and (name not in value or (value[name] is None and not child.nullable)):
                value[name], room = _fresh(child, room)
        for name in value:
            known = schema.child(name)
            if known is None:
                continue
            if value[name] is None and not known.nullable and name not in schema.properties:
                value[name], room = _fresh(known, room)
            room = _fill(known, value[name], room)
            if room < 0:
                break
    elif type(value) is list and schema.items is not None:
        items = schema.items
        for i, item in enumerate(value):
            if item is None and not items.nullable:
                value[i], room = _fresh(items, room)
            room = _fill(items, value[i], room)
            if room < 0:
                break
    return room


def _fresh(schema: Schema, room: int) -> tuple[Any, int]:
    """The default as a value of its own, so that no two objects share it, and the room that it leaves."""
    value = None if schema.default is UNSET else schema.default
    if isinstance(value, (dict, list)):
        encoded = orjson.dumps(value)
        return orjson.loads(encoded), room - len(encoded)
    return value, room - (len(value) if type(value) is str else 8)
