"""Which fields of a live object are about a declaration: those that it names, and those that we own and it names no more.

Maps are looked at field by field. How lists tell their items apart is said by the managed fields of the object, whoever's they
are: by keys, by value, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

Fields = Mapping[str, Any]
"""A set of fields as managed fields have it: `f:` a field, `k:` and `v:` an item of a list, `.` the thing itself."""


def fields_of(obj: Mapping[str, Any], manager: str = "") -> Fields:
    """The fields that `manager` applied, or (empty) all that anybody owns; those of subresources left out."""
    found: list[Fields] = [
        entry.get("fieldsV1") or {}
        for entry in (obj.get("metadata") or {}).get("managedFields") or ()
        if not entry.get("subresource")
        and (not manager or (entry.get("manager") == manager and entry.get("operation") == "Apply"))
    ]
    if len(found) == 1:
        return found[0]
    merged: dict[str, Any] = {}
    for fields in found:
        _add(merged, fields)
    return merged


def _add(to: dict[str, Any], fields: Fields) -> None:
    for step, below in fields.items():
        _add(to.setdefault(step, {}), below or {})


def managers_of(obj: Mapping[str, Any]) -> set[str]:
    """Who owns anything in it, by any way but a subresource."""
    entries: Iterable[Mapping[str, Any]] = (obj.get("metadata") or {}).get("managedFields") or ()
    return {str(entry.get("manager")) for entry in entries if not entry.get("subresource")}


def view(declared: Any, live: Any, known: Fields, ours: Fields) -> Any:
    """What of `live` is about `declared`. `known` are the fields that anybody owns here, `ours` those that we do."""
    if isinstance(declared, dict) and isinstance(live, dict):
        return _view_map(declared, live, known, ours)
    if isinstance(declared, list) and isinstance(live, list):
        if keys := _keys(known):
            return _view_items(declared, live, known, ours, keys)
        if any(step.startswith("v:") for step in known):
            mine = [orjson.loads(step[2:]) for step in ours if step.startswith("v:")]
            kept = [item for item in declared if item in live]
            return kept + [item for item in mine if item in live and item not in kept]
    return live


def _view_map(declared: Mapping[str, Any], live: Mapping[str, Any], known: Fields, ours: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in declared.items():
        if name in live:
            found[name] = view(value, live[name], known.get(f"f:{name}", {}), ours.get(f"f:{name}", {}))
    for step, below in ours.items():
        name = step[2:]
        if step.startswith("f:") and name in live and name not in declared:
            found[name] = _extract(live[name], below)
    return found


def _view_items(declared: list[Any], live: list[Any], known: Fields, ours: Fields, keys: tuple[str, ...]) -> list[Any]:
    found: list[Any] = []
    taken: set[int] = set()
    for item in declared:
        at = next((i for i, one in enumerate(live) if i not in taken and _same(item, one, keys)), None)
        if at is not None:
            taken.add(at)
            step = _step(live[at], keys)
            found.append(view(item, live[at], known.get(step, {}), ours.get(step, {})))
    for at, one in enumerate(live):
        if at not in taken and (step := _step(one, keys)) in ours:
            found.append(_extract(one, ours[step]))
    return found


def shows(declared: Any, live: Any, known: Fields, ours: Fields) -> bool:
    """Whether a `view` is all that is declared, and no more: told without making it, as far as that goes."""
    if isinstance(declared, dict) and isinstance(live, dict):
        return _shows_map(declared, live, known, ours)
    if isinstance(declared, list) and isinstance(live, list) and len(declared) == len(live) == 1:
        keys = _keys(known)
        if keys and _same(declared[0], live[0], keys):
            step = _step(live[0], keys)
            return shows(declared[0], live[0], known.get(step, {}), ours.get(step, {}))
    return bool(view(declared, live, known, ours) == declared)


def _shows_map(declared: Mapping[str, Any], live: Mapping[str, Any], known: Fields, ours: Fields) -> bool:
    for name, value in declared.items():
        if name not in live:
            return False
        if not isinstance(value, (dict, list)):
            if live[name] != value:
                return False
        elif not shows(value, live[name], known.get(f"f:{name}", {}), ours.get(f"f:{name}", {})):
            return False
    for step in ours:
        name = step[2:]
        if name not in declared and name in live and step.startswith("f:"):
            return False
    return True


def _extract(live: Any, ours: Fields) -> Any:
    """What we own of a value; all of it where nothing below is told apart."""
    below = {step: inner for step, inner in ours.items() if step != "."}
    if not below:
        return live
    if isinstance(live, Mapping):
        return {s[2:]: _extract(live[s[2:]], inner) for s, inner in below.items() if s[:2] == "f:" and s[2:] in live}
    if isinstance(live, list) and (keys := _keys(below)):
        named = ((one, below.get(_step(one, keys))) for one in live)
        return [_extract(one, inner) for one, inner in named if inner is not None]
    return live


def _keys(fields: Fields) -> tuple[str, ...]:
    for step in fields:
        if step.startswith("k:"):
            return tuple(orjson.loads(step[2:]))
    return ()


def _step(item: Any, keys: tuple[str, ...]) -> str:
    named = {key: item[key] for key in keys if key in item} if isinstance(item, (dict, Mapping)) else {}
    return "k:" + orjson.dumps(named, option=orjson.OPT_SORT_KEYS).decode()


def _same(declared: Any, live: Any, keys: tuple[str, ...]) -> bool:
    """Whether they are the same item; a key that is not declared gets its default from the server, and says nothing."""
    if not isinstance(declared, (dict, Mapping)) or not isinstance(live, (dict, Mapping)):
        return False
    said = False
    for key in keys:
        if (value := declared.get(key)) is not None:
            if value != live.get(key):
                return False
            said = True
    return said


def settle(declared: Any, would: Any, live: Any) -> Any:
    """What is live, in the words of the declaration wherever applying that would change nothing.

    `would` is what applying would lead to, as the server itself says: a quantity of 1000m that it writes as 1 is no difference.
    """
    if would == live:
        return declared
    if isinstance(declared, Mapping) and isinstance(would, Mapping) and isinstance(live, Mapping):
        told = {n: settle(v, would.get(n), live.get(n)) for n, v in declared.items() if n in live or n not in would}
        return {**{name: value for name, value in live.items() if name not in declared}, **told}
    return live
