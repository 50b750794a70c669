"""Canary: a change of intent goes out in steps, and a step begins when all that was touched before is verified healthy.

The steps say how much of a change set may have been touched by their end: `1, 10%, 50%, 100%` of a change set of 40
touches 1, then up to 4, then up to 20, then all. A failure, or a verdict that does not come in time, halts the change
set, and only that; the halt stays until nothing of the change set is open any more (it was corrected, or returned) or a
person approves what is left of it.

Where the policy says `Return`, the change set is also taken back (`returning`), once: whatever became of that, no second return is
asked for, and a return that fails halts like any other change set.

A change that is well at first may not stay so: where the policy wants a `rest`, each wave has to stay well for so long before the next.

Verdicts can get lost, with the loop that waited for them. So what a change set made is asked again: while something of it
is as declared and does not do its work, the rest of the change set is halted too, until that recovers or a person who knows of it says
to go on. An approval from before is none of that.

Repairs, where only reality changed, go without steps: they lead to what has been verified before. So do creations.
"""

from __future__ import annotations

from homeostat.guards.approval import command, of_change_set
from homeostat.guards.freeze import standing
from homeostat.guards.policy import GuardPolicy, Mode, OnFailure
from homeostat.loop.fleet import (
    RETURN_PREFIX,
    Cause,
    Drift,
    Fleet,
    Halt,
    Hold,
    Op,
    Ref,
    Return,
    Verdict,
    Wave,
    plan_hash,
    share,
)
from homeostat.model.kinds import format_duration

GUARD = "canary"
_CREATE, _DRIFT = Op.CREATE, Cause.DRIFT
_COMING = "its change set is still coming in, and is judged as a whole"
_AND = "; it "
_RESTS = "it waits to see whether what its change set touched last stays well for "
_ERROR_MOST = 300  # characters of an error that a reason has
_IN_SPITE = "To go on in spite of it"
_NOT_YET = "it waits until what its change set touched before is verified healthy"


