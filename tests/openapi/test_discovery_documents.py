"""Discovery documents: names, orders and forms that clients rely on."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from homeostat.api.discovery import Discovery, aggregated_version, storage_version_hash, version_rank
from homeostat.api.resource import Resource

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


@pytest.fixture(scope="module")
def discovery(resources: list[Resource]) -> Discovery:
    return Discovery(resources, "127.0.0.1:6443")


def read(discovery: Discovery, path: str, accept: str = "") -> Any:
    answer = discovery.answer(path, accept)
    assert answer is not None
    return orjson.loads(answer.body)


def test_api_names_the_core_versions_and_the_server(discovery: Discovery) -> None:
    assert read(discovery, "/api") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    }


def test_groups_come_in_the_order_of_preference_and_custom_ones_last(discovery: Discovery) -> None:
    names = [group["name"] for group in read(discovery, "/apis")["groups"]]
    assert names == ["apps", "events.k8s.io", "authentication.k8s.io", "apiextensions.k8s.io", "example.com"]


def test_the_best_served_version_is_preferred(discovery: Discovery) -> None:
    group = read(discovery, "/apis/example.com")
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"] == {"groupVersion": "example.com/v1", "version": "v1"}


def test_versions_sort_by_stage_then_number() -> None:
    versions = ["foo1", "v1", "v10", "v2", "v3beta1", "v11alpha2", "v12alpha1", "v10beta3", "v11beta2", "foo10"]
    best_first = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]
    assert sorted(versions, key=version_rank) == best_first


def test_a_resource_is_listed_with_its_subresources(discovery: Discovery) -> None:
    listed = {entry["name"]: entry for entry in read(discovery, "/apis/apps/v1")["resources"]}
    assert listed["deployments"]["shortNames"] == ["deploy"]
    assert listed["deployments/scale"] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }
    assert listed["deployments/status"]["kind"] == "Deployment"
    assert "group" not in listed["deployments/status"]


def test_the_core_list_has_tokens_and_evictions_of_other_groups(discovery: Discovery) -> None:
    listed = {entry["name"]: entry for entry in read(discovery, "/api/v1")["resources"]}
    assert (listed["serviceaccounts/token"]["group"], listed["serviceaccounts/token"]["kind"]) == (
        "authentication.k8s.io",
        "TokenRequest",
    )
    assert listed["pods/eviction"]["verbs"] == ["create"]
    assert listed["pods/binding"]["kind"] == "Binding"


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        (("", "v1", "Pod"), "xPOwRZ+Yhw8="),
        (("", "v1", "ConfigMap"), "qFsyl6wFWjQ="),
        (("apps", "v1", "Deployment"), "8aSe+NMegvE="),
    ],
)
def test_storage_hashes_are_those_of_a_real_cluster(kind: tuple[str, str, str], known: str) -> None:
    assert storage_version_hash(*kind) == known


def test_both_event_resources_show_the_one_form_they_are_stored_in(discovery: Discovery) -> None:
    core = {entry["name"]: entry for entry in read(discovery, "/api/v1")["resources"]}
    (event,) = read(discovery, "/apis/events.k8s.io/v1")["resources"]
    assert event["storageVersionHash"] == core["events"]["storageVersionHash"]


def test_what_is_only_answered_has_no_storage_hash(discovery: Discovery) -> None:
    (review,) = read(discovery, "/apis/authentication.k8s.io/v1")["resources"]
    assert review["verbs"] == ["create"]
    assert "storageVersionHash" not in review


@pytest.mark.parametrize(
    "path", ["/apis/nothing", "/apis/apps/v2", "/api/v2", "/apis/example.com/v2alpha1", "/apis/apps/v1/x"]
)
def test_what_is_not_served_has_no_document(discovery: Discovery, path: str) -> None:
    assert discovery.answer(path) is None


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (f"{V2},{V2BETA1},application/json", "v2"),
        (f"{V2BETA1},application/json", "v2beta1"),
        (f"{V2};profile=nopeer,{V2},application/json", "v2"),
        ("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,application/json", ""),
        (f"application/json,{V2}", ""),
        ("application/json, */*", ""),
        ("", ""),
    ],
)
def test_the_first_acceptable_form_is_taken(accept: str, form: str) -> None:
    assert aggregated_version(accept) == form


@pytest.mark.parametrize(("accept", "version"), [(V2, "v2"), (V2BETA1, "v2beta1")])
def test_aggregated_discovery_has_everything_in_one_document(discovery: Discovery, accept: str, version: str) -> None:
    answer = discovery.answer("/apis", accept)
    assert answer is not None
    assert answer.content_type == accept
    document = orjson.loads(answer.body)
    assert document["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    custom = document["items"][-1]
    assert custom["metadata"]["name"] == "example.com"
    (widget,) = custom["versions"][0]["resources"]
    assert widget["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert widget["scope"] == "Namespaced"
    assert [sub["subresource"] for sub in widget["subresources"]] == ["scale", "status"]


def test_the_core_group_is_aggregated_apart(discovery: Discovery) -> None:
    (core,) = read(discovery, "/api", V2)["items"]
    assert "pods" in [entry["resource"] for entry in core["versions"][0]["resources"]]


def test_the_etag_changes_with_the_resources_and_only_then(resources: list[Resource]) -> None:
    one, same, less = Discovery(resources), Discovery(resources), Discovery(resources[:-1])
    tags = [answer.etag for d in (one, same, less) if (answer := d.answer("/apis", V2))]
    assert tags[0] == tags[1] != tags[2]
    assert tags[0].startswith('"')
