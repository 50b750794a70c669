"""Time that passes only when nothing else is left to do."""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that jumps to its next timer instead of waiting for it. Sockets and processes work, in no time."""

    def __init__(self) -> None:
        super().__init__(_Impatient(self))
        self.now = 1000.0

    def time(self) -> float:
        return self.now


class _Impatient(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            ready = super().select(1)
            assert ready, "everything waits, and nothing is going to happen"
        if not ready and timeout:
            self._loop.now += timeout
        return ready


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


class ManualTimers:
    """A clock that a test moves by hand, with the calls that are planned on it."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._calls: list[tuple[float, int, Planned]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[..., object], /, *args: Any) -> Planned:
        planned = Planned(lambda: callback(*args))
        self._count += 1
        heapq.heappush(self._calls, (when, self._count, planned))
        return planned

    def advance(self, seconds: float) -> None:
        """Moves on, making the calls that come due on the way."""
        end = self.now + seconds
        while self._calls and self._calls[0][0] <= end:
            when, _, planned = heapq.heappop(self._calls)
            self.now = max(self.now, when)
            if not planned.cancelled:
                planned.call()
        self.now = end


class Planned:
    """A call to come."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
