"""Built-in kinds are filled in, judged and shown as upstream does it.

The wording of every refusal here was compared with a real kube-apiserver's.
"""

from __future__ import annotations

import base64
from copy import deepcopy

import pytest

from homeostat.api.builtin import resources
from homeostat.api.builtin.events import to_core, to_events_group
from homeostat.api.builtin.scaling import from_autoscaling_v1, to_autoscaling_v1
from homeostat.api.resource import ALL_VERBS
from homeostat.model.errors import ApiError


def test_every_kind_is_declared_once_with_a_schema_and_columns():
    found = resources()
    assert len({(r.group, r.plural) for r in found}) == len(found)
    for resource in found:
        assert resource.storage in resource.versions
        for version in resource.versions.values():
            assert "metadata" in version.schema.properties
        assert list(resource.verbs) == sorted(resource.verbs)


def test_reviews_can_only_be_created(kinds):
    answered = {r.kind for r in resources() if r.verbs == ("create",)}
    assert answered >= {"TokenReview", "SubjectAccessReview", "SelfSubjectAccessReview", "Binding"}
    assert tuple(kinds["", "ConfigMap"].verbs) == ALL_VERBS
    assert "deletecollection" not in kinds["", "Namespace"].verbs


def test_generations_are_counted_where_upstream_counts_them():
    counted = {r.kind for r in resources() if r.counts_generation}
    assert counted >= {"Deployment", "ReplicaSet", "Job", "Ingress", "PodDisruptionBudget", "Pod"}
    assert counted.isdisjoint(
        {"ConfigMap", "Secret", "Namespace", "Event", "Lease", "Service", "ServiceAccount", "Node"}
    )


def test_selectable_fields_are_known_without_an_object(rules):
    assert set(rules("Pod").fields({})) >= {"spec.nodeName", "status.phase", "spec.restartPolicy"}
    assert rules("Secret").fields({"type": "Opaque"}) == {"type": "Opaque"}
    assert rules("Node").fields({}) == {"spec.unschedulable": "false"}
    assert rules("Namespace").fields({"status": {"phase": "Active"}}) == {"status.phase": "Active"}


# ConfigMap and Secret

CONFIG_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"data": {"a": "b"}, "binaryData": {"c": "AAEC"}}, []),
        ({}, []),
        ({"data": {"a b": ""}}, [f'data[a b]: Invalid value: "a b": {CONFIG_KEY}']),
        ({"data": {"..": ""}}, ["data[..]: Invalid value: \"..\": must not be '..'"]),
        ({"data": {"..x": ""}}, ["data[..x]: Invalid value: \"..x\": must not start with '..'"]),
        (
            {"data": {"k": ""}, "binaryData": {"k": ""}},
            ['data[k]: Invalid value: "k": duplicate of key present in binaryData'],
        ),
        ({"data": {"k": "x" * (1024 * 1024)}}, []),
        ({"data": {"k": "x" * (1024 * 1024 + 1)}}, ["[]: Too long: may not be more than 1048576 bytes"]),
        (
            {"data": {"k": "é" * 524288}, "binaryData": {"b": "AA=="}},
            ["[]: Too long: may not be more than 1048576 bytes"],
        ),
    ],
)
def test_config_maps_are_judged(refusals, fields, errors):
    assert refusals("ConfigMap", **fields) == errors


def test_binary_data_must_be_base64(created):
    with pytest.raises(ApiError) as refusal:
        created("ConfigMap", binaryData={"k": "!!!!"})
    assert refusal.value.code == 400
    expected = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: illegal base64 data at input byte 0'
    assert refusal.value.message == expected


def test_an_immutable_config_map_stays_as_it_is(created, update_refusals):
    old = created("ConfigMap", data={"a": "1"}, immutable=True)
    locked = "Forbidden: field is immutable when `immutable` is set"
    assert update_refusals("ConfigMap", "", old, lambda o: o["data"].update(a="2")) == [f"data: {locked}"]
    assert update_refusals("ConfigMap", "", old, lambda o: o.pop("immutable")) == [f"immutable: {locked}"]
    assert update_refusals("ConfigMap", "", old, lambda o: o["metadata"].update(labels={"x": "y"})) == []


