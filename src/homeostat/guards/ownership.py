"""Ownership: what exists and is not ours is never changed and never deleted.

Taking it over is a declaration: the annotation `homeostat.dev/adopt: "true"`.
"""

from __future__ import annotations

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.declarations import ADOPT
from homeostat.loop.fleet import Drift, Fleet, Hold, Op, Verdict

GUARD = "ownership"
_CREATE = Op.CREATE
_NOT_OURS = Hold(GUARD, f"it exists and is not ours; to take it over, annotate it with {ADOPT}=true")


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds changes and deletions of what is not owned, and of what another owns in it. No approval lifts it."""
    verdict.sift(_judged)


def _judged(drift: Drift) -> Hold | None:
    if drift.op is _CREATE:
        return None
    if not drift.owned:
        return _NOT_OURS
    return Hold(GUARD, drift.foreign) if drift.foreign else None
