"""Domain: existing things are acted on in one fault domain at a time, so that a mistake leaves the others standing."""

from __future__ import annotations

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Hold, Op, Verdict

GUARD = "domain"
_CREATE = Op.CREATE


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds what lies in another fault domain than those at work. A free place goes to what has waited longest.

    Nothing new begins in a domain at work while something older waits elsewhere: else a busy domain would keep the
    others out for ever.
    """
    waiting = [d for d in verdict.allowed if d.domain and d.touches is not _CREATE]
    if not waiting:
        return
    busy = {d.domain for d in fleet.drifts.values() if d.domain and d.touches is not _CREATE and d.in_flight}
    busy |= fleet.domains_busy
    chosen = set(busy)
    for drift in waiting:  # the oldest first
        if len(chosen) >= policy.domains:
            break
        chosen.add(drift.domain)
    outside = min((d.since for d in waiting if d.domain not in chosen), default=float("inf"))
    elsewhere = Hold(GUARD, f"its fault domain waits while {', '.join(sorted(chosen))} is at work")
    later = Hold(GUARD, "its fault domain is at work, and others have waited longer for their turn")

    def judged(drift: Drift) -> Hold | None:
        if not drift.domain or drift.touches is _CREATE:
            return None
        if drift.domain not in chosen:
            return elsewhere
        return later if drift.domain in busy and drift.since > outside else None

    verdict.sift(judged)
