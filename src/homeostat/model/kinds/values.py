"""Between Python values and what goes over the wire: `encode` and `decode`, with errors for the person who reads them."""

from __future__ import annotations

import base64
import enum
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec

from homeostat.model.errors import UNSET, FieldError
from homeostat.model.kinds.durations import format_duration, parse_duration
from homeostat.model.kinds.shape import Form, Shape, shape_of

S = TypeVar("S", bound=msgspec.Struct)
Encode = Callable[[Any, bool], Any]
"""Encodes a value; the flag says whether fields that have their default are written."""
Thaw = Callable[[Any], Any]
_UNKNOWN: tuple[bool, Thaw | None] = (True, None)
"""Of a field that no shape has: it stays as it is."""


class InvalidSpec(ValueError):
    """A value that does not fit its type: `errors` has one entry for each field, with its path."""

    def __init__(self, what: str, errors: list[FieldError]) -> None:
        super().__init__(f"{what} is invalid: {'; '.join(map(str, errors))}")
        self.errors = errors


def decode(struct: type[S], value: Mapping[str, Any], *, path: str = "spec") -> S:
    """The typed form of a decoded JSON value. `InvalidSpec` names every field that does not fit, below `path`.

    As lenient as the API server: unknown fields are ignored, `1.0` is an integer, null in a field that has no room for
    it counts as absent. CEL rules are the server's to check.
    """
    shape = shape_of(struct)
    try:
        return msgspec.convert(_thawing(struct)(value) if shape.has_durations else value, struct)
    except msgspec.ValidationError:
        thawed = _thawing(struct)(value)
    try:
        return msgspec.convert(thawed, struct)
    except msgspec.ValidationError as error:
        raise InvalidSpec(struct.__name__, problems(shape, thawed, path) or [_own_words(error, path)]) from None


def encode(spec: msgspec.Struct, *, defaults: bool = True) -> dict[str, Any]:
    """The value as JSON has it, in one normal form: times in UTC, durations as Go writes them, sets sorted.

    With `defaults` every field is written, as the server would default it; without, only those that differ from their
    default. What is None (or UNSET) because nobody set it is left out. ValueError for a time without a time zone.
    """
    encoded: dict[str, Any] = _encoder(type(spec))(spec, defaults)
    return encoded


def problems(shape: Shape, value: Any, path: str) -> list[FieldError]:
    """Everything that does not fit: one error for each field, not only the first."""
    if value is None:
        return [] if shape.nullable else [FieldError.invalid(path, None, f"expected {_NAMES[shape.form]}, got null")]
    if shape.form is Form.STRUCT and isinstance(value, Mapping):
        return _field_problems(shape, value, path)
    if shape.form is Form.LIST and isinstance(value, list):
        found = [e for i, item in enumerate(value) for e in problems(_item(shape), item, f"{path}[{i}]")]
        return found or _misfit(_bare(list[Any], shape), value, path)
    if shape.form is Form.MAP and isinstance(value, Mapping):
        found = [e for key, item in value.items() for e in problems(_item(shape), item, f"{path}[{key}]")]
        return found or _misfit(_bare(dict[str, Any], shape), value, path)
    if shape.enum and value not in shape.enum:
        return [FieldError.not_supported(path, value, shape.enum)]
    if shape.leaf is timedelta and isinstance(value, str):
        try:
            parse_duration(value)
        except ValueError as error:
            return [FieldError.invalid(path, value, str(error))]
        return []
    return _misfit(shape.python, value, path)


def _field_problems(shape: Shape, value: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for field in shape.fields:
        at = f"{path}.{field.wire}" if path else field.wire
        if field.wire in value:
            found += problems(field.shape, value[field.wire], at)
        elif field.required:
            found.append(FieldError.required(at))
    return found


def _bare(container: Any, shape: Shape) -> Any:
    """A container of anything, under the limits of this one."""
    for limit in shape.limits:
        container = Annotated[container, limit]
    return container


def _misfit(hint: Any, value: Any, path: str) -> list[FieldError]:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        return [FieldError.invalid(path, value, _own_words(error, "").detail)]
    return []


_NAMES = {
    Form.TEXT: "a string",
    Form.INTEGER: "an integer",
    Form.NUMBER: "a number",
    Form.FLAG: "a boolean",
    Form.LIST: "a list",
    Form.MAP: "an object",
    Form.STRUCT: "an object",
    Form.INT_OR_TEXT: "an integer or a string",
    Form.ANY: "a value",
}
_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "a list",
    "object": "an object",
}
_WHERE = re.compile(r" - at `\$(.*)`$")


