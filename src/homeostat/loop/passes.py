"""Full passes: the safety net below the watches. When the next is due, and which keys go in which batch.

Nothing here waits or keeps state: the engine asks when, sleeps, asks what, and does it.

    due = first_pass(policy, now, source)
    ...
    for batch in plan_pass(policy, kinds, now):
        ...                                   # sleep until batch.due
        if batch.together:
            await provider.observe_all(batch.keys)
        else:
            queue.add_all(batch.keys, Priority.PASS)
    due = next_pass(policy, started, ended, source)
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class PassPolicy:
    """How often everything is looked at, whether or not anything was heard of it."""

    every: float = 60.0
    """Seconds from the start of a pass to the start of the next."""
    jitter: float = 0.1
    """The part of `every` by which each pass may come sooner or later, so that replicas and restarts drift apart."""
    spread: float = 0.5
    """The part of `every` over which the batches of a pass are spread; 0 has them all at once."""
    batch: int = 1000
    """How many keys go to one `observe_all`, or into the queue at once."""

    def __post_init__(self) -> None:
        if not (self.every > 0 and 0 <= self.jitter < 1 and 0 <= self.spread <= 1 - self.jitter and self.batch >= 1):
            raise ValueError(
                f"a pass needs every > 0, 0 ≤ jitter < 1, 0 ≤ spread ≤ 1 - jitter (it ends before the next), batch ≥ 1: {self}"
            )


@dataclass(frozen=True, slots=True)
class KindOfPass(Generic[K]):
    """The keys of one kind in a pass. `together` where its provider reads many by one call."""

    kind: str
    keys: Sequence[K]
    together: bool = False


@dataclass(frozen=True, slots=True)
class Batch(Generic[K]):
    """Some keys of one kind, and when it is their turn."""

    due: float
    kind: str
    keys: Sequence[K]
    together: bool


def first_pass(policy: PassPolicy, now: float, source: random.Random) -> float:
    """When the first pass after a start is due: anywhere in the first period, for all may have started at once."""
    return now + source.uniform(0.0, policy.every)


def next_pass(policy: PassPolicy, started: float, ended: float, source: random.Random) -> float:
    """When the pass after this one is due. One that took longer than the period is followed at once, never overlapped."""
    period = policy.every * source.uniform(1 - policy.jitter, 1 + policy.jitter)
    return max(started + period, ended)


def plan_pass(policy: PassPolicy, kinds: Iterable[KindOfPass[K]], now: float) -> Iterator[Batch[K]]:
    """The batches of a pass that begins now, by the time they are due.

    Each kind is spread evenly over the same time, so a small kind does not wait for a big one; and in the order it was
    given, so that each key is looked at once a period. A kind without keys has no batch: nothing is asked about nothing.
    """
    return heapq.merge(*(_batches(policy, one, now) for one in kinds), key=lambda batch: batch.due)


def _batches(policy: PassPolicy, one: KindOfPass[K], now: float) -> Iterator[Batch[K]]:
    count = -(-len(one.keys) // policy.batch)
    for index in range(count):
        keys = one.keys[index * policy.batch : (index + 1) * policy.batch]
        yield Batch(now + policy.every * policy.spread * index / count, one.kind, keys, one.together)
