"""What built-in kinds refuse, and in which words. Texts that changed between releases are left out, or told by their end."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from .conftest import Api, Object, eventually, mistake, needs_builtin_rules
from .objects import at, lease, pod

NAMESPACED = {
    "v1": {
        "ConfigMap": "configmaps",
        "Secret": "secrets",
        "Service": "services",
        "Pod": "pods",
        "ResourceQuota": "resourcequotas",
        "PersistentVolumeClaim": "persistentvolumeclaims",
    },
    "coordination.k8s.io/v1": {"Lease": "leases"},
    "discovery.k8s.io/v1": {"EndpointSlice": "endpointslices"},
    "apps/v1": {
        "Deployment": "deployments",
        "StatefulSet": "statefulsets",
        "DaemonSet": "daemonsets",
        "ReplicaSet": "replicasets",
    },
    "batch/v1": {"Job": "jobs"},
    "rbac.authorization.k8s.io/v1": {"Role": "roles", "RoleBinding": "rolebindings"},
    "networking.k8s.io/v1": {"Ingress": "ingresses", "NetworkPolicy": "networkpolicies"},
    "autoscaling/v1": {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
}
CLUSTERED = {
    "v1": {"Namespace": "namespaces", "Node": "nodes"},
    "rbac.authorization.k8s.io/v1": {"ClusterRole": "clusterroles"},
    "scheduling.k8s.io/v1": {"PriorityClass": "priorityclasses"},
    "storage.k8s.io/v1": {"StorageClass": "storageclasses"},
}
SELECTED: Object = {"selector": {"matchLabels": {"a": "b"}}}
CONTAINER: Object = {"name": "c", "image": "i"}
POD: Object = {"containers": [CONTAINER]}
WORKLOAD: Object = {**SELECTED, "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD}}
TASK: Object = {"template": {"spec": {**POD, "restartPolicy": "Never"}}}
REQUIRED, PREFERRED = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
ROLE: Object = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}


SPREAD: Object = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def of(**fields: Any) -> Object:
    """A pod of one container with these fields."""
    return {"containers": [{**CONTAINER, **fields}]}


def failing(rule: Object) -> Object:
    """A job with one rule of what a failed pod means."""
    return {"spec": {**TASK, "podFailurePolicy": {"rules": [rule]}}}


def nodes(term: Object) -> Object:
    """An affinity that is for the nodes of one term alone."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def place(kind: str, namespace: str = "default") -> tuple[str, str]:
    """The apiVersion of a kind and where its objects are."""
    for kinds, folder in ((NAMESPACED, f"/namespaces/{namespace}"), (CLUSTERED, "")):
        for api_version, plurals in kinds.items():
            if kind in plurals:
                root = "/api/" if "/" not in api_version else "/apis/"
                return api_version, f"{root}{api_version}{folder}/{plurals[kind]}"
    raise AssertionError(kind)


@pytest.fixture(autouse=True)
def judge(api: Api) -> None:
    if not api.serves("scheduling.k8s.io/v1", "priorityclasses"):
        pytest.skip("this server does not validate built-in kinds")


def send(api: Api, kind: str, name: str, body: Object, namespace: str = "default", **query: Any) -> Any:
    api_version, path = place(kind, namespace)
    return api.post(path, {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **body}, **query)


