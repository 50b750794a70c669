"""Prints the table of docs/safety.md: what each incident costs with our guards, and with a loop that obeys.

python -m tests.scenarios.table
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Iterator
from pathlib import Path

from tests.scenarios.fleet import Figures, live_through


def rows() -> Iterator[tuple[str, str, Figures, Figures]]:
    """Each incident: its name, what must hold, and its figures with guards and without."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        found = importlib.import_module(f"tests.scenarios.{path.stem}")
        name = path.stem.removeprefix("test_").replace("_", " ")
        with contextlib.redirect_stdout(io.StringIO()):
            guarded = live_through(found.incident)
            naive = live_through(getattr(found, "obedient", found.incident), naive=True)
        yield name, found.MUST_HOLD, guarded, naive


def table() -> str:
    """The table as Markdown."""
    lines = [
        "| incident | what must hold | damage with guards | a person was told after | came back | damage of a naive loop |",
        "|---|---|---|---|---|---|",
    ]
    for name, must_hold, guarded, naive in rows():
        told = "nobody was needed" if guarded.told_after is None else f"{guarded.told_after:.1f} s"
        lines.append(
            f"| {name} | {must_hold} | {guarded.damage} of {guarded.of} | {told} | {guarded.came_back} | {naive.damage} of {naive.of} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    import logging

    logging.disable(logging.CRITICAL)
    print(table())
