"""From a kind to its CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from homeostat.model.kinds.schema import schema_of
from homeostat.model.kinds.shape import Struct
from homeostat.model.names import dns1035_problems, dns_subdomain_problems
from homeostat.model.protocol import HELD_BY, HOST

Raw = dict[str, Any]
Scope = Literal["Namespaced", "Cluster"]
ColumnType = Literal["string", "integer", "number", "boolean", "date"]

CONDITIONS: Raw = {
    "type": "array",
    "description": "What is known of the object at present, one entry for each aspect.",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
    "items": {
        "type": "object",
        "required": ["type", "status"],
        "properties": {
            "type": {"type": "string", "description": "The aspect, such as Ready.", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "description": "Why, in one word for programs.", "maxLength": 1024},
            "message": {"type": "string", "description": "Why, for people.", "maxLength": 32768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        },
    },
}
"""The schema of `status.conditions`, as tools that wait for conditions expect it."""


class Column(msgspec.Struct, frozen=True):
    """A column of `kubectl get`.

    `path` is a JSON path such as `.spec.size`; one of `priority` > 0 shows with `-o wide`.
    """

    name: str
    path: str
    type: ColumnType = "string"
    description: str = ""
    priority: int = 0
    format: str = ""

    def wire(self) -> Raw:
        """As it stands under `additionalPrinterColumns`."""
        raw: Raw = {"name": self.name, "type": self.type, "jsonPath": self.path}
        for name, value in (("description", self.description), ("priority", self.priority), ("format", self.format)):
            if value:
                raw[name] = value
        return raw


READY = Column("Ready", '.status.conditions[?(@.type=="Ready")].status', description="Whether it is as declared.")
AGE = Column("Age", ".metadata.creationTimestamp", "date")


class Scale(msgspec.Struct, frozen=True):
    """Where the scale subresource (`kubectl scale`, autoscalers) finds its numbers."""

    replicas: str = ".spec.replicas"
    observed: str = ".status.replicas"
    selector: str = ""

    def wire(self) -> Raw:
        """As it stands under `subresources`."""
        raw = {"specReplicasPath": self.replicas, "statusReplicasPath": self.observed}
        return {**raw, "labelSelectorPath": self.selector} if self.selector else raw


class KindVersion(msgspec.Struct, frozen=True):
    """A version that is served beside the stored one. Objects are not converted: fields it does not have are not shown."""

    name: str
    spec: Struct
    status: Struct | Mapping[str, Any] | None = None
    served: bool = True
    deprecated: str = ""
    """What to use instead: clients that still use this version are warned with it."""


@dataclass(frozen=True, slots=True)
class KindInfo:
    """All that a CustomResourceDefinition says of a kind. ValueError where a name is not one.

    `status` is a struct, whose fields then stand beside `conditions` and `observedGeneration`; or a schema, taken as it
    is. With None the status has those two and may hold anything else. `columns` come before Ready and Age, which every
    kind has.
    """

    group: str
    version: str
    kind: str
    spec: Struct
    status: Struct | Mapping[str, Any] | None = field(default=None, hash=False)
    plural: str = ""
    """Default: the kind in lower case, with the ending that English gives it."""
    scope: Scope = "Namespaced"
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()
    scale: Scale | None = None
    selectable: tuple[str, ...] = ()
    """Fields for field selectors, as JSON paths: `.spec.node`."""
    other_versions: tuple[KindVersion, ...] = ()
    description: str = ""
    """Default: the docstring of `spec`."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    host: bool = False
    """Whether its objects have something run or written on the host: who declares one needs the verb `operate` as well."""
    held_by: str = ""
    """The field of the status by which its objects are held: see `protocol.HELD_BY`."""

    def __post_init__(self) -> None:
        if not self.plural:
            object.__setattr__(self, "plural", plural_of(self.kind))
        problems = dns_subdomain_problems(self.group) or ([] if "." in self.group else ["it has a dot: shop.example.com"])
        _refuse("group", self.group, problems)
        _refuse("kind", self.kind, dns1035_problems(self.kind.lower()) or _not_camel(self.kind))
        lower = [("plural", self.plural), ("version", self.version)]
        lower += [("short name", name) for name in self.short_names] + [("category", c) for c in self.categories]
        lower += [("version", version.name) for version in self.other_versions]
        for what, text in lower:
            _refuse(what, text, dns1035_problems(text))

    @property
    def api_version(self) -> str:
        """`group/version`."""
        return f"{self.group}/{self.version}"

    @property
    def name(self) -> str:
        """The name of the definition: `plural.group`."""
        return f"{self.plural}.{self.group}"