REFUSED: list[tuple[str, str, Object, str, str]] = [
    (
        "ConfigMap",
        "x",
        {"data": {"a b": "x"}},
        "data[a b]",
        "Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    ),
    (
        "ConfigMap",
        "x",
        {"data": {"a": "x"}, "binaryData": {"a": "eA=="}},
        "data[a]",
        'Invalid value: "a": duplicate of key present in binaryData',
    ),
    ("ConfigMap", "x", {"data": {"..": "x"}}, "data[..]", "Invalid value: \"..\": must not be '..'"),
    (
        "ConfigMap",
        "A",
        {},
        "metadata.name",
        "Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    ),
    ("ConfigMap", "", {}, "metadata.name", "Required value: name or generateName is required"),
    (
        "Secret",
        "x",
        {"data": {"a b": "eA=="}},
        "data[a b]",
        "Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    ),
    ("Secret", "x", {"type": "kubernetes.io/tls"}, "data[tls.key]", "Required value"),
    ("Secret", "x", {"type": "kubernetes.io/dockerconfigjson"}, "data[.dockerconfigjson]", "Required value"),
    (
        "Secret",
        "x",
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "eA=="}},
        "data[.dockerconfigjson]",
        "Invalid value: \"<secret contents redacted>\": invalid character 'x' looking for beginning of value",
    ),
    ("Secret", "x", {"type": "kubernetes.io/basic-auth"}, "data[%s][username]", "Required value"),
    ("Secret", "x", {"type": "kubernetes.io/ssh-auth"}, "data[%s][ssh-privatekey]", "Required value"),
    (
        "Secret",
        "x",
        {"type": "kubernetes.io/service-account-token"},
        "metadata.annotations[kubernetes.io/service-account.name]",
        "Required value",
    ),
    ("Secret", "x", {"type": "kubernetes.io/dockercfg"}, "data[.dockercfg]", "Required value"),
    ("Namespace", "a.b", {}, "metadata.name", 'Invalid value: "a.b": must not contain dots'),
    (
        "Namespace",
        "A",
        {},
        "metadata.name",
        "Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    ),
    (
        "Namespace",
        "x",
        {"spec": {"finalizers": ["bad"]}},
        "spec.finalizers",
        'Invalid value: "bad": name is neither a standard finalizer name nor is it fully qualified',
    ),
    (
        "Lease",
        "x",
        {"spec": {"leaseDurationSeconds": 0}},
        "spec.leaseDurationSeconds",
        "Invalid value: 0: must be greater than 0",
    ),
    ("Service", "x", {"spec": {"ports": []}}, "spec.ports", "Required value"),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 0}]}},
        "spec.ports[0].port",
        "Invalid value: 0: must be between 1 and 65535, inclusive",
    ),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 70000}]}},
        "spec.ports[0].port",
        "Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    ("Service", "x", {"spec": {"ports": [{"port": 80}, {"port": 81}]}}, "spec.ports[0].name", "Required value"),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 80, "name": "A"}]}},
        "spec.ports[0].name",
        "Invalid value: \"A\": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
    ),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]}},
        "spec.ports[1].name",
        'Duplicate value: "a"',
    ),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 80, "protocol": "FOO"}]}},
        "spec.ports[0].protocol",
        'Unsupported value: "FOO": supported values: "SCTP", "TCP", "UDP"',
    ),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 80, "nodePort": 30000}]}},
        "spec.ports[0].nodePort",
        "Forbidden: may not be used when `type` is 'ClusterIP'",
    ),
    (
        "Service",
        "x",
        {"spec": {"type": "Foo", "ports": [{"port": 80}]}},
        "spec.type",
        'Unsupported value: "Foo": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"',
    ),
    ("Service", "x", {"spec": {"type": "ExternalName"}}, "spec.externalName", "Required value"),
    (
        "Service",
        "x",
        {"spec": {"type": "ExternalName", "externalName": "A_"}},
        "spec.externalName",
        "Invalid value: \"A_\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    ),
    (
        "Service",
        "x",
        {"spec": {"sessionAffinity": "x", "ports": [{"port": 80}]}},
        "spec.sessionAffinity",
        'Unsupported value: "x": supported values: "ClientIP", "None"',
    ),
    (
        "Service",
        "x",
        {"spec": {"selector": {"a b": "c"}, "ports": [{"port": 80}]}},
        "spec.selector",
        "Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
    ),
    (
        "Service",
        "x",
        {"spec": {"clusterIP": "x", "ports": [{"port": 80}]}},
        "spec.clusterIPs[0]",
        'Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
    ),
    (
        "Service",
        "1a",
        {"spec": {"ports": [{"port": 80}]}},
        "metadata.name",
        "Invalid value: \"1a\": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
    ),
    (
        "Service",
        "x",
        {"spec": {"externalIPs": ["x"], "ports": [{"port": 80}]}},
        "spec.externalIPs[0]",
        'Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
    ),
    ("Service", "x", {}, "spec.ports", "Required value"),
    (
        "Deployment",
        "x",
        {"spec": {**WORKLOAD, "replicas": -1}},
        "spec.replicas",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Deployment",
        "x",
        {"spec": {**WORKLOAD, "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}},
        "spec.strategy.rollingUpdate",
        "Forbidden: may not be specified when strategy `type` is 'Recreate'",
    ),
    (
        "Deployment",
        "x",
        {"spec": {**WORKLOAD, "minReadySeconds": -1}},
        "spec.minReadySeconds",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Deployment",
        "x",
        {"spec": {**WORKLOAD, "progressDeadlineSeconds": 0}},
        "spec.progressDeadlineSeconds",
        "Invalid value: 0: must be greater than minReadySeconds",
    ),
    (
        "Deployment",
        "x",
        {"spec": {**WORKLOAD, "minReadySeconds": 600}},
        "spec.progressDeadlineSeconds",
        "Invalid value: 600: must be greater than minReadySeconds",
    ),
    (
        "Deployment",
        "x",
        {"spec": {**WORKLOAD, "revisionHistoryLimit": -1}},
        "spec.revisionHistoryLimit",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Deployment",
        "x",
        {
            "spec": {
                **SELECTED,
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {**POD, "restartPolicy": "Never"}},
            }
        },
        "spec.template.spec.restartPolicy",
        'Unsupported value: "Never": supported values: "Always"',
    ),
    (
        "Deployment",
        "x",
        {"spec": {**SELECTED, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}}},
        "spec.template.spec.containers",
        "Required value",
    ),
    (
        "StatefulSet",
        "x",
        {"spec": {**WORKLOAD, "serviceName": "s", "podManagementPolicy": "Foo"}},
        "spec.podManagementPolicy",
        "Invalid value: \"Foo\": must be 'OrderedReady' or 'Parallel'",
    ),
    (
        "StatefulSet",
        "x",
        {"spec": {**WORKLOAD, "replicas": -1, "serviceName": "s"}},
        "spec.replicas",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "DaemonSet",
        "x",
        {
            "spec": {
                **SELECTED,
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {**POD, "restartPolicy": "Never"}},
            }
        },
        "spec.template.spec.restartPolicy",
        'Unsupported value: "Never": supported values: "Always"',
    ),
    (
        "ReplicaSet",
        "x",
        {"spec": {**SELECTED, "replicas": -1, "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD}}},
        "spec.replicas",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Job",
        "x",
        {"spec": {**TASK, "parallelism": -1}},
        "spec.parallelism",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Job",
        "x",
        {"spec": {**TASK, "completions": -1}},
        "spec.completions",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Job",
        "x",
        {"spec": {**TASK, "backoffLimit": -1}},
        "spec.backoffLimit",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Job",
        "x",
        {"spec": {**TASK, "activeDeadlineSeconds": -1}},
        "spec.activeDeadlineSeconds",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Job",
        "x",
        {"spec": {"template": {"spec": POD}}},
        "spec.template.spec.restartPolicy",
        'Required value: valid values: "OnFailure", "Never"',
    ),
    ("Job", "x", {}, "spec.template.spec.containers", "Required value"),
    (
        "Pod",
        "x",
        {},
        "spec.containers",
        "Required value",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{}]}},
        "spec.containers[0].image",
        "Required value",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}},
        "spec.containers[1].name",
        'Duplicate value: "a"',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{"name": "c", "image": ""}]}},
        "spec.containers[0].image",
        "Required value",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{"name": "c", "image": " i"}]}},
        "spec.containers[0].image",
        'Invalid value: " i": must not have leading or trailing whitespace',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "imagePullPolicy": "Foo"}]}},
        "spec.containers[0].imagePullPolicy",
        'Unsupported value: "Foo": supported values: "Always", "IfNotPresent", "Never"',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "env": [{"name": ""}]}]}},
        "spec.containers[0].env[0].name",
        "Required value",
    ),
    (
        "Pod",
        "x",
        {
            "spec": {
                "containers": [
                    {
                        **CONTAINER,
                        "env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    }
                ]
            }
        },
        "spec.containers[0].env[0].valueFrom",
        'Invalid value: "": may not be specified when `value` is not empty',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "env": [{"name": "A", "valueFrom": {}}]}]}},
        "spec.containers[0].env[0].valueFrom",
        'Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "ports": [{"containerPort": 0}]}]}},
        "spec.containers[0].ports[0].containerPort",
        "Required value",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "ports": [{"containerPort": 80, "protocol": "x"}]}]}},
        "spec.containers[0].ports[0].protocol",
        'Unsupported value: "x": supported values: "SCTP", "TCP", "UDP"',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]}},
        "spec.containers[0].volumeMounts[0].name",
        'Not found: "v"',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "-1"}}}]}},
        "spec.containers[0].resources.requests[cpu]",
        'Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"foo": "1"}}}]}},
        "spec.containers[0].resources.requests[foo]",
        'Invalid value: "foo": must be a standard resource for containers',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "restartPolicy": "Foo"}},
        "spec.restartPolicy",
        'Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "dnsPolicy": "Foo"}},
        "spec.dnsPolicy",
        'Unsupported value: "Foo": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "activeDeadlineSeconds": 0}},
        "spec.activeDeadlineSeconds",
        "Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}},
        "spec.volumes[1].name",
        'Duplicate value: "v"',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "emptyDir": {}, "configMap": {"name": "x"}}]}},
        "spec.volumes[0].configMap",
        "Forbidden: may not specify more than 1 volume type",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "configMap": {}}]}},
        "spec.volumes[0].configMap.name",
        "Required value",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "secret": {}}]}},
        "spec.volumes[0].secret.secretName",
        "Required value",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "tolerations": [{"operator": "Foo"}]}},
        "spec.tolerations[0].operator",
        'Unsupported value: "Foo": supported values: "Equal", "Exists"',
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "livenessProbe": {}}]}},
        "spec.containers[0].livenessProbe",
        "Required value: must specify a handler type",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "livenessProbe": {"httpGet": {"port": 0}}}]}},
        "spec.containers[0].livenessProbe.httpGet.port",
        "Invalid value: 0: must be between 1 and 65535, inclusive",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": -1}}]}},
        "spec.containers[0].livenessProbe.periodSeconds",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "livenessProbe": {"httpGet": {"port": 80}, "successThreshold": 2}}]}},
        "spec.containers[0].livenessProbe.successThreshold",
        "Invalid value: 2: must be 1",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "lifecycle": {"preStop": {}}}]}},
        "spec.containers[0].lifecycle.preStop",
        "Required value: must specify a handler type",
    ),
    (
        "Pod",
        "x",
        {"spec": {"containers": [{**CONTAINER, "securityContext": {"runAsUser": -1}}]}},
        "spec.containers[0].securityContext.runAsUser",
        "Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ),
    ("Role", "x", {"rules": [{}]}, "rules[0].verbs", "Required value: verbs must contain at least one value"),
    (
        "Role",
        "x",
        {"rules": [{"verbs": ["get"]}]},
        "rules[0].resources",
        "Required value: resource rules must supply at least one resource",
    ),
    (
        "Role",
        "x",
        {"rules": [{"verbs": ["get"], "resources": ["pods"]}]},
        "rules[0].apiGroups",
        "Required value: resource rules must supply at least one api group",
    ),
    (
        "Role",
        "x",
        {"rules": [{"apiGroups": [""], "resources": ["pods"]}]},
        "rules[0].verbs",
        "Required value: verbs must contain at least one value",
    ),
    ("Role", "a/b", {}, "metadata.name", "Invalid value: \"a/b\": may not contain '/'"),
    (
        "ClusterRole",
        "x",
        {"aggregationRule": {"clusterRoleSelectors": []}},
        "aggregationRule.clusterRoleSelectors",
        "Required value: at least one clusterRoleSelector required if aggregationRule is non-nil",
    ),
    ("RoleBinding", "x", {}, "roleRef.name", "Required value"),
    (
        "RoleBinding",
        "x",
        {"roleRef": {"apiGroup": "x", "kind": "Role", "name": "r"}, "subjects": []},
        "roleRef.apiGroup",
        'Unsupported value: "x": supported values: "rbac.authorization.k8s.io"',
    ),
    (
        "RoleBinding",
        "x",
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Foo", "name": "r"}, "subjects": []},
        "roleRef.kind",
        'Unsupported value: "Foo": supported values: "Role", "ClusterRole"',
    ),
    (
        "RoleBinding",
        "x",
        {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ""}, "subjects": []},
        "roleRef.name",
        "Required value",
    ),
    (
        "RoleBinding",
        "x",
        {"roleRef": {**ROLE}, "subjects": [{"kind": "Foo", "name": "x"}]},
        "subjects[0].kind",
        'Unsupported value: "Foo": supported values: "ServiceAccount", "User", "Group"',
    ),
    (
        "RoleBinding",
        "x",
        {"roleRef": {**ROLE}, "subjects": [{"kind": "User", "name": ""}]},
        "subjects[0].name",
        "Required value",
    ),
    (
        "RoleBinding",
        "x",
        {"roleRef": {**ROLE}, "subjects": [{"kind": "User", "name": "x", "apiGroup": "y"}]},
        "subjects[0].apiGroup",
        'Unsupported value: "y": supported values: "rbac.authorization.k8s.io"',
    ),
    (
        "ResourceQuota",
        "x",
        {"spec": {"hard": {"pods": "-1"}}},
        "spec.hard[pods]",
        'Invalid value: "-1": must be greater than or equal to 0',
    ),
    (
        "Ingress",
        "x",
        {"spec": {"defaultBackend": {}}},
        "spec.defaultBackend",
        'Invalid value: "": resource or service backend is required',
    ),
    (
        "Ingress",
        "x",
        {"spec": {"rules": [{"http": {"paths": [{"backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]}},
        "spec.rules[0].http.paths[0].pathType",
        "Required value: pathType must be specified",
    ),
    (
        "Ingress",
        "x",
        {
            "spec": {
                "rules": [
                    {
                        "http": {
                            "paths": [
                                {
                                    "path": "x",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "a", "port": {"number": 80}}},
                                }
                            ]
                        }
                    }
                ]
            }
        },
        "spec.rules[0].http.paths[0].path",
        'Invalid value: "x": must be an absolute path',
    ),
    (
        "NetworkPolicy",
        "x",
        {"spec": {"podSelector": {}, "policyTypes": ["Foo"]}},
        "spec.policyTypes[0]",
        'Unsupported value: "Foo": supported values: "Ingress", "Egress"',
    ),
    (
        "NetworkPolicy",
        "x",
        {"spec": {"podSelector": {}, "ingress": [{"from": [{}]}]}},
        "spec.ingress[0].from[0]",
        "Required value: must specify a peer",
    ),
    (
        "NetworkPolicy",
        "x",
        {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 0}]}]}},
        "spec.ingress[0].ports[0].port",
        "Invalid value: 0: must be between 1 and 65535, inclusive",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}}},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
        "Required value: must have at least one node selector term",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "affinity": nodes({"matchExpressions": [{"key": "a", "operator": "Foo"}]})}},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
        'Invalid value: "Foo": not a valid selector operator',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "affinity": nodes({"matchExpressions": [{"key": "a", "operator": "Gt", "values": []}]})}},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values",
        "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "affinity": nodes({"matchFields": [{"key": "a", "operator": "In", "values": ["b"]}]})}},
        f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchFields[0].key",
        'Invalid value: "a": not a valid field selector key',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "affinity": {"podAffinity": {PREFERRED: [{"podAffinityTerm": {"topologyKey": "a"}}]}}}},
        f"spec.affinity.podAffinity.{PREFERRED}[0].weight",
        "Invalid value: 0: must be in the range 1-100",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "schedulingGates": [{"name": "a"}, {"name": "a"}]}},
        "spec.schedulingGates[1]",
        'Duplicate value: "a"',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "dnsPolicy": "None"}},
        "spec.dnsConfig",
        "Required value: must provide `dnsConfig` when `dnsPolicy` is None",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "dnsConfig": {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"]}}},
        "spec.dnsConfig.nameservers",
        'Invalid value: ["1.1.1.1","2.2.2.2","3.3.3.3","4.4.4.4"]: must not have more than 3 nameservers',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "securityContext": {"fsGroup": -1}}},
        "spec.securityContext.fsGroup",
        "Invalid value: -1: must be between 0 and 2147483647, inclusive",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "securityContext": {"seccompProfile": {"type": "Localhost"}}}},
        "spec.securityContext.seccompProfile.localhostProfile",
        "Required value: must be set when seccomp type is Localhost",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "securityContext": {"sysctls": [{"name": "a.b", "value": "1"}, {"name": "a.b", "value": "1"}]}}},
        "spec.securityContext.sysctls[1].name",
        'Duplicate value: "a.b"',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "os": {"name": "plan9"}}},
        "spec.os",
        'Unsupported value: "plan9": supported values: "linux", "windows"',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "hostPID": True, "shareProcessNamespace": True}},
        "spec.securityContext.shareProcessNamespace",
        "Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
    ),
    (
        "EndpointSlice",
        "x",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["127.0.0.1"]}]},
        "endpoints[0].addresses[0]",
        'Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)',
    ),
    (
        "Pod",
        "x",
        {"spec": of(resizePolicy=[{"resourceName": "gpu", "restartPolicy": "NotRequired"}])},
        "spec.containers[0].resizePolicy",
        'Unsupported value: "gpu": supported values: "cpu", "memory"',
    ),
    (
        "Pod",
        "x",
        {"spec": of(securityContext={"appArmorProfile": {}})},
        "spec.containers[0].securityContext.appArmorProfile.type",
        "Required value: type is required when appArmorProfile is set",
    ),
    (
        "Pod",
        "x",
        {"spec": of(securityContext={"privileged": True, "allowPrivilegeEscalation": False})},
        "spec.containers[0].securityContext",
        'Invalid value: {"privileged":true,"allowPrivilegeEscalation":false}: cannot set `allowPrivilegeEscalation` to false and `privileged` to true',
    ),
    (
        "Pod",
        "x",
        {"spec": of(readinessProbe={"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5})},
        "spec.containers[0].readinessProbe.terminationGracePeriodSeconds",
        "Invalid value: 5: must not be set for readinessProbes",
    ),
    (
        "Pod",
        "x",
        {"spec": of(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.colour"}}}])},
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
        'Invalid value: "spec.colour": error converting fieldPath: field label not supported: spec.colour',
    ),
    (
        "Pod",
        "x",
        {"spec": of(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations"}}}])},
        "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
        'Unsupported value: "metadata.annotations": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"',
    ),
    (
        "Pod",
        "x",
        {"spec": of(env=[{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "3"}}}])},
        "spec.containers[0].env[0].valueFrom.resourceFieldRef.divisor",
        'Invalid value: "limits.cpu": only divisor\'s values 1m and 1 are supported with the cpu resource',
    ),
    (
        "Pod",
        "x",
        {"spec": of(resources={"limits": {"hugepages-2Mi": "4Mi"}})},
        "spec.containers[0].resources",
        "Forbidden: HugePages require cpu or memory",
    ),
    (
        "Pod",
        "x",
        {"spec": of(resources={"limits": {"example.com/gpu": "1.5"}})},
        "spec.containers[0].resources.limits[example.com/gpu]",
        'Invalid value: "1500m": must be an integer',
    ),
    (
        "Pod",
        "x",
        {"spec": of(ports=[{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}])},
        "spec.containers[0].ports[1].hostPort",
        'Duplicate value: "TCP//80"',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "hostPath": {"path": "/a/../b"}}]}},
        "spec.volumes[0].hostPath.path",
        'Invalid value: "/a/../b": must not contain \'..\'',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]}},
        "spec.volumes[0].emptyDir.sizeLimit",
        "Forbidden: SizeLimit field must be a valid resource quantity",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 5}}]}}]}},
        "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds",
        "Invalid value: 5: may not specify a duration less than 10 minutes",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "downwardAPI": {"items": [{"path": "x"}]}}]}},
        "spec.volumes[0].downwardAPI.items[0]",
        "Required value: one of fieldRef and resourceFieldRef is required",
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "volumes": [{"name": "v", "configMap": {"name": "x", "items": [{"key": "k", "path": "../x"}]}}]}},
        "spec.volumes[0].configMap.items[0].path",
        'Invalid value: "../x": must not contain \'..\'',
    ),
    (
        "Pod",
        "x",
        {"spec": {**POD, "topologySpreadConstraints": [SPREAD, SPREAD]}},
        "spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}",
        'Duplicate value: "{zone, DoNotSchedule}"',
    ),
    (
        "Job",
        "x",
        {"spec": {**TASK, "backoffLimitPerIndex": 1}},
        "spec.backoffLimitPerIndex",
        "Invalid value: 1: requires indexed completion mode",
    ),
    (
        "Job",
        "x",
        failing({"action": "Ignore"}),
        "spec.podFailurePolicy.rules[0]",
        "Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
    ),
    (
        "Job",
        "x",
        failing({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}),
        "spec.podFailurePolicy.rules[0].onExitCodes.values[0]",
        "Invalid value: 0: must not be 0 for the In operator",
    ),
    (
        "Job",
        "x",
        failing({"action": "Retry", "onExitCodes": {"operator": "In", "values": [1]}}),
        "spec.podFailurePolicy.rules[0].action",
        'Unsupported value: "Retry": supported values: "Count", "FailIndex", "FailJob", "Ignore"',
    ),
    (
        "Job",
        "x",
        {"spec": {**TASK, "podReplacementPolicy": "Never"}},
        "spec.podReplacementPolicy",
        'Unsupported value: "Never": supported values: "Failed", "TerminatingOrFailed"',
    ),
    (
        "StatefulSet",
        "x",
        {"spec": {**WORKLOAD, "serviceName": "s", "ordinals": {"start": -1}}},
        "spec.ordinals.start",
        "Invalid value: -1: must be greater than or equal to 0",
    ),
    (
        "StatefulSet",
        "x",
        {"spec": {**WORKLOAD, "serviceName": "s", "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Burn"}}},
        "spec.persistentVolumeClaimRetentionPolicy.whenDeleted",
        'Unsupported value: "Burn": supported values: "Retain", "Delete"',
    ),
    (
        "Service",
        "x",
        {"spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 5}]}},
        "spec.ports[0].nodePort",
        "Invalid value: 5: provided port is not in the valid range. The range of valid ports is 30000-32767",
    ),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 80}], "externalIPs": ["127.0.0.1"]}},
        "spec.externalIPs[0]",
        'Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)',
    ),
    (
        "Service",
        "x",
        {"spec": {"ports": [{"port": 80}], "ipFamilies": ["IPv5"]}},
        "spec.ipFamilies[0]",
        'Unsupported value: "IPv5": supported values: "IPv4", "IPv6"',
    ),
    (
        "PriorityClass",
        "x",
        {"value": 2000000000},
        "value",
        "Forbidden: maximum allowed value of a user defined priority is 1000000000",
    ),
    (
        "PriorityClass",
        "system-x",
        {"value": 1},
        "metadata.name",
        "Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class",
    ),
    ("StorageClass", "x", {}, "provisioner", "Required value"),
    (
        "StorageClass",
        "x",
        {"provisioner": "a", "reclaimPolicy": "Foo"},
        "reclaimPolicy",
        'Unsupported value: "Foo": supported values: "Delete", "Retain"',
    ),
    (
        "HorizontalPodAutoscaler",
        "x",
        {"spec": {"maxReplicas": 0, "scaleTargetRef": {"kind": "D", "name": "x"}}},
        "spec.maxReplicas",
        "Invalid value: 0: must be greater than 0",
    ),
    (
        "HorizontalPodAutoscaler",
        "x",
        {"spec": {"minReplicas": 5, "maxReplicas": 1, "scaleTargetRef": {"kind": "D", "name": "x"}}},
        "spec.maxReplicas",
        "Invalid value: 1: must be greater than or equal to `minReplicas`",
    ),
    ("HorizontalPodAutoscaler", "x", {"spec": {"maxReplicas": 1}}, "spec.scaleTargetRef.kind", "Required value"),
    ("PersistentVolumeClaim", "x", {"spec": {}}, "spec.resources[storage]", "Required value"),
    (
        "PersistentVolumeClaim",
        "x",
        {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "0"}}}},
        "spec.resources[storage]",
        'Invalid value: "0": must be greater than zero',
    ),
]


