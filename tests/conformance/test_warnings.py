"""What is legal in a built-in kind and probably not meant: it is stored, and said beside the answer."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from .conftest import Api, Object, needs_builtin_rules
from .objects import CONTAINER, at, deployment, pod

CONTAINERS = "spec.template.spec.containers"
DOTS = "which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"
NOT_MEANT: list[tuple[Object, list[str]]] = [
    (
        {"containers": [{**CONTAINER, "env": [{"name": "A", "value": v} for v in ("1", "2", "$(A) and more", "$(A)")]}]},
        [
            f'{CONTAINERS}[0].env[{i}]: hides previous definition of "A", which may be dropped when using apply'
            for i in (1, 3)
        ],
    ),
    (
        {"containers": [{**CONTAINER, "resources": {"limits": {"memory": "1500m", "cpu": "1500m"}}}]},
        [f'{CONTAINERS}[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer'],
    ),
    (
        {"containers": [{**CONTAINER, "ports": [{"containerPort": 80}, {"containerPort": 80}]}]},
        [f"{CONTAINERS}[0].ports[1]: duplicate port definition with {CONTAINERS}[0].ports[0]"],
    ),
    (
        {"imagePullSecrets": [{"name": "a"}, {"name": "a"}, {}]},
        [
            'spec.template.spec.imagePullSecrets[1].name: duplicate name "a"',
            'spec.template.spec.imagePullSecrets[2].name: invalid empty name ""',
        ],
    ),
    (
        {"nodeSelector": {"beta.kubernetes.io/os": "linux"}},
        ['spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'],
    ),
]


@pytest.fixture(autouse=True)
def real_kinds(api: Api, modern: None) -> None:
    needs_builtin_rules(api)


@pytest.mark.parametrize(("part", "warnings"), NOT_MEANT, ids=lambda value: next(iter(value)) if isinstance(value, dict) else "")
def test_a_template_of_pods_is_looked_at(api: Api, namespace: str, part: Object, warnings: list[str]) -> None:
    body = deployment()
    body["spec"]["template"]["spec"] |= deepcopy(part)
    path = at(namespace, "deployments", group="apps")
    made = api.post(path, body)
    made.expect(201)
    assert made.warnings == warnings
    path = f"{path}/web"
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}}}).warnings == []
    assert api.patch(path, {"spec": {"replicas": 4}}).warnings == warnings


def test_a_pod_is_looked_at_when_it_is_created(api: Api, namespace: str) -> None:
    body: Any = pod("a.b")
    body["spec"]["containers"][0]["env"] = [{"name": "A"}, {"name": "A"}]
    answer = api.post(at(namespace, "pods"), body)
    answer.expect(201)
    assert answer.warnings == [
        f"metadata.name: this is used in the Pod's hostname, {DOTS}",
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply',
    ]
    assert api.patch(at(namespace, "pods", "a.b"), {"metadata": {"labels": {"a": "b"}}}).warnings == []


def test_names_of_pods_should_be_hostnames(api: Api, namespace: str) -> None:
    answer = api.post(at(namespace, "deployments", group="apps"), deployment("a.b"))
    answer.expect(201)
    assert answer.warnings == [f"metadata.name: this is used in Pod names and hostnames, {DOTS}"]


def test_what_is_refused_is_not_warned_about(api: Api, namespace: str) -> None:
    answer = api.post(at(namespace, "deployments", group="apps"), deployment("a.b", replicas=-1))
    answer.expect(422)
    assert answer.warnings == []


def test_the_class_of_an_ingress_has_a_field(api: Api, namespace: str) -> None:
    backend = {"service": {"name": "a", "port": {"number": 80}}}
    metadata = {"name": "a", "annotations": {"kubernetes.io/ingress.class": "nginx"}}
    path = at(namespace, "ingresses", group="networking.k8s.io")
    answer = api.post(path, {"metadata": metadata, "spec": {"defaultBackend": backend}})
    answer.expect(201)
    why = "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"
    assert answer.warnings == [why]
