"""The functions of the CEL language itself, but for the parts of times (`times`).

Logic, comprehensions and field access are in `evaluate`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from homeostat.model.cel.overloads import PER_CHARACTER, deep_size, overload, per_character, per_pattern, size_of
from homeostat.model.cel.values import (
    INT_MAX,
    INT_MIN,
    LARGEST_TEXT,
    LONGEST_LIST,
    NONE,
    UINT_MAX,
    CelError,
    Duration,
    Optional,
    Timestamp,
    Uint,
    bounded,
    contains,
    equal,
    map_key,
    no_such_overload,
    parse_duration,
    parse_timestamp,
    show_text,
    type_of_value,
)
from homeostat.model.patterns import compile_re2


def _per_shorter(args: Sequence[Any]) -> int:
    a, b = args
    if a.__class__ in (list, dict) and b.__class__ in (list, dict):
        smaller = a if len(a) < len(b) else b
        deep = deep_size(smaller)
        if deep > len(smaller):  # nested values take a walk through Python, and are priced by it
            return math.ceil(deep / 2)
    return math.ceil(min(size_of(a), size_of(b)) * PER_CHARACTER)


def _per_member(args: Sequence[Any]) -> int:
    x, items = args
    return deep_size(items) if x.__class__ in (list, dict) else len(items)


def _per_both(args: Sequence[Any]) -> int:
    return math.ceil((size_of(args[0]) + size_of(args[1])) * PER_CHARACTER)


def _per_product(args: Sequence[Any]) -> int:
    return math.ceil(size_of(args[0]) * PER_CHARACTER) * math.ceil(size_of(args[1]) * PER_CHARACTER)


# Equality and order


@overload("_==_(A, A): bool", id="equals", cost=_per_shorter)
def equals(a: Any, b: Any) -> bool:
    return equal(a, b)


@overload("_!=_(A, A): bool", id="not_equals", cost=_per_shorter)
def not_equals(a: Any, b: Any) -> bool:
    return not equal(a, b)


def _ordered(name: str, compare: Callable[[Any, Any], bool]) -> None:
    numbers = [f"_{name}_({a}, {b}): bool" for a in ("int", "uint", "double") for b in ("int", "uint", "double")]
    others = [f"_{name}_({t}, {t}): bool" for t in ("bool", "timestamp", "duration")]
    overload(*numbers, *others)(compare)
    for t in ("string", "bytes"):
        overload(f"_{name}_({t}, {t}): bool", id=f"ordered_{t}", cost=_per_shorter)(compare)


_ordered("<", operator.lt)
_ordered(">", lambda a, b: b < a)
_ordered("<=", lambda a, b: not b < a)
_ordered(">=", lambda a, b: not a < b)


# Arithmetic


def _int(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def _uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelError("unsigned integer overflow")


@overload("_+_(int, int): int")
def add_int(a: int, b: int) -> int:
    return _int(a + b)


@overload("_+_(uint, uint): uint")
def add_uint(a: Uint, b: Uint) -> Uint:
    return _uint(int(a) + int(b))


@overload("_+_(double, double): double")
def add_double(a: float, b: float) -> float:
    return a + b


@overload("_+_(string, string): string", id="add_string", cost=_per_both)
def add_string(a: str, b: str) -> str:
    bounded(len(a) + len(b), LARGEST_TEXT)
    return a + b


@overload("_+_(bytes, bytes): bytes", id="add_bytes", cost=_per_both)
def add_bytes(a: bytes, b: bytes) -> bytes:
    bounded(len(a) + len(b), LARGEST_TEXT)
    return a + b


@overload("_+_(list(A), list(A)): list(A)", id="add_list")
def add_list(a: list[Any], b: list[Any]) -> list[Any]:
    bounded(len(a) + len(b), LONGEST_LIST)
    return a + b


@overload("_+_(duration, duration): duration", "_+_(timestamp, duration): timestamp")
def add_duration(a: Any, b: Duration) -> Any:
    return a.__class__(a.nanos + b.nanos)


@overload("_+_(duration, timestamp): timestamp")
def add_to_duration(a: Duration, b: Timestamp) -> Timestamp:
    return Timestamp(a.nanos + b.nanos)


@overload("_-_(int, int): int")
def subtract_int(a: int, b: int) -> int:
    return _int(a - b)


@overload("_-_(uint, uint): uint")
def subtract_uint(a: Uint, b: Uint) -> Uint:
    return _uint(int(a) - int(b))


@overload("_-_(double, double): double")
def subtract_double(a: float, b: float) -> float:
    return a - b


@overload("_-_(duration, duration): duration", "_-_(timestamp, duration): timestamp")
def subtract_duration(a: Any, b: Duration) -> Any:
    return a.__class__(a.nanos - b.nanos)


@overload("_-_(timestamp, timestamp): duration")
def subtract_timestamp(a: Timestamp, b: Timestamp) -> Duration:
    return Duration(a.nanos - b.nanos)


@overload("_*_(int, int): int")
def multiply_int(a: int, b: int) -> int:
    return _int(a * b)


@overload("_*_(uint, uint): uint")
def multiply_uint(a: Uint, b: Uint) -> Uint:
    return _uint(int(a) * int(b))


@overload("_*_(double, double): double")
def multiply_double(a: float, b: float) -> float:
    return a * b


def quotient(a: int, b: int) -> int:
    """Integer division that rounds toward zero."""
    if b == 0:
        raise CelError("division by zero")
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


@overload("_/_(int, int): int")
def divide_int(a: int, b: int) -> int:
    return _int(quotient(a, b))


@overload("_/_(uint, uint): uint")
def divide_uint(a: Uint, b: Uint) -> Uint:
    return Uint(quotient(a, b))


@overload("_/_(double, double): double")
def divide_double(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


@overload("_%_(int, int): int")
def modulo_int(a: int, b: int) -> int:
    if b == 0:
        raise CelError("modulus by zero")
    return a - b * quotient(a, b)


@overload("_%_(uint, uint): uint")
def modulo_uint(a: Uint, b: Uint) -> Uint:
    return Uint(modulo_int(a, b))


@overload("-_(int): int")
def negate_int(a: int) -> int:
    return _int(-a)


@overload("-_(double): double")
def negate_double(a: float) -> float:
    return -a


# Containers


@overload("@in(A, list(A)): bool", id="in_list", cost=_per_member)
def in_list(x: Any, items: list[Any]) -> bool:
    return contains(items, x)


@overload("@in(A, map(A, B)): bool")
def in_map(x: Any, entries: dict[Any, Any]) -> bool:
    return map_key(x) in entries


def index_list(items: list[Any], index: Any) -> Any:
    """`list[index]`; a double that is whole is an index too."""
    if index.__class__ is bool or not isinstance(index, int | float) or int(index) != index:
        raise no_such_overload()
    if 0 <= index < len(items):
        return items[int(index)]
    raise CelError(f"index out of bounds: {int(index)}")


def index_map(entries: dict[Any, Any], key: Any) -> Any:
    """`map[key]`."""
    try:
        return entries[map_key(key)]
    except KeyError:
        raise CelError(f"no such key: {show_text(key)}") from None


overload("_[_](list(A), int): A", id="index_list")(index_list)
overload("_[_](map(A, B), A): B", id="index_map")(index_map)


@overload("_[_](optional_type(list(A)), int): optional_type(A)", "_[_](optional_type(map(A, B)), A): optional_type(B)")
def index_in_optional(container: Optional, key: Any) -> Optional:
    return index_optionally(container, key)


@overload("_[?_](list(A), int): optional_type(A)", "_[?_](map(A, B), A): optional_type(B)")
@overload("_[?_](optional_type(list(A)), int): optional_type(A)")
@overload("_[?_](optional_type(map(A, B)), A): optional_type(B)")
def index_optionally(container: Any, key: Any) -> Optional:
    if isinstance(container, Optional):
        if not container.present:
            return NONE
        container = container.value
    if isinstance(container, dict):
        key = map_key(key)
        return Optional(True, container[key]) if key in container else NONE
    if isinstance(container, list) and key.__class__ in (int, Uint):
        return Optional(True, container[key]) if 0 <= key < len(container) else NONE
    raise no_such_overload()


@overload(*(f"size({t}): int" for t in ("string", "bytes", "list(A)", "map(A, B)")))
@overload(*(f"{t}.size(): int" for t in ("string", "bytes", "list(A)", "map(A, B)")))
def size(value: Any) -> int:
    return len(value)


@overload("cel.@mapInsert(map(A, B), A, B): map(A, B)", "cel.@mapInsert(map(A, B), map(A, B)): map(A, B)")
def map_insert(entries: dict[Any, Any], *added: Any) -> dict[Any, Any]:
    pairs = added[0] if len(added) == 1 else {map_key(added[0]): added[1]}
    for key in pairs:
        if key in entries:
            raise CelError(f"insert failed: key {show_text(key)} already exists")
    # The accumulator of the loop is nobody else's: filling it in place keeps the loop linear.
    entries.update(pairs)
    return entries


# Conversions


@overload("type(A): type(A)")
def type_(value: Any) -> Any:
    return type_of_value(value)


@overload("dyn(A): dyn")
def dyn(value: Any) -> Any:
    return value


@overload("bool(bool): bool", "bool(string): bool")
def bool_(value: Any) -> bool:
    if value in ("1", "t", "T", "TRUE", "true", "True") or value is True:
        return True
    if value in ("0", "f", "F", "FALSE", "false", "False") or value is False:
        return False
    raise CelError("type conversion error from 'string' to 'bool'")


def _whole(text: str, low: int, high: int, name: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits.isascii() and digits.isdigit() and len(digits) < 30 and low <= int(text) <= high:
        return int(text)
    raise CelError(f"type conversion error from 'string' to '{name}'")


@overload(*(f"int({t}): int" for t in ("int", "uint", "double", "string", "timestamp", "duration")))
def int_(value: Any) -> int:
    if isinstance(value, str):
        return _whole(value, INT_MIN, INT_MAX, "int")
    if isinstance(value, Timestamp):
        return value.nanos // 10**9
    if isinstance(value, Duration):
        return value.nanos
    if isinstance(value, float) and not math.isfinite(value):
        raise CelError("integer overflow")
    return _int(int(value))


@overload(*(f"uint({t}): uint" for t in ("uint", "int", "double", "string")))
def uint(value: Any) -> Uint:
    if isinstance(value, str):
        return Uint(_whole(value, 0, UINT_MAX, "uint"))
    if isinstance(value, float) and not math.isfinite(value):
        raise CelError("unsigned integer overflow")
    return _uint(int(value))


@overload(*(f"double({t}): double" for t in ("double", "int", "uint", "string")))
def double(value: Any) -> float:
    try:
        if isinstance(value, str) and ("_" in value or value != value.strip()):
            raise ValueError
        return float(value)
    except ValueError:
        raise CelError("type conversion error from 'string' to 'double'") from None


@overload(*(f"string({t}): string" for t in ("string", "bool", "int", "uint", "double", "timestamp", "duration")))
@overload("string(bytes): string", id="bytes_to_string", cost=per_character)
def string(value: Any) -> str:
    return show_text(value)


@overload("bytes(bytes): bytes")
@overload("bytes(string): bytes", id="string_to_bytes", cost=per_character)
def bytes_(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else value


@overload("timestamp(string): timestamp", "timestamp(int): timestamp", "timestamp(timestamp): timestamp")
def timestamp(value: Any) -> Timestamp:
    if isinstance(value, str):
        return parse_timestamp(value)
    return Timestamp(value * 10**9) if isinstance(value, int) else value


@overload("duration(string): duration", "duration(int): duration", "duration(duration): duration")
def duration(value: Any) -> Duration:
    if isinstance(value, str):
        return parse_duration(value)
    return Duration(value) if isinstance(value, int) else value


# Strings


@lru_cache(maxsize=512)
def pattern(text: str) -> Any:
    """A compiled RE2 expression. Raises CelError where it is none."""
    try:
        return compile_re2(text)
    except ValueError as error:
        raise CelError(str(error)) from None


@overload("string.contains(string): bool", id="contains_string", cost=_per_product)
def contains_string(text: str, part: str) -> bool:
    return part in text


@overload("string.startsWith(string): bool", id="starts_with_string", cost=per_character)
def starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@overload("string.endsWith(string): bool", id="ends_with_string", cost=per_character)
def ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


@overload("matches(string, string): bool", "string.matches(string): bool", id="matches_string", cost=per_pattern)
def matches(text: str, expression: str) -> bool:
    return pattern(expression).search(text) is not None


# Optional values


@overload("optional.of(A): optional_type(A)")
def optional_of(value: Any) -> Optional:
    return Optional(True, value)


@overload("optional.ofNonZeroValue(A): optional_type(A)")
def optional_of_non_zero(value: Any) -> Optional:
    zero = value is None or value in (False, 0, 0.0, "", b"") or value in ([], {}, Duration(0), Timestamp(0))
    return NONE if zero else Optional(True, value)


@overload("optional.none(): optional_type(A)")
def optional_none() -> Optional:
    return NONE


@overload("optional_type(A).hasValue(): bool")
def has_value(value: Optional) -> bool:
    return value.present


@overload("optional_type(A).value(): A")
def value_of(value: Optional) -> Any:
    if value.present:
        return value.value
    raise CelError("optional.none() dereference")


@overload("optional_type(A).orValue(A): A")
def or_value(value: Optional, default: Any) -> Any:
    return value.value if value.present else default


@overload("optional_type(A).or(optional_type(A)): optional_type(A)")
def or_optional(value: Optional, other: Optional) -> Optional:
    return value if value.present else other
