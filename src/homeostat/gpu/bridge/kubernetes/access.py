"""What a bridge may do in the cluster that it keeps: see nodes and Pods, and make and end Pods in one namespace. Nothing else."""

from __future__ import annotations

from typing import Any

from homeostat.gpu.bridge.kubernetes.pods import MANAGER

Object = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"


def manifests(namespace: str) -> list[Object]:
    """A service account in the namespace of its Pods, with roles for it."""
    subject = {"kind": "ServiceAccount", "name": MANAGER, "namespace": namespace}
    see = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}]
    do = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "patch"]}]
    account: Object = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": MANAGER, "namespace": namespace}}
    return [
        account,
        {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": MANAGER}, "rules": see},
        _binding("ClusterRole", {"name": MANAGER}, subject),
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": MANAGER, "namespace": namespace}, "rules": do},
        _binding("Role", {"name": MANAGER, "namespace": namespace}, subject),
    ]


def _binding(kind: str, metadata: Object, subject: Object) -> Object:
    role = {"apiGroup": _RBAC, "kind": kind, "name": MANAGER}
    return {"apiVersion": f"{_RBAC}/v1", "kind": f"{kind}Binding", "metadata": metadata, "roleRef": role, "subjects": [subject]}
