"""The queue: each key once, in turn, never twice at a time, and none forgotten."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from homeostat.loop.queue import WEIGHTS, Backoff, Priority, WorkQueue

from .virtual import ManualTimers, run

CHANGE, HINT, PASS = Priority


@pytest.fixture
def timers() -> ManualTimers:
    return ManualTimers()


def queue_on(timers: ManualTimers, **options: Any) -> WorkQueue[str]:
    return WorkQueue(timers=timers, source=random.Random(7), **options)


@pytest.fixture
def queue(timers: ManualTimers) -> WorkQueue[str]:
    return queue_on(timers)


async def take(queue: WorkQueue[str]) -> str:
    """The next key, which must be there already."""
    assert len(queue), "nothing is ready"
    key = await queue.get()
    assert key is not None
    return key


async def take_all(queue: WorkQueue[str]) -> list[str]:
    taken = []
    while len(queue):
        taken.append(await take(queue))
        queue.done(taken[-1])
    return taken


# Keys


async def test_a_key_added_often_is_worked_on_once(queue: WorkQueue[str]) -> None:
    for key in "abacab":
        queue.add(key)
    assert len(queue) == 3
    assert await take_all(queue) == ["a", "b", "c"]


async def test_a_key_added_during_its_work_is_worked_on_once_more_after(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await take(queue) == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert await take_all(queue) == ["a"]


async def test_a_worker_that_waits_gets_the_key_that_comes(queue: WorkQueue[str]) -> None:
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    assert await waiting == "a"


async def test_a_worker_that_is_cancelled_takes_no_key_with_it(queue: WorkQueue[str]) -> None:
    first, second = asyncio.create_task(queue.get()), asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await asyncio.wait_for(second, 5) == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_cancelled_worker_may_be_woken_before_it_hears_of_it(queue: WorkQueue[str]) -> None:
    first = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    first.cancel()
    queue.add("a")
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await take(queue) == "a"


def test_what_is_not_in_work_can_neither_be_done_nor_retried(queue: WorkQueue[str]) -> None:
    with pytest.raises(ValueError, match="not in work"):
        queue.done("a")
    with pytest.raises(ValueError, match="not in work"):
        queue.retry("a")


# Priorities and lanes


async def test_changes_go_before_hints_and_hints_before_the_pass(queue: WorkQueue[str]) -> None:
    queue.add("pass", PASS)
    queue.add("hint", HINT)
    queue.add("change", CHANGE)
    assert await take_all(queue) == ["change", "hint", "pass"]


async def test_a_flood_of_one_priority_starves_none(queue: WorkQueue[str]) -> None:
    for priority in Priority:
        queue.add_all([f"{priority.name}{n}" for n in range(200)], priority)
    rounds = 5
    taken = [await take(queue) for _ in range(rounds * sum(WEIGHTS))]
    counted = Counter(key.rstrip("0123456789") for key in taken)
    assert counted == {priority.name: rounds * weight for priority, weight in zip(Priority, WEIGHTS, strict=True)}


async def test_a_change_does_not_wait_behind_a_pass(queue: WorkQueue[str]) -> None:
    queue.add_all([f"p{n}" for n in range(1000)], PASS)
    for _ in range(100):
        queue.done(await take(queue))
    queue.add("c", CHANGE)
    assert await take(queue) == "c"


async def test_a_waiting_key_moves_up_but_never_down(queue: WorkQueue[str]) -> None:
    queue.add_all(["a", "b", "c"], PASS)
    queue.add("c", CHANGE)
    queue.add("c", PASS)
    assert len(queue) == 3
    assert await take_all(queue) == ["c", "a", "b"]


async def test_a_key_added_again_during_work_keeps_the_highest_priority(queue: WorkQueue[str]) -> None:
    queue.add("a")
    await take(queue)
    queue.add("a", PASS)
    queue.add("a", CHANGE)
    queue.add("a", HINT)
    queue.add("b", HINT)
    queue.done("a")
    assert await take_all(queue) == ["a", "b"]


async def test_kinds_take_turns(timers: ManualTimers) -> None:
    queue = queue_on(timers, kind_of=lambda key: key[0])
    queue.add_all([f"a{n}" for n in range(100)])
    queue.add_all(["b0", "b1", "c0"])
    assert await take_all(queue) == ["a0", "b0", "c0", "a1", "b1", *(f"a{n}" for n in range(2, 100))]


async def test_keys_that_move_up_over_and_over_leave_nothing_behind(queue: WorkQueue[str]) -> None:
    keys = [f"k{n}" for n in range(50)]
    for _ in range(200):
        queue.add_all(keys, PASS)
        for key in keys:
            queue.add(key, CHANGE)
        assert sorted(await take_all(queue)) == sorted(keys)
    held = sum(len(lane) for lanes in queue._levels for lane in lanes._lanes.values())
    assert held < 200


# Delays


async def test_a_delayed_key_comes_at_its_time(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add_after("a", 10)
    timers.advance(9.9)
    assert len(queue) == 0
    assert queue.standing("a") == ("later", 1010.0, 0)
    timers.advance(0.2)
    assert await take_all(queue) == ["a"]


async def test_of_two_delays_the_sooner_counts(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add_after("a", 10)
    queue.add_after("a", 30)
    queue.add_after("b", 30)
    queue.add_after("b", 10)
    timers.advance(10)
    assert await take_all(queue) == ["a", "b"]
    timers.advance(100)
    assert len(queue) == 0


async def test_delays_ring_in_their_order(queue: WorkQueue[str], timers: ManualTimers) -> None:
    for key, seconds in [("c", 3), ("a", 1), ("d", 4), ("b", 2)]:
        queue.add_after(key, seconds)
    timers.advance(5)
    assert await take_all(queue) == ["a", "b", "c", "d"]


async def test_a_look_in_between_does_not_undo_a_delay(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add_after("a", 10)
    queue.add("a")
    assert await take_all(queue) == ["a"]
    timers.advance(10)
    assert await take_all(queue) == ["a"]


def test_delays_run_on_the_time_of_the_event_loop() -> None:
    async def work() -> tuple[str | None, float]:
        queue: WorkQueue[str] = WorkQueue()
        loop = asyncio.get_running_loop()
        start = loop.time()
        queue.add_after("a", 3600)
        return await queue.get(), loop.time() - start

    assert run(work()) == ("a", 3600)


# Backoff


async def fail(queue: WorkQueue[str], key: str = "a", **how: Any) -> float:
    assert await take(queue) == key
    delay = queue.retry(key, **how)
    queue.done(key)
    return delay


async def test_a_failed_key_comes_again_after_its_wait(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add("a")
    delay = await fail(queue)
    assert queue.standing("a") == ("retry", 1000 + delay, 1)
    timers.advance(delay)
    assert await take_all(queue) == ["a"]


def test_waits_double_up_to_the_most_and_use_the_whole_range() -> None:
    backoff, source = Backoff(), random.Random(1)
    assert [backoff.ceiling(n) for n in (1, 2, 3, 9, 10, 10_000)] == [1, 2, 4, 256, 300, 300]
    for failures in (1, 5, 20):
        drawn = [backoff.delay(failures, source) for _ in range(2000)]
        top = backoff.ceiling(failures)
        assert min(drawn) < 0.01 * top
        assert 0.99 * top < max(drawn) <= top


async def test_forgetting_begins_small_again(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add("a")
    for _ in range(12):
        timers.advance(await fail(queue))
    assert queue.failures("a") == 12
    queue.forget("a")
    assert await fail(queue) <= 1


async def test_who_asks_for_time_gets_it(queue: WorkQueue[str]) -> None:
    queue.add("a")
    assert await fail(queue, at_least=77) == 77


@pytest.mark.parametrize("priority", [HINT, PASS])
async def test_hints_and_passes_do_not_cut_a_wait_short(
    queue: WorkQueue[str], timers: ManualTimers, priority: Priority
) -> None:
    queue.add("a")
    await take(queue)
    queue.add("a", priority)  # such as by the status that the failed work wrote
    delay = queue.retry("a")
    queue.done("a")
    queue.add("a", priority)
    queue.add_after("a", 0, priority)
    assert len(queue) == 0
    timers.advance(delay)
    assert await take_all(queue) == ["a"]


@pytest.mark.parametrize("when", ["during the work", "during the wait"])
async def test_a_change_cuts_a_wait_short_and_is_not_done_twice(
    queue: WorkQueue[str], timers: ManualTimers, when: str
) -> None:
    queue.add("a")
    await take(queue)
    if when == "during the work":
        queue.add("a", CHANGE)
    queue.retry("a")
    queue.done("a")
    if when == "during the wait":
        queue.add("a", CHANGE)
    assert await take_all(queue) == ["a"]
    timers.advance(1000)
    assert len(queue) == 0


async def test_a_wait_that_was_cut_short_does_not_shorten_the_next(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add("a")
    await fail(queue, at_least=10)
    queue.add("a", CHANGE)
    await fail(queue, at_least=60)
    timers.advance(59)
    assert len(queue) == 0
    timers.advance(1)
    assert await take_all(queue) == ["a"]


async def test_a_retry_keeps_its_priority(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add("a", PASS)
    delay = await fail(queue)
    timers.advance(delay)
    queue.add("b", CHANGE)
    assert await take_all(queue) == ["b", "a"]


# The end


async def test_closing_hands_out_what_is_ready_and_then_nothing(queue: WorkQueue[str], timers: ManualTimers) -> None:
    queue.add_all(["a", "b"])
    queue.add_after("later", 5)
    await take(queue)
    queue.add("a")
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    queue.close()
    queue.add("c")
    timers.advance(10)
    await asyncio.sleep(0)
    queue.done("a")
    ended = asyncio.create_task(queue.join())
    got = [await one for one in waiting[:2]]
    assert got == ["b", "a"]
    assert await waiting[2] is None
    assert not ended.done()
    for key in got:
        assert key is not None
        queue.done(key)
    await asyncio.wait_for(ended, 5)


async def test_closing_without_draining_drops_what_waits(queue: WorkQueue[str]) -> None:
    queue.add_all(["a", "b", "c"])
    await take(queue)
    queue.add("a")
    queue.close(drain=False)
    assert await queue.get() is None
    queue.done("a")
    await asyncio.wait_for(queue.join(), 5)


async def test_waiting_workers_hear_of_the_end(queue: WorkQueue[str]) -> None:
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(0)
    queue.close()
    assert await asyncio.gather(*waiting) == [None, None, None]


# What is known of it


class Noted:
    def __init__(self) -> None:
        self.adds = self.retries = 0
        self.waited: list[float] = []
        self.worked: list[float] = []

    def adds_total(self, count: int) -> None:
        self.adds += count

    def retries_total(self) -> None:
        self.retries += 1

    def queue_duration_seconds(self, seconds: float) -> None:
        self.waited.append(seconds)

    def work_duration_seconds(self, seconds: float) -> None:
        self.worked.append(seconds)


async def test_it_tells_how_long_keys_wait_and_are_worked_on(timers: ManualTimers) -> None:
    noted = Noted()
    queue = queue_on(timers, metrics=noted)
    queue.add("a")
    queue.add("a")
    timers.advance(2)
    assert queue.oldest_seconds() == 2
    await take(queue)
    timers.advance(1)
    queue.add("a")
    queue.add_all(["b", "c"])
    timers.advance(2)
    assert (queue.unfinished_work_seconds(), queue.longest_running_processor_seconds()) == (3, 3)
    assert (len(queue), queue.depth(CHANGE), queue.depth(PASS), queue.working) == (2, 0, 2, 1)
    queue.retry("a")
    queue.done("a")
    assert (noted.adds, noted.retries, noted.waited, noted.worked) == (4, 1, [2], [3])
    assert await take(queue) == "a"
    assert noted.waited == [2, 2]


async def test_a_million_keys_are_no_matter(timers: ManualTimers) -> None:
    import tracemalloc

    keys = [str(n) for n in range(100_000)]
    queue = queue_on(timers)
    tracemalloc.start()
    try:
        queue.add_all(keys)
        assert tracemalloc.get_traced_memory()[0] / len(keys) < 100
    finally:
        tracemalloc.stop()
    assert await take_all(queue) == keys


# Whatever happens


class QueueMachine(RuleBasedStateMachine):
    """Random calls against what must hold always: no key in two hands, and none that was added is forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = ManualTimers()
        self.queue: WorkQueue[int] = WorkQueue(timers=self.timers, source=random.Random(3), kind_of=lambda key: key % 2)
        self.owed: set[int] = set()  # added and not taken since
        self.hands: list[int] = []

    keys = st.integers(0, 9)

    @rule(key=keys, priority=st.sampled_from(Priority))
    def add(self, key: int, priority: Priority) -> None:
        self.queue.add(key, priority)
        self.owed.add(key)

    @rule(key=keys, seconds=st.floats(0, 100), priority=st.sampled_from(Priority))
    def add_after(self, key: int, seconds: float, priority: Priority) -> None:
        self.queue.add_after(key, seconds, priority)
        self.owed.add(key)

    @precondition(lambda self: len(self.queue) > 0)
    @rule()
    def get(self) -> None:
        taking = self.queue.get()
        with pytest.raises(StopIteration) as stopped:
            taking.send(None)
        key = stopped.value.value
        assert key not in self.hands
        self.hands.append(key)
        self.owed.discard(key)

    @precondition(lambda self: bool(self.hands))
    @rule(data=st.data(), fails=st.booleans())
    def finish(self, data: st.DataObject, fails: bool) -> None:
        key = data.draw(st.sampled_from(self.hands))
        if fails:
            self.queue.retry(key)
            self.owed.add(key)
        else:
            self.queue.forget(key)
        self.queue.done(key)
        self.hands.remove(key)

    @rule(seconds=st.floats(0, 400))
    def wait(self, seconds: float) -> None:
        self.timers.advance(seconds)

    @invariant()
    def what_is_owed_is_somewhere(self) -> None:
        for key in self.owed:
            standing = self.queue.standing(key)
            assert standing.phase != "absent"
            if standing.phase in ("retry", "later"):
                assert standing.since >= self.timers.now
        assert self.queue.working == len(self.hands)

    def teardown(self) -> None:
        for key in self.hands:
            self.queue.done(key)
        self.hands.clear()
        self.timers.advance(1000)
        while len(self.queue):
            self.get()
            self.queue.done(self.hands.pop())
        assert not self.owed
        assert self.queue.later == 0


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
