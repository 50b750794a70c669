"""The structural OpenAPI v3 schema of a type: what the API server validates, prunes and defaults by."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from homeostat.model.errors import UNSET
from homeostat.model.kinds.durations import PATTERN
from homeostat.model.kinds.marks import Atomic, ListMap, ListSet, MapAtomic, Rule, Sensitive, rules_of
from homeostat.model.kinds.shape import Field, Form, Shape, Struct, shape_of
from homeostat.model.kinds.values import encoding_of, problems
from homeostat.model.patterns import compile_re2

Raw = dict[str, Any]

_LENGTHS = {Form.LIST: ("minItems", "maxItems"), Form.MAP: ("minProperties", "maxProperties")}
_TEXT_LENGTHS = ("minLength", "maxLength")
_OPEN: Raw = {"x-kubernetes-preserve-unknown-fields": True}


def schema_of(struct: Struct) -> Raw:
    """The schema of a struct and all below it. TypeError, naming class and field, where there can be none.

    A field without a default is required; a default is written into the schema, so the server fills it in. Descriptions
    are the docstrings of classes and the texts below fields, where the source is at hand, or `Meta(description=…)`.
    """
    raw: Raw = orjson.loads(_encoded(struct))
    return raw


@lru_cache(maxsize=256)
def _encoded(struct: Struct) -> bytes:
    return orjson.dumps(_schema(shape_of(struct)))


def check(struct: Struct) -> None:
    """What can be known when a class is defined: that its types have a place in a kind, and its defaults fit them."""
    for field, info in zip(shape_of(struct).fields, msgspec.structs.fields(struct), strict=True):
        where = f"{struct.__name__}.{field.name}"
        _check_pattern(field.shape, where)
        if field.default is UNSET:
            continue
        wire = _default(field)
        if found := problems(field.shape, wire, field.name):
            raise TypeError(f"{where}: the default does not fit: {found[0]}")
        factory = info.default_factory
        if factory is not msgspec.NODEFAULT and factory() != field.default:
            raise TypeError(f"{where}: the default is part of the schema, so it must be the same every time")


def _check_pattern(shape: Shape, where: str) -> None:
    for pattern in (limit.pattern for limit in shape.limits if limit.pattern):
        try:
            compile_re2(pattern)
        except ValueError as why:
            raise TypeError(f"{where}: the server reads {pattern!r} as RE2 does, and cannot: {why}") from None


def _default(field: Field) -> Any:
    convert = encoding_of(field.shape)
    return field.default if convert is None else convert(field.default, True)


def _schema(shape: Shape) -> Raw:
    raw = _form(shape)
    if shape.format:
        raw["format"] = shape.format
    if shape.nullable:
        raw["nullable"] = True
    if shape.enum:
        # The server looks for null in an `enum` too, and never finds it; what is inside of `allOf` it asks of values only.
        raw.update({"allOf": [{"enum": list(shape.enum)}]} if shape.nullable else {"enum": list(shape.enum)})
    _say_limits(raw, shape)
    _say_marks(raw, shape)
    return raw


def _form(shape: Shape) -> Raw:
    if shape.form is Form.STRUCT:
        return _object(shape)
    if shape.item is not None:
        below = _schema(shape.item)
        if shape.form is Form.LIST:
            return {"type": "array", "items": below}
        return {"type": "object", **(_OPEN if below == _OPEN else {"additionalProperties": below})}
    if shape.form is Form.INT_OR_TEXT:
        return {"x-kubernetes-int-or-string": True}
    if shape.form is Form.ANY:
        return dict(_OPEN)
    if shape.leaf is timedelta:
        return {"type": "string", "pattern": PATTERN}
    return {"type": shape.form.value}


def _object(shape: Shape) -> Raw:
    assert shape.struct is not None
    raw: Raw = {"type": "object"}
    if text := _docstring(shape.struct):
        raw["description"] = text
    texts = _field_texts(shape.struct)
    properties: dict[str, Raw] = {}
    for field in shape.fields:
        properties[field.wire] = inner = _schema(field.shape)
        if field.name in texts and not any(limit.description for limit in field.shape.limits):
            inner["description"] = texts[field.name]
        if field.default is not UNSET:
            inner["default"] = orjson.loads(orjson.dumps(_default(field)))
    raw["properties"] = properties
    if required := [field.wire for field in shape.fields if field.required]:
        raw["required"] = required
    if rules := rules_of(shape.struct):
        raw["x-kubernetes-validations"] = [rule.wire() for rule in rules]
    return raw


def _say_limits(raw: Raw, shape: Shape) -> None:
    shortest, longest = _LENGTHS.get(shape.form, _TEXT_LENGTHS)
    for limit in shape.limits:
        for name, value in (
            ("minimum", limit.ge),
            ("maximum", limit.le),
            ("multipleOf", limit.multiple_of),
            ("pattern", limit.pattern),
            (shortest, limit.min_length),
            (longest, limit.max_length),
            ("title", limit.title),
            ("description", limit.description and inspect.cleandoc(limit.description)),
            ("example", limit.examples[0] if limit.examples else None),
        ):
            if value is not None:
                raw[name] = value
        if limit.gt is not None:
            raw.update(minimum=limit.gt, exclusiveMinimum=True)
        if limit.lt is not None:
            raw.update(maximum=limit.lt, exclusiveMaximum=True)
        raw.update(limit.extra_json_schema or {})


def _say_marks(raw: Raw, shape: Shape) -> None:
    if shape.unique:
        raw["x-kubernetes-list-type"] = "set"
    for mark in shape.marks:
        if isinstance(mark, ListMap):
            assert shape.item is not None
            names = {field.name: field.wire for field in shape.item.fields}
            raw["x-kubernetes-list-type"] = "map"
            raw["x-kubernetes-list-map-keys"] = [names[key] for key in mark.keys]
        elif isinstance(mark, ListSet | Atomic):
            raw["x-kubernetes-list-type"] = "set" if isinstance(mark, ListSet) else "atomic"
        elif isinstance(mark, MapAtomic):
            raw["x-kubernetes-map-type"] = "atomic"
        elif isinstance(mark, Sensitive):
            raw["format"] = "password"
        elif isinstance(mark, Rule):
            raw.setdefault("x-kubernetes-validations", []).append(mark.wire())


def _docstring(struct: Struct) -> str:
    return inspect.cleandoc(vars(struct).get("__doc__") or "")


def _field_texts(struct: Struct) -> dict[str, str]:
    """The strings that stand below fields in the source, of bases too; empty where there is no source."""
    texts: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base.__module__ not in ("builtins", "msgspec"):
            texts.update(_texts_of_module(base.__module__).get(base.__qualname__, {}))
    return texts


_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.ExceptHandler, ast.AsyncFor, ast.AsyncWith, ast.Match, ast.match_case)


@lru_cache(maxsize=64)
def _texts_of_module(name: str) -> dict[str, dict[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (KeyError, OSError, TypeError, SyntaxError):  # typed at a prompt, or shipped without its source
        return {}
    return dict(_classes(tree, ""))


def _classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield prefix + child.name, dict(_texts(child))
            yield from _classes(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _classes(child, f"{prefix}{child.name}.<locals>.")
        elif isinstance(child, _BLOCKS):  # no class stands in an expression
            yield from _classes(child, prefix)


def _texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in zip(node.body, node.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr)):
            continue
        if isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            yield field.target.id, inspect.cleandoc(below.value.value)
