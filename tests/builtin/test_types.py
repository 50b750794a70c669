"""The table of built-in types."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import orjson
import pytest

from homeostat.api.builtin import types
from homeostat.api.builtin.types import definition, definition_name, is_defined, schema_of
from homeostat.model.schema import OBJECT_META

LINES = files("homeostat.api.builtin").joinpath("types.tsv").read_text().splitlines()
TABLE: dict[str, Any] = {name: orjson.loads(facts) for name, _, facts in (line.partition("\t") for line in LINES)}


def schemas(node: Any) -> Iterator[dict[str, Any]]:
    yield node
    for prop in node.get("properties", {}).values():
        yield from schemas(prop)
    for inner in ("items", "additionalProperties"):
        if inner in node:
            yield from schemas(node[inner])


def test_the_table_is_small_and_has_facts_only() -> None:
    assert sum(map(len, LINES)) < 200_000
    assert not [name for name, facts in TABLE.items() for node in schemas(facts) if "description" in node]


def test_every_reference_is_in_the_table() -> None:
    wanted = {node["$ref"] for facts in TABLE.values() for node in schemas(facts) if "$ref" in node}
    assert all(map(is_defined, wanted))


def test_every_merging_list_of_objects_has_a_merge_key() -> None:
    for name, facts in TABLE.items():
        for node in schemas(facts):
            if "merge" in node.get("x-kubernetes-patch-strategy", "").split(",") and "$ref" in node.get("items", {}):
                assert "x-kubernetes-patch-merge-key" in node, name


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("v1", "Pod", "io.k8s.api.core.v1.Pod"),
        ("apps/v1", "Deployment", "io.k8s.api.apps.v1.Deployment"),
        ("rbac.authorization.k8s.io/v1", "Role", "io.k8s.api.rbac.v1.Role"),
        ("autoscaling/v2", "HorizontalPodAutoscaler", "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler"),
        ("v1", "Status", "io.k8s.apimachinery.pkg.apis.meta.v1.Status"),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        ),
    ],
)
def test_kinds_have_upstreams_names(api_version: str, kind: str, name: str) -> None:
    assert definition_name(api_version, kind) == name


@pytest.mark.parametrize(
    ("api_version", "kind"), [("v1", "Nothing"), ("apps/v2", "Deployment"), ("apps.example.com/v1", "Deployment")]
)
def test_what_is_not_built_in_is_refused(api_version: str, kind: str) -> None:
    with pytest.raises(KeyError):
        schema_of(api_version, kind)


def test_types_are_walked_across_references() -> None:
    template = schema_of("apps/v1", "Deployment").properties["spec"].properties["template"]
    containers = template.properties["spec"].properties["containers"]
    assert (containers.merge_key, containers.list_keys) == ("name", ("name",))
    assert containers.items is not None
    ports = containers.items.properties["ports"]
    assert (ports.merge_key, ports.list_keys) == ("containerPort", ("containerPort", "protocol"))
    assert ports.items is not None
    assert ports.items.properties["protocol"].default == "TCP"


def test_a_field_adds_to_the_type_that_it_refers_to() -> None:
    strategy = schema_of("apps/v1", "Deployment").properties["spec"].properties["strategy"]
    assert strategy.merge_strategy == {"retainKeys"}
    assert "rollingUpdate" in strategy.properties


def test_metadata_is_the_one_type_of_all_kinds() -> None:
    assert schema_of("v1", "ConfigMap").properties["metadata"] is OBJECT_META
    stored = definition(types.META + "ObjectMeta")["properties"]
    assert set(OBJECT_META.properties) == set(stored)


def test_a_port_may_be_a_number_or_a_name() -> None:
    ports = schema_of("v1", "Service").properties["spec"].properties["ports"].items
    assert ports is not None
    assert ports.properties["targetPort"].int_or_string


def test_a_schema_within_a_schema_does_not_run_for_ever() -> None:
    versions = schema_of("apiextensions.k8s.io/v1", "CustomResourceDefinition").properties["spec"].properties["versions"]
    assert versions.items is not None
    schema = versions.items.properties["schema"].properties["openAPIV3Schema"]
    for _ in range(20):
        inner = schema.properties["properties"].additional
        assert inner is not None
        schema = inner
    assert "type" in schema.properties


def test_free_form_parts_keep_what_they_are_given() -> None:
    assert schema_of("apps/v1", "ControllerRevision").properties["data"].preserve_unknown
