"""Builds the table of built-in types from the JSON schemas in the `kubernetes-validate` wheel.

    python scripts/build_types.py kubernetes_validate-1.37.0-py3-none-any.whl

Only facts are taken (names, types, formats, required fields, list and merge rules), no texts. The table is one line a
type: its name, a tab, its schema as JSON. So the server can find a type without parsing the others.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

RELEASE = "v1.36.0"
TARGET = Path(__file__).parents[1] / "src/homeostat/api/builtin/types.tsv"

API = "io.k8s.api."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
EXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."

KINDS = {
    "core.v1": "Namespace ConfigMap Secret Event ServiceAccount Service Pod PodTemplate Node ReplicationController"
    " ResourceQuota LimitRange PersistentVolume PersistentVolumeClaim Endpoints Binding",
    "apps.v1": "Deployment ReplicaSet StatefulSet DaemonSet ControllerRevision",
    "batch.v1": "Job CronJob",
    "coordination.v1": "Lease",
    "events.v1": "Event",
    "rbac.v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "admissionregistration.v1": "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding",
    "authorization.v1": "SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview LocalSubjectAccessReview",
    "authentication.v1": "TokenReview TokenRequest SelfSubjectReview",
    "policy.v1": "PodDisruptionBudget Eviction",
    "autoscaling.v1": "Scale HorizontalPodAutoscaler",
    "autoscaling.v2": "HorizontalPodAutoscaler",
    "networking.v1": "Ingress IngressClass NetworkPolicy",
    "storage.v1": "StorageClass",
    "scheduling.v1": "PriorityClass",
    "discovery.v1": "EndpointSlice",
}
META_KINDS = (
    "ObjectMeta ListMeta Status WatchEvent DeleteOptions Patch"
    " APIGroup APIGroupList APIResource APIResourceList APIVersions"
)

KEPT = (
    "type",
    "format",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
)

# Go types that read JSON by rules of their own; the schemas cannot say it.
SPECIAL: dict[str, dict[str, Any]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "x-kubernetes-int-or-string": True,
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"format": "quantity"},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    },
    META + "FieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    META + "Patch": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    **{
        EXTENSIONS + name: {"x-kubernetes-preserve-unknown-fields": True}
        for name in ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")
    },
}

# Declared in the Go types and in OpenAPI v3; the wheel was made from OpenAPI v2, which cannot say them.
DEFAULTS = {
    API + "core.v1.ContainerPort": {"protocol": "TCP"},
    API + "core.v1.ServicePort": {"protocol": "TCP"},
}


def strip(schema: dict[str, Any]) -> dict[str, Any]:
    """The facts of one schema node, without texts; `null` is legal everywhere in these types and goes unsaid."""
    facts: dict[str, Any] = {}
    if "$ref" in schema:
        facts["$ref"] = schema["$ref"].rsplit("/", 1)[1]
    for key in KEPT:
        if key in schema:
            facts[key] = schema[key]
    if isinstance(facts.get("type"), list):
        (facts["type"],) = (t for t in facts["type"] if t != "null")
    if "items" in schema:
        facts["items"] = strip(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        facts["additionalProperties"] = strip(schema["additionalProperties"])
    if "properties" in schema:
        facts["properties"] = {name: strip(prop) for name, prop in sorted(schema["properties"].items())}
    return facts


def references(schema: Any) -> set[str]:
    """The names of the types that a schema points to."""
    if isinstance(schema, list):
        return set().union(*map(references, schema))
    if not isinstance(schema, dict):
        return set()
    found = set().union(*map(references, schema.values()))
    return found | {schema["$ref"]} if isinstance(schema.get("$ref"), str) else found


def table(definitions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The wanted kinds and every type they are made of."""
    wanted = [API + f"{package}.{kind}" for package, kinds in KINDS.items() for kind in kinds.split()]
    wanted += [META + kind for kind in META_KINDS.split()]
    wanted.append(EXTENSIONS + "CustomResourceDefinition")
    types: dict[str, dict[str, Any]] = {}
    while wanted:
        name = wanted.pop()
        if name in types:
            continue
        facts = SPECIAL.get(name) or strip(definitions[name])
        for field, default in DEFAULTS.get(name, {}).items():
            facts["properties"][field]["default"] = default
        types[name] = facts
        wanted += references(facts)
    return dict(sorted(types.items()))


def main(wheel: str) -> None:
    folder = f"kubernetes_validate/kubernetes-json-schema/{RELEASE}-local/"
    with zipfile.ZipFile(wheel) as archive:
        definitions = json.loads(archive.read(folder + "_definitions.json"))["$defs"]
    lines = [f"{name}\t{json.dumps(facts, separators=(',', ':'))}\n" for name, facts in table(definitions).items()]
    TARGET.write_text("".join(lines), encoding="utf-8")
    print(f"{TARGET}: {len(lines)} types, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
