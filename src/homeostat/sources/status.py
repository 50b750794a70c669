"""What the status of a Sync says: where it is, what it would do, what it did, and what is the matter. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from homeostat.loop.compose import Child
from homeostat.loop.parents import SHOWN, child_is, waits_for_a_person
from homeostat.model.conditions import find_condition, set_condition
from homeostat.sources.files import RenderError
from homeostat.sources.goals import SHORT, Goal
from homeostat.sources.preparing import Prepared

LINES = 50
"""Of a plan."""
NOT_OURS = ": it exists and is not ours"
HISTORY = 10
INVENTORY = 1000
"""So many objects are named one by one; of more, how many there are of each kind."""

Object = dict[str, Any]


def plan_of(
    create: Sequence[Child],
    change: Sequence[Child],
    delete: Sequence[Child],
    refused: Sequence[Child],
    commit: str,
    subject: str,
) -> Object:
    """A plan as the status shows it. `refused` exist, are not ours, and are left alone."""
    signed = [("!", refused, NOT_OURS), ("+", create, ""), ("~", change, ""), ("-", delete, "")]
    lines = [f"{sign} {_named(child)}{why}" for sign, children, why in signed for child in sorted(children)]
    more = len(lines) - LINES
    shown = [*lines[:LINES], *([f"… and {more} more"] if more > 0 else [])]
    found: Object = {
        "commit": commit,
        "subject": subject,
        "create": len(create),
        "change": len(change),
        "delete": len(delete),
        "changes": shown,
    }
    return found | ({"refused": len(refused)} if refused else {})


def _named(child: Child) -> str:
    kind = f"{child.kind}.{child.group}" if child.group else child.kind
    return f"{kind} {child.namespace}/{child.name}" if child.namespace else f"{kind} {child.name}"


def inventory_of(children: Iterable[Child], kinds: Iterable[str]) -> Object:
    """All that a Sync keeps: how many of each kind; and which, where they are not too many."""
    counts: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    for child in sorted(children):
        kind = f"{child.kind}.{child.group}" if child.group else child.kind
        counts[kind] = counts.get(kind, 0) + 1
        names.setdefault(kind, []).append(f"{child.namespace}/{child.name}" if child.namespace else child.name)
    found: Object = {"kinds": sorted(kinds), "counts": counts, "objects": None}
    if sum(counts.values()) <= INVENTORY:
        found["objects"] = names
    return found


def remembered(history: Sequence[Object], prepared: Prepared, at: str, outcome: str, message: str = "") -> list[Object]:
    """The history with what became of a commit, the newest first."""
    facts, plan = prepared.facts, prepared.plan
    entry = {
        "commit": facts.id,
        "subject": facts.subject,
        "author": facts.author,
        "at": at,
        "outcome": outcome,
        "changeSet": prepared.change_set,
    }
    entry |= {name: plan.get(name, 0) for name in ("create", "change", "delete")}
    if message:
        entry["message"] = message[:1000]
    if history and (history[0].get("commit"), history[0].get("changeSet"), history[0].get("outcome")) == (
        facts.id,
        prepared.change_set,
        outcome,
    ):
        return list(history)
    return [entry, *history][:HISTORY]


def refused_of(error: RenderError, commit: str) -> Object:
    """Why a commit is refused, and where that stands."""
    place = {"file": error.file or None, "line": error.line or None, "field": error.field or None}
    return {"commit": commit, "message": error.problem, **place}


def last_good(history: Sequence[Mapping[str, Any]], but: str) -> str:
    """The last commit that was applied whole, other than this one; empty where there is none."""
    return next(
        (str(one["commit"]) for one in history if one.get("outcome") == "Applied" and one.get("commit") != but), ""
    )


class Standing(NamedTuple):
    """How the objects of a Sync are: how many are wanted and declared, those of them that are late, and those that are to go."""

    staying: int
    late: list[Object]
    leaving: list[Object]
    waiting: int
    commit: str


def conditions_of(
    obj: Mapping[str, Any], goal: Goal, problem: tuple[str, str] | None, now_is: Standing, now: str
) -> list[Object]:
    """Ready, Degraded, Progressing and Reconciling. `problem` is the reason and message why a commit is not applied."""
    staying, late, leaving, waiting, commit = now_is
    said: Object = {"status": {"conditions": [dict(one) for one in (obj.get("status") or {}).get("conditions") or ()]}}
    generation = obj["metadata"].get("generation", 0)

    def say(kind: str, is_so: bool | None, reason: str, message: str = "") -> None:
        word = "Unknown" if is_so is None else "True" if is_so else "False"
        set_condition(said, kind, word, now=now, reason=reason, message=message, observed_generation=generation)

    bad = [child for child in (*late, *leaving) if child_is(child, "Degraded")]
    held = any(map(waits_for_a_person, (*late, *leaving)))
    done = not (late or leaving or waiting) and bool(commit)
    words = _words(bad, [*late, *leaving])
    note = f"; {goal.message}" if goal.message else ""
    if problem is not None:
        kept = f"; {staying} objects are kept at {commit[:SHORT]}" if commit else ""
        say("Ready", False, problem[0], problem[1] + kept)
        say("Degraded", True, problem[0], problem[1])
    elif goal.is_trouble:
        at = f"; {staying} objects are kept at {commit[:SHORT]}, and nothing is deleted" if commit else ""
        say("Ready", None if goal.reason == "SourceUnknown" else False, goal.reason, goal.message + at)
        say("Degraded", goal.reason != "DependsOn", goal.reason, goal.message)
    elif done:
        say(
            "Ready",
            True,
            goal.reason or "Applied",
            f"{commit[:SHORT]} is applied: {staying} objects are as declared{note}",
        )
        say("Degraded", False, goal.reason or "Applied")
    else:
        say("Ready", False, "ObjectsHeld" if held else "ObjectsNotReady", f"{words or 'nothing is applied yet'}{note}")
        say("Degraded", bool(bad), "ObjectsDegraded" if bad else "ObjectsNotReady", words if bad else "")
    moving = not done and problem is None and not goal.is_trouble and not bad and not held
    word = "ObjectsNotReady" if moving else "Applied" if done else "Stopped"
    say("Progressing", moving, word)
    say("Reconciling", moving, word)
    found: list[Object] = said["status"]["conditions"]
    return found


def _words(bad: Sequence[Object], others: Sequence[Object]) -> str:
    told_first = set(map(id, bad))
    ordered = [*bad, *(one for one in others if id(one) not in told_first)]
    words: dict[str, list[str]] = {}  # by what is said of them: what a guard holds it mostly holds for one reason
    for child in ordered[:SHOWN]:
        manifest, told = child["spec"]["manifest"], (find_condition(child, "Ready") or {}).get("message", "")
        words.setdefault(told or "not looked at yet", []).append(f"{manifest['kind']}/{manifest['metadata']['name']}")
    more = len(ordered) - SHOWN
    said = [f"{', '.join(names)}: {told}" for told, names in words.items()]
    return "; ".join(said) + (f"; and {more} more" if more > 0 else "")
