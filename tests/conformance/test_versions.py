"""A kind in several versions that differ in nothing but their names and schemas (conversion `None`)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import Answer, Api, Object, eventually

pytestmark = pytest.mark.usefixtures("modern")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT: Object = {"type": "string"}


def fields(**properties: Object) -> Object:
    return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}


class Versions:
    """One kind; `v1` is stored at first."""

    def __init__(self, api: Api, **schemas: Object) -> None:
        self.api = api
        self.group = f"v{uuid.uuid4().hex[:8]}.conformance.example"
        self.where = f"{CRDS}/widgets.{self.group}"
        versions = [
            {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}}
            for name, schema in schemas.items()
        ]
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"widgets.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": "Cluster",
                "names": {"plural": "widgets", "kind": "Widget"},
                "versions": versions,
            },
        }
        api.post(CRDS, crd).expect(201)
        for name in schemas:
            eventually(lambda n=name: api.get(self.path(n)).status == 200)

    def path(self, version: str, name: str = "") -> str:
        return f"/apis/{self.group}/{version}/widgets" + (f"/{name}" if name else "")

    def create(self, version: str, name: str, **spec: Any) -> Object:
        body = {"apiVersion": f"{self.group}/{version}", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
        made: Object = self.api.post(self.path(version), body, fieldManager="creator").expect(201)
        return made

    def get(self, version: str, name: str) -> Object:
        found: Object = eventually(lambda: self._settled(self.path(version, name)))
        return found

    def _settled(self, path: str) -> Object | None:
        """The answer, once the server is done with setting up its storage anew after a change of the definition."""
        answer = self.api.get(path)
        return None if answer.status == 429 else answer.expect(200)

    def change(self, alter: Callable[[Object], object]) -> Answer:
        def once() -> Answer | None:
            crd = self.api.get(self.where).expect(200)
            alter(crd)
            answer = self.api.put(self.where, crd)
            return None if answer.status == 409 else answer

        found: Answer = eventually(once)
        return found

    def store(self, version: str) -> None:
        """Makes another version the stored one."""

        def alter(crd: Object) -> None:
            for entry in crd["spec"]["versions"]:
                entry["storage"] = entry["name"] == version

        assert version in self.change(alter).expect(200)["status"]["storedVersions"]


@pytest.fixture
def versions(api: Api) -> Iterator[Callable[..., Versions]]:
    made: list[Versions] = []

    def make(**schemas: Object) -> Versions:
        made.append(Versions(api, **schemas))
        return made[-1]

    yield make
    for one in made:
        api.delete(one.where)


def test_an_object_is_the_same_in_every_version(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT), v2=fields(a=TEXT))
    made = kind.create("v1", "x", a="1")
    for version in ("v1", "v2"):
        api_version = f"{kind.group}/{version}"
        found = kind.get(version, "x")
        assert found["apiVersion"] == api_version
        assert found["spec"] == {"a": "1"}
        assert found["metadata"]["uid"] == made["metadata"]["uid"]
        assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        listed = api.get(kind.path(version)).expect(200)
        assert (listed["apiVersion"], listed["items"][0]["apiVersion"]) == (api_version, api_version)
        event = next(api.watch(kind.path(version)))
        assert (event["type"], event["object"]["apiVersion"]) == ("ADDED", api_version)


def test_a_watch_of_one_version_sees_writes_of_the_other(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT), v2=fields(a=TEXT))
    made = kind.create("v1", "x", a="1")
    watch = api.watch(kind.path("v1"), resourceVersion=made["metadata"]["resourceVersion"])
    api.patch(kind.path("v2", "x"), {"spec": {"a": "2"}}).expect(200)
    event = next(watch)
    assert (event["type"], event["object"]["apiVersion"]) == ("MODIFIED", f"{kind.group}/v1")
    assert event["object"]["spec"] == {"a": "2"}


def test_managed_fields_name_the_version_they_were_written_in(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT, b=TEXT), v2=fields(a=TEXT, b=TEXT))
    kind.create("v1", "x", a="1")
    changed = api.patch(kind.path("v2", "x"), {"spec": {"b": "2"}}, fieldManager="changer").expect(200)
    owners = {(e["manager"], e["apiVersion"]): e["fieldsV1"]["f:spec"] for e in changed["metadata"]["managedFields"]}
    assert owners == {
        ("creator", f"{kind.group}/v1"): {".": {}, "f:a": {}},
        ("changer", f"{kind.group}/v2"): {"f:b": {}},
    }


def test_applying_in_another_version_goes_on_with_the_same_fields(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT, b=TEXT), v2=fields(a=TEXT, b=TEXT))

    def apply(version: str, **spec: str) -> Object:
        body = {"apiVersion": f"{kind.group}/{version}", "kind": "Widget", "metadata": {"name": "x"}, "spec": spec}
        answer = api.apply(kind.path(version, "x"), body, manager="applier")
        assert answer.status in (200, 201), answer.body
        found: Object = answer.body
        return found

    apply("v1", a="1", b="1")
    applied = apply("v2", a="2")
    assert applied["spec"] == {"a": "2"}
    [entry] = applied["metadata"]["managedFields"]
    assert entry["apiVersion"] == f"{kind.group}/v2"


def test_a_version_shows_and_stores_no_more_than_it_knows(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT, old=TEXT), v2=fields(a=TEXT, new=TEXT))
    kind.create("v1", "x", a="1", old="o")
    assert kind.get("v2", "x")["spec"] == {"a": "1"}
    assert kind.create("v2", "y", a="1", new="n")["spec"] == {"a": "1"}
    changed = api.patch(kind.path("v2", "x"), {"spec": {"a": "2"}}).expect(200)
    assert changed["spec"] == {"a": "2"}
    assert kind.get("v1", "x")["spec"] == {"a": "2"}


def test_defaults_of_the_stored_version_count(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a={**TEXT, "default": "one"}), v2=fields(a=TEXT, b={**TEXT, "default": "two"}))
    kind.create("v1", "x")
    assert kind.get("v2", "x")["spec"] == {"a": "one"}
    assert kind.create("v2", "y")["spec"] == {"a": "one"}


def test_each_version_has_its_own_rules(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT), v2=fields(a={**TEXT, "maxLength": 2}))
    kind.create("v1", "x", a="long")
    assert kind.get("v2", "x")["spec"] == {"a": "long"}
    body = {"apiVersion": f"{kind.group}/v2", "kind": "Widget", "metadata": {"name": "y"}, "spec": {"a": "long"}}
    refusal = api.post(kind.path("v2"), body).expect(422)
    assert refusal["details"]["causes"][0]["field"] == "spec.a"


def test_an_object_of_one_version_is_not_taken_for_another(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(), v2=fields())
    body = {"apiVersion": f"{kind.group}/v1", "kind": "Widget", "metadata": {"name": "x"}}
    refusal = api.post(kind.path("v2"), body).expect(400)
    assert refusal["message"] == (
        f"the API version in the data ({kind.group}/v1) does not match the expected API version ({kind.group}/v2)"
    )


def test_the_stored_version_can_be_moved_and_the_old_one_dropped(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT), v2=fields(a=TEXT))
    kind.create("v1", "x", a="1")
    kind.store("v2")
    assert api.get(kind.where).body["status"]["storedVersions"] == ["v1", "v2"]
    assert kind.get("v1", "x")["spec"] == kind.get("v2", "x")["spec"] == {"a": "1"}
    refusal = kind.change(lambda c: c["spec"].update(versions=c["spec"]["versions"][1:])).expect(422)
    assert [c["field"] for c in refusal["details"]["causes"]] == ["status.storedVersions[0]"]
    eventually(lambda: api.patch(kind.path("v2", "x"), {"metadata": {"labels": {"moved": "yes"}}}).status == 200)
    moved = api.patch(f"{kind.where}/status", {"status": {"storedVersions": ["v2"]}}).expect(200)
    assert moved["status"]["storedVersions"] == ["v2"]
    kind.change(lambda c: c["spec"].update(versions=c["spec"]["versions"][1:])).expect(200)
    eventually(lambda: api.get(kind.path("v1", "x")).status == 404)
    assert kind.get("v2", "x")["spec"] == {"a": "1"}


def test_a_deprecated_version_warns_whoever_uses_it(api: Api, versions: Any) -> None:
    kind = versions(v1=fields(a=TEXT), v2=fields(a=TEXT))
    kind.create("v1", "x")

    def deprecate(crd: Object) -> None:
        crd["spec"]["versions"][0].update(deprecated=True)
        crd["spec"]["versions"][1].update(deprecated=True, deprecationWarning="go away")

    kind.change(deprecate).expect(200)
    own = f"{kind.group}/v1 Widget is deprecated"
    eventually(lambda: api.get(kind.path("v1", "x")).warnings == [own])
    for answer in (
        api.get(kind.path("v2", "x")),
        api.get(kind.path("v2")),
        api.get(kind.path("v2", "missing")),
        api.patch(kind.path("v2", "x"), {"spec": {"a": "1"}}),
        api.post(kind.path("v2"), {"apiVersion": "wrong", "kind": "Widget", "metadata": {"name": "y"}}),
    ):
        assert answer.warnings == ["go away"], answer.body


# Scale


@pytest.fixture(scope="module")
def scalable(definer: Any) -> Any:
    whole = {"type": "integer"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"replicas": {**whole, "maximum": 9}}},
            "status": {"type": "object", "properties": {"replicas": whole, "selector": TEXT}},
        },
    }
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return definer(schema, subresources={"status": {}, "scale": scale})


def test_the_scale_of_an_object_is_read_and_written(api: Api, scalable: Any, namespace: str) -> None:
    path = scalable.path(namespace, "x")
    made = api.post(scalable.path(namespace), scalable.new("x", spec={"replicas": 2})).expect(201)
    api.patch(f"{path}/status", {"status": {"replicas": 1, "selector": "a=b"}}).expect(200)
    scale = api.get(f"{path}/scale").expect(200)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 1, "selector": "a=b"}
    assert scale["metadata"]["uid"] == made["metadata"]["uid"]
    assert api.patch(f"{path}/scale", {"spec": {"replicas": 5}}).expect(200)["spec"] == {"replicas": 5}
    assert api.get(path).expect(200)["spec"] == {"replicas": 5}
    assert api.get(path).body["metadata"]["generation"] == 2
    current = api.get(f"{path}/scale").expect(200)
    current["spec"]["replicas"] = 6
    api.put(f"{path}/scale", current).expect(200)
    assert api.put(f"{path}/scale", current).expect(409)["reason"] == "Conflict"
    current["metadata"] = {}
    refusal = api.put(f"{path}/scale", current).expect(400)
    assert refusal["message"] == "the name of the object (x based on URL) was undeterminable: name must be provided"


def test_a_scale_obeys_the_schema_of_the_object(api: Api, scalable: Any, namespace: str) -> None:
    path = scalable.path(namespace, "x")
    api.post(scalable.path(namespace), scalable.new("x", spec={"replicas": 2})).expect(201)
    refusal = api.patch(f"{path}/scale", {"spec": {"replicas": 50}}).expect(422)
    assert refusal["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "field": "spec.replicas",
            "message": "Invalid value: 50: spec.replicas in body should be less than or equal to 9",
        }
    ]
    refusal = api.patch(f"{path}/scale", {"spec": {"replicas": -1}}).expect(422)
    assert refusal["details"]["causes"][0]["message"] == "Invalid value: -1: should be a non-negative integer"
    refusal = api.patch(path, {"spec": {"replicas": -1}}).expect(422)
    assert refusal["details"]["causes"][0]["field"] == ".spec.replicas"


def test_a_scale_can_be_given_to_an_object_that_had_none(api: Api, scalable: Any, namespace: str) -> None:
    api.post(scalable.path(namespace), scalable.new("x", spec={})).expect(201)
    scale = {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {"name": "x", "namespace": namespace},
        "spec": {"replicas": 1},
    }
    assert api.put(scalable.path(namespace, "x", "scale"), scale).expect(200)["spec"] == {"replicas": 1}
    missing = api.get(scalable.path(namespace, "y", "scale")).expect(404)
    assert missing["message"] == f'{scalable.qualified} "y" not found'


def test_subresources_know_only_their_own_verbs(api: Api, scalable: Any, namespace: str) -> None:
    path = scalable.path(namespace, "x")
    api.post(scalable.path(namespace), scalable.new("x", spec={})).expect(201)
    assert api.delete(f"{path}/scale").status == 405
    assert api.delete(f"{path}/status").status == 405
    assert api.get(f"{path}/unknown").status == 404
