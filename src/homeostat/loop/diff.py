"""A difference between what is declared and what is: its changes, field by field, and what the world is after them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec
import orjson

from homeostat.loop.fleet import Cause, Op
from homeostat.loop.observation import ABSENT, Absent
from homeostat.model.errors import UNSET
from homeostat.model.schema import ANY, Schema

_GO_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


class Item(msgspec.Struct, frozen=True, gc=False):
    """An item of a list in a path, named as managed fields name it: `k:{"name":"web"}` by its keys, `v:"x"` by its value."""

    text: str

    @classmethod
    def keyed(cls, keys: Mapping[str, Any]) -> Item:
        return cls("k:" + _json(keys))

    @classmethod
    def member(cls, value: Any) -> Item:
        return cls("v:" + _json(value))

    @property
    def named(self) -> Any:
        """The keys as a dict, or the value."""
        return orjson.loads(self.text[2:])

    def __str__(self) -> str:
        keys = self.named.items() if self.text[0] == "k" else [("", self.named)]
        return "[" + ",".join(f"{name}={orjson.dumps(value).decode()}" for name, value in keys) + "]"


Path: TypeAlias = tuple[str | Item, ...]
"""The way to a value: fields and keys of maps by name, items of lists as `Item`."""


@lru_cache(maxsize=4096)
def path_text(path: Path) -> str:
    """A path as people read it: `ports[name="http"].port`; a key that is no plain word stands in brackets."""
    text = ""
    for step in path:
        if isinstance(step, Item):
            text += str(step)
        elif step.replace("-", "_").isidentifier():
            text += f".{step}" if text else step
        else:
            text += f"[{step}]"
    return text


class Who(NamedTuple):
    """Who wrote a field last: the field manager, whether by `Apply` or `Update`, and when (RFC 3339; empty if unknown)."""

    manager: str
    operation: str = ""
    time: str = ""


class Change(msgspec.Struct, frozen=True, gc=False):
    """One field that has to become another. `old` is what was observed, `new` what it shall be; ABSENT where there is none."""

    path: Path
    old: Any
    new: Any
    cause: Cause
    who: Who | None = None

    @property
    def sign(self) -> str:
        """`+` for what is added, `-` for what goes, `~` for what gets another value."""
        return "+" if self.old is ABSENT else "-" if self.new is ABSENT else "~"


class Diff(msgspec.Struct, frozen=True, gc=False):
    """What would make the world as declared. False where nothing is to be done; `op` and `cause` are None then."""

    op: Op | None = None
    changes: tuple[Change, ...] = ()
    cause: Cause | None = None

    def __bool__(self) -> bool:
        return self.op is not None

    def touches(self, *fields: str) -> bool:
        """Whether one of these top-level fields changes: `if diff.touches("mode", "owner"): …`."""
        return any(change.path[0] in fields for change in self.changes if change.path)


NOTHING = Diff()
"""The empty difference; there is one of it."""


def whole_cause(causes: Iterable[Cause]) -> Cause:
    """What caused several changes together."""
    found = set(causes)
    return found.pop() if len(found) == 1 else Cause.BOTH


def after(observed: Mapping[str, Any] | Absent, diff: Diff, schema: Schema | None = None) -> dict[str, Any] | Absent:
    """The world as it will be after the diff, if all goes well. What is handed in stays as it is."""
    if diff.op is Op.DELETE:
        return ABSENT
    if isinstance(observed, Absent):
        if diff.op is not Op.CREATE:
            return ABSENT
        observed = {}
    world: dict[str, Any] = dict(observed)
    for change in diff.changes:
        world = _put(world, change.path, change.new, schema or ANY)
    return world


def _put(value: Any, path: Path, new: Any, schema: Schema) -> Any:
    """A value with one place in it changed; only what lies on the way is copied."""
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(step, Item):
        return _put_item(list(value or ()), step, rest, new, schema)
    changed = dict(value or {})
    below = _put(changed.get(step), rest, new, schema.child(step) or ANY)
    if below is ABSENT:
        changed.pop(step, None)
    else:
        changed[step] = below
    return changed


def _put_item(items: list[Any], step: Item, rest: Path, new: Any, schema: Schema) -> list[Any]:
    for index, item in enumerate(items):
        if item_of(schema, item) == step:
            below = _put(item, rest, new, schema.items or ANY)
            return items[:index] + ([] if below is ABSENT else [below]) + items[index + 1 :]
    return items if new is ABSENT else [*items, _put(step.named, rest, new, schema.items or ANY)]


def item_of(schema: Schema, item: Any) -> Item | None:
    """How a list of this type tells the item from others; None where it has no name, or the list is one value as a whole."""
    kind, keys = list_kind(schema)
    if kind == "set":
        return None if item is None else Item.member(plain_number(item))
    if kind != "map" or not isinstance(item, dict):
        return None
    named = {}
    for key, default in keys:
        value = item.get(key)
        if value is None:
            value = default
        if value is not None:
            named[key] = plain_number(value)
    return Item.keyed(named) if named else None


@lru_cache(maxsize=4096)
def list_kind(schema: Schema) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """`map` with its keys and their defaults, `set`, or `atomic`. Types of old say it by their merge key alone."""
    if "x-kubernetes-list-type" in schema.raw:
        kind, keys = schema.list_type, schema.list_keys
    elif "merge" in schema.merge_strategy:
        kind, keys = ("map", (schema.merge_key,)) if schema.merge_key else ("set", ())
    else:
        kind, keys = "atomic", ()
    properties = schema.items.properties if schema.items is not None else {}
    defaults = (properties[key].default if key in properties else UNSET for key in keys)
    return kind, tuple((key, None if default is UNSET else default) for key, default in zip(keys, defaults, strict=True))


def plain_number(value: Any) -> Any:
    """1.0 and 1 have the same name."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _json(value: Any) -> str:
    """As managed fields have it: keys sorted, escaped as Go does."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return text if text.isalnum() else text.translate(_GO_ESCAPES)