def judge_health(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Halts the change sets that did harm, and asks for their return where the policy wants it."""
    within = policy.canary.verify_within.total_seconds()
    suspects = {wave.change_set for wave in fleet.waves.values() if wave.failed or wave.overdue(now, within)}
    suspects.update(halt.change_set for key, halt in fleet.halts.items() if key == f"{GUARD}/{halt.change_set}")
    suspects.update(name for name, taken in fleet.returned.items() if taken.under_way)  # a crash forgets the halt, and not that
    suspects.discard("")
    for change_set in sorted(suspects):
        if any(d.wave == change_set for d in fleet.drifts.values()):
            _halt(policy, fleet, verdict, change_set, now)
    if fleet.unhealthy:
        for change_set in sorted({d.wave for d in verdict.allowed if d.cause is not _DRIFT and d.change_set}):
            _wait_for_the_sick(policy, fleet, verdict, change_set, now)
        if policy.canary.on_failure is OnFailure.RETURN:
            for change_set, since in fleet.interrupted.items():
                _miss_the_verdict(policy, fleet, verdict, change_set, since, now)


def judge_steps(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Lets nothing through of a change set that is still coming in, and no more of another than its step allows."""
    coming = {key: Hold(GUARD, _COMING, until) for key, until in fleet.gathering.items() if until > now}
    if coming:
        verdict.sift(lambda d: coming.get(d.wave) if d.touches is not _CREATE else None)
    waiting: dict[str, list[Ref]] = {
        d.wave: [] for d in verdict.allowed if d.cause is not _DRIFT and d.touches is not _CREATE
    }
    if not waiting:
        return
    for drift in fleet.drifts.values():
        if drift.touches is not _CREATE and (refs := waiting.get(drift.wave)) is not None and not drift.in_flight:
            refs.append(drift.ref)
    rooms = {key: _room(policy, fleet, key, refs) for key, refs in waiting.items()}
    within = policy.canary.verify_within.total_seconds()
    not_yet = {key: Hold(GUARD, _NOT_YET, _late(fleet.waves.get(key), within)) for key in waiting}
    if rest := policy.canary.rest.total_seconds():
        for key in waiting:
            if (rested := _rested(fleet, key, rest)) > now:
                rooms[key], not_yet[key] = 0, Hold(GUARD, f"{_RESTS}{format_duration(policy.canary.rest)}", rested)

    def judged(drift: Drift) -> Hold | None:
        key = drift.wave
        if not key or drift.touches is _CREATE:
            return None
        room = rooms[key]
        rooms[key] = room - 1
        return None if room > 0 else not_yet[key]

    verdict.sift(judged)


def _halt(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, change_set: str, now: float) -> None:
    plan = plan_hash(of_change_set(fleet, change_set))
    if plan in verdict.used:
        verdict.forgiven.add(change_set)
        return
    key = f"{GUARD}/{change_set}"
    before = fleet.halts.get(key)
    why = _reason(policy, fleet, change_set, now)
    why = why or (_unsaid(before.reason) if before else f"change set {change_set} failed")
    reason = _said(fleet, change_set, why)
    verdict.halts[key] = Halt(
        GUARD,
        reason,
        before.since if before else now,
        plan,
        "Correct the declaration, or go back to the last good one." + command(plan, _IN_SPITE),
        change_set,
    )
    hold = Hold(GUARD, reason, plan=plan)
    verdict.sift(lambda d: hold if d.wave == change_set else None)
    if _goes_back(policy, fleet, change_set, now):
        verdict.returns.append(Return(change_set, why))


def _goes_back(policy: GuardPolicy, fleet: Fleet, change_set: str, now: float) -> bool:
    """Whether a change set that failed is to be taken back now: once, never a return itself, and not behind a gate that a person closed."""
    if policy.canary.on_failure is not OnFailure.RETURN or change_set.startswith(RETURN_PREFIX):
        return False
    return change_set not in fleet.returned and policy.mode is Mode.ENFORCE and not standing(policy, now)


def _said(fleet: Fleet, change_set: str, why: str) -> str:
    """The reason of a halt, with how it stands with the return."""
    taken = fleet.returned.get(change_set)
    return why if taken is None else f"{why}{_AND}{taken.words}"


def _unsaid(reason: str) -> str:
    return reason.partition(_AND)[0]


def _wait_for_the_sick(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, change_set: str, now: float) -> None:
    """Halts what is left of a change set while something that it made, and that no wave waits for, is not healthy. A verdict got
    lost there; where it is still not well when the verdict would have been due, it has failed."""
    wave = fleet.waves.get(change_set)
    sick = [r for r, by in fleet.unhealthy.items() if by == change_set != fleet.in_spite.get(r) and not (wave and r in wave.members)]
    if not sick:
        return
    key = f"{GUARD}/{change_set}/health"
    plan, before = plan_hash(of_change_set(fleet, change_set)), fleet.halts.get(key)
    if plan in verdict.used:
        verdict.in_spite.update(dict.fromkeys(sick, change_set))
        return
    why = _ill(sick, change_set)
    reason, since = _said(fleet, change_set, why), before.since if before else now
    late = since + policy.canary.verify_within.total_seconds() if _goes_back(policy, fleet, change_set, now) else 0.0
    hold = Hold(GUARD, reason, late if late > now else 0.0, plan)
    rest = [d.ref for d in verdict.allowed if d.wave == change_set and d.touches is not _CREATE]
    if not rest:
        return
    verdict.halts[key] = Halt(
        GUARD,
        reason,
        since,
        plan,
        "It goes on when that recovers. If it does not: correct the declaration, or go back to the last good one."
        + command(plan, _IN_SPITE),
        change_set,
    )
    waiting = set(rest)
    verdict.sift(lambda d: hold if d.ref in waiting else None)
    if late and late <= now:
        verdict.returns.append(Return(change_set, why))


def _miss_the_verdict(
    policy: GuardPolicy, fleet: Fleet, verdict: Verdict, change_set: str, since: float, now: float
) -> None:
    """A loop that is gone had touched the last of a change set, and nobody was left to hear that it is not well."""
    sick = [ref for ref, by in fleet.unhealthy.items() if by == change_set]
    due = since + policy.canary.verify_within.total_seconds()
    if not sick or now <= due or change_set in fleet.waves or any(d.wave == change_set for d in fleet.drifts.values()):
        return
    why = _ill(sick, change_set)
    what_to_do = "Correct the declaration, or go back to the last good one."
    verdict.halts[f"{GUARD}/{change_set}/lost"] = Halt(GUARD, _said(fleet, change_set, why), due, "", what_to_do, change_set)
    if _goes_back(policy, fleet, change_set, now):
        verdict.returns.append(Return(change_set, why))


def _ill(sick: list[Ref], change_set: str) -> str:
    more = f" and {len(sick) - 1} more" if len(sick) > 1 else ""
    return f"{min(sick)}{more} of change set {change_set} is as declared and not healthy"


def _late(wave: Wave | None, within: float) -> float:
    """When the first verdict that a wave waits for is too late; 0 where it waits for none."""
    first = min((acted.at for _, acted in wave.outstanding()), default=0.0) if wave else 0.0
    return first + within + 1.0 if first else 0.0


def _rested(fleet: Fleet, change_set: str, rest: float) -> float:
    """When what a change set touched last has rested; 0 where nothing has to."""
    last = fleet.passed.get(change_set) if change_set not in fleet.waves else None
    return max((acted.at for acted in last.members.values()), default=-rest) + rest if last else 0.0


def _reason(policy: GuardPolicy, fleet: Fleet, change_set: str, now: float) -> str:
    wave = fleet.waves.get(change_set)
    if wave is None:
        return ""
    if wave.failed:
        named, what = wave.failed, "failed"
    else:
        named = set(wave.overdue(now, policy.canary.verify_within.total_seconds()))
        what = "gave no verdict in time, which is a failure"
    if not named:
        return ""
    first = min(named)
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    error = fleet.drifts[first].error[:_ERROR_MOST] if wave.failed and first in fleet.drifts else ""
    return f"{first}{more} {what} in wave {wave.number} of change set {change_set}" + (f": {error}" if error else "")


def _room(policy: GuardPolicy, fleet: Fleet, change_set: str, waiting: list[Ref]) -> int:
    """How many more of the change set may be touched now. What waits again after it was verified counts as not touched."""
    wave, last = fleet.waves.get(change_set), fleet.passed.get(change_set)
    if wave is None and last is None and len(waiting) == 1:
        return 1  # the common edit of one thing; no step is below it
    before = len(wave.behind.keys() - waiting if wave else last.healthy.keys() - waiting if last else ())
    now = before + len(wave.members.keys() - wave.behind.keys() - set(waiting) if wave else ())
    total = now + len(waiting)
    target = min((count for step in policy.canary.steps if (count := share(step, total)) > before), default=total)
    return target - now
