"""Invariant: what must stay true of a fleet. A plan after which it would not be is refused.

It is asked twice. Once for the whole plan, before anything is shared out into waves: so a plan that ends badly never
begins. And once for the wave that is left: so a plan that ends well does not pass through a bad place. There a deletion
may not count on what is still being made: the old is not deleted before the new exists and is healthy.

Where all together would break it, creations are tried by themselves, then with the changes, then with the deletions:
what still holds may go on. What cannot be evaluated is not true.

One that is broken already must not keep the loop from mending it. Then creations and changes go on, and deletions wait: but
for those by which the plan mends it.

What an invariant is about is all that its policy selects, even where others select a part of it and make that a fleet of its
own. Until everything was looked at once, nothing is known, and all waits. A thing that cannot be read may be there or not: it has
to be true both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from homeostat.guards import unknown
from homeostat.guards.expressions import FLEET, program
from homeostat.guards.policy import GuardPolicy, Invariant
from homeostat.loop.fleet import Drift, Fleet, Op, Phase, Ref, State, Unanswered, Verdict
from homeostat.loop.fleet import Invariant as Check

GUARD = "invariant"
COST_LIMIT, COST_EACH = 1_000_000, 100
"""What one evaluation may cost, and so much more for each thing in the fleet: a fifth of a second, and 20 µs for each."""

_ORDER = (Op.CREATE, Op.UPDATE, Op.DELETE)
_CREATE, _DELETE, _FAILED = Op.CREATE, Op.DELETE, Phase.FAILED


def judge_plan(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Refuses the plan: all that would be done in the end."""
    if not _is_asked(fleet, verdict):
        return
    deletes = any(d.op is _DELETE for d in verdict.allowed)
    if not deletes and _broken(fleet, fleet.invariants, _then(fleet, verdict)) is None:
        return
    kept, lost = _standing(fleet)
    _mend(fleet, verdict, lost)
    _keep(fleet, verdict, kept, "the plan is refused")


