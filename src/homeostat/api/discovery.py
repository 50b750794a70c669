"""What clients ask first: which groups, versions and resources there are, in the plain and the aggregated form.

A `Discovery` describes a fixed set of resources; make a new one when the set changes. Documents are built when first
asked for and kept.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from homeostat.api.accept import JSON_TYPES, choices
from homeostat.api.resource import Resource
from homeostat.model.protocol import JSON, YAML_TYPES

Json = dict[str, Any]
Kind = tuple[str, str, str]
"""Group, version, kind."""

# Kinds and verbs of the subresources that are not the parent's own kind with get, patch and update.
_SUBRESOURCES: dict[str, tuple[Kind | None, tuple[str, ...]]] = {
    "scale": (("autoscaling", "v1", "Scale"), ("get", "patch", "update")),
    "token": (("authentication.k8s.io", "v1", "TokenRequest"), ("create",)),
    "eviction": (("policy", "v1", "Eviction"), ("create",)),
    "binding": (("", "v1", "Binding"), ("create",)),
    "finalize": (None, ("update",)),
    "log": (None, ("get",)),
    "attach": (("", "v1", "PodAttachOptions"), ("create", "get")),
    "exec": (("", "v1", "PodExecOptions"), ("create", "get")),
    "portforward": (("", "v1", "PodPortForwardOptions"), ("create", "get")),
}
STREAMS = frozenset({"attach", "exec", "log", "portforward"})
"""Subresources that answer with a stream and not with an object."""
_OWN = (None, ("get", "patch", "update"))

# Which group wins when two have a resource of the same name; custom groups come after these, by name.
_GROUP_ORDER = (
    "",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
)

_KUBE_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STAGE = {"alpha": 0, "beta": 1, None: 2}


class Answer(msgspec.Struct, frozen=True):
    """A document with what its response says about it. `etag` comes in quotes, as the header wants it."""

    body: bytes
    content_type: str
    etag: str


def version_rank(version: str) -> tuple[Any, ...]:
    """Sorts versions best first: v2, v1, v1beta2, v1alpha1, then every other name by the alphabet."""
    match = _KUBE_VERSION.fullmatch(version)
    if match is None:
        return (1, version)
    major, stage, minor = match.groups()
    return (0, -_STAGE[stage], -int(major), -int(minor or 0))


def group_rank(group: str) -> tuple[int, str]:
    """Sorts groups as clients should prefer them: built-in ones in upstream's order, then the others by name."""
    return (_GROUP_ORDER.index(group), "") if group in _GROUP_ORDER else (len(_GROUP_ORDER), group)


def aggregated_version(accept: str) -> str:
    """`v2` or `v2beta1` where the Accept header asks for aggregated discovery before plain JSON; else empty."""
    for media, said in choices(accept):
        if media not in JSON_TYPES:
            continue
        if (said.get("g"), said.get("as")) == ("apidiscovery.k8s.io", "APIGroupDiscoveryList"):
            if said.get("v") in ("v2", "v2beta1"):
                return said["v"]
        elif "as" not in said:
            return ""
    return ""


def readable(accept: str) -> bool:
    """Whether an Accept header has room for any form of these documents."""
    if not accept or aggregated_version(accept):
        return True
    return any(media in JSON_TYPES | YAML_TYPES and "as" not in said for media, said in choices(accept))


