"""DELETE: what is answered, for whom it was meant, finalizers, and whole collections."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import JSON_PATCH, Api, Kind, eventually, needs_builtin_rules
from .objects import Object, at, config_map, make, pod, refusal, version

HOLD = "example.com/hold"


def held(api: Api, widget: Kind, namespace: str, name: str = "a", *more: str) -> str:
    """The path of a new widget with a finalizer."""
    make(api, widget, namespace, name, metadata={"finalizers": [HOLD, *more]}, spec={"replicas": 1})
    return widget.path(namespace, name)


def release(api: Api, path: str) -> None:
    api.patch(path, {"metadata": {"finalizers": None}}).expect(200)


# What is answered


def test_a_delete_answers_with_a_status_that_names_the_object(api: Api, widget: Kind, namespace: str) -> None:
    made = make(api, widget, namespace, "a")
    body = api.delete(widget.path(namespace, "a")).expect(200)
    assert (body["kind"], body["apiVersion"], body["status"]) == ("Status", "v1", "Success")
    uid = made["metadata"]["uid"]
    assert body["details"] == {"name": "a", "group": widget.group, "kind": "widgets", "uid": uid}
    answer = api.delete(widget.path(namespace, "a"))
    assert refusal(answer) == (404, "NotFound")
    assert answer.body["details"] == {"name": "a", "group": widget.group, "kind": "widgets"}


def test_a_delete_that_must_wait_answers_with_the_object(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    body = api.delete(path).expect(200)
    assert body["kind"] == "Widget"
    assert body["metadata"]["deletionTimestamp"]
    assert body["metadata"]["deletionGracePeriodSeconds"] == 0
    assert body["metadata"]["generation"] == 2
    assert body["metadata"]["finalizers"] == [HOLD]
    assert api.get(path).body == body
    release(api, path)


def test_some_kinds_show_what_was_deleted(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    for plural, kind in (("serviceaccounts", "ServiceAccount"), ("resourcequotas", "ResourceQuota")):
        api.post(at(namespace, plural), {"kind": kind, "metadata": {"name": "a"}}).expect(201)
        body = api.delete(at(namespace, plural, "a")).expect(200)
        assert (body["kind"], body["metadata"]["name"]) == (kind, "a")
        assert "deletionTimestamp" not in body["metadata"]


def test_a_deleted_pod_is_shown_as_ending(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    eventually(lambda: api.post(at(namespace, "pods"), pod()).status == 201, "the pod to be admitted")
    body = api.delete(at(namespace, "pods", "one")).expect(200)
    assert body["kind"] == "Pod"
    assert body["metadata"]["deletionTimestamp"]
    assert body["metadata"]["deletionGracePeriodSeconds"] == 0
    api.get(at(namespace, "pods", "one")).expect(404)


@pytest.mark.parametrize("plural", ["configmaps", "secrets", "endpoints"])
def test_most_built_in_kinds_answer_with_a_status(api: Api, namespace: str, plural: str) -> None:
    api.post(at(namespace, plural), {"metadata": {"name": "a"}}).expect(201)
    body = api.delete(at(namespace, plural, "a")).expect(200)
    assert body["kind"] == "Status"
    assert body["details"]["kind"] == plural
    assert "group" not in body["details"]


# For whom and how it was meant


def test_a_delete_can_be_meant_for_one_object_only(api: Api, widget: Kind, namespace: str) -> None:
    made = make(api, widget, namespace, "a")
    path = widget.path(namespace, "a")
    uid = made["metadata"]["uid"]
    answer = api.delete(path, {"preconditions": {"uid": "other"}})
    assert refusal(answer) == (409, "Conflict")
    why = f"the UID in the precondition (other) does not match the UID in record ({uid})"
    assert answer.body["message"] == (
        f'Operation cannot be fulfilled on Widget.{widget.group} "a": {why}. '
        "The object might have been deleted and then recreated"
    )
    api.delete(path, {"preconditions": {"uid": uid}}).expect(200)


def test_a_delete_can_be_meant_for_one_version_only(api: Api, namespace: str) -> None:
    made = api.post(at(namespace, "configmaps"), config_map("a")).expect(201)
    path = at(namespace, "configmaps", "a")
    answer = api.delete(path, {"preconditions": {"resourceVersion": "1"}})
    assert refusal(answer) == (409, "Conflict")
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition (1) does not match the '
        f"ResourceVersion in record ({version(made)}). The object might have been modified"
    )
    api.delete(path, {"preconditions": {"resourceVersion": version(made)}}).expect(200)


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"propagationPolicy": "Bogus"}, ("FieldValueNotSupported", "propagationPolicy")),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, ("FieldValueInvalid", "propagationPolicy")),
        ({"dryRun": ["Bogus"]}, ("FieldValueNotSupported", "dryRun")),
    ],
)
def test_options_of_a_delete_are_checked(
    api: Api, widget: Kind, namespace: str, options: Object, cause: tuple[str, str]
) -> None:
    make(api, widget, namespace, "a")
    answer = api.delete(widget.path(namespace, "a"), options)
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [cause]
    assert answer.body["details"]["kind"] == "DeleteOptions"
    api.get(widget.path(namespace, "a")).expect(200)


def test_the_policies_are_listed(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a")
    message = api.delete(widget.path(namespace, "a"), propagationPolicy="Bogus").expect(422)["message"]
    assert message.endswith('"Bogus": supported values: "Foreground", "Background", "Orphan", "nil"')


@pytest.mark.parametrize("body", ["{", "[]", {"kind": "Other", "apiVersion": "v1"}, {"gracePeriodSeconds": "x"}])
def test_a_body_that_is_no_options_is_refused(api: Api, widget: Kind, namespace: str, body: Any) -> None:
    make(api, widget, namespace, "a")
    answer = api.delete(widget.path(namespace, "a"), body)
    assert answer.status == 400 or (api.minor < 27 and answer.status == 500)
    api.get(widget.path(namespace, "a")).expect(200)


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "DeleteOptions", "apiVersion": "v1"},
        {"gracePeriodSeconds": 5},
        {"propagationPolicy": "Background"},
        {"unknown": 1},
        {"orphanDependents": False},
    ],
)
def test_options_that_change_nothing_here(api: Api, widget: Kind, namespace: str, body: Object) -> None:
    make(api, widget, namespace, "a")
    api.delete(widget.path(namespace, "a"), body).expect(200)
    api.get(widget.path(namespace, "a")).expect(404)


def test_a_dry_run_deletes_nothing(api: Api, widget: Kind, namespace: str) -> None:
    before = make(api, widget, namespace, "a")
    path = widget.path(namespace, "a")
    assert api.delete(path, dryRun="All").expect(200)["status"] == "Success"
    assert api.delete(path, {"dryRun": ["All"]}).expect(200)["status"] == "Success"
    assert api.get(path).body == before


# Finalizers


def test_a_second_delete_changes_nothing(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    first = api.delete(path).expect(200)
    assert api.delete(path).expect(200) == first
    release(api, path)


def test_no_finalizer_joins_once_an_object_is_going(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    api.delete(path).expect(200)
    answer = api.patch(path, {"metadata": {"finalizers": [HOLD, "example.com/more"]}})
    assert refusal(answer) == (422, "Invalid")
    assert set(answer.causes) == {("FieldValueForbidden", "metadata.finalizers")}
    assert answer.body["message"].endswith(
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"example.com/more"}'
    )
    release(api, path)


def test_a_delete_cannot_be_taken_back(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    going = api.delete(path).expect(200)
    for metadata in ({"deletionTimestamp": None}, {"deletionGracePeriodSeconds": None}):
        assert api.patch(path, {"metadata": metadata}).expect(200) == going
    answer = api.patch(path, {"metadata": {"deletionGracePeriodSeconds": 7}})
    assert set(answer.causes) == {("FieldValueInvalid", "metadata.deletionGracePeriodSeconds")}
    release(api, path)


def test_an_object_that_is_going_can_still_change(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    api.delete(path).expect(200)
    assert api.patch(path, {"spec": {"replicas": 2}}).expect(200)["metadata"]["generation"] == 3
    assert api.patch(f"{path}/status", {"status": {"phase": "Going"}}).expect(200)["status"] == {"phase": "Going"}
    release(api, path)


def test_the_object_goes_with_its_last_finalizer(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace, "a", "example.com/other")
    api.delete(path).expect(200)
    assert api.patch(path, {"metadata": {"finalizers": [HOLD]}}).expect(200)["metadata"]["finalizers"] == [HOLD]
    api.get(path).expect(200)
    api.patch(path, {"metadata": {"finalizers": None}}, dryRun="All").expect(200)
    last = api.get(path).expect(200)
    gone = api.patch(path, {"metadata": {"finalizers": []}}).expect(200)
    assert "finalizers" not in gone["metadata"]
    assert gone["metadata"]["uid"] == last["metadata"]["uid"]
    assert refusal(api.get(path)) == (404, "NotFound")


def test_finalizers_leave_by_update_and_json_patch_too(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace, "a")
    body = api.delete(path).expect(200)
    del body["metadata"]["finalizers"]
    api.put(path, body).expect(200)
    api.get(path).expect(404)
    path = held(api, widget, namespace, "b")
    api.delete(path).expect(200)
    api.patch(path, [{"op": "remove", "path": "/metadata/finalizers"}], JSON_PATCH).expect(200)
    api.get(path).expect(404)


def test_removing_finalizers_deletes_nothing_that_is_not_going(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    release(api, path)
    api.get(path).expect(200)


def test_the_policy_becomes_a_finalizer(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    body = api.delete(path, propagationPolicy="Foreground").expect(200)
    assert sorted(body["metadata"]["finalizers"]) == [HOLD, "foregroundDeletion"]
    body = api.delete(path, {"propagationPolicy": "Orphan"}).expect(200)
    assert "orphan" in body["metadata"]["finalizers"]
    eventually(lambda: api.patch(path, {"metadata": {"finalizers": None}}).status in (200, 404))
    eventually(lambda: api.get(path).status == 404)


def test_preconditions_hold_for_what_is_going_too(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace)
    old = version(api.get(path).body)
    api.delete(path, {"preconditions": {"resourceVersion": old}}).expect(200)
    assert refusal(api.delete(path, {"preconditions": {"resourceVersion": old}})) == (409, "Conflict")
    release(api, path)


def test_built_in_kinds_have_finalizers_too(api: Api, namespace: str) -> None:
    api.post(at(namespace, "configmaps"), config_map("a", metadata={"finalizers": [HOLD]})).expect(201)
    path = at(namespace, "configmaps", "a")
    body = api.delete(path).expect(200)
    assert body["kind"] == "ConfigMap"
    assert body["metadata"]["deletionTimestamp"]
    assert "generation" not in body["metadata"]
    assert api.patch(path, {"metadata": {"finalizers": [HOLD, "example.com/more"]}}).status == 422
    release(api, path)
    api.get(path).expect(404)


def test_a_namespace_says_that_it_is_going(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    body = api.delete(f"/api/v1/namespaces/{namespace}").expect(200)
    assert body["kind"] == "Namespace"
    assert body["status"]["phase"] == "Terminating"
    assert body["spec"] == {"finalizers": ["kubernetes"]}
    assert body["metadata"]["deletionTimestamp"]
    assert "deletionGracePeriodSeconds" not in body["metadata"]


def test_the_default_namespace_stays(api: Api) -> None:
    answer = api.delete("/api/v1/namespaces/default", dryRun="All")
    assert refusal(answer) == (403, "Forbidden")
    assert answer.body["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'


# Collections


def names(api: Api, path: str) -> list[str]:
    return [item["metadata"]["name"] for item in api.get(path).expect(200)["items"]]


def test_a_collection_is_deleted_by_labels_or_fields(api: Api, widget: Kind, namespace: str) -> None:
    path = widget.path(namespace)
    for i in range(4):
        make(api, widget, namespace, f"x{i}", metadata={"labels": {"odd": str(i % 2)}})
    shown = api.delete(path, labelSelector="odd=0", dryRun="All").expect(200)
    assert shown["kind"] == "WidgetList"
    assert [i["metadata"]["name"] for i in shown["items"]] == ["x0", "x2"]
    assert names(api, path) == ["x0", "x1", "x2", "x3"]
    api.delete(path, fieldSelector="metadata.name=x0").expect(200)
    assert names(api, path) == ["x1", "x2", "x3"]
    api.delete(path, labelSelector="odd=1").expect(200)
    assert names(api, path) == ["x2"]
    assert api.delete(path, labelSelector="odd=7").expect(200)["items"] == []
    api.delete(path).expect(200)
    assert names(api, path) == []


def test_a_collection_leaves_what_is_held(api: Api, widget: Kind, namespace: str) -> None:
    path = held(api, widget, namespace, "held")
    make(api, widget, namespace, "free")
    api.delete(widget.path(namespace)).expect(200)
    assert names(api, widget.path(namespace)) == ["held"]
    assert api.get(path).body["metadata"]["deletionTimestamp"]
    release(api, path)


def test_a_collection_of_config_maps(api: Api, namespace: str) -> None:
    path = at(namespace, "configmaps")
    for i in range(3):
        api.post(path, config_map(f"c{i}", metadata={"labels": {"mine": "yes"}})).expect(201)
    assert api.delete(path, {"dryRun": ["All"]}, labelSelector="mine").expect(200)["kind"] == "ConfigMapList"
    answer = api.delete(path, {"preconditions": {"uid": "other"}}, labelSelector="mine")
    assert refusal(answer) == (409, "Conflict")
    api.delete(path, labelSelector="mine").expect(200)
    assert not [name for name in names(api, path) if name.startswith("c")]


def test_mistakes_delete_nothing(api: Api, widget: Kind, namespace: str) -> None:
    path = widget.path(namespace)
    make(api, widget, namespace, "a")
    assert api.delete(path, labelSelector="==").status == 400
    assert api.delete(path, fieldSelector="spec.x=1").status == 400
    assert api.delete(path, {"propagationPolicy": "Bogus"}).status == 422
    assert names(api, path) == ["a"]


def test_a_collection_can_be_deleted_in_portions(api: Api, widget: Kind, namespace: str, modern: None) -> None:
    for name in "abcde":
        make(api, widget, namespace, name, metadata={"labels": {"keep": "yes"}} if name == "b" else {})
    path = widget.path(namespace)
    first = api.delete(path, limit=2, labelSelector="keep!=yes").expect(200)
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "c"]
    assert names(api, path) == ["b", "d", "e"]
    rest = api.delete(path, limit=2, labelSelector="keep!=yes", **{"continue": first["metadata"]["continue"]}).expect(200)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["d", "e"]
    assert not rest["metadata"].get("continue")
    assert names(api, path) == ["b"]
    assert refusal(api.delete(path, limit="two")) == (400, "BadRequest")
    assert refusal(api.delete(path, **{"continue": "none"})) == (400, "BadRequest")
    assert names(api, path) == ["b"]


def test_a_collection_is_never_deleted_across_namespaces(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a")
    assert api.delete(widget.path()).status in (404, 405)
    answer = api.delete("/api/v1/configmaps")
    assert refusal(answer) == (405, "MethodNotAllowed")
    assert answer.body["message"] == "the server does not allow this method on the requested resource"
    assert names(api, widget.path(namespace)) == ["a"]
