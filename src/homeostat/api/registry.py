"""Which kinds are served: the built-in ones, and those that CustomResourceDefinitions add while the server runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from homeostat.api.codec import Codec
from homeostat.api.crds import acts_on_host, held_by
from homeostat.api.resource import Column, Object, Resource, Scale, Version
from homeostat.model.schema import ANY, Schema

_KINDS_LIMIT = 4096
"""Kinds, known or not, that are remembered: anybody may name any in an owner reference."""
_PLACES_LIMIT = 4096
"""Paths of collections that are remembered: anybody may name any namespace."""


class Place(NamedTuple):
    """What stands under the path of a collection: a kind in one of its versions, in a namespace or (empty) in all."""

    resource: Resource
    codec: Codec
    namespace: str


class Registry:
    """Kinds by group, version and plural.

    `generation` counts changes, so that derived documents know when they are old.
    """

    def __init__(self, builtin: Iterable[Resource]) -> None:
        self.generation = 0
        self._served: dict[tuple[str, str, str], tuple[Resource, Codec]] = {}
        self._resources: dict[str, Resource] = {}
        self._kinds: dict[tuple[str, str], Resource | None] = {}  # by group and kind, as far as anybody asked
        self._places: dict[str, Place] = {}  # by path, as far as anybody asked
        self.place = self._places.get
        """What stands under a path that was understood before to be that of a collection."""
        for resource in builtin:
            self.add(resource, since=0)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._resources.values())

    def add(self, resource: Resource, since: int) -> None:
        """Serves a kind, or its new form; `since` is the revision of its definition."""
        self.remove(resource.qualified)
        self._forget()
        self._resources[resource.qualified] = resource
        for version in resource.versions.values():
            if version.served:
                codec = Codec(resource, version, since)
                self._served[resource.group, version.name, resource.plural] = (resource, codec)
        self.generation += 1

    def remove(self, qualified: str) -> None:
        """Serves a kind no longer."""
        resource = self._resources.pop(qualified, None)
        if resource is not None:
            self._forget()
            for version in resource.versions:
                self._served.pop((resource.group, version, resource.plural), None)
            self.generation += 1

    def _forget(self) -> None:
        self._kinds.clear()
        self._places.clear()

    def remember(self, path: str, place: Place) -> None:
        """The path is that of a collection, for as long as no kind comes or goes."""
        if len(self._places) >= _PLACES_LIMIT:
            self._places.clear()
        self._places[path] = place

    def find(self, group: str, version: str, plural: str) -> tuple[Resource, Codec] | None:
        """What is served under a path; None where nothing is."""
        return self._served.get((group, version, plural))

    def get(self, qualified: str) -> Resource | None:
        """By `plural.group`, or `plural` in the core group."""
        return self._resources.get(qualified)

    def codec(self, resource: Resource) -> Codec:
        """Of the storage version, or of any served one where that is not served."""
        found = self._served.get((resource.group, resource.storage, resource.plural))
        return found[1] if found else Codec(resource, resource.versions[resource.storage])

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        """The kind an owner reference names, whatever its version."""
        wanted = (api_version.rpartition("/")[0], kind)
        try:
            return self._kinds[wanted]
        except KeyError:
            if len(self._kinds) >= _KINDS_LIMIT:
                self._kinds.clear()
            found = (r for r in self._resources.values() if (r.group, r.kind) == wanted and "get" in r.verbs)
            resource = self._kinds[wanted] = next(found, None)
            return resource


def custom_resource(crd: Object) -> Resource:
    """The kind that a CustomResourceDefinition declares. The definition was validated when it was written."""
    spec = crd["spec"]
    names = crd.get("status", {}).get("acceptedNames") or spec["names"]
    versions = {v["name"]: _version(v) for v in spec["versions"]}
    return Resource(
        group=spec["group"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular") or names["kind"].lower(),
        list_kind=names.get("listKind") or f"{names['kind']}List",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        namespaced=spec["scope"] == "Namespaced",
        versions=versions,
        storage=next(v["name"] for v in spec["versions"] if v.get("storage")),
        custom=True,
        host=acts_on_host(crd),
        held_by=held_by(crd),
        unconditional_update=False,
        uid=crd["metadata"]["uid"],
        ending="deletionTimestamp" in crd["metadata"],
    )


def _version(raw: dict[str, Any]) -> Version:
    schema = (raw.get("schema") or {}).get("openAPIV3Schema")
    subresources = raw.get("subresources") or {}
    scale = subresources.get("scale")
    columns = [
        Column(
            name=c["name"],
            path=c["jsonPath"],
            type=c["type"],
            format=c.get("format", ""),
            description=c.get("description") or f"Custom resource definition column (in JSONPath format): {c['jsonPath']}",
            priority=c.get("priority", 0),
        )
        for c in raw.get("additionalPrinterColumns") or ()
    ]
    return Version(
        name=raw["name"],
        schema=Schema(schema) if schema else ANY,
        served=raw.get("served", False),
        status="status" in subresources,
        scale=Scale(
            scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath", "")
        ) if scale else None,
        columns=columns,
        selectable=tuple(f["jsonPath"] for f in raw.get("selectableFields") or ()),
        deprecated=raw.get("deprecated", False),
        deprecation_warning=raw.get("deprecationWarning", ""),
    )
