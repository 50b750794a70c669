"""The whole chain of a decision about one resource: what was seen, what differs, who caused it, what each guard says, what comes next."""

from __future__ import annotations

from typing import Any

from homeostat.guards import explain
from homeostat.guards.freeze import GUARD as FREEZE
from homeostat.guards.freeze import covers, standing
from homeostat.guards.runbook import WAYS_OUT, to_lift
from homeostat.insight.fleets import View, hold_of
from homeostat.insight.loops import unkept_lines
from homeostat.insight.open import drift_data
from homeostat.insight.words import ago
from homeostat.loop.fleet import RETURN_PREFIX, Hold, Ref
from homeostat.model.clock import parse_time
from homeostat.model.conditions import find_condition
from homeostat.model.protocol import CHANGE_SET

CAUSES = {
    "intent": "the declaration changed",
    "drift": "reality changed",
    "both": "the declaration changed, and reality too",
}


class Chain:
    """Everything that is known of one resource's last decision."""

    def __init__(self, view: View, ref: Ref) -> None:
        self.view, self.ref, self.obj = view, ref, view.at(ref)
        self.fleet = view.fleet_of(ref)
        self.policy, self.fleet.wholes = view.gate.policy(self.fleet), view.gate.wholes(self.fleet)
        self.drift = self.fleet.drifts.get(ref)
        self.hold = hold_of(self.obj)
        self.halts = view.halts(self.fleet)
        said = explain(self.policy, self.fleet, ref, view.now) if self.drift is not None else []
        self.guards: dict[str, Hold | None] = {}  # some judge twice: what one of them holds is held
        for guard, hold in said:
            self.guards[guard] = self.guards.get(guard) or hold
        if self.hold is not None and self.hold.guard in self.guards:
            self.guards[self.hold.guard] = self.guards[self.hold.guard] or self.hold  # the loop knows more than can be seen from here
        self.status: dict[str, Any] = self.obj.get("status") or {}

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "resource": str(self.ref),
            "fleet": self.fleet.name,
            "mode": str(self.policy.mode),
            "policies": self.policies,
            "declared": self.declared,
            "observed": self.observed,
            "cause": self.cause,
            "drift": None if self.drift is None else drift_data(self.view, self.ref, self.drift),
            "decision": self.decision,
            "halts": [{"guard": h.guard, "reason": h.reason, "plan": h.plan} for h in self.halts],
            "guards": [{"guard": name, "holds": hold.reason if hold else ""} for name, hold in self.guards.items()],
            "next": self.next,
        }

    @property
    def declared(self) -> str:
        """Which generation is declared, and by whom it was last."""
        metadata = self.obj["metadata"]
        if by := self.obj.get("declaredBy"):
            return f"by {by}"
        written = [e for e in metadata.get("managedFields") or () if "f:spec" in (e.get("fieldsV1") or {})]
        last: dict[str, Any] = max(written, key=lambda entry: entry.get("time", ""), default={})
        by = f", last by {last['manager']} at {last.get('time', '?')}" if last else ""
        back = (metadata.get("annotations") or {}).get(CHANGE_SET, "")
        taken = f"; taken back to it by the loop, as {back}" if back.startswith(RETURN_PREFIX) else ""
        return f"generation {metadata.get('generation', 0)}{by}{taken}"

    @property
    def unseen(self) -> bool:
        """Whether no loop has ever looked at it."""
        return self.ref not in self.view.children and self.status.get("observedGeneration") is None

    @property
    def observed(self) -> str:
        """Which generation was looked at, and when."""
        seen = self.status.get("observedGeneration")
        if self.ref in self.view.children:
            return "as it is told below" if self.drift is not None else "it cannot be read"
        if self.unseen:
            return "never: no loop has looked at it. Is its provider on?"
        current = "the present one" if seen == self.obj["metadata"].get("generation") else "not yet the present one"
        said = f"generation {seen}, {current}"
        if not (text := self.status.get("observedAt")):
            return said
        at = parse_time(text)
        looked = max(at, self.view.loop(self.ref.kind).last_pass)
        return f"{said}; looked at {ago(self.view.now - looked)} ago, and found so since {text}"

    @property
    def cause(self) -> str:
        """Why it differs, and by whose doing; empty where it does not."""
        if self.drift is None:
            return ""
        by = f", by {' and '.join(self.drift.by)}" if self.drift.by else ""
        return f"{CAUSES[self.drift.cause]}{by}" + (f"; change set {self.drift.change_set}" if self.drift.change_set else "")

    @property
    def policies(self) -> list[str]:
        """The names of the policies that guard it."""
        return [policy["metadata"]["name"] for policy in self.view.policies_of(self.fleet)]

    @property
    def decision(self) -> str:
        """What became of it."""
        ready = find_condition(self.obj, "Ready") or {}
        if self.hold is not None and not self.view.composes(self.ref.kind):  # that says which of what it declares is held
            failed = f"{ready['message']}; " if ready.get("reason") == "ActionFailed" else ""
            return f"{failed}held by {self.hold.guard}: {self.hold.reason}"
        return f"{ready.get('reason', 'none yet')}: {ready.get('message', '')}".rstrip(": ")

    def _held_below(self) -> Ref | None:
        """The first of what it declares that a guard holds."""
        if self.ref not in self.view.objects or not self.view.composes(self.ref.kind):
            return None
        ours = sorted(ref for ref in self.view.children if ref.uid == self.ref.uid)
        return next((ref for ref in ours if hold_of(self.view.at(ref)) is not None), None)

    @property
    def next(self) -> str:
        """What comes now, or what a person can do."""
        if (loop := self.view.unkept.get(self.ref.kind)) is not None:
            return unkept_lines({self.ref.kind: loop}, self.view.now)[0]
        if (held := self._held_below()) is not None:
            return f"of {' '.join(self.view.names(held))}: {Chain(self.view, held).next}"
        plan = next((halt.plan for halt in self.halts if self.hold and halt.guard == self.hold.guard and halt.plan), "")
        if plan:
            return f"a fix, then a whole pass; or, if it is meant: homeostat approve {plan}"
        if self.hold is not None and self.hold.guard == FREEZE:
            ours = [one for one in standing(self.policy, self.view.now) if covers(one, self.ref)]
            lifting = dict.fromkeys(to_lift(self.fleet, one) for one in ours) or (f"homeostat unfreeze {self.fleet.name}",)
            return f"it goes on when the freeze ends or somebody lifts it: {' and '.join(lifting)}"
        if self.hold is not None:
            way = WAYS_OUT.get(self.hold.guard, "")
            return way.format(fleet=self.fleet.name) if way else "it goes on by itself when the guard lets it"
        if self.drift is not None:
            return "it is tried again, later after each failure" if self.drift.failures else "it is being done"
        if self.ref in self.view.uncomposed:
            return "it is composed again when its declaration, its source or its composer changes; until then what it declared before stays"
        if self.ref in self.fleet.unknown:
            return "it is looked at again with the next pass; nothing is done until it can be read"
        if self.unseen:
            return "it is looked at when a loop with its provider runs: `homeostat doctor` says which kinds are kept"
        return "nothing, until something changes; every pass looks at it"
