"""What the governor only says: warnings and reports become Events, and conditions of the workloads that they are about.

A warning of idle GPUs, a promise that was not kept, a budget that is used up, an observer that is suspected: each is told once when it
begins, on the object that it is about (`kubectl describe`, `kubectl events`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from homeostat.gpu.cycle import span
from homeostat.gpu.decisions import Constraint, Decision, Memory, Plan, Verb
from homeostat.gpu.kinds import WORKLOAD
from homeostat.loop.events import About, Notice
from homeostat.model.clock import parse_time
from homeostat.model.conditions import find_condition, set_condition

Object = dict[str, Any]

_WORDS = {
    Constraint.IDLE: "Idle",
    Constraint.SLA: "SlaMissed",
    Constraint.BUDGET: "BudgetUsedUp",
    Constraint.DRAIN: "HoldsUpDrain",
    Constraint.TENANT: "UnknownTenant",
    Constraint.OBSERVER: "ObserverSuspected",
    Constraint.SUSPENSION: "CannotSuspend",
}
_USED_AGAIN = "its GPUs are used again, or it has only just come back to them"


class Notices:
    """Remembers what was said at the last cycle, so that what goes on is not said again."""

    def __init__(self) -> None:
        self._last: frozenset[tuple[str, str, Constraint]] = frozenset()
        self._marks: dict[str, dict[Constraint, str]] = {}  # by uid: what is said of a workload as long as it is so
        self._late: set[str] = set()  # by uid: who ended after its deadline
        self.changed: set[str] = set()
        """By uid: workloads whose conditions change by what was said last."""
        self._memory = Memory()

    def of(self, plan: Plan, about: Callable[[Decision], About | None]) -> list[Notice]:
        """What is new in a plan. `about` finds the object; what is gone by now is not told of."""
        said = [one for one in plan.of(Verb.WARN, Verb.REPORT, Verb.KEEP) if one.constraint is not Constraint.NONE]
        now = frozenset((one.kind, one.subject, one.constraint) for one in said)
        found = []
        self.changed = self._memory.warned.keys() - plan.memory.warned.keys()
        for one in said:
            if one.kind == WORKLOAD.kind:
                self._marks.setdefault(one.subject, {})[one.constraint] = one.reason
                self.changed.add(one.subject)
            if (one.kind, one.subject, one.constraint) not in self._last and (whom := about(one)) is not None:
                word = _WORDS.get(one.constraint, str(one.verb).capitalize())
                found.append(Notice(whom, word, one.reason, warning=True))
        self._last, self._memory = now, plan.memory
        return found

    def ended(self, obj: Mapping[str, Any], at: float) -> Notice | None:
        """Of a workload that ended at this time: that it did so after its deadline, where no plan has said so. A plan is made every few seconds, and
        none while the governor is away."""
        meta, deadline = obj["metadata"], obj["spec"].get("deadline")
        told = f"{meta['uid']}/deadline" in self._memory.missed or meta["uid"] in self._late
        if not deadline or told or at <= parse_time(deadline):
            return None
        self._late.add(meta["uid"])
        reason = self._marks.setdefault(meta["uid"], {})[Constraint.SLA] = f"it ended {span(at - parse_time(deadline))} after its deadline"
        about = About(WORKLOAD.api_version, WORKLOAD.kind, meta.get("namespace", ""), meta["name"], meta["uid"])
        return Notice(about, _WORDS[Constraint.SLA], reason, warning=True)

    def forget(self, uid: str) -> None:
        """It is no more."""
        self._marks.pop(uid, None)
        self._late.discard(uid)

    def is_silent(self, obj: Mapping[str, Any]) -> bool:
        """Whether nothing is to be said in the conditions of a workload that has none yet."""
        return obj["metadata"]["uid"] not in self._marks and not _cannot_suspend(obj)

    def conditions(self, obj: Mapping[str, Any], said: Mapping[str, Any], now: str) -> list[Object] | None:
        """The conditions in `said`, with `SlaMet`, `Idle` and `Suspendable` as they are now; None where that changes nothing."""
        uid, marks = obj["metadata"]["uid"], self._marks.get(obj["metadata"]["uid"], {})
        built: Object = {"status": {"conditions": [dict(one) for one in said.get("conditions") or ()]}}
        generation, changed = obj["metadata"].get("generation"), False
        if Constraint.SLA in marks:
            changed |= set_condition(
                built, "SlaMet", "False", now=now, reason="SlaMissed", message=marks[Constraint.SLA], observed_generation=generation
            )
        idle = find_condition(built, "Idle") or {}
        if uid in self._memory.warned and Constraint.IDLE in marks:
            changed |= set_condition(
                built, "Idle", "True", now=now, reason="Warned", message=marks[Constraint.IDLE], observed_generation=generation
            )
        elif idle.get("status") == "True" and uid not in self._memory.warned:
            marks.pop(Constraint.IDLE, None)
            changed |= set_condition(
                built, "Idle", "False", now=now, reason="InUse", message=_USED_AGAIN, observed_generation=generation
            )
        changed |= _mark_suspendable(built, obj, now)
        return built["status"]["conditions"] if changed else None


def _cannot_suspend(obj: Mapping[str, Any]) -> bool:
    decided = (obj.get("status") or {}).get("decision") or {}
    return (decided.get("verb"), decided.get("constraint")) == (Verb.KEEP, Constraint.SUSPENSION)


def _mark_suspendable(built: Object, obj: Mapping[str, Any], now: str) -> bool:
    """Says that one cannot be suspended, by what was decided of it; and that this is over, once it was or is begun anew."""
    status, generation = obj.get("status") or {}, obj["metadata"].get("generation")
    decided = status.get("decision") or {}
    if _cannot_suspend(obj):
        why = decided["reason"]
        return set_condition(built, "Suspendable", "False", now=now, reason="CannotSuspend", message=why, observed_generation=generation)
    over = status.get("phase") == "Suspended" or decided.get("verb") in (Verb.ADMIT, Verb.RESUME, Verb.MIGRATE)
    if not over or (find_condition(built, "Suspendable") or {}).get("status") != "False":
        return False
    why = "it was suspended, or begun anew"
    return set_condition(built, "Suspendable", "True", now=now, reason="Over", message=why, observed_generation=generation)
