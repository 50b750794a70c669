"""Unknown: when too much cannot be read, the observer is suspected, and nothing is done on its word.

Whatever the share, nothing is done to a resource that is itself unreadable: unknown is not absent.
"""

from __future__ import annotations

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Fleet, Halt, Hold, Verdict, share

GUARD = "unknown"


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Halts the fleet, creations too, while more of it is unreadable than the limit. Reading it again is the only way
    out."""
    if not fleet.unknown:
        return
    limit = share(policy.unknown, fleet.size)
    count = len(fleet.unknown)
    if count <= limit:
        reasons = fleet.unknown
        verdict.sift(lambda d: Hold(GUARD, f"it could not be read: {reasons[d.ref]}") if d.ref in reasons else None)
        return
    why = next(iter(fleet.unknown.values()))
    reason = f"{count} of {fleet.size} could not be read, more than {limit}: the observer is suspected ({why})"
    before = fleet.halts.get(GUARD)
    verdict.halts[GUARD] = Halt(
        GUARD,
        reason,
        before.since if before else now,
        plan="",
        what_to_do="See why they cannot be read; it goes on by itself when they can.",
    )
    verdict.hold_all(GUARD, reason)
