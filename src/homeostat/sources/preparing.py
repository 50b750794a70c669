"""From what a commit declares to what is applied: each object whole, in its namespace, marked as this Sync's, in its order. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from homeostat.loop.applied import fields_of
from homeostat.loop.compose import Child, ComposeError, Scopes, stages
from homeostat.sources.files import RenderError
from homeostat.sources.kinds import SYNC_LABEL, SYNC_NAME
from homeostat.sources.manifests import Manifest
from homeostat.sources.repository import CommitFacts

PRUNE = "homeostat.dev/prune"
"""Annotation of an object: `disabled` keeps it when the commit has it no more; `enabled` lets a Namespace or a definition go too."""
_SERVER = (
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "ownerReferences",
)
_DEFINITION = Child("apiextensions.k8s.io", "CustomResourceDefinition", "", "")

Object = dict[str, Any]


class Home(NamedTuple):
    """Whose objects they are, and where they go."""

    uid: str
    namespace: str
    name: str
    target: str = ""
    """The namespace for all of them; empty: the one that each names, else that of the Sync."""


Memo = dict[int, tuple[Object, Child, Object]]
"""What was made of which object, by where that is in memory; the object is kept, so that no other comes to be there."""


class Prepared(msgspec.Struct):
    """A commit, ready to be applied as a whole."""

    mark: Any
    facts: CommitFacts
    change_set: str
    wanted: dict[Child, Object]
    places: dict[Child, Manifest]
    order: list[list[Child]]
    kinds: set[tuple[str, str]]
    plan: Object = msgspec.field(default_factory=dict)
    foreign: set[Child] = msgspec.field(default_factory=set)
    """What exists, and was not this Sync's, when the server was asked."""
    unproven: set[Child] = msgspec.field(default_factory=set)
    """What could not be asked of the server yet, for its namespace or kind comes with the same commit."""


def complete(
    manifests: Iterable[Manifest], scopes: Scopes, home: Home, before: Memo
) -> tuple[dict[Child, Object], dict[Child, Manifest], Memo]:
    """The objects as they are applied, where each of them stands, and what was made of what. RenderError for one that stands twice."""
    wanted: dict[Child, Object] = {}
    places: dict[Child, Manifest] = {}
    memo: Memo = {}
    for manifest in manifests:
        known = before.get(id(manifest.obj))
        if known is None or known[0] is not manifest.obj:
            known = (manifest.obj, *_whole(manifest, scopes, home))
        memo[id(manifest.obj)] = known
        child = known[1]
        if child in wanted:
            raise manifest.refused(f"{child} is declared in {places[child].place} too")
        wanted[child], places[child] = known[2], manifest
    return wanted, places, memo


def _whole(manifest: Manifest, scopes: Scopes, home: Home) -> tuple[Child, Object]:
    obj = manifest.obj
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _SERVER and value is not None}
    namespaced = scopes[obj["apiVersion"], obj["kind"]]
    namespace = (home.target or metadata.get("namespace") or home.namespace) if namespaced else ""
    metadata.pop("namespace", None)
    if namespaced:
        metadata["namespace"] = namespace
    metadata["labels"] = {**(metadata.get("labels") or {}), SYNC_LABEL: home.uid}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), SYNC_NAME: f"{home.namespace}/{home.name}"}
    child = Child(obj["apiVersion"].rpartition("/")[0], obj["kind"], namespace, metadata["name"])
    whole = {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    if child.kind == "Secret" and not child.group and isinstance(obj.get("stringData"), dict):
        texts = {name: base64.b64encode(str(text).encode()).decode() for name, text in whole.pop("stringData").items()}
        whole["data"] = {**(whole.get("data") or {}), **texts}  # the server never shows the other form
    return child, {**whole, "metadata": metadata}


def is_base(child: Child) -> bool:
    """Whether others may need it to be there before they can be: namespaces and definitions."""
    return (child.group, child.kind) in (("", "Namespace"), (_DEFINITION.group, _DEFINITION.kind))


def order_of(wanted: Mapping[Child, Object], places: Mapping[Child, Manifest]) -> list[list[Child]]:
    """Namespaces and definitions first, then wave by wave. RenderError where the order cannot be."""
    base = {child: manifest for child, manifest in wanted.items() if is_base(child)}
    rest = {child: manifest for child, manifest in wanted.items() if child not in base} if base else wanted
    try:
        return [*stages(base), *stages(rest)]
    except ComposeError as error:
        named = next(
            (child for child in wanted if str(error).startswith(f"{child}:") or str(error).startswith(f"{child} ")),
            None,
        )
        if named is not None:
            raise places[named].refused(str(error), "metadata.annotations") from None
        raise RenderError(str(error)) from None


def defined_kinds(manifests: Iterable[Manifest]) -> dict[tuple[str, str], tuple[str, bool]]:
    """The kinds that the commit itself defines: their plural, and whether they are in a namespace."""
    found: dict[tuple[str, str], tuple[str, bool]] = {}
    for manifest in manifests:
        obj = manifest.obj
        if obj["kind"] != _DEFINITION.kind or not obj["apiVersion"].startswith(_DEFINITION.group + "/"):
            continue
        spec = obj.get("spec") or {}
        names, group = spec.get("names") or {}, spec.get("group", "")
        for version in spec.get("versions") or ():
            if isinstance(version, Mapping) and names.get("kind") and version.get("name"):
                found[f"{group}/{version['name']}", names["kind"]] = (
                    f"{names.get('plural', '')}.{group}",
                    spec.get("scope") == "Namespaced",
                )
    return found


def is_mine(obj: Mapping[str, Any], uid: str, manager: str) -> bool:
    """Whether an object was applied by this very Sync: both by its label and by whose fields are in it."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    return bool(uid) and labels.get(SYNC_LABEL) == uid and bool(fields_of(obj, manager))


def may_go(obj: Mapping[str, Any], child: Child) -> bool:
    """Whether an object is deleted when the commit has it no more.

    With a Namespace, or with the definition of a kind, goes all that is in it, whoever made that: they go only where they say so.
    """
    said = ((obj.get("metadata") or {}).get("annotations") or {}).get(PRUNE, "")
    return bool(said == "enabled" if is_base(child) else said != "disabled")