@cache
def storage_version_hash(group: str, version: str, kind: str) -> str:
    """How clients tell that the stored form of a kind has changed."""
    return b64encode(sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


class Discovery:
    """The discovery documents of a set of resources."""

    def __init__(self, resources: Iterable[Resource], server_address: str = "") -> None:
        self._server_address = server_address
        self._answers: dict[tuple[str, str], Answer | None] = {}
        self._served: dict[str, dict[str, list[Resource]]] = {"": {"v1": []}}
        for resource in resources:
            for version in resource.versions.values():
                if version.served:
                    self._served.setdefault(resource.group, {}).setdefault(version.name, []).append(resource)
        for group, versions in self._served.items():
            self._served[group] = dict(sorted(versions.items(), key=lambda item: version_rank(item[0])))
            for listed in versions.values():
                listed.sort(key=lambda resource: resource.plural)

    def groups(self) -> list[str]:
        """The served groups, the preferred first; the core group is the empty string."""
        return sorted(self._served, key=group_rank)

    def versions(self, group: str) -> list[str]:
        """The served versions of a group, the preferred first; empty where there is no such group."""
        return list(self._served.get(group, ()))

    def answer(self, path: str, accept: str = "") -> Answer | None:
        """The document at `/api`, `/api/v1`, `/apis`, `/apis/{group}` or `/apis/{group}/{version}`; None elsewhere.

        `accept` is the request's header: `/api` and `/apis` also come in the aggregated form.
        """
        path = path.rstrip("/")
        form = aggregated_version(accept) if accept and path in ("/api", "/apis") else ""
        key = (path, form)
        if key not in self._answers:
            document = self._aggregated(path, form) if form else self._plain(path)
            if document is None:
                return None  # unknown paths come without end: they are not kept
            self._answers[key] = _answer(document, form)
        return self._answers[key]

    def _plain(self, path: str) -> Json | None:
        match path.split("/")[1:]:
            case ["api"]:
                return self._api_versions()
            case ["api", "v1"]:
                return {"kind": "APIResourceList", "groupVersion": "v1", "resources": self._resources("", "v1")}
            case ["apis"]:
                groups = [self._group(group) for group in self.groups() if group]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["apis", group] if group and group in self._served:
                return {"kind": "APIGroup", "apiVersion": "v1", **self._group(group)}
            case ["apis", group, version] if group and version in self._served.get(group, {}):
                head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
                return {**head, "resources": self._resources(group, version)}
        return None

    def _api_versions(self) -> Json:
        address = {"clientCIDR": "0.0.0.0/0", "serverAddress": self._server_address}
        return {"kind": "APIVersions", "versions": self.versions(""), "serverAddressByClientCIDRs": [address]}

    def _group(self, group: str) -> Json:
        versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in self._served[group]]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def _resources(self, group: str, version: str) -> list[Json]:
        listed = []
        for resource in self._served[group][version]:
            entry: Json = {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            entry |= _other_names(resource)
            if "list" in resource.verbs:
                entry["storageVersionHash"] = _stored_as(resource)
            listed.append(entry)
            for name, kind, verbs in subresources_of(resource, version):
                sub: Json = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
                if kind[:2] != (group, version):
                    sub |= {"group": kind[0], "version": kind[1]}
                listed.append({**sub, "kind": kind[2], "verbs": list(verbs)})
        return listed

    def _aggregated(self, path: str, form: str) -> Json:
        items = []
        for group in self.groups():
            if (group == "") == (path == "/api"):
                versions = [self._aggregated_version(group, version) for version in self._served[group]]
                items.append({"metadata": {"name": group} if group else {}, "versions": versions})
        api_version = f"apidiscovery.k8s.io/{form}"
        return {"kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items}

    def _aggregated_version(self, group: str, version: str) -> Json:
        listed = []
        for resource in self._served[group][version]:
            entry: Json = {
                "resource": resource.plural,
                "responseKind": _kind(group, version, resource.kind),
                "scope": "Namespaced" if resource.namespaced else "Cluster",
                "singularResource": resource.singular,
                "verbs": list(resource.verbs),
            }
            entry |= _other_names(resource)
            subresources = [
                {"subresource": name, "responseKind": _kind(*kind), "verbs": list(verbs)}
                for name, kind, verbs in subresources_of(resource, version)
            ]
            if subresources:
                entry["subresources"] = subresources
            listed.append(entry)
        return {"version": version, "resources": listed, "freshness": "Current"}


def subresources_of(resource: Resource, version: str) -> Iterator[tuple[str, Kind, tuple[str, ...]]]:
    """The subresources of a resource in one version: name, kind and verbs, by the alphabet."""
    served = resource.versions[version]
    names = list(resource.subresources)
    if served.status:
        names.append("status")
    if served.scale is not None:
        names.append("scale")
    for name in sorted(set(names)):
        kind, verbs = _SUBRESOURCES.get(name, _OWN)
        yield name, kind or (resource.group, version, resource.kind), verbs


def _other_names(resource: Resource) -> Json:
    """The names by which people may call a kind as well; left out where there are none."""
    named = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {field: names for field, names in named.items() if names}


def _stored_as(resource: Resource) -> str:
    # Events of both groups are one set of objects, stored in the core form.
    group = "" if resource.group == "events.k8s.io" else resource.group
    return storage_version_hash(group, resource.storage, resource.kind)


def _kind(group: str, version: str, kind: str) -> Json:
    return {"group": group, "version": version, "kind": kind}


def _answer(document: Json, form: str) -> Answer:
    body = orjson.dumps(document)
    content_type = JSON
    if form:
        content_type += f";g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList"
    return Answer(body, content_type, f'"{sha256(body).hexdigest().upper()}"')
