"""Mass drift: when much of a fleet differs at once, most likely the declaration or the observer is wrong.

Changes and deletions of existing things are counted apart, whatever caused them. Creations are neither counted nor
halted.

The halt ends by a fix: back under the limit, unreadable ones counted in, for a whole pass; or by an approval of exactly
the plan that was refused.
"""

from __future__ import annotations

from msgspec.structs import replace

from homeostat.guards.approval import command, to_approve, touched_before, unapproved
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Halt, Hold, Op, Verdict, share

GUARD = "mass-drift"
_CREATE, _UPDATE, _DELETE = Op.CREATE, Op.UPDATE, Op.DELETE
_WORDS = {Op.UPDATE: "changed", Op.DELETE: "deleted"}


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Halts, or keeps or ends the halt of, the changes and deletions of a fleet."""
    if fleet.size >= policy.mass_drift.fleet_of:
        for op in (_UPDATE, _DELETE):
            halt = _halt(policy, fleet, verdict, op, now)
            if halt is not None:
                verdict.halts[f"{GUARD}/{op}"] = halt
                _hold_existing(verdict, Hold(GUARD, halt.reason, plan=halt.plan))
        if fleet.passes_done == 0:
            _hold_existing(verdict, Hold(GUARD, "the first look at the whole fleet is not complete"))


def _halt(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, op: Op, now: float) -> Halt | None:
    before = fleet.halts.get(f"{GUARD}/{op}")
    drifts = unapproved(fleet, verdict, op)
    if before is None and not drifts:
        return None
    touched = touched_before(fleet, drifts, op)
    count = len(drifts) + len(touched)
    gone = touched if op is _DELETE else fleet.aside & (touched | {d.ref for d in drifts}) if fleet.aside else ()
    size = fleet.size + len(gone)  # the fleet as it was before
    limit = share(policy.mass_drift.limit, size)
    if count > limit:
        reason = f"{count} of {size} would be {_WORDS[op]}, more than {limit}"
        return Halt(
            GUARD,
            f"{reason}: most likely the declaration or the observer is wrong",
            before.since if before else now,
            plan := to_approve(fleet, verdict, op),
            "Correct what is wrong; it goes on after a whole pass under the limit." + command(plan),
        )
    if before is None or count + _approved_now(fleet, verdict, op) > limit:
        return None
    if count + len(fleet.unknown) > limit:  # what cannot be read may differ still
        return replace(before, calm=-1)
    if before.calm < 0:
        before = replace(before, calm=fleet.passes_begun)
    return before if fleet.passes_done <= before.calm else None


def _approved_now(fleet: Fleet, verdict: Verdict, op: Op) -> int:
    return sum(1 for ref in verdict.approved if fleet.drifts[ref].touches is op)


def _hold_existing(verdict: Verdict, hold: Hold) -> None:
    def judged(drift: Drift) -> Hold | None:
        return None if drift.touches is _CREATE else hold

    verdict.sift(judged)
