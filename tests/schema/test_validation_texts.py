"""What the validator says, word for word as kube-apiserver says it."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.schema import validate
from homeostat.model.schema import Schema

REPLICAS = {"type": "integer"}


def messages(spec: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    schema = Schema({"type": "object", "properties": {"spec": spec}})
    before = None if old is None else {"spec": old}
    return [str(e) for e in validate(schema, {"spec": value}, before)]


def field(name: str, schema: dict[str, Any], **limits: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: schema}, **limits}


CASES: list[tuple[str, dict[str, Any], Any, list[str]]] = [
    (
        "a string for an integer",
        field("replicas", REPLICAS),
        {"replicas": "3"},
        ['spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer: "string"'],
    ),
    (
        "null where null is not allowed",
        field("replicas", REPLICAS),
        {"replicas": None},
        ['spec.replicas: Invalid value: "null": spec.replicas in body must be of type integer: "null"'],
    ),
    (
        "a fraction for an integer",
        field("replicas", REPLICAS),
        {"replicas": 1.5},
        [
            'spec.replicas: Invalid value: "number": spec.replicas in body must be of type integer: "number"',
            '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.replicas',
        ],
    ),
    ("a whole float for an integer", field("replicas", REPLICAS), {"replicas": 3.0}, []),
    ("an integer for a number", field("ratio", {"type": "number"}), {"ratio": 3}, []),
    (
        "more than 32 bits in an int32",
        field("replicas", {"type": "integer", "format": "int32"}),
        {"replicas": 2**31},
        ['<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.replicas'],
    ),
    (
        "less than the minimum",
        field("replicas", {"type": "integer", "minimum": 0}),
        {"replicas": -1},
        ["spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0"],
    ),
    (
        "at the exclusive minimum",
        field("replicas", {"type": "integer", "minimum": 0, "exclusiveMinimum": True}),
        {"replicas": 0},
        ["spec.replicas: Invalid value: 0: spec.replicas in body should be greater than 0"],
    ),
    (
        "more than the maximum",
        field("ratio", {"type": "number", "maximum": 1.5}),
        {"ratio": 2.25},
        ["spec.ratio: Invalid value: 2.25: spec.ratio in body should be less than or equal to 1.5"],
    ),
    (
        "at the exclusive maximum",
        field("n", {"type": "integer", "maximum": 5, "exclusiveMaximum": True}),
        {"n": 5},
        ["spec.n: Invalid value: 5: spec.n in body should be less than 5"],
    ),
    (
        "no multiple",
        field("n", {"type": "integer", "multipleOf": 4}),
        {"n": 6},
        ["spec.n: Invalid value: 6: spec.n in body should be a multiple of 4"],
    ),
    (
        "a missing field",
        field("image", {"type": "string"}, required=["image"]),
        {},
        ["spec.image: Required value"],
    ),
    (
        "a word that is not in the list",
        field("mode", {"type": "string", "enum": ["a", "b"]}),
        {"mode": "c"},
        ['spec.mode: Unsupported value: "c": supported values: "a", "b"'],
    ),
    (
        "a number that is not in the list",
        field("size", {"type": "integer", "enum": [1, 2]}),
        {"size": 3},
        ['spec.size: Unsupported value: 3: supported values: "1", "2"'],
    ),
    (
        "too long",
        field("name", {"type": "string", "maxLength": 3}),
        {"name": "abcd"},
        ["spec.name: Too long: may not be more than 3 bytes"],
    ),
    (
        "too short",
        field("name", {"type": "string", "minLength": 3}),
        {"name": "a"},
        ['spec.name: Invalid value: "a": spec.name in body should be at least 3 chars long'],
    ),
    (
        "no match",
        field("name", {"type": "string", "pattern": "^b+$"}),
        {"name": "a"},
        ["spec.name: Invalid value: \"a\": spec.name in body should match '^b+$'"],
    ),
    (
        "not of the format",
        field("ip", {"type": "string", "format": "ipv4"}),
        {"ip": "256.1.1.1"},
        ['spec.ip: Invalid value: "256.1.1.1": spec.ip in body must be of type ipv4: "256.1.1.1"'],
    ),
    ("a format that nobody knows", field("x", {"type": "string", "format": "shape"}), {"x": "any"}, []),
    (
        "too many items",
        field("tags", {"type": "array", "items": {"type": "string"}, "maxItems": 2}),
        {"tags": ["a", "b", "c"]},
        ["spec.tags: Too many: 3: must have at most 2 items"],
    ),
    (
        "too few items",
        field("tags", {"type": "array", "items": {"type": "string"}, "minItems": 2}),
        {"tags": ["a"]},
        ["spec.tags: Invalid value: 1: spec.tags in body should have at least 2 items"],
    ),
    (
        "an item of the wrong type",
        field("tags", {"type": "array", "items": {"type": "string"}}),
        {"tags": ["a", 1]},
        ['spec.tags[1]: Invalid value: "integer": spec.tags[1] in body must be of type string: "integer"'],
    ),
    (
        "too many fields",
        field("m", {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2}),
        {"m": {"a": "1", "b": "2", "c": "3"}},
        ["spec.m: Too many: 3: must have at most 2 items"],
    ),
    (
        "too few fields",
        field("m", {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 2}),
        {"m": {"a": "1"}},
        ["spec.m: Invalid value: 1: spec.m in body should have at least 2 properties"],
    ),
    (
        "a map's value of the wrong type",
        field("m", {"type": "object", "additionalProperties": {"type": "string"}}),
        {"m": {"a": 1}},
        ['spec.m.a: Invalid value: "integer": spec.m.a in body must be of type string: "integer"'],
    ),
    (
        "neither an integer nor a string",
        field("port", {"x-kubernetes-int-or-string": True}),
        {"port": True},
        ['spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"'],
    ),
    (
        "none of the alternatives",
        field("a", {"type": "string"}, oneOf=[{"required": ["a"]}]),
        {},
        [
            '<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found none valid',
            "spec.a: Required value",
        ],
    ),
    (
        "two of the alternatives",
        {"type": "string", "oneOf": [{"minLength": 1}, {"maxLength": 5}]},
        "abc",
        ['<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
    ),
    (
        "none of any",
        {"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        "c",
        [
            '<nil>: Invalid value: "": "spec" must validate at least one schema (anyOf)',
            "spec: Invalid value: \"c\": spec in body should match '^a'",
        ],
    ),
    (
        "not all",
        {"type": "string", "allOf": [{"minLength": 2}]},
        "c",
        [
            'spec: Invalid value: "c": spec in body should be at least 2 chars long',
            '<nil>: Invalid value: "": "spec" must validate all the schemas (allOf). None validated',
        ],
    ),
    (
        "what must not be",
        {"type": "string", "not": {"enum": ["x"]}},
        "x",
        ['<nil>: Invalid value: "": "spec" must not validate the schema (not)'],
    ),
    (
        "a doubled item in a set",
        field("tags", {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
        {"tags": ["a", "b", "a", "a"]},
        ['spec.tags[2]: Duplicate value: "a"'],
    ),
    (
        "a doubled key in a keyed list",
        field(
            "ports",
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["port", "protocol"],
                "items": {
                    "type": "object",
                    "required": ["port", "protocol"],
                    "properties": {"port": {"type": "integer"}, "protocol": {"type": "string"}},
                },
            },
        ),
        {"ports": [{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}, {"port": 1, "protocol": "TCP"}]},
        ['spec.ports[2]: Duplicate value: {"port":1,"protocol":"TCP"}'],
    ),
]


@pytest.mark.parametrize(("spec", "value", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_an_error_reads_as_upstream_words_it(spec: dict[str, Any], value: Any, expected: list[str]) -> None:
    assert messages(spec, value) == expected


def test_reasons_are_upstreams_too() -> None:
    schema = Schema(field("n", {"type": "integer"}, required=["m"], properties={"n": {"type": "integer"}}))
    assert [e.reason for e in validate(schema, {"n": "x"})] == ["FieldValueTypeInvalid", "FieldValueRequired"]


def test_a_part_is_named_by_its_own_fields_under_the_path_it_sits_at() -> None:
    schema = Schema(field("phase", {"type": "string"}))
    [error] = validate(schema, {"phase": 1}, path="status")
    assert str(error) == 'status.phase: Invalid value: "integer": phase in body must be of type string: "integer"'


def test_null_is_fine_where_the_schema_says_so() -> None:
    assert messages(field("x", {"type": "string", "nullable": True}), {"x": None}) == []


def test_null_is_never_one_of_a_list() -> None:
    spec = field("x", {"type": "string", "nullable": True, "enum": ["a", None]})
    assert messages(spec, {"x": None}) == ['spec.x: Unsupported value: null: supported values: "a", "null"']


class TestUpdates:
    LIMITED = field("name", {"type": "string", "maxLength": 2}, required=["name"])

    def test_an_error_about_an_unchanged_field_is_forgiven(self) -> None:
        spec = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 2}, "b": {"type": "string"}}}
        assert messages(spec, {"a": "long", "b": "new"}, {"a": "long", "b": "old"}) == []

    def test_a_changed_field_must_be_valid(self) -> None:
        spec = field("a", {"type": "string", "maxLength": 2})
        assert messages(spec, {"a": "longer"}, {"a": "long"}) == ["spec.a: Too long: may not be more than 2 bytes"]

    def test_items_of_a_keyed_list_are_compared_by_key_not_by_place(self) -> None:
        items = {
            "type": "object",
            "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 2}},
        }
        spec = field(
            "l",
            {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items},
        )
        old = {"l": [{"k": "a", "v": "long"}, {"k": "b", "v": "1"}]}
        assert messages(spec, {"l": [{"k": "b", "v": "2"}, {"k": "a", "v": "long"}]}, old) == []
        assert messages(spec, {"l": [{"k": "b", "v": "long"}]}, old) == [
            "spec.l[0].v: Too long: may not be more than 2 bytes"
        ]

    def test_an_atomic_list_is_compared_as_a_whole(self) -> None:
        spec = field("l", {"type": "array", "items": {"type": "string", "maxLength": 2}})
        assert messages(spec, {"l": ["long"]}, {"l": ["long"]}) == []
        assert messages(spec, {"l": ["long", "b"]}, {"l": ["long"]}) == [
            "spec.l[0]: Too long: may not be more than 2 bytes"
        ]

    def test_a_limit_of_the_parent_still_counts_when_the_parent_changed(self) -> None:
        spec = field("m", {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}})
        assert messages(spec, {"m": {"a": "1", "b": "3", "c": ""}}, {"m": {"a": "1", "b": "2", "c": ""}}) == [
            "spec.m: Too many: 3: must have at most 2 items"
        ]

    def test_true_and_one_are_different_values(self) -> None:
        spec = field("x", {"x-kubernetes-int-or-string": True})
        assert messages(spec, {"x": True}, {"x": 1}) != []

    def test_doubles_in_a_set_are_forgiven_where_the_old_object_had_them(self) -> None:
        spec = field("s", {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}})
        assert messages(spec, {"s": ["a", "a", "b"]}, {"s": ["a", "a"]}) == []
        assert messages(spec, {"s": ["a", "a"]}, {"s": ["a"]}) == ['spec.s[1]: Duplicate value: "a"']


class TestEmbeddedResources:
    TEMPLATE = field(
        "t",
        {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    )

    def test_apiversion_and_kind_are_required(self) -> None:
        assert messages(self.TEMPLATE, {"t": {}}) == [
            "spec.t.apiVersion: Required value",
            "spec.t.kind: Required value",
        ]

    def test_kind_must_look_like_one(self) -> None:
        [error] = messages(self.TEMPLATE, {"t": {"apiVersion": "v1", "kind": "No Kind"}})
        assert error.startswith(
            'spec.t.kind: Invalid value: "No Kind": may have mixed case, but should otherwise match: a DNS-1035 label'
        )

    def test_metadata_is_held_to_the_usual_rules(self) -> None:
        value = {"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a/b", "labels": {"x y": "z"}}}}
        errors = messages(self.TEMPLATE, value)
        assert errors[0] == "spec.t.metadata.name: Invalid value: \"a/b\": may not contain '/'"
        assert errors[1].startswith('spec.t.metadata.labels: Invalid value: "x y": name part must consist of')

    def test_metadata_of_the_wrong_type_says_what_go_would(self) -> None:
        [error] = messages(self.TEMPLATE, {"t": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": 1}}}})
        assert error == (
            'spec.t.metadata: Invalid value: {"labels":{"a":1}}: '
            "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
        )
