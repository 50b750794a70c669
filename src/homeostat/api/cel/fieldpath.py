"""The `fieldPath` of a rule: a path below the rule's own place where its failures are reported."""

from __future__ import annotations

import re

from homeostat.model.schema import Schema

_TOKEN = re.compile(r"\.|\[|\]|'(?:\\.|[^'\\])*'|[^.\[\]]+", re.DOTALL)
_UNESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


class InvalidPath(ValueError):
    """The path is malformed or leads to a field that the schema does not have."""


def normalized_path(path: str, schema: Schema) -> str:
    """`.spec['a.b'].c` as messages show it; empty where there is none or it leads nowhere."""
    try:
        return parse_path(path, schema)
    except InvalidPath:
        return ""


def parse_path(path: str, schema: Schema) -> str:
    """Follows a path of fields and map keys through a schema; raises InvalidPath."""
    tokens = _TOKEN.findall(path)
    shown, pos = "", 0
    here: Schema | None = schema
    while pos < len(tokens):
        token = tokens[pos]
        if token == "." and pos + 1 < len(tokens):
            name, pos = tokens[pos + 1], pos + 2
        elif token == "[" and pos + 2 < len(tokens) and tokens[pos + 2] == "]":
            name, pos = _unquoted(tokens[pos + 1]), pos + 3
        else:
            raise InvalidPath(path)
        if here is None or not (here.properties or here.additional is not None):
            raise InvalidPath(path)
        if here.properties:
            if name not in here.properties:
                raise InvalidPath(path)
            shown = f"{shown}.{name}" if shown else name
            here = here.properties[name]
        else:
            shown += f"[{name}]"
            here = here.additional
    return shown


def _unquoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise InvalidPath(token)

    def plain(match: re.Match[str]) -> str:
        if match[1] not in _UNESCAPED:
            raise InvalidPath(token)
        return _UNESCAPED[match[1]]

    return re.sub(r"\\(.)", plain, token[1:-1])
