"""Sets and keyed lists (`x-kubernetes-list-type`): no item, and no key, stands twice."""

from __future__ import annotations

from typing import Any

import orjson

from homeostat.api.schema.compiled import anywhere, compiled
from homeostat.model.errors import FieldError
from homeostat.model.schema import Schema


def has_list_rules(schema: Schema) -> bool:
    """Does the schema hold a set or a keyed list anywhere?"""
    memo = compiled(schema)
    if memo.lists is None:
        memo.lists = anywhere(schema, lambda node: node.list_type in ("set", "map"))
    return memo.lists


def list_errors(schema: Schema, value: Any, path: str = "") -> list[FieldError]:
    """Every second appearance of an item of a set or a key of a keyed list."""
    if not has_list_rules(schema):
        return []
    errors: list[FieldError] = []
    _walk(schema, value, path, errors)
    return errors


def _walk(schema: Schema, value: Any, path: str, errors: list[FieldError]) -> None:
    if type(value) is dict:
        properties, extra = schema.properties, schema.additional
        for key, item in value.items():
            if extra is not None:
                _walk(extra, item, f"{path}[{key}]", errors)
            if key in properties:
                _walk(properties[key], item, f"{path}.{key}" if path else key, errors)
    elif type(value) is list:
        if schema.list_type == "set":
            errors.extend(FieldError.duplicate(f"{path}[{i}]", value[i]) for i in repeated(value))
        elif schema.list_type == "map":
            errors.extend(_map_errors(schema, value, path))
        if schema.items is not None:
            for i, item in enumerate(value):
                _walk(schema.items, item, f"{path}[{i}]", errors)


def _map_errors(schema: Schema, items: list[Any], path: str) -> list[FieldError]:
    for i, item in enumerate(items):
        if item is not None and type(item) is not dict:
            return [FieldError.invalid(f"{path}[{i}]", item, "must be an object for an array of list-type map")]
    keys = key_parts(schema, items)
    return [FieldError.duplicate(f"{path}[{i}]", keys[i]) for i in repeated(keys)]


def key_parts(schema: Schema, items: list[Any]) -> list[dict[str, Any]]:
    """The key of each item of a keyed list, as the object that upstream shows."""
    names = schema.list_keys
    return [{} if item is None else {n: item[n] for n in names if n in item} for item in items]


def repeated(items: list[Any]) -> list[int]:
    """Where values appear the second time; each is named once, however often it comes back."""
    if len(items) < 2:
        return []
    times: dict[Any, int] = {}
    second = []
    for i, item in enumerate(items):
        kind = type(item)
        key = orjson.dumps(item, option=orjson.OPT_SORT_KEYS) if kind is dict or kind is list else (kind, item)
        seen = times.get(key, 0)
        times[key] = seen + 1
        if seen == 1:
            second.append(i)
    return second


_STRINGS = frozenset({str})


def distinct(schema: Schema, items: list[Any]) -> bool:
    """Does a set or a keyed list keep its rule? Only this list itself is looked at."""
    if schema.list_type == "set":
        return not repeated(items)
    names = schema.list_keys
    if len(names) == 1 and len(items) > 1:
        name = names[0]
        # Strings are the usual keys: they can be compared as they are.
        keys = [item.get(name) if type(item) is dict else None for item in items]
        if _STRINGS.issuperset(map(type, keys)):
            return len(set(keys)) == len(keys)
    return not _map_errors(schema, items, "")
