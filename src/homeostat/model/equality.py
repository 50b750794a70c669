"""When two JSON values are the same: 1 and 1.0 are one number, and 1 is not true, whatever Python thinks."""

from __future__ import annotations

from typing import Any

import orjson


def same(a: Any, b: Any) -> bool:
    """Deep equality of JSON values. The order of fields does not matter."""
    if a is b:
        return True
    if a != b:
        return False
    kind = type(a)
    if kind is str:
        return True
    if kind is dict or kind is list:
        return orjson.dumps(a) == orjson.dumps(b) or _deeply_same(a, b)
    return (kind is bool) == (type(b) is bool)


def _deeply_same(a: Any, b: Any) -> bool:
    if type(a) is dict:
        return all(_deeply_same(value, b[key]) for key, value in a.items())
    if type(a) is list:
        return all(map(_deeply_same, a, b))
    return (type(a) is bool) == (type(b) is bool)
