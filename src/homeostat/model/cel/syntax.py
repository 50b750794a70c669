"""From text to a tree: CEL's own grammar does the parsing, this module reads what it hands back.

The parser is Google's; it speaks protobuf, of which only the few fields of a parsed expression are read here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

from homeostat.model.cel.types import BOOL, BYTES, DOUBLE, INT, NULL, STRING, UINT, Type
from homeostat.model.protobuf import read_fields, read_varint


class Expr:
    """A node of the tree. The checker fills in `type`; `id` finds the place in the text."""

    __slots__ = ("id", "type")

    def __init__(self, id_: int) -> None:
        self.id = id_
        self.type: Type = NULL


class Const(Expr):
    """A literal."""

    __slots__ = ("value",)

    def __init__(self, id_: int, value: Any, type_: Type) -> None:
        super().__init__(id_)
        self.value = value
        self.type = type_


class Ident(Expr):
    """The name of a variable or a type."""

    __slots__ = ("name",)

    def __init__(self, id_: int, name: str) -> None:
        super().__init__(id_)
        self.name = name


class Select(Expr):
    """`operand.field`, or `has(operand.field)` where `test` is set."""

    __slots__ = ("field", "operand", "test")

    def __init__(self, id_: int, operand: Expr, field: str, test: bool) -> None:
        super().__init__(id_)
        self.operand = operand
        self.field = field
        self.test = test


class Call(Expr):
    """A function or operator; `overloads` are those that fit the argument types."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, id_: int, function: str, target: Expr | None, args: list[Expr]) -> None:
        super().__init__(id_)
        self.function = function
        self.target = target
        self.args = args
        self.overloads: list[Any] = []


class ListExpr(Expr):
    """A list literal; `optional` are the places of items that are there only if their value is (`?value`)."""

    __slots__ = ("items", "optional")

    def __init__(self, id_: int, items: list[Expr], optional: frozenset[int]) -> None:
        super().__init__(id_)
        self.items = items
        self.optional = optional


class MapExpr(Expr):
    """A map literal: key, value, and whether the entry is there only if the value is (`?key: value`)."""

    __slots__ = ("entries",)

    def __init__(self, id_: int, entries: list[tuple[Expr, Expr, bool]]) -> None:
        super().__init__(id_)
        self.entries = entries


class StructExpr(Expr):
    """`Name{field: value}`: no such type can be made here, but the checker has to say so."""

    __slots__ = ("name",)

    def __init__(self, id_: int, name: str) -> None:
        super().__init__(id_)
        self.name = name


class Fold(Expr):
    """What the macros all, exists, map, filter, … become: a loop with an accumulator."""

    __slots__ = ("accu", "condition", "init", "result", "source", "step", "var", "var2")

    def __init__(
        self, id_: int, var: str, var2: str, source: Expr, accu: str, init: Expr, cond: Expr, step: Expr, result: Expr
    ) -> None:
        super().__init__(id_)
        self.var = var
        self.var2 = var2
        self.source = source
        self.accu = accu
        self.init = init
        self.condition = cond
        self.step = step
        self.result = result


def children(node: Expr) -> list[Expr]:
    """The nodes right below this one."""
    if isinstance(node, Select):
        return [node.operand]
    if isinstance(node, Call):
        return [*([node.target] if node.target is not None else []), *node.args]
    if isinstance(node, ListExpr):
        return node.items
    if isinstance(node, MapExpr):
        return [e for k, v, _ in node.entries for e in (k, v)]
    if isinstance(node, Fold):
        return [node.source, node.init, node.condition, node.step, node.result]
    return []


def qualified_name(node: Expr | None) -> str:
    """`a.b.c` where the node is nothing but names; else empty."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        inner = qualified_name(node.operand)
        return f"{inner}.{node.field}" if inner else ""
    return ""


class Source:
    """The text of an expression and where each node of its tree stands in it."""

    def __init__(self, text: str, positions: dict[int, int]) -> None:
        self.text = text
        self.positions = positions

    def error(self, id_: int, message: str) -> str:
        """One error with the line it is about and a pointer below, as cel-go lays it out."""
        offset = self.positions.get(id_, 0)
        line = self.text.count("\n", 0, offset)
        start = self.text.rfind("\n", 0, offset) + 1
        column = offset - start
        shown = self.text.split("\n")[line].replace("\t", " ")
        # Below letters wider than ASCII stand the wide forms of dot and caret.
        dots = "".join("." if ord(c) < 128 else "\uff0e" for c in shown[:column])
        caret = "\uff3e" if column < len(shown) and ord(shown[column]) >= 128 else "^"
        return f"ERROR: <input>:{line + 1}:{column + 1}: {message}\n | {shown}\n | {dots}{caret}"


class InvalidExpression(Exception):
    """The text is no expression, or one that does not fit its types; the message shows where."""

    @property
    def brief(self) -> str:
        """Each mistake in a line's part, without the picture: `line 1, column 11: Syntax error: missing ')'`."""
        found = _PLACE.findall(str(self))
        return "; ".join(f"line {line}, column {column}: {what}" for line, column, what in found) or str(self)


