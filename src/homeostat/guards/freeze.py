"""Freeze: a person closed the gate. Detection goes on; only the end of the freeze, or a person, opens it again."""

from __future__ import annotations

from homeostat.guards.policy import Freeze, GuardPolicy
from homeostat.loop.children import CHILDREN
from homeostat.loop.fleet import Drift, Fleet, Hold, Ref, Verdict
from homeostat.model.clock import format_time

GUARD = "freeze"


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds everything in the scope of a freeze that has not ended, with its reason and author."""
    for freeze in standing(policy, now):
        end = freeze.until.timestamp() if freeze.until else 0.0
        until = f" until {format_time(end)}" if end else ""
        hold = Hold(GUARD, f"frozen{until} by {freeze.author}: {freeze.reason}", end)

        def judged(drift: Drift, freeze: Freeze = freeze, hold: Hold = hold) -> Hold | None:
            return hold if covers(freeze, drift.ref) else None

        verdict.sift(judged)


def standing(policy: GuardPolicy, now: float) -> list[Freeze]:
    """The freezes that have not ended."""
    return [f for f in policy.freezes if f.until is None or now < f.until.timestamp()]


def covers(freeze: Freeze, ref: Ref) -> bool:
    """Whether a resource is in the scope of a freeze. What is composed is so by what it is, and as a child of its composer's kind."""
    kind, name = itself(ref)
    return (
        (not freeze.kinds or ref.kind in freeze.kinds or kind in freeze.kinds)
        and (not freeze.namespaces or ref.namespace in freeze.namespaces)
        and (not freeze.names or ref.name in freeze.names or name in freeze.names)
    )


def itself(ref: Ref) -> tuple[str, str]:
    """Kind and name of a thing; the ledger has what is composed as a child."""
    if not ref.kind.startswith(CHILDREN):
        return ref.kind, ref.name
    kind, _, name = ref.name.partition("/")
    return kind, name
