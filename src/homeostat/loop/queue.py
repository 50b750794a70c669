"""WorkQueue: which keys to look at, in which order, and never the same one twice at a time.

The queue holds keys, not events: however often a key is added before a worker takes it, it is worked on once, and a key
that is added while it is worked on is worked on once more afterwards. So the work reads the state as it is then, and
nothing that happened in between is lost.

    queue: WorkQueue[Key] = WorkQueue(kind_of=lambda key: key.kind)
    queue.add(key)                            # from a watch
    ...
    while (key := await queue.get()) is not None:
        try:
            await reconcile(key)
        except Exception:
            queue.retry(key)                  # again after a growing wait
        else:
            queue.forget(key)                 # the next failure begins small
        finally:
            queue.done(key)

It belongs to one event loop and is not for threads. Its time is that of the loop, or of the `Timers` that are handed in;
its chance is the `source`. Adding and taking cost O(1), delays O(log n); a waiting key takes about 80 bytes besides itself.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from homeostat.loop.alarms import Alarms
from homeostat.loop.lanes import Lanes

K = TypeVar("K", bound=Hashable)


class Priority(IntEnum):
    """Why a key is to be looked at; the smaller goes first, and none starves (`WEIGHTS`)."""

    CHANGE = 0
    """What is declared has changed. It alone cuts a wait after a failure short."""
    HINT = 1
    """Something said that it is worth a look: a watch on the world, a timer, a write of our own."""
    PASS = 2
    """Its turn in a full pass."""


WEIGHTS = (16, 4, 1)
"""Of 21 keys taken while there are enough of all, so many are of each priority, in their order."""


class Backoff(msgspec.Struct, frozen=True):
    """How long a key waits after its failures: a random time up to `first` × `factor` ^ (failures - 1), at most `most`.

    The whole range is drawn from (full jitter), so that a thousand keys that failed together do not come back together.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.most) or self.factor < 1:
            raise ValueError(f"a backoff needs 0 < first ≤ most and factor ≥ 1: {self}")

    def ceiling(self, failures: int) -> float:
        """The longest wait in seconds after so many failures in a row."""
        return float(min(self.most, self.first * self.factor ** min(max(failures, 1) - 1, 64)))

    def delay(self, failures: int, source: random.Random) -> float:
        """A wait in seconds after so many failures in a row."""
        return source.uniform(0.0, self.ceiling(failures))


class Handle(Protocol):
    """A call to come that can be called off."""

    def cancel(self) -> None: ...


class Timers(Protocol):
    """Where time comes from: every asyncio event loop is one."""

    def time(self) -> float: ...

    def call_at(self, when: float, callback: Callable[..., object], /, *args: Any) -> Handle: ...


class QueueMetrics(Protocol):
    """What is told as it happens, named as controller-runtime names it (with `workqueue_` before it).

    The rest (`workqueue_depth`, `workqueue_unfinished_work_seconds`, `workqueue_longest_running_processor_seconds`) is
    read from the queue when somebody asks: `depth`, `unfinished_work_seconds`, `longest_running_processor_seconds`.
    """

    def adds_total(self, count: int) -> None:
        """So many keys came to wait that were not waiting."""

    def retries_total(self) -> None:
        """One key failed and is to be worked on again."""

    def queue_duration_seconds(self, seconds: float) -> None:
        """A key was taken after it waited so long."""

    def work_duration_seconds(self, seconds: float) -> None:
        """A key was worked on for so long."""


class Standing(NamedTuple):
    """Where a key is, for those who ask why nothing happens.

    `since` is when it came there; for `retry` and `later` it is when it leaves. On the clock of the queue.
    """

    phase: Literal["working", "ready", "retry", "later", "absent"]
    since: float
    failures: int


class _Work(msgspec.Struct):
    started: float
    priority: Priority
    again: Priority | None = None
    again_since: float = 0.0


