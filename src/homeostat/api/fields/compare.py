"""Which fields a value holds, and which fields a change touches.

`None` as a result means "nothing"; `{}` means the node itself and nothing below it (see `sets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from homeostat.api.fields.sets import SELF, Fields, union
from homeostat.api.fields.types import ATOMIC, DEDUCED, METADATA, Type, Untypable
from homeostat.model.equality import same
from homeostat.model.errors import UNSET

SERVER_KEPT = frozenset(
    (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
"""Fields of `metadata` that nobody owns, as upstream strips them from every set."""

_EMPTY: dict[str, Any] = {}
_CONTAINERS = frozenset((dict, list))
_SCALARS = frozenset((str, int, float, bool))
_FLAT_MOST = 16  # names in a map, or items in a list, that are worth remembering
_NAME_MOST = 64  # characters in the key of such an item

Changes = tuple[Fields | None, Fields | None]
"""What was added or got another value, and what was removed."""


def claimed(t: Type, value: Any) -> Fields | None:
    """The fields an applied value lays claim to: its leaves and list items, not the structures that lead to them."""
    if type(value) is dict and t.is_map:
        if t.map_atomic:
            return _EMPTY
        return _claimed_map(t, value) or None
    if type(value) is list and t.is_list:
        if t.list_kind == ATOMIC:
            return _EMPTY
        return _claimed_items(t, value) or None
    if value is None and ((t.is_map and not t.map_atomic) or (t.is_list and t.list_kind)):
        return None
    return _EMPTY


def _claimed_map(t: Type, value: Mapping[str, Any]) -> Fields:
    fields = t.fields
    out: Fields = {}
    for name in sorted(value):
        item = value[name]
        known = fields.get(name)
        if known is not None:
            below = claimed(known[1], item)
            if item is None or (not item and type(item) is dict):
                below = _owned(below)
            if below is not None:
                out[known[0]] = below
        else:
            out["f:" + name] = _owned(claimed(t.element or DEDUCED, item))
    return out


def _claimed_items(t: Type, value: list[Any]) -> Fields:
    out: Fields = {}
    seen: set[str] = set()
    for item in value:
        try:
            key = t.item_key(item)
        except Untypable:  # half-pruned items have lost their keys; a configuration is checked before
            continue
        out[key] = {} if key in seen else _owned(claimed(t.item, item))
        seen.add(key)
    return dict(sorted(out.items())) if len(out) > 1 else out


def _owned(below: Fields | None) -> Fields:
    """The node itself together with what lies below it."""
    return below if below is not None and SELF in below else {SELF: {}, **below} if below else {}


def claimed_by_object(t: Type, obj: Mapping[str, Any]) -> Fields:
    """`claimed` for a whole object, without what nobody owns."""
    out = {}
    for name in sorted(obj):
        if name == "metadata":
            meta = obj["metadata"]
            if type(meta) is dict:
                below = _claimed_map(METADATA, {k: v for k, v in meta.items() if k not in SERVER_KEPT})
                if below:
                    out["f:metadata"] = below
        elif name != "apiVersion" and name != "kind":
            known = t.fields.get(name)
            item = obj[name]
            fields = claimed(known[1] if known else t.element or DEDUCED, item)
            if known is None or item is None or item == {}:
                fields = _owned(fields)
            if fields is not None:
                out["f:" + name] = fields
    return out


def whole(t: Type, value: Any) -> Fields:
    """The value with everything in it, structures included: what comes or goes when it comes or goes."""
    if not value:
        return _EMPTY
    if type(value) is dict and t.is_map:
        if t.map_atomic:
            return _EMPTY
        if len(value) <= _FLAT_MOST and _CONTAINERS.isdisjoint(map(type, value.values())):
            return _flat(tuple(value))
        out: Fields = {SELF: {}}
        fields = t.fields
        for name in sorted(value):
            item = value[name]
            known = fields.get(name)
            if type(item) is not dict and type(item) is not list:
                out[known[0] if known is not None else "f:" + name] = _EMPTY
            elif known is not None:
                out[known[0]] = whole(known[1], item)
            else:
                out["f:" + name] = whole(t.element or DEDUCED, item)
        return out
    if type(value) is list and t.is_list and t.list_kind != ATOMIC:
        if (flat := _flat_items(t, value)) is not None:
            return flat
        item_type = t.item
        out = {SELF: {}}
        for item in value:
            key = t.item_key(item)
            out[key] = _EMPTY if key in out else whole(item_type, item)
        return dict(sorted(out.items()))
    return _EMPTY


def _flat_items(t: Type, items: list[Any]) -> Fields | None:
    """`whole` of a short keyed list, where the items declare nothing but leaves, as conditions do; None for any other."""
    if len(t.keys) != 1 or len(items) > _FLAT_MOST:
        return None
    key, known = t.keys[0], t.item.fields.keys()
    names = []
    for item in items:
        if type(item) is not dict or type(name := item.get(key)) is not str or len(name) > _NAME_MOST or not item.keys() <= known:
            return None
        names.append(name)
    return _flat_list(t, tuple(names), tuple(map(tuple, items)))


@lru_cache(1024)
def _flat_list(t: Type, names: tuple[str, ...], fields: tuple[tuple[str, ...], ...]) -> Fields | None:
    """The keys of the items, and the names of their fields, are all that counts, and they come back."""
    known = t.item.fields
    if not t.item.is_map or t.item.map_atomic or not all(_is_leaf(known[name][1]) for item in fields for name in item):
        return None
    out: Fields = {SELF: {}}
    for name, item in zip(names, fields, strict=True):
        key = t.item_key({t.keys[0]: name})
        out[key] = _EMPTY if key in out else _flat(item)
    return dict(sorted(out.items()))


def _is_leaf(t: Type) -> bool:
    """Is it owned as a whole, whatever it holds?"""
    return not (t.is_map and not t.map_atomic) and not (t.is_list and t.list_kind != ATOMIC)


@lru_cache(1024)
def _flat(names: tuple[str, ...]) -> Fields:
    """A map of nothing but scalars, such as a condition: its names are all that counts, and they come back."""
    return {SELF: {}, **{"f:" + name: _EMPTY for name in sorted(names)}}


def compare_objects(
    t: Type, old: Mapping[str, Any] | None, new: Mapping[str, Any], skip: frozenset[str] = frozenset()
) -> tuple[Fields, Fields]:
    """What a write changed and what it removed, without what nobody owns and the top-level fields in `skip`.

    `old` is None for a creation.
    """
    changed: Fields = {}
    removed: Fields = {}
    before = _EMPTY if old is None else old
    for name in sorted(new if old is None else new.keys() | old.keys()):
        if name in skip or name == "apiVersion" or name == "kind":
            continue
        if name == "metadata":
            more, less = _compare_maps(METADATA, _owned_meta(before), _owned_meta(new))
        else:
            more, less = _compare_key(t, name, before, new)
        if more is not None:
            changed["f:" + name] = more
        if less is not None:
            removed["f:" + name] = less
    return changed, removed


def _owned_meta(obj: Mapping[str, Any]) -> dict[str, Any]:
    meta = obj.get("metadata")
    return {k: v for k, v in meta.items() if k not in SERVER_KEPT} if type(meta) is dict else _EMPTY


def _compare_key(t: Type, name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Changes:
    known = t.fields.get(name)
    child = known[1] if known is not None else t.element or DEDUCED
    zero = t.zero
    if name not in old:
        if name not in zero:
            return whole(child, new[name]), None
        return compare(child, zero[name], new[name])
    if name not in new:
        if name not in zero:
            return None, whole(child, old[name])
        return compare(child, old[name], zero[name])
    return compare(child, old[name], new[name])


def compare(t: Type, old: Any, new: Any) -> Changes:
    """What changed below a node that is there before and after."""
    if same(old, new):
        return None, None
    if type(old) is dict and type(new) is dict and t.is_map:
        return _as_map(t, old, new)
    if type(old) is list and type(new) is list and t.is_list:
        return _as_list(t, old, new)
    # The forms differ: upstream looks at both sides as each of them asks to be looked at.
    first, second = _form(t, old), _form(t, new)
    changed, removed = first(t, old, new)
    if second is not first:
        more, less = second(t, old, new)
        changed, removed = _either(changed, more), _either(removed, less)
    return changed, removed


def _either(a: Fields | None, b: Fields | None) -> Fields | None:
    if a is None or b is None:
        return b if a is None else a
    if not a or not b:
        return _owned(a or b)
    return union(a, b)


def _form(t: Type, value: Any) -> Any:
    if type(value) is dict and t.is_map:
        return _as_map
    if type(value) is list and t.is_list:
        return _as_list
    if value is not None and not isinstance(value, (dict, list)) and t.scalar:
        return _as_leaf
    return _as_map if t.is_map else _as_leaf if t.scalar else _as_list


def _as_leaf(t: Type, old: Any, new: Any) -> Changes:
    return (None, None) if same(old, new) else (_EMPTY, None)


def _as_map(t: Type, old: Any, new: Any) -> Changes:
    before = old if type(old) is dict else _EMPTY
    after = new if type(new) is dict else _EMPTY
    if t.map_atomic or not (before or after):
        return _as_leaf(t, old, new)
    more, less = _compare_maps(t, before, after)
    return more, less


def _compare_maps(t: Type, old: dict[str, Any], new: dict[str, Any]) -> Changes:
    changed: Fields = {}
    removed: Fields = {}
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, UNSET), new.get(name, UNSET)
        if before is after:
            continue
        if type(before) is type(after) and type(before) in _SCALARS:  # leaves, whatever they are declared as
            if before != after:
                changed["f:" + name] = _EMPTY
            continue
        more, less = _compare_key(t, name, old, new)
        if more is not None:
            changed["f:" + name] = more
        if less is not None:
            removed["f:" + name] = less
    return changed or None, removed or None


def _as_list(t: Type, old: Any, new: Any) -> Changes:
    before = old if type(old) is list else []
    after = new if type(new) is list else []
    if t.list_kind == ATOMIC or not (before or after):
        return _as_leaf(t, old, new)
    left, right = _by_key(t, before), _by_key(t, after)
    changed: Fields = {}
    removed: Fields = {}
    for key in sorted(left.keys() | right.keys()):
        more, less = _compare_items(t.item, left.get(key, ()), right.get(key, ()))
        if more is not None:
            changed[key] = more
        if less is not None:
            removed[key] = less
    return changed or None, removed or None


def _by_key(t: Type, items: list[Any]) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    for item in items:
        out.setdefault(t.item_key(item), []).append(item)
    return out


def _compare_items(t: Type, old: Any, new: Any) -> Changes:
    """Items under one key. Twins (legal in stored objects of old) are owned together, as one leaf."""
    if len(old) == 1 and len(new) == 1:
        return compare(t, old[0], new[0])
    if len(old) > 1 and len(new) > 1:
        return _as_leaf(t, old, new)
    changed = removed = None
    if new:
        changed = _EMPTY if len(new) > 1 else whole(t, new[0])
    if old:
        removed = _EMPTY if len(old) > 1 else whole(t, old[0])
    return changed, removed
