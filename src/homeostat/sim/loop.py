"""An event loop whose time jumps, whose order is drawn by a seed, and in which a process can die without a word.

What runs belongs to a `Life`, told by its context: tasks, callbacks and timers inherit it from whoever made them. When a life
ends, nothing of it runs any more: no `finally`, no `except`, as after kill -9. What it had asked of others goes on there.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from homeostat.model.clock import Clock

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""The wall time at which every simulation begins."""

MOST_TURNS = 200_000
"""Steps after which a simulation is given up: whatever spins, spins here."""


class Life:
    """A process in the simulation. It runs until `end`, or until it has made `steps_left` steps: turns of its tasks and timers."""

    def __init__(self, name: str, steps_left: int | None = None, at_end: Callable[[], None] | None = None) -> None:
        self.name = name
        self.alive = True
        self.steps = 0
        self._steps_left = steps_left
        self._at_end = at_end
        self._asleep: list[Any] | None = None
        self._context = copy_context()
        self._context.run(_life.set, self)

    def step(self) -> bool:
        """Takes one more step, or ends."""
        if self.alive and self._steps_left is not None and self.steps >= self._steps_left:
            self.end()
        self.steps += self.alive
        return self.alive

    def end(self) -> None:
        """Nothing of it runs from now on."""
        if self.alive:
            self.alive = False
            if self._at_end is not None:
                self._at_end()

    def pause(self, seconds: float) -> None:
        """Nothing of it runs for so long, as after SIGSTOP; then it goes on where it stood, with all that became due meanwhile."""
        if self._asleep is None:
            self._asleep = []
            asyncio.get_running_loop().call_later(seconds, self.wake, context=Context())

    def wake(self) -> None:
        """It goes on."""
        asleep, self._asleep = self._asleep, None
        asyncio.get_running_loop()._ready.extend(asleep or ())  # type: ignore[attr-defined]

    def sleeps(self, handle: Any) -> bool:
        """Whether it is paused; then what it would have run now is kept for later."""
        if self._asleep is None:
            return False
        self._asleep.append(handle)
        return True

    def doom(self, steps: int) -> None:
        """It dies after so many more steps."""
        self._steps_left = self.steps + steps

    def spare(self) -> None:
        """It does not die by itself any more."""
        self._steps_left = None

    def begin(self, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Starts a task that belongs to this life, whoever asks for it."""
        return asyncio.get_running_loop().create_task(work, name=name or self.name, context=self._context.copy())


_life: ContextVar[Life | None] = ContextVar("homeostat_sim_life", default=None)


class SimLoop(asyncio.SelectorEventLoop):
    """Jumps to its next timer when nothing is ready, and takes ready tasks in an order that `source` draws.

    Callbacks keep their order, which asyncio promises; of tasks it promises nothing. There is one thread, and nobody outside.
    """

    _ready: Any
    _scheduled: list[Any]
    _stopping: bool
    _timer_cancelled_count: int

    def __init__(self, source: random.Random, most_turns: int = MOST_TURNS) -> None:
        super().__init__()
        self._most_turns = most_turns
        self.now = 0.0
        self.turns = 0
        self._source = source
        self._parked: list[Any] = []  # what the dead would have run
        self._sleepers: dict[Life, None] = {}
        self._made: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self.now

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """There are no threads: it is done at once, in a step of its own."""
        done = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:
                done.set_exception(error)

        self.call_soon(work)
        return done

    def _make_task(self, loop: Any, work: Any, **options: Any) -> Any:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        self._made.append(task)
        if len(self._made) % 1000 == 0:
            self._made = [made for made in self._made if not made.done()]
        return task

    def _run_once(self) -> None:
        ready, timers = self._ready, self._scheduled
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(timers)._scheduled = False
        if not ready and not self._stopping:
            if not timers:
                raise RuntimeError("everything waits, and nothing is going to happen")
            self.now = max(self.now, timers[0]._when)
        while timers and timers[0]._when <= self.now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        batch = list(ready)
        ready.clear()
        self._shuffle(batch)
        for handle in batch:
            if handle._cancelled:
                continue
            life = handle._context.get(_life)
            if life is not None and not life.step():
                self._parked.append(handle)
                continue
            if life is not None and life.sleeps(handle):
                self._sleepers[life] = None
                continue
            self.turns += 1
            handle._run()
        if self.turns > self._most_turns:
            raise RuntimeError(f"it does not come to rest: {self._most_turns} steps, and {self.now:.0f} s of virtual time")

    def _shuffle(self, batch: list[Any]) -> None:
        places = [i for i, handle in enumerate(batch) if _is_step(handle)]
        if len(places) > 1:
            steps = [batch[i] for i in places]
            self._source.shuffle(steps)
            for place, handle in zip(places, steps, strict=True):
                batch[place] = handle

    async def bury(self) -> None:
        """Ends every task there is, the dead included, so that nothing is left half done when the loop closes.

        Call it when all is over: the dead wake up once more, to be told that they are cancelled.
        """
        for life in self._sleepers:
            life.wake()
        for handle in self._parked:
            life = handle._context.get(_life)
            if life is not None:
                life.alive = True
                life.spare()
        self._ready.extend(self._parked)
        self._parked = []
        me = asyncio.current_task(self)
        for _ in range(3):  # what is cancelled may begin something yet
            left = [task for task in self._made if not task.done() and task is not me]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)


def _is_step(handle: Any) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)


class SimClock(Clock):
    """Wall time that goes with the loop's, and can be `set` as people and time servers do."""

    __slots__ = ("_loop", "_set")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._set = 0.0

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._set

    def set(self, by: float) -> None:
        """Puts it forward by so many seconds, or (negative) back."""
        self._set += by
