"""The fast test and the slow explanation are two readers of one schema: they must never disagree."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schema.generated import NAMES, json_values, schemas, structural_schemas

from homeostat.api.schema import default, prune, refit
from homeostat.api.schema.explain import explain
from homeostat.api.schema.validate import accepts, fits, validate
from homeostat.model.schema import Schema


@settings(max_examples=400, deadline=None)
@given(schemas(2), json_values())
def test_what_is_accepted_has_no_errors_and_what_has_none_is_accepted(raw: dict[str, Any], value: Any) -> None:
    schema = Schema(raw)
    assert accepts(schema)(value) is (not explain(schema, value).problems)


@settings(max_examples=200, deadline=None)
@given(structural_schemas(), json_values(), json_values())
def test_an_update_never_meets_more_errors_than_a_creation(raw: dict[str, Any], value: Any, before: Any) -> None:
    schema = Schema({"type": "object", "properties": {"k": raw}})
    created = {str(e) for e in validate(schema, {"k": value})}
    assert {str(e) for e in validate(schema, {"k": value}, {"k": before})} <= created


@settings(max_examples=200, deadline=None)
@given(structural_schemas(depth=1), json_values())
def test_what_the_schema_knows_and_nobody_changed_is_forgiven(raw: dict[str, Any], value: Any) -> None:
    schema, obj = Schema({"type": "object", "properties": {"k": raw}}), {"k": value}
    prune(schema, obj)
    if "x-kubernetes-preserve-unknown-fields" not in str(raw) and "additionalProperties" not in str(raw):
        assert validate(schema, obj, obj) == []


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["set", "map"]),
    st.lists(st.none() | st.dictionaries(st.sampled_from("ab"), st.sampled_from([1, 1.0, True, "x"]))),
)
def test_lists_are_judged_alike_by_both_readers(list_type: str, items: list[Any]) -> None:
    schema = Schema(
        {
            "type": "array",
            "x-kubernetes-list-type": list_type,
            "x-kubernetes-list-map-keys": ["a"],
            "items": {"x-kubernetes-preserve-unknown-fields": True},
        }
    )
    assert accepts(schema)(items) is (not validate(schema, items))


@settings(max_examples=400, deadline=None)
@given(structural_schemas(), st.dictionaries(NAMES, json_values(), max_size=4), st.dictionaries(NAMES, json_values(), max_size=3))
def test_what_a_write_changed_is_fitted_as_the_whole_would_be(raw: dict[str, Any], before: dict[str, Any], more: dict[str, Any]) -> None:
    schema = Schema(raw)
    prune(schema, before)
    default(schema, before)
    part, whole = deepcopy({**before, **more}), deepcopy({**before, **more})
    if not prune(schema, deepcopy(before)) and refit(schema, part, before) is not None:  # no definition has defaults of what it does not know
        assert prune(schema, whole) == []
        default(schema, whole)
        assert part == whole


_STATUS = {
    "type": "object",
    "required": ["phase"],
    "maxProperties": 4,
    "properties": {
        "phase": {"type": "string", "enum": ["Waits", "Runs"]},
        "note": {"type": "string", "maxLength": 3},
        "count": {"type": "integer", "default": 1},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "reports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["replica"],
            "items": {
                "type": "object",
                "required": ["replica"],
                "properties": {"replica": {"type": "integer", "minimum": 0}, "attempt": {"type": "integer", "default": 0}},
            },
        },
    },
}
_GOOD = {
    "phase": st.sampled_from(["Waits", "Runs"]),
    "note": st.sampled_from(["", "abc"]),
    "count": st.integers(0, 3),
    "any": st.sampled_from([{"a": {"b": 1}}, []]),
    "reports": st.sampled_from([[], [{"replica": 0}], [{"replica": 0, "attempt": 2}, {"replica": 1}]]),
}
_BAD = json_values() | st.sampled_from([[{"replica": -1}], [{"attempt": 1}], [{"replica": 1, "b": 2}], [{"replica": 1}, {"replica": 1}], "long"])


@settings(max_examples=400, deadline=None)
@given(
    st.fixed_dictionaries({"phase": _GOOD["phase"]}, optional={name: _GOOD[name] for name in ("note", "count", "any", "reports")}),
    st.fixed_dictionaries({}, optional={**_GOOD, "k": st.just(1)}) | st.dictionaries(st.sampled_from([*_GOOD, "k"]), _BAD, max_size=2),
    st.sets(st.sampled_from([*_GOOD]), max_size=2),
)
def test_of_a_field_that_was_judged_before_only_what_is_new_in_it_has_to_be(before: dict[str, Any], more: dict[str, Any], gone: set[str]) -> None:
    schema = Schema({"type": "object", "properties": {"status": _STATUS}})
    stored = {"status": before}
    default(schema, stored)
    if validate(schema, stored):
        return
    part = {"status": {name: item for name, item in {**before, **deepcopy(more)}.items() if name not in gone}}
    whole = deepcopy(part)
    fitting = refit(schema, part, stored, current=True)
    if fitting is not None:
        assert prune(schema, whole) == []
        default(schema, whole)
        assert part == whole
        assert "status" not in fitting or validate(schema, whole) == []


@settings(max_examples=400, deadline=None)
@given(schemas(3) | structural_schemas(), json_values())
def test_what_fits_is_valid_and_nothing_is_done_to_it(raw: dict[str, Any], value: Any) -> None:
    schema, after = Schema(raw), deepcopy(value)
    if fits(schema)(value):
        assert prune(schema, after, root=False) == []
        default(schema, after)
        assert (after, validate(schema, value)) == (value, [])


@settings(max_examples=400, deadline=None)
@given(structural_schemas(), st.dictionaries(NAMES, json_values(), max_size=4))
def test_an_object_that_fits_as_it_was_sent_is_made_of_fields_that_do(raw: dict[str, Any], obj: dict[str, Any]) -> None:
    schema, after = Schema(raw), deepcopy(obj)
    fitting = refit(schema, obj)
    if fitting is not None:
        assert prune(schema, after) == []
        default(schema, after)
        assert after == obj
        assert validate(schema, obj, fitting=fitting) == validate(schema, obj)


@settings(max_examples=400, deadline=None)
@given(schemas(3), st.dictionaries(NAMES, json_values(), max_size=4), st.dictionaries(NAMES, json_values(), max_size=3))
def test_beside_what_was_found_to_fit_only_what_is_new_has_to_be_judged(
    raw: dict[str, Any], before: dict[str, Any], more: dict[str, Any]
) -> None:
    schema = Schema(raw)
    obj = {**before, **more}
    if not validate(schema, before):
        assert validate(schema, obj, before, current=True) == validate(schema, obj, before)


@pytest.mark.parametrize("limit", [{"maxProperties": 1}, {"not": {"required": ["a", "b"]}}, {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}])
def test_what_fields_may_be_together_is_judged_by_all_of_them(limit: dict[str, Any]) -> None:
    schema = Schema({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, **limit})
    before = {"a": "x"}
    assert not validate(schema, before)
    assert validate(schema, {**before, "b": "y"}, before, current=True)


@pytest.mark.parametrize("rule", [{"maximum": 5}, {"minimum": 2**64}, {"multipleOf": 0.5}, {"multipleOf": 3}])
def test_whole_numbers_that_go_reads_as_floats_are_held_to_limits_too(rule: dict[str, Any]) -> None:
    schema = Schema({"type": "number", **rule})
    assert not accepts(schema)(2**63)
    assert explain(schema, 2**63, "", None).problems