def test_string_data_becomes_data(created):
    secret = created("Secret", data={"a": "ZA==", "b": "ZA=="}, stringData={"a": "new", "c": "ü"})
    assert "stringData" not in secret
    assert secret["type"] == "Opaque"
    assert base64.b64decode(secret["data"]["a"]) == b"new"
    assert base64.b64decode(secret["data"]["b"]) == b"d"
    assert base64.b64decode(secret["data"]["c"]).decode() == "ü"


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"type": "kubernetes.io/tls"}, ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
        ({"type": "kubernetes.io/basic-auth", "stringData": {"username": "me"}}, []),
        (
            {"type": "kubernetes.io/basic-auth"},
            ["data[%s][username]: Required value", "data[%s][password]: Required value"],
        ),
        ({"type": "kubernetes.io/dockerconfigjson"}, ["data[.dockerconfigjson]: Required value"]),
        (
            {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "d"}},
            [
                "data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": invalid character 'd' looking "
                "for beginning of value"
            ],
        ),
        (
            {"type": "kubernetes.io/service-account-token"},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        ({"type": "my.own/type"}, []),
    ],
)
def test_secrets_have_the_keys_of_their_type(refusals, fields, errors):
    assert refusals("Secret", **fields) == errors


def test_the_type_of_a_secret_is_fixed(created, update_refusals):
    old = created("Secret")
    assert update_refusals("Secret", "", old, lambda o: o.update(type="x")) == [
        'type: Invalid value: "x": field is immutable'
    ]


# Namespace, Lease, RBAC, quota


def test_a_namespace_is_born_active_with_its_name_as_label(rules, created):
    namespace = created("Namespace")
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["status"] == {"phase": "Active"}
    assert rules("Namespace").name_problems("a.b")
    assert not rules("Namespace").name_problems("a-b")


