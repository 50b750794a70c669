"""Mass drift: when much of a fleet differs at once, most likely the declaration or the observer is wrong.

Changes and deletions of existing things are counted apart, whatever caused them. Creations are neither counted nor
halted. They are counted in the fleet, and in all that each of its policies selects, by the limit of that policy.

The halt ends by a fix: back under the limit, unreadable ones counted in, for a whole pass; or by an approval of exactly
the plan that was refused, which is good while no more fail than the cap. Once it is back under the limit, that plan is no more, and there is nothing to approve.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from homeostat.guards.approval import command, to_approve, touched_before, unapproved
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Halt, Hold, Op, Phase, Verdict, share

GUARD = "mass-drift"
BY_ITSELF = "Wait; it goes on by itself."
_CREATE, _UPDATE, _DELETE = Op.CREATE, Op.UPDATE, Op.DELETE
_WORDS = {Op.UPDATE: "changed", Op.DELETE: "deleted"}


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Halts, or keeps or ends the halt of, the changes and deletions of a fleet."""
    for op in (_UPDATE, _DELETE):
        halt = _halt(policy, fleet, verdict, op, now)
        if halt is not None:
            verdict.halts[f"{GUARD}/{op}"] = halt
            _hold_existing(verdict, Hold(GUARD, halt.reason, plan=halt.plan))
    if fleet.passes_done == 0 and max(fleet.size, fleet.at_most) >= policy.mass_drift.fleet_of:
        _hold_existing(verdict, Hold(GUARD, "the first look at the whole fleet is not complete"))


class _Measure(NamedTuple):
    """How many would be changed, or deleted, of how many, and how many may be."""

    many: int
    size: int
    limit: int
    selected: str = ""  # by which policy, where that is not the fleet

    @property
    def of(self) -> str:
        return f"{self.many} of {self.size}{self.selected}"


def _halt(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, op: Op, now: float) -> Halt | None:
    before = fleet.halts.get(f"{GUARD}/{op}")
    drifts = unapproved(fleet, verdict, op)
    if (before is None and not drifts) or not (measures := _measures(policy, fleet, drifts, op)):
        return None
    approved = _approved_now(fleet, verdict, op)
    found = next((one for one in measures if one.many + approved > one.limit), measures[0])
    count, size, limit, selected = found
    if drifts and count > limit:
        reason = f"{found.of} would be {_WORDS[op]}, more than {limit}"
        return Halt(
            GUARD,
            f"{reason}: most likely the declaration or the observer is wrong{_worse(fleet, op)}",
            before.since if before else now,
            plan := to_approve(fleet, verdict, op),
            "Correct what is wrong; it goes on after a whole pass under the limit." + command(plan),
        )
    if before is None or count + approved > limit:
        return None
    reason = f"more than {limit} of {size}{selected} would have been {_WORDS[op]}"
    if count:  # perhaps it is the limit that was corrected
        reason = f"{found.of} would be {_WORDS[op]}, which is no longer more than {limit}"
    if count + len(fleet.unknown) > limit:  # what cannot be read may differ still
        why, what_to_do = f"{reason}, and some cannot be read now", "See why they cannot be read; it goes on after a whole pass under the limit."
        return replace(before, reason=why, plan="", what_to_do=what_to_do, calm=-1)
    calm = before.calm if before.calm >= 0 else fleet.passes_begun
    if fleet.passes_done > calm:
        return None
    return replace(before, reason=f"{reason}; that is over, and a whole pass has to find it so", plan="", what_to_do=BY_ITSELF, calm=calm)


def _measures(policy: GuardPolicy, fleet: Fleet, drifts: list[Drift], op: Op) -> list[_Measure]:
    """In the fleet, and in all that each of its policies selects; unless that is too small to be judged."""
    if fleet.size < policy.mass_drift.fleet_of and not fleet.wholes:
        return []
    touched = touched_before(fleet, drifts, op)
    count = len(drifts) + len(touched)
    gone = touched if op is _DELETE else fleet.aside & (touched | {d.ref for d in drifts}) if fleet.aside else ()
    size = fleet.size + len(gone)  # the fleet as it was before
    measures = [_Measure(count, size, share(policy.mass_drift.limit, size))] if fleet.size >= policy.mass_drift.fleet_of else []
    for one in fleet.wholes:
        if size + one.size >= one.fleet_of:
            beside = one.deletions if op is _DELETE else one.changes
            limit = share(one.limit, size + one.size)
            measures.append(_Measure(count + beside, size + one.size, limit, f" that GuardPolicy {one.policy} selects"))
    return measures


def _worse(fleet: Fleet, op: Op) -> str:
    """What became of those that went first, where that takes an approval back."""
    failed = [d for d in fleet.drifts.values() if d.touches is op and d.phase is Phase.FAILED] if op in fleet.doubted else []
    return f"; {len(failed)} that went first failed, so that what was approved wants a word anew ({failed[0].error})" if failed else ""


def _approved_now(fleet: Fleet, verdict: Verdict, op: Op) -> int:
    return sum(1 for ref in verdict.approved if fleet.drifts[ref].touches is op)


def _hold_existing(verdict: Verdict, hold: Hold) -> None:
    def judged(drift: Drift) -> Hold | None:
        return None if drift.touches is _CREATE else hold

    verdict.sift(judged)
