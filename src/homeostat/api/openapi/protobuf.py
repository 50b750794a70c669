"""An OpenAPI v2 document as protobuf, which kubectl up to 1.26 insists on.

The message layout is gnostic's `OpenAPIv2.proto`: each table below gives the field numbers of one message. Values of
any type (defaults, vendor extensions) travel as YAML text, and JSON is YAML.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson

from homeostat.model.protobuf import varint

Json = Mapping[str, Any]
Encode = Callable[[Any], bytes]


def document_to_protobuf(document: Json) -> bytes:
    """The encoded `Document`. Keys that v2 does not know are left out."""
    return _message(document, _DOCUMENT)


def _block(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def _text(number: int) -> Encode:
    return lambda value: _block(number, value.encode())


def _texts(number: int) -> Encode:
    return lambda values: b"".join(_block(number, value.encode()) for value in values)


def _flag(number: int) -> Encode:
    return lambda value: varint(number << 3) + (b"\x01" if value else b"\x00")


def _whole(number: int) -> Encode:
    return lambda value: varint(number << 3) + varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)


def _real(number: int) -> Encode:
    return lambda value: varint(number << 3 | 1) + struct.pack("<d", value)


def _any(value: Any) -> bytes:
    return _block(2, orjson.dumps(value) + b"\n")


def _anything(number: int) -> Encode:
    return lambda value: _block(number, _any(value))


def _each(number: int, encode: Encode) -> Encode:
    return lambda values: b"".join(_block(number, encode(value)) for value in values)


def _inner(number: int, encode: Encode) -> Encode:
    return lambda value: _block(number, encode(value))


def _named(number: int, encode: Encode) -> Encode:
    """A map, as repeated pairs of name and value."""

    def encode_map(values: Json) -> bytes:
        return b"".join(_block(number, _block(1, name.encode()) + _block(2, encode(v))) for name, v in values.items())

    return encode_map


def _message(value: Json, fields: Mapping[str, Encode], extensions: int = 0) -> bytes:
    parts = [fields[key](inner) for key, inner in value.items() if key in fields]
    if extensions:
        parts += [
            _block(extensions, _block(1, key.encode()) + _block(2, _any(inner)))
            for key, inner in value.items()
            if key.startswith("x-")
        ]
    return b"".join(parts)


def _schema(value: Json) -> bytes:
    return _message(value, _SCHEMA, extensions=31)


def _additional(value: Any) -> bytes:
    return _flag(2)(value) if isinstance(value, bool) else _block(1, _schema(value))


def _type(value: str | Iterable[str]) -> bytes:
    return _texts(1)([value] if isinstance(value, str) else value)


def _parameter(value: Json) -> bytes:
    """A `ParametersItem`: the place of the parameter decides which of its messages it is."""
    if value["in"] == "body":
        return _block(1, _block(1, _message(value, _BODY_PARAMETER)))
    number, fields = (4, _PATH_PARAMETER) if value["in"] == "path" else (3, _QUERY_PARAMETER)
    return _block(1, _block(2, _block(number, _message(value, fields))))


def _response(value: Json) -> bytes:
    return _block(1, _message(value, _RESPONSE))


def _operation(value: Json) -> bytes:
    return _message(value, _OPERATION, extensions=13)


def _path_item(value: Json) -> bytes:
    return _message(value, _PATH_ITEM)


_SCHEMA: dict[str, Encode] = {
    "$ref": _text(1),
    "format": _text(2),
    "title": _text(3),
    "description": _text(4),
    "default": _anything(5),
    "multipleOf": _real(6),
    "maximum": _real(7),
    "exclusiveMaximum": _flag(8),
    "minimum": _real(9),
    "exclusiveMinimum": _flag(10),
    "maxLength": _whole(11),
    "minLength": _whole(12),
    "pattern": _text(13),
    "maxItems": _whole(14),
    "minItems": _whole(15),
    "uniqueItems": _flag(16),
    "maxProperties": _whole(17),
    "minProperties": _whole(18),
    "required": _texts(19),
    "enum": lambda values: b"".join(_block(20, _any(value)) for value in values),
    "additionalProperties": _inner(21, _additional),
    "type": _inner(22, _type),
    "items": _inner(23, lambda value: _block(1, _schema(value))),
    "allOf": _each(24, _schema),
    "properties": _inner(25, _named(1, _schema)),
    "example": _anything(30),
}
_BODY_PARAMETER: dict[str, Encode] = {
    "description": _text(1),
    "name": _text(2),
    "in": _text(3),
    "required": _flag(4),
    "schema": _inner(5, _schema),
}
_PATH_PARAMETER: dict[str, Encode] = {
    "required": _flag(1),
    "in": _text(2),
    "description": _text(3),
    "name": _text(4),
    "type": _text(5),
}
_QUERY_PARAMETER: dict[str, Encode] = {**_PATH_PARAMETER, "type": _text(6)}
_RESPONSE: dict[str, Encode] = {
    "description": _text(1),
    "schema": _inner(2, lambda value: _block(1, _schema(value))),
}
_OPERATION: dict[str, Encode] = {
    "tags": _texts(1),
    "summary": _text(2),
    "description": _text(3),
    "operationId": _text(5),
    "produces": _texts(6),
    "consumes": _texts(7),
    "parameters": _each(8, _parameter),
    "responses": _inner(9, _named(1, _response)),
}
_PATH_ITEM: dict[str, Encode] = {
    "get": _inner(2, _operation),
    "put": _inner(3, _operation),
    "post": _inner(4, _operation),
    "delete": _inner(5, _operation),
    "patch": _inner(8, _operation),
    "parameters": _each(9, _parameter),
}
_DOCUMENT: dict[str, Encode] = {
    "swagger": _text(1),
    "info": _inner(2, lambda value: _message(value, {"title": _text(1), "version": _text(2)})),
    "paths": _inner(8, _named(2, _path_item)),
    "definitions": _inner(9, _named(1, _schema)),
}
