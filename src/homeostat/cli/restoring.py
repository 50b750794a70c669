"""What has to go back so that a running server declares what a checkpoint holds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from homeostat.api.history import UNKEPT
from homeostat.cli.kinds import Kind, served_kinds
from homeostat.guards.keeper import APPROVAL_KIND
from homeostat.insight.planning import difference
from homeostat.insight.returning import Target
from homeostat.loop.returned import returned
from homeostat.sources.kinds import GROUP, SYNC_LABEL

if TYPE_CHECKING:
    from homeostat.client import Client
    from homeostat.store import Entry

Object = dict[str, Any]

LEFT_ALONE = frozenset({*UNKEPT, "events.events.k8s.io", APPROVAL_KIND.name})
"""Kinds that are never taken back: what was said or proven once is not said again."""
POLICIES = "guardpolicies.homeostat.dev"
"""Their freezes stay as they are: nothing but a person who says so lifts one."""
_SYNCS = f"syncs.{GROUP}/"
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


async def targets_of(client: Client, file: Path, *, keep_new: bool) -> list[Target]:
    """What differs between the server and a checkpoint, which was found sound before."""
    kinds = {kind.name: kind for kind in await served_kinds(client) if {"get", "list", "create"} <= kind.verbs}
    wanted, syncs = await asyncio.to_thread(_read, file, kinds)
    found: list[Target] = []
    for name, objects in wanted.items():
        kind = kinds[name]
        live = await _live(client, kind)
        source = file.name
        for (namespace, called), obj in sorted(objects.items()):
            now = live.pop((namespace, called), None)
            if name == POLICIES and now is not None:
                obj["spec"]["freezes"] = now["spec"].get("freezes") or []
            if now is None or difference(now, returned(obj, now, "")).op is not None:
                found.append(Target(kind.api_version, kind.kind, namespace, called, obj, source))
        if not keep_new:
            found += [
                Target(kind.api_version, kind.kind, namespace, called, None, f"not in {source}")
                for (namespace, called), now in sorted(live.items())
                if not _owned(now, syncs)
            ]
    return found


async def _live(client: Client, kind: Kind) -> dict[tuple[str, str], Object]:
    from homeostat.model.errors import ApiError

    try:
        return {_place(obj): obj for obj in await kind.on(client).list()}
    except ApiError as error:
        if error.code == 404:  # its definition comes with the checkpoint
            return {}
        raise


def _read(file: Path, kinds: dict[str, Kind]) -> tuple[dict[str, dict[tuple[str, str], Object]], frozenset[str]]:
    """The objects of a checkpoint that people declared, by kind; every kind that is served is in it. Adds kinds that it defines.

    And the uids of its Syncs: what those declare comes out of Git, and goes back with them.
    """
    from homeostat.store.checkpoint import Unpacker

    found: dict[str, dict[tuple[str, str], Object]] = {}
    syncs: set[str] = set()
    with file.open("rb") as opened:
        for entry in Unpacker(opened, str(file)).entries():
            if entry.key.startswith(f"{_DEFINITIONS}/"):
                defined = _kind_of(orjson.loads(entry.value))
                kinds.setdefault(defined.name, defined)
            elif entry.key.startswith(_SYNCS):
                syncs.add(orjson.loads(entry.value)["metadata"]["uid"])
    with file.open("rb") as opened:
        for kind, obj in _objects(Unpacker(opened, str(file)).entries(), kinds, frozenset(syncs)):
            found.setdefault(kind.name, {})[_place(obj)] = obj
    for name in kinds:
        if name not in LEFT_ALONE:
            found.setdefault(name, {})
    return found, frozenset(syncs)


def _objects(entries: Iterator[Entry], kinds: dict[str, Kind], syncs: frozenset[str]) -> Iterator[tuple[Kind, Object]]:
    for entry in entries:
        name = entry.key.partition("/")[0]
        if name in LEFT_ALONE or name not in kinds:
            continue
        kind = kinds[name]
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **orjson.loads(entry.value)}
        if not _owned(obj, syncs) and "deletionTimestamp" not in obj["metadata"]:
            yield kind, obj


def _kind_of(definition: Object) -> Kind:
    spec = definition["spec"]
    names = spec["names"]
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    singular = names.get("singular") or names["kind"].lower()
    scoped = spec["scope"] == "Namespaced"
    return Kind(f"{spec['group']}/{stored}", names["kind"], names["plural"], singular, scoped)


def _place(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _owned(obj: Object, syncs: frozenset[str]) -> bool:
    """Whether something else makes it: then that is what goes back."""
    if (obj["metadata"].get("labels") or {}).get(SYNC_LABEL) in syncs:
        return True
    return any(owner.get("controller") for owner in obj["metadata"].get("ownerReferences") or ())
