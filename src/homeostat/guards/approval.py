"""Approval: a person said yes to exactly this plan. It is good once, for these actions, decided on these facts.

A plan is named by the hash of its actions and of what each was decided on, so an approval fits nothing else. When it
fits, it is used up and stamped on the actions, which may then take as many waves as they need. An action whose facts
move loses its stamp.

A change set can carry its approval: its author was shown how many things it changes and deletes. It covers them as they
come in; a change set that turns out larger is not the one that was approved, and nothing more of it is covered. What happens
inside of a thing that consists of many its author was not shown, so that takes an approval of the plan itself.

An approval answers mass drift, much that is read as gone, the confirmation of deletions, a failed canary and a cap full of failures. It never
lifts a freeze, a window, a breaker, an invariant or a limit on how much is done at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Grant, Op, Ref, Verdict, plan_hash

_UPDATE, _DELETE = Op.UPDATE, Op.DELETE


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Finds what approvals fit now. Holds nothing."""
    for change_set, grant in fleet.grants.items():
        _use_grant(fleet, verdict, change_set, grant)
    if not fleet.approvals:
        return
    for plan in _plans(fleet, verdict):
        name = plan_hash(plan)
        if plan and name in fleet.approvals:
            verdict.used.add(name)
            verdict.approved.update(d.ref for d in plan)


def unapproved(fleet: Fleet, verdict: Verdict, op: Op) -> list[Drift]:
    """The open changes, or deletions, that no approval covers, those under way included."""
    found = [d for d in fleet.drifts.values() if d.touches is op and (not d.approved or d.approved != d.made_from)]
    return [d for d in found if d.ref not in verdict.approved] if verdict.approved else found


def touched_before(fleet: Fleet, drifts: list[Drift], op: Op, waves: Collection[str] = ()) -> set[Ref]:
    """What else the change sets of these, and those of these `waves`, have already changed, or deleted, without an approval.

    So a change set that comes in drop by drop counts as the whole that it is.
    """
    touched: set[Ref] = set()
    if not (fleet.passed or fleet.waves):
        return touched
    open_now = {d.ref for d in drifts}
    for key in {d.wave for d in drifts}.union(waves) - {""}:
        for wave in (fleet.waves.get(key), fleet.passed.get(key)):
            if wave is not None:
                touched.update(r for r, acted in wave.healthy.items() if acted.op is op and not acted.approved)
    return touched - open_now


def to_approve(fleet: Fleet, verdict: Verdict, op: Op, anew: Collection[Ref] = ()) -> str:
    """The name of the plan that is all changes, or all deletions, that nobody approved, or that have to be `anew`, and are not under way."""
    refs = {d.ref for d in unapproved(fleet, verdict, op)}.union(anew)
    return plan_hash(d for d in fleet.drifts.values() if d.ref in refs and not d.in_flight)


def missing(fleet: Fleet, verdict: Verdict) -> list[Drift]:
    """What was made before and is read as gone, and nobody approved to make again."""
    return [d for d in fleet.drifts.values() if d.lost and not d.is_approved and d.ref not in verdict.approved]


def command(plan: str, when: str = "If it is meant") -> str:
    """How a person says yes, to go on a sentence; nothing where nothing is left to say yes to."""
    return f" {when}: homeostat approve {plan}" if plan else ""


def of_change_set(fleet: Fleet, change_set: str) -> list[Drift]:
    """What is left to do of a change set, and not under way."""
    return [d for d in fleet.drifts.values() if d.wave == change_set and not d.in_flight]


def _plans(fleet: Fleet, verdict: Verdict) -> Iterator[list[Drift]]:
    """All that can be approved: what the guards name when they refuse, and what `homeostat plan` shows."""
    waiting = [d for d in fleet.drifts.values() if not d.in_flight]
    yield waiting
    for op in (_UPDATE, _DELETE):
        yield [d for d in waiting if d.touches is op and not d.is_approved and d.ref not in verdict.approved]
    yield [d for d in missing(fleet, verdict) if not d.in_flight]
    for halt in fleet.halts.values():
        if halt.change_set:
            yield [d for d in waiting if d.wave == halt.change_set]
    yield from ([d] for d in waiting if d.parts is not None)


def _use_grant(fleet: Fleet, verdict: Verdict, change_set: str, grant: Grant) -> None:
    coming = [d for d in fleet.drifts.values() if d.wave == change_set and not d.is_approved and d.parts is None]
    changes = [d for d in coming if d.touches is _UPDATE]
    deletions = [d for d in coming if d.touches is _DELETE]
    if len(changes) > grant.changes or len(deletions) > grant.deletions or not (changes or deletions):
        return
    verdict.grants[change_set] = Grant(grant.changes - len(changes), grant.deletions - len(deletions))
    verdict.approved.update(d.ref for d in changes)
    verdict.approved.update(d.ref for d in deletions)
