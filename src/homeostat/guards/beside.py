"""Who judges a change is not for that change to choose.

- A change set with a name (an apply, a commit) that also changes the policy of its fleet is judged by the stricter of what the policy is and was. So a commit that
  loosens a limit does not pass by it in the same breath; the next one does.
- A thing whose labels lead to another fleet is judged where it was until it is as declared (the engine leaves it there), and where it
  goes nothing is done either while that is observed, frozen or out of its hours.

Mode, freezes, windows, invariants and health count as they are now: those no approval could answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs
from msgspec.structs import replace

from homeostat.guards import freeze, mode, window
from homeostat.guards.compose import combine
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Fleet, Verdict

Replaced = Mapping[str, tuple[GuardPolicy, str]]
"""By name, what policies were, and the change set that changed each."""


def as_before(policy: GuardPolicy, fleet: Fleet, replaced: Replaced) -> tuple[GuardPolicy, str]:
    """The policy by which a fleet is judged while something is open of a change set that changed the policy itself, and the names of
    those that count as they were; none, mostly."""
    if not replaced or not fleet.drifts:
        return policy, ""
    at_work = {drift.wave for drift in fleet.drifts.values()}
    before = {name: old for name, (old, change_set) in replaced.items() if change_set in at_work}
    limits = [
        structs.replace(
            old,
            mode=policy.mode,
            freezes=policy.freezes,
            windows=policy.windows,
            invariants=policy.invariants,
            health=policy.health,
            alerts=policy.alerts,
        )
        for old in before.values()
    ]
    return (combine([policy, *limits], fleet.size), ", ".join(sorted(before))) if before else (policy, "")


def say(fleet: Fleet, verdict: Verdict, as_before: str) -> None:
    """Tells people why they read of a limit that they do not find in the policy, or of a policy that they do not find on the thing."""
    if as_before:
        why = f"; it is judged by GuardPolicy {as_before} as it was before too, for the same change set changed that"
        verdict.halts = {
            key: halt if halt.reason.endswith(why) else replace(halt, reason=halt.reason + why) for key, halt in verdict.halts.items()
        }
        verdict.held.update({ref: replace(hold, reason=hold.reason + why) for ref, hold in verdict.held.items() if hold.plan})
    for ref, name in fleet.moving.items():
        if (hold := verdict.held.get(ref)) is not None:
            verdict.held[ref] = replace(hold, reason=f"{hold.reason}; its labels lead to {name}, and it goes there when it is as declared")


def where_they_go(policy: GuardPolicy, name: str, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds what would go to a fleet of which people closed the gate."""
    going = Verdict(allowed=[drift for drift in verdict.allowed if fleet.moving.get(drift.ref) == name])
    for guard in (mode, freeze, window):
        guard.judge(policy, fleet, going, now)
    if going.held:
        verdict.sift(lambda drift: going.held.get(drift.ref))
