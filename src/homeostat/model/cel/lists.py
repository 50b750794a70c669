"""Functions on lists and sets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

from homeostat.model.cel.overloads import deep_size, overload, per_pair, per_traversal
from homeostat.model.cel.standard import add_int, add_uint
from homeostat.model.cel.values import LONGEST_LIST, CelError, Duration, Uint, bounded, contains, equal

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")


@overload(*(f"list({t}).isSorted(): bool" for t in _COMPARABLE), cost=per_traversal)
def is_sorted(items: list[Any]) -> bool:
    return all(not b < a for a, b in pairwise(items))


def _sum(of: str, zero: Any, add: Callable[[Any, Any], Any]) -> None:
    overload(f"list({of}).sum(): {of}", cost=per_traversal)(lambda items: reduce(add, items, zero))


_sum("int", 0, add_int)
_sum("uint", Uint(0), add_uint)
_sum("double", 0.0, operator.add)
_sum("duration", Duration(0), lambda a, b: Duration(a.nanos + b.nanos))


@overload(*(f"list({t}).min(): {t}" for t in _COMPARABLE), cost=per_traversal)
def minimum(items: list[Any]) -> Any:
    if not items:
        raise CelError("min called on empty list")
    return min(items)


@overload(*(f"list({t}).max(): {t}" for t in _COMPARABLE), cost=per_traversal)
def maximum(items: list[Any]) -> Any:
    if not items:
        raise CelError("max called on empty list")
    return max(items)


@overload("list(A).indexOf(A): int", cost=per_traversal)
def index_of(items: list[Any], x: Any) -> int:
    return next((i for i, y in enumerate(items) if equal(x, y)), -1)


@overload("list(A).lastIndexOf(A): int", cost=per_traversal)
def last_index_of(items: list[Any], x: Any) -> int:
    return next((i for i in range(len(items) - 1, -1, -1) if equal(x, items[i])), -1)


def _per_self_compare(args: Sequence[Any]) -> int:
    # Members are held against each other.
    return 2 * len(args[-1]) ** 2 + 11


@overload(*(f"list({t}).sort(): list({t})" for t in _COMPARABLE), cost=_per_self_compare)
def sort(items: list[Any]) -> list[Any]:
    return sorted(items)


@overload(
    *(f"list(A).@sortByAssociatedKeys(list({t})): list(A)" for t in _COMPARABLE), id="sort_by", cost=_per_self_compare
)
def sort_by(items: list[Any], keys: list[Any]) -> list[Any]:
    return [items[i] for i in sorted(range(len(items)), key=keys.__getitem__)]


@overload("list(A).distinct(): list(A)", cost=_per_self_compare)
def distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not contains(kept, item):
            kept.append(item)
    return kept


def _per_copy(args: Sequence[Any]) -> int:
    return len(args[0]) + 11


@overload("list(A).reverse(): list(A)", cost=_per_copy)
def reverse(items: list[Any]) -> list[Any]:
    return items[::-1]


@overload("list(A).slice(int, int): list(A)", cost=_per_copy)
def slice_(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


@overload("lists.range(int): list(int)", cost=lambda args: max(args[0], 0) + 11)
def range_(count: int) -> list[int]:
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    bounded(count, LONGEST_LIST)
    return list(range(count))


def _per_flattened(args: Sequence[Any]) -> int:
    return deep_size(args[0]) + 11


@overload("list(list(A)).flatten(): list(A)", "list(dyn).flatten(int): list(dyn)", cost=_per_flattened)
def flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth > 0:
            flat += flatten(item, depth - 1)
            bounded(len(flat), LONGEST_LIST)
        else:
            flat.append(item)
    return flat


@overload("sets.contains(list(A), list(A)): bool", cost=per_pair)
def set_contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(contains(items, x) for x in wanted)


@overload("sets.equivalent(list(A), list(A)): bool", cost=lambda args: 2 * per_pair(args))
def set_equivalent(a: list[Any], b: list[Any]) -> bool:
    return set_contains(a, b) and set_contains(b, a)


@overload("sets.intersects(list(A), list(A)): bool", cost=per_pair)
def set_intersects(a: list[Any], b: list[Any]) -> bool:
    return any(contains(b, x) for x in a)
