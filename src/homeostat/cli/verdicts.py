"""What the guards will say of a plan, in words: the real guards, on the fleet as it would be right after the write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from homeostat.cli.fleets import View
from homeostat.cli.planning import Plan, Step
from homeostat.cli.show import count
from homeostat.guards import decide
from homeostat.guards.grants import counted
from homeostat.guards.policy import Mode
from homeostat.loop.fleet import Cause, Drift, Fleet, Grant, Halt, Op, Ref

PASSING = frozenset(("cap", "canary", "domain", "backoff"))
"""Guards whose holds pass by themselves, as waves are verified and time goes by."""


@dataclass(slots=True)
class FleetVerdict:
    """What happens to a plan in one fleet."""

    fleet: str
    size: int
    mode: str
    now: int = 0
    later: int = 0  # in waves behind
    held: dict[str, tuple[int, str]] = field(default_factory=dict)  # by guard: how many, and why
    halts: list[Halt] = field(default_factory=list)
    asked: dict[str, Grant] = field(default_factory=dict)  # what the plan changes and deletes, by kind
    approvable: bool = False  # an approval of the whole change set lets more of it through

    @property
    def stopped(self) -> int:
        """How much of it does not go on by itself."""
        return sum(number for number, _ in self.held.values())

    @property
    def open(self) -> bool:
        """Whether all of it goes through by itself."""
        return not self.held and not self.halts

    def lines(self) -> Iterator[str]:
        """For people."""
        told: list[str] = []
        if self.now:
            told.append(f"{self.now} at once")
        if self.later:
            told.append(f"{self.later} in waves behind, each as soon as the one before is verified")
        if self.stopped:
            told.append(f"{self.stopped} held")
        yield f"  {self.fleet} ({count(self.size, 'resource')}, {self.mode}): {'; '.join(told) or 'nothing to do'}"
        halting = {halt.guard for halt in self.halts}
        for halt in self.halts:
            yield f"    {halt.guard} halts it: {halt.reason}"
        for guard, (number, reason) in self.held.items():
            if guard not in halting:
                yield f"    {guard} holds {number}: {reason}"

    def data(self) -> dict[str, Any]:
        """For programs."""
        return {
            "fleet": self.fleet,
            "size": self.size,
            "mode": self.mode,
            "now": self.now,
            "later": self.later,
            "held": [{"guard": g, "count": n, "reason": r} for g, (n, r) in self.held.items()],
            "halts": [{"guard": h.guard, "reason": h.reason, "plan": h.plan} for h in self.halts],
            "approvable": self.approvable,
        }


def judge_plan(view: View, plan: Plan) -> list[FleetVerdict]:
    """The guards' verdict on what the loop will have to do once the plan is written. `view` is changed by it.

    Objects that the loop does not keep take effect by being written, and no guard is asked.
    """
    touched: dict[str, Fleet] = {}
    for step in plan.changes:
        if (fleet := _declare(view, plan, step)) is not None:
            touched[fleet.name] = fleet
    return [_judge_with(view, fleet, plan.change_set) for fleet in touched.values()]


def _judge_with(view: View, fleet: Fleet, change_set: str) -> FleetVerdict:
    """The verdict, and whether it is another one where the change set carries its approval."""
    found = judge(view, fleet)
    found.asked = counted(drift for drift in fleet.drifts.values() if drift.change_set == change_set)
    if found.asked and found.stopped:
        fleet.grants[change_set] = Grant(*map(sum, zip(*found.asked.values(), strict=True)))
        found.approvable = judge(view, fleet).stopped < found.stopped
        del fleet.grants[change_set]
    return found


def judge(view: View, fleet: Fleet) -> FleetVerdict:
    """The guards' verdict on all that is open in a fleet."""
    policy = view.gate.policy(fleet)
    verdict = decide(policy, fleet, view.now)
    found = FleetVerdict(
        fleet.name, fleet.size, str(policy.mode), len(verdict.allowed), halts=list(verdict.halts.values())
    )
    for hold in verdict.held.values():
        if hold.guard in PASSING and not hold.plan:
            found.later += 1
        else:
            number, reason = found.held.get(hold.guard, (0, hold.reason))
            found.held[hold.guard] = (number + 1, reason)
    return found


def _declare(view: View, plan: Plan, step: Step) -> Fleet | None:
    """Enters a step in the ledger as the engine will find it; None where there is nothing for the loop in it."""
    assert step.op is not None
    kind = next((k for k in view.kinds.values() if (k.api_version, k.kind) == _type(step)), None)
    if kind is None or (step.op is Op.UPDATE and not step.diff.touches("spec")):
        return None
    metadata = step.document.obj["metadata"]
    uid = (step.live or {}).get("metadata", {}).get("uid", "")
    fleet = view.fleet(kind.name, step.namespace, metadata.get("labels") or {})
    fleet.size += step.op is Op.CREATE
    ref = Ref(kind.name, step.namespace, step.document.name, uid)
    known = fleet.drifts.get(ref)
    op = Op.CREATE if known is not None and known.op is Op.CREATE else step.op
    fleet.drifts[ref] = Drift(ref, op, Cause.INTENT, view.now, f"plan:{ref}", change_set=plan.change_set)
    return fleet


def _type(step: Step) -> tuple[str, str]:
    return step.document.api_version, step.document.kind


def verdict_lines(verdicts: Sequence[FleetVerdict]) -> list[str]:
    """The guards' verdict for people; empty where no guard was asked."""
    if not verdicts:
        return []
    word = "let it through" if all(verdict.open for verdict in verdicts) else "have something to say"
    lines = [f"Guards: {word}", *(line for verdict in verdicts for line in verdict.lines())]
    watched = [verdict.fleet for verdict in verdicts if verdict.mode == Mode.OBSERVE]
    return lines + [f"  to act on {name}: homeostat enforce {name}" for name in watched]
