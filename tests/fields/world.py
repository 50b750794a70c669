"""A small world of one custom kind with every way of owning, and a server reduced to its two writing verbs."""

from __future__ import annotations

import copy
from typing import Any

from homeostat.api.fields import apply, track
from homeostat.model.schema import Schema

API = "example.com/v1"

SCHEMA = Schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "image": {"type": "string"},
                    "args": {"type": "array", "items": {"type": "string"}},
                    "zones": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "ports": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "port": {"type": "integer"},
                                "protocol": {"type": "string", "default": "TCP"},
                                "name": {"type": "string"},
                                "note": {"type": "string"},
                            },
                        },
                    },
                    "selector": {
                        "type": "object",
                        "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"},
                    },
                    "env": {"type": "object", "additionalProperties": {"type": "string"}},
                    "nested": {
                        "type": "object",
                        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                },
            },
            "status": {
                "type": "object",
                "properties": {"phase": {"type": "string"}, "count": {"type": "integer"}},
            },
        },
    }
)

Object = dict[str, Any]


def thing(spec: Object | None = None, **more: Any) -> Object:
    """A minimal object; `labels` and `annotations` go to its metadata."""
    meta = {"name": "one", "namespace": "default"}
    for key in ("labels", "annotations"):
        if key in more:
            meta[key] = more.pop(key)
    obj = {"apiVersion": API, "kind": "Thing", "metadata": meta, **more}
    if spec is not None:
        obj["spec"] = spec
    return copy.deepcopy(obj)


class World:
    """One object and a clock that ticks with every write. Each write checks that its inputs were left alone."""

    def __init__(self) -> None:
        self.live: Object | None = None
        self.seconds = 0
        self.schemas: dict[str, Schema] = {API: SCHEMA}

    @property
    def now(self) -> str:
        return f"2026-01-01T00:{self.seconds // 60:02}:{self.seconds % 60:02}Z"

    def update(self, manager: str, obj: Object, *, api_version: str = API, **options: Any) -> Object:
        self.seconds += 1
        new = copy.deepcopy(obj)
        if self.live is not None:
            new["metadata"]["uid"] = "u-1"
        before = copy.deepcopy(self.live)
        track(
            self.schemas[api_version],
            self.live,
            new,
            manager=manager,
            api_version=api_version,
            now=self.now,
            schema_for_version=self.schemas.get,
            **options,
        )
        assert self.live == before
        self.live = new
        return new

    def edit(self, manager: str, change: Any, **options: Any) -> Object:
        """Updates a copy of the live object as `change` leaves it."""
        obj = copy.deepcopy(self.live)
        assert obj is not None
        change(obj)
        return self.update(manager, obj, **options)

    def apply(self, manager: str, config: Object, *, api_version: str = API, **options: Any) -> Object:
        self.seconds += 1
        before = copy.deepcopy((self.live, config))
        result = apply(
            self.schemas[api_version],
            self.live,
            config,
            manager=manager,
            api_version=api_version,
            now=self.now,
            schema_for_version=self.schemas.get,
            **options,
        )
        assert (self.live, config) == before
        self.live = result
        return result

    def entries(self) -> list[Object]:
        assert self.live is not None
        entries: list[Object] = self.live["metadata"].get("managedFields", [])
        return entries

    def entry(self, manager: str, operation: str | None = None, subresource: str = "") -> Object:
        for entry in self.entries():
            found = entry["manager"], entry.get("subresource", "")
            if found == (manager, subresource) and operation in (None, entry["operation"]):
                return entry
        raise AssertionError(f"{manager} owns nothing; owners are {[e['manager'] for e in self.entries()]}")

    def owned(self, manager: str, operation: str | None = None, subresource: str = "") -> Object:
        fields: Object = self.entry(manager, operation, subresource)["fieldsV1"]
        return fields

    def owners(self) -> list[str]:
        return [entry["manager"] for entry in self.entries()]