def test_finalizers_of_a_namespace_do_not_leave_by_an_update(rules, created):
    old = created("Namespace")
    new = deepcopy(old)
    new["spec"]["finalizers"] = []
    rules("Namespace").prepare_update(new, old)
    assert new["spec"]["finalizers"] == ["kubernetes"]


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        ({"holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0}, []),
        ({"leaseDurationSeconds": 0}, ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"]),
        (
            {"leaseTransitions": -1},
            ["spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"preferredHolder": "you"},
            ["spec.preferredHolder: Forbidden: may only be specified when `strategy` is defined"],
        ),
    ],
)
def test_leases_are_judged(rules, refusals, spec, errors):
    assert refusals("Lease", "coordination.k8s.io", spec=spec) == errors


RBAC = "rbac.authorization.k8s.io"


@pytest.mark.parametrize(
    ("kind", "rule", "errors"),
    [
        ("Role", {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}, []),
        (
            "Role",
            {},
            [
                "rules[0].verbs: Required value: verbs must contain at least one value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
        ),
        (
            "Role",
            {"verbs": ["get"], "nonResourceURLs": ["/x"]},
            ['rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs'],
        ),
        ("ClusterRole", {"verbs": ["get"], "nonResourceURLs": ["/x"]}, []),
        (
            "ClusterRole",
            {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["a"]},
            [
                'rules[0].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and '
                "non-resource URLs"
            ],
        ),
    ],
)
def test_rules_of_roles_are_judged(refusals, kind, rule, errors):
    assert refusals(kind, RBAC, rules=[rule]) == errors


def test_bindings_are_filled_in_and_judged(created, refusals, update_refusals):
    binding = created(
        "RoleBinding", RBAC, roleRef={"kind": "Role", "name": "r"}, subjects=[{"kind": "User", "name": "me"}]
    )
    assert binding["roleRef"]["apiGroup"] == RBAC
    assert binding["subjects"] == [{"kind": "User", "name": "me", "apiGroup": RBAC}]
    subjects = [{"kind": "ServiceAccount", "name": "x"}, {"kind": "Odd", "name": "y"}]
    assert refusals("ClusterRoleBinding", RBAC, roleRef={"kind": "Role"}, subjects=subjects) == [
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
        "roleRef.name: Required value",
        "subjects[0].namespace: Required value",
        'subjects[1].kind: Unsupported value: "Odd": supported values: "ServiceAccount", "User", "Group"',
    ]
    (error,) = update_refusals("RoleBinding", RBAC, binding, lambda o: o["roleRef"].update(name="other"))
    assert error.startswith("roleRef: Invalid value: ")
    assert error.endswith(": cannot change roleRef")


def test_quotas_are_canonical_and_judged(created, refusals):
    quota = created("ResourceQuota", spec={"hard": {"requests.cpu": "1000m", "count/widgets.example.com": "5"}})
    assert quota["spec"]["hard"] == {"requests.cpu": "1", "count/widgets.example.com": "5"}
    assert refusals("ResourceQuota", spec={"hard": {"pods": "1.5", "cpu": "-1"}}) == [
        'spec.hard[pods]: Invalid value: "1500m": must be an integer',
        'spec.hard[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    ]
    assert refusals("ResourceQuota", spec={"hard": {"foo": 1}}) == [
        'spec.hard[foo]: Invalid value: "foo": must be a standard resource type or fully qualified',
        'spec.hard[foo]: Invalid value: "foo": must be a standard resource for quota',
    ]
    with pytest.raises(ApiError, match="quantities must match the regular expression"):
        created("ResourceQuota", spec={"hard": {"pods": "many"}})


def test_limits_of_containers_follow_from_each_other(created):
    (limit,) = created("LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "2"}}]})["spec"]["limits"]
    assert limit["default"] == limit["defaultRequest"] == {"cpu": "2"}


# Events


def test_events_have_two_forms_of_one_fact(kinds):
    modern = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": {"name": "x"},
        "note": "hello",
        "reportingController": "me",
        "deprecatedCount": 3,
        "deprecatedFirstTimestamp": "t",
        "deprecatedLastTimestamp": "t",
        "deprecatedSource": {"component": "c"},
        "series": {"count": 2},
    }
    stored = to_core(modern)
    assert stored["involvedObject"] == {"name": "x"}
    assert stored["message"] == "hello"
    assert stored["apiVersion"] == "v1"
    assert to_events_group(stored) == modern
    assert kinds["events.k8s.io", "Event"].prefix == kinds["", "Event"].prefix == "events/"


def test_an_event_lives_where_its_object_lives(refusals):
    assert refusals("Event", involvedObject={"namespace": "default"}) == []
    assert refusals("Event", involvedObject={"namespace": "other"}) == [
        'involvedObject.namespace: Invalid value: "other": does not match event.namespace'
    ]


def test_the_new_form_is_stricter_about_new_events(created):
    with pytest.raises(ApiError) as refusal:
        created("Event", "events.k8s.io", involvedObject={"namespace": "default"}, type="Odd", count=3)
    assert refusal.value.message == (
        'Event "x" is invalid: [eventTime: Required value, type: Invalid value: "": has invalid value: Odd, '
        'count: Invalid value: "": needs to be unset]'
    )


# Autoscalers


def test_autoscalers_of_the_first_version_keep_their_target(refusals):
    old = {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 50,
        },
    }
    stored = from_autoscaling_v1(old)
    assert stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    assert to_autoscaling_v1(stored) == old
    assert refusals("HorizontalPodAutoscaler", "autoscaling", spec={"minReplicas": 5, "maxReplicas": 3}) == [
        "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
        "spec.scaleTargetRef.kind: Required value",
        "spec.scaleTargetRef.name: Required value",
    ]
