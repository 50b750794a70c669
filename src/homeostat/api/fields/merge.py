"""Puts an applied configuration into an object, and takes fields out of one. Arguments are shared, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeostat.api.fields.sets import SELF, Fields, show_element
from homeostat.api.fields.types import ANY_SCALAR, ATOMIC, DEDUCED, FLAG, NUMBER, TEXT, Type, Untypable
from homeostat.api.wording import literal, plain, type_word

Problem = tuple[str, str]
"""A path (`.spec.ports[0]`) and what is wrong there."""


def merge(t: Type, live: Any, applied: Any) -> Any:
    """`live` with `applied` laid over it: nothing is removed, leaves and atomic parts are taken from `applied`.

    An empty or null map or list in `applied` leaves what is there.
    """
    if type(applied) is dict and t.is_map:
        if t.map_atomic or type(live) is not dict or not live:
            return applied
        out = live.copy()
        fields = t.fields
        for name, value in applied.items():
            if name in live:
                known = fields.get(name)
                out[name] = merge(known[1] if known is not None else t.element or DEDUCED, live[name], value)
            else:
                out[name] = value
        return out
    if type(applied) is list and t.is_list:
        if t.list_kind == ATOMIC or type(live) is not list or not live:
            return applied
        return _merge_items(t, live, applied) if applied else live
    if applied is None and live:
        kept = (type(live) is dict and t.is_map and not t.map_atomic) or (
            type(live) is list and t.is_list and not t.is_map and t.list_kind != ATOMIC
        )
        return live if kept else applied
    return applied


def _merge_items(t: Type, live: list[Any], applied: list[Any]) -> list[Any]:
    """Items that both have come in the order of `applied`; those that only `live` has keep their place among them."""
    left = [t.item_key(item) for item in live]
    right = {t.item_key(item): item for item in applied}
    partner: dict[str, Any] = {}
    for key, item in zip(left, live, strict=True):
        # Twins in the live object are not merged with: the applied item replaces them all.
        partner[key] = None if key in partner else item
    order = list(right)
    shared = iter([key for key in order if key in partner])
    wanted = next(shared, None)
    out: list[Any] = []
    done: set[str] = set()
    i = j = 0
    while i < len(left) or j < len(order):
        ours = left[i] if i < len(left) else None
        theirs = order[j] if j < len(order) else None
        if ours is not None:
            if ours not in right:
                out.append(live[i])
                i += 1
                continue
            if theirs is not None and ours != theirs and wanted not in (None, ours):
                i += 1  # shared, but not the one whose turn it is
                continue
            if ours == theirs or ours in done:
                i += 1
        if theirs is not None:
            out.append(merge(t.item, partner.get(theirs), right[theirs]))
            done.add(theirs)
            j += 1
            if theirs == wanted:
                wanted = next(shared, None)
    return out


def remove(t: Type, value: Any, fields: Fields) -> Any:
    """`value` without the members of `fields`. What has nothing left in it becomes None."""
    if not value:
        return None if isinstance(value, (dict, list)) else value
    if type(value) is dict and t.is_map:
        return None if t.map_atomic else _remove_keys(t, value, fields) or None
    if type(value) is list and t.is_list:
        return None if t.list_kind == ATOMIC else _remove_items(t, value, fields) or None
    return value


def _remove_keys(t: Type, value: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    out = {}
    for name, item in value.items():
        taken = fields.get("f:" + name)
        if taken is None:
            out[name] = item
        elif taken and SELF not in taken:
            known = t.fields.get(name)
            out[name] = remove(known[1] if known else t.element or DEDUCED, item, taken)
    return out


def _remove_items(t: Type, value: list[Any], fields: Fields) -> list[Any]:
    out = []
    for item in value:
        taken = fields.get(t.item_key(item))
        if taken is None:
            out.append(item)
        elif taken and SELF not in taken:
            out.append(remove(t.item, item, taken))
    return out


def with_empty(applied: Any, value: Any) -> Any:
    """`value` with what `applied` says is there and empty, where a removal has left nothing of it.

    Upstream leaves a null, over which a custom kind's schema then stumbles.
    """
    if type(applied) is not dict or type(value) is not dict:
        return value
    out = value
    for name, said in applied.items():
        left = value.get(name)
        kept = said if left is None and name in value and said in ({}, []) else with_empty(said, left)
        if kept is not left:
            out = {**out, name: kept}
    return out


def with_structures(t: Type, fields: Fields) -> Fields:
    """`fields` and, as members, the declared fields that lead to them."""
    out: Fields = {}
    for key, below in fields.items():
        if key == SELF or not below:
            out[key] = below
            continue
        child, declared = _descend(t, key)
        inner = with_structures(child, below)
        out[key] = {SELF: {}, **inner} if declared and SELF not in inner else inner
    return out


def _descend(t: Type, key: str) -> tuple[Type, bool]:
    if key[0] == "f" and t.is_map:
        known = t.fields.get(key[2:])
        return (known[1], True) if known is not None else (t.element or DEDUCED, False)
    return (t.item if key[0] == "k" and t.is_list else DEDUCED), False


def reconcile(t: Type, fields: Fields) -> Fields:
    """A set written under an older schema, read under this one: what has become atomic is owned as a whole."""
    out = fields
    for key, below in fields.items():
        if not below or key == SELF:
            continue
        child, _ = _descend(t, key)
        if child.element is DEDUCED and not child.fields:
            continue
        if (child.is_map and child.map_atomic) or (not child.is_map and child.is_list and child.list_kind == ATOMIC):
            left: Fields = {}
        elif (left := reconcile(child, below)) is below:
            continue
        if out is fields:
            out = fields.copy()
        out[key] = left
    return out


def problems(t: Type, value: Any) -> list[Problem]:
    """Why a configuration does not fit its type, worded as upstream words it; empty when it fits."""
    if type(value) is dict and t.is_map:
        return _map_problems(t, value)
    if type(value) is list and t.is_list:
        return _list_problems(t, value)
    if value is None:
        return []
    if t.is_map:
        any_scalar = t.scalar and not isinstance(value, (dict, list))
        return [] if any_scalar else [("", f"expected map, got &{{{plain(value)}}}")]
    if t.scalar:
        return _scalar_problems(t.scalar, value)
    return [("", f"expected list, got &{{{plain(value)}}}")]


def _map_problems(t: Type, value: dict[str, Any]) -> list[Problem]:
    found: list[Problem] = []
    fields = t.fields
    for name, item in value.items():
        known = fields.get(name)
        child = known[1] if known is not None else t.element
        if child is None:
            found.append(("." + name, "field not declared in schema"))
            return found
        if child.scalar and _PLAIN.get(type(item)) == child.scalar:
            continue
        if child is not DEDUCED and (below := problems(child, item)):
            found += [(f".{name}{path}", what) for path, what in below]
    return found


_PLAIN = {str: TEXT, bool: FLAG, int: NUMBER, float: NUMBER}
"""The types of scalars that need no closer look, and what they are."""


def _list_problems(t: Type, value: list[Any]) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, item in enumerate(value):
        key = f"i:{index}"
        if t.list_kind != ATOMIC:
            try:
                key = t.item_key(item)
            except Untypable as error:
                found.append(("", f"element {index}: {error}"))
                return found
            if key in seen:
                found.append(("", f"duplicate entries for key {show_element(key)}"))
            seen.add(key)
        if below := problems(t.item, item):
            found += [(show_element(key) + path, what) for path, what in below]
    return found


def _scalar_problems(scalar: int, value: Any) -> list[Problem]:
    compound = isinstance(value, (dict, list))
    if scalar == ANY_SCALAR:
        return [("", f"expected any scalar, got &{{{plain(value)}}}")] if compound else []
    if scalar == TEXT and type(value) is not str:
        return [("", f"expected string, got &value.valueUnstructured{{Value:{literal(value)}}}")]
    if scalar == NUMBER and (isinstance(value, (bool, str)) or compound):
        return [("", f"expected numeric (int or float), got {type_word(value)}")]
    if scalar == FLAG and type(value) is not bool:
        return [("", f"expected boolean, got &{{{plain(value)}}}")]
    return []
