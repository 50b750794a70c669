"""Parents of a composer: what is known of one, how it is deleted, and what its status says: the sum of what is known of its children."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
from xxhash import xxh3_128_hexdigest

from homeostat.client import Key
from homeostat.loop.compose import Child, applied_by
from homeostat.loop.declarations import ADOPT, Object
from homeostat.model.conditions import find_condition, set_condition

if TYPE_CHECKING:
    from homeostat.loop.inmemory import Verified

SHOWN = 3
"""How many children that are not as declared are named."""

OPEN = 200
"""So many children that are not as declared, and are not being made so, are told with what differs."""

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
"""Finalizers by which a parent that is deleted waits for its children to go, or to be let go of."""


class Parent(msgspec.Struct, gc=False):
    """What is known of one parent: which of its children are declared, and what is the matter with it."""

    key: Key
    uid: str
    gone: bool = False  # it wants no children: those that it had go, one stage after the other
    heard: int = 0  # which state of it was last looked at, its status left out
    mark: Any = None  # of what was composed: all of the parent but its status
    wanted: dict[Child, Object] = msgspec.field(default_factory=dict)
    order: list[list[Child]] = msgspec.field(default_factory=list)
    declared: dict[Child, Key] = msgspec.field(default_factory=dict)
    waiting: int = 0  # those whose stage has not come
    problem: str = ""
    composed_at: float = 0.0  # on the clock of the event loop

    def digest(self, seen: Mapping[Child, Verified]) -> str:
        """Names what is wanted of the children, and the very states in which they were seen to be so."""
        lines = [
            (child.group, child.kind, child.namespace, child.name, self.wanted[child], seen[child].uid, seen[child].revision)
            for child in sorted(self.wanted)
        ]
        return xxh3_128_hexdigest(orjson.dumps(lines, option=orjson.OPT_SORT_KEYS))


def parent_status(
    obj: Mapping[str, Any],
    staying: list[Object],
    leaving: list[Object],
    *,
    now: str,
    desired: int,
    waiting: int = 0,
    problem: str = "",
    kept: Container[str] = (),
) -> Object:
    """The status of a parent: Ready when all of its children are, and there is nobody left to make or to take away.

    Held, and not Progressing, where a guard holds some of them until a person does something, and none of the others moves.
    `staying` are the children that are wanted and declared, `leaving` those that are not wanted any more, `desired` how many there
    should be, `waiting` how many of them wait for their stage, `kept` the kinds that a loop keeps.
    """
    before = obj.get("status") or {}
    said: Object = {"status": {"conditions": [dict(c) for c in before.get("conditions") or ()]}}
    generation = obj["metadata"].get("generation", 0)

    def say(kind: str, is_so: bool, reason: str, message: str = "") -> None:
        word = "True" if is_so else "False"
        set_condition(said, kind, word, now=now, reason=reason, message=message, observed_generation=generation)

    late = [child for child in staying if not child_is(child, "Ready")]
    done = not (late or leaving or waiting)
    word, moving, hold = "Converged" if done else "Stopped", False, ""
    if problem:
        say("Ready", False, "NotComposed", problem)
        say("Degraded", True, "NotComposed", problem)
    elif done:
        say("Ready", True, "Converged", f"all of {len(staying)} children are as declared")
        say("Degraded", False, "Converged")
    else:
        behind = [*late, *leaving]
        bad = [child for child in behind if child_is(child, "Degraded")]
        held = [] if bad else _held(behind)
        moving = not (bad or held)
        word = "Held" if held else "ChildrenNotReady" if moving else word
        hold = _hold_of(held[0]) if held else ""
        say("Ready", False, "Held" if held else "ChildrenNotReady", _words_of_held(held) if held else _words_of([*bad, *behind]))
        say("Degraded", bool(bad), "ChildrenDegraded" if bad else word, _words_of([*bad, *behind]) if bad else "")
    say("Progressing", moving, word, hold)
    say("Reconciling", moving, word, hold)
    counts = {
        "desired": desired,
        "ready": len(staying) - len(late),
        "waiting": waiting,
        "leaving": len(leaving),
    }
    status = {**before, **said["status"], "observedGeneration": generation, "children": counts}
    opened = None if done else open_of([*late, *leaving], kept)
    return status | {"open": opened} if opened or "open" in before else status


def open_of(children: Sequence[Object], kept: Container[str]) -> Object | None:
    """What is not as declared and does not become so by itself, as `homeostat plan`, `explain` and `approve` show it.

    The ledger of children is in memory, and who looks from outside has only this. `kept` are kinds that a loop keeps.
    """
    stuck = [child for child in children if _is_stuck(child)]
    if not stuck:
        return None
    return {"total": len(stuck), "objects": [_line(child, kept) for child in stuck[:OPEN]]}


def _is_stuck(child: Object) -> bool:
    status = child["status"]
    return not child_is(child, "Progressing") and ("drift" in status or (find_condition(child, "Ready") or {}).get("status") == "Unknown")


def _line(child: Object, kept: Container[str]) -> Object:
    metadata, manifest, status = child["metadata"], child["spec"]["manifest"], child["status"]
    resource, _, name = metadata["name"].partition("/")
    found: Object = {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "resource": resource, "name": name}
    if metadata.get("namespace"):
        found["namespace"] = metadata["namespace"]
    if metadata.get("labels"):
        found["labels"] = metadata["labels"]
    if resource in kept:
        found["kept"] = True  # then its declaration is guarded here, and what becomes of it there
    if "drift" in status:
        found["drift"] = status["drift"]
    said = [find_condition(child, kind) for kind in ("Ready", "Reconciling")]
    found["conditions"] = [{name: one.get(name, "") for name in ("type", "status", "reason", "message")} for one in said if one]
    return found


def child_metadata(known: Parent, parent: Object, key: Key, manifest: Object, before: Object | None) -> Object:
    """The metadata of a child's declaration, under `key`; `before` is how it was declared until now."""
    said = parent["metadata"].get("annotations") or {}
    return {
        "namespace": key.namespace,
        "name": key.name,
        "uid": known.uid,
        "labels": manifest["metadata"].get("labels") or {},
        "annotations": {ADOPT: said[ADOPT]} if ADOPT in said else {},
        "generation": before["metadata"]["generation"] + 1 if before is not None else 1,
    }


