"""Every refusal is a Status that says what, where and why."""

from __future__ import annotations

import pytest

from .conftest import Api, Kind
from .objects import at, config_map, make, refusal


def test_not_found_names_the_resource(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.get(widget.path(namespace, "none"))
    assert answer.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{widget.qualified} "none" not found',
        "reason": "NotFound",
        "details": {"name": "none", "group": widget.group, "kind": "widgets"},
        "code": 404,
    }
    assert answer.headers["Content-Type"].startswith("application/json")


def test_the_core_group_is_not_named(api: Api, namespace: str) -> None:
    answer = api.get(at(namespace, "configmaps", "none"))
    assert answer.body["message"] == 'configmaps "none" not found'
    assert answer.body["details"] == {"name": "none", "kind": "configmaps"}


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/{}/nokind",
        "/api/v1/namespaces/{}/nokind/a",
        "/api/v1/namespaces/{}/configmaps/a/nosub",
        "/apis/apps/v1/namespaces/{}/nokind/a",
    ],
)
def test_what_is_not_served_is_not_found(api: Api, namespace: str, path: str) -> None:
    answer = api.get(path.format(namespace))
    assert refusal(answer) == (404, "NotFound")
    assert answer.body["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["/apis/no.such.group/v1/things", "/apis/apps/v9/deployments", "/nothing"])
def test_groups_and_paths_that_are_not_there(api: Api, path: str) -> None:
    assert api.get(path).status == 404


def test_several_causes_are_listed_in_the_message(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), widget.new("Bad_", metadata={"labels": {"a": "b c"}}, spec={"text": 1}))
    assert refusal(answer) == (422, "Invalid")
    assert [field for _, field in answer.causes] == ["metadata.name", "metadata.labels", "spec.text"]
    assert answer.body["message"].startswith(f'Widget.{widget.group} "Bad_" is invalid: [metadata.name: Invalid value: ')
    for cause in answer.body["details"]["causes"]:
        assert set(cause) == {"reason", "message", "field"}
        assert cause["message"] in answer.body["message"]


def test_details_of_invalid_objects_name_the_kind(api: Api, widget: Kind, namespace: str) -> None:
    details = api.post(widget.path(namespace), widget.new("a", spec={"text": 1})).expect(422)["details"]
    assert (details["name"], details["group"], details["kind"]) == ("a", widget.group, "Widget")
    details = api.post(at(namespace, "configmaps"), config_map("Bad_")).expect(422)["details"]
    assert (details["name"], details["kind"]) == ("Bad_", "ConfigMap")
    assert "group" not in details


def test_bad_requests_have_no_details(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), widget.new("a", metadata={"namespace": "other"}))
    assert refusal(answer) == (400, "BadRequest")
    assert "details" not in answer.body


def test_subresources_take_only_their_own_verbs(api: Api, widget: Kind, namespace: str) -> None:
    made = make(api, widget, namespace, "a")
    path = widget.path(namespace, "a", "status")
    for answer, verb in ((api.post(path, made), "create"), (api.delete(path), "delete")):
        assert refusal(answer) == (405, "MethodNotAllowed")
        assert answer.body["message"] == f'{verb} is not supported on resources of kind "{widget.qualified}"'
        assert answer.body["details"] == {"group": widget.group, "kind": "widgets"}


def test_a_collection_is_not_updated(api: Api, namespace: str) -> None:
    for answer in (
        api.put(at(namespace, "configmaps"), config_map("a")),
        api.patch(at(namespace, "configmaps"), {}),
    ):
        assert refusal(answer) == (405, "MethodNotAllowed")
        assert answer.body["message"] == "the server does not allow this method on the requested resource"


def test_an_object_is_not_posted_to_its_own_path(api: Api, namespace: str) -> None:
    answer = api.post(at(namespace, "configmaps", "a"), config_map("a"))
    assert refusal(answer) == (405, "MethodNotAllowed")
    assert answer.body["message"] == "the server does not allow this method on the requested resource"


def test_conflicts_say_what_to_do(api: Api, widget: Kind, namespace: str) -> None:
    old = make(api, widget, namespace, "a")
    api.patch(widget.path(namespace, "a"), {"metadata": {"labels": {"x": "y"}}}).expect(200)
    answer = api.put(widget.path(namespace, "a"), old)
    assert answer.body["details"] == {"name": "a", "group": widget.group, "kind": "widgets"}
    assert answer.body["message"].endswith("please apply your changes to the latest version and try again")


def test_a_subresource_that_is_not_declared_is_not_found(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a")
    answer = api.get(widget.path(namespace, "a", "bogus"))
    assert refusal(answer) == (404, "NotFound")
    assert answer.body["details"] == {"name": "a", "group": widget.group, "kind": "widgets"}


def test_a_custom_collection_takes_neither_update_nor_patch(api: Api, widget: Kind, namespace: str, modern: None) -> None:
    path = widget.path(namespace)
    for answer in (api.put(path, widget.new("a")), api.patch(path, {})):
        assert refusal(answer) == (400, "BadRequest")
        assert answer.body["message"] == "name must be provided"
