"""Namespaces: they end with everything in them, and nothing begins in them meanwhile."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .conftest import Api, Kind, Object, eventually, make_namespace

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture(autouse=True)
def whole_cluster(api: Api) -> None:
    if not api.serves("v1", "resourcequotas"):
        pytest.skip("an extension server has no lifecycle of namespaces")


@pytest.fixture
def held(api: Api) -> Any:
    """A namespace under deletion that a finalizer on one of its config maps keeps."""
    name = make_namespace(api)
    path = f"{NAMESPACES}/{name}/configmaps"
    api.post(path, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}).expect(201)
    api.post(path, {"metadata": {"name": "free"}}).expect(201)
    api.delete(f"{NAMESPACES}/{name}").expect(200)
    yield name
    api.patch(f"{path}/held", {"metadata": {"finalizers": None}})


def gone(api: Api, name: str) -> None:
    eventually(lambda: api.get(f"{NAMESPACES}/{name}").status == 404, f"namespace {name} to go")


def test_a_namespace_is_active_and_has_the_finalizer_of_the_cluster(api: Api, namespace: str) -> None:
    body = api.get(f"{NAMESPACES}/{namespace}").expect(200)
    assert body["status"] == {"phase": "Active"}
    assert body["spec"] == {"finalizers": ["kubernetes"]}


def test_a_namespace_is_labelled_with_its_name(api: Api, namespace: str) -> None:
    if api.minor < 21:
        pytest.skip("not known to old servers")
    path = f"{NAMESPACES}/{namespace}"
    assert api.get(path).expect(200)["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace}
    changed = api.patch(path, {"metadata": {"labels": {"kubernetes.io/metadata.name": None, "a": "b"}}}).expect(200)
    assert changed["metadata"]["labels"] == {"kubernetes.io/metadata.name": namespace, "a": "b"}


def test_a_deleted_namespace_goes(api: Api) -> None:
    name = make_namespace(api)
    body = api.delete(f"{NAMESPACES}/{name}").expect(200)
    assert (body["kind"], body["status"]["phase"]) == ("Namespace", "Terminating")
    assert body["metadata"]["deletionTimestamp"]
    gone(api, name)


def test_what_is_in_it_goes_first(api: Api, definer: Any) -> None:
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    name = make_namespace(api)
    start = api.get("/api/v1/secrets", limit=1).expect(200)["metadata"]["resourceVersion"]
    api.post(f"{NAMESPACES}/{name}/secrets", {"metadata": {"name": "s"}}).expect(201)
    api.post(f"{NAMESPACES}/{name}/services", {"metadata": {"name": "v"}, "spec": {"ports": [{"port": 1}]}}).expect(201)
    api.post(widgets.path(name), widgets.new("w")).expect(201)
    role = {"metadata": {"name": "r"}, "rules": []}
    api.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/roles", role).expect(201)
    api.delete(f"{NAMESPACES}/{name}").expect(200)
    gone(api, name)
    assert api.get(widgets.path(name)).expect(200)["items"] == []
    for kind in ("secrets", "services"):
        assert api.get(f"{NAMESPACES}/{name}/{kind}").expect(200)["items"] == []
    watch = api.watch(f"{NAMESPACES}/{name}/secrets", resourceVersion=start, fieldSelector="metadata.name=s", timeoutSeconds=1)
    assert [e["type"] for e in watch] == ["ADDED", "DELETED"]


def test_nothing_is_created_in_a_namespace_that_ends(api: Api, held: str, definer: Any) -> None:
    answer = api.post(f"{NAMESPACES}/{held}/configmaps", {"metadata": {"name": "late"}})
    body = answer.expect(403)
    assert body["reason"] == "Forbidden"
    assert body["message"] == (
        f'configmaps "late" is forbidden: unable to create new content in namespace {held} because it is being terminated'
    )
    assert body["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {held} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    assert api.post(widgets.path(held), widgets.new("late")).expect(403)["details"]["causes"][0]["reason"] == (
        "NamespaceTerminating"
    )


def test_what_is_still_there_can_be_changed(api: Api, held: str) -> None:
    api.patch(f"{NAMESPACES}/{held}/configmaps/held", {"data": {"x": "y"}}).expect(200)


def test_conditions_say_what_keeps_a_namespace(api: Api, held: str) -> None:
    def conditions() -> dict[str, Object]:
        status = api.get(f"{NAMESPACES}/{held}").expect(200)["status"]
        return {c["type"]: c for c in status.get("conditions", [])}

    found = eventually(lambda: conditions().get("NamespaceFinalizersRemaining") and conditions(), "its conditions")
    assert {kind: (c["status"], c["reason"]) for kind, c in found.items()} == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered"),
        "NamespaceDeletionGroupVersionParsingFailure": ("False", "ParsedGroupVersions"),
        "NamespaceDeletionContentFailure": ("False", "ContentDeleted"),
        "NamespaceContentRemaining": ("True", "SomeResourcesRemain"),
        "NamespaceFinalizersRemaining": ("True", "SomeFinalizersRemain"),
    }
    assert found["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert found["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    )


def test_it_goes_once_the_last_finalizer_is_gone(api: Api, held: str) -> None:
    eventually(lambda: api.get(f"{NAMESPACES}/{held}/configmaps/free").status == 404)
    api.get(f"{NAMESPACES}/{held}").expect(200)
    api.delete(f"{NAMESPACES}/{held}").expect(200)  # again: nothing changes
    api.patch(f"{NAMESPACES}/{held}/configmaps/held", {"metadata": {"finalizers": None}}).expect(200)
    gone(api, held)


def test_nothing_is_created_in_a_namespace_that_is_not_there(api: Api) -> None:
    body = api.post(f"{NAMESPACES}/nowhere/configmaps", {"metadata": {"name": "a"}}).expect(404)
    assert (body["message"], body["details"]) == (
        'namespaces "nowhere" not found',
        {"name": "nowhere", "kind": "namespaces"},
    )


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_are_never_deleted(api: Api, name: str) -> None:
    body = api.delete(f"{NAMESPACES}/{name}").expect(403)
    assert body["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


def test_namespaces_are_not_deleted_by_the_collection(api: Api) -> None:
    api.delete(NAMESPACES, labelSelector="none=none").expect(405)


def test_finalizers_of_a_namespace_are_changed_by_finalize_alone(api: Api) -> None:
    body = {"metadata": {"generateName": "conf-"}, "spec": {"finalizers": ["example.com/x"]}}
    made = api.post(NAMESPACES, body).expect(201)
    name = made["metadata"]["name"]
    assert made["spec"]["finalizers"] == ["example.com/x", "kubernetes"]
    path = f"{NAMESPACES}/{name}"
    assert api.patch(path, {"spec": {"finalizers": []}}).expect(200)["spec"] == made["spec"]
    mine = {**api.get(path).expect(200), "spec": {"finalizers": ["example.com/y"]}}
    assert api.put(f"{path}/finalize", mine).expect(200)["spec"]["finalizers"] == ["example.com/y"]
    assert api.delete(path).expect(200)["status"]["phase"] == "Terminating"
    last = {**api.get(path).expect(200), "spec": {"finalizers": []}}
    assert api.put(f"{path}/finalize", last).expect(200)["spec"] == {}
    gone(api, name)


def test_the_status_of_a_namespace_is_written_apart(api: Api, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}"
    condition = {"type": "Special", "status": "True", "reason": "Because", "message": "it is"}
    api.patch(path, {"status": {"conditions": [condition]}}).expect(200)
    assert "conditions" not in api.get(path).expect(200)["status"]
    body = api.patch(f"{path}/status", {"status": {"conditions": [condition]}}).expect(200)
    assert [c["type"] for c in body["status"]["conditions"]] == ["Special"]


def test_nothing_is_left_by_those_who_create_meanwhile(api: Api) -> None:
    name = make_namespace(api)
    path = f"{NAMESPACES}/{name}/configmaps"
    started = threading.Barrier(5)

    def create(number: int) -> list[int]:
        mine = Api(api.credentials)
        started.wait()
        codes = []
        for i in range(400):
            codes.append(mine.post(path, {"metadata": {"name": f"w{number}-{i}"}}).status)
            if codes[-1] != 201:
                break
        mine.close()
        return codes

    with ThreadPoolExecutor(4) as pool:
        created = [pool.submit(create, n) for n in range(4)]
        started.wait()
        time.sleep(0.05)
        api.delete(f"{NAMESPACES}/{name}").expect(200)
        assert all(set(c.result()) <= {201, 403, 404} for c in created)
    gone(api, name)
    assert api.get(path).expect(200)["items"] == []


def test_a_thousand_objects_go_with_their_namespace_in_a_few_seconds(api: Api) -> None:
    count = 1000 if "HOMEOSTAT_CONFORMANCE_KUBECONFIG" not in os.environ else 100
    name = make_namespace(api)

    def some(numbers: range) -> None:
        mine = Api(api.credentials)
        for n in numbers:
            mine.post(f"{NAMESPACES}/{name}/configmaps", {"metadata": {"name": f"c-{n}"}}).expect(201)
        mine.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, [range(n, count, 8) for n in range(8)]))
    began = time.monotonic()
    api.delete(f"{NAMESPACES}/{name}").expect(200)
    gone(api, name)
    assert time.monotonic() - began < 15
