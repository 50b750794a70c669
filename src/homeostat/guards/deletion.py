"""Deletion: what is gone is gone, so more than a few deletions want a person's word, and where a policy says so each waits.

Changes go on meanwhile. No approval cuts the wait short: it is there for those who said yes and were wrong.
"""

from __future__ import annotations

from homeostat.guards.approval import to_approve, touched_before, unapproved
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.declarations import ADOPT
from homeostat.loop.fleet import Drift, Fleet, Hold, Op, Verdict, share
from homeostat.model.clock import format_time

GUARD = "deletion"
_DELETE = Op.DELETE


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds the deletions that nobody approved while there are more of them than the limit (default: the cap), and all
    whose grace is not over."""
    if not any(d.touches is _DELETE for d in verdict.allowed):
        return
    _ask(policy, fleet, verdict)
    if grace := policy.deletion.grace.total_seconds():
        verdict.sift(lambda d: _kept(d, d.since + grace) if d.touches is _DELETE and now < d.since + grace else None)


def _ask(policy: GuardPolicy, fleet: Fleet, verdict: Verdict) -> None:
    above = policy.deletion.confirm_above
    drifts = unapproved(fleet, verdict, _DELETE)
    deleted = {d.part_of or d.ref for d in drifts}  # what goes with its parent was deleted once
    before = touched_before(fleet, drifts, _DELETE)
    limit = share(policy.cap if above is None else above, fleet.size + len(before))  # of the fleet as it was before
    count = len(deleted | {ref for ref in before if ref.uid not in deleted})
    size, selected = fleet.size, ""
    if count <= limit:
        over = (one for one in fleet.wholes if drifts and count + one.deletions > share(one.confirm_above, size + len(before) + one.size))
        if (one := next(over, None)) is None:
            return
        count, size, selected = count + one.deletions, size + one.size, f" that GuardPolicy {one.policy} selects"
        limit = share(one.confirm_above, size + len(before))
    plan = to_approve(fleet, verdict, _DELETE)
    reason = f"{count} of {size}{selected} would be deleted, more than {limit}: homeostat approve {plan}"
    refused = {d.ref for d in drifts}
    hold = Hold(GUARD, reason, plan=plan)
    verdict.sift(lambda d: hold if d.touches is _DELETE and d.ref in refused else None)


def _kept(drift: Drift, until: float) -> Hold:
    return Hold(
        GUARD,
        f"it is kept until {format_time(until)}; to keep it for good, take the finalizer off {drift.ref.name} and declare it anew "
        f"with the annotation {ADOPT}=true",
        until,
    )
