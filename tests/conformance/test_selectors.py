"""Selectors: which objects a list means, by labels and by the few fields that a kind lets be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Api, Kind, Object, make_namespace

LABELS: dict[str, dict[str, str]] = {
    "a": {"app": "web", "tier": "front", "weight": "5"},
    "b": {"app": "web", "tier": "back", "weight": "10"},
    "c": {"app": "db", "tier": "back", "weight": "heavy"},
    "d": {"example.com/app": "web", "app": ""},
    "e": {},
}


@pytest.fixture(scope="module")
def labelled(api: Api) -> Iterator[str]:
    """The path of five config maps, a to e, with the labels above."""
    namespace = make_namespace(api)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name, labels in LABELS.items():
        api.post(path, {"metadata": {"name": name, "labels": {**labels, "ours": "yes"}}}).expect(201)
    yield path
    api.delete(f"/api/v1/namespaces/{namespace}")


def names(body: Object) -> str:
    return "".join(i["metadata"]["name"] for i in body["items"])


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("app=web", "ab"),
        ("app==web", "ab"),
        ("app!=web", "cde"),
        ("app", "abcd"),
        ("!app", "e"),
        ("app=", "d"),
        ("app!=", "abce"),
        ("app in (web)", "ab"),
        ("app in (web,db)", "abc"),
        ("app in (web, db)", "abc"),
        ("app in (,db)", "cd"),
        ("app in ()", "d"),
        ("app notin (web,db)", "de"),
        ("tier notin (front)", "bcde"),
        ("app=web,tier=back", "b"),
        ("app,tier!=back", "ad"),
        ("example.com/app=web", "d"),
        ("weight>5", "b"),
        ("weight<10", "a"),
        ("weight>4,weight<11", "ab"),
        ("app=web,app=db", ""),
        ("", "abcde"),
        (" app = web ", "ab"),
        ("app=web,", None),
    ],
)
def test_a_label_selector_selects(api: Api, labelled: str, selector: str, selected: str | None) -> None:
    answer = api.get(labelled, labelSelector=f"{selector},ours=yes" if selector else "ours=yes")
    if selected is None:
        answer.expect(400)
    else:
        assert names(answer.expect(200)) == selected


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (",", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a=b!", "found '!', expected: ',' or 'end of string'"),
    ],
)
def test_a_label_selector_that_cannot_be_read_is_refused(api: Api, labelled: str, selector: str, message: str) -> None:
    body = api.get(labelled, labelSelector=selector).expect(400)
    assert (body["reason"], body["message"]) == ("BadRequest", message)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("-a", "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric"),
        ("a=-b", "unable to parse requirement: values[0][a]: Invalid value: \"-b\": a valid label must be an empty string"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ],
)
def test_a_label_selector_with_bad_parts_is_refused(api: Api, labelled: str, selector: str, message: str) -> None:
    if api.minor < 30:
        pytest.skip("worded differently by old servers")
    assert api.get(labelled, labelSelector=selector).expect(400)["message"].startswith(message)


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("metadata.name=b", "b"),
        ("metadata.name==b", "b"),
        ("metadata.name!=b", "acde"),
        ("metadata.name=b,metadata.name=c", ""),
        ("metadata.name=nothing", ""),
        ("metadata.namespace=nowhere", ""),
        ("metadata.namespace!=nowhere", "abcde"),
        ("", "abcde"),
    ],
)
def test_objects_are_selected_by_name_and_namespace(api: Api, labelled: str, selector: str, selected: str) -> None:
    assert names(api.get(labelled, fieldSelector=selector, labelSelector="ours=yes").expect(200)) == selected


def test_a_name_is_selected_across_namespaces(api: Api, labelled: str) -> None:
    namespace = labelled.split("/")[4]
    selector = f"metadata.name=a,metadata.namespace={namespace}"
    assert names(api.get("/api/v1/configmaps", fieldSelector=selector).expect(200)) == "a"


def test_a_name_is_told_from_those_that_begin_with_it(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name in ("pod", "pod-1", "pod.a", "pods", "po"):
        api.post(path, {"metadata": {"name": name}}).expect(201)
    for more in ({}, {"limit": "1"}, {"limit": "500"}):
        body = api.get(path, fieldSelector="metadata.name=pod", **more).expect(200)
        assert names(body) == "pod"
        assert not body["metadata"].get("continue")
    first = api.get(path, fieldSelector="metadata.name!=pod", limit="2").expect(200)
    rest = api.get(path, fieldSelector="metadata.name!=pod", limit="9", **{"continue": first["metadata"]["continue"]}).expect(200)
    assert names(first) + names(rest) == "popod-1pod.apods"


def test_both_selectors_must_hold(api: Api, labelled: str) -> None:
    assert names(api.get(labelled, fieldSelector="metadata.name!=a", labelSelector="app=web").expect(200)) == "b"


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a\\x", "invalid field selector: invalid escape sequence: \\x"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("data.x=y", '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        ("metadata.uid=y", '"metadata.uid" is not a known field selector: only "metadata.name", "metadata.namespace"'),
    ],
)
def test_a_field_selector_that_means_nothing_is_refused(api: Api, labelled: str, selector: str, message: str) -> None:
    body = api.get(labelled, fieldSelector=selector).expect(400)
    assert (body["reason"], body["message"]) == ("BadRequest", message)


@pytest.mark.parametrize(
    ("plural", "fields"),
    [
        ("pods", ["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase", "status.podIP", "status.nominatedNodeName"]),
        ("secrets", ["type"]),
        ("events", ["involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "source", "type"]),
        ("replicationcontrollers", ["status.replicas"]),
        ("nodes", ["spec.unschedulable"]),
        ("namespaces", ["status.phase"]),
    ],
)
def test_some_kinds_are_selected_by_fields_of_their_own(api: Api, plural: str, fields: list[str]) -> None:
    if not api.serves("v1", "replicationcontrollers"):
        pytest.skip("an extension server knows no fields of built-in kinds")
    for field in fields:
        api.get(f"/api/v1/{plural}", fieldSelector=f"{field}=x").expect(200)
    body = api.get(f"/api/v1/{plural}", fieldSelector="spec.colour=x").expect(400)
    assert body["message"] == "field label not supported: spec.colour"


def test_secrets_are_selected_by_type(api: Api, namespace: str) -> None:
    if not api.serves("v1", "replicationcontrollers"):
        pytest.skip("an extension server knows no fields of built-in kinds")
    path = f"/api/v1/namespaces/{namespace}/secrets"
    api.post(path, {"metadata": {"name": "plain"}}).expect(201)
    api.post(path, {"metadata": {"name": "odd"}, "type": "example.com/odd"}).expect(201)
    assert names(api.get(path, fieldSelector="type=example.com/odd").expect(200)) == "odd"
    assert names(api.get(path, fieldSelector="type=Opaque").expect(200)) == "plain"


def test_namespaces_are_selected_by_phase(api: Api, namespace: str) -> None:
    if not api.serves("v1", "replicationcontrollers"):
        pytest.skip("an extension server knows no fields of built-in kinds")
    active = api.get("/api/v1/namespaces", fieldSelector="status.phase=Active").expect(200)["items"]
    assert namespace in [n["metadata"]["name"] for n in active]
    body = api.get("/api/v1/namespaces", fieldSelector="metadata.namespace=x").expect(400)
    assert body["message"] == "field label not supported: metadata.namespace"


def test_events_of_the_new_group_are_selected_by_its_own_names(api: Api) -> None:
    if not api.serves("v1", "replicationcontrollers"):
        pytest.skip("an extension server knows no fields of built-in kinds")
    path = "/apis/events.k8s.io/v1/events"
    for field in ("regarding.name", "regarding.kind", "reason", "type", "reportingController"):
        api.get(path, fieldSelector=f"{field}=x").expect(200)
    body = api.get(path, fieldSelector="involvedObject.name=x").expect(400)
    assert body["message"] == "field label not supported: involvedObject.name"


@pytest.fixture(scope="module")
def gadgets(api: Api, definer: Any) -> Kind:
    if api.minor < 32:
        pytest.skip("selectable fields are not known to old servers")
    spec = {"colour": {"type": "string"}, "size": {"type": "integer"}, "on": {"type": "boolean"}}
    kind: Kind = definer(
        {"properties": {"spec": {"type": "object", "properties": spec}}},
        kind="Gadget",
        selectableFields=[{"jsonPath": ".spec.colour"}, {"jsonPath": ".spec.size"}, {"jsonPath": ".spec.on"}],
    )
    return kind


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ("spec.colour=red", "a"),
        ("spec.colour!=red", "bc"),
        ("spec.size=3", "ab"),
        ("spec.size=3,spec.colour=blue", "b"),
        ("spec.on=true", "a"),
        ("spec.on=false", "b"),
        ("spec.colour=", "c"),
        ("metadata.name=c", "c"),
    ],
)
def test_custom_kinds_name_the_fields_they_are_selected_by(
    api: Api, namespace: str, gadgets: Kind, selector: str, selected: str
) -> None:
    path = gadgets.path(namespace)
    api.post(path, gadgets.new("a", spec={"colour": "red", "size": 3, "on": True})).expect(201)
    api.post(path, gadgets.new("b", spec={"colour": "blue", "size": 3, "on": False})).expect(201)
    api.post(path, gadgets.new("c")).expect(201)
    assert names(api.get(path, fieldSelector=selector).expect(200)) == selected


def test_a_watch_follows_a_selectable_field(api: Api, namespace: str, gadgets: Kind) -> None:
    path = gadgets.path(namespace)
    start = api.get(path).expect(200)["metadata"]["resourceVersion"]
    api.post(path, gadgets.new("a", spec={"colour": "red"})).expect(201)
    api.patch(f"{path}/a", {"spec": {"colour": "blue"}}).expect(200)
    events = api.watch(path, resourceVersion=start, fieldSelector="spec.colour=red", timeoutSeconds=1)
    assert [(e["type"], e["object"]["spec"]["colour"]) for e in events] == [("ADDED", "red"), ("DELETED", "red")]


def test_a_custom_kind_is_not_selected_by_other_fields(api: Api, namespace: str, gadgets: Kind) -> None:
    for field in ("spec.other", "metadata.uid"):
        body = api.get(gadgets.path(namespace), fieldSelector=f"{field}=x").expect(400)
        assert body["message"] == f"field label not supported: {field}"


def test_a_collection_is_deleted_by_selector(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "red")):
        api.post(path, {"metadata": {"name": name, "labels": {"colour": colour}}}).expect(201)
    api.delete(path, labelSelector="colour=red").expect(200)
    left = api.get(path, labelSelector="colour").expect(200)
    assert names(left) == "b"
