"""Parts: a thing that consists of many, such as a Terraform module, is held to the limits of a fleet by what happens inside of it.

A fleet goes in waves; a plan of a tool is carried out whole or not at all. So where it changes or destroys more of its things than
the limits of its policy allow at once, a person has to approve exactly this plan. Beyond the limit of mass drift it is a halt, and
people are told as of any other; it is a halt of this one thing, and the rest of its fleet goes on.

What is small is no mass: changes are counted where there are as many things as `massDrift.fleetOf`. Deletions always are.

A tool whose books are gone, or are those of another place, would make all once more beside what is there. So what it had and no longer
knows of is made again only by an approval, however little it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Halt, Hold, Parts, Ref, Verdict, plan_hash, share

MASS_DRIFT, DELETION, CAP = "mass-drift", "deletion", "cap"


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Halts or holds what does too much inside of its thing and was not approved."""
    _judge(policy, fleet, verdict, fleet.drifts.values(), now)


def judge_creation(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """The same for what is asked about alone."""
    _judge(policy, fleet, verdict, verdict.allowed, now)


def _judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, drifts: Iterable[Drift], now: float) -> None:
    holds: dict[Ref, Hold] = {}
    for drift in [one for one in drifts if one.parts is not None]:  # few are, of very many
        if drift.parts is None or drift.in_flight or drift.is_approved or drift.ref in verdict.approved:
            continue
        hold = _hold(policy, drift.parts, plan_hash([drift]))
        if hold is not None:
            holds[drift.ref] = hold
            if hold.guard == MASS_DRIFT:
                key = f"{MASS_DRIFT}/{drift.ref}"
                verdict.halts[key] = _halt(drift.ref, hold, fleet.halts.get(key), now)
    if holds:
        verdict.sift(lambda d: holds.get(d.ref))


def _halt(ref: Ref, hold: Hold, before: Halt | None, now: float) -> Halt:
    way_out = f"Correct what is wrong; it goes on when its plan is within the limits. If it is meant: homeostat approve {hold.plan}"
    return Halt(MASS_DRIFT, f"{ref}: {hold.reason}", before.since if before else now, hold.plan, way_out)


def _hold(policy: GuardPolicy, parts: Parts, plan: str) -> Hold | None:
    if parts.lost:
        reason = f"{parts.lost} that it had are no longer in its books, and would be made again: most likely these are lost, or others"
        return Hold(MASS_DRIFT, reason, plan=plan)
    counts = (("changed", parts.changes), ("destroyed", parts.deletions))
    large = parts.size >= policy.mass_drift.fleet_of
    limit = share(policy.mass_drift.limit, parts.size)
    for word, count in counts if large else ():
        if count > limit:
            reason = f"{count} of its {parts.size} would be {word}, more than {limit}: most likely the declaration or the observer is wrong"
            return Hold(MASS_DRIFT, reason, plan=plan)
    above = policy.deletion.confirm_above
    limit = share(policy.cap if above is None else above, parts.size)
    if parts.deletions > limit:
        return Hold(DELETION, f"{parts.deletions} of its {parts.size} would be destroyed, more than {limit}: homeostat approve {plan}", plan=plan)
    limit = share(policy.cap, parts.size)
    if large and parts.changes > limit:
        reason = f"{parts.changes} of its {parts.size} would be changed, more than {limit} at once, and its plan cannot be taken apart"
        return Hold(CAP, f"{reason}: homeostat approve {plan}", plan=plan)
    if policy.creations is not None and parts.adds > (limit := share(policy.creations, parts.size)):
        return Hold(CAP, f"{parts.adds} would be made, more than {limit} at once: homeostat approve {plan}", plan=plan)
    return None