def judge_wave(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Refuses the wave: what would be done now."""
    if not _is_asked(fleet, verdict):
        return
    kept: Sequence[Check] = fleet.invariants
    if _broken(fleet, kept, _then(fleet, verdict)) is not None:
        kept, _ = _standing(fleet)
        _keep(fleet, verdict, kept, "the plan as a whole would not, but this part of it by itself")
    _wait(fleet, verdict, kept)


def _is_asked(fleet: Fleet, verdict: Verdict) -> bool:
    if not fleet.invariants or not verdict.allowed:
        return False
    if not fleet.seen_whole:
        verdict.hold_all(unknown.GUARD, "what its invariants are about was not all looked at yet")
        return False
    return True


def _standing(fleet: Fleet) -> tuple[list[Check], list[Check]]:
    """The invariants that are true now, or cannot be told; and those that are broken."""
    kept: list[Check] = []
    lost: list[Check] = []
    for check in fleet.invariants:
        try:
            broken = check(fleet.observed, fleet.observed) is not None
        except Unanswered:
            broken = False  # what would be after the plan has to be told, and be true
        (lost if broken else kept).append(check)
    return kept, lost


def _keep(fleet: Fleet, verdict: Verdict, checks: Sequence[Check], what: str) -> None:
    """Holds what would break what is true."""
    if _broken(fleet, checks, _then(fleet, verdict)) is None:
        return
    fine = under_way(fleet)
    for op in _ORDER:
        part = [d for d in verdict.allowed if d.op is op]
        said = _broken(fleet, checks, after(fleet, [*fine, *part])) if part else None
        if said is None:
            fine = [*fine, *part]
        else:
            verdict.hold(part, GUARD, f"{what}: {said}")


def _wait(fleet: Fleet, verdict: Verdict, checks: Sequence[Check]) -> None:
    """Holds deletions that count on what is being made and is not verified yet. They go when it is: nobody need be told."""
    deletions = [d for d in verdict.allowed if d.op is _DELETE]
    actions = [*under_way(fleet), *verdict.allowed]
    if deletions and any(d.op is _CREATE for d in actions):
        said = _broken(fleet, checks, after(fleet, actions, made=False))
        if said is not None:
            verdict.hold(deletions, "wave", f"it waits for what is being made, for without that {said}")


def _mend(fleet: Fleet, verdict: Verdict, checks: Sequence[Check]) -> None:
    """Holds deletions while an invariant is broken, but for those that mend it."""
    deletions = [d for d in verdict.allowed if d.op is _DELETE]
    if not deletions:
        return
    others = [*under_way(fleet), *(d for d in verdict.allowed if d.op is not _DELETE)]
    for check in checks:
        needed = _broken(fleet, [check], after(fleet, others)) is not None
        if needed and _broken(fleet, [check], after(fleet, [*others, *deletions])) is None:
            continue
        said = _said(check, fleet.observed, fleet.observed)
        verdict.hold(deletions, GUARD, f"nothing is deleted while an invariant is broken: {said}")
        return


def under_way(fleet: Fleet) -> list[Drift]:
    """What is being done, and deletions that failed: they may have been done all the same."""
    return [d for d in fleet.drifts.values() if d.in_flight or (d.op is _DELETE and d.phase is _FAILED)]


def after(fleet: Fleet, actions: Iterable[Drift], *, made: bool = True) -> dict[Ref, State]:
    """What there is once these are done. `made`: whether what is being created counts."""
    then = dict(fleet.observed)
    for drift in actions:
        if drift.op is _DELETE or (drift.op is _CREATE and not made):
            then.pop(drift.ref, None)
        elif drift.desired is not None:
            then[drift.ref] = drift.desired
    return then


def _then(fleet: Fleet, verdict: Verdict) -> dict[Ref, State]:
    """What there is once all is done that is under way or allowed."""
    return after(fleet, [*under_way(fleet), *verdict.allowed])


def _broken(fleet: Fleet, checks: Iterable[Check], then: Mapping[Ref, State]) -> str | None:
    for check in checks:
        try:
            if (said := check(fleet.observed, then)) is not None:
                return f"it would break an invariant: {said}"
        except Unanswered as error:
            return f"an invariant {error}"
    return None


def _said(check: Check, before: Mapping[Ref, State], then: Mapping[Ref, State]) -> str:
    try:
        return check(before, then) or ""
    except Unanswered as error:
        return str(error)


# From policies to questions


def check_of(invariant: Invariant, fleet: Fleet, beside: Callable[[], Iterable[Fleet]]) -> Check:
    """An invariant as a question about one fleet; `beside` gives the others that its policy selects."""

    def check(before: Mapping[Ref, State], then: Mapping[Ref, State]) -> str | None:
        was, will, unread = dict(before), dict(then), set(fleet.unknown)
        for other in beside():
            if not other.seen_whole:
                raise Unanswered(f"{invariant.name} cannot be evaluated: not all of what it is about was looked at yet")
            was.update(other.observed)
            will.update(other.observed if then is before else after(other, under_way(other)))
            unread.update(other.unknown)
        return _ask(invariant, was, will, unread)

    return check


def broken_now(invariants: Iterable[Invariant], fleets: Sequence[Fleet]) -> list[str]:
    """What is broken of what these fleets are together, without any plan. Raises `Unanswered` where it cannot be told."""
    if not all(fleet.seen_whole for fleet in fleets):
        raise Unanswered("not everything was looked at yet")
    there = {ref: thing for fleet in fleets for ref, thing in fleet.observed.items()}
    unread = {ref for fleet in fleets for ref in fleet.unknown}
    return [said for one in invariants if (said := _ask(one, there, there, unread)) is not None]


def _ask(
    invariant: Invariant, before: Mapping[Ref, State], then: Mapping[Ref, State], unread: Collection[Ref]
) -> str | None:
    """What is broken, in words; asked a second time without what could not be read, where there is such."""
    if not _holds(invariant, before.values(), then.values()):
        return f"{invariant.name}: {invariant.message or invariant.expression}"
    if any(ref in before or ref in then for ref in unread):
        sure = [[thing for ref, thing in one.items() if ref not in unread] for one in (before, then)]
        if not _holds(invariant, *sure):
            said = invariant.message or invariant.expression
            return f"{invariant.name}: {said} (should what cannot be read not be there)"
    return None


def _holds(invariant: Invariant, before: Iterable[State], then: Iterable[State]) -> bool:
    from homeostat.model.cel.expression import CelError

    was, will = list(before), list(then)
    limit = COST_LIMIT + COST_EACH * max(len(was), len(will))
    try:
        return bool(program(invariant.expression, FLEET).evaluate(limit, before=was, after=will))
    except CelError as error:
        raise Unanswered(f"{invariant.name} cannot be evaluated: {error}") from None
