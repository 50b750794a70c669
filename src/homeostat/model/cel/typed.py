"""What a schema says of data decides how it is compared, joined and converted."""

from __future__ import annotations

import operator
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from homeostat.model.cel.types import Type
from homeostat.model.cel.values import CelError, equal, parse_duration, parse_timestamp

Convert = Callable[[Any], Any]
Equality = Callable[[Any, Any], bool]


def equality(t: Type) -> Equality:
    """How two values of one type are compared: lists of type set and map regardless of order."""
    unordered = _unordered(t)
    if unordered is not None:
        return unordered
    # Python takes True for 1: where types are known, they cannot meet.
    return equal if _has_dyn(t) else operator.eq


def _has_dyn(t: Type) -> bool:
    if t.kind == "object":
        return t.fields is None or any(_has_dyn(f.type) for f in t.fields.values())
    return t.kind == "dyn" or any(_has_dyn(p) for p in t.params)


def _unordered(t: Type) -> Equality | None:
    """Equality that knows of lists without order; None where there are none inside."""
    if t.kind == "list":
        inner = _unordered(t.params[0])
        if t.list_type == "set":
            return lambda a, b: len(a) == len(b) and _members(a) == _members(b)
        if t.list_type == "map":
            return _equal_by_keys(t.list_keys, inner or equal)
        if inner is not None:
            return lambda a, b: len(a) == len(b) and all(map(inner, a, b))
    elif t.kind == "map":
        value = _unordered(t.params[1])
        if value is not None:
            return lambda a, b: a.keys() == b.keys() and all(value(v, b[k]) for k, v in a.items())
    elif t.kind == "object" and t.fields is not None:
        special = {f.name: same for f in t.fields.values() if (same := _unordered(f.type)) is not None}
        if special:
            return lambda a, b: a.keys() == b.keys() and all(special.get(k, equal)(v, b[k]) for k, v in a.items())
    return None


def _members(items: list[Any]) -> frozenset[Any]:
    try:
        return frozenset(items)
    except TypeError:
        return frozenset(orjson.dumps(i, option=orjson.OPT_SORT_KEYS, default=repr) for i in items)


def _identity(item: Any, keys: tuple[str, ...]) -> Any:
    return tuple(repr(item.get(k)) for k in keys) if item.__class__ is dict else repr(item)


def _equal_by_keys(keys: tuple[str, ...], same: Equality) -> Equality:
    def compare(a: list[Any], b: list[Any]) -> bool:
        others = {_identity(y, keys): y for y in b}
        return len(a) == len(b) and all((k := _identity(x, keys)) in others and same(x, others[k]) for x in a)

    return compare


def union(t: Type) -> Callable[[list[Any], list[Any]], list[Any]]:
    """`x + y` on lists of type set and map: what x has stays in place, y overrides by key and adds what is new."""
    keys = t.list_keys

    def merge(a: list[Any], b: list[Any]) -> list[Any]:
        merged = {_identity(x, keys): x for x in a}
        merged.update({_identity(y, keys): y for y in b})
        return list(merged.values())

    return merge


# Conversion of what JSON cannot say


def converter(t: Type) -> Convert | None:
    """How stored JSON of this type becomes CEL values; None where it is already so."""
    scalar = _SCALAR_CONVERTERS.get(t.kind)
    if scalar is not None:
        return scalar
    if t.kind == "list":
        inner = converter(t.params[0])
        return (lambda v: [inner(x) for x in v] if v.__class__ is list else v) if inner is not None else None
    if t.kind == "map":
        value = converter(t.params[1])
        if value is None:
            return None
        return lambda v: {k: value(x) for k, x in v.items()} if v.__class__ is dict else v
    if t.kind == "object" and t.fields is not None:
        fields = {f.name: c for f in t.fields.values() if (c := converter(f.type)) is not None}
        return (lambda v: _convert_fields(v, fields)) if fields else None
    return None


def _convert_fields(value: Any, fields: Mapping[str, Convert]) -> Any:
    if value.__class__ is not dict:
        return value
    return {k: fields[k](v) if k in fields else v for k, v in value.items()}


def _to_timestamp(value: Any) -> Any:
    if value.__class__ is not str:
        return value
    return parse_timestamp(f"{value}T00:00:00Z" if len(value) == 10 else value)


def _to_bytes(value: Any) -> Any:
    try:
        return b64decode(value) if value.__class__ is str else value
    except ValueError:
        raise CelError("type conversion error from 'string' to 'bytes'") from None


_SCALAR_CONVERTERS: dict[str, Convert] = {
    "timestamp": _to_timestamp,
    "duration": lambda v: parse_duration(v) if v.__class__ is str else v,
    "bytes": _to_bytes,
    "double": lambda v: float(v) if v.__class__ is int else v,
}
