"""Bytes to objects, strictly: JSON and YAML bodies, with their doubled fields found and their traps refused.

YAML is read as upstream reads it (YAML 1.1 through Go): `yes` and `on` are booleans, dates stay text. Aliases and
anchors are refused, for a few lines of them can stand for gigabytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import orjson

from homeostat.model.protocol import BODY_LIMIT

MAX_DEPTH = 200
"""Levels of nesting. The encoder stops at 254; the rest is room for what the server wraps around an object."""

MAX_DUPLICATES = 100
"""Doubled fields that are reported at most."""

YAML_DOUBLES = "yaml: unmarshal errors:"
"""How the text about doubled keys of a YAML body begins; a line for each follows."""

_BLANK = b" \t\r\n"
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9][0-9]*)").fullmatch
_FLOAT = re.compile(r"[+-]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][+-]?[0-9]+)?").fullmatch
_TAG_NAMES = ("str", "int", "float", "bool", "null", "seq", "map", "timestamp")
_TAGS = {f"tag:yaml.org,2002:{name}": name for name in _TAG_NAMES}


_CHANGED = frozenset({dict, list, float})
_EXACT = 2.0**63
"""Whole numbers below it are integers wherever they are read."""
_AS_FLOATS = (b".0", b"e+1")
"""How the encoder writes floats that are whole and below that; a text may hold the same."""

_GZIP = b"\x1f\x8b"
_COMPRESSED = "the body is compressed by gzip, which is not read here; send it plain"


class Malformed(ValueError):
    """The bytes are not what they should be; the message says where and why."""


def kept(value: Any) -> bytes:
    """A value as JSON, in bytes of their own. The encoder's lie in a buffer of 4 KiB or more for as long as they live: fine for a
    moment, but what is kept by the thousand takes far more memory so, and is slower to write, for none of it is in a cache."""
    return b"%b" % orjson.dumps(value)


def whole_numbers(value: Any) -> Any:
    """The value with `5.0` as `5`, in place: other readers of JSON take a number with a point for no integer, and Go writes none."""
    if type(value) is dict:
        for name, item in value.items():
            if type(item) in _CHANGED:
                value[name] = whole_numbers(item)
    elif type(value) is list:
        value[:] = map(whole_numbers, value)
    elif type(value) is float and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    return value


def decode_json(body: bytes) -> tuple[Any, list[str]]:
    """The value of a JSON body and its doubled fields (`duplicate field "spec.replicas"`); the last of them counts.

    Malformed where it is no JSON: also for NaN, invalid UTF-8, lone surrogates, and more than MAX_DEPTH levels.
    """
    value, again = _read_json(body)
    return value, _doubled(body, again)


def _read_json(body: bytes) -> tuple[Any, bytes]:
    """The value, and how we would write it."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if body.startswith(_GZIP):
            raise Malformed(f"invalid character '\\x1f' looking for beginning of value: {_COMPRESSED}") from None
        unfinished = not body or error.msg.startswith("unexpected end")
        raise Malformed("unexpected end of JSON input" if unfinished else str(error)) from None
    if len(body) > 2 * MAX_DEPTH and body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _limit_depth(value)
    return value, orjson.dumps(value)


def _doubled(body: bytes, again: bytes) -> list[str]:
    # What encodes to the same bytes, blanks aside, has as many fields as was sent: none stood twice.
    if again == body or again.translate(None, _BLANK) == body.translate(None, _BLANK):
        return []
    return _json_duplicates(body)


def _limit_depth(value: Any) -> None:
    wrapped = value
    for _ in range(254 - MAX_DEPTH):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except orjson.JSONEncodeError:
        raise Malformed(f"nested deeper than {MAX_DEPTH} levels") from None


class _Members(list[tuple[str, Any]]):
    """The members of one JSON object in the order they were written, doubles included."""


