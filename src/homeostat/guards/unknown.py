"""Unknown: when too much cannot be read, the observer is suspected, and nothing is done on its word.

Whatever the share, nothing is done to a resource that is itself unreadable: unknown is not absent.

An observer that fails may also answer, with an empty page. So where more is read as gone than may be unreadable, one is made again first.
It shows, and the others follow at once; or it does not, as does not the next, and then nothing more is made beside what may still be there.
"""

from __future__ import annotations

from homeostat.guards.approval import command, missing
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Halt, Hold, Verdict, plan_hash, share

GUARD = "unknown"
TRIES = 2
"""So many that were made and cannot be seen are enough: of one by itself something else may be the matter."""


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


def judge_lost(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds what was lost while one of it is made to see whether it shows, and halts it where that does not. It ends when they are seen,
    or by an approval."""
    lost = missing(fleet, verdict)
    unseen = sum(1 for d in lost if d.unseen)
    doubtful = {d.ref for d in lost if d.since > fleet.shown_at}
    limit = share(policy.unknown, fleet.size)
    if unseen > limit or (len(doubtful) > limit and unseen >= TRIES):
        _halt(fleet, verdict, lost, unseen, now)
    elif len(doubtful) > limit:
        wait = Hold(GUARD, f"{len(doubtful)} of {fleet.size} are read as gone: it waits until one that is made again can be seen")
        under_way = any(d.in_flight for d in lost)
        first = None if under_way else next((d.ref for d in verdict.allowed if d.ref in doubtful), None)
        verdict.sift(lambda d: wait if d.ref in doubtful and d.ref != first else None)


def _halt(fleet: Fleet, verdict: Verdict, lost: list[Drift], unseen: int, now: float) -> None:
    key, plan = f"{GUARD}/lost", plan_hash(d for d in lost if not d.in_flight)
    reason = f"{len(lost)} of {fleet.size} are read as gone, and {unseen} that were made again cannot be seen: the observer is suspected"
    before = fleet.halts.get(key)
    way_out = "See why they cannot be seen; it goes on by itself when they are." + command(plan, "If they are gone")
    verdict.halts[key] = Halt(GUARD, reason, before.since if before else now, plan, way_out)
    gone, hold = {d.ref for d in lost}, Hold(GUARD, reason, plan=plan)
    verdict.sift(lambda d: hold if d.ref in gone else None)
