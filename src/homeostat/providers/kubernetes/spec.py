"""What can be declared of an object on a Kubernetes API."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from msgspec import Meta

from homeostat.loop.live import is_secret
from homeostat.model.kinds import Rule, Spec

_EMBEDDED = {"x-kubernetes-embedded-resource": True}
_SERVERS = frozenset(
    {
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Fields of metadata that a server sets, and that copies of live objects have."""


class KubeconfigSecret(Spec):
    """A kubeconfig in a Secret of the same namespace. It has everything in itself: tokens and certificates, no files, no programs."""

    name: Annotated[str, Meta(min_length=1, max_length=253)]
    key: str = "kubeconfig"
    context: str = ""
    """Default: its current context."""


class KubernetesObjectSpec(Spec):
    """An object on a Kubernetes API, of which the declared fields are kept as they are declared."""

    object: Annotated[dict[str, Any], Meta(extra_json_schema=_EMBEDDED)]
    """The manifest. Its status, and what servers write into its metadata, do not count."""
    kubeconfig_secret: KubeconfigSecret | None = None
    """Which API. Default: the one that this is declared at; there only objects of the same namespace, unless the administrator
    allows more."""
    force_conflicts: bool = False
    """Whether fields are taken from who else has declared or changed them. Without, that is reported with their name, and held."""
    delete_policy: Literal["Delete", "Keep"] = "Delete"
    """What becomes of the object when this is deleted."""

    rules = [
        Rule(
            "self.object.kind == oldSelf.object.kind && self.object.metadata.name == oldSelf.object.metadata.name",
            message="kind and name are which object it is: declare another KubernetesObject",
        )
    ]


class KubernetesObjectState(Spec):
    """The object as it is, as far as it is about what was declared."""

    object: dict[str, Any]


def manifest_of(spec: KubernetesObjectSpec, namespace: str) -> dict[str, Any]:
    """What is applied: the declared object without what only servers write, in its namespace (empty: it has none)."""
    declared = spec.object
    metadata = {name: value for name, value in declared["metadata"].items() if name not in _SERVERS}
    metadata.pop("namespace", None)
    if namespace:
        metadata["namespace"] = namespace
    kept = {name: value for name, value in declared.items() if name not in ("status", "metadata", "stringData")}
    manifest = {**kept, "metadata": metadata}
    if is_secret(declared) and declared.get("stringData"):  # it is never shown again, so say it in the words of the server
        texts = {key: base64.b64encode(str(text).encode()).decode() for key, text in declared["stringData"].items()}
        manifest["data"] = {**(declared.get("data") or {}), **texts}
    elif "stringData" in declared:
        manifest["stringData"] = declared["stringData"]
    return manifest
