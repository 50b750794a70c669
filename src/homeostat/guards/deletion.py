"""Deletion: what is gone is gone, so more than a few deletions want a person's word. Changes go on meanwhile."""

from __future__ import annotations

from homeostat.guards.approval import to_approve, touched_before, unapproved
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Fleet, Hold, Op, Verdict, share

GUARD = "deletion"
_DELETE = Op.DELETE


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds the deletions that nobody approved while there are more of them than the limit (default: the cap)."""
    if not any(d.op is _DELETE for d in verdict.allowed):
        return
    above = policy.deletion.confirm_above
    drifts = unapproved(fleet, verdict, _DELETE)
    gone = touched_before(fleet, drifts, _DELETE)
    limit = share(policy.cap if above is None else above, fleet.size + gone)  # of the fleet as it was before
    count = len(drifts) + gone
    if count <= limit:
        return
    plan = to_approve(fleet, verdict, _DELETE)
    reason = f"{count} of {fleet.size} would be deleted, more than {limit}: homeostat approve {plan}"
    refused = {d.ref for d in drifts}
    hold = Hold(GUARD, reason, plan=plan)
    verdict.sift(lambda d: hold if d.op is _DELETE and d.ref in refused else None)
