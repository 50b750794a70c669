"""What an agent may do in the API: its own node, its own lease, to read workloads and report on them, and who the server is. Nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from homeostat.gpu.kinds import GROUP, NODE, WORKLOAD
from homeostat.loop.election import NAMESPACE

ROLE = "homeostat:gpu-agent"
AGENTS = "homeostat:gpu-agents"
"""The group that all agents are in."""
_RBAC = "rbac.authorization.k8s.io"

Object = dict[str, Any]


def user_of(node: str) -> str:
    """As whom the agent of a node speaks."""
    return f"{ROLE}:{node}"


def manifests(node: str, nodes: Sequence[str] = ()) -> list[Object]:
    """Roles and bindings for the agent of a node. The role for workloads is the same for all agents; the rest names this node.

    A bridge keeps several `nodes`, and goes by a name that is none of theirs.

    A role cannot narrow who may report on which workload: an agent could report on those of others.
    """
    name, names = user_of(node), list(nodes) or [node]
    workloads = [
        _rule([GROUP], [WORKLOAD.plural], ["get", "list", "watch"]),
        _rule([GROUP], [f"{WORKLOAD.plural}/status"], ["patch"]),
        _rule([""], ["namespaces"], ["get"], [NAMESPACE]),  # by its uid a server is known again
    ]
    own = [
        _rule([GROUP], [NODE.plural], ["get", "create", "patch"], names),
        _rule([GROUP], [f"{NODE.plural}/status"], ["patch"], names),
    ]
    lease = [_rule(["coordination.k8s.io"], ["leases"], ["get", "create", "update", "patch"], names)]
    return [
        _role("ClusterRole", ROLE, workloads),
        _binding("ClusterRole", ROLE, "Group", AGENTS),
        _role("ClusterRole", name, own),
        _binding("ClusterRole", name, "User", name),
        _role("Role", name, lease, NAMESPACE),
        _binding("Role", name, "User", name, NAMESPACE),
    ]


def _rule(groups: Sequence[str], resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> Object:
    rule: Object = {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


def _role(kind: str, name: str, rules: list[Object], namespace: str = "") -> Object:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": _metadata(name, namespace), "rules": rules}


def _binding(kind: str, role: str, subject: str, who: str, namespace: str = "") -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(role, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": _RBAC, "kind": subject, "name": who}],
    }


def _metadata(name: str, namespace: str) -> Object:
    return {"name": name, "namespace": namespace} if namespace else {"name": name}
