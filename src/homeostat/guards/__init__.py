"""Guards: what keeps automation from obeying too well. One file a guard; each narrows what may be done, and says why.

A guard is a function of the policy, the fleet with its whole ledger, the verdict so far, and the time. It reads the
first two, and takes out of the verdict's `allowed` what must not be done now; or it raises, keeps or ends a halt. None
does I/O, so that a decision can be replayed, explained and tried in advance.

Controllers propose; `decide` is the gate. The order is that of `GUARDS`, and the first who holds a difference gives the
reason:

1. what people approved (`approval`), which later guards respect;
2. what people closed: `mode`, `freeze`, `window`;
3. what makes the whole suspicious: `unknown`, `mass_drift`, what happens inside of one (`parts`), the health of change sets (`canary`);
4. what is the matter with one resource: `ownership`, `deletion`, `flap`, `backoff`, `breaker`;
5. what the plan would end in: `invariant`;
6. how much at once: the steps of `canary`, what was lost (`unknown`), `domain`, `cap`;
7. what this wave by itself would lead to: `invariant` again.

Who cannot be acted on anyway is held before places are shared out, so that nobody waits behind them.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from homeostat.guards import (
    approval,
    backoff,
    breaker,
    canary,
    cap,
    deletion,
    domain,
    flap,
    freeze,
    invariant,
    mass_drift,
    mode,
    ownership,
    parts,
    unknown,
    window,
)
from homeostat.guards.backoff import delays
from homeostat.guards.breaker import thresholds
from homeostat.guards.compose import combine, matching
from homeostat.guards.policy import GuardPolicy, Mode, OnFailure, default_policy, definition, parse_policy, selects
from homeostat.guards.runbook import runbook
from homeostat.guards.status import status
from homeostat.loop.fleet import Drift, Fleet, Hold, Ref, Verdict

__all__ = [
    "GUARDS",
    "GuardPolicy",
    "Mode",
    "OnFailure",
    "admits",
    "combine",
    "decide",
    "default_policy",
    "definition",
    "delays",
    "explain",
    "matching",
    "parse_policy",
    "runbook",
    "selects",
    "status",
    "thresholds",
]

Judge = Callable[[GuardPolicy, Fleet, Verdict, float], None]

GUARDS: tuple[tuple[str, Judge], ...] = (
    ("approval", approval.judge),
    ("mode", mode.judge),
    ("freeze", freeze.judge),
    ("window", window.judge),
    ("unknown", unknown.judge),
    ("mass-drift", mass_drift.judge),
    ("parts", parts.judge),
    ("canary", canary.judge_health),
    ("ownership", ownership.judge),
    ("deletion", deletion.judge),
    ("flap", flap.judge),
    ("backoff", backoff.judge),
    ("breaker", breaker.judge),
    ("invariant", invariant.judge_plan),
    ("canary", canary.judge_steps),
    ("unknown", unknown.judge_lost),
    ("domain", domain.judge),
    ("cap", cap.judge),
    ("invariant", invariant.judge_wave),
)
"""Every guard and its name, in the order in which they judge."""

CREATIONS: tuple[Judge, ...] = (
    mode.judge,
    freeze.judge,
    window.judge,
    unknown.judge,
    parts.judge_creation,
    ownership.judge,
    flap.judge,
    backoff.judge,
    breaker.judge,
    cap.judge_creation,
    invariant.judge_wave,
)
"""Those who have something to say of a creation, in their order. None needs to look at what else is open."""

_since, _failures = attrgetter("since"), attrgetter("failures")


def decide(policy: GuardPolicy, fleet: Fleet, now: float) -> Verdict:
    """What may be done about the open differences of a fleet now (wall seconds), what not and why, and which halts stand.

    Changes nothing: enter the verdict with `fleet.take`, and what you act on with `fleet.begin`, before you decide again.
    """
    verdict = _waiting(fleet)
    for _, judge in GUARDS:
        judge(policy, fleet, verdict, now)
    return verdict


def admits(policy: GuardPolicy, fleet: Fleet, creation: Drift, now: float) -> bool:
    """Whether one creation may be made now, by itself: what it costs does not hang on how much else is open."""
    verdict = Verdict(allowed=[creation])
    for judge in CREATIONS:
        judge(policy, fleet, verdict, now)
    return bool(verdict.allowed)


def explain(policy: GuardPolicy, fleet: Fleet, ref: Ref, now: float) -> list[tuple[str, Hold | None]]:
    """What each guard by itself says of one difference, in their order; None: it has nothing against it."""
    chain: list[tuple[str, Hold | None]] = []
    approved = _waiting(fleet)
    approval.judge(policy, fleet, approved, now)
    for name, judge in GUARDS[1:]:
        verdict = _waiting(fleet)
        verdict.approved, verdict.used = approved.approved, approved.used
        judge(policy, fleet, verdict, now)
        chain.append((name, verdict.held.get(ref)))
    return chain


def _waiting(fleet: Fleet) -> Verdict:
    """All that is open and not under way: what was never tried before what failed, then the oldest first."""
    waiting = [drift for drift in fleet.drifts.values() if not drift.in_flight]
    waiting.sort(key=_since)
    waiting.sort(key=_failures)
    return Verdict(allowed=waiting)
