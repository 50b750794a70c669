"""Breaker: a target that keeps failing is left alone; after a while one may try."""

from __future__ import annotations

from functools import lru_cache

from homeostat.guards.policy import Breaker as Limits
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.breaker import Breaker, BreakerPolicy, Refusal
from homeostat.loop.fleet import Drift, Fleet, Hold, Verdict

GUARD = "breaker"


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds what would go to a target whose breaker is open, and all but one where it may be probed."""
    if not fleet.breakers:
        return
    limits = thresholds(policy)
    breakers = dict(fleet.breakers)  # as they stand after those before in the line

    def judged(drift: Drift) -> Hold | None:
        breaker = breakers.get(drift.target)
        if breaker is None:
            return None
        breakers[drift.target], answer = breaker.ask(limits, now)
        if isinstance(answer, Refusal):
            return Hold(GUARD, f"{drift.target}: {answer.reason}{_why(breaker)}", answer.until)
        return None

    verdict.sift(judged)


def thresholds(policy: GuardPolicy) -> BreakerPolicy:
    """When the breakers of this fleet open, and for how long."""
    return _thresholds(policy.breaker)


@lru_cache(256)
def _thresholds(limits: Limits) -> BreakerPolicy:
    return BreakerPolicy(limits.failures, limits.open_for.total_seconds())


def _why(breaker: Breaker) -> str:
    return f" ({breaker.reason})" if breaker.reason else ""
