"""`${NAME}` in files, per environment. On the text, before it is parsed, so that lines stay what they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

from homeostat.sources.files import RenderError

_MARK = re.compile(r"(\$?)\$\{([^}\n]*)\}")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?").fullmatch


def substitute(text: str, variables: Mapping[str, str], file: str = "") -> str:
    """The text with its variables filled in. RenderError with file and line where one is not set, or is no variable.

    `${NAME:-default}` needs none; `$${NAME}` stays as `${NAME}`. What is filled in is not looked at again.
    """
    if "${" not in text:
        return text

    def fill(found: re.Match[str]) -> str:
        escaped, inside = found[1], found[2]
        if escaped:
            return f"${{{inside}}}"
        line = text.count("\n", 0, found.start()) + 1
        parts = _NAME(inside)
        if parts is None:
            raise RenderError(
                f"${{{inside}}} is no variable: write ${{NAME}}, ${{NAME:-default}}, or $${{…}} for the text",
                file,
                line,
            )
        value = variables.get(parts[1], parts[2])
        if value is None:
            raise RenderError(
                f"${{{parts[1]}}} is not set: add it to `variables`, or give it a default",
                file,
                line,
                f"variables.{parts[1]}",
            )
        if "\n" in value:
            raise RenderError(f"${{{parts[1]}}} has several lines, which would change what the file means", file, line)
        return value

    return _MARK.sub(fill, text)
