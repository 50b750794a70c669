"""Built-in types are read as Go reads them."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.schema import decode_errors
from homeostat.model.schema import OBJECT_META, Schema

DEPLOYMENT = Schema(
    {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": OBJECT_META.raw,
            "data": {"type": "object", "additionalProperties": {"type": "string"}},
            "raw": {"type": "object"},
            "when": {"type": "string", "format": "date-time"},
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer", "format": "int32"},
                    "port": {"type": "string", "format": "int-or-string"},
                    "containers": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"image": {"type": "string"}}},
                    },
                },
            },
        },
    }
)


def read(**fields: Any) -> tuple[dict[str, Any], list[str], list[str]]:
    obj = {"kind": "Deployment", **fields}
    unknown, errors = decode_errors(DEPLOYMENT, obj)
    del obj["kind"]
    return obj, unknown, errors


def test_unknown_fields_go_and_are_named() -> None:
    obj, unknown, errors = read(spec={"replicas": 1, "foo": 1, "containers": [{"image": "a", "b": {"c": 1}}]})
    assert unknown == ['unknown field "spec.foo"', 'unknown field "spec.containers[0].b"']
    assert errors == []
    assert obj == {"spec": {"replicas": 1, "containers": [{"image": "a"}]}}


def test_null_is_absent_and_in_lists_and_maps_it_is_nothing() -> None:
    obj, unknown, errors = read(spec=None, data={"a": None}, metadata={"labels": None, "finalizers": [None]})
    assert (unknown, errors) == ([], [])
    assert obj == {"data": {"a": ""}, "metadata": {"finalizers": [""]}}


def test_what_is_raw_is_its_own_business() -> None:
    free = {"a": None, "b": [{"c": 1}]}
    assert read(raw=free) == ({"raw": {"a": None, "b": [{"c": 1}]}}, [], [])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": "x"}, "json: cannot unmarshal string into Go struct field Deployment.data of type map[string]string"),
    ({"data": {"a": 1}}, "json: cannot unmarshal number into Go struct field Deployment.data of type string"),
    (
        {"spec": {"replicas": "1"}},
        "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    ),
    (
        {"spec": {"replicas": 1.5}},
        "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
    ),
    (
        {"spec": {"replicas": 2**31}},
        "json: cannot unmarshal number 2147483648 into Go struct field DeploymentSpec.spec.replicas of type int32",
    ),
    (
        {"spec": {"containers": [{"image": True}]}},
        "json: cannot unmarshal bool into Go struct field Container.spec.containers.image of type string",
    ),
    (
        {"metadata": {"labels": {"a": 1}}},
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
    ),
    (
        {"when": "today"},
        'parsing time "today" as "2006-01-02T15:04:05Z07:00": cannot parse "today" as "2006"',
    ),
]


@pytest.mark.parametrize(("fields", "expected"), WRONG)
def test_a_wrong_type_is_what_go_would_say(fields: dict[str, Any], expected: str) -> None:
    assert read(**fields)[2] == [expected]


@pytest.mark.parametrize("port", [80, "http"])
def test_an_int_or_string_takes_both(port: Any) -> None:
    assert read(spec={"port": port}) == ({"spec": {"port": port}}, [], [])


def test_a_type_may_refer_to_itself() -> None:
    types: dict[str, Schema] = {}
    node = {"type": "object", "properties": {"next": {"$ref": "node"}, "also": {"$ref": "node", "description": "x"}}}
    types["node"] = Schema(node, types.__getitem__)
    assert decode_errors(types["node"], {"next": {"also": {"next": {"odd": 1}}}}) == (
        ['unknown field "next.also.next.odd"'],
        [],
    )
