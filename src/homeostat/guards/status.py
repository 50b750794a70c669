"""What a GuardPolicy says of its fleet: sizes, waves, halts, and conditions that people and tools can wait for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from homeostat.guards.freeze import standing
from homeostat.guards.policy import GuardPolicy, GuardPolicyStatus, HaltStatus, Mode, WaveStatus
from homeostat.loop.fleet import Fleet, Verdict
from homeostat.model.clock import format_time
from homeostat.model.conditions import set_condition
from homeostat.model.kinds import encode


def status(obj: Mapping[str, Any], policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> dict[str, Any]:
    """The status of a policy object after this verdict. Equal to the one it has when nothing changed, so that nothing
    is written."""
    before = obj.get("status") or {}
    after: dict[str, Any] = {
        "status": {**encode(_facts(fleet, verdict)), "conditions": [*before.get("conditions", ())]}
    }
    generation = obj.get("metadata", {}).get("generation")
    if generation is not None:
        after["status"]["observedGeneration"] = generation
    said = {"now": format_time(now), "observed_generation": generation}
    if verdict.halts:
        reasons = "; ".join(halt.reason for halt in verdict.halts.values())
        set_condition(after, "Halted", "True", reason="GuardsHalt", message=reasons, **said)
        set_condition(after, "Ready", "False", reason="Halted", message=reasons, **said)
    else:
        set_condition(after, "Halted", "False", reason="NothingToHalt", **said)
        reason, message = _gate(policy, now)
        set_condition(after, "Ready", "True", reason=reason, message=message, **said)
    found: dict[str, Any] = after["status"]
    return found


def _gate(policy: GuardPolicy, now: float) -> tuple[str, str]:
    if frozen := standing(policy, now):
        return "Frozen", f"frozen by {frozen[0].author}: {frozen[0].reason}"
    if policy.mode is Mode.OBSERVE:
        return "Observing", "drift is reported and nothing is done about it"
    return "Enforcing", "drift is corrected"


def _facts(fleet: Fleet, verdict: Verdict) -> GuardPolicyStatus:
    halts = sorted(verdict.halts.items())
    return GuardPolicyStatus(
        fleet_size=fleet.size,
        drifted=len(fleet.drifts),
        unknown=len(fleet.unknown),
        acted_in_wave=sum(len(wave.members) for wave in fleet.waves.values()),
        halted=",".join(dict.fromkeys(halt.guard for _, halt in halts)),
        halts=tuple(
            HaltStatus(
                guard=halt.guard,
                reason=halt.reason,
                since=_time(halt.since),
                plan=halt.plan,
                what_to_do=halt.what_to_do,
                change_set=halt.change_set,
            )
            for _, halt in halts
        ),
        waves=tuple(
            WaveStatus(
                change_set=wave.change_set,
                number=wave.number,
                members=len(wave.members),
                verified=len(wave.verified),
                failed=len(wave.failed),
                started=_time(wave.started),
            )
            for _, wave in sorted(fleet.waves.items())
        ),
    )


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
