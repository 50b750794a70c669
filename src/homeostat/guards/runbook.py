"""The runbook: for what is halted, frozen or held now, what happened, what to look at, and the commands that lead out
of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized

from homeostat.guards import mass_drift, unknown
from homeostat.guards.freeze import itself, standing
from homeostat.guards.policy import Freeze, GuardPolicy
from homeostat.loop.declarations import ADOPT
from homeostat.loop.fleet import RETURN_PREFIX, Cause, Drift, Fleet, Halt, Hold, Op, Ref, Taken, Verdict, plan_hash
from homeostat.model.clock import format_time

_SHOWN = 3
_RETURN_SECONDS = 86400.0  # for so long a person who comes to look is told that something was taken back


def runbook(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float, asks: Mapping[Hold, int] = {}) -> list[str]:
    """Lines for a person. Empty where nothing needs one. `asks` are holds that want a word, and how many things wait for each: also where
    nobody knows which."""
    lines: list[str] = []
    for freeze in standing(policy, now):
        lines += _frozen(fleet, freeze)
    for _, halt in sorted(verdict.halts.items()):
        lines += _halted(fleet, halt)
    told = {halt.change_set for halt in verdict.halts.values()}
    for change_set, taken in sorted(fleet.returned.items()):
        if change_set not in told and now < taken.at + _RETURN_SECONDS:
            lines += _returned(fleet, change_set, taken)
    halts = {halt.guard for halt in verdict.halts.values()} | {"freeze"}
    kinds: dict[tuple[str, str], list[tuple[Ref, Hold]]] = {}
    for ref, hold in verdict.held.items():
        if hold.guard not in halts and not hold.passes:
            kinds.setdefault((hold.guard, hold.reason), []).append((ref, hold))
    for held in kinds.values():
        lines += _held(fleet, held)
    for hold, count in asks.items():
        if (hold.guard, hold.reason) not in kinds:
            lines += _asked(fleet, hold, count)
    if fleet.unknown and unknown.GUARD not in {halt.guard for halt in verdict.halts.values()}:
        lines += _unread(fleet)
    if fleet.unhealthy:
        lines += _ill(fleet)
    return lines


def _frozen(fleet: Fleet, freeze: Freeze) -> Iterator[str]:
    until = f" until {format_time(freeze.until.timestamp())}" if freeze.until else ", with no end"
    scope = [*freeze.kinds, *(f"namespace {name}" for name in freeze.namespaces), *freeze.names]
    yield f"{fleet.name}: frozen{until}" + (f" ({', '.join(scope)})" if scope else "")
    yield f"  what happened: {freeze.author} froze it: {freeze.reason}"
    yield f"  look at: homeostat drift {fleet.name}"
    yield f"  way out: ask {freeze.author}, then {to_lift(fleet, freeze)}"


def to_lift(fleet: Fleet, freeze: Freeze) -> str:
    """The command that lifts a freeze: of one thing that alone, else all of the fleet."""
    if len(freeze.kinds) == len(freeze.names) == 1 and len(freeze.namespaces) <= 1:
        return f"homeostat unfreeze {freeze.kinds[0]}/{freeze.names[0]}" + "".join(f" -n {name}" for name in freeze.namespaces)
    return f"homeostat unfreeze {fleet.name}"


def _halted(fleet: Fleet, halt: Halt) -> Iterator[str]:
    yield f"{fleet.name}: halted by {halt.guard} since {format_time(halt.since)}"
    yield f"  what happened: {halt.reason}"
    if halt.guard == unknown.GUARD and not halt.plan:
        for ref, why in sorted(fleet.unknown.items())[:_SHOWN]:
            yield f"  look at: {look_at(ref)}   # {why}"
        yield "  way out: make them readable again; it goes on by itself"
        return
    if halt.guard == mass_drift.GUARD and not halt.plan:  # what it was about is no more, or cannot be seen
        yield f"  look at: homeostat drift {fleet.name}"
        yield f"  way out: {halt.what_to_do[:1].lower()}{halt.what_to_do[1:].removesuffix('.')}"
        return
    looked = _about(fleet, halt)
    change_set = halt.change_set or _pushed(looked)
    for drift in looked[:_SHOWN]:
        yield f"  look at: {look_at(drift.ref)}"
    if change_set:
        yield f"  look at: homeostat history --change-set {change_set}"
    if halt.change_set:
        yield "  way out, if it is wrong: correct the declaration, or apply the last good one"
    elif halt.guard == unknown.GUARD:
        yield f"  look at: homeostat plan {fleet.name}"
        yield "  way out, if they are there: see why they cannot be seen; it goes on by itself when they are"
    else:
        yield f"  look at: homeostat plan {fleet.name}"
        yield "  way out, if it is wrong: correct the declaration or the observer; it goes on after a whole pass under the limit"
    if change_set and not change_set.startswith(RETURN_PREFIX):
        yield f"  way out, by the server's history: homeostat rollback changeset {change_set}"
    yield from _kept(looked)
    if halt.plan:
        yield f"  way out, if {'they are gone' if halt.guard == unknown.GUARD else 'it is meant'}: homeostat approve {halt.plan}"


def _about(fleet: Fleet, halt: Halt) -> list[Drift]:
    """What a halt is about, where that can be told: its change set, or what its plan is made of. Else all that is open."""
    ours = sorted((d for d in fleet.drifts.values() if not halt.change_set or d.wave == halt.change_set), key=lambda d: d.ref)
    kinds = ([d for d in ours if d.op is op] for op in Op)
    return next((some for some in kinds if halt.plan and plan_hash(d for d in some if not d.in_flight) == halt.plan), ours)


def _pushed(drifts: list[Drift]) -> str:
    """The change set by which somebody declared all of these; empty where there are several, where it deleted, which is not taken back, or
    where nobody declared it: it is a repair, or a decision."""
    sets = {drift.change_set for drift in drifts}
    declared = all(drift.cause is Cause.INTENT and drift.op is not Op.DELETE and drift.by for drift in drifts)
    return sets.pop() if declared and len(sets) == 1 else ""


def _kept(drifts: list[Drift]) -> Iterator[str]:
    """How to keep things whose declarations were deleted: no deletion can be taken back. What is composed only has to be declared again."""
    first = drifts[0].ref if drifts and all(drift.op is Op.DELETE for drift in drifts) else None
    if first is not None and itself(first) == (first.kind, first.name):
        where = f" -n {first.namespace}" if first.namespace else ""
        yield f"  way out, to keep what was deleted: let each declaration go without its thing, then declare it anew with {ADOPT}=true:"
        yield f"    kubectl patch {first.kind} {first.name}{where} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"


def _returned(fleet: Fleet, change_set: str, taken: Taken) -> Iterator[str]:
    yield f"{fleet.name}: change set {change_set} failed at {format_time(taken.at)}"
    yield f"  what happened: it {taken.words}"
    yield f"  look at: homeostat history --change-set {change_set}"
    yield "  way out: correct it, and declare it again under another name"


def _held(fleet: Fleet, held: list[tuple[Ref, Hold]]) -> Iterator[str]:
    ref, hold = held[0]
    yield f"{fleet.name}: {ref}{_more(held[1:])} held by {hold.guard}"
    yield f"  what happened: {hold.reason}"
    yield f"  look at: {look_at(ref)}"
    way = WAYS_OUT.get(hold.guard, "")
    yield from _kept([fleet.drifts[one] for one, _ in held if one in fleet.drifts])
    if hold.plan:
        yield f"  way out, if it is meant: homeostat approve {hold.plan}"
    elif way:
        yield f"  way out: {way.format(fleet=fleet.name)}"
    if hold.until:
        yield f"  it is looked at again at {format_time(hold.until)}"


def _asked(fleet: Fleet, hold: Hold, count: int) -> Iterator[str]:
    yield f"{fleet.name}: {count} held by {hold.guard}"
    yield f"  what happened: {hold.reason}"
    yield f"  way out, if it is meant: homeostat approve {hold.plan}"


def _unread(fleet: Fleet) -> Iterator[str]:
    (ref, why), *others = sorted(fleet.unknown.items())
    yield f"{fleet.name}: {ref}{_more(others)} could not be read, and nothing is done there"
    yield f"  what happened: {why}"
    yield f"  look at: {look_at(ref)}"
    yield f"  way out: {WAYS_OUT[unknown.GUARD]}"


def _ill(fleet: Fleet) -> Iterator[str]:
    (ref, change_set), *others = sorted(fleet.unhealthy.items())
    yield f"{fleet.name}: {ref}{_more(others)} not healthy"
    yield "  what happened: it is as declared, and does not do its work" + (f"; declared last by {change_set}" if change_set else "")
    yield f"  look at: {look_at(ref)}"
    yield "  way out: mend what it says; if the declaration made it so, correct that, or apply the last good one"


def _more(others: Sized) -> str:
    return f" and {len(others)} more" if others else ""


WAYS_OUT = {
    "mode": "homeostat enforce {fleet}",
    "window": "wait until it opens, or change the windows of the policy",
    "unknown": "make it readable again; it goes on by itself",
    "ownership": f"to take it over, annotate it with {ADOPT}=true; or take the declaration away",
    "flap": "decide whose field it is: leave it out of the declaration, or stop the other writer; then it goes on by itself",
    "breaker": "mend the target; one probe is let through when the time comes",
    "invariant": "change the declaration so that the invariant holds after it",
}
"""What a person can do where a guard holds something, by guard; `{fleet}` stands for the fleet's name."""


def look_at(ref: Ref) -> str:
    """The command that shows all about a resource."""
    kind, name = itself(ref)
    return f"homeostat explain {kind} {name}" + (f" -n {ref.namespace}" if ref.namespace else "")
