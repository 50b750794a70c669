"""What the loop says of a resource: conditions that `kubectl wait` and kstatus understand. No change, no write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeostat.loop.fleet import Drift, Hold, Phase
from homeostat.loop.observation import Unknown
from homeostat.loop.record import Record
from homeostat.model.conditions import set_condition

Status = dict[str, Any]

OBSERVED_AT = "observedAt"
"""When the observation was made that the rest of a status is about. A later one that shows the same is no reason to write."""


def status_of(
    obj: Mapping[str, Any],
    record: Record,
    *,
    now: str,
    drift: Drift | None = None,
    hold: Hold | None = None,
    unknown: Unknown | None = None,
    unhealthy: str = "",
    error: str = "",
    state: Mapping[str, Any] = {},
    shown: tuple[str, ...] = (),
    observed_at: str = "",
) -> Status:
    """The status as it should be; equal to the object's own, but for `observedAt`, where nothing changed.

    Ready: it is as declared and works. Reconciling and Progressing: something is being done. Degraded: something is wrong that the
    loop cannot put right at once, or may not; its message says what, and what holds it. `shown` names fields of the observed `state`
    that stand beside them.
    """
    before = obj.get("status") or {}
    said: Status = {"status": {"conditions": [dict(c) for c in before.get("conditions", ())]}}
    generation = obj["metadata"].get("generation", 0)

    def say(kind: str, is_so: bool | None, reason: str, message: str = "") -> None:
        word = "Unknown" if is_so is None else "True" if is_so else "False"
        set_condition(said, kind, word, now=now, reason=reason, message=message, observed_generation=generation)

    if unknown is not None:
        say("Ready", None, "Unreadable", unknown.reason)
        say("Progressing", False, "Unreadable")
        say("Reconciling", False, "Unreadable")
        say("Degraded", True, "Unreadable", f"it cannot be observed: {unknown.reason}")
    elif drift is None or unhealthy:  # it is as declared, though the ledger may still wait for it to be well
        _say_converged(say, unhealthy, settling=drift is not None and drift.in_flight)
    else:
        _say_drifted(say, drift, hold, error)
    status: Status = {**said["status"], **record.to_status(drift), "observedGeneration": generation}
    if observed_at or OBSERVED_AT in before:
        status[OBSERVED_AT] = observed_at or before[OBSERVED_AT]
    for name in shown:  # of what cannot be read now, what was seen last
        if (value := (before if unknown is not None else state).get(name)) is not None:
            status[name] = value
    if "kept" in before:
        status["kept"] = before["kept"]  # the provider's notes are written when it acts, and by nobody else
    return status


def change_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What is to be written of a status, as a merge patch: nothing where all that is new is when somebody looked."""
    patch = merge_patch(before, after)
    return {} if patch.keys() <= {OBSERVED_AT} else patch


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that makes one document of another, down to fields that are there no more; null is nothing."""
    if not before:
        return {name: value for name, value in after.items() if value is not None}
    patch: dict[str, Any] = {}
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            if inner := merge_patch(old, new):
                patch[name] = inner
        elif old != new:
            patch[name] = new
    return patch


def _say_converged(say: Any, unhealthy: str, settling: bool) -> None:
    if unhealthy:
        say("Ready", False, "Unhealthy", unhealthy)
        say("Degraded", True, "Unhealthy", unhealthy)
    else:
        say("Ready", True, "Converged", "as declared")
        say("Degraded", False, "Converged")
    say("Progressing", settling, "Settling" if settling else "Converged")
    say("Reconciling", settling, "Settling" if settling else "Converged")


def _say_drifted(say: Any, drift: Drift, hold: Hold | None, error: str) -> None:
    what = f"to {drift.op}: {', '.join(drift.paths[:5])}" if drift.paths else f"to {drift.op}"
    if error:
        say("Ready", False, "ActionFailed", error)
        held = f"held by {hold.guard}: {hold.reason}" if hold is not None else ""
        say("Progressing", False, "ActionFailed", f"tried {drift.attempts} times; {held or 'it will be tried again'}")
        say("Reconciling", not held, "Held" if held else "Retrying", held or what)
        say("Degraded", True, "ActionFailed", error)
    elif hold is not None and drift.phase is Phase.OPEN:
        say("Ready", False, "Held", f"{what}; held by {hold.guard}: {hold.reason}")
        say("Progressing", False, "Waiting" if hold.passes else "Held", hold.reason)
        say("Reconciling", False, "Held", f"held by {hold.guard}: {hold.reason}")
        say("Degraded", False, "Held")
    else:
        say("Ready", False, "Drifted", what)
        say("Progressing", True, "Acting" if drift.in_flight else "Pending", what)
        say("Reconciling", True, "Acting" if drift.in_flight else "Pending", what)
        say("Degraded", False, "Drifted")
