"""A thing and all that it owns, by owner references, each with how it is."""

from __future__ import annotations

import asyncio
from typing import Any

from homeostat.client import Client
from homeostat.client.kinds import Kind, served_kinds
from homeostat.model.conditions import find_condition, summary
from homeostat.model.errors import ApiError

_HEADS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
AT_ONCE = 8

Object = dict[str, Any]


async def family(client: Client, kind: Kind, name: str, namespace: str = "") -> Object:
    """The object with its `children`, theirs, and so on: kind, apiVersion, namespace, name, uid, status (as kstatus has it), message.

    What one may not see is not in it. `ApiError` where the object itself cannot be read.
    """
    top = await kind.on(client).get(name, namespace=namespace)
    kinds = [one for one in await served_kinds(client) if {"list", "get"} <= one.verbs]
    owned = await _owned(client, kinds, top["metadata"].get("namespace", ""))

    async def node(kind: Kind, obj: Object, above: frozenset[str]) -> Object:
        uid = obj["metadata"]["uid"]
        below = [] if uid in above else sorted(owned.get(uid, ()), key=lambda one: (one[0].kind, one[1]["metadata"]["name"]))
        children = [await node(one, await _whole(client, one, child), above | {uid}) for one, child in below]
        return {**_standing(kind, obj), "children": children}

    return await node(kind, top, frozenset())


async def _owned(client: Client, kinds: list[Kind], namespace: str) -> dict[str, list[tuple[Kind, Object]]]:
    """By the uid of an owner: what it owns, of every kind that can be read."""
    found: dict[str, list[tuple[Kind, Object]]] = {}
    turns = asyncio.Semaphore(AT_ONCE)

    async def read(kind: Kind) -> None:
        served = await kind.on(client).served()
        async with turns:
            try:
                reply = await client.request("GET", served.path(namespace if kind.namespaced else ""), accept=_HEADS)
            except ApiError:
                return
        for item in reply.json().get("items") or ():
            for owner in item["metadata"].get("ownerReferences") or ():
                found.setdefault(owner["uid"], []).append((kind, item))

    await asyncio.gather(*(read(kind) for kind in kinds))
    return found


async def _whole(client: Client, kind: Kind, head: Object) -> Object:
    metadata = head["metadata"]
    try:
        return await kind.on(client).get(metadata["name"], namespace=metadata.get("namespace", ""))
    except ApiError:
        return head


def _standing(kind: Kind, obj: Object) -> Object:
    how, ready = summary(obj), find_condition(obj, "Ready") or {}
    metadata = obj["metadata"]
    return {
        "kind": kind.kind,
        "resource": kind.name,
        "apiVersion": kind.api_version,
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "uid": metadata["uid"],
        "status": how,
        "message": "" if how == "Current" else ready.get("message", ""),
    }
