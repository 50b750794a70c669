"""Invariant: what must stay true of a fleet. A plan after which it would not be is refused.

It is asked twice. Once for the whole plan, before anything is shared out into waves: so a plan that ends badly never
begins. And once for the wave that is left: so a plan that ends well does not pass through a bad place, such as deleting
the old before the new exist.

Where all together would break it, creations are tried by themselves, then with the changes, then with the deletions:
what still holds may go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Op, Ref, State, Verdict

GUARD = "invariant"
_ORDER = (Op.CREATE, Op.UPDATE, Op.DELETE)
_DELETE = Op.DELETE


def judge_plan(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Refuses the plan: all that would be done in the end."""
    _judge(fleet, verdict, "the plan is refused")


def judge_wave(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Refuses the wave: what would be done now."""
    _judge(fleet, verdict, "the plan as a whole would not, but this part of it by itself")


def _judge(fleet: Fleet, verdict: Verdict, what: str) -> None:
    if not fleet.invariants or not verdict.allowed:
        return
    under_way = [d for d in fleet.drifts.values() if d.in_flight]
    if _broken(fleet, [*under_way, *verdict.allowed]) is None:
        return
    fine = under_way
    for op in _ORDER:
        part = [d for d in verdict.allowed if d.op is op]
        broken = _broken(fleet, [*fine, *part]) if part else None
        if broken is None:
            fine = [*fine, *part]
        else:
            verdict.hold(part, GUARD, f"{what}: it would break an invariant: {broken}")


def _broken(fleet: Fleet, actions: Iterable[Drift]) -> str | None:
    after: dict[Ref, State] = dict(fleet.observed)
    for drift in actions:
        if drift.op is _DELETE:
            after.pop(drift.ref, None)
        elif drift.desired is not None:
            after[drift.ref] = drift.desired
    return next((said for check in fleet.invariants if (said := check(fleet.observed, after)) is not None), None)