@pytest.mark.parametrize(("kind", "name", "body", "field", "message"), REFUSED)
def test_a_mistake_is_told_with_its_field(
    api: Api, kind: str, name: str, body: Object, field: str, message: str
) -> None:
    refusal = send(api, kind, name, body, dryRun="All").expect(422)
    told = [c["message"] for c in refusal["details"]["causes"] if c["field"] == field]
    assert any(text.startswith(message) for text in told), refusal["details"]["causes"]
    assert refusal["details"]["kind"] == kind
    assert refusal["reason"] == "Invalid"


@pytest.mark.parametrize(
    ("kind", "body", "field", "end"),
    [
        (
            "Deployment",
            {"spec": {**WORKLOAD, "selector": {}}},
            "spec.selector",
            "empty selector is invalid for deployment",
        ),
        (
            "Deployment",
            {"spec": {**WORKLOAD, "selector": {"matchLabels": {"x": "y"}}}},
            "spec.template.metadata.labels",
            "`selector` does not match template `labels`",
        ),
        (
            "Deployment",
            {"spec": {**WORKLOAD, "selector": {"matchExpressions": [{"key": "a", "operator": "Foo"}]}}},
            "spec.selector",
            "invalid label selector",
        ),
        (
            "Deployment",
            {"spec": {**WORKLOAD, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}},
            "spec.strategy.rollingUpdate.maxUnavailable",
            "may not be 0 when `maxSurge` is 0",
        ),
        ("Job", {"spec": {**TASK, **SELECTED}}, "spec.selector", "`selector` not auto-generated"),
        (
            "Role",
            {"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]},
            "rules[0].nonResourceURLs",
            "namespaced rules cannot apply to non-resource URLs",
        ),
        ("ResourceQuota", {"spec": {"hard": {"pods": "1.5"}}}, "spec.hard[pods]", "must be an integer"),
    ],
)
def test_a_mistake_is_told_whatever_the_value_looks_like(
    api: Api, kind: str, body: Object, field: str, end: str
) -> None:
    refusal = send(api, kind, "x", body, dryRun="All").expect(422)
    told = [c["message"] for c in refusal["details"]["causes"] if c["field"] == field]
    assert any(text.endswith(end) for text in told), refusal["details"]["causes"]


def test_values_of_the_wrong_type_cannot_be_read(api: Api) -> None:
    for kind, body in (
        ("ConfigMap", {"data": {"a": 1}}),
        ("ConfigMap", {"data": "x"}),
        ("ConfigMap", {"immutable": "x"}),
        ("Secret", {"data": {"a": "***"}}),
        ("Deployment", {"spec": {**WORKLOAD, "replicas": "x"}}),
        ("Pod", {"spec": {"containers": [{**CONTAINER, "command": "x"}]}}),
        ("Pod", {"spec": {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "x"}}}]}}),
        ("Lease", {"spec": {"renewTime": "x"}}),
    ):
        refusal = send(api, kind, "x", body, dryRun="All").expect(400)
        version = place(kind)[0].rpartition("/")[2]
        assert refusal["message"].startswith(f'{kind} in version "{version}" cannot be handled as a {kind}: ')
        assert refusal["reason"] == "BadRequest"


