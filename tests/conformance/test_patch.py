"""PATCH: JSON patch, merge patch and strategic merge patch, on objects and their subresources."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Api,
    Kind,
    mistake,
    needs,
    needs_builtin_rules,
)
from .objects import at, config_map, deployment, make, managers, refusal, service, version

REJECTED = "the server rejected our request due to an error in our request"


@pytest.fixture
def path(api: Api, widget: Kind, namespace: str) -> str:
    """Of a widget to patch."""
    make(api, widget, namespace, "a", spec={"replicas": 1, "text": "t", "map": {"a": "1", "b/c": "2"}, "words": ["x", "y"]})
    return widget.path(namespace, "a")


@pytest.fixture
def config(api: Api, namespace: str) -> str:
    """The path of a config map to patch."""
    api.post(at(namespace, "configmaps"), config_map("a", data={"k": "v", "l": "w"}), fieldManager="maker").expect(201)
    return at(namespace, "configmaps", "a")


def steps(api: Api, path: str, *operations: dict[str, Any], **query: Any) -> Any:
    return api.patch(path, list(operations), JSON_PATCH, **query)


# Merge patch


def test_a_merge_patch_sets_and_null_removes(api: Api, path: str) -> None:
    patch = {"spec": {"replicas": 2, "map": {"a": None, "z": "9"}, "words": ["w"], "nothing": None}}
    new = api.patch(path, patch, fieldManager="patcher").expect(200)
    assert new["spec"] == {"replicas": 2, "text": "t", "map": {"b/c": "2", "z": "9"}, "words": ["w"]}
    assert new["metadata"]["generation"] == 2


def test_the_patcher_manages_what_it_changed(api: Api, path: str) -> None:
    new = api.patch(path, {"spec": {"replicas": 2}}, fieldManager="patcher").expect(200)
    assert managers(new)[1] == ("patcher", "Update", "", {"f:spec": {"f:replicas": {}}})
    assert "f:replicas" not in managers(new)[0][3]["f:spec"]


def test_a_patch_that_changes_nothing_keeps_the_version(api: Api, path: str, config: str) -> None:
    for where, patch in ((path, {"spec": {"replicas": 1}}), (path, {}), (config, {"data": {"k": "v"}})):
        before = api.get(where).body
        assert api.patch(where, patch).expect(200) == before


def test_a_patch_bound_to_a_version_holds_for_that_version_only(api: Api, path: str) -> None:
    current = version(api.get(path).body)
    assert refusal(api.patch(path, {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 9}})) == (409, "Conflict")
    api.patch(path, {"metadata": {"resourceVersion": current}, "spec": {"replicas": 9}}).expect(200)
    assert refusal(steps(api, path, {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"})) == (
        409,
        "Conflict",
    )
    mistake(api.patch(path, {"metadata": {"resourceVersion": "abc"}}), 422)


def test_a_patch_cannot_take_the_version_away_from_a_custom_object(api: Api, path: str, config: str) -> None:
    answer = api.patch(path, {"metadata": {"resourceVersion": None}, "spec": {"replicas": 9}})
    assert answer.causes == [("FieldValueInvalid", "metadata.resourceVersion")]
    api.patch(config, {"metadata": {"resourceVersion": None}, "data": {"k": "x"}}).expect(200)


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH])
def test_a_patch_cannot_rename_or_move(api: Api, path: str, config: str, media: str) -> None:
    for where in (path, config) if media == MERGE_PATCH else (config,):
        answer = api.patch(where, {"metadata": {"name": "b"}}, media)
        assert refusal(answer) == (400, "BadRequest")
        assert answer.body["message"] == "the name of the object (b) does not match the name on the URL (a)"
        for patch in ({"metadata": {"name": None}}, {"metadata": None}):
            answer = api.patch(where, patch, media)
            assert refusal(answer) == (400, "BadRequest")
            why = "was undeterminable: name must be provided"
            assert answer.body["message"] == f"the name of the object (a based on URL) {why}"
        assert refusal(api.patch(where, {"metadata": {"namespace": "other"}}, media)) == (400, "BadRequest")


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH])
def test_a_patch_cannot_change_the_uid(api: Api, path: str, config: str, media: str) -> None:
    for where in (path, config) if media == MERGE_PATCH else (config,):
        answer = api.patch(where, {"metadata": {"uid": "other"}}, media)
        assert refusal(answer) == (422, "Invalid")
        assert set(answer.causes) == {("FieldValueInvalid", "metadata.uid")}
        assert answer.body["message"].endswith('metadata.uid: Invalid value: "other": field is immutable')


def test_what_the_server_gave_stays_whatever_a_patch_says(api: Api, path: str) -> None:
    before = api.get(path).body
    patch = {"metadata": {"generation": 99, "creationTimestamp": None, "selfLink": "/x"}}
    assert api.patch(path, patch).expect(200) == before


def test_a_patch_cannot_change_the_kind_of_a_custom_object(api: Api, path: str, widget: Kind) -> None:
    answer = api.patch(path, {"kind": "Other"})
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [("FieldValueInvalid", "kind")]
    answer = api.patch(path, {"apiVersion": "v1"})
    assert answer.causes == [("FieldValueInvalid", "apiVersion")]
    assert answer.body["message"].endswith(f'apiVersion: Invalid value: "v1": must be {widget.api_version}')
    answer = api.patch(path, {"kind": None})
    assert answer.causes == [("FieldValueInvalid", "patch")]
    mistake(api.patch(path, {"apiVersion": None}), 422)


def test_a_patch_cannot_change_the_kind_of_a_built_in_object(api: Api, config: str) -> None:
    for patch in ({"kind": "Secret"}, {"apiVersion": "v2"}):
        assert api.patch(config, patch).causes == [("FieldValueInvalid", "patch")]
        before = api.get(config).body
        assert api.patch(config, patch, STRATEGIC_PATCH).expect(200) == before


def test_status_is_left_alone_by_a_patch_of_the_object(api: Api, path: str, gadget: Kind, namespace: str) -> None:
    assert "status" not in api.patch(path, {"status": {"phase": "x"}}).expect(200)
    make(api, gadget, namespace, "a")
    assert api.patch(gadget.path(namespace, "a"), {"status": {"phase": "x"}}).expect(200)["status"] == {"phase": "x"}


def test_a_dry_run_of_a_patch_stores_nothing(api: Api, path: str) -> None:
    before = api.get(path).body
    assert api.patch(path, {"spec": {"text": "dry"}}, dryRun="All").expect(200)["spec"]["text"] == "dry"
    assert api.get(path).body == before


def test_force_belongs_to_apply(api: Api, path: str) -> None:
    answer = api.patch(path, {}, force="true")
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [("FieldValueForbidden", "force")]
    assert answer.body["details"]["kind"] == "PatchOptions"


def test_there_must_be_something_to_patch(api: Api, widget: Kind, namespace: str) -> None:
    assert refusal(api.patch(widget.path(namespace, "none"), {"spec": {}})) == (404, "NotFound")
    assert refusal(api.patch(widget.path(namespace, "none", "status"), {"status": {}})) == (404, "NotFound")
    assert refusal(api.patch(at(namespace, "configmaps", "none"), {}, STRATEGIC_PATCH)) == (404, "NotFound")


# What a patch leads to


def test_the_outcome_must_fit_the_schema(api: Api, path: str) -> None:
    answer = api.patch(path, {"spec": {"text": 1}})
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes[0][1] == "spec.text"


@pytest.mark.parametrize("media", [MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH])
def test_the_outcome_must_be_readable_as_a_built_in_type(api: Api, config: str, media: str) -> None:
    for value in (5, []):
        patch: Any = {"data": {"k": value}}
        if media == JSON_PATCH:
            patch = [{"op": "add", "path": "/data/k", "value": value}]
        answer = api.patch(config, patch, media)
        assert refusal(answer) == (422, "Invalid")
        assert answer.causes == [("FieldValueInvalid", "patch")]
        assert answer.body["message"].startswith(' "" is invalid: patch: Invalid value: "')


def test_unknown_fields_of_a_patch_are_warned_about_or_refused(api: Api, path: str, config: str) -> None:
    needs(api, 27)
    for where, patch, media, problem in (
        (path, {"spec": {"nope": 1}}, MERGE_PATCH, 'unknown field "spec.nope"'),
        (path, [{"op": "add", "path": "/spec/nope", "value": 1}], JSON_PATCH, 'unknown field "spec.nope"'),
        (config, {"nope": 1}, MERGE_PATCH, 'unknown field "nope"'),
        (config, {"nope": 1}, STRATEGIC_PATCH, 'unknown field "nope"'),
    ):
        assert api.patch(where, patch, media).warnings == [problem]
        assert api.patch(where, patch, media, fieldValidation="Ignore").warnings == []
        answer = api.patch(where, patch, media, fieldValidation="Strict")
        assert refusal(answer) == (422, "Invalid")
        assert answer.causes == [("FieldValueInvalid", "patch")]
        assert answer.body["message"].endswith(f"strict decoding error: {problem}")


def test_doubled_fields_of_a_patch_are_found(api: Api, path: str) -> None:
    needs(api, 27)
    answer = api.patch(path, '{"spec":{"replicas":1,"replicas":3}}')
    assert answer.expect(200)["spec"]["replicas"] == 3
    assert answer.warnings == ['duplicate field "spec.replicas"']
    answer = api.patch(path, '[{"op":"add","op":"add","path":"/spec/text","value":"y","foo":1}]', JSON_PATCH)
    assert answer.expect(200)["spec"]["text"] == "y"
    assert answer.warnings == ['json patch duplicate field "[0].op"', 'json patch unknown field "[0].foo"']


# JSON patch


def test_json_patch_knows_six_operations(api: Api, path: str) -> None:
    new = steps(
        api,
        path,
        {"op": "test", "path": "/spec/replicas", "value": 1},
        {"op": "replace", "path": "/spec/replicas", "value": 3},
        {"op": "add", "path": "/spec/words/-", "value": "z"},
        {"op": "add", "path": "/spec/words/0", "value": "first"},
        {"op": "remove", "path": "/spec/words/1"},
        {"op": "copy", "from": "/spec/map/a", "path": "/spec/map/copied"},
        {"op": "move", "from": "/spec/text", "path": "/spec/map/moved"},
        {"op": "replace", "path": "/spec/map/b~1c", "value": "escaped"},
    ).expect(200)
    assert new["spec"] == {
        "replicas": 3,
        "words": ["first", "y", "z"],
        "map": {"a": "1", "b/c": "escaped", "copied": "1", "moved": "t"},
    }
    assert new["metadata"]["generation"] == 2


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/spec/replicas", "value": 4},
        {"op": "test", "path": "/spec/nope", "value": 4},
        {"op": "remove", "path": "/spec/nope"},
        {"op": "remove", "path": "/spec/nope/deeper"},
        {"op": "add", "path": "/spec/nope/deeper", "value": 1},
        {"op": "add", "path": "spec", "value": 1},
        {"op": "add", "value": 1},
        {"op": "bogus", "path": "/spec", "value": 1},
        {"path": "/spec/text", "value": "x"},
        {"op": "add", "path": "/spec/words/9", "value": "z"},
        {"op": "add", "path": "/spec/words/x", "value": "z"},
        {"op": "remove", "path": "/spec/words/9"},
        {"op": "move", "from": "/spec/nope", "path": "/spec/text"},
        {"op": "remove", "path": ""},
    ],
    ids=lambda o: f"{o.get('op')} {o.get('path')}",
)
def test_an_operation_that_does_not_apply_is_rejected(api: Api, path: str, operation: dict[str, Any]) -> None:
    before = api.get(path).body
    answer = steps(api, path, {"op": "add", "path": "/spec/text", "value": "half"}, operation)
    assert refusal(answer) == (422, "Invalid")
    assert answer.body["message"] == REJECTED
    assert api.get(path).body == before


def test_habits_of_upstreams_json_patch(api: Api, path: str) -> None:
    assert steps(api, path, {"op": "test", "path": "/spec/nope", "value": None}).status == 200
    assert steps(api, path, {"op": "replace", "path": "/spec/map/new", "value": "n"}).expect(200)["spec"]["map"]["new"] == "n"
    assert steps(api, path, {"op": "remove", "path": "/spec/words/-1"}).expect(200)["spec"]["words"] == ["x"]


def test_a_json_patch_has_a_limit(api: Api, path: str) -> None:
    answer = steps(api, path, *[{"op": "test", "path": "/spec/replicas", "value": 1}] * 10_001)
    assert refusal(answer) == (413, "RequestEntityTooLarge")
    why = "The allowed maximum operations in a JSON patch is 10000, got 10001"
    assert answer.body["message"] == f"Request entity too large: {why}"


# Media types


def test_custom_objects_take_three_kinds_of_patch(api: Api, path: str) -> None:
    for media in (STRATEGIC_PATCH, "text/plain", "application/json"):
        answer = api.patch(path, {}, media)
        assert refusal(answer) == (415, "UnsupportedMediaType")
        assert answer.body["message"] == (
            "the body of the request was in an unknown format - accepted media types include: "
            f"{JSON_PATCH}, {MERGE_PATCH}, {APPLY_PATCH}"
        )
    api.patch(path, {}, f"{MERGE_PATCH}; charset=utf-8").expect(200)


def test_built_in_objects_take_four(api: Api, config: str) -> None:
    for media in ("text/plain", "application/json"):
        assert refusal(api.patch(config, {}, media)) == (415, "UnsupportedMediaType")
    for media in (MERGE_PATCH, STRATEGIC_PATCH):
        api.patch(config, {}, media).expect(200)


@pytest.mark.parametrize("media", [MERGE_PATCH, JSON_PATCH])
@pytest.mark.parametrize("body", ["", "{", '"x"', "1"])
def test_a_patch_that_is_none_is_a_bad_request(api: Api, path: str, media: str, body: str) -> None:
    needs(api, 27)
    answer = api.patch(path, body, media)
    assert refusal(answer) == (400, "BadRequest")
    if body in ("", "{"):
        assert answer.body["message"] == "error decoding patch: unexpected end of JSON input"


# Subresources


def test_a_patch_of_status_changes_status_alone(api: Api, path: str) -> None:
    patch = {
        "status": {"phase": "x"},
        "spec": {"replicas": 7},
        "metadata": {"labels": {"z": "z"}, "finalizers": ["example.com/a"]},
    }
    new = api.patch(f"{path}/status", patch, fieldManager="reporter").expect(200)
    assert new["status"] == {"phase": "x"}
    assert new["spec"]["replicas"] == 1
    assert new["metadata"]["generation"] == 1
    assert not {"labels", "finalizers"} & new["metadata"].keys()
    if api.minor >= 22:
        assert managers(new)[-1] == ("reporter", "Update", "status", {"f:status": {".": {}, "f:phase": {}}})
    new = steps(api, f"{path}/status", {"op": "add", "path": "/status/replicas", "value": 3}).expect(200)
    assert new["status"] == {"phase": "x", "replicas": 3}
    assert "status" not in api.patch(f"{path}/status", {"status": None}).expect(200)


def test_a_patch_of_status_is_checked(api: Api, path: str) -> None:
    answer = api.patch(f"{path}/status", {"status": {"phase": 1}})
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes[0][1] == "status.phase"
    assert refusal(api.patch(f"{path}/status", {"metadata": {"resourceVersion": "1"}})) == (409, "Conflict")


# Strategic merge patch


@pytest.fixture
def web(api: Api, namespace: str) -> str:
    """The path of a deployment with one container."""
    needs_builtin_rules(api)
    api.post(at(namespace, "deployments", group="apps"), deployment(), fieldManager="maker").expect(201)
    return at(namespace, "deployments", "web", group="apps")


def containers(api: Api, path: str, *patch: dict[str, Any], **beside: Any) -> list[dict[str, Any]]:
    body = {"spec": {"template": {"spec": {"containers": list(patch), **beside}}}}
    found: list[dict[str, Any]] = api.patch(path, body, STRATEGIC_PATCH).expect(200)["spec"]["template"]["spec"]["containers"]
    return found


def test_containers_are_merged_by_name(api: Api, web: str) -> None:
    assert [c["image"] for c in containers(api, web, {"name": "main", "image": "example/app:2"})] == ["example/app:2"]
    side = {"name": "side", "image": "s", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}
    assert [c["name"] for c in containers(api, web, side)] == ["side", "main"]
    more = {"name": "side", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 81}]}
    merged = containers(api, web, more)[0]
    assert [e["name"] for e in merged["env"]] == ["B", "A"]
    assert [p["containerPort"] for p in merged["ports"]] == [81, 80]


def test_list_items_can_be_deleted_replaced_and_ordered(api: Api, web: str) -> None:
    containers(api, web, {"name": "a", "image": "1"}, {"name": "b", "image": "2"})
    assert [c["name"] for c in containers(api, web, {"name": "main", "$patch": "delete"})] == ["a", "b"]
    order = [{"name": "b"}, {"name": "a"}]
    found = containers(api, web, {"name": "b", "image": "3"}, **{"$setElementOrder/containers": order})
    assert [(c["name"], c["image"]) for c in found] == [("b", "3"), ("a", "1")]
    assert [c["name"] for c in containers(api, web, {"$patch": "replace"}, {"name": "c", "image": "4"})] == ["c"]


def test_a_merge_patch_replaces_lists(api: Api, web: str) -> None:
    body = {"spec": {"template": {"spec": {"containers": [{"name": "only", "image": "x"}]}}}}
    found = api.patch(web, body).expect(200)["spec"]["template"]["spec"]["containers"]
    assert [c["name"] for c in found] == ["only"]


def test_maps_can_be_replaced_and_keys_retained(api: Api, web: str, namespace: str) -> None:
    strategy = {"$retainKeys": ["type"], "type": "Recreate"}
    new = api.patch(web, {"spec": {"strategy": strategy}}, STRATEGIC_PATCH).expect(200)
    assert new["spec"]["strategy"] == {"type": "Recreate"}
    api.post(at(namespace, "services"), service()).expect(201)
    selector = {"$patch": "replace", "z": "y"}
    path = at(namespace, "services", "front")
    new = api.patch(path, {"spec": {"selector": selector, "ports": [{"name": "b", "port": 81}]}}, STRATEGIC_PATCH).expect(200)
    assert new["spec"]["selector"] == {"z": "y"}
    assert [p["port"] for p in new["spec"]["ports"]] == [81, 80]


def test_lists_of_words_are_united_where_upstream_unites_them(api: Api, config: str) -> None:
    for name in ("a", "b"):
        new = api.patch(config, {"metadata": {"finalizers": [f"example.com/{name}"]}}, STRATEGIC_PATCH).expect(200)
    assert sorted(new["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}
    assert api.patch(config, gone, STRATEGIC_PATCH).expect(200)["metadata"]["finalizers"] == ["example.com/b"]
    api.patch(config, {"metadata": {"finalizers": None}}, STRATEGIC_PATCH).expect(200)


def test_text_patched_into_a_secret_becomes_data(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "secrets")
    api.post(path, {"metadata": {"name": "a"}, "stringData": {"k": "v"}}, fieldManager="maker").expect(201)
    new = api.patch(f"{path}/a", {"stringData": {"k": "w"}}, fieldManager="patcher").expect(200)
    assert new["data"] == {"k": "dw=="}
    assert "stringData" not in new
    assert ("patcher", "Update", "", {"f:data": {"f:k": {}}}) in managers(new)
    new = api.apply(f"{path}/a", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"z": "q"}})
    assert new.expect(200)["data"] == {"k": "dw==", "z": "cQ=="}
    assert api.get(f"{path}/a").body["data"] == {"k": "dw==", "z": "cQ=="}


def test_owners_are_merged_by_uid(api: Api, config: str) -> None:
    for uid in ("1", "2"):
        owner = {"apiVersion": "example.com/v1", "kind": "Owner", "name": f"o{uid}", "uid": uid}
        new = api.patch(config, {"metadata": {"ownerReferences": [owner]}}, STRATEGIC_PATCH, dryRun="All").expect(200)
        assert [o["uid"] for o in new["metadata"]["ownerReferences"]] == [uid]


def test_null_removes_in_a_strategic_patch(api: Api, config: str) -> None:
    assert api.patch(config, {"data": {"k": None}}, STRATEGIC_PATCH).expect(200)["data"] == {"l": "w"}
    assert "data" not in api.patch(config, {"data": None}, STRATEGIC_PATCH).expect(200)


@pytest.mark.parametrize("body", [{"$patch": "bogus"}, {"spec": {"template": {"spec": {"containers": [{"image": "x"}]}}}}])
def test_directives_must_make_sense(api: Api, web: str, body: dict[str, Any]) -> None:
    mistake(api.patch(web, body, STRATEGIC_PATCH), 400)


def test_conditions_are_merged_by_type(api: Api, web: str) -> None:
    for kind in ("ExampleA", "ExampleB"):
        body = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        new = api.patch(f"{web}/status", body, STRATEGIC_PATCH).expect(200)
    found = {c["type"] for c in new["status"]["conditions"]}
    assert {"ExampleB"} <= found
    assert "ExampleA" in found or api.minor < 27  # a real controller may have written between


def test_metadata_that_is_none_is_no_outcome(api: Api, widget: Kind, namespace: str, modern: None) -> None:
    make(api, widget, namespace, "a")
    api.post(at(namespace, "configmaps"), config_map("a")).expect(201)
    why = "json: cannot unmarshal number into Go struct field ObjectMeta."
    for path in (widget.path(namespace, "a"), at(namespace, "configmaps", "a")):
        answer = api.patch(path, {"metadata": {"labels": {"x": 5}}})
        assert refusal(answer) == (422, "Invalid")
        assert answer.causes == [("FieldValueInvalid", "patch")]
        assert why in answer.body["message"]
