"""A header names the change set of a write to a kind that a loop keeps; the body needs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.conftest import Api, Kind, define, eventually, undefine

from homeostat.model.protocol import APPLY_PATCH, CHANGE_SET, CHANGE_SET_HEADER, DELETION_CHANGE_SET

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
}
STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def push(name: str) -> dict[str, str]:
    return {CHANGE_SET_HEADER: name}


def named(obj: dict[str, Any], annotation: str = CHANGE_SET) -> str:
    return str((obj["metadata"].get("annotations") or {}).get(annotation, ""))


@pytest.fixture(scope="module")
def lamp(api: Api) -> Iterator[Kind]:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "status": STATUS}}
    kind = define(api, schema, subresources={"status": {}})
    definition = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind.qualified}"
    api.patch(definition, {"spec": {"names": {"categories": ["homeostat"]}}}).expect(200)

    def kept() -> bool:
        listed = api.get(f"/apis/{kind.api_version}").expect(200)["resources"]
        return "homeostat" in listed[0].get("categories", ())

    eventually(kept, "the category")
    yield kind
    undefine(kind)


@pytest.fixture
def other(api: Api) -> Iterator[Kind]:
    kind = define(api, SCHEMA)
    yield kind
    undefine(kind)


@pytest.fixture
def path(api: Api, lamp: Kind, namespace: str) -> str:
    """Of a lamp that came with the change set `first`."""
    body = lamp.new("hall", spec={"colour": "red"})
    made = api.post(lamp.path(namespace), body, headers=push("first")).expect(201)
    assert named(made) == "first"
    return lamp.path(namespace, "hall")


def test_every_write_of_what_is_declared_takes_the_name(api: Api, path: str) -> None:
    live = api.get(path).expect(200)
    live = api.put(path, {**live, "spec": {"colour": "blue"}}, headers=push("second")).expect(200)
    assert named(live) == "second"
    live = api.patch(path, {"spec": {"colour": "green"}}, headers=push("third")).expect(200)
    assert named(live) == "third"


def test_a_write_that_declares_nothing_new_changes_nothing(api: Api, path: str) -> None:
    live = api.get(path).expect(200)
    again = api.put(path, live, headers=push("second")).expect(200)
    assert again["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
    labelled = api.patch(path, {"metadata": {"labels": {"a": "b"}}}, headers=push("second")).expect(200)
    assert named(labelled) == "first"
    told = api.patch(f"{path}/status", {"status": {"lit": True}}, headers=push("second")).expect(200)
    assert named(told) == "first"


def applied(api: Api, path: str, lamp: Kind, colour: str, manager: str, headers: dict[str, str]) -> dict[str, Any]:
    body = lamp.new("hall", spec={"colour": colour})
    more = {"Content-Type": APPLY_PATCH, **headers}
    found: dict[str, Any] = api.request("PATCH", path, body, headers=more, fieldManager=manager, force="true").expect(
        200
    )
    return found


def test_apply_takes_the_name_and_keeps_it_while_nothing_changes(api: Api, path: str, lamp: Kind) -> None:
    live = applied(api, path, lamp, "blue", "ci", push("second"))
    assert named(live) == "second"
    again = applied(api, path, lamp, "blue", "ci", push("third"))
    assert named(again) == "second"
    assert again["metadata"]["resourceVersion"] == live["metadata"]["resourceVersion"]
    assert named(applied(api, path, lamp, "green", "ci", push("third"))) == "third"
    assert named(applied(api, path, lamp, "green", "ci", {})) == "", "it is no longer declared by who declared it"


def test_the_name_is_no_conflict_between_two_who_apply(api: Api, path: str, lamp: Kind) -> None:
    applied(api, path, lamp, "blue", "ci", push("second"))
    body = lamp.new("hall", spec={"watts": 10})
    headers = {"Content-Type": APPLY_PATCH, **push("third")}
    live = api.request("PATCH", path, body, headers=headers, fieldManager="ana").expect(200)
    assert named(live) == "third"
    owners = [e["manager"] for e in live["metadata"]["managedFields"] if f"f:{CHANGE_SET}" in str(e)]
    assert owners == ["ana"]
    assert live["spec"] == {"colour": "blue", "watts": 10}


def test_what_a_body_names_counts_more(api: Api, path: str) -> None:
    change = {"metadata": {"annotations": {CHANGE_SET: "mine"}}, "spec": {"colour": "blue"}}
    assert named(api.patch(path, change, headers=push("second")).expect(200)) == "mine"


def test_a_deletion_that_waits_for_its_cleanup_has_a_name_of_its_own(api: Api, path: str) -> None:
    api.patch(path, {"metadata": {"finalizers": ["example.com/wait"]}}).expect(200)
    api.delete(path, headers=push("sweep")).expect(200)
    live = api.get(path).expect(200)
    assert (named(live), named(live, DELETION_CHANGE_SET)) == ("first", "sweep")
    api.patch(path, {"metadata": {"finalizers": None}}).expect(200)


@pytest.mark.parametrize("name", ["x" * 254, "caf\u00e9"])
def test_what_can_be_no_name_is_refused(api: Api, path: str, name: str) -> None:
    answer = api.patch(path, {"spec": {"colour": "blue"}}, headers=push(name))
    assert answer.expect(400)["message"].startswith(f"the header {CHANGE_SET_HEADER} names no change set")
    assert api.get(path).expect(200)["spec"] == {"colour": "red"}


def test_kinds_that_no_loop_keeps_are_left_as_they_are(api: Api, other: Kind, namespace: str) -> None:
    made = api.post(other.path(namespace), other.new("hall", spec={}), headers=push("first")).expect(201)
    assert named(made) == ""
