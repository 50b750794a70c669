"""Unknown fields go and are named; defaults come; both as a naive reading of the rules would have it."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.generated import json_values, structural_schemas

from homeostat.api.schema import default, prune
from homeostat.model.schema import Schema

META_FIELDS = ("apiVersion", "kind", "metadata")


def widget(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "e.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def schema_of(spec: dict[str, Any]) -> Schema:
    return Schema({"type": "object", "properties": {"spec": spec}})


class TestPruning:
    def test_unknown_fields_go_and_are_named_in_order(self) -> None:
        schema = schema_of(
            {
                "type": "object",
                "properties": {
                    "a": {"type": "object"},
                    "l": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}},
                },
            }
        )
        obj = {**widget(b=1, a={"c": 1}, l=[{"x": "1"}, {"y": 2}]), "top": 1}
        assert prune(schema, obj) == [
            'unknown field "spec.a.c"',
            'unknown field "spec.b"',
            'unknown field "spec.l[1].y"',
            'unknown field "top"',
        ]
        assert obj == widget(a={}, l=[{"x": "1"}, {}])

    def test_a_clean_object_is_left_alone(self) -> None:
        obj = widget(a="1")
        before = copy.deepcopy(obj)
        assert prune(schema_of({"type": "object", "properties": {"a": {"type": "string"}}}), obj) == []
        assert obj == before

    def test_root_metadata_is_held_to_the_type_of_all_metadata_and_named_first(self) -> None:
        obj = {**widget(), "a": 1}
        obj["metadata"].update(zone="x", labels={}, creationTimestamp=None, deletionGracePeriodSeconds=0)
        assert prune(schema_of({"type": "object"}), obj) == ['unknown field "metadata.zone"', 'unknown field "a"']
        assert obj["metadata"] == {"name": "w", "deletionGracePeriodSeconds": 0}

    def test_what_is_preserved_stays_but_known_fields_in_it_are_pruned(self) -> None:
        spec = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
        }
        obj = widget(free={"x": {"y": 1}}, known={"a": "1", "b": 2})
        assert prune(schema_of(spec), obj) == ['unknown field "spec.known.b"']
        assert obj["spec"] == {"free": {"x": {"y": 1}}, "known": {"a": "1"}}

    def test_values_of_a_map_are_pruned_by_its_type(self) -> None:
        spec = {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}},
        }
        obj = widget(one={"a": "1", "b": "2"})
        assert prune(schema_of(spec), obj) == ['unknown field "spec.one.b"']

    def test_a_map_of_anything_keeps_scalars_but_no_objects(self) -> None:
        obj = widget(one=1, two={"a": 1})
        assert prune(schema_of({"type": "object", "additionalProperties": True}), obj) == ['unknown field "spec.two.a"']

    def test_an_embedded_resource_keeps_its_type_and_the_known_part_of_its_metadata(self) -> None:
        spec = {
            "type": "object",
            "properties": {
                "t": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object"}},
                }
            },
        }
        inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "odd": 1}, "spec": {"a": 1}, "x": 1}
        obj = widget(t=inner)
        assert prune(schema_of(spec), obj) == [
            'unknown field "spec.t.spec.a"',
            'unknown field "spec.t.x"',
            'unknown field "spec.t.metadata.odd"',
        ]
        assert obj["spec"]["t"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {}}

    def test_a_part_of_a_resource_has_no_fields_that_are_always_known(self) -> None:
        obj = {"kind": "x", "a": "1"}
        schema = Schema({"type": "object", "properties": {"a": {"type": "string"}}})
        assert prune(schema, obj, root=False) == ['unknown field "kind"']

    @settings(max_examples=200, deadline=None)
    @given(structural_schemas(), st.dictionaries(st.sampled_from("abcdk"), json_values(), max_size=4))
    def test_pruning_agrees_with_a_naive_pruner(self, raw: dict[str, Any], obj: dict[str, Any]) -> None:
        expected = copy.deepcopy(obj)
        unknown: list[str] = []
        naive_prune(expected, raw, "", unknown, resource=True)
        assert prune(Schema(raw), obj) == [f'unknown field "{path}"' for path in sorted(unknown)]
        assert obj == expected
        assert prune(Schema(raw), obj) == []


def naive_prune(
    value: Any, raw: dict[str, Any] | None, path: str, unknown: list[str], *, resource: bool = False
) -> None:
    keep = bool(raw and raw.get("x-kubernetes-preserve-unknown-fields"))
    if isinstance(value, list):
        for i, item in enumerate(value):
            if not keep:
                naive_prune(item, (raw or {}).get("items"), f"{path}[{i}]", unknown)
    elif isinstance(value, dict):
        for name in list(value):
            at = f"{path}.{name}".lstrip(".")
            if resource and name in META_FIELDS:
                continue
            if raw and name in raw.get("properties", {}):
                naive_prune(value[name], raw["properties"][name], at, unknown)
            elif raw and "additionalProperties" in raw:
                extra = raw["additionalProperties"]
                naive_prune(value[name], extra if isinstance(extra, dict) else None, at, unknown)
            elif not keep:
                unknown.append(at)
                del value[name]


class TestDefaulting:
    SPEC: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer", "default": 1},
            "note": {"type": "string", "nullable": True, "default": "n"},
            "plain": {"type": "string"},
            "limits": {"type": "object", "default": {}, "properties": {"cpu": {"type": "string", "default": "1"}}},
            "ports": {
                "type": "array",
                "items": {"type": "object", "properties": {"protocol": {"type": "string", "default": "TCP"}}},
            },
            "byName": {
                "type": "object",
                "additionalProperties": {"type": "object", "properties": {"x": {"type": "integer", "default": 7}}},
            },
        },
    }

    def complete(self, **spec: Any) -> dict[str, Any]:
        obj = widget(**spec)
        default(schema_of(self.SPEC), obj)
        result: dict[str, Any] = obj["spec"]
        return result

    def test_missing_fields_get_their_default_at_every_depth(self) -> None:
        assert self.complete(ports=[{}, {"protocol": "UDP"}], byName={"a": {}}) == {
            "replicas": 1,
            "note": "n",
            "limits": {"cpu": "1"},
            "ports": [{"protocol": "TCP"}, {"protocol": "UDP"}],
            "byName": {"a": {"x": 7}},
        }

    def test_a_missing_parent_is_not_made_for_its_children(self) -> None:
        obj = {"apiVersion": "e.com/v1", "kind": "Widget"}
        default(schema_of(self.SPEC), obj)
        assert "spec" not in obj

    def test_null_means_default_unless_null_is_a_value(self) -> None:
        done = self.complete(replicas=None, note=None, plain=None)
        assert done == {"replicas": 1, "note": None, "limits": {"cpu": "1"}}

    def test_objects_do_not_share_a_default(self) -> None:
        first, second = self.complete(), self.complete()
        first["limits"]["cpu"] = "2"
        assert second["limits"] == {"cpu": "1"}

    def test_nulls_that_may_not_be_go_even_without_any_default(self) -> None:
        schema = schema_of({"type": "object", "properties": {"a": {"type": "string"}}})
        obj = widget(a=None, unknown=None)
        default(schema, obj)
        assert obj["spec"] == {"unknown": None}

    @settings(max_examples=200, deadline=None)
    @given(structural_schemas(), st.dictionaries(st.sampled_from("abcdk"), json_values(), max_size=4))
    def test_defaulting_agrees_with_a_naive_reading(self, raw: dict[str, Any], obj: dict[str, Any]) -> None:
        expected = copy.deepcopy(obj)
        naive_drop_nulls(expected, raw)
        naive_default(expected, raw)
        default(Schema(raw), obj)
        assert obj == expected


def naive_child(raw: dict[str, Any] | None, name: str) -> dict[str, Any] | None:
    found = (raw or {}).get("properties", {}).get(name)
    extra = (raw or {}).get("additionalProperties")
    return found if found is not None else extra if isinstance(extra, dict) else None


def naive_drop_nulls(value: Any, raw: dict[str, Any] | None) -> None:
    if isinstance(value, dict):
        for name in list(value):
            child = naive_child(raw, name)
            if value[name] is None and child is not None and not child.get("nullable") and child.get("default") is None:
                del value[name]
            else:
                naive_drop_nulls(value[name], child)
    elif isinstance(value, list):
        for item in value:
            naive_drop_nulls(item, (raw or {}).get("items"))


def naive_fresh(raw: dict[str, Any]) -> Any:
    """The default of a type, which is as complete as what people send."""
    value = copy.deepcopy(raw.get("default"))
    naive_drop_nulls(value, raw)
    return value


def naive_default(value: Any, raw: dict[str, Any] | None) -> None:
    if raw is None:
        return
    if isinstance(value, dict):
        for name, child in raw.get("properties", {}).items():
            missing = name not in value or (value[name] is None and not child.get("nullable"))
            if child.get("default") is not None and missing:
                value[name] = naive_fresh(child)
        for name in value:
            child = naive_child(raw, name)
            if value[name] is None and child is not None and not child.get("nullable"):
                value[name] = naive_fresh(child)
            naive_default(value[name], child)
    elif isinstance(value, list):
        items = raw.get("items")
        for i, item in enumerate(value):
            if item is None and items is not None and not items.get("nullable"):
                value[i] = naive_fresh(items)
            naive_default(value[i], items)


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], True])
def test_what_is_no_object_is_left_for_validation(value: Any) -> None:
    schema = schema_of({"type": "object", "properties": {"a": {"type": "string", "default": "d"}}})
    assert prune(schema, value) == []
    default(schema, value)
