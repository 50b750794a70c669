"""Tables and metadata alone: how `kubectl get` and light clients ask for objects."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Api, Kind, needs_builtin_rules
from .objects import at, deployment, make

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
PARTIAL_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
KUBECTL = {
    "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
}

# Columns that a plain `kubectl get` shows, then those of `-o wide`.
COLUMNS = [
    ("/api/v1/configmaps", "Name Data Age", ""),
    ("/api/v1/secrets", "Name Type Data Age", ""),
    ("/api/v1/namespaces", "Name Status Age", ""),
    ("/api/v1/services", "Name Type Cluster-IP External-IP Port(s) Age", "Selector"),
    ("/api/v1/pods", "Name Ready Status Restarts Age", "IP,Node,Nominated Node,Readiness Gates"),
    ("/api/v1/nodes", "Name Status Roles Age Version", "Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime"),
    ("/api/v1/events", "Last Seen,Type,Reason,Object,Message", "Subobject,Source,First Seen,Count,Name"),
    ("/api/v1/replicationcontrollers", "Name Desired Current Ready Age", "Containers,Images,Selector"),
    ("/api/v1/endpoints", "Name Endpoints Age", ""),
    ("/apis/apps/v1/deployments", "Name Ready Up-to-date Available Age", "Containers,Images,Selector"),
    ("/apis/apps/v1/replicasets", "Name Desired Current Ready Age", "Containers,Images,Selector"),
    ("/apis/apps/v1/statefulsets", "Name Ready Age", "Containers,Images"),
    ("/apis/coordination.k8s.io/v1/leases", "Name Holder Age", ""),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", "Name,Created At", ""),
    ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "Name Role Age", "Users,Groups,ServiceAccounts"),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "Name,Created At", ""),
]


def words(text: str) -> list[str]:
    return [w for w in (text.split(",") if "," in text else text.split(" ")) if w]


@pytest.mark.parametrize(("path", "plain", "wide"), COLUMNS)
def test_a_kind_has_its_columns(api: Api, path: str, plain: str, wide: str) -> None:
    if not api.serves("v1", "replicationcontrollers"):
        pytest.skip("an extension server prints built-in kinds plainly")
    table = api.get(path, headers=TABLE, limit=1).expect(200)
    columns = table["columnDefinitions"]
    assert [c["name"] for c in columns if not c["priority"]] == words(plain)
    assert sorted(c["name"] for c in columns if c["priority"]) == sorted(wide.split(",") if wide else [])
    assert all(set(c) == {"name", "type", "format", "description", "priority"} for c in columns)
    assert all(c["format"] == "name" for c in columns if c["name"] == "Name")


def test_a_table_of_one_object_has_its_row_and_version(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = api.post(path, {"metadata": {"name": "one"}, "stringData": {"a": "b", "c": "d"}}).expect(201)
    table = api.get(f"{path}/one", headers=TABLE).expect(200)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    (row,) = table["rows"]
    assert row["cells"][0] == "one"
    if api.serves("v1", "replicationcontrollers"):
        assert row["cells"][:3] == ["one", "Opaque", 2]
        assert row["cells"][3].endswith("s")
    assert row["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }


def test_includeobject_says_how_much_of_the_object_comes_along(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = api.post(path, {"metadata": {"name": "one"}, "data": {"a": "Yg=="}}).expect(201)

    def included(value: str) -> Any:
        return api.get(f"{path}/one", headers=TABLE, includeObject=value).expect(200)["rows"][0]["object"]

    assert included("None") is None
    assert included("Metadata")["metadata"]["uid"] == made["metadata"]["uid"]
    assert included("") == included("Metadata")
    assert included("Object") == made
    listed = api.get(path, headers=TABLE, includeObject="Object", fieldSelector="metadata.name=one").expect(200)
    assert listed["rows"][0]["object"]["data"] == made["data"]
    assert api.get(path, headers=TABLE, includeObject="All").expect(400)["message"] == (
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": "
        "must be 'Metadata', 'Object', 'None', or empty"
    )


def test_tables_come_in_pages(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/services"
    for name in ("a", "b", "c"):
        api.post(path, {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}).expect(201)
    first = api.get(path, headers=TABLE, limit=2).expect(200)
    assert [r["cells"][0] for r in first["rows"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    rest = api.get(path, headers=TABLE, **{"continue": first["metadata"]["continue"]}).expect(200)
    assert [r["cells"][0] for r in rest["rows"]] == ["c"]


def test_the_old_version_of_tables_is_served(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    api.post(path, {"metadata": {"name": "one"}}).expect(201)
    accept = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1beta1"}
    table = api.get(f"{path}/one", headers=accept).expect(200)
    assert table["apiVersion"] == "meta.k8s.io/v1beta1"
    assert table["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_what_is_refused_is_a_status_and_no_table(api: Api, namespace: str) -> None:
    answer = api.get(f"/api/v1/namespaces/{namespace}/secrets/nothing", headers=KUBECTL)
    assert answer.expect(404)["kind"] == "Status"


def test_custom_columns_print_what_their_paths_find(api: Api, definer: Any, namespace: str) -> None:
    gadgets: Kind = definer(
        {"x-kubernetes-preserve-unknown-fields": True},
        kind="Gizmo",
        additionalPrinterColumns=[
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Ratio", "type": "number", "jsonPath": ".spec.ratio"},
            {"name": "On", "type": "boolean", "jsonPath": ".spec.on"},
            {"name": "Word", "type": "string", "jsonPath": ".spec.word", "priority": 1, "description": "Said."},
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    )
    conditions = [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]
    spec = {"size": 3, "ratio": 0.5, "on": True, "word": "hello"}
    api.post(gadgets.path(namespace), gadgets.new("full", spec=spec, status={"conditions": conditions})).expect(201)
    api.post(gadgets.path(namespace), gadgets.new("none")).expect(201)
    table = api.get(gadgets.path(namespace), headers=TABLE).expect(200)
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Size", "Ratio", "On", "Word", "Ready", "Since"]
    assert table["columnDefinitions"][4]["priority"] == 1
    assert table["columnDefinitions"][4]["description"] == "Said."
    full, none = (row["cells"] for row in table["rows"])
    assert full[:6] == ["full", 3, 0.5, True, "hello", "True"]
    assert full[6].endswith("s")
    assert none[:6] == ["none", None, None, None, None, None] or none[:6] == ["none", None, None, None, None, ""]


def test_a_custom_kind_without_columns_shows_its_age(api: Api, definer: Any, namespace: str) -> None:
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    api.post(widgets.path(namespace), widgets.new("one")).expect(201)
    table = api.get(widgets.path(namespace), headers=TABLE).expect(200)
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Age"]


# Metadata alone


def test_metadata_alone_is_served(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = api.post(path, {"metadata": {"name": "one", "labels": {"a": "b"}}, "stringData": {"x": "y"}}).expect(201)
    cut = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    assert api.get(f"{path}/one", headers=PARTIAL).expect(200) == cut
    listed = api.get(path, headers=PARTIAL_LIST, labelSelector="a=b").expect(200)
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed["items"] == [cut]


def test_metadata_of_custom_objects_is_served(api: Api, definer: Any, namespace: str) -> None:
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    made = api.post(widgets.path(namespace), widgets.new("one", spec={"a": 1})).expect(201)
    assert api.get(widgets.path(namespace, "one"), headers=PARTIAL).expect(200)["metadata"] == made["metadata"]
    (item,) = api.get(widgets.path(namespace), headers=PARTIAL_LIST).expect(200)["items"]
    assert set(item) == {"kind", "apiVersion", "metadata"}


def test_a_write_answers_with_metadata_alone_where_asked(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = api.post(path, {"metadata": {"name": "one"}, "stringData": {"x": "y"}}, headers=PARTIAL).expect(201)
    assert (made["kind"], made["metadata"]["name"], "data" in made) == ("PartialObjectMetadata", "one", False)
    patched = api.patch(f"{path}/one", {"metadata": {"labels": {"a": "b"}}}, headers=PARTIAL).expect(200)
    assert (patched["kind"], patched["metadata"]["labels"]) == ("PartialObjectMetadata", {"a": "b"})


def test_what_is_not_stored_has_no_rows_and_no_metadata(api: Api) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    for headers in (TABLE, PARTIAL, {"Accept": "application/xml"}):
        assert api.post(path, body, headers=headers).expect(406)["reason"] == "NotAcceptable"
    api.post(path, body, headers=KUBECTL).expect(201)


def test_a_deletion_is_told_whatever_the_form_of_objects(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    api.post(path, {"metadata": {"name": "one"}}).expect(201)
    assert api.delete(f"{path}/one", headers=KUBECTL).expect(200)["kind"] == "Status"


def test_the_form_of_a_list_is_not_that_of_an_object(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    api.post(path, {"metadata": {"name": "one"}}).expect(201)
    api.get(path, headers=PARTIAL).expect(406)
    api.get(f"{path}/one", headers=PARTIAL_LIST).expect(406)


@pytest.mark.parametrize("group", ["apps", ""])
def test_a_scale_has_its_columns(api: Api, widget: Kind, namespace: str, group: str) -> None:
    if group:
        needs_builtin_rules(api)
        api.post(at(namespace, "deployments", group=group), deployment("one")).expect(201)
        path = at(namespace, "deployments", "one", "scale", group=group)
    else:
        make(api, widget, namespace, "one", spec={"replicas": 2})
        path = widget.path(namespace, "one", "scale")
    table = api.get(path, headers=KUBECTL).expect(200)
    assert [c["name"] for c in table["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert table["rows"][0]["cells"][:3] == ["one", 2, 0]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert api.get(path, headers=PARTIAL).expect(200)["kind"] == "PartialObjectMetadata"
    assert api.get(path, headers={"Accept": "application/xml"}).status == 406