def ready_status(generation: int, applied: Mapping[str, Any], identity: str) -> Object:
    """The status of a child that is as declared and has no history: as little as there is to say, for there may be many."""
    return {**_ready(generation), "lastApplied": applied, "identity": identity}


@lru_cache(1024)
def _ready(generation: int) -> Object:
    ready = {"type": "Ready", "status": "True", "reason": "Converged", "message": "as declared"}
    return {"conditions": [{**ready, "observedGeneration": generation}], "observedGeneration": generation}


def _words_of(children: Sequence[Object]) -> str:
    """What is the matter with the first of them; of one that is named twice, once."""
    some = list({id(child): child for child in children}.values())
    said = ((_name(child), (find_condition(child, "Ready") or {}).get("message", "")) for child in some[:SHOWN])
    more = f"; and {len(some) - SHOWN} more" if len(some) > SHOWN else ""
    return "; ".join(f"{name}: {words or 'not looked at yet'}" for name, words in said) + more


def _name(child: Object) -> str:
    return f"{child['spec']['manifest']['kind']}/{child['spec']['manifest']['metadata']['name']}"


# What waits for a person


def _held(children: Sequence[Object]) -> list[Object]:
    """Those that wait for a person; none while another is being made as declared, or will be by itself."""
    open_ = [child for child in children if not child_is(child, "Ready")]  # what is only to go later is as it should be till then
    return open_ if all(map(waits_for_a_person, open_)) else []


def waits_for_a_person(child: Object) -> bool:
    """Whether a guard holds a child until a person does something; what only waits for its turn in a wave is on its way."""
    said = find_condition(child, "Progressing") or {}
    return said.get("reason") == "Held" and said.get("observedGeneration") == child["metadata"]["generation"]


def _hold_of(child: Object) -> str:
    """`held by freeze: frozen by ann: the electrician is here`."""
    return str((find_condition(child, "Reconciling") or {}).get("message", ""))


def _words_of_held(held: Sequence[Object]) -> str:
    """Which are held, by what and why, and the command that says what to do: what holds one mostly holds others too."""
    groups: dict[str, list[Object]] = {}
    for child in held:
        groups.setdefault(_hold_of(child), []).append(child)
    told = []
    for why, children in list(groups.items())[:SHOWN]:
        more = f" and {len(children) - SHOWN} more" if len(children) > SHOWN else ""
        told.append(f"{', '.join(map(_name, children[:SHOWN]))}{more} {why}; what to do: {_explain(children[0])}")
    return "; ".join(told) + (f"; and {len(groups) - SHOWN} other reasons" if len(groups) > SHOWN else "")


def _explain(child: Object) -> str:
    metadata = child["metadata"]
    resource, _, name = metadata["name"].partition("/")
    return f"homeostat explain {resource} {name}" + (f" -n {metadata['namespace']}" if metadata.get("namespace") else "")


def child_is(child: Mapping[str, Any], kind: str) -> bool:
    """Whether the condition of a child is true, and about the child as it is declared now."""
    said = find_condition(child, kind)
    return said is not None and _holds(said, child["metadata"]["generation"])


def is_said(obj: Mapping[str, Any], kind: str, generation: int) -> bool:
    """Whether a condition is true, and about this generation; `obj` need have no more than its status."""
    said = find_condition(obj, kind)
    return said is not None and _holds(said, generation)


def _holds(said: Mapping[str, Any], generation: int) -> bool:
    return said.get("status") == "True" and said.get("observedGeneration") == generation


def going(obj: Mapping[str, Any]) -> bool:
    """Whether it is to be deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def mark_of(obj: Object) -> Any:
    """All of a parent that its children may hang on."""
    get = obj["metadata"].get
    return [get("uid"), get("generation"), get("labels"), get("annotations"), get("deletionTimestamp")]


def deleted_by(parent: Object, how: str) -> bool:
    """Whether a parent is being deleted in this way."""
    return going(parent) and how in (parent["metadata"].get("finalizers") or ())


def under_way(child: Object) -> bool:
    """Whether nothing is known of a child but that it is as declared, or being made so."""
    return find_condition(child, "Ready") is None or child_is(child, "Ready") or child_is(child, "Progressing")


def as_is(obj: Object, manager: str) -> Object:
    """A live child as we once declared it."""
    ours = applied_by(obj, manager)
    names = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    whole = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    return {**ours, **whole, "metadata": {**ours.get("metadata", {}), **names}}
