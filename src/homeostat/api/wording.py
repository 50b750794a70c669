"""How the Go side of the API writes values into its messages; clients and suites match on these words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

_JSON_WORDS: dict[type, str] = {
    bool: "bool",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_TYPE_WORDS: dict[type, str] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}
_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def json_word(value: Any) -> str:
    """What Go's JSON decoder calls a value that it did not expect."""
    return _JSON_WORDS.get(type(value), "null")


def type_word(value: Any) -> str:
    """The Go type that a decoded JSON value has."""
    return _TYPE_WORDS.get(type(value), "%!s(<nil>)")


def plain(value: Any) -> str:
    """A value as Go prints it with `%v`: `map[a:1 b:[x y]]`."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{plain(value[k])}" for k in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(plain, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value)) if abs(value) < 1e21 else repr(value)
    return "<nil>" if value is None else str(value)


def literal(value: Any) -> str:
    """A value as Go prints it with `%#v`."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json_text(k)}:{literal(value[k])}" for k in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(literal, value)) + "}"
    return "interface {}(nil)" if value is None else json_text(value)


def quoted(text: str) -> str:
    """A string as Go prints it with `%q`."""
    return orjson.dumps(text).decode()


def quoted_list(texts: Iterable[str]) -> str:
    """A list of strings as Go prints it with `%q`: `["a" "b"]`."""
    return "[" + " ".join(map(quoted, texts)) + "]"


def json_text(value: Any) -> str:
    """Compact JSON with sorted keys, escaped as Go's encoder escapes."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return text if text.isascii() and not ("<" in text or ">" in text or "&" in text) else escaped(text)


def escaped(json: str) -> str:
    """JSON in which what a browser could take for markup is escaped, as Go's encoder does."""
    return json.translate(_ESCAPES)
