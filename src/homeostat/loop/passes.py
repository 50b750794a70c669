"""When full passes are due: the safety net below the watches. `rounds` makes them."""

from __future__ import annotations

import random

import msgspec


class PassPolicy(msgspec.Struct, frozen=True):
    """How often everything is looked at, whether or not anything was heard of it."""

    every: float = 60.0
    """Seconds from the start of a pass to the start of the next."""
    jitter: float = 0.1
    """The part of `every` by which each pass may come sooner or later, so that replicas and restarts drift apart."""

    def __post_init__(self) -> None:
        if not (self.every > 0 and 0 <= self.jitter < 1):
            raise ValueError(f"passes need every > 0 and 0 ≤ jitter < 1: {self}")


def first_pass(policy: PassPolicy, now: float, source: random.Random) -> float:
    """When the first pass after a start is due: anywhere in the first period, for all may have started at once."""
    return now + source.uniform(0.0, policy.every)


def next_pass(policy: PassPolicy, started: float, ended: float, source: random.Random) -> float:
    """When the pass after this one is due. One that took longer than the period is followed at once, never overlapped."""
    period = policy.every * source.uniform(1 - policy.jitter, 1 + policy.jitter)
    return max(started + period, ended)
