"""What client and server agree on beside objects: media types, limits, and marks in a stream."""

from __future__ import annotations

KUBERNETES = ("1", "36")
"""The Kubernetes version whose API we speak: clients choose their ways by it."""

JSON = "application/json"
YAML = "application/yaml"
YAML_TYPES = frozenset({YAML, "application/x-yaml", "text/yaml"})
"""Every name under which YAML is sent and asked for."""
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Kubernetes' own binary form, in which Go clients send built-in kinds."""

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

BODY_LIMIT = 3 * 1024 * 1024
"""Bytes of a request's body, as kube-apiserver limits them; by it is measured what grows from a body, too."""

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends the initial events of a watch."""

IMPERSONATE = b"impersonate-"
"""How the headers of a request begin, in lower case, by which somebody asks as somebody else."""

CHANGE_SET_HEADER = "Homeostat-Change-Set"
"""Header of a request: which change set a write belongs to."""
CHANGE_SET_NAME = r"^[!-~]([ -~]{0,251}[!-~])?$"
"""What a change set may be called: up to 253 printable ASCII characters, no space at either end."""
CHANGE_SET = "homeostat.dev/change-set"
"""Annotation that names the change set a declaration came with."""
DELETION_CHANGE_SET = "homeostat.dev/deletion-change-set"
"""Annotation that names the change set which deleted a declaration that is still being cleaned up."""

FINALIZER = "homeostat.dev/cleanup"
"""The finalizer of what the loop keeps: what was made for an object goes before the object does."""

HOST = "homeostat.dev/host"
"""Annotation of a definition: `"true"` where its objects have something run or written on the host."""
HELD_BY = "homeostat.dev/held-by"
"""Annotation of a definition: the field of the status by which its objects are held. A write of the status with something in that field puts
our finalizer on as well; other servers do not know it, and there the loop does so by a write of its own."""
CHILD_KINDS = "homeostat.dev/child-kinds"
"""Annotation of a definition whose objects are composed of others: every kind that those were ever of. The loop that composes them takes
them away as well, under its guards, when a parent is gone; garbage collection leaves them to it."""
CHILDREN_PATH = "/homeostat/children"
"""Where a server answers what a change of parents would do to what they declare, for the composers of its loop."""


def composed_by(kind: str) -> str:
    """The field manager of what is composed for objects of a kind (plural.group)."""
    return f"homeostat/{kind}"[:128]
