"""A bar with counts and an estimate on standard error, where somebody looks and where it takes longer than a moment."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds before a bar appears: what is quicker needs none."""


class Bar:
    """How far something is. It draws itself, after its `patience` (seconds; default: `PATIENCE`), where there is a terminal; elsewhere it only counts."""

    def __init__(
        self, total: int | None, label: str, *, size: bool = False, shown: bool | None = None, patience: float | None = None
    ) -> None:
        self.total = total
        self.done = 0
        self._label = label
        self._size = size
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._from = time.monotonic() + (PATIENCE if patience is None else patience)
        self._drawn: tuple[Progress, TaskID] | None = None

    def step(self, number: int = 1) -> None:
        """So many more are done."""
        self.at(self.done + number)

    def over(self, items: Iterable[T]) -> Iterator[T]:
        """The same items, each counted when the next is asked for."""
        for item in items:
            yield item
            self.step()

    def at(self, done: int, label: str = "") -> None:
        """So many are done, now under this name."""
        self.done = done
        self._label = label or self._label
        if self._shown and (self._drawn or time.monotonic() >= self._from):
            self._draw()

    def _draw(self) -> None:
        if self._drawn is None:
            drawn = _columns(self._size, self.total is None)
            self._drawn = drawn, drawn.add_task(self._label, total=self.total)
            drawn.start()
        drawn, task = self._drawn
        drawn.update(task, completed=self.done, description=self._label)

    def close(self) -> None:
        """Takes it off the screen: what is printed afterwards says what came of it."""
        if self._drawn is not None:
            self._drawn[0].stop()


def _columns(size: bool, endless: bool) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts: list[ProgressColumn] = [DownloadColumn(), TransferSpeedColumn()] if size else [MofNCompleteColumn()]
    rest = TimeElapsedColumn() if endless else TimeRemainingColumn()
    return Progress(TextColumn("{task.description}"), BarColumn(), *counts, rest, console=Console(stderr=True), transient=True)


@contextlib.contextmanager
def progress(total: int | None, label: str, *, size: bool = False, patience: float | None = None) -> Iterator[Bar]:
    """A bar while the `with` lasts. `total` is None where nobody knows it; with `size`, bytes are counted."""
    bar = Bar(total, label, size=size, patience=patience)
    try:
        yield bar
    finally:
        bar.close()
