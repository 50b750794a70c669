"""The roles and bindings that every new control plane begins with: upstream's for people, and a few of our own.

`admin`, `edit` and `view` hold no rules of their own: they gather the roles that are labelled for them, so that whoever
adds a kind adds its rules by one labelled role more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from homeostat.api.auth import usertokens
from homeostat.api.auth.aggregation import aggregate
from homeostat.api.auth.rbac import GROUP
from homeostat.api.auth.user import AUTHENTICATED, MASTERS, SERVICE_ACCOUNTS, UNAUTHENTICATED

Object = dict[str, Any]

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
READ_WRITE = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")

HEALTH = ("/healthz", "/livez", "/readyz", "/version", "/version/")

_API = f"{GROUP}/v1"
_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"
_DEFAULTS = {"kubernetes.io/bootstrapping": "rbac-defaults"}


def objects() -> list[Object]:
    """Everything to create at first start: cluster roles (the gathering ones already filled), then their bindings."""
    roles = _roles()
    filled = {role["metadata"]["name"]: role for role in aggregate(roles)}
    return [*(filled.get(role["metadata"]["name"], role) for role in roles), *_bindings()]


def _roles() -> list[Object]:
    return [
        _role("cluster-admin", [_rule("*", "*", "*"), _urls("*", "*")]),
        _gathering("admin", "admin"),
        _gathering("edit", "edit", also="admin"),
        _gathering("view", "view", also="edit"),
        _role("system:aggregate-to-admin", _admin_rules(), gathered_by="admin"),
        _role("system:aggregate-to-edit", _edit_rules(), gathered_by="edit"),
        _role("system:aggregate-to-view", _view_rules(), gathered_by="view"),
        _role(
            "system:discovery",
            [_urls("get", "/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *HEALTH)],
        ),
        _role("system:public-info-viewer", [_urls("get", *HEALTH)]),
        _role("system:basic-user", _basic_rules()),
        _role("system:auth-delegator", _delegation_rules()),
        _role(
            "system:service-account-issuer-discovery",
            [_urls("get", "/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks",
                   "/openid/v1/jwks/")],
        ),
        _role(
            "system:monitoring",
            [_urls("get", "/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis", "/readyz",
                   "/readyz/*")],
        ),
        # Who hands out tokens needs, beside this, `impersonate` on the users and groups they hand them out for.
        _role("system:homeostat:token-issuer", [_rule(usertokens.VERBS, usertokens.GROUP, usertokens.PLURAL)]),
    ]


def _bindings() -> list[Object]:
    return [
        _binding("cluster-admin", MASTERS),
        _binding("system:basic-user", AUTHENTICATED),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:monitoring", "system:monitoring"),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
        _binding("system:service-account-issuer-discovery", SERVICE_ACCOUNTS),
    ]


def _admin_rules() -> list[Object]:
    return [
        _rule("create", "authorization.k8s.io", "localsubjectaccessreviews"),
        _rule(READ_WRITE, GROUP, "rolebindings", "roles"),
    ]


def _edit_rules() -> list[Object]:
    pods = ("pods/attach", "pods/exec", "pods/portforward", "pods/proxy")
    scaled = ("deployments", "deployments/scale", "replicasets", "replicasets/scale")
    return [
        _rule(READ, "", *pods, "secrets", "services/proxy"),
        _rule("impersonate", "", "serviceaccounts"),
        _rule(WRITE, "", "pods", *pods),
        _rule("create", "", "pods/eviction"),
        _rule(
            WRITE, "", "configmaps", "events", "persistentvolumeclaims", "replicationcontrollers",
            "replicationcontrollers/scale", "secrets", "serviceaccounts", "services", "services/proxy",
        ),
        _rule("create", "", "serviceaccounts/token"),
        _rule(WRITE, "apps", "daemonsets", "deployments/rollback", *scaled, "statefulsets", "statefulsets/scale"),
        _rule(WRITE, "autoscaling", "horizontalpodautoscalers"),
        _rule(WRITE, "batch", "cronjobs", "jobs"),
        _rule(WRITE, "policy", "poddisruptionbudgets"),
        _rule(WRITE, "networking.k8s.io", "ingresses", "networkpolicies"),
        _rule(READ_WRITE, "coordination.k8s.io", "leases"),
    ]


def _view_rules() -> list[Object]:
    return [
        _rule(
            READ, "", "configmaps", "endpoints", "persistentvolumeclaims", "persistentvolumeclaims/status", "pods",
            "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services", "services/status",
        ),
        _rule(
            READ, "", "bindings", "events", "limitranges", "namespaces/status", "pods/log", "pods/status",
            "replicationcontrollers/status", "resourcequotas", "resourcequotas/status",
        ),
        _rule(READ, "", "namespaces"),
        _rule(READ, "discovery.k8s.io", "endpointslices"),
        _rule(
            READ, "apps", "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale",
            "deployments/status", "replicasets", "replicasets/scale", "replicasets/status", "statefulsets",
            "statefulsets/scale", "statefulsets/status",
        ),
        _rule(READ, "autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
        _rule(READ, "batch", "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
        _rule(READ, "policy", "poddisruptionbudgets", "poddisruptionbudgets/status"),
        _rule(READ, "networking.k8s.io", "ingresses", "ingresses/status", "networkpolicies"),
    ]


def _basic_rules() -> list[Object]:
    return [
        _rule("create", "authorization.k8s.io", "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        _rule("create", "authentication.k8s.io", "selfsubjectreviews"),
    ]


def _delegation_rules() -> list[Object]:
    return [
        _rule("create", "authentication.k8s.io", "tokenreviews"),
        _rule("create", "authorization.k8s.io", "subjectaccessreviews"),
    ]


def _rule(verbs: str | Sequence[str], group: str, *resources: str) -> Object:
    listed = [verbs] if isinstance(verbs, str) else list(verbs)
    return {"apiGroups": [group], "resources": list(resources), "verbs": listed}


def _urls(verb: str, *urls: str) -> Object:
    return {"nonResourceURLs": sorted(urls), "verbs": [verb]}


def _label(role: str) -> str:
    return f"{GROUP}/aggregate-to-{role}"


def _meta(name: str, gathered_by: str = "") -> Object:
    labels = _DEFAULTS | ({_label(gathered_by): "true"} if gathered_by else {})
    return {"name": name, "labels": labels, "annotations": {_AUTOUPDATE: "true"}}


def _role(name: str, rules: Iterable[Object], gathered_by: str = "") -> Object:
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": _meta(name, gathered_by), "rules": list(rules)}


def _gathering(name: str, gathers: str, also: str = "") -> Object:
    selectors = [{"matchLabels": {_label(gathers): "true"}}]
    return _role(name, [], also) | {"aggregationRule": {"clusterRoleSelectors": selectors}}


def _binding(role: str, *groups: str) -> Object:
    return {
        "apiVersion": _API,
        "kind": "ClusterRoleBinding",
        "metadata": _meta(role),
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }
