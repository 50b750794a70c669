"""Reads Python types into shapes: the one place that knows which types a kind may have, and why others are refused.

A shape is what schema, encoding and decoding go by; none of them looks at a type annotation again.
"""

from __future__ import annotations

import collections.abc
import enum
import re
import types
import typing
import uuid
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from homeostat.model.errors import UNSET
from homeostat.model.kinds.marks import Atomic, ListMap, ListSet, MapAtomic, Mark, Rule, Sensitive

Struct = type[msgspec.Struct]


class Form(enum.Enum):
    """The forms that a value can have on the wire."""

    TEXT = "string"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "boolean"
    LIST = "array"
    MAP = "map"
    STRUCT = "object"
    INT_OR_TEXT = "int-or-string"
    ANY = "any"


SCALARS = frozenset((Form.TEXT, Form.INTEGER, Form.NUMBER, Form.FLAG, Form.INT_OR_TEXT))


class Shape(msgspec.Struct, frozen=True):
    """A type, read. `python` is what msgspec takes; `leaf` the Python type of a scalar that is not plain JSON."""

    form: Form
    python: Any
    leaf: type | None = None
    format: str = ""
    enum: tuple[Any, ...] = ()
    nullable: bool = False
    unique: bool = False
    item: Shape | None = None
    struct: Struct | None = None
    fields: tuple[Field, ...] = ()
    limits: tuple[msgspec.Meta, ...] = ()
    marks: tuple[Mark, ...] = ()
    has_durations: bool = False

    def mark(self, kind: type[Mark]) -> Mark | None:
        """The mark of this kind, if the type carries one."""
        return next((mark for mark in self.marks if isinstance(mark, kind)), None)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct: its names in Python and on the wire, and its default (UNSET where it has none to write).

    A field that is not required and has no default is left out while nobody sets it: None, msgspec's `UNSET`, empty
    bytes.
    """

    name: str
    wire: str
    shape: Shape
    required: bool
    default: Any = field(default=UNSET, compare=False)


_SCALARS: dict[type, Shape] = {
    bool: Shape(Form.FLAG, bool),
    int: Shape(Form.INTEGER, int, format="int64"),
    float: Shape(Form.NUMBER, float, format="double"),
    str: Shape(Form.TEXT, str),
    bytes: Shape(Form.TEXT, bytes, leaf=bytes, format="byte"),
    datetime: Shape(Form.TEXT, datetime, leaf=datetime, format="date-time"),
    date: Shape(Form.TEXT, date, leaf=date, format="date"),
    timedelta: Shape(Form.TEXT, timedelta, leaf=timedelta, format="duration", has_durations=True),
    uuid.UUID: Shape(Form.TEXT, uuid.UUID, leaf=uuid.UUID, format="uuid"),
}
_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Set, collections.abc.Collection)
_SETS = (set, frozenset, collections.abc.Set)
_MAPS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_NOTHING = type(None)
_KNOWN = (
    "a field is a str, int, float, bool, bytes, datetime, date, timedelta, UUID, Enum, Literal, Spec, list, set, dict with str keys, "
    "Any, or one of these | None"
)


class NotYetDefined(TypeError):
    """A type names another that cannot be found: it may come later in its module, or be hidden in a function."""


_read_before: dict[Struct, Shape] = {}


def shape_of(struct: Struct) -> Shape:
    """The shape of a struct. TypeError, naming class and field, where a kind cannot have such a type."""
    return _struct(struct, struct.__name__, ())


def _read(hint: Any, where: str, above: tuple[Struct, ...]) -> Shape:
    if isinstance(hint, type) and hint in _SCALARS:
        return _SCALARS[hint]
    if hint is Any or hint is object:
        return Shape(Form.ANY, Any)
    if isinstance(hint, typing.NewType):
        return _read(hint.__supertype__, where, above)
    if hasattr(hint, "__value__"):  # `type Alias = …`
        return _read(hint.__value__, where, above)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _annotated(hint, where, above)
    if origin is typing.Union or origin is types.UnionType:
        return _union(hint, where, above)
    if origin is Literal:
        return _literal(hint, where)
    if (origin or hint) in _LISTS:
        return _list(hint, origin or hint, where, above)
    if (origin or hint) in _MAPS:
        return _map(hint, where, above)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _choice(hint, tuple(member.value for member in hint), where, leaf=hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _struct(hint, where, above)
    raise TypeError(f"{where}: {_name(hint)} has no place in a kind; {_KNOWN}")


def _annotated(hint: Any, where: str, above: tuple[Struct, ...]) -> Shape:
    base, *extras = typing.get_args(hint)
    shape = _read(base, where, above)
    marks = [extra() if isinstance(extra, type) and issubclass(extra, Mark) else extra for extra in extras]
    limits = tuple(extra for extra in extras if isinstance(extra, msgspec.Meta))
    marked = replace(
        shape,
        python=hint,
        limits=(*shape.limits, *limits),
        marks=(*shape.marks, *(mark for mark in marks if isinstance(mark, Mark))),
    )
    _check_marks(marked, where)
    return marked


def _check_marks(shape: Shape, where: str) -> None:
    for mark in shape.marks:
        if isinstance(mark, Rule):
            continue
        wanted, what = _MARKABLE[type(mark)]
        if shape.form not in wanted:
            raise TypeError(f"{where}: {type(mark).__name__} is for {what}")
        if isinstance(mark, ListMap):
            _check_keys(mark, shape.item, where)
        elif isinstance(mark, ListSet) and (shape.item is None or shape.item.form not in SCALARS):
            raise TypeError(f"{where}: ListSet is for lists of scalars; ListMap tells structs apart by a field")


_MARKABLE: dict[type[Mark], tuple[tuple[Form, ...], str]] = {
    ListMap: ((Form.LIST,), "lists of structs"),
    ListSet: ((Form.LIST,), "lists"),
    Atomic: ((Form.LIST,), "lists; a map or struct takes MapAtomic"),
    MapAtomic: ((Form.MAP, Form.STRUCT), "maps and structs; a list takes Atomic"),
    Sensitive: ((Form.TEXT,), "texts"),
}


def _check_keys(mark: ListMap, item: Shape | None, where: str) -> None:
    if item is None or item.struct is None:
        raise TypeError(f"{where}: ListMap is for lists of structs")
    fields = {field.name: field for field in item.fields}
    for key in mark.keys:
        found = fields.get(key)
        if found is None:
            raise TypeError(f"{where}: ListMap names {key!r}, but {item.struct.__name__} has no such field")
        if found.shape.form not in SCALARS or found.shape.nullable or not (found.required or found.default is not UNSET):
            raise TypeError(
                f"{where}: {item.struct.__name__}.{key} tells items apart, so it is a scalar that every item has: "
                "required or with a default, and never None"
            )


def _union(hint: Any, where: str, above: tuple[Struct, ...]) -> Shape:
    members = typing.get_args(hint)
    present = [member for member in members if member not in (_NOTHING, msgspec.UnsetType)]
    nullable = _NOTHING in members
    if len(present) == 1:
        shape = _read(present[0], where, above)
        return replace(shape, python=hint, nullable=nullable or shape.nullable)
    if set(present) == {int, float}:
        return replace(_SCALARS[float], python=hint, nullable=nullable)
    if set(present) == {int, str}:
        return Shape(Form.INT_OR_TEXT, hint, nullable=nullable)
    raise TypeError(f"{where}: {_name(hint)} can be too many things; of alternatives, a kind has X | None and int | str")


def _literal(hint: Any, where: str) -> Shape:
    values = typing.get_args(hint)
    shape = _choice(hint, tuple(value for value in values if value is not None), where)
    return replace(shape, nullable=None in values)


def _choice(hint: Any, values: tuple[Any, ...], where: str, leaf: type | None = None) -> Shape:
    for kind, form in ((str, Form.TEXT), (int, Form.INTEGER)):
        if values and all(isinstance(value, kind) and not isinstance(value, bool) for value in values):
            plain = tuple(kind(value) for value in values)  # a str that is also an Enum is no JSON
            return Shape(form, hint, leaf=leaf, enum=plain)
    raise TypeError(f"{where}: the values of {_name(hint)} are all texts, or all integers")


def _list(hint: Any, origin: Any, where: str, above: tuple[Struct, ...]) -> Shape:
    args = typing.get_args(hint)
    if origin is tuple and args and (len(args) != 2 or args[1] is not Ellipsis):
        raise TypeError(f"{where}: the items of a list are of one type; {_name(hint)} has places")
    item = _read(args[0], where, above) if args else _read(Any, where, above)
    unique = origin in _SETS
    if unique and item.form not in SCALARS:
        raise TypeError(f"{where}: a set is of scalars; a list with ListMap tells structs apart by a field")
    return Shape(Form.LIST, hint, unique=unique, item=item, has_durations=item.has_durations)


def _map(hint: Any, where: str, above: tuple[Struct, ...]) -> Shape:
    args = typing.get_args(hint) or (str, Any)
    if _read(args[0], where, above).form is not Form.TEXT:
        raise TypeError(f"{where}: the keys of a map are texts, not {_name(args[0])}")
    item = _read(args[1], where, above)
    return Shape(Form.MAP, hint, item=item, has_durations=item.has_durations)


def _struct(struct: Struct, where: str, above: tuple[Struct, ...]) -> Shape:
    if (known := _read_before.get(struct)) is not None:
        return known
    if struct in above:
        raise _repeats(where, *(s.__name__ for s in (*above[above.index(struct) :], struct)))
    config = struct.__struct_config__
    if config.array_like or config.tag is not None:
        raise TypeError(f"{where}: {struct.__name__} is array_like or tagged; in a kind it is an object with its fields")
    try:
        infos = msgspec.structs.fields(struct)
    except NameError as error:
        if error.name == struct.__name__:  # not yet defined, and already named
            raise _repeats(_naming(struct, error.name), struct.__name__, struct.__name__) from None
        place = _naming(struct, error.name or "")
        raise NotYetDefined(f"{place}: no type {error.name!r} in {struct.__module__}; define it at the top level") from None
    fields = tuple(_field(struct, info, (*above, struct)) for info in infos)
    durations = any(field.shape.has_durations for field in fields)
    shape = _read_before[struct] = Shape(Form.STRUCT, struct, struct=struct, fields=fields, has_durations=durations)
    return shape


def _repeats(where: str, *way: str) -> TypeError:
    return TypeError(
        f"{where}: {way[0]} contains itself ({' → '.join(way)}), and the schema of a kind cannot; "
        "declare the part that repeats as dict[str, Any]"
    )


def _naming(struct: Struct, name: str) -> str:
    """The field whose annotation names a type."""
    named = re.compile(rf"\b{re.escape(name)}\b").search
    fields = (field for field, hint in struct.__annotations__.items() if named(str(hint)))
    return ".".join((struct.__name__, *list(fields)[:1]))


def _field(struct: Struct, info: msgspec.structs.FieldInfo, above: tuple[Struct, ...]) -> Field:
    shape = _read(info.type, f"{struct.__name__}.{info.name}", above)
    default: Any = UNSET
    if info.default is not msgspec.NODEFAULT:
        default = info.default
    elif info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    if default is None or default is msgspec.UNSET or default == b"":
        default = UNSET  # and base64 of nothing is no base64 to the API server, so that is left out too
    return Field(info.name, info.encode_name, shape, info.required, default)


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")
