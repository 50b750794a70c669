"""One node of an object's type: what the validator, the pruner, the patchers and server-side apply all read.

Custom kinds bring an OpenAPI v3 structural schema, built-in kinds a table of types; both become `Schema` nodes, so
that every rule about fields is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from homeostat.model.errors import UNSET

Raw = Mapping[str, Any]
Resolve = Callable[[str], "Schema"]
"""Looks up a `$ref` by name; only the built-in types use references."""


class Schema:
    """A type. Structure is parsed into attributes; what only validation reads (limits, patterns, …) stays in `raw`."""

    __slots__ = (
        "_additional",
        "_items",
        "_properties",
        "_resolve",
        "compiled",
        "default",
        "embedded",
        "int_or_string",
        "list_keys",
        "list_type",
        "map_type",
        "merge_key",
        "merge_strategy",
        "nullable",
        "preserve_unknown",
        "raw",
        "type",
    )

    def __init__(self, raw: Raw, resolve: Resolve | None = None) -> None:
        self.raw = raw
        self._resolve = resolve
        self.type: str = raw.get("type") or ""
        self.nullable: bool = raw.get("nullable", False) is True
        self.preserve_unknown: bool = raw.get("x-kubernetes-preserve-unknown-fields", False) is True
        self.int_or_string: bool = (
            raw.get("x-kubernetes-int-or-string", False) is True or raw.get("format") == "int-or-string"
        )
        self.embedded: bool = raw.get("x-kubernetes-embedded-resource", False) is True
        self.default: Any = raw.get("default", UNSET)
        self.list_type: str = raw.get("x-kubernetes-list-type") or "atomic"
        self.list_keys: tuple[str, ...] = tuple(raw.get("x-kubernetes-list-map-keys") or ())
        self.map_type: str = raw.get("x-kubernetes-map-type") or "granular"
        self.merge_key: str = raw.get("x-kubernetes-patch-merge-key") or ""
        strategy: str = raw.get("x-kubernetes-patch-strategy") or ""
        self.merge_strategy: frozenset[str] = frozenset(strategy.split(",")) if strategy else frozenset()
        self._properties: dict[str, Schema] | None = None
        self._items: Schema | None = None
        self._additional: Schema | None = None
        self.compiled: Any = None  # free for readers: what they compute once and keep with the node

    def _child(self, raw: Raw) -> Schema:
        ref = raw.get("$ref")
        if ref is not None and self._resolve is not None:
            target = self._resolve(ref)
            if len(raw) == 1:
                return target
            # A field may say more than its type does (merge keys, defaults): the field's word wins.
            return Schema({**target.raw, **{k: v for k, v in raw.items() if k != "$ref"}}, self._resolve)
        return Schema(raw, self._resolve)

    @property
    def builtin(self) -> bool:
        """Whether it is a type of the built-in table, with a Go type behind it."""
        return self._resolve is not None

    @property
    def properties(self) -> dict[str, Schema]:
        """Declared fields by name; built when first asked for."""
        if self._properties is None:
            self._properties = {k: self._child(v) for k, v in (self.raw.get("properties") or {}).items()}
        return self._properties

    @property
    def items(self) -> Schema | None:
        """The type of a list's items."""
        raw = self.raw.get("items")
        if self._items is None and raw is not None:
            self._items = self._child(raw)
        return self._items

    @property
    def additional(self) -> Schema | None:
        """The type of a map's values (`additionalProperties`); None where it is absent or a plain boolean."""
        raw = self.raw.get("additionalProperties")
        if self._additional is None and isinstance(raw, Mapping):
            self._additional = self._child(raw)
        return self._additional

    def child(self, field: str) -> Schema | None:
        """The type of one field of an object or key of a map; None where nothing is known of it."""
        return self.properties.get(field) or self.additional

    def __repr__(self) -> str:
        return f"Schema({self.type or 'any'}, {list(self.properties)})"


TYPE_AND_METADATA = frozenset({"apiVersion", "kind", "metadata"})
"""The fields that every whole object has, whatever its schema says of them."""

ANY = Schema({"x-kubernetes-preserve-unknown-fields": True})
"""The type of what nobody described: everything is kept, lists are atomic, maps are granular."""

_STRING_MAP: Raw = {"type": "object", "additionalProperties": {"type": "string"}}

ABSENT_WHEN_ZERO = "x-homeostat-absent-when-zero"
"""Names the fields of a built-in type for which nothing (`""`, `0`, `false`, `[]`, `{}`) and absent are the same."""

OBJECT_META = Schema(
    {
        "type": "object",
        ABSENT_WHEN_ZERO: frozenset(
            {
                "name",
                "generateName",
                "namespace",
                "selfLink",
                "uid",
                "resourceVersion",
                "generation",
                "labels",
                "annotations",
                "ownerReferences",
                "finalizers",
                "managedFields",
            }
        ),
        "properties": {
            "name": {"type": "string"},
            "generateName": {"type": "string"},
            "namespace": {"type": "string"},
            "selfLink": {"type": "string"},
            "uid": {"type": "string"},
            "resourceVersion": {"type": "string"},
            "generation": {"type": "integer", "format": "int64"},
            "creationTimestamp": {"type": "string", "format": "date-time", "nullable": True},
            "deletionTimestamp": {"type": "string", "format": "date-time", "nullable": True},
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
            "labels": _STRING_MAP,
            "annotations": _STRING_MAP,
            "finalizers": {
                "type": "array",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            },
            "ownerReferences": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["uid"],
                "x-kubernetes-patch-merge-key": "uid",
                "x-kubernetes-patch-strategy": "merge",
                "items": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "required": ["apiVersion", "kind", "name", "uid"],
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "name": {"type": "string"},
                        "uid": {"type": "string"},
                        "controller": {"type": "boolean"},
                        "blockOwnerDeletion": {"type": "boolean"},
                    },
                },
            },
            "managedFields": {
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "properties": {
                        "manager": {"type": "string"},
                        "operation": {"type": "string"},
                        "apiVersion": {"type": "string"},
                        "time": {"type": "string", "format": "date-time", "nullable": True},
                        "fieldsType": {"type": "string"},
                        "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        "subresource": {"type": "string"},
                    },
                },
            },
        },
    }
)
"""The type of `metadata`, the same for every kind."""
