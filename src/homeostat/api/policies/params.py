"""The parameters that a binding gives to its policy: objects of any kind, by name or by labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from homeostat.api.codec import Codec
from homeostat.api.read import pages
from homeostat.api.resource import Object, Resource
from homeostat.model.selectors import label_selector_from

if TYPE_CHECKING:
    from homeostat.api.plane import ControlPlane


class Misconfigured(Exception):
    """A policy or a binding cannot be used as it is; the message says why."""


def served_kind(plane: ControlPlane, kind: dict[str, str]) -> tuple[Resource, Codec]:
    """The kind of the parameters; Misconfigured where there is none."""
    api_version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, version = api_version.rpartition("/")
    resource = plane.registry.by_kind(api_version, name)
    found = plane.registry.find(group, version, resource.plural) if resource is not None else None
    if found is None:
        raise Misconfigured(f"failed to find resource referenced by paramKind: '{group}/{version}, Kind={name}'")
    return found


async def collect(
    plane: ControlPlane, kind: tuple[Resource, Codec] | None, ref: dict[str, Any] | None, namespace: str
) -> list[Object | None]:
    """Every parameter that a binding means for a write in a namespace; one that is null where it needs none."""
    if kind is None or ref is None:
        return [None]
    resource, codec = kind
    place = ref.get("namespace") or ""
    if place and not resource.namespaced:
        raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    if resource.namespaced:
        place = place or namespace
        if not place:
            why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            raise Misconfigured(why)
    found: list[Object | None] = []
    if ref.get("name"):
        entry = await plane.store.get(resource.key(place, ref["name"]))
        if entry is not None:
            found.append(codec.load_entry(entry))
    elif (selector := label_selector_from(ref.get("selector"))) is not None:
        async for page in pages(plane.store, resource.collection(place)):
            loaded = map(codec.load_entry, page.entries)
            found += [obj for obj in loaded if selector.matches(obj["metadata"].get("labels"))]
    if not found and ref.get("parameterNotFoundAction") == "Deny":
        raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found
