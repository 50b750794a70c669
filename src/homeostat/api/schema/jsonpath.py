"""JSONPath as custom resource definitions use it: printer columns, scale paths, selectable fields.

    .spec.replicas   .spec.ports[0].port   .metadata.labels['app.kubernetes.io/name']   .metadata.labels.app\\.io/x
    .status.conditions[?(@.type=="Ready")].status   .spec.items[*].name   .spec.items[-1:]   ..name

A path is compiled once into a function from an object to the list of what it finds, missing parts giving nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

Getter = Callable[[Any], list[Any]]
Step = Callable[[Iterable[Any]], list[Any]]

_FIELD = re.compile(r"(?:\\.|[^\\.\[\]\s{}()'\"])+")
_INDEX = re.compile(r"-?[0-9]+").fullmatch
_SLICE = re.compile(r"(-?[0-9]*):(-?[0-9]*)(?::([0-9]*))?").fullmatch
_FILTER = re.compile(r"\?\((.*)\)", re.DOTALL).fullmatch
_QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_COMPARISON = re.compile(rf"""((?:{_QUOTED}|[^"'=!<>])+)(==|!=|<=|>=|<|>)(.+)""", re.DOTALL)
_SPLIT = re.compile(rf"""(?:{_QUOTED}|[^,'"])+""").findall
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
MAX_STEPS = 64
MAX_FOUND = 10_000
"""Values that a path with `..` finds at most: two of them in a row find everything many times over."""


class BadPath(ValueError):
    """The text is no JSONPath that is understood here; the message says where it stops making sense."""


def compile_path(path: str) -> Getter:
    """A function that finds the values under a path. BadPath where the path cannot be understood."""
    text = path.strip()
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    if text.startswith("$"):
        text = text[1:]
    simple = _simple_fields(text)
    if simple is not None:
        return _field_getter(simple)
    steps = _parse(text, path)

    def get(obj: Any) -> list[Any]:
        found = [obj]
        for step in steps:
            found = step(found)[:MAX_FOUND]
            if not found:
                break
        return found

    return get


def _simple_fields(text: str) -> list[str] | None:
    if text.startswith(".") and re.fullmatch(r"(?:\.[A-Za-z0-9_/-]+)+", text):
        return text[1:].split(".")
    return None


def _field_getter(names: list[str]) -> Getter:
    def get(obj: Any) -> list[Any]:
        for name in names:
            if type(obj) is not dict or name not in obj:
                return []
            obj = obj[name]
        return [obj]

    return get


def _parse(text: str, path: str) -> list[Step]:
    steps: list[Step] = []
    at = 0
    while at < len(text):
        if len(steps) >= MAX_STEPS:
            raise BadPath(f"{path!r} has more than {MAX_STEPS} steps")
        if text.startswith("..", at):
            steps.append(_descend)
            at += 2
            if at < len(text) and text[at] not in ".[":
                at = _parse_field(text, at, path, steps)
        elif text[at] == ".":
            at += 1
            if at < len(text) and text[at] != "[":
                at = _parse_field(text, at, path, steps)
        elif text[at] == "[":
            end = _closing(text, at, path)
            steps.append(_bracket(text[at + 1 : end].strip(), path))
            at = end + 1
        elif at == 0:
            at = _parse_field(text, at, path, steps)
        else:
            raise BadPath(f"{path!r}: unexpected {text[at]!r} at position {at}")
    return steps


def _parse_field(text: str, at: int, path: str, steps: list[Step]) -> int:
    if text[at] == "*":
        steps.append(_all)
        return at + 1
    match = _FIELD.match(text, at)
    if not match:
        raise BadPath(f"{path!r}: expected a field name at position {at}")
    steps.append(_fields([re.sub(r"\\(.)", r"\1", match[0])]))
    return match.end()


def _closing(text: str, start: int, path: str) -> int:
    """Where the bracket that opens at `start` closes; quotes hide brackets."""
    depth, quote, at = 0, "", start
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    raise BadPath(f"{path!r}: the bracket at position {start} is never closed")


def _bracket(inner: str, path: str) -> Step:
    if inner == "*":
        return _all
    if _INDEX(inner):
        return _indexes([int(inner)])
    if match := _SLICE(inner):
        return _slice(*(int(part) if part else None for part in match.groups()))
    if match := _FILTER(inner):
        return _filter(match[1].strip(), path)
    parts = [part.strip() for part in _SPLIT(inner)]
    if parts and all(_INDEX(part) for part in parts):
        return _indexes([int(part) for part in parts])
    if parts and all(len(p) >= 2 and p[0] == p[-1] and p[0] in "'\"" for p in parts):
        return _fields([re.sub(r"\\(.)", r"\1", part[1:-1]) for part in parts])
    raise BadPath(f"{path!r}: [{inner}] is not understood")


def _fields(names: list[str]) -> Step:
    return lambda found: [item[name] for item in found if type(item) is dict for name in names if name in item]


def _indexes(places: list[int]) -> Step:
    return lambda found: [
        item[i] for item in found if type(item) is list for i in places if -len(item) <= i < len(item)
    ]


def _slice(start: int | None = None, stop: int | None = None, step: int | None = None) -> Step:
    part = slice(start, stop, step or None)
    return lambda found: [entry for item in found if type(item) is list for entry in item[part]]


def _children(item: Any) -> Iterable[Any]:
    if type(item) is dict:
        return item.values()
    return item if type(item) is list else ()


def _all(found: Iterable[Any]) -> list[Any]:
    return [entry for item in found for entry in _children(item)]


def _descend(found: Iterable[Any]) -> list[Any]:
    reached: list[Any] = []
    waiting = list(found)[::-1]  # the next one is last
    while waiting and len(reached) < MAX_FOUND:
        item = waiting.pop()
        reached.append(item)
        waiting += list(_children(item))[::-1]
    return reached


def _filter(text: str, path: str) -> Step:
    match = _COMPARISON.fullmatch(text)
    if not match:
        exists = _operand(text, path)
        return lambda found: [e for item in found for e in _children(item) if exists(e)]
    left, compare, right = _operand(match[1], path), _COMPARE[match[2]], _operand(match[3], path)

    def holds(entry: Any) -> bool:
        a, b = left(entry), right(entry)
        try:
            return bool(a) and bool(b) and compare(a[0], b[0])
        except TypeError:
            return False

    return lambda found: [e for item in found for e in _children(item) if holds(e)]


def _operand(text: str, path: str) -> Getter:
    """One side of a comparison: a path from the item (`@.type`) or a literal."""
    text = text.strip()
    if text.startswith("@"):
        rest = text[1:]
        return compile_path(rest) if rest else lambda entry: [entry]
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        literal: Any = re.sub(r"\\(.)", r"\1", text[1:-1])
    elif text in ("true", "false"):
        literal = text == "true"
    elif _INDEX(text):
        literal = int(text)
    else:
        try:
            literal = float(text)
        except ValueError:
            raise BadPath(f"{path!r}: {text!r} is neither a path nor a literal") from None
    return lambda _: [literal]
