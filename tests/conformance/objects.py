"""Objects that the tests of writes create, and where they live."""

from __future__ import annotations

from typing import Any

from .conftest import Answer, Api, Kind, Object

WIDGET_SCHEMA: Object = {
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "text": {"type": "string"},
                "words": {"type": "array", "items": {"type": "string"}},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    },
                },
                "whole": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                },
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer"},
                "phase": {"type": "string"},
                "selector": {"type": "string"},
            },
        },
    }
}
WIDGET_SUBRESOURCES: Object = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
}

CONTAINER = {"name": "main", "image": "example/app:1"}


def at(namespace: str, plural: str, name: str = "", subresource: str = "", group: str = "", version: str = "v1") -> str:
    """The path of a built-in kind in a namespace."""
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    parts = (f"{base}/namespaces/{namespace}", plural, name, subresource)
    return "/".join(part for part in parts if part)


def config_map(name: str = "", **rest: Any) -> Object:
    metadata = {**({"name": name} if name else {}), **rest.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **rest}


def deployment(name: str = "web", **spec: Any) -> Object:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [dict(CONTAINER)]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template, **spec},
    }


def lease(name: str = "lock", **spec: Any) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}


def pod(name: str = "one") -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [dict(CONTAINER)]}}


def service(name: str = "front") -> Object:
    spec = {"selector": {"app": name}, "ports": [{"name": "http", "port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def make(api: Api, kind: Kind, namespace: str, name: str, **rest: Any) -> Object:
    """Creates an object of a custom kind as the manager `maker`; gives it as it was stored."""
    made = api.post(kind.path(namespace), kind.new(name, **rest), fieldManager="maker").expect(201)
    assert isinstance(made, dict)
    return made


def version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])


def managers(obj: Object) -> list[tuple[str, str, str, Any]]:
    """(manager, operation, subresource, fields) of every entry, in order."""
    return [
        (e["manager"], e["operation"], e.get("subresource", ""), e["fieldsV1"])
        for e in obj["metadata"].get("managedFields", [])
    ]


def refusal(answer: Answer) -> tuple[int, str]:
    """(code, reason) of a failure, once it is a proper Status."""
    body = answer.body
    assert body["kind"] == "Status"
    assert body["status"] == "Failure"
    assert body["apiVersion"] == "v1"
    assert body["code"] == answer.status
    return answer.status, body.get("reason", "")
