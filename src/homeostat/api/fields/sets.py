"""Sets of fields, in the very form `fieldsV1` stores them: a trie of path elements.

A key is `f:name` (a field), `k:{"name":"web"}` (an item of a keyed list), `v:"x"` (an item of a set) or `i:0`. A node
is in the set itself when it is empty or holds `"."`; otherwise it only leads to what is below it. A node that neither
is a member nor leads to one is never kept, so an empty dict at the root is the empty set and `not fields` asks for it.

Nothing here changes its arguments, and what is not changed is shared: `difference(a, b) is a` when nothing was taken.
Keys stay sorted, as upstream writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from homeostat.api.wording import json_text

Fields = dict[str, Any]
"""A set of fields. Deeper levels are `Fields` again."""

SELF = "."


def has(fields: Fields, path: tuple[str, ...]) -> bool:
    """Whether the node at `path` (of keys such as `f:spec`) is itself a member."""
    node = fields
    for key in path:
        found = node.get(key)
        if found is None:
            return False
        node = found
    return bool(path) and (not node or SELF in node)


def single(path: tuple[str, ...]) -> Fields:
    """The set that holds exactly the field at `path`."""
    node: Fields = {}
    for key in reversed(path):
        node = {key: node}
    return node


def union(a: Fields, b: Fields) -> Fields:
    """What is in `a` or in `b`."""
    if not a or a is b:
        return b
    out = a
    grown = False
    for key, theirs in b.items():
        mine = a.get(key)
        if mine is None:
            grown = True
            merged = theirs
        elif key == SELF or (merged := _node_union(mine, theirs)) is mine:
            continue
        if out is a:
            out = a.copy()
        out[key] = merged
    return dict(sorted(out.items())) if grown else out


def _node_union(a: Fields, b: Fields) -> Fields:
    if not a:
        return b if SELF in b else {SELF: {}, **b} if b else a
    if not b:
        return a if SELF in a else {SELF: {}, **a}
    return union(a, b)


def difference(a: Fields, b: Fields) -> Fields:
    """What is in `a` and not in `b`; taking a parent away leaves its children."""
    out = a
    for key in b if len(b) < len(a) else a:
        if key == SELF:
            continue
        mine, theirs = a.get(key), b.get(key)
        if mine is None or theirs is None:
            continue
        left = _node_difference(mine, theirs)
        if left is mine:
            continue
        if out is a:
            out = a.copy()
        if left is None:
            del out[key]
        else:
            out[key] = left
    return out


def _node_difference(a: Fields, b: Fields) -> Fields | None:
    taken = not b or SELF in b
    if not a:
        return None if taken else a
    left = difference(a, b) if b else a
    if taken and SELF in left:
        left = {key: node for key, node in left.items() if key != SELF}
    if not left:
        return None
    return {} if len(left) == 1 and SELF in left else left


def recursive_difference(a: Fields, b: Fields) -> Fields:
    """What is in `a` and neither in `b` nor below anything in `b`."""
    out = a
    for key, theirs in b.items():
        mine = a.get(key)
        if mine is None or key == SELF:
            continue
        left: Fields | None = None
        if theirs and SELF not in theirs:
            left = mine
            if mine:
                left = recursive_difference(mine, theirs) or None
                if left is not None and len(left) == 1 and SELF in left:
                    left = {}
        if left is mine:
            continue
        if out is a:
            out = a.copy()
        if left is None:
            del out[key]
        else:
            out[key] = left
    return out


def intersection(a: Fields, b: Fields) -> Fields:
    """What is in both."""
    out: Fields = {}
    for key, mine in a.items():
        theirs = b.get(key)
        if theirs is None or key == SELF:
            continue
        both = (not mine or SELF in mine) and (not theirs or SELF in theirs)
        below = intersection(mine, theirs) if mine and theirs else {}
        if below:
            out[key] = {SELF: {}, **below} if both else below
        elif both:
            out[key] = {}
    return out


def paths(fields: Fields, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every member as a tuple of keys, in upstream's order: at each level first the members, then what lies below."""
    inner = sorted((key for key in fields if key != SELF), key=_order)
    for key in inner:
        if not fields[key] or SELF in fields[key]:
            yield (*prefix, key)
    for key in inner:
        if fields[key]:
            yield from paths(fields[key], (*prefix, key))


def _order(key: str) -> tuple[Any, ...]:
    """Fields and keyed items compare by value: port 80 comes before port 443."""
    if key[0] == "f":
        return (0, key)
    value = orjson.loads(key[2:])
    parts = [value[name] for name in sorted(value)] if isinstance(value, dict) else [value]
    return (1, [(0, part, "") if isinstance(part, (int, float)) else (1, 0, str(part)) for part in parts])


def show(path: tuple[str, ...]) -> str:
    """A path as people read it: `.spec.containers[name="web"].image`."""
    return "".join(map(show_element, path))


def show_element(key: str) -> str:
    """One element of a path: `.image`, `[name="web"]`, `[="x"]` or `[0]`."""
    tag, text = key[0], key[2:]
    if tag == "f":
        return "." + text
    if tag == "i":
        return f"[{text}]"
    if tag == "v":
        return f"[={_plain(orjson.loads(text))}]"
    value = orjson.loads(text)
    return "[" + ",".join(f"{name}={_plain(value[name])}" for name in sorted(value)) + "]"


def _plain(value: Any) -> str:
    return orjson.dumps(value).decode()


def sanitize(raw: Any) -> Fields | None:
    """A set that somebody sent, put in order; None where it cannot be read.

    Path elements of a kind nobody knows are dropped, as upstream drops them.
    """
    if not isinstance(raw, dict):
        return None
    out: Fields = {}
    for key, below in raw.items():
        if key == SELF:
            out[SELF] = {}
            continue
        if len(key) < 2 or key[1] != ":":
            return None
        if key[0] not in "fkvi":
            continue
        try:
            text = _canonical_key(key)
        except ValueError:
            return None
        node = sanitize(below)
        if node is None:
            return None
        out[text] = {} if len(node) == 1 and SELF in node else node
    return dict(sorted(out.items()))


def _canonical_key(key: str) -> str:
    if key[0] == "f":
        return key
    if key[0] == "i":
        return f"i:{int(key[2:])}"
    value = orjson.loads(key[2:])
    if key[0] == "k" and not isinstance(value, dict):
        raise ValueError(key)
    return f"{key[0]}:{json_text(value)}"
