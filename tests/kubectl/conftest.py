"""kubectl against a server of ours, over TLS, with the kubeconfig that `homeostat up` wrote.

HOMEOSTAT_KUBECTL names another kubectl than the one on the PATH; HOMEOSTAT_CONFORMANCE_KUBECONFIG another server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from conformance.conftest import Api, api, kubeconfig, make_namespace
from kubectl.program import Kubectl, find_kubectl

__all__ = ["api", "kubeconfig"]


@dataclass(frozen=True)
class Kind:
    """A custom kind under a group of its own."""

    group: str

    @property
    def plural(self) -> str:
        """How to name it on the command line, whatever other kinds there are."""
        return f"widgets.{self.group}"

    def definition(self, **spec: Any) -> dict[str, Any]:
        """Its CustomResourceDefinition; keywords replace parts of the only version."""
        integer = {"type": "integer", "format": "int32"}
        schema = {
            "type": "object",
            "description": "A widget that turns.",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "description": "How it should turn.",
                    "required": ["size"],
                    "properties": {
                        "size": {**integer, "minimum": 1, "maximum": 10, "description": "From one to ten."},
                        "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "red"},
                        "replicas": {**integer, "default": 1},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "parts": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["name"],
                            "items": {
                                "type": "object",
                                "required": ["name"],
                                "properties": {"name": {"type": "string"}, "count": integer},
                            },
                        },
                    },
                },
                "status": {
                    "type": "object",
                    "properties": {
                        "replicas": integer,
                        "phase": {"type": "string"},
                        "conditions": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                            },
                        },
                    },
                },
            },
        }
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
            },
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
            **spec,
        }
        names = {
            "plural": "widgets",
            "singular": "widget",
            "kind": "Widget",
            "listKind": "WidgetList",
            "shortNames": ["wd"],
            "categories": ["all", "toys"],
        }
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.plural},
            "spec": {"group": self.group, "scope": "Namespaced", "names": names, "versions": [version]},
        }

    def new(self, name: str, size: int = 1, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": f"{self.group}/v1",
            "kind": "Widget",
            "metadata": {"name": name, **(metadata or {})},
            "spec": {"size": size, **spec},
        }


@pytest.fixture(scope="session")
def admin(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """kubectl in no namespace of its own, and with a home (and so a cache of discovery) of its own."""
    return Kubectl(find_kubectl(), kubeconfig, tmp_path_factory.mktemp("home"))


@pytest.fixture
def kubectl(admin: Kubectl, api: Api) -> Iterator[Kubectl]:
    """kubectl in a namespace of its own."""
    namespace = make_namespace(api, "kubectl-")
    yield admin.within(namespace)
    api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture
def new_kind() -> Kind:
    """A custom kind that is not defined yet."""
    return Kind(f"g{uuid4().hex[:8]}.kubectl.example")


@pytest.fixture(scope="session")
def widgets(admin: Kubectl) -> Iterator[Kind]:
    """A custom kind, defined and served."""
    kind = Kind(f"g{uuid4().hex[:8]}.kubectl.example")
    admin("create", "-f", "-", stdin=kind.definition())
    admin("wait", "--for=condition=Established", f"crd/{kind.plural}", "--timeout=20s")
    yield kind
    admin("delete", "crd", kind.plural)


def deployment(name: str = "web", replicas: int = 2, image: str = "nginx:1") -> dict[str, Any]:
    """A deployment of one container."""
    labels = {"app": name}
    container = {"name": "main", "image": image, "ports": [{"containerPort": 80}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def config_map(name: str, metadata: dict[str, Any] | None = None, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **(metadata or {})}, "data": data}
