"""Words for times and numbers."""

from __future__ import annotations

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def ago(seconds: float) -> str:
    """A duration as people say it: `3m`, `2h5m`, `4d`."""
    left, words = max(0, int(seconds)), []
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count:
            words.append(f"{count}{unit}")
    return "".join(words[:2]) or "0s"


def count(number: int, thing: str) -> str:
    """`1 change`, `2 changes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
