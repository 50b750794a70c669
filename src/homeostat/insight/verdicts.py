"""What the guards say of all that is open in a fleet, in words and figures: the real guards, on the ledger as the API shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from homeostat.guards import decide, invariant
from homeostat.insight.fleets import View, hold_of
from homeostat.insight.words import count
from homeostat.loop.fleet import Drift, Fleet, Grant, Halt, Hold


class FleetVerdict(msgspec.Struct):
    """What happens to a plan in one fleet."""

    fleet: str
    size: int
    mode: str
    now: int = 0
    later: int = 0  # in waves behind
    held: dict[str, tuple[int, str]] = msgspec.field(default_factory=dict)  # by guard: how many, and why
    halts: list[Halt] = msgspec.field(default_factory=list)
    asked: dict[str, Grant] = msgspec.field(default_factory=dict)  # what the plan changes and deletes, by kind
    approvable: bool = False  # an approval of the whole change set lets more of it through
    begins: bool = False  # nothing of it is there yet, nor is its policy

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


def _refused(view: View, drift: Drift) -> Hold | None:
    """That the loop says an invariant would be broken: it knows what there was before, which the API does not show."""
    hold = None if drift.made_from.startswith("plan:") else hold_of(view.at(drift.ref))
    return hold if hold is not None and hold.guard == invariant.GUARD else None


def judge(view: View, fleet: Fleet) -> FleetVerdict:
    """The guards' verdict on all that is open in a fleet."""
    policy, fleet.wholes = view.gate.policy(fleet), view.gate.wholes(fleet)
    verdict = decide(policy, fleet, view.now)
    verdict.sift(lambda drift: _refused(view, drift))
    found = FleetVerdict(
        fleet.name, fleet.size, str(policy.mode), len(verdict.allowed), halts=list(verdict.halts.values())
    )
    for hold in verdict.held.values():
        if hold.passes:
            found.later += 1
        else:
            number, reason = found.held.get(hold.guard, (0, hold.reason))
            found.held[hold.guard] = (number + 1, reason)
    return found
