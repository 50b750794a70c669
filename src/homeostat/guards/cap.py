"""Cap: how many existing things are changed, and how many deleted, in a wave.

Creations have a limit of their own, off by default.

Places are shared out in turn between repairs and change sets, and in each to the oldest first.

What failed keeps its place: with a cap of 10 and 3 that are broken since we touched them, 7 places are left. One place
always stays, so that a single broken thing does not stop a fleet whose cap is 1. When more than the cap have failed,
nothing new is touched: only they are tried again, until they recover or a person approves the rest. Who approved it before did not know
of that. So automation that makes things worse stops at the cap and one; also where it is restarted again and again, for what it made worse is still not well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from homeostat.guards.approval import to_approve
from homeostat.guards.policy import GuardPolicy
from homeostat.loop.fleet import Drift, Fleet, Hold, Op, Phase, Ref, Verdict, share

GUARD = "cap"
_CREATE, _UPDATE, _DELETE, _FAILED = Op.CREATE, Op.UPDATE, Op.DELETE, Phase.FAILED


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Lets through as many as there are places; the others wait for the next wave."""
    cap = share(policy.cap, fleet.size)
    for op in (_UPDATE, _DELETE):
        failed = _failed(fleet, op)
        if failed > cap > 0:
            verdict.doubted.add(op)
        waiting = [d for d in verdict.allowed if d.touches is op]
        if waiting:
            _judge_existing(fleet, verdict, op, cap, failed, waiting)
    judge_creation(policy, fleet, verdict, now)


def judge_creation(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Lets no more creations through than may be under way: all there is to ask of one alone."""
    if policy.creations is not None:
        limit = share(policy.creations, fleet.size)
        under_way = sum(1 for d in fleet.drifts.values() if d.touches is _CREATE and d.in_flight)
        waiting = [d for d in verdict.allowed if d.touches is _CREATE]
        verdict.hold(
            waiting[max(0, limit - under_way) :], GUARD, f"{limit} creations are under way, and no more may be"
        )


def _failed(fleet: Fleet, op: Op) -> int:
    failed = sum(1 for d in fleet.drifts.values() if d.phase is _FAILED and d.touches is op)
    return failed + (len(fleet.in_doubt - fleet.drifts.keys()) if op is _UPDATE else 0)


def _judge_existing(fleet: Fleet, verdict: Verdict, op: Op, cap: int, failed: int, waiting: list[Drift]) -> None:
    if op in verdict.doubted:
        known = op in fleet.doubted
        fresh = [d for d in waiting if d.phase is not _FAILED and not (known and d.is_approved) and d.ref not in verdict.approved]
        if fresh:
            plan = to_approve(fleet, verdict, op, {d.ref for d in fresh})
            reason = (
                f"{failed} that were acted on failed, more than the cap of {cap}: nothing new is touched until they recover; "
                f"if it is meant: homeostat approve {plan}"
            )
            verdict.hold(fresh, GUARD, reason, plan=plan)
            held = {d.ref for d in fresh}
            waiting = [d for d in waiting if d.ref not in held]
    room = (max(1, cap - failed) if cap else 0) - _taken(fleet, op)
    if room < len(waiting):
        let = {id(d) for d in _in_turn(waiting, room)}
        full = f"the wave is full: at most {cap} of {fleet.size} at once; it goes in one of the next"
        hold = Hold(GUARD, full if cap else "the cap is 0: nothing that exists is touched until the policy allows more", lasts=not cap)
        verdict.sift(lambda d: hold if d.touches is op and id(d) not in let else None)


def _taken(fleet: Fleet, op: Op) -> int:
    """Places that are taken: by strays in flight, and by all that a wave touched until the wave ends."""
    taken: set[Ref] = {d.ref for d in fleet.drifts.values() if d.touches is op and d.in_flight}
    for wave in fleet.waves.values():
        if not wave.done:
            taken.update(ref for ref, acted in wave.members.items() if acted.op is op and ref not in wave.failed)
    return len(taken)


def _in_turn(waiting: Iterable[Drift], room: int) -> list[Drift]:
    lines: dict[str, deque[Drift]] = {}
    for drift in waiting:
        lines.setdefault(drift.wave, deque()).append(drift)
    chosen: list[Drift] = []
    turns = deque(lines.values())
    while turns and len(chosen) < room:
        line = turns.popleft()
        chosen.append(line.popleft())
        if line:
            turns.append(line)
    return chosen
