"""Reads an object into a built-in type as Go's decoder would: wrong types are errors, null is absent, unknowns go.

What upstream leaves out when it is zero (`data: {}`) goes as well, and times and amounts become what upstream makes of them
(`1000m` is `1`): clients compare what they sent with what they get.

Custom objects take another way (`prune`, `default`, `validate`); only their metadata comes through here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from homeostat.api.schema.canonical import Unreadable, canonical, is_canonical
from homeostat.api.schema.compiled import Test, compiled
from homeostat.api.schema.values import INT64_MAX, INT64_MIN
from homeostat.api.wording import json_word
from homeostat.model.errors import UNSET
from homeostat.model.schema import ABSENT_WHEN_ZERO, OBJECT_META, Schema

_ZERO: dict[str, Callable[[], Any]] = {
    "string": str,
    "integer": int,
    "number": int,
    "boolean": bool,
    "array": list,
    "object": dict,
}
_WHOLE = {"int32": (-(2**31), 2**31 - 1)}
_INT64 = (INT64_MIN, INT64_MAX)
_KNOWN_MAX = 100  # upstream reports no more strict errors than this


def decode_errors(schema: Schema, obj: Any) -> tuple[list[str], list[str]]:
    """Fits an object into a built-in type, in place; gives its unknown fields and what could not be decoded.

    Unknown fields (`unknown field "spec.foo"`) and nulls are gone afterwards. Where the second list is not empty the
    object cannot be used at all; its first entry is what upstream answers with.
    """
    if _decodes(schema)(obj):
        return [], []
    kind = obj.get("kind") if type(obj) is dict else None
    struct = "ObjectMeta" if schema is OBJECT_META else kind if type(kind) is str and kind else "Object"
    walk = _Walk()
    if type(obj) is not dict:
        return [], [f"json: cannot unmarshal {json_word(obj)} into Go value of type v1.{struct}"]
    walk.read(schema, obj, struct, "", "", "")
    return walk.unknown, walk.errors


def metadata_type_error(meta: Any) -> str:
    """Why this cannot be read as object metadata; empty where it can. Nothing is changed."""
    if meta is None or _decodes(OBJECT_META)(meta):
        return ""
    errors = decode_errors(OBJECT_META, orjson.loads(orjson.dumps(meta)))[1]
    return errors[0] if errors else ""


def _decodes(schema: Schema) -> Test:
    """The compiled test: right types, nothing unknown, nothing to leave out.

    Children are compiled when met: types may be cyclic.
    """
    memo = compiled(schema)
    if memo.decodes is None:
        memo.decodes = _compile(schema)
    return memo.decodes


def _compile(schema: Schema) -> Test:
    kind = schema.type
    if schema.int_or_string:
        return lambda value: type(value) is str or (type(value) is int and _in_range(value, "int32"))
    if is_canonical(schema):
        return lambda value: type(value) is str and _stands(schema, value)
    if kind == "string":
        return lambda value: type(value) is str
    if kind == "boolean":
        return lambda value: type(value) is bool
    if kind == "integer":
        low, high = _WHOLE.get(schema.raw.get("format", ""), _INT64)
        return lambda value: type(value) is int and low <= value <= high
    if kind == "number":
        return lambda value: type(value) is int or type(value) is float
    if kind == "array":
        return _compile_array(schema)
    if kind == "object" and (schema.properties or schema.additional is not None):
        return _compile_object(schema)
    if kind == "object":
        return lambda value: type(value) is dict  # a raw extension: its content is its own
    return lambda value: value is not None


def _stands(schema: Schema, value: str) -> bool:
    """It is written as it would be written back."""
    try:
        return bool(canonical(schema, value) == value)
    except Unreadable:
        return False


def _compile_array(schema: Schema) -> Test:
    items = schema.items
    check: Test | None = None

    def test(value: Any) -> bool:
        nonlocal check
        if type(value) is not list:
            return False
        if items is None:
            return True
        if check is None:
            check = _decodes(items)
        return all(map(check, value))

    return test


def _compile_object(schema: Schema) -> Test:
    tests: dict[str, Test] = {}
    others: Test | None = None
    properties, extra = schema.properties, schema.additional
    absent = schema.raw.get(ABSENT_WHEN_ZERO, frozenset())
    texts = frozenset(name for name, child in properties.items() if _is_text(child))  # no call is needed for these
    texts_only = extra is not None and _is_text(extra) and not properties
    find = tests.get

    def test(value: Any) -> bool:
        nonlocal others
        if type(value) is not dict:
            return False
        if texts_only:
            return _TEXT_ONLY.issuperset(map(type, value.values()))
        for name, item in value.items():
            if name in texts:
                if type(item) is not str or (not item and name in absent):
                    return False
                continue
            check = find(name)
            if check is None:
                child = properties.get(name)
                if child is not None:
                    check = tests[name] = _decodes(child)
                elif extra is None:
                    return False
                else:
                    check = others = others or _decodes(extra)
            if not check(item) or (not item and name in absent):
                return False
        return True

    return test


_TEXT_ONLY = frozenset({str})


def _is_text(schema: Schema) -> bool:
    """Any string will do, and nothing else."""
    return schema.type == "string" and not schema.int_or_string and not is_canonical(schema)


def _in_range(value: int, fmt: str) -> bool:
    low, high = _WHOLE.get(fmt, _INT64)
    return low <= value <= high


class _Walk:
    """The slow reader: changes the object as Go would read it and collects what it finds."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.errors: list[str] = []

    def read(self, schema: Schema, value: Any, struct: str, field: str, path: str, dotted: str) -> Any:
        """The value as read; UNSET where it is absent. `path` has indexes, `dotted` has none: upstream uses both."""
        if value is None:
            return UNSET
        kind = type(value)
        wrong = _mismatch(schema, value)
        if wrong is not None:
            if not isinstance(wrong, Unreadable):
                shown = json_word(value)
                if wrong.startswith("int") and shown == "number":
                    shown += f" {orjson.dumps(value).decode()}"
                where = f"{struct}.{dotted}"
                wrong = f"json: cannot unmarshal {shown} into Go struct field {where} of type {wrong}"
            self.errors.append(str(wrong))
            return UNSET
        if is_canonical(schema):
            return canonical(schema, value)
        if kind is dict and (schema.properties or schema.additional is not None):
            self._fields(schema, value, struct, field, path, dotted)
        elif kind is list and schema.items is not None:
            for i, item in enumerate(value):
                read = self.read(schema.items, item, struct, field, f"{path}[{i}]", dotted)
                value[i] = _zero(schema.items) if read is UNSET else read
        return value

    def _fields(self, schema: Schema, value: dict[str, Any], struct: str, field: str, path: str, dotted: str) -> None:
        properties, extra = schema.properties, schema.additional
        absent = schema.raw.get(ABSENT_WHEN_ZERO, frozenset())
        inner = _struct_name(struct, field) if field else struct
        for name in list(value):
            at = f"{path}.{name}" if path else name
            child = properties.get(name)
            if child is not None:
                read = self.read(child, value[name], inner, name, at, f"{dotted}.{name}" if dotted else name)
                if read is UNSET or (not read and name in absent):
                    del value[name]
                else:
                    value[name] = read
            elif extra is not None:
                read = self.read(extra, value[name], struct, field, at, dotted)
                value[name] = _zero(extra) if read is UNSET else read
            else:
                if len(self.unknown) < _KNOWN_MAX:
                    self.unknown.append(f'unknown field "{at}"')
                del value[name]


