"""Backoff: a resource that failed waits before it is tried again, and nobody waits with it."""

from __future__ import annotations

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Hold, Verdict
from homeostat.loop.queue import Backoff

GUARD = "backoff"


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds what is not to be tried before a time that has not come."""

    def judged(drift: Drift) -> Hold | None:
        if drift.retry_at <= now:
            return None
        why = f"failed {drift.failures} in a row" if drift.failures else "something moved each time that it was to be done"
        return Hold(GUARD, f"{why}; it is tried again when its wait is over", drift.retry_at)

    verdict.sift(judged)


def delays(policy: GuardPolicy) -> Backoff:
    """The waits that the policy asks for: `retry_at` is now plus `delays(policy).delay(failures, random)`."""
    backoff = policy.backoff
    return Backoff(backoff.first.total_seconds(), backoff.factor, backoff.most.total_seconds())
