"""Fleets for the tests: small builders, and a player of the engine's part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from homeostat.guards import GuardPolicy, Mode, decide
from homeostat.loop.fleet import Cause, Drift, Fleet, Op, Phase, Ref, Verdict

NOW = 1_800_000_000.0
KIND = "servers.shop.example.com"
ENFORCE = GuardPolicy(mode=Mode.ENFORCE)


def ref(number: int | str) -> Ref:
    return Ref(KIND, "shop", f"server-{number}", f"uid-{number}")


def a_fleet(size: int, **fields: Any) -> Fleet:
    """A fleet that has been looked at once."""
    return Fleet("shop", size, passes_begun=1, passes_done=1, **fields)


def drift(
    fleet: Fleet, numbers: Iterable[int | str], op: Op = Op.UPDATE, cause: Cause = Cause.DRIFT, **fields: Any
) -> list[Drift]:
    """Opens a difference for each number, the older first."""
    made = []
    for number in numbers:
        given = {"since": NOW - 1000 + len(fleet.drifts), "made_from": f"facts-{number}", **fields}
        made.append(Drift(ref(number), op, cause, **given))
        fleet.drifts[made[-1].ref] = made[-1]
    return made


def changes(fleet: Fleet, numbers: Iterable[int | str], change_set: str = "push-1", **fields: Any) -> list[Drift]:
    """Opens changes of intent that belong to one change set."""
    return drift(fleet, numbers, cause=Cause.INTENT, change_set=change_set, **fields)


def step(policy: GuardPolicy, fleet: Fleet, now: float = NOW) -> list[Ref]:
    """What the engine does: decides, enters the verdict, begins what is allowed."""
    verdict = decide(policy, fleet, now)
    fleet.take(verdict)
    for one in verdict.allowed:
        fleet.begin(one, now)
    return [one.ref for one in verdict.allowed]


def verify_all(fleet: Fleet) -> None:
    """Everything under way is read back and healthy."""
    for one in [d for d in fleet.drifts.values() if d.in_flight]:
        fleet.verified(one.ref)


def in_flight(fleet: Fleet, op: Op) -> int:
    return sum(d.phase in (Phase.ACTING, Phase.SETTLING) for d in fleet.drifts.values() if d.op is op)


def a_whole_pass(fleet: Fleet) -> None:
    fleet.pass_begun()
    fleet.pass_done()


def guards_of(verdict: Verdict) -> set[str]:
    return {hold.guard for hold in verdict.held.values()}
