"""Functions on text: the strings extension and Kubernetes' regular expressions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

from homeostat.model.cel.overloads import (
    PER_CHARACTER,
    overload,
    per_character,
    per_character_twice,
    per_pattern,
    per_traversal,
    size_of,
)
from homeostat.model.cel.standard import pattern
from homeostat.model.cel.values import (
    LARGEST_TEXT,
    CelError,
    Duration,
    Timestamp,
    bounded,
    kind_of,
    show_double,
    show_text,
    type_of_value,
)


def _per_joined_twice(args: Sequence[Any]) -> int:
    separator = len(args[1]) if len(args) > 1 else 0
    return ceil((sum(map(size_of, args[0])) + len(args[0]) * separator) * 2 * PER_CHARACTER)


@overload("string.charAt(int): string")
def char_at(text: str, index: int) -> str:
    if 0 <= index < len(text):
        return text[index]
    if index == len(text):
        return ""
    raise CelError(f"index out of range: {index}")


@overload("string.indexOf(string): int", "string.indexOf(string, int): int", cost=per_traversal)
def index_of(text: str, part: str, start: int = 0) -> int:
    if part == "" and start == 0:
        return 0
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    return text.find(part, start)


@overload("string.lastIndexOf(string): int", "string.lastIndexOf(string, int): int", cost=per_traversal)
def last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    return text.rfind(part, 0, start + len(part))


_LOWER = str.maketrans({chr(c): chr(c + 32) for c in range(65, 91)})
_UPPER = str.maketrans({chr(c): chr(c - 32) for c in range(97, 123)})


@overload("string.lowerAscii(): string", cost=per_character)
def lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


@overload("string.upperAscii(): string", cost=per_character)
def upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


@overload("string.trim(): string", cost=per_character)
def trim(text: str) -> str:
    return text.strip()


@overload("string.substring(int): string", "string.substring(int, int): string", cost=per_character)
def substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise CelError(f"index out of range: {start}")
    if not 0 <= stop <= len(text):
        raise CelError(f"index out of range: {stop}")
    if start > stop:
        raise CelError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


@overload("string.replace(string, string): string", "string.replace(string, string, int): string",
          cost=per_character_twice)  # fmt: skip
def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    most = (len(text) + 1 if old == "" else text.count(old)) if limit < 0 else limit
    bounded(len(text) + most * len(new), LARGEST_TEXT)
    return text.replace(old, new, limit)


@overload("string.split(string): list(string)", "string.split(string, int): list(string)", cost=per_character_twice)
def split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator == "":
        parts = list(text)
        return parts if limit < 0 or len(parts) <= limit else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
    return text.split(separator, limit - 1 if limit > 0 else -1)


@overload("list(string).join(): string", "list(string).join(string): string", cost=_per_joined_twice)
def join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(i, str) for i in items):
        raise CelError("join: invalid input: list must contain only strings")
    bounded(sum(map(len, items)) + len(items) * len(separator), LARGEST_TEXT)
    return separator.join(items)


_QUOTED = str.maketrans({
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"',
})  # fmt: skip


@overload("strings.quote(string): string", id="strings_quote", cost=per_character)
def quote(text: str) -> str:
    return '"' + text.translate(_QUOTED) + '"'


# Formatting


@overload("string.format(list(dyn)): string", id="string_format", cost=per_character)
def format_(template: str, args: list[Any]) -> str:
    """`"%s of %d".format([...])`: s, d, f, e, x, X, o, b, with a precision for f and e."""
    out: list[str] = []
    pos = used = size = 0
    while True:
        percent = template.find("%", pos)
        if percent < 0:
            out.append(template[pos:])
            return "".join(out)
        out.append(template[pos:percent])
        clause, pos = _clause(template, percent + 1)
        if clause == "%":
            out.append("%")
            continue
        if used >= len(args):
            raise CelError(f"index {used} out of range")
        out.append(_formatted(clause, args[used]))
        size += len(out[-1])
        bounded(size, LARGEST_TEXT)
        used += 1


def _clause(template: str, start: int) -> tuple[str, int]:
    end = start
    if template[end : end + 1] == ".":
        end += 1
        while template[end : end + 1].isdigit():
            end += 1
    if end >= len(template):
        raise CelError("could not parse formatting clause: unexpected end of string")
    if template[end] not in "sdfexXob%":
        raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{template[end]}"')
    return template[start : end + 1], end + 1


def _formatted(clause: str, value: Any) -> str:
    verb, precision = clause[-1], int(clause[1:-1] or 0) if len(clause) > 1 else 6
    if precision > 100:
        raise CelError(f"precision {precision} exceeds the maximum of 100")
    kind = kind_of(value)
    if verb == "s":
        return _as_text(value)
    if verb == "f" and kind in ("double", "int", "uint"):
        return f"{float(value):,.{precision}f}"
    if verb == "e" and kind in ("double", "int", "uint"):
        mantissa, _, exponent = f"{float(value):.{precision}e}".partition("e")
        return f"{mantissa}\u00d710{exponent.lstrip('+').translate(_RAISED)}"
    if verb == "d" and kind in ("int", "uint"):
        return str(value)
    if verb == "d" and kind == "double" and value != value:
        return "NaN"
    if verb == "b" and kind in ("int", "uint", "bool"):
        return f"{int(value):b}"
    if verb == "o" and kind in ("int", "uint"):
        return f"{value:o}"
    if verb in "xX" and kind in ("int", "uint", "string", "bytes"):
        if kind in ("string", "bytes"):
            digits = (value.encode() if isinstance(value, str) else value).hex()
            return digits.upper() if verb == "X" else digits
        return f"{value:{verb}}"
    wanted = {"d": "integers", "f": "doubles", "e": "doubles", "b": "integers and bools", "o": "integers"}
    allowed = wanted.get(verb, "integers, byte buffers, and strings")
    name = {"d": "decimal", "f": "fixed-point", "e": "scientific", "b": "binary", "o": "octal"}.get(verb, "hex")
    given = type_of_value(value)
    raise CelError(f"error during formatting: {name} clause can only be used on {allowed}, was given {given}")


_RAISED = str.maketrans("0123456789-", "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b")


def _as_text(value: Any) -> str:
    if isinstance(value, list | dict):
        return _as_literal(value)
    if value is None:
        return "null"
    return show_double(value) if isinstance(value, float) else show_text(value)


def _as_literal(value: Any) -> str:
    """A value inside a list or map, as an expression would spell it."""
    if isinstance(value, list):
        return "[" + ", ".join(_as_literal(v) for v in value) + "]"
    if isinstance(value, dict):
        entries = sorted((_as_literal(k), _as_literal(v)) for k, v in value.items())
        return "{" + ", ".join(f"{k}:{v}" for k, v in entries) + "}"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bytes):
        return f"b{quote(show_text(value))}"
    if isinstance(value, float):
        return f"{value:.6f}"
    if isinstance(value, Timestamp | Duration):
        return f"{kind_of(value)}({quote(str(value))})"
    return _as_text(value)


# Regular expressions

MOST_MATCHES = 20_000
"""How many matches findAll looks for; each takes microseconds."""


def _legal(expression: str) -> Any:
    try:
        return pattern(expression)
    except CelError as error:
        raise CelError(f"Illegal regex: {error}") from None


@overload("string.find(string): string", cost=per_pattern)
def find(text: str, expression: str) -> str:
    found = _legal(expression).search(text)
    return found.group(0) if found else ""


@overload("string.findAll(string): list(string)", "string.findAll(string, int): list(string)", cost=per_pattern)
def find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    if limit == 0:
        return found
    for match in _legal(expression).finditer(text):
        found.append(match.group(0))
        if len(found) == limit:
            break
        bounded(len(found), MOST_MATCHES)
    return found
