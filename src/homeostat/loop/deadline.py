"""Deadlines for what others wrote: work that takes too long is cancelled, and fails with `TimeoutError`.

As `asyncio.timeout` has it, for those who set one with everything they do: nearly all of it ends in time, so one timer stands for
all that is under way, and to begin and to end a piece of work costs two entries in a dictionary.
"""

from __future__ import annotations

import asyncio
import math
from types import TracebackType
from typing import Any


class Deadlines:
    """What is under way, and till when each may take. Use it in one event loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: dict[Within, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings = math.inf

    def within(self, seconds: float) -> Within:
        """Use it as `with`: what runs in it is cancelled after so many seconds, and `TimeoutError` is raised in place of that."""
        return Within(self, seconds)

    def begin(self, work: Within) -> asyncio.Task[Any]:
        """Begins to count; gives the task that is at work."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline is set inside of a task")
        work.at = loop.time() + work.seconds
        self._open[work] = None
        if work.at < self._rings:
            self._ring_at(loop, work.at)
        return task

    def end(self, work: Within) -> None:
        """It is over, in time or not. The timer stays: it finds that nothing is late, and goes on to the next."""
        self._open.pop(work, None)

    def _ring_at(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings, self._timer = when, loop.call_at(when, self._ring)

    def _ring(self) -> None:
        assert self._loop is not None
        self._rings, self._timer = math.inf, None
        now = self._loop.time()
        for work in [one for one in self._open if one.at <= now]:
            del self._open[work]
            work.expire()
        if self._open:
            self._ring_at(self._loop, min(one.at for one in self._open))


class Within:
    """One piece of work and its deadline."""

    __slots__ = ("_cancelling", "_expired", "_of", "_task", "at", "seconds")

    def __init__(self, of: Deadlines, seconds: float) -> None:
        self.seconds = seconds
        self.at = math.inf
        self._of = of
        self._expired = False

    def __enter__(self) -> None:
        self._task = self._of.begin(self)
        self._cancelling = self._task.cancelling()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._of.end(self)
        # Where nobody else gave up the work meanwhile, its cancellation was ours.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """It takes too long."""
        self._expired = True
        self._task.cancel()
