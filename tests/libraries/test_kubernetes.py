"""The official Python client: typed, custom and dynamic objects, watches, YAML files, leader election."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from conformance.conftest import Kind


@pytest.fixture(scope="module")
def connection(kubeconfig: Path) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(kubeconfig)) as made:
        yield made


@pytest.fixture
def core(connection: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(connection)


@pytest.fixture
def custom(connection: client.ApiClient) -> client.CustomObjectsApi:
    return client.CustomObjectsApi(connection)


@pytest.fixture
def where(widgets: Kind, namespace: str) -> tuple[str, str, str, str]:
    """The first arguments of every call about namespaced custom objects."""
    return widgets.group, "v1", namespace, "widgets"


Where = tuple[str, str, str, str]


def config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


# Typed objects


def test_config_maps_from_creation_to_deletion(core: client.CoreV1Api, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, config_map("one", a="1"))
    assert made.metadata.uid
    made.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("one", namespace, made)
    assert replaced.data == {"a": "1", "b": "2"}
    with pytest.raises(ApiException) as stale:
        core.replace_namespaced_config_map("one", namespace, made)
    assert stale.value.status == 409
    patched = core.patch_namespaced_config_map("one", namespace, {"data": {"a": None, "c": "3"}})
    assert patched.data == {"b": "2", "c": "3"}
    listed = core.list_namespaced_config_map(namespace)
    assert [item.metadata.name for item in listed.items] == ["one"]
    assert core.delete_namespaced_config_map("one", namespace)["status"] == "Success"
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("one", namespace)
    assert (gone.value.status, gone.value.reason) == (404, "Not Found")


def test_secrets_take_plain_text_and_give_base64(core: client.CoreV1Api, namespace: str) -> None:
    secret = client.V1Secret(metadata=client.V1ObjectMeta(generate_name="s-"), string_data={"password": "hunter2"})
    made = core.create_namespaced_secret(namespace, secret)
    assert made.metadata.name.startswith("s-")
    assert base64.b64decode(made.data["password"]) == b"hunter2"
    assert made.string_data is None


def test_pages_of_a_list(core: client.CoreV1Api, namespace: str) -> None:
    for n in range(5):
        core.create_namespaced_config_map(namespace, config_map(f"c{n}"))
    names: list[str] = []
    token, pages = None, 0
    while token or not pages:
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token)
        names += [item.metadata.name for item in page.items]
        token, pages = page.metadata._continue, pages + 1
    assert (names, pages) == ([f"c{n}" for n in range(5)], 3)


def test_deployments_and_their_scale(connection: client.ApiClient, namespace: str) -> None:
    apps = client.AppsV1Api(connection)
    labels = {"app": "web"}
    pod = client.V1PodSpec(containers=[client.V1Container(name="main", image="nginx:1")])
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels=labels), spec=pod)
    spec = client.V1DeploymentSpec(replicas=2, selector=client.V1LabelSelector(match_labels=labels), template=template)
    made = apps.create_namespaced_deployment(
        namespace, client.V1Deployment(metadata=client.V1ObjectMeta(name="web"), spec=spec)
    )
    assert made.spec.strategy.rolling_update.max_surge == "25%"
    apps.patch_namespaced_deployment_scale("web", namespace, {"spec": {"replicas": 5}})
    assert apps.read_namespaced_deployment_scale("web", namespace).spec.replicas == 5
    change = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}}}
    assert (
        apps.patch_namespaced_deployment("web", namespace, change).spec.template.spec.containers[0].image == "nginx:2"
    )
    apps.delete_namespaced_deployment("web", namespace, body=client.V1DeleteOptions(propagation_policy="Foreground"))


def test_workloads_that_suites_create(connection: client.ApiClient, core: client.CoreV1Api, namespace: str) -> None:
    pod = client.V1PodSpec(containers=[client.V1Container(name="main", image="busybox")], restart_policy="Never")
    named = client.V1ObjectMeta(name="one")
    made = core.create_namespaced_pod(namespace, client.V1Pod(metadata=named, spec=pod))
    assert made.status.phase == "Pending"
    template = client.V1PodTemplateSpec(metadata=client.V1ObjectMeta(labels={"a": "b"}), spec=pod)
    job = client.V1Job(metadata=named, spec=client.V1JobSpec(template=template))
    assert client.BatchV1Api(connection).create_namespaced_job(namespace, job).spec.backoff_limit == 6
    service = client.V1Service(metadata=named, spec=client.V1ServiceSpec(ports=[client.V1ServicePort(port=80)]))
    assert core.create_namespaced_service(namespace, service).spec.type == "ClusterIP"
    core.delete_namespaced_pod("one", namespace, grace_period_seconds=0)


def test_patch_types_by_content_type(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("one", a="1"))
    steps = [{"op": "replace", "path": "/data/a", "value": "2"}]
    assert core.patch_namespaced_config_map("one", namespace, steps).data == {"a": "2"}
    applied = core.patch_namespaced_config_map(
        "one", namespace, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"b": "1"}},
        field_manager="me", _content_type="application/apply-patch+yaml",
    )  # fmt: skip
    assert applied.data == {"a": "2", "b": "1"}
    assert any(m.manager == "me" and m.operation == "Apply" for m in applied.metadata.managed_fields)


def test_errors_carry_the_status(core: client.CoreV1Api, namespace: str) -> None:
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_config_map(namespace, config_map("Not_Valid"))
    assert refused.value.status == 422
    assert '"reason":"Invalid"' in refused.value.body
    assert "metadata.name" in refused.value.body


def test_collections_are_deleted_by_label(core: client.CoreV1Api, namespace: str) -> None:
    for name, label in (("a", "x"), ("b", "y")):
        metadata = client.V1ObjectMeta(name=name, labels={"l": label})
        core.create_namespaced_config_map(namespace, client.V1ConfigMap(metadata=metadata))
    core.delete_collection_namespaced_config_map(namespace, label_selector="l=x")
    assert [item.metadata.name for item in core.list_namespaced_config_map(namespace).items] == ["b"]


def test_reviews_and_tokens(connection: client.ApiClient, core: client.CoreV1Api, namespace: str) -> None:
    asked = client.V1ResourceAttributes(verb="create", resource="pods", namespace=namespace)
    review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=asked))
    assert client.AuthorizationV1Api(connection).create_self_subject_access_review(review).status.allowed
    core.create_namespaced_service_account(
        namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="robot"))
    )
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=600))
    token = core.create_namespaced_service_account_token("robot", namespace, request).status.token
    found = client.AuthenticationV1Api(connection).create_token_review(
        client.V1TokenReview(spec=client.V1TokenReviewSpec(token=token))
    )
    assert found.status.user.username == f"system:serviceaccount:{namespace}:robot"


# Custom objects


def test_custom_objects_from_creation_to_deletion(custom: client.CustomObjectsApi, widgets: Kind, where: Where) -> None:
    made = custom.create_namespaced_custom_object(*where, widgets.new("one", spec={"size": 3}))
    assert made["spec"] == {"size": 3, "color": "red", "replicas": 1}
    patched = custom.patch_namespaced_custom_object(*where, "one", {"spec": {"size": 4}})
    assert patched["metadata"]["generation"] == 2
    custom.patch_namespaced_custom_object_status(*where, "one", {"status": {"phase": "Ready"}})
    found = custom.get_namespaced_custom_object(*where, "one")
    assert (found["status"], found["metadata"]["generation"]) == ({"phase": "Ready"}, 2)
    custom.patch_namespaced_custom_object_scale(*where, "one", {"spec": {"replicas": 7}})
    assert custom.get_namespaced_custom_object_scale(*where, "one")["spec"] == {"replicas": 7}
    found = custom.get_namespaced_custom_object(*where, "one")
    found["spec"]["size"] = 5
    assert custom.replace_namespaced_custom_object(*where, "one", found)["spec"]["size"] == 5
    assert len(custom.list_namespaced_custom_object(*where)["items"]) == 1
    custom.delete_namespaced_custom_object(*where, "one")
    everywhere = custom.list_cluster_custom_object(widgets.group, "v1", "widgets")["items"]
    assert [one for one in everywhere if one["metadata"]["namespace"] == where[2]] == []


def test_a_custom_object_that_breaks_its_schema(custom: client.CustomObjectsApi, widgets: Kind, where: Where) -> None:
    with pytest.raises(ApiException) as refused:
        custom.create_namespaced_custom_object(*where, widgets.new("big", spec={"size": 11}))
    assert refused.value.status == 422
    assert "spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10" in refused.value.body


def test_a_finalizer_holds_a_custom_object(custom: client.CustomObjectsApi, widgets: Kind, where: Where) -> None:
    held = widgets.new("held", spec={"size": 1}, metadata={"finalizers": ["example.com/hold"]})
    custom.create_namespaced_custom_object(*where, held)
    custom.delete_namespaced_custom_object(*where, "held")
    assert custom.get_namespaced_custom_object(*where, "held")["metadata"]["deletionTimestamp"]
    custom.patch_namespaced_custom_object(*where, "held", {"metadata": {"finalizers": []}})
    with pytest.raises(ApiException, match="404"):
        custom.get_namespaced_custom_object(*where, "held")


# Watches


def test_a_watch_sees_what_happens(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("old"))
    stream = watch.Watch()
    seen = []
    for event in stream.stream(core.list_namespaced_config_map, namespace, timeout_seconds=20):
        seen.append((event["type"], event["object"].metadata.name))
        if seen[-1] == ("ADDED", "old"):
            core.create_namespaced_config_map(namespace, config_map("new"))
        elif seen[-1] == ("ADDED", "new"):
            core.patch_namespaced_config_map("new", namespace, {"data": {"a": "1"}})
        elif seen[-1] == ("MODIFIED", "new"):
            core.delete_namespaced_config_map("new", namespace)
        else:
            stream.stop()
    assert seen == [("ADDED", "old"), ("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "new")]


def test_a_watch_goes_on_after_its_time(custom: client.CustomObjectsApi, widgets: Kind, where: Where) -> None:
    listed = custom.list_namespaced_custom_object(*where)
    custom.create_namespaced_custom_object(*where, widgets.new("one", spec={"size": 1}))
    stream = watch.Watch()
    since = listed["metadata"]["resourceVersion"]
    events = list(
        stream.stream(custom.list_namespaced_custom_object, *where, resource_version=since, timeout_seconds=1)
    )
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [("ADDED", "one")]
    assert stream.resource_version == events[0]["object"]["metadata"]["resourceVersion"]


# The dynamic client


def test_the_dynamic_client_finds_kinds_and_works_with_them(
    connection: client.ApiClient, widgets: Kind, namespace: str, tmp_path: Path
) -> None:
    finder = dynamic.DynamicClient(connection, cache_file=str(tmp_path / "cache"))
    kind = finder.resources.get(api_version=widgets.api_version, kind="Widget")
    made = kind.create(body=widgets.new("one", spec={"size": 1}), namespace=namespace)
    assert made.spec.color == "red"
    made = kind.patch(
        body={"spec": {"size": 2}}, name="one", namespace=namespace, content_type="application/merge-patch+json"
    )
    assert made.spec.size == 2
    kind.status.patch(
        body={"status": {"ok": True}}, name="one", namespace=namespace, content_type="application/merge-patch+json"
    )
    applied = kind.server_side_apply(
        body=widgets.new("one", spec={"size": 2, "color": "blue"}), name="one", namespace=namespace, field_manager="me",
        force_conflicts=True,
    )  # fmt: skip
    assert (applied.spec.color, applied.status.ok) == ("blue", True)
    stale = applied.to_dict()
    stale["metadata"]["resourceVersion"] = made.metadata.resourceVersion
    with pytest.raises(ConflictError):
        kind.replace(body=stale, namespace=namespace)
    events = [e["type"] for e in kind.watch(namespace=namespace, timeout=1)]
    assert events == ["ADDED"]
    kind.delete(name="one", namespace=namespace)
    with pytest.raises(NotFoundError):
        kind.get(name="one", namespace=namespace)


def test_the_dynamic_client_knows_built_in_kinds(connection: client.ApiClient, namespace: str, tmp_path: Path) -> None:
    finder = dynamic.DynamicClient(connection, cache_file=str(tmp_path / "cache"))
    assert finder.version["kubernetes"]["major"] == "1"
    maps = finder.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "labels": {"a": "b"}}}
    maps.create(body=body, namespace=namespace)
    assert [item.metadata.name for item in maps.get(namespace=namespace, label_selector="a=b").items] == ["one"]


# Files, and who leads


def test_files_are_created_as_they_stand(
    connection: client.ApiClient, core: client.CoreV1Api, manifests: Path, namespace: str
) -> None:
    utils.create_from_yaml(connection, str(manifests), namespace=namespace)
    assert core.read_namespaced_service("web", namespace).spec.ports[0].target_port == 80
    with pytest.raises(utils.FailToCreateError) as again:
        utils.create_from_yaml(connection, str(manifests), namespace=namespace)
    assert len(again.value.api_exceptions) == 3
    assert {e.status for e in again.value.api_exceptions} == {409}


def test_one_of_two_candidates_leads(kubeconfig: Path, namespace: str) -> None:
    """The candidate that comes second waits for as long as the first renews its lease."""
    config.load_kube_config(str(kubeconfig))
    leading = threading.Event()

    def candidate(identity: str, on_start: Any) -> leaderelection.LeaderElection:
        return leaderelection.LeaderElection(
            electionconfig.Config(
                LeaseLock("leader", namespace, identity),
                lease_duration=4,
                renew_deadline=3,
                retry_period=1,
                onstarted_leading=on_start,
                onstopped_leading=lambda: None,
            )
        )

    first = candidate("first", leading.set)
    assert first.try_acquire_or_renew()
    second = candidate("second", leading.set)
    assert not second.try_acquire_or_renew()
    assert first.try_acquire_or_renew()
    held, record = LeaseLock("leader", namespace, "third").get("leader", namespace)
    assert held
    assert record.holder_identity == "first"