def _own_words(error: msgspec.ValidationError, path: str) -> FieldError:
    """msgspec's message as the rest of our messages read: ``Expected `int`, got `str` - at `$.size` ``."""
    where = _WHERE.search(str(error))
    text = _WHERE.sub("", str(error))
    text = re.sub(r"`([^`]*)`", lambda word: _WORDS.get(word[1], word[1]), text)
    at = f"{path}{where[1]}" if where else path
    return FieldError("FieldValueInvalid", at, text[:1].lower() + text[1:])


def _item(shape: Shape) -> Shape:
    assert shape.item is not None
    return shape.item


@cache
def _thawing(struct: Any) -> Thaw:
    """Makes readable what msgspec does not read by itself; what can be known of the fields is found out once."""
    return _thawing_of(shape_of(struct)) or _unchanged


def _unchanged(value: Any) -> Any:
    return value


def _thawing_of(shape: Shape) -> Thaw | None:
    """How a value of this shape is made readable; None where it is so as it is. What makes no sense is left for msgspec to refuse."""
    if shape.leaf is timedelta:
        return _thaw_duration
    if shape.form is Form.INTEGER:
        return _thaw_integer
    if shape.form is Form.STRUCT:
        return _thawing_of_fields(shape)
    if shape.form not in (Form.LIST, Form.MAP) or (thaw := _thawing_of(_item(shape))) is None:
        return None
    if shape.form is Form.LIST:
        return lambda value: [thaw(item) for item in value] if isinstance(value, list) else value
    return lambda value: {key: thaw(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _thawing_of_fields(shape: Shape) -> Thaw:
    plan = {field.wire: (field.shape.nullable, _thawing_of(field.shape)) for field in shape.fields}

    def run(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        thawed = dict(value)
        for wire, given in value.items():
            nullable, thaw = plan.get(wire, _UNKNOWN)
            if given is None and not nullable:
                del thawed[wire]
            elif given is not None and thaw is not None:
                thawed[wire] = thaw(given)
        return thawed

    return run


def _thaw_duration(value: Any) -> Any:
    try:
        return parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _thaw_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


@cache
def _encoder(struct: Any) -> Encode:
    """Encodes a struct; what can be known of its fields is found out once."""
    plan = [
        (field.name, field.wire, encoding_of(field.shape), field.default, not field.required and field.default is UNSET)
        for field in shape_of(struct).fields
    ]

    def run(value: Any, defaults: bool) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, wire, convert, default, left_out in plan:
            given = getattr(value, name)
            if given is None or given is msgspec.UNSET or (left_out and given == b""):
                if given is None and not left_out:
                    out[wire] = None
            elif defaults or given != default:
                out[wire] = given if convert is None else convert(given, defaults)
        return out

    return run


def encoding_of(shape: Shape) -> Encode | None:
    """How a value of this shape is encoded; None where it goes as it is."""
    if shape.form is Form.STRUCT:
        return _encode_struct
    if shape.form in (Form.LIST, Form.MAP):
        return _encoding_of_items(shape, encoding_of(_item(shape)))
    if shape.leaf is None:
        return None
    if issubclass(shape.leaf, enum.Enum):
        return _encode_choice
    return _LEAVES[shape.leaf]


def _encoding_of_items(shape: Shape, convert: Encode | None) -> Encode:
    collect: Any = dict if shape.form is Form.MAP else sorted if shape.unique else list
    if convert is None:
        return lambda value, defaults: collect(value)
    if collect is dict:
        return lambda value, defaults: {key: None if item is None else convert(item, defaults) for key, item in value.items()}

    def items(value: Any, defaults: bool) -> Any:
        found = [None if item is None else convert(item, defaults) for item in value]
        return sorted(found) if shape.unique else found

    return items


def _encode_struct(value: msgspec.Struct, defaults: bool) -> Any:
    return _encoder(type(value))(value, defaults)  # the type that is there may be a subclass of the declared one


def _encode_choice(value: Any, defaults: bool) -> Any:
    return value.value if isinstance(value, enum.Enum) else value


def _encode_time(value: datetime, defaults: bool) -> str:
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} has no time zone: give one, such as datetime.now(UTC)")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


_LEAVES: dict[type, Encode] = {
    bytes: lambda value, defaults: base64.b64encode(value).decode(),
    datetime: _encode_time,
    date: lambda value, defaults: value.isoformat(),
    timedelta: lambda value, defaults: format_duration(value),
    UUID: lambda value, defaults: str(value),
}
