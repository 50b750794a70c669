"""What Syncs apply of kinds that the loop does not keep otherwise: managed all the same, and so in inventories and reports."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from homeostat.loop.compose import read_kinds
from homeostat.model.conditions import find_condition, summary
from homeostat.model.errors import ApiError
from homeostat.sources.kinds import API, SYNC_LABEL

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.client.kinds import Kind

Object = dict[str, Any]

_UNSURE = ("ObjectsNotReady", "NotYet")
"""Why a Sync is not Ready while nobody can tell which of its objects are not."""


async def applied(client: Client, kinds: Collection[Kind], selector: str = "", namespace: str = "") -> list[tuple[Kind, Object]]:
    """Each object with a status as the loop would have written it, had it a place there. `kinds` are all that the server has."""
    try:
        syncs = {sync["metadata"]["uid"]: sync for sync in await client.kind(API, "Sync").list()}
    except ApiError as error:
        if error.code == 404:  # no loop of this server has Git
            return []
        raise
    named = {kind for sync in syncs.values() for kind in read_kinds(((sync.get("status") or {}).get("inventory") or {}).get("kinds") or ())}
    found = []
    for kind in (one for one in kinds if (one.api_version, one.kind) in named and not one.kept):
        labels, inside = ",".join(filter(None, (SYNC_LABEL, selector))), namespace if kind.namespaced else ""
        for obj in await kind.on(client).list(labels=labels, namespace=inside):
            sync = syncs.get(obj["metadata"]["labels"][SYNC_LABEL])
            if sync is not None:  # else it is nobody's now
                found.append((kind, {**obj, "status": _status(kind, obj, sync)}))
    return found


def _status(kind: Kind, obj: Object, sync: Object) -> Object:
    """By the Sync where that has something to say of it, else by itself."""
    place = (kind.kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
    for one in ((sync.get("status") or {}).get("open") or {}).get("objects") or ():
        if (one["kind"], one.get("namespace", ""), one["name"]) == place:
            return {**{name: one[name] for name in ("drift", "conditions") if name in one}, "observedGeneration": _generation(obj)}
    ready, how = find_condition(sync, "Ready") or {}, summary(obj)
    if ready.get("reason") in _UNSURE:
        said = {"status": "Unknown", "reason": "Pending", "message": "its Sync is under way"}
    elif how == "Current":
        said = {"status": "True", "reason": "Converged", "message": "as declared"}
    else:
        said = {"status": "False", "reason": str(how), "message": f"it is {how}"}
    written = [entry.get("time", "") for entry in obj["metadata"].get("managedFields") or ()]
    condition = {"type": "Ready", **said, "lastTransitionTime": max(written, default=""), "observedGeneration": _generation(obj)}
    at = condition["lastTransitionTime"]  # what was written is read back
    return {"conditions": [condition], "observedGeneration": _generation(obj), **({"observedAt": at} if at else {})}


def _generation(obj: Object) -> int:
    return int(obj["metadata"].get("generation", 0))
