"""Flap: somebody undoes what we do, or what somebody else declares, again and again. Hold the resource and name both, rather than fight for hours."""

from __future__ import annotations

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Hold, Verdict
from homeostat.model.kinds import format_duration

GUARD = "flap"


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds a resource whose state was reversed so often within the time, until the oldest of those reversals is past."""
    most = policy.flap.reversals
    within = policy.flap.within.total_seconds()

    def judged(drift: Drift) -> Hold | None:
        if len(drift.reversals) < most:
            return None
        calm = sorted(drift.reversals)[-most] + within
        if calm <= now:
            return None
        said = format_duration(policy.flap.within)
        other = " and ".join(drift.by) or "an unknown writer"
        where = f" {', '.join(drift.paths)}" if drift.paths else ""
        return Hold(GUARD, f"{drift.against or 'homeostat'} and {other} undo each other{where}: {most} reversals within {said}", calm)

    verdict.sift(judged)
