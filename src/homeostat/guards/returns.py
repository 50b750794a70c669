"""The return of a change set, as far as it can be decided without I/O: what has to be written for each of its objects, and what forbids it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from homeostat.guards.policy import ReturnState, ReturnStatus
from homeostat.loop.fleet import RETURN_PREFIX, Taken
from homeostat.loop.returned import same_words
from homeostat.model.clock import parse_time
from homeostat.model.kinds import InvalidSpec, decode
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET, composed_by

log = logging.getLogger("homeostat.guards")

Item = Mapping[str, Any]
"""One object of a change set, as a server with a past tells it: `before` and `after` it, and `now`; each None where it was not there."""

LONGEST_NAME = 253
SHOWN = 3
"""Objects that are named."""

_COMPOSED = composed_by("")
_WHY = {
    "kept": "was declared anew since, and that stays",
    "going": "is being deleted, which cannot be taken back",
}


class Step(StrEnum):
    """What the return does to one object."""

    DONE = "done"  # it is as it was before
    REPLACE = "replace"
    CREATE = "create"  # the change set had deleted it
    DELETE = "delete"  # the change set had made it
    KEPT = "kept"  # somebody declared it anew: theirs, and not touched
    GOING = "going"  # the change set deleted it, and it is not gone yet


WRITES = (Step.CREATE, Step.REPLACE, Step.DELETE)
"""Those that write, in their order: what others may need comes back before anything goes."""


def name_of_return(change_set: str) -> str:
    """The change set that takes this one back."""
    name = RETURN_PREFIX + change_set
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 17]}~{hashlib.sha256(change_set.encode()).hexdigest()[:16]}"


def is_unnamed(change_set: str) -> bool:
    """Whether the loop called it so, by its writer and its time, for nobody else did."""
    try:
        return parse_time(change_set.rpartition("@")[2]) > 0
    except ValueError:
        return False


def step_of(item: Item, name: str) -> Step:
    """What the return called `name` has to do to an object. The same question after half of it was done has the same answer."""
    before, now = item["before"], item["now"]
    if now is None:
        if before is None:
            return Step.DONE
        return Step.CREATE if item["after"] is None else Step.KEPT
    notes = now["metadata"].get("annotations") or {}
    going = "deletionTimestamp" in now["metadata"]
    if before is None and notes.get(DELETION_CHANGE_SET) == name:
        return Step.DONE if going else Step.DELETE
    if going:
        return Step.DONE if before is None else Step.GOING if item["after"] is None else Step.KEPT
    if before is not None and same_words(now, before):
        return Step.DONE
    if item["changedSince"]:
        return Step.KEPT
    return Step.DELETE if before is None else Step.REPLACE


def begun(items: Iterable[Item], name: str) -> bool:
    """Whether the return called `name` has written something."""
    found = ((item["now"] or {}).get("metadata", {}).get("annotations") or {} for item in items)
    return any(name in (notes.get(CHANGE_SET), notes.get(DELETION_CHANGE_SET)) for notes in found)


def refusal(steps: Sequence[tuple[Item, Step]]) -> str:
    """Why nothing of a change set may be taken back; empty where all of it may."""
    if not steps:
        return "nothing is known any more of what it declared"
    for step in (Step.KEPT, Step.GOING):
        if found := [title(item) for item, one in steps if one is step]:
            return f"{listed(found)} {_WHY[step]}"
    return ""


def is_composed(obj: Item) -> bool:
    """Whether the loop makes an object for another, whose declaration it is that counts."""
    entries = obj["metadata"].get("managedFields") or ()
    return any(str(entry.get("manager", "")).startswith(_COMPOSED) for entry in entries)


def title(item: Item) -> str:
    """`Lamp default/hall`."""
    where = f"{item['namespace']}/" if item["namespace"] else ""
    return f"{item['kind']} {where}{item['name']}"


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def taken(one: ReturnStatus) -> Taken:
    """How it stands with a return, as the guards and the halt say it."""
    words = {
        ReturnState.RETURNING: f"is being taken back as {one.returned_by}",
        ReturnState.RETURNED: f"was taken back as {one.returned_by}, which is done once",
        ReturnState.INCOMPLETE: f"was taken back as {one.returned_by}, but for some: {one.problem}",
        ReturnState.REFUSED: f"could not be taken back: {one.problem}",
    }
    return Taken(words[one.state], one.since.timestamp(), one.state is ReturnState.RETURNING)


def kept_returns(policy: Item) -> Iterator[ReturnStatus]:
    """What the status of a policy remembers of returns; what cannot be read of it is left out."""
    for kept in (policy.get("status") or {}).get("returns") or ():
        try:
            yield decode(ReturnStatus, kept)
        except InvalidSpec as error:
            log.warning("GuardPolicy %s remembers a return that cannot be read: %s", policy["metadata"]["name"], error)
