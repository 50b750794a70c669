"""lightkube: typed and generic resources, apply, set, patch, watch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lightkube import ApiError, Client, KubeConfig, codecs
from lightkube.generic_resource import create_namespaced_resource, load_in_cluster_generic_resources
from lightkube.models.apps_v1 import Deployment as DeploymentModel
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace
from lightkube.types import CascadeType, PatchType

from conformance.conftest import Kind


@pytest.fixture(scope="module")
def connection(kubeconfig: Path) -> KubeConfig:
    return KubeConfig.from_file(kubeconfig)


@pytest.fixture
def client(connection: KubeConfig, namespace: str) -> Client:
    return Client(connection, namespace=namespace, field_manager="lightkube")


@pytest.fixture
def widget(widgets: Kind) -> type:
    return create_namespaced_resource(widgets.group, "v1", "Widget", "widgets")


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels=labels), data=data)


def test_typed_objects_from_creation_to_deletion(client: Client) -> None:
    made = client.create(config_map("one", a="1"))
    made.data["b"] = "2"
    replaced = client.replace(made)
    assert replaced.data == {"a": "1", "b": "2"}
    with pytest.raises(ApiError) as stale:
        client.replace(made)
    assert stale.value.status.reason == "Conflict"
    assert client.patch(ConfigMap, "one", {"data": {"a": None}}).data == {"b": "2"}
    steps = [{"op": "add", "path": "/data/c", "value": "3"}]
    assert client.patch(ConfigMap, "one", steps, patch_type=PatchType.JSON).data == {"b": "2", "c": "3"}
    client.delete(ConfigMap, "one", cascade=CascadeType.BACKGROUND)
    with pytest.raises(ApiError) as gone:
        client.get(ConfigMap, "one")
    assert gone.value.status.code == 404


def test_lists_by_label_and_in_pages(client: Client) -> None:
    for n in range(5):
        client.create(config_map(f"c{n}", {"odd": str(n % 2)}))
    assert [m.metadata.name for m in client.list(ConfigMap, labels={"odd": "1"})] == ["c1", "c3"]
    assert [m.metadata.name for m in client.list(ConfigMap, labels={"odd": ["0", "1"]}, chunk_size=2)] == [
        f"c{n}" for n in range(5)
    ]
    assert [m.metadata.name for m in client.list(ConfigMap, fields={"metadata.name": "c4"})] == ["c4"]
    client.deletecollection(ConfigMap)
    assert list(client.list(ConfigMap)) == []


def test_apply_owns_what_it_declares(client: Client) -> None:
    client.apply(config_map("one", a="1"), field_manager="me")
    with pytest.raises(ApiError) as conflict:
        client.apply(config_map("one", a="2"), field_manager="you")
    assert 'conflict with "me"' in conflict.value.status.message
    assert client.apply(config_map("one", a="2"), field_manager="you", force=True).data == {"a": "2"}
    assert client.apply(config_map("one", b="1"), field_manager="me").data == {"a": "2", "b": "1"}


def test_a_watch_sees_what_happens(client: Client) -> None:
    first = client.create(config_map("old"))
    client.create(config_map("new"))
    seen = []
    for op, found in client.watch(ConfigMap, resource_version=first.metadata.resourceVersion, server_timeout=20):
        seen.append((op, found.metadata.name))
        if op == "ADDED":
            client.patch(ConfigMap, "new", {"data": {"a": "1"}})
        elif op == "MODIFIED":
            client.delete(ConfigMap, "new")
        else:
            break
    assert seen == [("ADDED", "new"), ("MODIFIED", "new"), ("DELETED", "new")]


def test_generic_resources(client: Client, widget: type, widgets: Kind) -> None:
    made = client.create(widget(metadata={"name": "one"}, spec={"size": 3}))
    assert made.spec == {"size": 3, "color": "red", "replicas": 1}
    made = client.patch(widget, "one", {"spec": {"size": 4}}, patch_type=PatchType.MERGE)
    assert made.metadata.generation == 2
    with pytest.raises(ApiError) as refused:
        client.patch(widget, "one", {"spec": {"size": 40}}, patch_type=PatchType.MERGE)
    assert "should be less than or equal to 10" in refused.value.status.message
    status = client.patch(widget.Status, "one", {"status": {"phase": "Ready"}}, patch_type=PatchType.MERGE)
    assert status.status == {"phase": "Ready"}
    made = client.get(widget, "one")
    made["status"] = {"phase": "Lost"}
    assert client.replace(made).status == {"phase": "Ready"}
    applied = client.apply(
        widget(apiVersion=widgets.api_version, kind="Widget", metadata={"name": "two"}, spec={"size": 1})
    )
    assert applied.metadata.managedFields[0].operation == "Apply"
    assert sorted(w.metadata.name for w in client.list(widget)) == ["one", "two"]


def test_set_changes_labels_and_annotations(client: Client) -> None:
    client.create(config_map("one", {"keep": "1", "drop": "1"}))
    client.set(ConfigMap, "one", labels={"a": "b", "drop": None}, annotations={"note": "Hello"})
    metadata = client.get(ConfigMap, "one").metadata
    assert metadata.labels == {"keep": "1", "a": "b"}
    assert metadata.annotations == {"note": "Hello"}


def test_wait_for_a_condition(client: Client, manifests: Path) -> None:
    for obj in codecs.load_all_yaml(manifests.read_text()):
        client.create(obj)
    condition = {"type": "Available", "status": "True"}
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.wait, Deployment, "web", for_conditions=["Available"])
        client.patch(Deployment.Status, "web", {"status": {"conditions": [condition]}})
        assert waiting.result(20).status.conditions[0].type == "Available"


def test_files_and_scale(client: Client, manifests: Path) -> None:
    objects = codecs.load_all_yaml(manifests.read_text())
    for obj in objects:
        client.apply(obj)
    assert isinstance(client.get(Deployment, "web"), DeploymentModel)
    where = ObjectMeta(name="web", namespace=client.namespace)
    client.replace(Deployment.Scale(metadata=where, spec=ScaleSpec(replicas=4)), "web")
    assert client.get(Deployment.Scale, "web").spec.replicas == 4
    assert client.get(Deployment, "web").spec.replicas == 4


def test_generic_resources_are_found_in_the_server(client: Client, widgets: Kind) -> None:
    load_in_cluster_generic_resources(client)
    body = {"apiVersion": widgets.api_version, "kind": "Widget", "metadata": {"name": "one"}, "spec": {"size": 1}}
    assert client.create(codecs.from_dict(body)).spec["color"] == "red"


def test_a_finalizer_holds_until_it_is_taken_off(client: Client, widget: type) -> None:
    client.create(widget(metadata={"name": "held", "finalizers": ["example.com/hold"]}, spec={"size": 1}))
    client.delete(widget, "held")
    assert client.get(widget, "held").metadata.deletionTimestamp
    client.patch(widget, "held", {"metadata": {"finalizers": None}}, patch_type=PatchType.MERGE)
    with pytest.raises(ApiError):
        client.get(widget, "held")


def test_namespaces_carry_their_name(client: Client, namespace: str) -> None:
    assert client.get(Namespace, namespace).status.phase == "Active"
    labels = {ns.metadata.labels["kubernetes.io/metadata.name"] for ns in client.list(Namespace)}
    assert namespace in labels