def test_a_secret_takes_plain_text_and_keeps_it_encoded(api: Api) -> None:
    made = send(api, "Secret", "x", {"stringData": {"a": "b"}, "data": {"a": "eA=="}}, dryRun="All").expect(201)
    assert made["data"] == {"a": "Yg=="}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


# What never changes


@pytest.mark.parametrize(
    ("kind", "body", "patch", "field"),
    [
        ("ConfigMap", {"immutable": True, "data": {"a": "b"}}, {"data": {"a": "c"}}, "data"),
        ("ConfigMap", {"immutable": True, "data": {"a": "b"}}, {"immutable": False}, "immutable"),
        ("Secret", {"type": "Opaque"}, {"type": "other/type"}, "type"),
        ("Secret", {"immutable": True, "data": {"a": "eA=="}}, {"data": {"a": "eQ=="}}, "data"),
        ("Deployment", {"spec": WORKLOAD}, {"spec": {"selector": {"matchLabels": {"c": "d"}}}}, "spec.selector"),
        ("ReplicaSet", {"spec": WORKLOAD}, {"spec": {"selector": {"matchLabels": {"c": "d"}}}}, "spec.selector"),
        ("DaemonSet", {"spec": WORKLOAD}, {"spec": {"selector": {"matchLabels": {"c": "d"}}}}, "spec.selector"),
        ("StatefulSet", {"spec": {**WORKLOAD, "serviceName": "s"}}, {"spec": {"serviceName": "t"}}, "spec"),
        ("Job", {"spec": {**TASK, "suspend": False}}, {"spec": {"completions": 5}}, "spec.completions"),
        ("Service", {"spec": {"ports": [{"port": 80}]}}, {"spec": {"clusterIP": "10.0.0.77"}}, "spec.clusterIPs[0]"),
    ],
)
def test_some_fields_stay_as_they_were_created(
    api: Api, namespace: str, kind: str, body: Object, patch: Object, field: str
) -> None:
    send(api, kind, "x", body, namespace).expect(201)
    refusal = api.patch(f"{place(kind, namespace)[1]}/x", patch, dryRun="All").expect(422)
    assert field in [c["field"] for c in refusal["details"]["causes"]], refusal["details"]["causes"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a b": "c"}},
        {"labels": {"a": "c d"}},
        {"annotations": {"a b": "c"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "", "uid": "u"}]},
        {"finalizers": ["no-domain"]},
    ],
)
def test_metadata_obeys_the_same_rules_everywhere(api: Api, metadata: Object) -> None:
    [field] = metadata
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", **metadata}}
    refusal = api.post(place("ConfigMap")[1], body, dryRun="All").expect(422)
    assert all(c["field"].startswith(f"metadata.{field}") for c in refusal["details"]["causes"])


