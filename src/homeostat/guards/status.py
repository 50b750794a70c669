"""What a GuardPolicy says of its fleet: sizes, waves, halts, and conditions that people and tools can wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from homeostat.guards.freeze import standing
from homeostat.guards.policy import AskStatus, GuardPolicy, GuardPolicyStatus, HaltStatus, Mode, WaveStatus
from homeostat.loop.fleet import Ended, Fleet, Unanswered, Verdict, Wave
from homeostat.model.clock import format_time
from homeostat.model.conditions import set_condition
from homeostat.model.kinds import encode

Judged = tuple[Fleet, Verdict]
"""A fleet, and the last verdict on it."""

PAST_WAVES = 64
"""How many waves that are over a policy tells of."""
NOTHING = "SelectsNothing"
"""Why a policy does nothing for anybody: its kinds, namespaces or labels fit nothing that there is."""
INVARIANTS = "InvariantsHold"
"""The condition that says whether what must stay true is so now, without any plan."""


def status(
    obj: Mapping[str, Any],
    policy: GuardPolicy,
    judged: Sequence[Judged],
    now: float,
    broken: Sequence[str] | Unanswered | None = None,
    problem: str = "",
    *,
    selects: bool = True,
) -> dict[str, Any]:
    """The status of a policy object after these verdicts, of all fleets that it guards: more than one where other policies
    select a part of the same. Equal to the one it has when nothing changed, so that nothing is written.

    `broken`: which invariants are so now, that it cannot be told, or (None) that there are none. `problem`: why the policy cannot be
    read, and only observes. `selects`: whether anything is guarded by it."""
    before = obj.get("status") or {}
    after: dict[str, Any] = {
        "status": {**encode(_facts(judged)), "conditions": _carried(before, policy)}
    }
    generation = obj.get("metadata", {}).get("generation")
    if generation is not None:
        after["status"]["observedGeneration"] = generation
    after["status"]["pastWaves"] = _past(before, judged)
    after["status"]["alerts"] = before.get("alerts", [])  # who tells people says what they were told
    said = {"now": format_time(now), "observed_generation": generation}
    if problem:
        told = f"it cannot be read, and what it selects is only observed: {problem}"
        set_condition(after, "Ready", "False", reason="Unreadable", message=told, **said)
    elif reasons := "; ".join(_reasons(judged)):
        set_condition(after, "Halted", "True", reason="GuardsHalt", message=reasons, **said)
        set_condition(after, "Ready", "False", reason="Halted", message=reasons, **said)
    else:
        set_condition(after, "Halted", "False", reason="NothingToHalt", **said)
        reason, message = _gate(policy, now)
        if not selects:
            reason, message = NOTHING, f"it selects nothing, and so nothing of it holds: {message}"
        set_condition(after, "Ready", "True", reason=reason, message=message, **said)
    if isinstance(broken, Unanswered):
        set_condition(after, INVARIANTS, "Unknown", reason="CannotBeTold", message=str(broken), **said)
    elif broken is not None:
        reason, message = ("Broken", "; ".join(broken)) if broken else ("AllHold", "")
        set_condition(after, INVARIANTS, "False" if broken else "True", reason=reason, message=message, **said)
    found: dict[str, Any] = after["status"]
    return found


def _carried(before: Mapping[str, Any], policy: GuardPolicy) -> list[Any]:
    """The conditions as they were; nothing is said of invariants where there are none any more."""
    return [c for c in before.get("conditions", ()) if policy.invariants or c.get("type") != INVARIANTS]


def _gate(policy: GuardPolicy, now: float) -> tuple[str, str]:
    if frozen := standing(policy, now):
        return "Frozen", f"frozen by {frozen[0].author}: {frozen[0].reason}"
    if policy.mode is Mode.OBSERVE:
        return "Observing", "drift is reported and nothing is done about it"
    return "Enforcing", "drift is corrected"


def _reasons(judged: Sequence[Judged]) -> Iterator[str]:
    for fleet, verdict in judged:
        where = f"{fleet.name}: " if len(judged) > 1 else ""
        yield from (where + halt.reason for halt in verdict.halts.values())


def _facts(judged: Sequence[Judged]) -> GuardPolicyStatus:
    fleets = [fleet for fleet, _ in judged]
    halts = [(fleet.name, halt) for fleet, verdict in judged for _, halt in sorted(verdict.halts.items())]
    waves = [(fleet.name, wave) for fleet in fleets for _, wave in sorted(fleet.waves.items())]
    return GuardPolicyStatus(
        fleet_size=sum(fleet.size for fleet in fleets),
        drifted=sum(len(fleet.drifts) for fleet in fleets),
        unknown=sum(len(fleet.unknown) for fleet in fleets),
        acted_in_wave=sum(len(wave.members) for _, wave in waves),
        halted=",".join(dict.fromkeys(halt.guard for _, halt in halts)),
        halts=tuple(
            HaltStatus(
                guard=halt.guard,
                reason=halt.reason,
                since=_time(halt.since),
                plan=halt.plan,
                what_to_do=halt.what_to_do,
                change_set=halt.change_set,
                fleet=name,
            )
            for name, halt in halts
        ),
        asks=tuple(_asks(judged)),
        waves=tuple(_wave(name, wave, len(wave.members), len(wave.verified), len(wave.failed)) for name, wave in waves),
    )


def _asks(judged: Sequence[Judged]) -> Iterator[AskStatus]:
    """What only an approval lets through, beside what is halted. Of what composers declare it stands nowhere else."""
    for fleet, verdict in judged:
        halting = {halt.guard for halt in verdict.halts.values()}
        counts = Counter((hold.guard, hold.reason, hold.plan) for hold in verdict.held.values() if hold.plan and hold.guard not in halting)
        for (guard, reason, plan), count in sorted(counts.items()):
            yield AskStatus(guard=guard, reason=reason, plan=plan, count=count, fleet=fleet.name)


def _wave(fleet: str, wave: Wave | Ended, members: int, verified: int, failed: int) -> WaveStatus:
    return WaveStatus(
        change_set=wave.change_set, number=wave.number, members=members, verified=verified, failed=failed, started=_time(wave.started), fleet=fleet
    )


def _past(before: Mapping[str, Any], judged: Sequence[Judged]) -> list[Any]:
    """The waves that are over: those that were told before, and those that ended since."""
    known = {_which(wave): wave for wave in before.get("pastWaves") or ()}
    for fleet, _ in judged:
        for wave in fleet.ended:
            told = encode(_wave(fleet.name, wave, wave.members, wave.verified, wave.failed))
            known[_which(told)] = told
    return sorted(known.values(), key=lambda wave: (wave["started"], wave["number"]))[-PAST_WAVES:]


def _which(wave: Mapping[str, Any]) -> tuple[str, str, int, str]:
    return wave.get("fleet", ""), wave["changeSet"], wave["number"], wave["started"]


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
