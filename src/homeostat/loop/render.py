"""A difference as people read it: a line for each change, secrets masked."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

import orjson

from homeostat.loop.diff import Change, Diff, Item, Path, path_text
from homeostat.loop.fleet import Cause
from homeostat.loop.observation import ABSENT
from homeostat.model.schema import Schema

Pattern: TypeAlias = tuple[str, ...]
"""A path with `*` for any item of a list and any key of a map: `("users", "*", "password")`."""

MASK = "(sensitive)"
LONGEST_VALUE = 200
"""Characters of a value that are shown."""
MOST_LINES = 40
"""Lines of a text's own diff that are shown."""


def render(diff: Diff, sensitive: Collection[Pattern] = ()) -> list[str]:
    """Lines such as `~ ports[name="http"].port: 80 → 8080  (drift, by kubectl-edit)`.

    `+` is added, `-` goes, `~` gets another value; texts of several lines are shown by the lines that differ. What is at or
    below a sensitive path is shown as `(sensitive)`, also inside of a value that holds it. Lines have no newline in them.
    """
    return [line for change in diff.changes for line in _lines(change, sensitive)]


def sensitive_paths(schema: Schema) -> frozenset[Pattern]:
    """Where a type has secrets: its fields with `format: password`."""
    return frozenset(_passwords(schema.raw, ()))


def _passwords(raw: Any, at: Pattern) -> Iterator[Pattern]:
    if raw.get("format") == "password":
        yield at
    for name, below in raw.get("properties", {}).items():
        yield from _passwords(below, (*at, name))
    for below in (raw.get("items"), raw.get("additionalProperties")):
        if isinstance(below, dict):
            yield from _passwords(below, (*at, "*"))


def _lines(change: Change, sensitive: Collection[Pattern]) -> Iterator[str]:
    inside = [pattern[len(change.path) :] for pattern in sensitive if _agree(pattern, change.path)]
    old, new = _masked(change.old, inside), _masked(change.new, inside)
    head = f"{change.sign} {path_text(_masked_path(change.path, sensitive))}:"
    if change.sign != "~":
        value = new if change.sign == "+" else old
        yield f"{head} {_short(value)}{_reason(change)}"
    elif isinstance(old, str) and isinstance(new, str) and ("\n" in old or "\n" in new) and old != new:
        yield head + _reason(change)
        yield from _text_lines(old, new)
    else:
        yield f"{head} {_short(old)} → {_short(new)}{_reason(change)}"


def _reason(change: Change) -> str:
    words = [] if change.cause is Cause.INTENT else ["intent and drift" if change.cause is Cause.BOTH else "drift"]
    if change.who is not None:
        words.append(f"by {change.who.manager or 'somebody'}" + (f" at {change.who.time}" if change.who.time else ""))
    return f"  ({', '.join(words)})" if words else ""


def _text_lines(old: str, new: str) -> Iterator[str]:
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1))[2:]
    if not lines:
        yield f"    {_short(old)} → {_short(new)}"  # only the ends of lines differ
    for line in lines[:MOST_LINES]:
        yield f"    {line[:LONGEST_VALUE]}"
    if len(lines) > MOST_LINES:
        yield f"    … {len(lines) - MOST_LINES} more lines"


def _short(value: object) -> str:
    if value is MASK:
        return MASK
    text = orjson.dumps(value, default=str).decode()
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text)} characters)"


def _agree(pattern: Pattern, path: Path) -> bool:
    """Whether a path leads towards the secret, to it, or below it. An item goes by `*` alone."""
    return all(part == "*" or part == step for part, step in zip(pattern, path, strict=False))


def _masked_path(path: Path, sensitive: Collection[Pattern]) -> Path:
    """The path with those items of lists unnamed whose name is a secret or holds one."""
    if not sensitive:
        return path
    return tuple(
        MASK if isinstance(step, Item) and _tells(step, path[: i + 1], sensitive) else step
        for i, step in enumerate(path)
    )


def _tells(item: Item, path: Path, sensitive: Collection[Pattern]) -> bool:
    keys = item.named if item.text[0] == "k" else ()
    below = [pattern[len(path) :] for pattern in sensitive if _agree(pattern, path)]
    return any(not pattern or (len(pattern) == 1 and pattern[0] in keys) for pattern in below)


def _masked(value: Any, inside: list[Pattern]) -> Any:
    """The value with its secrets hidden; `inside` has what is left of each pattern on the way to it."""
    if not inside or value is ABSENT:
        return value
    if () in inside:
        return MASK
    if isinstance(value, dict):
        return {name: _masked(below, _down(inside, name)) for name, below in value.items()}
    if isinstance(value, list):
        return [_masked(below, _down(inside, None)) for below in value]
    return value


def _down(inside: list[Pattern], name: str | None) -> list[Pattern]:
    return [pattern[1:] for pattern in inside if pattern[0] == "*" or pattern[0] == name]
