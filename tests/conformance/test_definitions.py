"""CustomResourceDefinitions: how they are accepted, how they change, how they go."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Answer, Api, Object, eventually

pytestmark = pytest.mark.usefixtures("modern")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def version(name: str = "v1", schema: Object = ANYTHING, **rest: Any) -> Object:
    return {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}, **rest}


class Group:
    """The definitions of one group that nobody else uses."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = f"d{uuid.uuid4().hex[:8]}.conformance.example"

    def crd(self, base: str = "Widget", *versions: Object, scope: str = "Namespaced", **names: Any) -> Object:
        plural = f"{base.lower()}s"
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{self.name}"},
            "spec": {
                "group": self.name,
                "scope": scope,
                "names": {"plural": plural, "kind": base, **names},
                "versions": list(versions) or [version()],
            },
        }

    def path(self, plural: str = "widgets", served: str = "v1", namespace: str = "") -> str:
        return f"/apis/{self.name}/{served}/" + (f"namespaces/{namespace}/{plural}" if namespace else plural)

    def create(self, crd: Object) -> str:
        """Creates a definition, waits until the server has looked at it, and gives its path."""
        self.api.post(CRDS, crd).expect(201)
        where = f"{CRDS}/{crd['metadata']['name']}"
        eventually(lambda: "NamesAccepted" in conditions(self.api, where))
        if conditions(self.api, where)["NamesAccepted"]["status"] == "True":
            plural = crd["spec"]["names"]["plural"]
            first = next(v["name"] for v in crd["spec"]["versions"] if v["served"])
            eventually(lambda: self.api.get(self.path(plural, first)).status == 200)
        return where

    def new(self, name: str, kind: str = "Widget", **rest: Any) -> Object:
        return {"apiVersion": f"{self.name}/v1", "kind": kind, "metadata": {"name": name}, **rest}

    def remove_all(self) -> None:
        for crd in self.api.get(CRDS).expect(200)["items"]:
            if crd["spec"]["group"] == self.name:
                self.api.delete(f"{CRDS}/{crd['metadata']['name']}")


@pytest.fixture
def group(api: Api) -> Iterator[Group]:
    made = Group(api)
    yield made
    made.remove_all()


def conditions(api: Api, where: str) -> dict[str, Object]:
    status = api.get(where).expect(200).get("status") or {}
    return {c["type"]: c for c in status.get("conditions") or ()}


def change(api: Api, where: str, alter: Callable[[Object], object], subresource: str = "") -> Answer:
    """Reads, alters, writes back; again where somebody (the server itself) wrote in between."""

    def once() -> Answer | None:
        obj = api.get(where).expect(200)
        alter(obj)
        answer = api.put(where + subresource, obj)
        return None if answer.status == 409 else answer

    found: Answer = eventually(once)
    return found


# Being accepted


def test_a_definition_is_completed_and_established(api: Api, group: Group) -> None:
    where = group.create(group.crd(shortNames=["wd"], categories=["all"]))
    crd = api.get(where).expect(200)
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "listKind": "WidgetList",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    assert crd["spec"]["names"] == names
    assert crd["status"]["acceptedNames"] == names
    assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert crd["status"]["storedVersions"] == ["v1"]
    assert crd["metadata"]["generation"] == 1
    told = {k: (c["status"], c["reason"], c["message"]) for k, c in conditions(api, where).items()}
    assert told == {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }


@pytest.mark.parametrize(
    ("names", "reason", "message"),
    [
        ({"kind": "Widget"}, "ListKindConflict", '"WidgetList" is already in use'),
        ({"kind": "Widget", "singular": "other", "listKind": "Others"}, "KindConflict", '"Widget" is already in use'),
        ({"listKind": "WidgetList"}, "ListKindConflict", '"WidgetList" is already in use'),
        ({"shortNames": ["wd", "ok"]}, "ShortNamesConflict", '"wd" is already in use'),
        (
            {"shortNames": ["wd", "widgets"]},
            "ShortNamesConflict",
            '["wd" is already in use, "widgets" is already in use]',
        ),
        ({"singular": "widget"}, "SingularConflict", '"widget" is already in use'),
    ],
)
def test_a_name_is_given_once_in_a_group(api: Api, group: Group, names: Object, reason: str, message: str) -> None:
    group.create(group.crd(shortNames=["wd"]))
    other = group.create(group.crd("Other", **names))
    found = eventually(lambda: len(conditions(api, other)) == 2 and conditions(api, other))
    assert (found["NamesAccepted"]["reason"], found["NamesAccepted"]["message"]) == (reason, message)
    assert found["NamesAccepted"]["status"] == "False"
    assert (found["Established"]["status"], found["Established"]["reason"]) == ("False", "NotAccepted")
    assert found["Established"]["message"] == "not all names are accepted"
    assert api.get(group.path("others")).status == 404


