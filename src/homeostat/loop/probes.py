"""Probes: is it alive, is it ready? Looks at a thing again and again, and believes it only when it says so often enough.

`ProbeState` is the pure part: results in, a verdict out. A verdict turns after enough equal results in a row, so that one
lost packet turns nothing. A look that says nothing of the thing (the prober had no socket left, the command does not
exist) is `UNKNOWN`, which is not a failure: it counts for neither side, and after enough of them the verdict itself is
unknown. `run_probe` is the shell around it; what it looks with is a `Check`, of which `checks` has the usual four.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from enum import StrEnum

import msgspec
from msgspec.structs import replace


class Outcome(StrEnum):
    """What one look came to."""

    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Result(msgspec.Struct, frozen=True):
    """One look, and what there is to say about it."""

    outcome: Outcome
    message: str = ""


Check = Callable[[], Awaitable[Result]]
"""Looks once. What it raises is an unknown outcome; it is cancelled when it takes too long, and must then clean up."""


class Verdict(StrEnum):
    """What is believed. Who acts on it decides what `UNKNOWN` means: for readiness it is not ready, for liveness alive."""

    UNKNOWN = "unknown"
    PASSING = "passing"
    FAILING = "failing"


_BELIEF = {Outcome.PASSED: Verdict.PASSING, Outcome.FAILED: Verdict.FAILING, Outcome.UNKNOWN: Verdict.UNKNOWN}


class ProbePolicy(msgspec.Struct, frozen=True):
    """When to look, and how often until it is believed. The defaults are those of Kubernetes; seconds throughout."""

    initial_delay: float = 0.0
    """Before the first look."""
    period: float = 10.0
    """From one look to the next. A look never overlaps with the one before."""
    timeout: float = 1.0
    """A look that takes longer has failed."""
    success_threshold: int = 1
    failure_threshold: int = 3
    """So many equal results in a row turn the verdict. So many unknown ones in a row make it unknown, too."""

    def __post_init__(self) -> None:
        if not (self.initial_delay >= 0 and self.period > 0 and self.timeout > 0):
            raise ValueError(f"a probe needs initial_delay ≥ 0, period > 0 and timeout > 0: {self}")
        if self.success_threshold < 1 or self.failure_threshold < 1:
            raise ValueError(f"the thresholds of a probe must be at least 1: {self}")

    def threshold(self, outcome: Outcome) -> int:
        """How many such results in a row are believed."""
        return self.success_threshold if outcome is Outcome.PASSED else self.failure_threshold


class ProbeState(msgspec.Struct, frozen=True):
    """What is believed of a thing, and on what grounds. Times are wall seconds."""

    verdict: Verdict = Verdict.UNKNOWN
    since: float | None = None
    """When the verdict last turned; None before the first."""
    last: Result | None = None
    at: float | None = None
    """When the last look ended."""
    told: Outcome | None = None
    """The last outcome that was not unknown, and"""
    run: int = 0
    """how many such there were in a row, unknown ones not counted."""
    unknowns: int = 0
    """How many unknown ones there were in a row."""

    def observe(self, policy: ProbePolicy, result: Result, now: float) -> ProbeState:
        """The state after one more look. Its `verdict` has turned only if this look made enough of its kind."""
        seen = replace(self, last=result, at=now)
        if result.outcome is Outcome.UNKNOWN:
            seen = replace(seen, unknowns=self.unknowns + 1)
            run = seen.unknowns
        else:
            run = self.run + 1 if result.outcome is self.told else 1
            seen = replace(seen, told=result.outcome, run=run, unknowns=0)
        belief = _BELIEF[result.outcome]
        if run < policy.threshold(result.outcome) or belief is self.verdict:
            return seen
        if belief is Verdict.UNKNOWN:
            seen = replace(seen, told=None, run=0)  # what was seen before is too long ago to be counted on
        return replace(seen, verdict=belief, since=now)

    @property
    def message(self) -> str:
        """One sentence for a condition."""
        said = f": {self.last.message}" if self.last is not None and self.last.message else ""
        return f"the probe is {self.verdict}{said}"


async def look(check: Check, timeout: float) -> Result:
    """Looks once, for at most `timeout` seconds. Never raises but when cancelled.

    No answer in time is a failure, unless this process itself was too busy to hear one.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        async with asyncio.timeout_at(deadline):
            return await check()
    except TimeoutError:
        if loop.time() > deadline + timeout:
            return Result(Outcome.UNKNOWN, "the prober was too busy to tell")
        return Result(Outcome.FAILED, f"no answer within {timeout:g} s")
    except Exception as error:
        return Result(Outcome.UNKNOWN, f"the probe could not look: {type(error).__name__}: {error}")


async def run_probe(
    policy: ProbePolicy,
    check: Check,
    tell: Callable[[ProbeState], None],
    *,
    now: Callable[[], float],
    state: ProbeState | None = None,
    source: random.Random | None = None,
) -> None:
    """Looks for ever, until cancelled, and tells the state after each look.

    `now` is the wall clock, for the state; waiting is done by the event loop. Hand in the `state` from before a restart
    to go on with it, and a `source` of chance to spread the first look over a period, where many probes start at once.
    """
    loop = asyncio.get_running_loop()
    current = state or ProbeState()
    due = loop.time() + policy.initial_delay + (source.uniform(0.0, policy.period) if source is not None else 0.0)
    while True:
        await asyncio.sleep(due - loop.time())
        current = current.observe(policy, await look(check, policy.timeout), now())
        tell(current)
        due = max(due + policy.period, loop.time())
