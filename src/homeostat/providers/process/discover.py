"""Processes that were started here once, and that no declaration speaks of any more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from homeostat.loop.provider import Undeclared
from homeostat.providers.process import kernel


def undeclared(root: Path, uids: Collection[str]) -> Iterator[Undeclared]:
    """What carries our mark, and runs, with the uid of a Process that is not declared."""
    for one in kernel.marked(root, lambda mark: mark.uid not in uids):
        yield Undeclared(f"pid {one.process.pid}", f"replica {one.mark.index} of a Process that had uid {one.mark.uid}")