def test_a_refused_name_is_given_when_its_holder_goes(api: Api, group: Group) -> None:
    first = group.create(group.crd())
    other = group.create(group.crd("Other", kind="Widget"))
    assert api.get(other).body["status"]["acceptedNames"]["plural"] == "others"
    assert api.get(other).body["status"]["acceptedNames"]["kind"] == ""
    api.delete(first).expect(200)
    eventually(lambda: conditions(api, other)["Established"]["status"] == "True")
    assert api.get(other).body["status"]["acceptedNames"]["kind"] == "Widget"
    eventually(lambda: api.get(group.path("others")).status == 200)


def test_a_name_may_stand_in_two_groups(api: Api, group: Group) -> None:
    group.create(group.crd(shortNames=["wd"]))
    second = Group(api)
    where = second.create(second.crd(shortNames=["wd"]))
    assert conditions(api, where)["Established"]["status"] == "True"
    second.remove_all()


# Changing


@pytest.mark.parametrize(
    ("alter", "field", "text"),
    [
        (lambda c: c["spec"].update(scope="Cluster"), "spec.scope", 'Invalid value: "Cluster": field is immutable'),
        (
            lambda c: c["spec"]["names"].update(kind="Foo"),
            "spec.names.kind",
            'Invalid value: "Foo": field is immutable',
        ),
        (
            lambda c: c["spec"]["names"].update(plural="foos"),
            "spec.names.plural",
            'Invalid value: "foos": field is immutable',
        ),
        (lambda c: c["spec"].update(group="x.y"), "spec.group", 'Invalid value: "x.y": field is immutable'),
        (
            lambda c: c["spec"].update(versions=[version("v2", storage=True)]),
            "status.storedVersions[0]",
            'Invalid value: "v1": missing from spec.versions; v1 was previously a storage version, and must remain in '
            "spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from "
            "status.storedVersions",
        ),
    ],
)
def test_what_never_changes(api: Api, group: Group, alter: Callable[[Object], object], field: str, text: str) -> None:
    where = group.create(group.crd())
    refusal = change(api, where, alter).expect(422)
    assert {"reason": "FieldValueInvalid", "field": field, "message": text} in refusal["details"]["causes"]


def test_exactly_one_version_is_stored(api: Api, group: Group) -> None:
    where = group.create(group.crd())
    for versions in ([version(storage=False)], [version(), version("v2", storage=True)]):
        refusal = change(api, where, lambda c, v=versions: c["spec"].update(versions=v)).expect(422)
        assert "must have exactly one version marked as storage version" in refusal["message"]
    refusal = change(api, where, lambda c: c["spec"].update(versions=[version(), version()])).expect(422)
    assert "must contain unique version names" in refusal["message"]


def test_a_changed_schema_counts_a_generation_and_a_changed_label_does_not(api: Api, group: Group) -> None:
    where = group.create(group.crd())
    assert api.patch(where, {"metadata": {"labels": {"a": "b"}}}).expect(200)["metadata"]["generation"] == 1
    changed = change(api, where, lambda c: c["spec"]["names"].update(shortNames=["wx"])).expect(200)
    assert changed["metadata"]["generation"] == 2
    eventually(lambda: api.get(where).body["status"]["acceptedNames"].get("shortNames") == ["wx"])


def test_a_new_version_is_served_and_an_unserved_one_is_not(api: Api, group: Group) -> None:
    where = group.create(group.crd())
    change(api, where, lambda c: c["spec"]["versions"].append(version("v2"))).expect(200)
    eventually(lambda: api.get(group.path(served="v2")).status == 200)
    change(api, where, lambda c: c["spec"]["versions"][1].update(served=False)).expect(200)
    eventually(lambda: api.get(group.path(served="v2")).status == 404)
    eventually(lambda: api.get(group.path()).status == 200)


