"""Client libraries from PyPI against a server of ours, over TLS, through the kubeconfig that `homeostat up` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from conformance.conftest import Api, Kind, api, define, kubeconfig, namespace, undefine

__all__ = ["api", "kubeconfig", "namespace"]

INTEGER = {"type": "integer", "format": "int32"}
SCHEMA: dict[str, Any] = {
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {**INTEGER, "minimum": 1, "maximum": 10},
                "color": {"type": "string", "default": "red"},
                "replicas": {**INTEGER, "default": 1},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
}
SUBRESOURCES = {
    "status": {},
    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
}


@pytest.fixture(scope="session")
def widgets(api: Api) -> Iterator[Kind]:
    """A custom kind with status and scale, under a group of its own."""
    kind = define(api, SCHEMA, group=f"l{uuid4().hex[:8]}.libraries.example", subresources=SUBRESOURCES)
    yield kind
    undefine(kind)


@pytest.fixture
def manifests(tmp_path: Path, namespace: str) -> Path:
    """A file that declares a config map, a service and a deployment."""
    path = tmp_path / "all.yaml"
    path.write_text(
        f"""
apiVersion: v1
kind: ConfigMap
metadata: {{name: settings, namespace: {namespace}}}
data: {{a: "1"}}
---
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: {namespace}}}
spec: {{selector: {{app: web}}, ports: [{{port: 80}}]}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web, namespace: {namespace}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: main, image: "nginx:1"}}]}}
"""
    )
    return path