def _zero(schema: Schema) -> Any:
    make = _ZERO.get("string" if schema.int_or_string else schema.type)
    return make() if make is not None else None


def _mismatch(schema: Schema, value: Any) -> str | Unreadable | None:
    """The Go type that a value does not fit into, or why it means nothing; None where it fits."""
    kind, wanted = type(value), schema.type
    if schema.int_or_string:
        fits = kind is str or (kind is int and _in_range(value, "int32"))
        return None if fits else "int32"
    if is_canonical(schema) and (kind is str or wanted != "string"):
        try:
            canonical(schema, value)
        except Unreadable as problem:
            return problem
        return None
    if wanted == "string":
        return None if kind is str else "string"
    if wanted == "boolean":
        return None if kind is bool else "bool"
    if wanted == "integer":
        fmt = schema.raw.get("format") or "int64"
        return None if kind is int and _in_range(value, fmt) else fmt
    if wanted == "number":
        return None if kind in (int, float) else "float64"
    if wanted == "array":
        return None if kind is list else "[]" + (_go_type(schema.items) if schema.items else "interface {}")
    if wanted == "object":
        return None if kind is dict else _go_type(schema)
    return None


def _go_type(schema: Schema) -> str:
    simple = {"string": "string", "boolean": "bool", "number": "float64"}.get(schema.type)
    if simple:
        return simple
    if schema.type == "integer":
        return str(schema.raw.get("format") or "int64")
    if schema.type == "object" and schema.additional is not None:
        return f"map[string]{_go_type(schema.additional)}"
    if schema is OBJECT_META:
        return "v1.ObjectMeta"
    return "v1.Object" if schema.type == "object" else "interface {}"


def _struct_name(outer: str, field: str) -> str:
    """A guess at the Go type of a field: `spec` of a Deployment is a DeploymentSpec, `containers` hold Containers."""
    if field == "metadata":
        return "ObjectMeta"
    if field == "spec" and outer.endswith("TemplateSpec"):
        return outer.removesuffix("TemplateSpec") + "Spec"
    if field in ("spec", "status"):
        return outer + field.capitalize()
    if field in ("template", "jobTemplate"):
        return "PodTemplateSpec" if field == "template" else "JobTemplateSpec"
    name = field[:1].upper() + field[1:]
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name
