"""Several policies on one resource: the strictest wins, limit by limit.

A fleet is all that the same policies select. So where two overlap, what both select is a fleet of its own, and its
limits are those of the stricter, counted in that fleet. Mass drift and the confirmation of deletions count all that a policy
selects as well: else a policy for each team, however strict, would undo the one for all of them. What no policy selects is guarded by the default policy of its
kind, which steps aside as soon as one does: else nobody could choose a limit wider than the default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from homeostat.guards.approval import touched_before, unapproved
from homeostat.guards.policy import (
    Backoff,
    Breaker,
    Canary,
    Deletion,
    Flap,
    GuardPolicy,
    Limit,
    MassDrift,
    Mode,
    OnFailure,
    Selection,
    selects,
)
from homeostat.loop.fleet import Fleet, Op, Verdict, Whole, share
from homeostat.model.selectors import Labels

T = TypeVar("T")


def matching(policies: Mapping[str, GuardPolicy], kind: str, namespace: str, labels: Labels | None) -> tuple[str, ...]:
    """The names of the policies that select a resource, sorted: they name its fleet. Empty: the default guards it."""
    return tuple(sorted(name for name, policy in policies.items() if selects(policy, kind, namespace, labels)))


def combine(policies: Sequence[GuardPolicy], size: int) -> GuardPolicy:
    """The policy of a fleet of this size that all of these guard. One that is alone is taken as it is."""
    if len(policies) == 1:
        return policies[0]
    return GuardPolicy(
        fleet=Selection(),
        mode=Mode.OBSERVE if any(p.mode is Mode.OBSERVE for p in policies) else Mode.ENFORCE,
        freezes=_all(p.freezes for p in policies),
        cap=min(share(p.cap, size) for p in policies),
        creations=_least((p.creations for p in policies), size),
        mass_drift=_mass_drift(policies, size),
        unknown=min(share(p.unknown, size) for p in policies),
        canary=Canary(
            steps=_all(p.canary.steps for p in policies),
            verify_within=min(p.canary.verify_within for p in policies),
            rest=max(p.canary.rest for p in policies),
            on_failure=OnFailure.HALT
            if any(p.canary.on_failure is OnFailure.HALT for p in policies)
            else OnFailure.RETURN,
        ),
        breaker=Breaker(
            failures=min(p.breaker.failures for p in policies), open_for=max(p.breaker.open_for for p in policies)
        ),
        backoff=Backoff(
            first=max(p.backoff.first for p in policies),
            factor=max(p.backoff.factor for p in policies),
            most=max(p.backoff.most for p in policies),
        ),
        flap=Flap(reversals=min(p.flap.reversals for p in policies), within=max(p.flap.within for p in policies)),
        invariants=_all(p.invariants for p in policies),
        health=_all(p.health for p in policies),
        windows=_all(p.windows for p in policies),
        deletion=Deletion(
            confirm_above=min(
                share(p.cap if p.deletion.confirm_above is None else p.deletion.confirm_above, size) for p in policies
            ),
            grace=max(p.deletion.grace for p in policies),
        ),
        domains=min(p.domains for p in policies),
        alerts=_all(p.alerts for p in policies),
    )


def whole(name: str, policy: GuardPolicy, fleet: Fleet, others: Iterable[Fleet]) -> Whole:
    """What a policy selects in these fleets, beside one that something is to be done in."""
    size, found, waves = 0, {Op.UPDATE: 0, Op.DELETE: 0}, {drift.wave for drift in fleet.drifts.values()}
    for other in others:
        size += other.size
        for op in found:
            drifts = unapproved(other, Verdict(), op)
            touched = touched_before(other, drifts, op, waves)
            found[op] += len(drifts) + len(touched)
            size += len(touched) if op is Op.DELETE else 0  # as it was before
    above = policy.deletion.confirm_above
    limits = policy.mass_drift
    return Whole(
        name, size, found[Op.UPDATE], found[Op.DELETE], limits.limit, limits.fleet_of, policy.cap if above is None else above
    )


def _all(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(parts)))


def _least(limits: Iterable[Limit | None], size: int) -> int | None:
    return min((share(limit, size) for limit in limits if limit is not None), default=None)


def _mass_drift(policies: Sequence[GuardPolicy], size: int) -> MassDrift:
    looking = [p.mass_drift for p in policies if size >= p.mass_drift.fleet_of]
    if not looking:
        return min((p.mass_drift for p in policies), key=lambda one: one.fleet_of)
    return MassDrift(
        limit=min(share(one.limit, size) for one in looking), fleet_of=min(one.fleet_of for one in looking)
    )