def _json_duplicates(body: bytes) -> list[str]:
    found = False

    def notice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        members = dict(pairs)
        found = found or len(members) != len(pairs)
        return members

    text = body.decode()
    json.loads(text, object_pairs_hook=notice)
    if not found:
        return []
    paths: dict[str, None] = {}
    _collect_duplicates(json.loads(text, object_pairs_hook=_Members), "", paths)
    return [f'duplicate field "{path}"' for path in list(paths)[:MAX_DUPLICATES]]


def _collect_duplicates(value: Any, path: str, paths: dict[str, None]) -> None:
    if isinstance(value, _Members):
        seen: set[str] = set()
        for name, item in value:
            at = f"{path}.{name}" if path else name
            if name in seen:
                paths[at] = None
            seen.add(name)
            _collect_duplicates(item, at, paths)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _collect_duplicates(item, f"{path}[{i}]", paths)


def decode_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The value of a YAML body of one document and its doubled keys, worded as upstream words them for YAML.

    Whole numbers are integers, however they are written. JSON is YAML too and goes the fast way. Malformed for aliases, anchors, several documents, unknown tags, more than
    MAX_DEPTH levels or BODY_LIMIT bytes, and whatever is no YAML.
    """
    if body.lstrip(_BLANK)[:1] in (b"{", b"["):
        try:
            value, again = _read_json(body)
            whole = any(mark in again for mark in _AS_FLOATS)
            return whole_numbers(value) if whole else value, _doubled(body, again)
        except Malformed:
            pass  # flow style that is no JSON
    documents = list(_documents(body))
    if len(documents) > 1:
        raise Malformed(f"line {documents[1].line}: expected a single document, found another")
    if not documents:
        return None, []
    return documents[0].value, documents[0].duplicates()


def load_all_yaml(text: str | bytes) -> list[Any]:
    """Every document of a YAML or JSON text, empty ones left out; for files that people write.

    Malformed with the line where something is wrong; a doubled key is wrong here.
    """
    return [value for _, value in load_numbered_yaml(text)]


def load_numbered_yaml(text: str | bytes) -> list[tuple[int, Any]]:
    """The same, each with the line where it begins."""
    values = []
    for document in _documents(text.encode() if isinstance(text, str) else text):
        if document.doubled:
            line, key = document.doubled[0]
            raise Malformed(f'line {line}: key "{key}" is already set')
        if document.value is not None:
            values.append((document.line, document.value))
    return values


class _Document:
    """One YAML document as it is built, event by event; no recursion, so depth cannot hurt."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.value: Any = None
        self.doubled: list[tuple[int, str]] = []
        self._open: list[Any] = []
        self._keys: list[str | None] = []  # of each open mapping: the key that waits for its value

    def duplicates(self) -> list[str]:
        if not self.doubled:
            return []
        lines = [f'  line {line}: key "{key}" already set in map' for line, key in self.doubled[:MAX_DUPLICATES]]
        return ["\n".join([YAML_DOUBLES, *lines])]

    def start(self, container: dict[str, Any] | list[Any], line: int) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise Malformed(f"line {line}: nested deeper than {MAX_DEPTH} levels")
        if self._open and type(self._open[-1]) is dict and self._keys[-1] is None:
            raise Malformed(f"line {line}: a key must be a scalar")
        self._put(container)
        self._open.append(container)
        self._keys.append(None)

    def end(self) -> None:
        self._open.pop()
        self._keys.pop()

    def scalar(self, value: Any, line: int) -> None:
        if self._open and type(self._open[-1]) is dict and self._keys[-1] is None:
            key = _key_text(value, line)
            if key in self._open[-1]:
                self.doubled.append((line, key))
            self._keys[-1] = key
            return
        if type(value) is float and not math.isfinite(value):
            raise Malformed(f"line {line}: {value} is no JSON number")
        self._put(whole_numbers(value))

    def _put(self, value: Any) -> None:
        if not self._open:
            self.value = value
        elif type(self._open[-1]) is list:
            self._open[-1].append(value)
        else:
            self._open[-1][self._keys[-1]] = value
            self._keys[-1] = None


