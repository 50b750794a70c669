"""One declaration in the place of another: how an object goes back to what was declared before, and nobody's word is lost by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homeostat.client import Resource
from homeostat.loop.declarations import Object
from homeostat.model.errors import ApiError
from homeostat.model.protocol import CHANGE_SET, DELETION_CHANGE_SET, FINALIZER

TRIES = 10
"""How often a write is tried that a report on the status overtook."""
_KEPT = ("labels", "annotations")
_LIVE = ("finalizers", "ownerReferences")
_SERVERS = (
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
    "deletionTimestamp",
)


def declared_of(obj: Mapping[str, Any]) -> Object:
    """What people declare of an object: not what the server keeps in it."""
    metadata = {k: v for k, v in obj["metadata"].items() if k not in _SERVERS}
    notes = {k: v for k, v in (metadata.pop("annotations", None) or {}).items() if k != CHANGE_SET}
    if notes:
        metadata["annotations"] = notes
    return {**{k: v for k, v in obj.items() if k != "status"}, "metadata": metadata}


def same_words(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two states of an object declare the same, finalizers and owners apart: who goes back keeps those that there are."""
    said = [declared_of(obj) for obj in (one, other)]
    for declared in said:
        declared["metadata"] = {k: v for k, v in declared["metadata"].items() if k not in _LIVE}
    return bool(said[0] == said[1])


def returned(wanted: Object, live: Object | None, change_set: str) -> Object:
    """The body to write: what was declared then, on what the server keeps of the object now."""
    past = wanted["metadata"]
    metadata: Object = {"name": past["name"]}
    if past.get("namespace"):
        metadata["namespace"] = past["namespace"]
    for name in _KEPT:
        if past.get(name):
            metadata[name] = dict(past[name])
    notes = {k: v for k, v in metadata.pop("annotations", {}).items() if k not in (CHANGE_SET, DELETION_CHANGE_SET)}
    now = (live or {}).get("metadata") or {}
    mark = change_set or (now.get("annotations") or {}).get(CHANGE_SET, "")
    if mark:
        notes[CHANGE_SET] = mark
    if notes:
        metadata["annotations"] = notes
    if live is not None:
        metadata |= {k: now[k] for k in ("resourceVersion", "uid", *_LIVE) if k in now}
    elif kept := [one for one in past.get("finalizers") or () if one != FINALIZER]:
        metadata["finalizers"] = kept
    rest = {k: v for k, v in wanted.items() if k not in ("metadata", "status")}
    return {**rest, "metadata": metadata}


async def put_back(
    handle: Resource[Object], wanted: Object, live: Object, change_set: str, *, manager: str, namespace: str, dry_run: bool = False
) -> Object:
    """Writes over `live`. That the loop wrote the status meanwhile is no reason to give up; that somebody declared something else is
    (409)."""
    name = live["metadata"]["name"]
    for _ in range(TRIES):
        body = returned(wanted, live, change_set)
        try:
            return await handle.replace(body, namespace=namespace, dry_run=dry_run, field_manager=manager)
        except ApiError as error:
            if error.reason != "Conflict":
                raise
        now = await handle.get(name, namespace=namespace)
        if now["metadata"]["uid"] != live["metadata"]["uid"] or not same_words(now, live):
            raise ApiError(409, "Conflict", "somebody declared something else meanwhile: do this again")
        live = now
    raise ApiError(409, "Conflict", "it keeps changing: do this again")
