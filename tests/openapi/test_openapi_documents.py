"""OpenAPI documents: complete, in agreement with each other, and no more than clients can take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from homeostat.api.openapi import V2_PROTOBUF, OpenApi, negotiate_v2, negotiate_v3
from homeostat.api.openapi.protobuf import document_to_protobuf
from homeostat.api.resource import Resource
from homeostat.model.protocol import JSON

WIDGET = "com.example.v1.Widget"


@pytest.fixture(scope="module")
def openapi(resources: list[Resource]) -> OpenApi:
    return OpenApi(resources)


@pytest.fixture(scope="module")
def v2(openapi: OpenApi) -> Any:
    return orjson.loads(openapi.v2_json().body)


def v3(openapi: OpenApi, group: str, version: str = "v1") -> Any:
    answer = openapi.v3_document(group, version)
    assert answer is not None
    return orjson.loads(answer.body)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def test_the_index_gives_the_hash_of_each_document(openapi: OpenApi) -> None:
    paths = orjson.loads(openapi.v3_index().body)["paths"]
    assert list(paths)[:2] == ["api/v1", "apis/apiextensions.k8s.io/v1"]
    document = openapi.v3_document("apps", "v1")
    assert document is not None
    assert paths["apis/apps/v1"] == {"serverRelativeURL": f"/openapi/v3/apis/apps/v1?hash={document.etag[1:-1]}"}


def test_a_group_version_that_is_not_served_has_no_document(openapi: OpenApi) -> None:
    assert openapi.v3_document("example.com", "v2alpha1") is None


def test_every_reference_leads_somewhere(openapi: OpenApi, v2: Any) -> None:
    for path in orjson.loads(openapi.v3_index().body)["paths"]:
        group, version = "/".join(path.split("/")[1:-1]), path.rsplit("/", 1)[1]
        document = v3(openapi, group, version)
        known = document["components"]["schemas"]
        assert {ref.removeprefix("#/components/schemas/") for ref in references(document)} <= set(known)
    assert {ref.removeprefix("#/definitions/") for ref in references(v2)} <= set(v2["definitions"])


def test_v3_allows_no_words_beside_a_reference(openapi: OpenApi) -> None:
    def nodes(node: Any) -> Iterator[Any]:
        if isinstance(node, dict):
            yield node
            node = list(node.values())
        if isinstance(node, list):
            for inner in node:
                yield from nodes(inner)

    for node in nodes(v3(openapi, "")):
        if isinstance(node.get("$ref"), str):
            assert set(node) == {"$ref"}


def test_a_patch_tells_which_parameters_it_takes(openapi: OpenApi, v2: Any) -> None:
    path = "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"
    for paths in (v3(openapi, "example.com")["paths"], v2["paths"]):
        patch = paths[path]["patch"]
        assert patch["x-kubernetes-group-version-kind"] == {"group": "example.com", "kind": "Widget", "version": "v1"}
        assert patch["x-kubernetes-action"] == "patch"
        names = {parameter["name"] for parameter in patch["parameters"] if parameter["in"] == "query"}
        assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= names


def test_parameters_say_their_type_where_each_version_expects_it(openapi: OpenApi, v2: Any) -> None:
    path = "/api/v1/namespaces/{namespace}/configmaps"
    (limit_v2,) = [p for p in v2["paths"][path]["get"]["parameters"] if p["name"] == "limit"]
    (limit_v3,) = [p for p in v3(openapi, "")["paths"][path]["get"]["parameters"] if p["name"] == "limit"]
    assert (limit_v2["type"], limit_v3["schema"]) == ("integer", {"type": "integer"})
    assert "type" not in limit_v3


def test_only_built_in_kinds_take_strategic_merge_patches(openapi: OpenApi) -> None:
    strategic = "application/strategic-merge-patch+json"
    custom = v3(openapi, "example.com")["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]
    builtin = v3(openapi, "")["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]
    assert strategic not in custom["patch"]["requestBody"]["content"]
    assert strategic in builtin["patch"]["requestBody"]["content"]


def test_operation_ids_are_upstreams_and_unique(v2: Any) -> None:
    operations = [op["operationId"] for item in v2["paths"].values() for m, op in item.items() if m != "parameters"]
    assert len(operations) == len(set(operations))
    assert {
        "listCoreV1NamespacedConfigMap",
        "listCoreV1ConfigMapForAllNamespaces",
        "readCoreV1NamespacedPodStatus",
        "replaceAppsV1NamespacedDeploymentScale",
        "createExampleComV1NamespacedWidget",
        "deleteCollectionExampleComV1NamespacedWidget",
        "createCoreV1NamespacedServiceAccountToken",
    } <= set(operations)


def test_a_custom_kind_keeps_its_schema_in_v3(openapi: OpenApi) -> None:
    spec = v3(openapi, "example.com")["components"]["schemas"][WIDGET]["properties"]["spec"]["properties"]
    assert spec["colour"] == {"type": "string", "nullable": True}
    assert spec["speed"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert spec["limit"]["oneOf"] == [{"minimum": 2}]
    assert spec["free"]["properties"] == {"a": {"type": "string"}}
    assert set(spec["template"]["properties"]) == {"apiVersion", "kind", "metadata"}
    assert spec["template"]["required"] == ["kind", "apiVersion"]


def test_v2_says_of_a_custom_kind_only_what_old_clients_understand(v2: Any) -> None:
    schema = v2["definitions"][WIDGET]["properties"]["spec"]
    spec = schema["properties"]
    assert schema["required"] == ["speed"], "a nullable field must not be required"
    assert spec["colour"] == {}
    assert "type" not in spec["speed"]
    assert spec["limit"] == {"type": "integer", "minimum": 1, "maximum": 9}
    assert spec["free"] == {"x-kubernetes-preserve-unknown-fields": True}
    assert v2["definitions"]["com.example.v1beta1.Widget"].keys() == {"type", "x-kubernetes-group-version-kind"}


def test_types_with_two_forms_are_worded_for_each_version(openapi: OpenApi, v2: Any) -> None:
    int_or_string = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
    assert v2["definitions"][int_or_string] == {"type": "string", "format": "int-or-string"}
    assert v3(openapi, "apps")["components"]["schemas"][int_or_string] == {
        "oneOf": [{"type": "integer"}, {"type": "string"}],
        "format": "int-or-string",
    }


def test_kinds_carry_their_group_version_kind(openapi: OpenApi) -> None:
    schemas = v3(openapi, "")["components"]["schemas"]
    expected = [{"group": "", "kind": "Pod", "version": "v1"}]
    assert schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"] == expected
    assert schemas["io.k8s.api.core.v1.PodList"]["x-kubernetes-group-version-kind"][0]["kind"] == "PodList"


def test_merge_keys_are_there_for_clients_that_compute_patches(openapi: OpenApi) -> None:
    containers = v3(openapi, "")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", V2_PROTOBUF),
        ("application/com.github.proto-openapi.spec.v2.v1.0+protobuf", V2_PROTOBUF),
        ("application/json", JSON),
        ("*/*", JSON),
        ("", JSON),
        ("text/html", ""),
    ],
)
def test_v2_comes_in_the_form_that_was_asked_for(accept: str, content_type: str) -> None:
    assert negotiate_v2(accept) == content_type


def test_v3_comes_as_json_or_not_at_all() -> None:
    assert negotiate_v3("application/json;q=0.9, text/html") == JSON
    assert negotiate_v3("application/com.github.proto-openapi.spec.v3@v1.0+protobuf") == ""


def test_documents_are_built_once(openapi: OpenApi) -> None:
    assert openapi.v2_proto() is openapi.v2_proto()
    assert openapi.v3_document("", "v1") is openapi.v3_document("", "v1")


def test_protobuf_has_gnostics_field_numbers() -> None:
    document = {"swagger": "2.0", "definitions": {"A": {"type": "string", "maxLength": 300, "x-kind": ["b"]}}}
    extension = b'\x0a\x06x-kind\x12\x08\x12\x06["b"]\n'
    schema = b"\xb2\x01\x08\x0a\x06string" + b"\x58\xac\x02" + b"\xfa\x01" + bytes([len(extension)]) + extension
    named = b"\x0a\x01A\x12" + bytes([len(schema)]) + schema
    definitions = b"\x0a" + bytes([len(named)]) + named
    assert document_to_protobuf(document) == b"\x0a\x032.0\x4a" + bytes([len(definitions)]) + definitions
