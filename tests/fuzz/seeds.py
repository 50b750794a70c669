"""One object of every kind that the server takes: from these, hostile ones are made by breaking them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

_POD = {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "b"}]}]}
_LABELS = {"app": "x"}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": _POD}
_WORKLOAD = {"replicas": 1, "selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}
_RBAC = "rbac.authorization.k8s.io"
_RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
_SUBJECT = {"kind": "User", "name": "u", "apiGroup": _RBAC}
_METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
_BACKEND = {"service": {"name": "s", "port": {"number": 80}}}

SCHEMA: Object = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "replicas": {"type": "integer", "minimum": 0, "default": 1},
                "size": {"x-kubernetes-int-or-string": True},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
                "when": {"type": "string", "format": "date-time", "nullable": True},
                "colour": {"type": "string", "enum": ["red", "green"]},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 9},
                "parts": {
                    "type": "array",
                    "maxItems": 8,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {
                        "type": "object",
                        "required": ["id"],
                        "properties": {"id": {"type": "string"}, "n": {"type": "number", "multipleOf": 0.5}},
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 5},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
            "x-kubernetes-validations": [
                {"rule": "!has(self.replicas) || self.replicas < 100", "message": "too many"},
                {"rule": "!has(self.name) || self.name == oldSelf.name", "messageExpression": "'not ' + self.name"},
            ],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}

DEFINITION: Object = {
    "group": "fuzz.example.com",
    "scope": "Namespaced",
    "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"], "categories": ["all"]},
    "versions": [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": SCHEMA},
            "subresources": {
                "status": {},
                "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
            },
            "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": ".spec.size"}],
            "selectableFields": [{"jsonPath": ".spec.colour"}],
        },
        {"name": "v1beta1", "served": True, "storage": False, "schema": {"openAPIV3Schema": SCHEMA}},
    ],
}

SEEDS: dict[str, Object] = {
    "ConfigMap": {"data": {"a": "b"}, "binaryData": {"c": "AAEC"}},
    "Secret": {"type": "Opaque", "data": {"a": "Yg=="}, "stringData": {"c": "d"}},
    "Namespace": {"spec": {"finalizers": ["kubernetes"]}},
    "Event": {"involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}, "reason": "R", "type": "Normal"},
    "ServiceAccount": {"secrets": [{"name": "s"}], "automountServiceAccountToken": False},
    "ResourceQuota": {"spec": {"hard": {"count/configmaps": "1000", "pods": "1k"}}},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]}},
    "Pod": {"spec": _POD},
    "PodTemplate": {"template": _TEMPLATE},
    "Service": {"spec": {"selector": _LABELS, "ports": [{"name": "p", "port": 80, "targetPort": "http"}]}},
    "Endpoints": {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"name": "p", "port": 80}]}]},
    "EndpointSlice": {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
    "Node": {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}},
    "PersistentVolume": {
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    },
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "StorageClass": {"provisioner": "example.com/p", "parameters": {"a": "b"}},
    "Deployment": {"spec": _WORKLOAD},
    "ReplicaSet": {"spec": _WORKLOAD},
    "StatefulSet": {"spec": {**_WORKLOAD, "serviceName": "s"}},
    "DaemonSet": {"spec": {"selector": {"matchLabels": _LABELS}, "template": _TEMPLATE}},
    "ReplicationController": {"spec": {"replicas": 1, "selector": _LABELS, "template": _TEMPLATE}},
    "ControllerRevision": {"revision": 1, "data": {"a": 1}},
    "Job": {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
    "CronJob": {
        "spec": {
            "schedule": "*/5 * * * *",
            "jobTemplate": {"spec": {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}},
        }
    },
    "HorizontalPodAutoscaler": {"spec": {"maxReplicas": 3, "scaleTargetRef": _TARGET, "metrics": [_METRIC]}},
    "PodDisruptionBudget": {"spec": {"minAvailable": "50%", "selector": {"matchLabels": _LABELS}}},
    "PriorityClass": {"value": 10},
    "Ingress": {
        "spec": {
            "rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": _BACKEND}]}}]
        }
    },
    "IngressClass": {"spec": {"controller": "example.com/c"}},
    "NetworkPolicy": {
        "spec": {
            "podSelector": {},
            "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 80, "endPort": 90}]}],
        }
    },
    "Lease": {"spec": {"holderIdentity": "h", "leaseDurationSeconds": 5, "renewTime": "2024-01-01T00:00:00.000000Z"}},
    "Role": {"rules": [_RULE]},
    "ClusterRole": {"rules": [_RULE], "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": _LABELS}]}},
    "RoleBinding": {"roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "view"}, "subjects": [_SUBJECT]},
    "ClusterRoleBinding": {"roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "view"}, "subjects": [_SUBJECT]},
    "Binding": {"target": {"kind": "Node", "name": "n"}},
    "TokenReview": {"spec": {"token": "abc", "audiences": ["x"]}},
    "LocalSubjectAccessReview": {
        "spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}
    },
    "SelfSubjectAccessReview": {"spec": {"nonResourceAttributes": {"path": "/x", "verb": "get"}}},
    "SubjectAccessReview": {"spec": {"user": "u", "groups": ["g"], "resourceAttributes": {"verb": "get"}}},
    "SelfSubjectRulesReview": {"spec": {"namespace": "default"}},
    "CustomResourceDefinition": {"spec": DEFINITION},
    "UserToken": {"spec": {"user": "somebody", "groups": ["some"], "expirationSeconds": 100}},
    "Widget": {
        "spec": {
            "replicas": 3,
            "size": "5%",
            "name": "abc",
            "colour": "red",
            "tags": ["a", "b"],
            "parts": [{"id": "a", "n": 0.5}, {"id": "b"}],
            "free": {"x": [1, {"y": None}]},
            "map": {"k": 1},
            "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}},
        }
    },
    "Scale": {"spec": {"replicas": 2}},
    "TokenRequest": {"spec": {"audiences": [], "expirationSeconds": 600}},
    "DeleteOptions": {"propagationPolicy": "Foreground", "preconditions": {"uid": "x"}},
    "Eviction": {},
}
"""What stands beside apiVersion, kind and metadata, by kind."""
