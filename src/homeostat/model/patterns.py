"""Patterns that users write, read by RE2: they take time in proportion to the text, whatever they say."""

from __future__ import annotations

from typing import Any

_GO_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "invalid named capture group": "invalid named capture",
    "bad repetition operator": "invalid nested repetition operator",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "trailing \\": "trailing backslash at end of expression",
}
"""What Go calls the mistakes that RE2 finds; the two read the same language."""


def compile_re2(pattern: str) -> Any:
    """The compiled pattern, without groups. ValueError in the words of Go's regexp where RE2 refuses it."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True  # who only wants to know whether it matches is served a hundred times faster
    try:
        return re2.compile(pattern, options)
    except re2.error as refused:
        said = refused.args[0] if refused.args else ""
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        what, _, where = text.partition(": ")
        raise ValueError(f"error parsing regexp: {_GO_WORDS.get(what, what)}: `{where}`") from None
