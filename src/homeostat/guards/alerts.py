"""Alerts, as far as they can be decided without I/O: what needs a person now, who has been told, and who is owed a word.

All of it follows the state and not its changes: whatever stands and was not told is owed, so a word that got lost is said again, and
one that was said is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from homeostat.guards.freeze import standing as freezes
from homeostat.guards.policy import Alert, AlertOn, GuardPolicy
from homeostat.guards.runbook import WAYS_OUT, look_at, to_lift
from homeostat.loop.fleet import Fleet, Halt, Hold, Ref, Verdict
from homeostat.model.clock import format_time, parse_time

FAILED_OFTEN = 5
"""An action that failed so many times in a row needs a person."""
SHOWN = 5
"""Resources that are named."""
CALM_SECONDS = 30.0
"""So long something must be gone before it is said to be over: what comes and goes is one thing."""
OWED_SECONDS = 3600.0
"""How long it is tried to say that something is over."""
RETURN_SECONDS = 600.0
"""How long it is told that a change set was taken back, or could not be."""
MOST = 500
"""Situations that are kept for one receiver."""

_HELD = {
    "flap": AlertOn.FLAP,
    "invariant": AlertOn.INVARIANT,
    "ownership": AlertOn.OWNERSHIP,
    "breaker": AlertOn.BREAKER,
}


class Situation(msgspec.Struct, frozen=True):
    """Something that a person should know of. `about` tells it apart from others of its fleet."""

    on: AlertOn
    about: str
    guard: str
    reason: str
    since: float
    plan: str = ""
    what_to_do: str = ""
    change_set: str = ""
    commands: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()  # the first few
    count: int = 0


def situations(
    policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float, on: Collection[AlertOn]
) -> dict[str, Situation]:
    """What stands in a fleet after this verdict, of these kinds, by what it is about."""
    found: list[Situation] = []
    if AlertOn.HALT in on:
        found += (_halted(fleet, key, halt) for key, halt in verdict.halts.items())
    if verdict.held and not _HELD_KINDS.isdisjoint(on):
        found += _held(fleet, verdict, now)
    if AlertOn.ACTION_FAILED in on:
        found += _failing(fleet, now)
    if AlertOn.UNKNOWN in on and fleet.unknown and "unknown" not in verdict.halts:
        found.append(_unknown(fleet, now))
    if AlertOn.FROZEN in on:
        found += _frozen(policy, fleet, now)
    if AlertOn.RETURN in on:
        found += _returned(fleet, now)
    return {one.about: one for one in found if one.on in on}


_HELD_KINDS = frozenset((AlertOn.APPROVAL, *_HELD.values()))


def _halted(fleet: Fleet, key: str, halt: Halt) -> Situation:
    drifts = fleet.drifts.values()
    refs = (
        fleet.unknown
        if halt.guard == "unknown" and not halt.plan
        else [d.ref for d in drifts if not halt.change_set or d.wave == halt.change_set]
    )
    commands = [f"homeostat plan {fleet.name}"] if not halt.change_set and halt.plan else []
    if halt.change_set:
        commands.append(f"homeostat history --change-set {halt.change_set}")
    if halt.plan:
        commands.append(f"homeostat approve {halt.plan}")
    return _named(
        Situation(
            AlertOn.HALT,
            f"halt/{key}",
            halt.guard,
            halt.reason,
            halt.since,
            halt.plan,
            halt.what_to_do,
            halt.change_set,
            ("homeostat runbook", *commands),
        ),
        refs,
    )


def _held(fleet: Fleet, verdict: Verdict, now: float) -> Iterator[Situation]:
    halting = {halt.guard for halt in verdict.halts.values()}
    kinds: dict[tuple[AlertOn, str, str], list[tuple[Ref, Hold]]] = {}
    for ref, hold in verdict.held.items():
        on = AlertOn.APPROVAL if hold.plan else _HELD.get(hold.guard)
        if on is not None and hold.guard not in halting:
            kinds.setdefault((on, hold.guard, hold.plan), []).append((ref, hold))
    for (on, guard, plan), held in kinds.items():
        way_out = f"If it is meant: homeostat approve {plan}" if plan else WAYS_OUT.get(guard, "")
        commands = (f"homeostat plan {fleet.name}", f"homeostat approve {plan}") if plan else ()
        what_to_do = way_out.format(fleet=fleet.name)
        # Not by its plan: that changes with everything that comes and goes, and is still the same question.
        found = Situation(on, f"held/{guard}", guard, held[0][1].reason, now, plan, what_to_do, commands=commands)
        yield _named(found, [ref for ref, _ in held])


def _failing(fleet: Fleet, now: float) -> Iterator[Situation]:
    failing = [drift for drift in fleet.drifts.values() if drift.failures >= FAILED_OFTEN]
    if failing:
        worst = max(failing, key=lambda drift: drift.failures)
        reason = f"{worst.ref} failed {FAILED_OFTEN} times in a row or more: {worst.error or 'it gave no reason'}"
        what_to_do = "Mend what it says; it is tried again after a wait."
        found = Situation(AlertOn.ACTION_FAILED, "failing", "backoff", reason, now, what_to_do=what_to_do)
        yield _named(found, [drift.ref for drift in failing])


def _unknown(fleet: Fleet, now: float) -> Situation:
    ref, why = next(iter(fleet.unknown.items()))
    reason, what_to_do = f"{ref} could not be read: {why}", WAYS_OUT["unknown"]
    return _named(Situation(AlertOn.UNKNOWN, "unknown", "unknown", reason, now, what_to_do=what_to_do), fleet.unknown)


def _frozen(policy: GuardPolicy, fleet: Fleet, now: float) -> Iterator[Situation]:
    for freeze in freezes(policy, now):
        end = f" until {format_time(freeze.until.timestamp())}" if freeze.until else ""
        reason = f"frozen{end} by {freeze.author}: {freeze.reason}"
        yield Situation(
            AlertOn.FROZEN,
            f"frozen/{freeze.author}: {freeze.reason}",
            "freeze",
            reason,
            now,
            what_to_do=f"Ask {freeze.author}, then: {to_lift(fleet, freeze)}",
            commands=(f"homeostat drift {fleet.name}", to_lift(fleet, freeze)),
        )


def _returned(fleet: Fleet, now: float) -> Iterator[Situation]:
    """For a while: that something was taken back is over as soon as it is."""
    for change_set, taken in fleet.returned.items():
        if now < taken.at + RETURN_SECONDS:
            yield Situation(
                AlertOn.RETURN,
                f"return/{change_set}",
                "canary",
                f"change set {change_set} failed; it {taken.words}",
                taken.at,
                what_to_do="Look at what failed before it is declared again.",
                change_set=change_set,
                commands=("homeostat runbook", f"homeostat history --change-set {change_set}"),
            )


def _named(situation: Situation, refs: Iterable[Ref]) -> Situation:
    """With the resources that it is about: the first few by name, and how many there are."""
    from heapq import nsmallest

    refs = list(refs)
    first = nsmallest(SHOWN, refs)
    commands = (*situation.commands, *(look_at(ref) for ref in first[:2]))
    return replace(situation, commands=commands, resources=tuple(map(str, first)), count=len(refs))


class State(StrEnum):
    """What is said of a situation."""

    FIRING = "firing"
    UPDATED = "updated"  # the plan to approve is another than the one that was told
    REMINDER = "reminder"
    RESOLVED = "resolved"


class Line(msgspec.Struct):
    """A situation, as one receiver knows it. Times are wall seconds; 0 is never."""

    fleet: str
    situation: Situation
    told: float = 0.0
    told_plan: str = ""
    updates: int = 0  # how often another plan was told
    changed: float = 0.0  # when the plan became what it is
    ended: float = 0.0

    def enter(self, situation: Situation, now: float) -> None:
        """It stands, and is so now. Since when stays."""
        if situation.plan != self.situation.plan:
            self.changed = now
        self.situation, self.ended = replace(situation, since=self.situation.since), 0.0

    def due(self, remind_after: float, calm: float) -> tuple[float, State] | None:
        """When something is to be said of it, and what; None: never, if nothing happens."""
        if self.ended:
            return self.ended + calm, State.RESOLVED
        if not self.told:
            return 0.0, State.FIRING
        found = []
        if remind_after:
            found.append((self.told + remind_after, State.REMINDER))
        if self.situation.plan not in ("", self.told_plan):  # once it has settled, and less often the more often it moves
            found.append((max(self.changed + calm, self.told + calm * 2.0**self.updates), State.UPDATED))
        return min(found, default=None)


class Book(msgspec.Struct):
    """What one receiver was told and is owed. Pure: times are handed in."""

    remind_after: float
    calm: float = CALM_SECONDS
    lines: dict[tuple[str, str], Line] = msgspec.field(default_factory=dict)
    dropped: int = 0
    """Situations for which there was no room, and ends of some that could not be told in time."""

    def enter(self, fleet: str, standing: Mapping[str, Situation], now: float, *, whole: bool) -> None:
        """What stands in a fleet now. Unless the fleet was looked at as a `whole`, what is missing may only not be seen yet."""
        for about, situation in standing.items():
            line = self.lines.get((fleet, about))
            if line is not None:
                line.enter(situation, now)
            elif len(self.lines) < MOST:
                self.lines[fleet, about] = Line(fleet, situation)
            else:
                self.dropped += 1
        if whole:
            for (of, about), line in self.lines.items():
                if of == fleet and about not in standing and not line.ended:
                    line.ended = now

    def owed(self, now: float) -> list[tuple[Line, State]]:
        """What is to be said now."""
        due = ((line, line.due(self.remind_after, self.calm)) for line in self.lines.values())
        return [(line, when[1]) for line, when in due if when is not None and when[0] <= now]

    def said(self, line: Line, state: State, plan: str, now: float) -> None:
        """The receiver has taken it, with this plan in it."""
        if state is State.RESOLVED:
            if line.ended:  # else it came back while it was said to be over, and that is to be told
                self.lines.pop((line.fleet, line.situation.about), None)
            else:
                line.told = 0.0
        else:
            line.told, line.told_plan = now, plan
            line.updates += state is State.UPDATED

    def give_up(self, now: float) -> None:
        """Forgets what is long over and could not be told."""
        for key in [key for key, line in self.lines.items() if line.ended and now > line.ended + OWED_SECONDS]:
            del self.lines[key]
            self.dropped += 1

    def next(self) -> float | None:
        """When something will be owed, if nothing else happens; None: never."""
        due = (line.due(self.remind_after, self.calm) for line in self.lines.values())
        return min((when[0] for when in due if when is not None), default=None)

    # Over a restart

    def shown(self, receiver: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each fleet and what the status of its policies keeps of it."""
        for line in self.lines.values():
            one = line.situation
            told = {"told": format_time(line.told), "plan": line.told_plan} if line.told else {}
            yield (
                line.fleet,
                {
                    "receiver": receiver,
                    "fleet": line.fleet,
                    "about": one.about,
                    "on": str(one.on),
                    "guard": one.guard,
                    "since": format_time(one.since),
                    **told,
                },
            )

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Takes in what a status kept. What stands is entered anew; what does not is over, and that is told."""
        key = kept["fleet"], kept["about"]
        if key in self.lines or kept["on"] not in AlertOn._value2member_map_:
            return
        reason, plan = "it was so before the loop was started anew", kept.get("plan", "")
        since, told = parse_time(kept["since"]), parse_time(kept["told"]) if kept.get("told") else 0.0
        situation = Situation(AlertOn(kept["on"]), kept["about"], kept["guard"], reason, since, plan)
        self.lines[key] = Line(kept["fleet"], situation, told, plan)


def receiver_id(alert: Alert) -> str:
    """The name of a receiver in a status: a hash, for the address of a webhook is often its secret."""
    import hashlib

    return hashlib.sha256(alert.webhook.encode()).hexdigest()[:12]
