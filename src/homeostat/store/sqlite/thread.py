"""Where blocking work is done: one thread, one piece after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol


class Runs(Protocol):
    """Whoever can run a piece of work: this module's thread, a `ThreadPoolExecutor` with one worker, or a simulator.

    The pieces must run one at a time, in the order they came. They report for themselves and do not raise.
    """

    def submit(self, work: Callable[[], None], /) -> object: ...


class Inline:
    """Runs each piece at once, where it was handed in. For tests and simulations: the event loop waits for the disk."""

    def submit(self, work: Callable[[], None], /) -> None:
        work()


class WriterThread:
    """A thread that lives until `stop`. A daemon: a process that forgets to close still ends, and SQLite recovers."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[], None], /) -> None:
        self._work.put(work)

    def stop(self) -> None:
        """Returns when what was submitted before is done."""
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