def _documents(body: bytes) -> Iterator[_Document]:
    import yaml

    if len(body) > BODY_LIMIT:
        raise Malformed(f"larger than {BODY_LIMIT} bytes")
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if body.startswith(_GZIP):
            raise Malformed(f"control characters are not allowed: {_COMPRESSED}") from None
        raise Malformed(f"invalid UTF-8 at byte {error.start}") from None
    try:
        yield from _build(yaml.parse(text, Loader=yaml.CSafeLoader))
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise Malformed(f"{where}{getattr(error, 'problem', None) or error}") from None


def _build(events: Iterator[Any]) -> Iterator[_Document]:
    from yaml import events as ev

    document: _Document | None = None
    for event in events:
        kind: type = type(event)
        line: int = event.start_mark.line + 1
        if kind is ev.DocumentStartEvent:
            document = _Document(line)
        elif kind is ev.DocumentEndEvent and document is not None:
            yield document
        elif document is not None and isinstance(event, ev.NodeEvent):
            if event.anchor is not None:
                raise Malformed(f"line {line}: anchors and aliases are not allowed")
            if kind is ev.ScalarEvent:
                document.scalar(_resolve(event, line), line)
            else:
                _expect_tag(event, line, "map" if kind is ev.MappingStartEvent else "seq")
                document.start({} if kind is ev.MappingStartEvent else [], line)
        elif document is not None and isinstance(event, ev.CollectionEndEvent):
            document.end()


def _expect_tag(event: Any, line: int, wanted: str) -> None:
    if event.tag not in (None, "!") and _TAGS.get(event.tag) != wanted:
        raise Malformed(f"line {line}: unknown tag {event.tag}")


def _resolve(event: Any, line: int) -> Any:
    """A scalar as Go's YAML reads it: plain words and numbers have a type, whatever is quoted is text."""
    text: str = event.value
    if event.tag in (None, "!"):
        if event.implicit[0] and event.style in (None, ""):
            if text == "<<":
                raise Malformed(f"line {line}: merge keys are not allowed")
            return _plain(text)
        return text
    tag = _TAGS.get(event.tag)
    if tag in ("str", "timestamp"):
        return text
    value = _plain(text)
    types: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "bool": (bool,), "null": (type(None),)}
    if tag not in types:
        raise Malformed(f"line {line}: unknown tag {event.tag}")
    if type(value) not in types[tag]:
        raise Malformed(f"line {line}: cannot decode `{text}` as a !!{tag}")
    return float(value) if tag == "float" else value


def _plain(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if not text or text[0] not in "+-.0123456789":
        return text
    digits = text.replace("_", "")
    if _INTEGER(digits):
        value = _integer(digits)
        if -(2**63) <= value < 2**64:
            return value
    if _FLOAT(digits if text[0] != "." else text):
        number = float(digits)
        return number if math.isfinite(number) else text
    return text


def _integer(digits: str) -> int:
    sign = -1 if digits[0] == "-" else 1
    body = digits.lstrip("+-")
    if len(body) > 80:
        return 2**64  # too large for any integer: it will be read as a float
    if body[:2].lower() in ("0x", "0o", "0b"):
        return sign * int(body, 0)
    return sign * int(body, 8 if body[0] == "0" else 10)


def _key_text(value: Any, line: int) -> str:
    """JSON knows only text as keys: numbers and booleans are written out, as upstream does."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan" if value != value else f"{value:g}")
    raise Malformed(f"line {line}: null is no key")


_SAFE_PLAIN = re.compile(r"[A-Za-z](?:(?:[A-Za-z0-9_./ -]|:(?! ))*[A-Za-z0-9_./])?").fullmatch


def encode_yaml(value: Any) -> bytes:
    """JSON-like data as YAML that every reader understands alike: text that could be read as anything else is quoted."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, data: str) -> Any:
        plain = _SAFE_PLAIN(data) and data not in _WORDS
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=None if plain else '"')

    Dumper.add_representer(str, text)
    return yaml.dump(value, Dumper=Dumper, allow_unicode=True, width=2**20, encoding="utf-8", sort_keys=True)
