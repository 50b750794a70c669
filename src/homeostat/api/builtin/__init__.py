"""The kinds that every Kubernetes API has, and UserToken: one file a family, each with its rules in upstream's words.

`resources()` gives them all. Kinds with `verbs == ("create",)` are answered, not stored.
"""

from __future__ import annotations

from homeostat.api.auth.rbac import GROUP as RBAC_GROUP
from homeostat.api.auth.rbac import PLURALS as RBAC_PLURALS
from homeostat.api.resource import Resource

__all__ = ["resources"]

_RBAC = tuple(f"{plural}.{RBAC_GROUP}" for plural in RBAC_PLURALS.values())
_CREATED_BY_UPDATE = frozenset(
    ("endpoints", "events", "leases.coordination.k8s.io", "limitranges", "runtimeclasses.node.k8s.io", "services", *_RBAC)
)
_UPDATED_WITH_VERSION = frozenset(
    (
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "csistoragecapacities.storage.k8s.io",
        "leases.coordination.k8s.io",
        "poddisruptionbudgets.policy",
        "runtimeclasses.node.k8s.io",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "volumeattachments.storage.k8s.io",
    )
)
_SHOWN_WHEN_DELETED = frozenset(
    (
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "services",
        "storageclasses.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
    )
)


def resources() -> list[Resource]:
    """Every built-in kind, made anew at each call."""
    from homeostat.api.builtin import (
        admissionpolicies,
        config,
        events,
        jobs,
        leases,
        namespaces,
        networking,
        nodes,
        pods,
        quota,
        rbac,
        reviews,
        scaling,
        serviceaccounts,
        services,
        storage,
        usertokens,
        workloads,
    )

    core = (config, namespaces, events, serviceaccounts, quota, pods, services, nodes, storage)
    others = (workloads, jobs, scaling, networking, leases, rbac, admissionpolicies, reviews, usertokens)
    found = [resource for family in (*core, *others) for resource in family.resources()]
    for resource in found:
        resource.create_on_update = resource.qualified in _CREATED_BY_UPDATE
        resource.unconditional_update = resource.qualified not in _UPDATED_WITH_VERSION
        resource.returns_deleted = resource.qualified in _SHOWN_WHEN_DELETED
    return found
