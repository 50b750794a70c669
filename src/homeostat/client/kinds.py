"""Every kind that a server has, with the words that people use for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from homeostat.client.client import Client
    from homeostat.client.resource import Resource

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
CATEGORY = "homeostat"
STEERING = ("GuardPolicy", "Approval")
"""Kinds by which people steer the loop; it does not keep them."""


class Kind(msgspec.Struct, frozen=True):
    """A kind in the version that the server prefers."""

    api_version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """Empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        """`plural.group`, as policies and definitions name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def kept(self) -> bool:
        """Whether the loop keeps things of this kind."""
        return CATEGORY in self.categories and self.kind not in STEERING and "list" in self.verbs

    @property
    def words(self) -> tuple[str, ...]:
        """What people may call it, in lower case."""
        return (self.plural, self.singular, self.kind.lower(), *self.short_names, self.name)

    def on(self, client: Client) -> Resource[dict[str, Any]]:
        """A handle on it."""
        return client.kind(self.api_version, self.kind)


async def served_kinds(client: Client) -> list[Kind]:
    """Every kind that the server has, the core's first, in the order in which it prefers them."""
    documents = [(await client.request("GET", path, accept=_AGGREGATED)).json() for path in ("/api", "/apis")]
    if all(document.get("kind") == "APIGroupDiscoveryList" for document in documents):
        return _preferred(kind for document in documents for item in document["items"] for kind in _of_group(item))
    listed = [v["groupVersion"] for group in documents[1].get("groups", ()) for v in group["versions"]]
    versions = ["v1", *listed]
    paths = [f"/apis/{version}" if "/" in version else f"/api/{version}" for version in versions]
    plain = await asyncio.gather(*(client.request("GET", path) for path in paths))
    return _preferred(
        kind
        for version, reply in zip(versions, plain, strict=True)
        for kind in _of_version(version, reply.json().get("resources") or ())
    )


def _preferred(kinds: Iterable[Kind]) -> list[Kind]:
    """Each kind once, in the first version that has it."""
    found: dict[str, Kind] = {}
    for kind in kinds:
        found.setdefault(kind.name, kind)
    return list(found.values())


def _of_group(item: dict[str, Any]) -> Iterable[Kind]:
    group = item["metadata"].get("name", "")
    for version in item["versions"]:
        for found in version["resources"]:
            if "responseKind" in found:
                yield Kind(
                    f"{group}/{version['version']}" if group else version["version"],
                    found["responseKind"]["kind"],
                    found["resource"],
                    found.get("singularResource") or found["responseKind"]["kind"].lower(),
                    found.get("scope") == "Namespaced",
                    frozenset(found.get("verbs") or ()),
                    tuple(found.get("shortNames") or ()),
                    tuple(found.get("categories") or ()),
                )


def _of_version(version: str, resources: Sequence[dict[str, Any]]) -> Iterable[Kind]:
    for found in resources:
        if "/" not in found["name"]:
            yield Kind(
                version,
                found["kind"],
                found["name"],
                found.get("singularName") or found["kind"].lower(),
                bool(found.get("namespaced")),
                frozenset(found.get("verbs") or ()),
                tuple(found.get("shortNames") or ()),
                tuple(found.get("categories") or ()),
            )