class WorkQueue(Generic[K]):
    """A deduplicating queue with priorities, delays and a backoff for each key. See the module for its use.

    `kind_of` names the lane of a key: within a priority, lanes take turns, so a kind with a million keys does not
    hold up one with three (default: one lane for all). `backoff` is that of `retry`. `source` is the chance in it.
    """

    def __init__(
        self,
        *,
        kind_of: Callable[[K], Hashable] | None = None,
        backoff: Backoff | None = None,
        source: random.Random | None = None,
        timers: Timers | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        self._levels: tuple[Lanes[K], ...] = tuple(Lanes(kind_of) for _ in Priority)
        self._ranked = tuple(zip(Priority, self._levels, strict=True))
        self._turns = list(WEIGHTS)
        self._working: dict[K, _Work] = {}
        self._later: Alarms[K, Priority] = Alarms()
        self._retries: Alarms[K, Priority] = Alarms()
        self._failures: dict[K, int] = {}
        self._backoff = backoff or Backoff()
        self._random = source or random.Random()
        self._timers = timers
        self._metrics = metrics
        self._timer: Handle | None = None
        self._timer_at = 0.0
        self._getters: deque[asyncio.Future[None]] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False

    # What comes in

    def add(self, key: K, priority: Priority = Priority.CHANGE) -> None:
        """Has a key looked at, now or, where it is being worked on, once more afterwards.

        A key that waits already moves up where `priority` is higher. A key that waits after a failure is left to wait,
        for it will be looked at then anyway, unless the priority is CHANGE. Nothing is added once it is closed.
        """
        if not self._closed and self._admit(key, priority, self._now()):
            self._added(1)

    def add_all(self, keys: Iterable[K], priority: Priority = Priority.PASS) -> None:
        """The same for many keys."""
        if self._closed:
            return
        now, admit = self._now(), self._admit
        self._added(sum(1 for key in keys if admit(key, priority, now)))

    def add_after(self, key: K, seconds: float, priority: Priority = Priority.HINT) -> None:
        """Has a key looked at in so many seconds. Of two such wishes for a key the sooner counts.

        An `add` in between does not undo it: the key is then looked at twice, unless `not_later` is said.
        """
        if self._closed:
            return
        if seconds <= 0:
            self.add(key, priority)
            return
        when, planned = self._now() + seconds, self._later.get(key)
        if planned is None or when < planned.when:
            self._later.set(key, when, priority)
            self._arm(when)

    def not_later(self, key: K) -> None:
        """Takes back the wish to have a key looked at later; no harm where there is none."""
        self._later.pop(key, None)

    def retry(self, key: K, *, backoff: Backoff | None = None, at_least: float = 0.0) -> float:
        """Says of a key in work that it failed: it comes again after a wait, whose seconds are returned.

        `backoff` in place of that of the queue; `at_least` seconds where somebody asked for them (Retry-After).
        The key keeps its priority.
        """
        work = self._at_work(key, "retry")
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(at_least, (backoff or self._backoff).delay(failures, self._random))
        if self._metrics is not None:
            self._metrics.retries_total()
        if not self._closed:
            when = self._now() + delay
            self._retries.set(key, when, work.priority)
            self._arm(when)
        return delay

    def forget(self, key: K) -> None:
        """Forgets the failures of a key and the wait for its retry: it worked, or there is nothing to do any more."""
        self._failures.pop(key, None)
        self._retries.pop(key, None)

    # What goes out

    async def get(self) -> K | None:
        """The next key, which is the caller's until `done`; None once the queue is closed and nothing is left in it."""
        while (key := self._take()) is None:
            if self._closed and not any(work.again is not None for work in self._working.values()):
                return None
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if not getter.cancelled():
                    self._wake(1)  # this one was called, and will not come: another must
                elif getter in self._getters:
                    self._getters.remove(getter)
                raise
        return key

    def done(self, key: K) -> None:
        """Gives a key back. If it was added meanwhile, it waits again."""
        work = self._at_work(key, "done")
        del self._working[key]
        if self._metrics is not None:
            self._metrics.work_duration_seconds(self._now() - work.started)
        if work.again is not None and self._admit(key, work.again, work.again_since):
            self._wake(1)
        if self._closed or self._idle:
            self._settle()

    def _take(self) -> K | None:
        """The next key, of the highest priority that has keys and turns left; None where nothing is ready."""
        turns, ready = self._turns, False
        for priority, lanes in self._ranked:
            if lanes.since:
                if turns[priority]:
                    turns[priority] -= 1
                    return self._hand_out(priority, lanes)
                ready = True
        if not ready:
            return None
        turns[:] = WEIGHTS
        return self._take()

    def _hand_out(self, priority: Priority, lanes: Lanes[K]) -> K:
        key, since = lanes.take()
        now = self._now()
        self._working[key] = _Work(now, priority)
        if self._metrics is not None:
            self._metrics.queue_duration_seconds(now - since)
        return key

    # Its end

    def close(self, *, drain: bool = True) -> None:
        """Takes nothing more, and drops what waits for a later time. What is ready is still handed out, or, with
        `drain=False`, dropped. Then `get` gives None. `join` waits for the workers."""
        self._closed = True
        self._later.clear()
        self._retries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not drain:
            for lanes in self._levels:
                lanes.clear()
            for work in self._working.values():
                work.again = None
        self._settle()

    async def join(self) -> None:
        """Waits until nothing is ready and nothing is worked on. What is to come later does not count."""
        while self._working or len(self):
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter

    # What is known of it

    def __len__(self) -> int:
        """How many keys are ready to be taken."""
        change, hint, full = self._levels
        return len(change.since) + len(hint.since) + len(full.since)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def working(self) -> int:
        """How many keys are worked on."""
        return len(self._working)

    @property
    def later(self) -> int:
        """How many keys wait for their time, be it a delay or the wait after a failure."""
        return len(self._later) + len(self._retries)

    def depth(self, priority: Priority) -> int:
        """How many keys of a priority are ready to be taken."""
        return len(self._levels[priority].since)

    def oldest_seconds(self) -> float:
        """For how long the key at the head of its lane that waits longest has been ready; 0 where there is none."""
        heads = [since for lanes in self._levels for since in lanes.heads()]
        return max(0.0, self._now() - min(heads)) if heads else 0.0

    def unfinished_work_seconds(self) -> float:
        """For how long all keys in work have been worked on, together: what grows here is stuck."""
        now = self._now()
        return sum(now - work.started for work in self._working.values())

    def longest_running_processor_seconds(self) -> float:
        """For how long the key that is longest in work has been worked on."""
        return max((self._now() - work.started for work in self._working.values()), default=0.0)

    def priority(self, key: K) -> Priority:
        """Why a key that is worked on was taken."""
        return self._at_work(key, "priority").priority

    def failures(self, key: K) -> int:
        """How often in a row a key failed."""
        return self._failures.get(key, 0)

    def standing(self, key: K) -> Standing:
        """Where a key is, and until or since when."""
        failures = self._failures.get(key, 0)
        if (work := self._working.get(key)) is not None:
            return Standing("working", work.started, failures)
        for lanes in self._levels:
            if key in lanes.since:
                return Standing("ready", lanes.since[key], failures)
        if (alarm := self._retries.get(key)) is not None:
            return Standing("retry", alarm.when, failures)
        if (alarm := self._later.get(key)) is not None:
            return Standing("later", alarm.when, failures)
        return Standing("absent", 0.0, failures)

    # Within

    def _admit(self, key: K, priority: Priority, since: float) -> bool:
        """Puts a key where it belongs; whether it was waiting nowhere before. `since` is when it was asked for."""
        if key in self._retries:
            if priority is not Priority.CHANGE:
                return False
            self._retries.pop(key, None)
        work = self._working.get(key)
        if work is not None:
            if work.again is None:
                work.again, work.again_since = priority, since
                return True
            work.again = min(work.again, priority)
            return False
        for level, lanes in enumerate(self._levels):
            if key in lanes.since:
                if priority < level:
                    self._levels[priority].put(key, lanes.remove(key))
                return False
        self._levels[priority].put(key, since)
        return True

    def _added(self, count: int) -> None:
        if count:
            if self._metrics is not None:
                self._metrics.adds_total(count)
            self._wake(count)

    def _wake(self, count: int) -> None:
        while count and self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                count -= 1

    def _settle(self) -> None:
        """Tells those who wait for the end, each of whom looks for itself."""
        if self._closed:
            self._wake(len(self._getters))
        if not self._working and not len(self):
            waiters, self._idle = self._idle, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _at_work(self, key: K, what: str) -> _Work:
        work = self._working.get(key)
        if work is None:
            raise ValueError(f"{what}({key!r}): the key is not in work; it is the caller's only between get and done")
        return work

    # Time

    def _clock(self) -> Timers:
        if self._timers is None:
            self._timers = asyncio.get_running_loop()
        return self._timers

    def _now(self) -> float:
        return (self._timers or self._clock()).time()

    def _arm(self, when: float) -> None:
        """Sees to it that `_ring` is called by then. One timer serves all delays."""
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._clock().call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = max(self._now(), self._timer_at)  # loops may call a little early, by the resolution of their clock
        count = 0
        for alarms in (self._retries, self._later):
            for key, priority in alarms.ring(now):
                count += self._admit(key, priority, now)
        self._added(count)
        soonest = [when for alarms in (self._retries, self._later) if (when := alarms.next()) is not None]
        if soonest:
            self._arm(min(soonest))