def test_times_are_kept_in_utc(api: Api, namespace: str) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "a", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": namespace},
        "firstTimestamp": "2020-01-01T02:00:00.9+02:00",
        "lastTimestamp": "2020-02-29T23:59:59Z",
    }
    made = api.post(at(namespace, "events"), event).expect(201)
    assert made["firstTimestamp"] == "2020-01-01T00:00:00Z"
    assert made["lastTimestamp"] == "2020-02-29T23:59:59Z"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2019-12-31T19:30:00.123456-04:30"}
    path = at(namespace, "leases", group="coordination.k8s.io")
    assert api.post(path, lease("a", **spec)).expect(201)["spec"]["renewTime"] == "2020-01-01T00:00:00.123456Z"


@pytest.mark.parametrize(
    ("time", "why"),
    [
        ("2020-13-01T00:00:00Z", 'parsing time "2020-13-01T00:00:00Z": month out of range'),
        ("2021-02-29T00:00:00Z", 'parsing time "2021-02-29T00:00:00Z": day out of range'),
        ("2020-01-01T24:00:00Z", 'parsing time "2020-01-01T24:00:00Z": hour out of range'),
        ("soon", 'parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"'),
        ("2020-1-1", 'parsing time "2020-1-1" as "2006-01-02T15:04:05Z07:00": cannot parse "1-1" as "01"'),
        (
            "2020-01-01T00:00:00",
            'parsing time "2020-01-01T00:00:00" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00"',
        ),
    ],
)
def test_a_time_must_be_one(api: Api, namespace: str, modern: None, time: str, why: str) -> None:
    event = {"kind": "Event", "metadata": {"name": "a"}, "involvedObject": {"namespace": namespace}, "firstTimestamp": time}
    body = api.post(at(namespace, "events"), event).expect(400)
    assert body["message"].endswith(f"cannot be handled as a Event: {why}")


