"""Kubernetes' protobuf form, read: Go clients send built-in objects so by default, and take JSON in return.

A body is the four bytes `k8s\\0` and an envelope (apiVersion, kind, raw message). How the messages look is in `layout`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from homeostat.api.builtin.layout import layout as layout_of
from homeostat.api.builtin.types import EXTENSIONS, META, definition_name
from homeostat.model.encoding import Malformed
from homeostat.model.protobuf import read_fields

MAGIC = b"k8s\x00"
DEPTH_LIMIT = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EXTENSIONS = f"{EXTENSIONS}v1."


def decode_protobuf(body: bytes) -> tuple[dict[str, Any], list[str]]:
    """The object in a body, as JSON would have brought it. Raises `Malformed` for anything else."""
    if not body.startswith(MAGIC):
        raise Malformed("a protobuf body must begin with the Kubernetes magic number")
    try:
        api_version, kind, raw = _envelope(memoryview(body)[len(MAGIC) :])
        obj = {"apiVersion": api_version, "kind": kind}
        obj.update(_message(_root(api_version, kind), raw, 0))
    except Malformed:
        raise
    except (IndexError, ValueError, struct.error, OverflowError) as error:
        raise Malformed(f"the protobuf body is broken: {error}") from None
    return obj, []


def _root(api_version: str, kind: str) -> str:
    if kind == "DeleteOptions":
        return META + kind  # every group has its own name for it
    try:
        return definition_name(api_version, kind)
    except KeyError as error:
        raise Malformed(f"protobuf is only understood for built-in kinds: {error.args[0]}") from None


def _envelope(data: memoryview) -> tuple[str, str, memoryview]:
    api_version, kind, raw = "", "", memoryview(b"")
    for number, value in read_fields(data):
        if number == 1 and isinstance(value, memoryview):
            for inner, text in read_fields(value):
                if isinstance(text, memoryview):
                    if inner == 1:
                        api_version = str(text, "utf-8")
                    elif inner == 2:
                        kind = str(text, "utf-8")
        elif number == 2 and isinstance(value, memoryview):
            raw = value
    return api_version, kind, raw


def _message(name: str, data: memoryview, depth: int) -> Any:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(data, depth)
    if depth > DEPTH_LIMIT:
        raise ValueError("the object is nested too deeply")
    layout = layout_of(name)
    obj: dict[str, Any] = {}
    for number, raw in read_fields(data):
        field = layout.get(number)
        if field is None:
            continue  # newer than the table: pruned, as an unknown field would be
        if field.mapped:
            key, value = _pair(field.kind, raw, depth)
            obj.setdefault(field.name, {})[key] = value
            continue
        value = _value(field.kind, raw, depth)
        if field.repeated:
            obj.setdefault(field.name, []).append(value)
        elif field.name == "~":
            obj.update(value)
        elif value is not None and (value not in ("", 0, {}) or not field.absent_when_zero):
            obj[field.name] = value
    return obj


def _pair(kind: str, raw: int | memoryview, depth: int) -> tuple[str, Any]:
    key, value = "", None
    if isinstance(raw, memoryview):
        for number, inner in read_fields(raw):
            if number == 1 and isinstance(inner, memoryview):
                key = str(inner, "utf-8")
            elif number == 2:
                value = _value(kind, inner, depth)
    return key, "" if value is None and kind in ("string", "bytes") else value


def _value(kind: str, raw: int | memoryview, depth: int) -> Any:
    if isinstance(raw, int):
        if kind == "bool":
            return raw != 0
        if kind != "int":
            raise ValueError(f"a number stands where {kind} belongs")
        return raw - (1 << 64) if raw >= 1 << 63 else raw
    if kind == "string":
        return str(raw, "utf-8")
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if kind == "double":
        return struct.unpack("<d", raw)[0]
    if kind in ("int", "bool"):
        raise ValueError(f"bytes stand where a {kind} belongs")
    return _message(kind, raw, depth + 1)


# Types whose JSON is not an object of their fields


def _plain(name: str, data: memoryview) -> dict[int, Any]:
    return {number: _value(f.kind, raw, 0) for number, raw in read_fields(data) if (f := layout_of(name).get(number))}


def _time(data: memoryview, depth: int) -> str | None:
    fields = _plain(f"{META}Time", data)
    return f"{_moment(fields):%Y-%m-%dT%H:%M:%SZ}" if fields.get(1) else None


def _micro_time(data: memoryview, depth: int) -> str | None:
    fields = _plain(f"{META}Time", data)
    return f"{_moment(fields):%Y-%m-%dT%H:%M:%S.%fZ}" if fields.get(1) else None


def _moment(fields: dict[int, Any]) -> datetime:
    return _EPOCH + timedelta(seconds=fields[1], microseconds=fields.get(2, 0) // 1000)


def _int_or_string(data: memoryview, depth: int) -> Any:
    fields = _plain("io.k8s.apimachinery.pkg.util.intstr.IntOrString", data)
    return fields.get(3, "") if fields.get(1) else fields.get(2, 0)


def _first_text(data: memoryview, depth: int) -> Any:
    for _, raw in read_fields(data):
        return _value("string", raw, depth)
    return None


def _items(data: memoryview, depth: int) -> Any:
    return [_value("string", raw, depth) for _, raw in read_fields(data)]


def _json(data: memoryview, depth: int) -> Any:
    for _, raw in read_fields(data):
        if isinstance(raw, memoryview):
            return orjson.loads(raw) if raw else None
    return None


def _choice(kinds: dict[int, str], repeated: int = 0) -> Callable[[memoryview, int], Any]:
    """A type of which one alternative is set; the one with the highest number wins, as its JSON form has it."""

    def read(data: memoryview, depth: int) -> Any:
        chosen, items = None, []
        for number, raw in read_fields(data):
            value = _value(kinds[number], raw, depth) if number in kinds else None
            if number == repeated:
                items.append(value)
            else:
                chosen = value
        return items if items else chosen

    return read


_SCHEMA = f"{_EXTENSIONS}JSONSchemaProps"
_SPECIAL: dict[str, Callable[[memoryview, int], Any]] = {
    f"{META}Time": _time,
    f"{META}MicroTime": _micro_time,
    f"{META}FieldsV1": _json,
    f"{META}Verbs": _items,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _first_text,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _json,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "io.k8s.api.authentication.v1.ExtraValue": _items,
    "io.k8s.api.authorization.v1.ExtraValue": _items,
    f"{_EXTENSIONS}JSON": _json,
    f"{_EXTENSIONS}JSONSchemaPropsOrArray": _choice({1: _SCHEMA, 2: _SCHEMA}, repeated=2),
    f"{_EXTENSIONS}JSONSchemaPropsOrBool": _choice({1: "bool", 2: _SCHEMA}),
    f"{_EXTENSIONS}JSONSchemaPropsOrStringArray": _choice({1: _SCHEMA, 2: "string"}, repeated=2),
}