_PLACE = re.compile(r"^ERROR: <input>:(-?\d+):(\d+): (.*)$", re.MULTILINE)


_REWORDED = (
    (re.compile(r"\b(?:all|exists|exists_one|existsOne)\(\) variable name must be a simple identifier"),
     "argument must be a simple name"),
    (re.compile(r"\b(?:map|filter)\(\) variable name must be a simple identifier"), "argument is not an identifier"),
    (re.compile(r"has\(\) argument must be a field selection"), "invalid argument to has() macro"),
    (re.compile(r"<input>:4294967295:0: Exceeded max recursion depth of (\d+) when parsing\."),
     r"<input>:-1:0: expression recursion limit exceeded: \1"),
    (re.compile(r"^Expression recursion limit exceeded\. limit: (\d+)$"),
     r"ERROR: <input>:-1:0: expression recursion limit exceeded: \1"),
)  # fmt: skip


@cache
def _parser() -> Any:
    from cel_expr_python import cel

    config = "name: homeostat\nextensions:\n- name: two-var-comprehensions\n- name: optional\n- name: lists\n"
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(config))


def parse(text: str) -> tuple[Expr, Source]:
    """Parses an expression; raises InvalidExpression with the parser's words."""
    try:
        encoded = _parser().compile(text, disable_check=True).serialize()
    except RuntimeError as error:
        message = re.sub(r"^[A-Z_]+: | \[[A-Z_]+\]$", "", str(error))
        for pattern, words in _REWORDED:
            message = pattern.sub(words, message)
        raise InvalidExpression(message) from None
    any_message = _message(encoded)
    parsed = _message(any_message[2][0])
    positions: dict[int, int] = {}
    for entry in _message(parsed[3][0]).get(4, ()):
        pair = _message(entry)
        positions[_number(pair, 1)] = _number(pair, 2)
    return _expr(parsed[2][0]), Source(text, positions)


# What follows reads the messages of a parsed expression by the numbers of their fields.


def _message(data: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for number, value in read_fields(data):
        found.setdefault(number, []).append(value)
    return found


def _number(message: dict[int, list[Any]], field: int) -> int:
    values = message.get(field)
    return values[0] if values else 0


def _text(message: dict[int, list[Any]], field: int) -> str:
    values = message.get(field)
    return values[0].decode("utf-8", "replace") if values else ""


def _expr(data: bytes) -> Expr:
    id_, kind, body = 0, 0, b""
    value: Any
    for number, value in read_fields(data):
        if number == 2:
            id_ = value
        else:
            kind, body = number, value
    if kind == 3:
        return _const(id_, body)
    fields = _message(body)
    if kind == 4:
        return Ident(id_, _text(fields, 1))
    if kind == 5:
        return Select(id_, _expr(fields[1][0]), _text(fields, 2), bool(_number(fields, 3)))
    if kind == 6:
        target = _expr(fields[1][0]) if 1 in fields else None
        return Call(id_, _text(fields, 2), target, [_expr(a) for a in fields.get(3, ())])
    if kind == 7:
        packed = b"".join(v if isinstance(v, bytes) else bytes([v]) for v in fields.get(2, ()))
        return ListExpr(id_, [_expr(i) for i in fields.get(1, ())], frozenset(_packed(packed)))
    if kind == 8:
        if 1 in fields:
            return StructExpr(id_, _text(fields, 1))
        entries = [_message(e) for e in fields.get(2, ())]
        return MapExpr(id_, [(_expr(e[3][0]), _expr(e[4][0]), bool(_number(e, 5))) for e in entries])
    source, init, cond, step, result = (_expr(fields[n][0]) for n in (2, 4, 5, 6, 7))
    return Fold(id_, _text(fields, 1), _text(fields, 8), source, _text(fields, 3), init, cond, step, result)


def _packed(data: bytes) -> Iterator[int]:
    pos = 0
    while pos < len(data):
        value, pos = read_varint(data, pos)
        yield value


def _const(id_: int, data: bytes) -> Const:
    from homeostat.model.cel.values import Uint

    value: Any
    number, value = next(read_fields(data))
    if number == 1:
        return Const(id_, None, NULL)
    if number == 2:
        return Const(id_, bool(value), BOOL)
    if number == 3:
        return Const(id_, value - 2**64 if value >= 2**63 else value, INT)
    if number == 4:
        return Const(id_, Uint(value), UINT)
    if number == 5:
        return Const(id_, struct.unpack("<d", value)[0], DOUBLE)
    if number == 6:
        return Const(id_, value.decode("utf-8", "replace"), STRING)
    return Const(id_, value, BYTES)