def takes_pods(api: Api, namespace: str) -> None:
    """Waits until a cluster has made the account that it wants every pod of a new namespace to have."""
    eventually(lambda: api.post(at(namespace, "pods"), pod(), dryRun="All").status == 201, "the namespace to take pods")


def test_amounts_are_written_one_way_wherever_they_stand(api: Api, namespace: str) -> None:
    takes_pods(api, namespace)
    one = pod("a")
    one["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizeLimit": "1024Ki"}}]
    one["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "0.5", "memory": 1024}}
    one["spec"]["containers"][0]["env"] = [
        {"name": "E", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}}
    ]
    spec = api.post(at(namespace, "pods"), one, dryRun="All").expect(201)["spec"]
    assert spec["volumes"][0]["emptyDir"] == {"sizeLimit": "1Mi"}
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "1024"}
    assert spec["containers"][0]["env"][0]["valueFrom"]["resourceFieldRef"]["divisor"] == "1"
    one["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizeLimit": "much"}}]
    assert "quantities must match the regular expression" in api.post(at(namespace, "pods"), one).expect(400)["message"]


def test_a_scheduler_binds_a_pod_to_a_node_once(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    takes_pods(api, namespace)
    for name, path in (("a", at(namespace, "pods", "a", "binding")), ("b", at(namespace, "bindings"))):
        api.post(at(namespace, "pods"), pod(name)).expect(201)
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "annotations": {"by": "us"}},
            "target": {"kind": "Node", "name": "node-1"},
        }
        assert api.post(path, binding, dryRun="All").expect(201)["status"] == "Success"
        assert "nodeName" not in api.get(at(namespace, "pods", name)).expect(200)["spec"]
        assert mistake(api.post(path, {**binding, "target": {"kind": "Node"}}), 400)["message"] == "target.name: Required value"
        assert api.post(path, binding).expect(201)["status"] == "Success"
        bound = api.get(at(namespace, "pods", name)).expect(200)
        assert bound["spec"]["nodeName"] == "node-1"
        assert bound["metadata"]["annotations"] == {"by": "us"}
        assert [(c["type"], c["status"]) for c in bound["status"]["conditions"]] == [("PodScheduled", "True")]
        refused = api.post(path, {**binding, "target": {"kind": "Node", "name": "node-2"}}).expect(409)
        why = f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} is already assigned to node "node-1"'
        assert refused["message"] == why
    other = {"metadata": {"name": "b"}, "target": {"name": "node-1"}}
    assert "name in URL does not match" in api.post(at(namespace, "pods", "a", "binding"), other).expect(400)["message"]