def test_the_status_is_written_through_its_subresource_alone(api: Api, group: Group) -> None:
    where = group.create(group.crd())
    mine = {"type": "Mine", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": None}
    change(api, where, lambda c: c["status"]["conditions"].append(mine)).expect(200)
    assert "Mine" not in conditions(api, where)
    change(api, where, lambda c: c["status"]["conditions"].append(mine), "/status").expect(200)
    assert "Mine" in conditions(api, where)
    assert api.get(where + "/status").expect(200)["kind"] == "CustomResourceDefinition"
    renamed = change(api, where, lambda c: c["spec"]["names"].update(shortNames=["no"]), "/status").expect(200)
    assert "shortNames" not in renamed["spec"]["names"]
    labelled = change(api, where, lambda c: c["metadata"].update(labels={"a": "b"}), "/status").expect(200)
    assert "labels" not in labelled["metadata"]
    emptied = change(api, where, lambda c: c["status"].update(storedVersions=[]), "/status").expect(200)
    assert emptied["status"]["storedVersions"] == ["v1"]


# Going


def test_deleting_a_definition_marks_it_and_then_it_is_gone(api: Api, group: Group) -> None:
    where = group.create(group.crd())
    marked = api.delete(where).expect(200)
    assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert "deletionTimestamp" in marked["metadata"]
    assert "deletionGracePeriodSeconds" not in marked["metadata"]
    assert marked["metadata"]["generation"] == 1
    terminating = next(c for c in marked["status"]["conditions"] if c["type"] == "Terminating")
    assert (terminating["status"], terminating["reason"]) == ("True", "InstanceDeletionPending")
    assert terminating["message"] == (
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    )
    eventually(lambda: api.get(where).status == 404)
    eventually(lambda: api.get(group.path()).status == 404)
    eventually(lambda: api.get(f"/apis/{group.name}").status == 404)


def test_objects_go_with_their_definition_and_do_not_come_back(api: Api, group: Group, namespace: str) -> None:
    crd = group.crd()
    where = group.create(crd)
    path = group.path(namespace=namespace)
    api.post(path, group.new("a")).expect(201)
    api.delete(where).expect(200)
    eventually(lambda: api.get(where).status == 404)
    group.create(crd)
    assert api.get(path).expect(200)["items"] == []


def test_a_finalizer_of_an_object_holds_the_definition(api: Api, group: Group, namespace: str) -> None:
    where = group.create(group.crd())
    path = group.path(namespace=namespace)
    held = group.new("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(path, held).expect(201)
    api.post(path, group.new("free")).expect(201)
    api.delete(where).expect(200)
    eventually(lambda: api.get(f"{path}/held").body["metadata"].get("deletionTimestamp"))
    eventually(lambda: api.get(f"{path}/free").status == 404)
    assert api.get(where).status == 200
    late = api.post(path, group.new("late")).expect(403)
    assert late["message"] == (
        f'widgets.{group.name} "late" is forbidden: create not allowed while custom resource definition is terminating'
    )
    api.patch(f"{path}/held", {"metadata": {"finalizers": None}}).expect(200)
    eventually(lambda: api.get(where).status == 404)


def test_a_watch_ends_when_the_kind_goes(api: Api, group: Group, namespace: str) -> None:
    where = group.create(group.crd())
    path = group.path(namespace=namespace)
    api.post(path, group.new("a")).expect(201)
    watch = api.watch(path, timeout=20, resourceVersion="0")
    assert next(watch)["type"] == "ADDED"
    api.delete(where).expect(200)
    assert "DELETED" in [event["type"] for event in watch]


def test_a_name_can_return_with_another_scope(api: Api, group: Group, namespace: str) -> None:
    where = group.create(group.crd())
    api.delete(where).expect(200)
    eventually(lambda: api.get(where).status == 404)
    eventually(lambda: api.get(group.path()).status == 404)
    group.create(group.crd(scope="Cluster"))
    eventually(lambda: api.post(group.path(), group.new("a")).status in (201, 409))
    assert "namespace" not in api.get(group.path() + "/a").expect(200)["metadata"]
    assert api.get(group.path(namespace=namespace)).status == 404


# Being refused


def altered(alter: Callable[[Object], object]) -> Callable[[Object], Object]:
    def make(crd: Object) -> Object:
        made = copy.deepcopy(crd)
        alter(made)
        return made

    return make


def schema(found: Object) -> Callable[[Object], Object]:
    return altered(lambda c: c["spec"]["versions"][0]["schema"].update(openAPIV3Schema=found))


def part(field: Object) -> Callable[[Object], Object]:
    """A schema with one field `a`."""
    return schema({"type": "object", "properties": {"a": field}})


def ruled(**version_fields: Any) -> Callable[[Object], Object]:
    return altered(lambda c: c["spec"]["versions"][0].update(**version_fields))


A = "spec.validation.openAPIV3Schema.properties[a]"
DNS1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and "
    "end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)

REFUSED: list[tuple[Callable[[Object], Object], str, str]] = [
    (
        altered(lambda c: c["metadata"].update(name="foo")),
        "metadata.name",
        'Invalid value: "foo": must be spec.names.plural+"."+spec.group',
    ),
    (altered(lambda c: c["spec"].update(group="")), "spec.group", "Required value"),
    (
        altered(lambda c: c["spec"].update(scope="Foo")),
        "spec.scope",
        'Unsupported value: "Foo": supported values: "Cluster", "Namespaced"',
    ),
    (altered(lambda c: c["spec"].pop("scope")), "spec.scope", "Required value"),
    (
        altered(lambda c: c["spec"]["names"].update(kind="foo_Bar")),
        "spec.names.singular",
        'Invalid value: "foo_bar": ' + DNS1035,
    ),
    (
        altered(lambda c: c["spec"]["names"].update(shortNames=["A b"])),
        "spec.names.shortNames[0]",
        'Invalid value: "A b": ' + DNS1035,
    ),
    (
        altered(lambda c: c["spec"]["names"].update(categories=["A b"])),
        "spec.names.categories[0]",
        'Invalid value: "A b": ' + DNS1035,
    ),
    (
        altered(lambda c: c["spec"]["names"].update(listKind="Widget")),
        "spec.names.listKind",
        'Invalid value: "Widget": kind and listKind may not be the same',
    ),
    (
        altered(lambda c: c["spec"].update(conversion={"strategy": "Foo"})),
        "spec.conversion.strategy",
        'Unsupported value: "Foo": supported values: "None", "Webhook"',
    ),
    (
        altered(lambda c: c["spec"].update(preserveUnknownFields=True)),
        "spec.preserveUnknownFields",
        "Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
    ),
    (
        altered(lambda c: c["spec"]["versions"][0].pop("schema")),
        "spec.versions[0].schema.openAPIV3Schema",
        "Required value",
    ),
    (
        schema({"properties": {"a": {"type": "string"}}}),
        "spec.validation.openAPIV3Schema.type",
        "Required value: must not be empty at the root",
    ),
    (
        schema({"type": "string"}),
        "spec.validation.openAPIV3Schema.type",
        'Invalid value: "string": must be object at the root',
    ),
    (
        schema({"type": "object", "nullable": True}),
        "spec.validation.openAPIV3Schema.nullable",
        "Forbidden: nullable cannot be true at the root",
    ),
    (
        schema(
            {
                "type": "object",
                "properties": {"metadata": {"type": "object", "properties": {"annotations": {"type": "object"}}}},
            }
        ),
        "spec.validation.openAPIV3Schema.properties[metadata]",
        "Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
    ),
    (
        schema({"type": "object", "properties": {"apiVersion": {"type": "integer"}}}),
        "spec.validation.openAPIV3Schema.properties[apiVersion].type",
        'Invalid value: "integer": must be string',
    ),
    (part({}), A + ".type", "Required value: must not be empty for specified object fields"),
    (
        part({"type": "foo"}),
        A + ".type",
        'Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", "object", "string"',
    ),
    (part({"type": "array"}), A + ".items", "Required value: must be specified"),
    (
        part({"type": "array", "items": [{"type": "string"}]}),
        A + ".items",
        "Forbidden: items must be a schema object and not an array",
    ),
    (
        part({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        A + ".additionalProperties",
        "Forbidden: additionalProperties and properties are mutual exclusive",
    ),
    (
        part({"type": "string", "default": 1}),
        A + ".default",
        'Invalid value: "integer":  in body must be of type string: "integer"',
    ),
    (
        part({"type": "string", "enum": ["x"], "default": "y"}),
        A + ".default",
        'Unsupported value: "y": supported values: "x"',
    ),
    (
        part({"type": "object", "properties": {"b": {"type": "string"}}, "default": {"c": 1}}),
        A + ".default",
        'Invalid value: {"c":1}: must not have unknown fields',
    ),
    (
        part({"type": "string", "pattern": "("}),
        A + ".pattern",
        'Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing regexp: missing closing ): `(`',
    ),
    (part({"$ref": "#/definitions/x"}), A + ".$ref", "Forbidden: $ref is not supported"),
    (
        part({"type": "string", "anyOf": [{"type": "string"}]}),
        A + ".anyOf[0].type",
        "Forbidden: must be empty to be structural",
    ),
    (
        part({"type": "string", "allOf": [{"default": "x"}]}),
        A + ".allOf[0].default",
        "Forbidden: must be undefined to be structural",
    ),
    (
        part({"type": "string", "not": {"description": "x", "nullable": True}}),
        A + ".not.description",
        "Forbidden: must be empty to be structural",
    ),
    (
        part({"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
        A + ".uniqueItems",
        "Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
    ),
    (
        part({"type": "object", "x-kubernetes-preserve-unknown-fields": False}),
        A + ".x-kubernetes-preserve-unknown-fields",
        "Invalid value: false: must be true or undefined",
    ),
    (
        part({"type": "object", "x-kubernetes-embedded-resource": True}),
        A + ".properties",
        "Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
    ),
    (
        part({"type": "string", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}),
        A + ".type",
        'Invalid value: "string": must be object if x-kubernetes-embedded-resource is true',
    ),
    (
        part({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
        A + ".x-kubernetes-list-map-keys",
        "Required value: must not be empty if x-kubernetes-list-type is map",
    ),
    (
        part(
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["z"],
                "items": {"type": "object", "properties": {"b": {"type": "string"}}},
            }
        ),
        A + ".x-kubernetes-list-map-keys",
        'Invalid value: ["z"]: entries must all be names of item properties',
    ),
    (
        part(
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["b"],
                "items": {"type": "object", "properties": {"b": {"type": "string"}}},
            }
        ),
        A + ".items.properties[b].default",
        "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
    ),
    (
        part({"type": "array", "x-kubernetes-list-type": "foo", "items": {"type": "string"}}),
        A + ".x-kubernetes-list-type",
        'Unsupported value: "foo": supported values: "atomic", "set", "map"',
    ),
    (
        part({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
        A + ".items.x-kubernetes-map-type",
        "Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
    ),
    (
        part({"type": "string", "x-kubernetes-list-type": "set"}),
        A + ".type",
        'Invalid value: "string": must be array if x-kubernetes-list-type is specified',
    ),
    (
        part({"type": "object", "x-kubernetes-map-type": "foo"}),
        A + ".x-kubernetes-map-type",
        'Unsupported value: "foo": supported values: "atomic", "granular"',
    ),
    (
        part({"type": "string", "x-kubernetes-map-type": "atomic"}),
        A + ".type",
        'Invalid value: "string": must be object if x-kubernetes-map-type is specified',
    ),
    (part({"type": "string", "id": "x"}), A + ".id", "Forbidden: id is not supported"),
    (
        part({"type": "object", "patternProperties": {"x": {"type": "string"}}}),
        A + ".patternProperties",
        "Forbidden: patternProperties is not supported",
    ),
    (
        part({"type": "object", "dependencies": {"x": ["y"]}}),
        A + ".dependencies",
        "Forbidden: dependencies is not supported",
    ),
    (
        ruled(additionalPrinterColumns=[{"name": "A", "type": "string"}]),
        "spec.additionalPrinterColumns[0].JSONPath",
        "Required value",
    ),
    (
        ruled(additionalPrinterColumns=[{"jsonPath": ".a", "type": "string"}]),
        "spec.additionalPrinterColumns[0].name",
        "Required value",
    ),
    (
        ruled(additionalPrinterColumns=[{"jsonPath": ".a", "name": "A"}]),
        "spec.additionalPrinterColumns[0].type",
        "Required value: must be one of boolean,date,integer,number,string",
    ),
    (
        ruled(additionalPrinterColumns=[{"jsonPath": ".a", "name": "A", "type": "foo"}]),
        "spec.additionalPrinterColumns[0].type",
        'Invalid value: "foo": must be one of boolean,date,integer,number,string',
    ),
    (
        ruled(additionalPrinterColumns=[{"jsonPath": ".a", "name": "A", "type": "integer", "format": "foo"}]),
        "spec.additionalPrinterColumns[0].format",
        'Invalid value: "foo": must be one of byte,date,date-time,double,float,int32,int64,password',
    ),
    (
        ruled(additionalPrinterColumns=[{"jsonPath": "a", "name": "A", "type": "integer"}]),
        "spec.additionalPrinterColumns[0].JSONPath",
        'Invalid value: "a": must be a simple json path starting with .',
    ),
    (
        ruled(subresources={"scale": {"specReplicasPath": ".foo", "statusReplicasPath": ".status.x"}}),
        "spec.subresources.scale.specReplicasPath",
        'Invalid value: ".foo": should be a json path under .spec',
    ),
    (
        ruled(subresources={"scale": {"specReplicasPath": ".spec.x", "statusReplicasPath": ".bar"}}),
        "spec.subresources.scale.statusReplicasPath",
        'Invalid value: ".bar": should be a json path under .status',
    ),
    (
        ruled(subresources={"scale": {"specReplicasPath": ".spec.x", "statusReplicasPath": ".status[0]"}}),
        "spec.subresources.scale.statusReplicasPath",
        'Invalid value: ".status[0]": should be a json path under .status',
    ),
    (
        ruled(deprecationWarning="foo"),
        "spec.versions[0].deprecationWarning",
        'Invalid value: "foo": can only be set for deprecated versions',
    ),
    (
        ruled(deprecated=True, deprecationWarning="foo\nbar"),
        "spec.versions[0].deprecationWarning",
        'Invalid value: "foo\\nbar": must only contain printable UTF-8 characters; non-printable character found at index 3',
    ),
    (
        ruled(deprecated=True, deprecationWarning=""),
        "spec.versions[0].deprecationWarning",
        'Invalid value: "": must not be an empty string',
    ),
    (
        ruled(selectableFields=[{"jsonPath": ".metadata.name"}]),
        "spec.selectableFields[0].jsonPath",
        'Invalid value: ".metadata.name": is an invalid path: does not refer to a valid field',
    ),
    (
        ruled(selectableFields=[{"jsonPath": "spec.a"}]),
        "spec.selectableFields[0].jsonPath",
        'Invalid value: "spec.a": is an invalid path: expected [ or . but got: spec',
    ),
]


@pytest.mark.parametrize(("make", "field", "message"), REFUSED)
def test_a_definition_is_refused_with_the_field_and_the_reason(
    api: Api, group: Group, make: Callable[[Object], Object], field: str, message: str
) -> None:
    refusal = api.post(CRDS, make(group.crd()), dryRun="All").expect(422)
    assert (field, message) in [(c["field"], c["message"]) for c in refusal["details"]["causes"]]
    assert refusal["details"]["kind"] == "CustomResourceDefinition"
    assert refusal["message"].startswith("CustomResourceDefinition.apiextensions.k8s.io ")


def test_a_group_of_the_community_needs_an_approval(api: Api, group: Group) -> None:
    crd = group.crd()
    crd["spec"]["group"] = "conformance.k8s.io"
    crd["metadata"]["name"] = "widgets.conformance.k8s.io"
    refusal = api.post(CRDS, crd, dryRun="All").expect(422)
    assert refusal["details"]["causes"][0]["field"] == "metadata.annotations[api-approved.kubernetes.io]"
    crd["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, just a test"}
    api.post(CRDS, crd, dryRun="All").expect(201)


def test_an_unknown_format_is_warned_about(api: Api, group: Group) -> None:
    answer = api.post(CRDS, part({"type": "string", "format": "foo"})(group.crd()), dryRun="All")
    assert answer.warnings == ['unrecognized format "foo"']


def test_unknown_fields_of_a_definition_are_warned_about_or_refused(api: Api, group: Group) -> None:
    crd = group.crd()
    crd["spec"]["foo"] = 1
    assert api.post(CRDS, crd, dryRun="All").warnings == ['unknown field "spec.foo"']
    refusal = api.post(CRDS, crd, dryRun="All", fieldValidation="Strict").expect(400)
    assert 'strict decoding error: unknown field "spec.foo"' in refusal["message"]


def test_a_dry_run_defines_nothing(api: Api, group: Group) -> None:
    crd = group.crd()
    api.post(CRDS, crd, dryRun="All").expect(201)
    assert api.get(f"{CRDS}/{crd['metadata']['name']}").status == 404
    assert api.get(group.path()).status == 404
