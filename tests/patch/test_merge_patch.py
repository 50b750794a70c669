"""JSON merge patch, by the examples of its RFC and against a plain reading of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_documents import FIELDS, SCALARS, objects, unharmed, values

from homeostat.api.patch import apply_merge_patch
from homeostat.model.errors import ApiError

NOT_NULL = SCALARS.filter(lambda value: value is not None)


def rfc_7386(target: Any, patch: Any) -> Any:
    """The pseudo-code of the RFC, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = rfc_7386(result.get(name), value)
    return result


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_the_examples_of_the_rfc(document: Any, patch: Any, result: Any) -> None:
    assert unharmed(apply_merge_patch, document, patch) == result


def test_nulls_in_new_lists_of_objects_are_dropped_as_upstream_does() -> None:
    assert apply_merge_patch({}, {"a": [{"b": None, "c": 1}, None]}) == {"a": [{"c": 1}, None]}


@given(objects(), st.dictionaries(st.sampled_from("abc"), values(NOT_NULL), max_size=3))
def test_without_nulls_it_does_what_the_rfc_says(document: Any, patch: Any) -> None:
    assert unharmed(apply_merge_patch, document, patch) == rfc_7386(document, patch)


@given(objects(), st.dictionaries(FIELDS, st.one_of(st.none(), values(NOT_NULL)), max_size=4))
def test_a_second_time_changes_nothing(document: Any, patch: Any) -> None:
    once = apply_merge_patch(document, patch)
    assert apply_merge_patch(once, patch) == once


def test_what_is_not_touched_is_shared() -> None:
    document = {"metadata": {"labels": {}}, "spec": {"big": [1, 2, 3]}}
    result = apply_merge_patch(document, {"metadata": {"labels": {"a": "b"}}})
    assert result["spec"] is document["spec"]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            [1],
            "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        (
            "x",
            "error decoding patch: json: cannot unmarshal string into Go value of type map[string]interface {}",
        ),
        (None, "Invalid JSON Patch"),
    ],
)
def test_what_is_not_an_object_is_no_merge_patch(patch: Any, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        apply_merge_patch({}, patch)
    assert (refusal.value.code, refusal.value.message) == (400, message)


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"list": [{"a": None, "b": 1}], "new": [{"q": None}]}},
        {"metadata": {"annotations": None}, "spec": {"containers": [{"name": "z"}]}},
        {"metadata": {"annotations": {"x": None, "y": {"z": None}}}},
        {"metadata": {"annotations": [{"a": None}]}},
    ],
)
def test_kubectl_agrees(kubectl_patch: Any, patch: Any) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"x": "1"}},
        "spec": {"containers": [{"name": "a"}]},
    }
    assert apply_merge_patch(pod, patch) == kubectl_patch("merge", pod, patch)