def test_a_pod_waits_behind_its_gates(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    takes_pods(api, namespace)
    path = at(namespace, "pods", "a")
    body = pod("a")
    body["spec"] |= {"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}], "nodeSelector": {"a": "b"}}
    made = api.post(at(namespace, "pods"), body).expect(201)
    assert [(c["type"], c["status"], c["reason"]) for c in made["status"]["conditions"]] == [
        ("PodScheduled", "False", "SchedulingGated")
    ]
    binding = {"kind": "Binding", "metadata": {"name": "a"}, "target": {"kind": "Node", "name": "node-1"}}
    assert "non-empty .spec.schedulingGates" in api.post(f"{path}/binding", binding).expect(409)["message"]
    added = api.patch(path, {"spec": {"schedulingGates": [*body["spec"]["schedulingGates"], {"name": "example.com/c"}]}})
    assert added.causes == [("FieldValueForbidden", "spec.schedulingGates[2].name")]
    assert api.patch(path, {"spec": {"nodeSelector": {"a": "c"}}}).causes == [("FieldValueInvalid", "spec.nodeSelector")]
    narrowed = {"schedulingGates": [{"name": "example.com/b"}], "nodeSelector": {"c": "d"}}
    assert api.patch(path, {"spec": narrowed}).expect(200)["spec"]["nodeSelector"] == {"a": "b", "c": "d"}
    assert "schedulingGates" not in api.patch(path, {"spec": {"schedulingGates": None}}).expect(200)["spec"]
    assert api.patch(path, {"spec": {"nodeSelector": {"e": "f"}}}).causes == [("FieldValueForbidden", "spec")]
    assert api.patch(path, {"spec": {"schedulingGates": [{"name": "example.com/a"}]}}).status == 422
    api.post(f"{path}/binding", binding).expect(201)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("pods/a/binding", {"kind": "Binding", "target": {"kind": "Node", "name": "node-1"}}),
        ("pods/a/eviction", {"kind": "Eviction", "apiVersion": "policy/v1"}),
        ("serviceaccounts/a/token", {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": []}}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_asked_of_an_object_is_read_as_strictly(api: Api, namespace: str, path: str, body: Object) -> None:
    needs_builtin_rules(api)
    takes_pods(api, namespace)
    api.post(at(namespace, "pods"), pod("a")).expect(201)
    api.post(at(namespace, "serviceaccounts"), {"metadata": {"name": "a"}}).expect(201)
    asked = {**body, "metadata": {"name": "a"}, "foo": 1}
    where = f"/api/v1/namespaces/{namespace}/{path}"
    message = api.post(where, asked, fieldValidation="Strict").expect(400)["message"]
    assert message.endswith(f'cannot be handled as a {body["kind"]}: strict decoding error: unknown field "foo"')
    answer = api.post(where, asked, dryRun="All")
    answer.expect(201)
    assert answer.warnings == ['unknown field "foo"']


def test_a_status_says_nothing_that_cannot_be(api: Api, namespace: str) -> None:
    def refused(path: str, status: Object) -> list[tuple[str, str]]:
        causes = api.patch(f"{path}/status", {"status": status}).expect(422)["details"]["causes"]
        return [(c["field"], c["message"]) for c in causes]

    assert refused(f"/api/v1/namespaces/{namespace}", {"phase": "Terminating"}) == [
        ("status.Phase", "Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty")
    ]
    send(api, "Job", "j", {"spec": TASK}, namespace).expect(201)
    job = f"{place('Job', namespace)[1]}/j"
    assert refused(job, {"active": -1}) == [("status.active", "Invalid value: -1: must be greater than or equal to 0")]
    send(api, "Deployment", "d", {"spec": WORKLOAD}, namespace).expect(201)
    deployment = f"{place('Deployment', namespace)[1]}/d"
    api.patch(f"{deployment}/status", {"status": {"collisionCount": 2}}).expect(200)
    assert refused(deployment, {"collisionCount": 1}) == [
        ("status.collisionCount", "Invalid value: 1: cannot be decremented")
    ]


def test_a_node_keeps_the_range_of_its_pods(api: Api) -> None:
    name = f"node-{uuid.uuid4().hex[:8]}"
    made = send(api, "Node", name, {"spec": {"podCIDR": "10.244.7.0/24"}}).expect(201)
    path = f"/api/v1/nodes/{name}"
    try:
        assert made["spec"]["podCIDRs"] == ["10.244.7.0/24"]
        [cause] = api.patch(path, {"spec": {"podCIDR": "10.244.8.0/24"}}).expect(422)["details"]["causes"]
        assert cause["message"] == 'Forbidden: node updates may not change podCIDR except from "" to valid'
        [cause] = api.patch(f"{path}/status", {"status": {"capacity": {"cpu": "-1"}}}).expect(422)["details"]["causes"]
        assert cause["field"] == "status.capacity.cpu"
    finally:
        api.delete(path)
