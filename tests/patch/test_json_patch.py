"""JSON patch: judged by another implementation where both follow the RFC, and by upstream's answers elsewhere."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_documents import objects, unharmed, values

from homeostat.api.patch import apply_json_patch, unknown_operation_fields
from homeostat.model.errors import ApiError

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "annotations": {"a/b": "1", "c~d": "2"}},
    "spec": {"containers": [{"name": "a", "image": "b"}, {"name": "c"}], "empty": None},
}


def why(refusal: ApiError) -> str:
    """What the cause of a 422 says beyond the general message."""
    return refusal.causes[0]["message"].removeprefix(f"{refusal.message}: ")


def pointers(document: Any, prefix: str = "") -> list[str]:
    """Every place in a document, and one beside each."""
    found = [prefix] if prefix else []
    if isinstance(document, dict):
        for key, value in document.items():
            found += pointers(value, f"{prefix}/{key.replace('~', '~0').replace('/', '~1')}")
        found.append(f"{prefix}/new")
    if isinstance(document, list):
        for index, value in enumerate(document):
            found += pointers(value, f"{prefix}/{index}")
        found += [f"{prefix}/-", f"{prefix}/{len(document)}"]
    return found


@st.composite
def documents_and_patches(draw: st.DrawFn) -> tuple[Any, list[dict[str, Any]]]:
    document = draw(objects())
    places = st.sampled_from(pointers(document) or ["/new"])
    operations = []
    for _ in range(draw(st.integers(1, 4))):
        op = draw(st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]))
        operation = {"op": op, "path": draw(places)}
        if op in ("add", "replace", "test"):
            operation["value"] = draw(values())
        if op in ("move", "copy"):
            operation["from"] = draw(places)
        operations.append(operation)
    return document, operations


@given(documents_and_patches())
def test_what_the_rfc_allows_has_the_result_of_another_implementation(case: Any) -> None:
    document, patch = case
    try:
        expected = jsonpatch.apply_patch(document, patch)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError):
        return  # upstream allows some of these: see the tables below
    if any(op.get("from") == op["path"] or op["path"].startswith(f"{op.get('from')}/") for op in patch):
        return
    if any(op["op"] == "test" for op in patch):
        patch = [op for op in patch if op["op"] != "test"]  # Python takes 1 and true for equal; we do not
        expected = jsonpatch.apply_patch(document, patch)
    assert unharmed(apply_json_patch, document, patch) == expected


@given(documents_and_patches())
def test_inputs_stay_as_they_were_and_nothing_but_a_refusal_is_raised(case: Any) -> None:
    document, patch = case
    with suppress(ApiError):
        unharmed(apply_json_patch, document, patch)


@pytest.mark.parametrize(
    ("operation", "changed"),
    [
        (
            {"op": "add", "path": "/metadata/annotations/a~1b", "value": "9"},
            {"metadata": {"annotations": {"a/b": "9", "c~d": "2"}, "name": "p"}},
        ),
        (
            {"op": "remove", "path": "/metadata/annotations/c~0d"},
            {"metadata": {"annotations": {"a/b": "1"}, "name": "p"}},
        ),
        (
            {"op": "replace", "path": "/metadata/foo", "value": 1},
            {"metadata": {"annotations": {"a/b": "1", "c~d": "2"}, "foo": 1, "name": "p"}},
        ),
        ({"op": "test", "path": "/metadata/zzz", "value": None}, {}),
        ({"op": "test", "path": "/spec/containers/1", "value": {"name": "c"}}, {}),
        (
            {"op": "add", "path": "/spec/containers/2", "value": {"name": "e"}},
            {"spec": {"containers": [{"image": "b", "name": "a"}, {"name": "c"}, {"name": "e"}], "empty": None}},
        ),
        (
            {"op": "add", "path": "/spec/containers/0", "value": {"name": "e"}},
            {"spec": {"containers": [{"name": "e"}, {"image": "b", "name": "a"}, {"name": "c"}], "empty": None}},
        ),
        (
            {"op": "add", "path": "/spec/containers/-", "value": {"name": "e"}},
            {"spec": {"containers": [{"image": "b", "name": "a"}, {"name": "c"}, {"name": "e"}], "empty": None}},
        ),
        (
            {"op": "add", "path": "/spec/containers/-1", "value": {"name": "e"}},
            {"spec": {"containers": [{"image": "b", "name": "a"}, {"name": "c"}, {"name": "e"}], "empty": None}},
        ),
        (
            {"op": "add", "path": "/spec/containers/01", "value": {"name": "e"}},
            {"spec": {"containers": [{"image": "b", "name": "a"}, {"name": "e"}, {"name": "c"}], "empty": None}},
        ),
        (
            {"op": "remove", "path": "/spec/containers/-1"},
            {"spec": {"containers": [{"image": "b", "name": "a"}], "empty": None}},
        ),
        (
            {"op": "move", "from": "/metadata/annotations", "path": "/metadata/notes"},
            {"metadata": {"name": "p", "notes": {"a/b": "1", "c~d": "2"}}},
        ),
        (
            {"op": "move", "from": "/spec/containers/0", "path": "/spec/containers/1"},
            {"spec": {"containers": [{"name": "c"}, {"image": "b", "name": "a"}], "empty": None}},
        ),
        (
            {"op": "copy", "from": "/metadata/q", "path": "/metadata/z"},
            {"metadata": {"annotations": {"a/b": "1", "c~d": "2"}, "name": "p", "z": None}},
        ),
        (
            {"op": "copy", "from": "/spec/containers/0", "path": "/spec/containers/-"},
            {"spec": {"containers": [{"image": "b", "name": "a"}, {"name": "c"}, {"image": "b", "name": "a"}], "empty": None}},
        ),
        ({"op": "add", "path": "metadata/name", "value": 1}, {"name": 1}),
    ],
)
def test_operations_do_what_upstreams_library_does(operation: Any, changed: Any) -> None:
    """Results of kubectl 1.33 for the same operations."""
    assert unharmed(apply_json_patch, POD, [operation]) == {**POD, **changed}


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (
            {"op": "remove", "path": "/metadata/foo"},
            "error in remove for path: '/metadata/foo': Unable to remove nonexistent key: foo: missing value",
        ),
        (
            {"op": "add", "path": "/metadata/foo/bar", "value": 1},
            'add operation does not apply: doc is missing path: "/metadata/foo/bar": missing value',
        ),
        (
            {"op": "add", "path": "/metadata/name/x", "value": 1},
            'add operation does not apply: doc is missing path: "/metadata/name/x": missing value',
        ),
        (
            {"op": "add", "path": "/spec/empty/x", "value": 1},
            'add operation does not apply: doc is missing path: "/spec/empty/x": missing value',
        ),
        ({"op": "test", "path": "/metadata/name", "value": "b"}, "testing value /metadata/name failed: test failed"),
        ({"op": "test", "path": "/metadata/zzz", "value": "b"}, "testing value /metadata/zzz failed: test failed"),
        (
            {"op": "test", "path": "/spec/containers/5", "value": {}},
            "error in test for path: '/spec/containers/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/spec/containers/5", "value": {}},
            "error in add for path: '/spec/containers/5': Unable to access invalid index: 5: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/spec/containers/-9", "value": {"name": "e"}},
            "error in add for path: '/spec/containers/-9': Unable to access invalid index: -9: invalid index referenced",
        ),
        (
            {"op": "add", "path": "/spec/containers/x", "value": {}},
            'error in add for path: \'/spec/containers/x\': value was not a proper array index: \'x\': strconv.Atoi: parsing "x": invalid syntax',
        ),
        (
            {"op": "remove", "path": "/spec/containers/7"},
            "error in remove for path: '/spec/containers/7': Unable to access invalid index: 7: invalid index referenced",
        ),
        (
            {"op": "remove", "path": "/spec/containers/x"},
            'error in remove for path: \'/spec/containers/x\': strconv.Atoi: parsing "x": invalid syntax',
        ),
        ({"op": "foo", "path": "/spec"}, "Unexpected kind: foo"),
        ({"path": "/spec"}, "Unexpected kind: unknown"),
        ({"op": "add", "value": {}}, "add operation failed to decode path: missing value"),
        ({"op": "remove"}, "remove operation failed to decode path: missing value"),
        (
            {"op": "replace", "value": {}},
            "replace operation failed to decode path: operation missing path field: missing value",
        ),
        (
            {"op": "replace", "path": "/nope/x", "value": {}},
            "replace operation does not apply: doc is missing path: /nope/x: missing value",
        ),
        (
            {"op": "move", "from": "/metadata/q", "path": "/metadata/z"},
            "error in move for path: 'q': Unable to remove nonexistent key: q: missing value",
        ),
        (
            {"op": "copy", "path": "/metadata/z"},
            "copy operation failed to decode from: operation, missing from field: missing value",
        ),
        (
            {"op": "add", "path": "", "value": 1},
            'add operation does not apply: doc is missing path: "": missing value',
        ),
    ],
)
def test_operations_are_refused_in_upstreams_words(operation: Any, reason: str) -> None:
    with pytest.raises(ApiError) as refusal:
        unharmed(apply_json_patch, POD, [operation])
    assert refusal.value.code == 422
    assert why(refusal.value) == reason


def test_a_refusal_has_upstreams_message_and_says_the_reason_in_a_cause() -> None:
    with pytest.raises(ApiError) as refusal:
        apply_json_patch(POD, [{"op": "test", "path": "/metadata/name", "value": "q"}])
    assert refusal.value.message == "the server rejected our request due to an error in our request"
    assert refusal.value.reason == "Invalid"
    assert why(refusal.value) == "testing value /metadata/name failed: test failed"


@pytest.mark.parametrize(("stored", "tested"), [(1, True), (0, False), (1, 1.0), (["a", 1], ["a", True])])
def test_values_that_python_takes_for_equal_are_not(stored: Any, tested: Any) -> None:
    with pytest.raises(ApiError):
        apply_json_patch({"a": stored}, [{"op": "test", "path": "/a", "value": tested}])


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({}, "json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"),
        (["a"], "json: cannot unmarshal string into Go value of type handlers.jsonPatchOp"),
        ([{"op": 1}], "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"),
    ],
)
def test_what_is_no_list_of_operations_is_a_bad_request(patch: Any, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        apply_json_patch({}, patch)
    assert (refusal.value.code, refusal.value.message) == (400, f"error decoding patch: {message}")


def test_more_than_ten_thousand_operations_are_too_many() -> None:
    operation = {"op": "add", "path": "/a", "value": 1}
    assert apply_json_patch({}, [operation] * 10_000) == {"a": 1}
    with pytest.raises(ApiError) as refusal:
        apply_json_patch({}, [operation] * 10_001)
    assert refusal.value.code == 413
    assert "The allowed maximum operations in a JSON patch is 10000, got 10001" in refusal.value.message


def test_copies_that_double_are_stopped() -> None:
    doubling = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
    with pytest.raises(ApiError) as refusal:
        apply_json_patch({"a": ["x" * 100]}, doubling)
    assert "exceeding the limit 3145728" in why(refusal.value)


def test_shifting_a_long_list_over_and_over_is_stopped_in_time() -> None:
    patch = [{"op": "add", "path": "/a/0", "value": 1}] * 10_000
    started = time.monotonic()
    with pytest.raises(ApiError) as refusal:
        apply_json_patch({"a": [1] * 1_000_000}, patch)
    assert refusal.value.code == 422
    assert time.monotonic() - started < 1


def test_a_copy_and_its_origin_go_their_own_ways() -> None:
    patch = [
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "add", "path": "/b/y", "value": 2},
    ]
    assert unharmed(apply_json_patch, {"a": {}}, patch) == {"a": {"x": 1}, "b": {"y": 2}}


def test_a_value_used_by_two_operations_is_not_shared() -> None:
    value: dict[str, Any] = {}
    patch = [{"op": "add", "path": f"/{name}", "value": value} for name in "ab"]
    patch.append({"op": "add", "path": "/a/x", "value": 1})
    assert unharmed(apply_json_patch, {}, patch) == {"a": {"x": 1}, "b": {}}


def test_what_is_not_touched_is_shared() -> None:
    document = {"metadata": {}, "spec": {"big": [1, 2, 3]}}
    result = apply_json_patch(document, [{"op": "add", "path": "/metadata/a", "value": 1}])
    assert result["spec"] is document["spec"]


def test_the_root_may_be_replaced_by_an_object_only() -> None:
    assert apply_json_patch({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}]) == {"b": 2}
    for value in (1, [1]):
        with pytest.raises(ApiError):
            apply_json_patch({"a": 1}, [{"op": "replace", "path": "", "value": value}])


def test_unknown_fields_of_operations_are_named() -> None:
    patch = [{"op": "remove", "path": "/a"}, {"op": "remove", "path": "/b", "vaule": 1}]
    assert unknown_operation_fields(patch) == ['json patch unknown field "[1].vaule"']