def _refuse(what: str, text: str, problems: list[str]) -> None:
    if problems:
        raise ValueError(f"{text!r} cannot be the {what} of a kind: {problems[0]}")


def _not_camel(kind: str) -> list[str]:
    return [] if kind[:1].isupper() else ["it begins with a capital letter"]


def plural_of(kind: str) -> str:
    """`files`, `policies`, `processes`, `proxies`, `gateways`."""
    name = kind.lower()
    if name.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if name.endswith("y") and name[-2:-1] not in ("a", "e", "i", "o", "u", ""):
        return f"{name[:-1]}ies"
    return f"{name}s"


def crd_for(kind: KindInfo) -> Raw:
    """The complete CustomResourceDefinition (apiextensions.k8s.io/v1) of a kind, ready to be applied."""
    stored = KindVersion(kind.version, kind.spec, kind.status)
    names: Raw = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    metadata: Raw = {"name": kind.name}
    if kind.labels:
        metadata["labels"] = dict(kind.labels)
    if marks := ({HOST: "true"} if kind.host else {}) | ({HELD_BY: kind.held_by} if kind.held_by else {}):
        metadata["annotations"] = marks
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": kind.group,
            "names": names,
            "scope": kind.scope,
            "versions": [_version(kind, version) for version in (stored, *kind.other_versions)],
        },
    }


def _version(kind: KindInfo, version: KindVersion) -> Raw:
    own = {column.name for column in kind.columns}
    columns = [*kind.columns, *(column for column in (READY, AGE) if column.name not in own)]
    subresources: Raw = {"status": {}}
    if kind.scale is not None:
        subresources["scale"] = kind.scale.wire()
    raw: Raw = {
        "name": version.name,
        "served": version.served,
        "storage": version.name == kind.version,
        "schema": {"openAPIV3Schema": _object_schema(kind, version)},
        "subresources": subresources,
        "additionalPrinterColumns": [column.wire() for column in columns],
    }
    if version.deprecated:
        raw.update(deprecated=True, deprecationWarning=version.deprecated)
    if kind.selectable:
        raw["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return raw


def _object_schema(kind: KindInfo, version: KindVersion) -> Raw:
    spec = schema_of(version.spec)
    raw: Raw = {"type": "object"}
    if text := kind.description or spec.get("description", ""):
        raw["description"] = text
    raw["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status_schema(version.status),
    }
    if spec.get("required"):
        raw["required"] = ["spec"]
    else:
        # An object without a spec gets the defaults too; whole, for the rules of the spec are tried on them.
        spec["default"] = {name: inner["default"] for name, inner in spec["properties"].items() if "default" in inner}
    return raw


def status_schema(status: Struct | Mapping[str, Any] | None) -> Raw:
    """The schema of a status; see `KindInfo.status`."""
    if isinstance(status, Mapping):
        return deepcopy(dict(status))
    raw: Raw = {"type": "object", "x-kubernetes-preserve-unknown-fields": True} if status is None else schema_of(status)
    raw["properties"] = {
        "observedGeneration": {
            "type": "integer",
            "format": "int64",
            "description": "The generation that was looked at last.",
        },
        "conditions": deepcopy(CONDITIONS),
        **raw.get("properties", {}),
    }
    return raw
