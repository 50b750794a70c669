"""What a server says about itself: which kinds it has, how they look, which version it is, and how it feels."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Api, Object, define, eventually, undefine

pytestmark = pytest.mark.usefixtures("modern")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
OBJECT_VERBS = {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
OWN_VERBS = {"get", "patch", "update"}


class Offer:
    """A group with two kinds, one of them in several versions."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.group = f"o{uuid.uuid4().hex[:8]}.conformance.example"
        paths = {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}
        rich = {"subresources": {"status": {}, "scale": paths}}
        order = ("v1beta1", "v1", "v2alpha1", "v10", "foo", "v3")
        versions = [self._version(name, **(rich if name == "v1" else {})) for name in order]
        self.widgets = self._define("Widget", "Namespaced", versions, shortNames=["wd"], categories=["all", "mine"])
        self.gadgets = self._define("Gadget", "Cluster", [self._version("v1")])
        eventually(lambda: {"widgets", "gadgets"} <= {r["name"] for r in self.resources("v1")})
        eventually(lambda: self.resources("v10") and self.resources("foo"))

    @staticmethod
    def _version(name: str, **rest: Any) -> Object:
        schema = {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"r": {"type": "integer"}}}},
        }
        return {
            "name": name,
            "served": name != "v3",
            "storage": name == "v1",
            "schema": {"openAPIV3Schema": schema},
            **rest,
        }

    def _define(self, kind: str, scope: str, versions: list[Object], **names: Any) -> str:
        plural = f"{kind.lower()}s"
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{self.group}"},
            "spec": {
                "group": self.group,
                "scope": scope,
                "names": {"plural": plural, "kind": kind, **names},
                "versions": versions,
            },
        }
        self.api.post(CRDS, crd).expect(201)
        return f"{CRDS}/{plural}.{self.group}"

    def resources(self, version: str) -> list[Object]:
        answer = self.api.get(f"/apis/{self.group}/{version}")
        return list(answer.body["resources"]) if answer.status == 200 else []


@pytest.fixture(scope="module")
def offer(api: Api) -> Iterator[Offer]:
    made = Offer(api)
    yield made
    api.delete(made.widgets)
    api.delete(made.gadgets)


def test_a_group_names_its_served_versions_best_first(api: Api, offer: Offer) -> None:
    found = api.get(f"/apis/{offer.group}").expect(200)
    assert (found["kind"], found["apiVersion"], found["name"]) == ("APIGroup", "v1", offer.group)
    assert [v["version"] for v in found["versions"]] == ["v10", "v1", "v1beta1", "v2alpha1", "foo"]
    assert found["preferredVersion"] == {"groupVersion": f"{offer.group}/v10", "version": "v10"}
    assert api.get(f"/apis/{offer.group}/v3").status == 404


def test_a_version_lists_its_resources_with_their_subresources(offer: Offer) -> None:
    found = {r["name"]: r for r in offer.resources("v1")}
    assert set(found) == {"gadgets", "widgets", "widgets/status", "widgets/scale"}
    widgets = found["widgets"]
    assert set(widgets["verbs"]) == OBJECT_VERBS
    assert (widgets["kind"], widgets["singularName"], widgets["namespaced"]) == ("Widget", "widget", True)
    assert (widgets["shortNames"], widgets["categories"]) == (["wd"], ["all", "mine"])
    assert widgets["storageVersionHash"]
    assert (found["gadgets"]["namespaced"], "shortNames" in found["gadgets"]) == (False, False)
    assert set(found["widgets/status"]["verbs"]) == OWN_VERBS
    scale = found["widgets/scale"]
    assert (scale["kind"], scale["group"], scale["version"]) == ("Scale", "autoscaling", "v1")
    assert {r["name"] for r in offer.resources("v10")} == {"widgets"}


def test_all_groups_come_in_one_list(api: Api, offer: Offer) -> None:
    found = api.get("/apis").expect(200)
    assert found["kind"] == "APIGroupList"
    names = [g["name"] for g in found["groups"]]
    assert offer.group in names
    assert "apiextensions.k8s.io" in names
    assert "" not in names
    core = api.get("/api").expect(200)
    assert (core["kind"], core["versions"]) == ("APIVersions", ["v1"])


def test_aggregated_discovery_has_everything_in_one_answer(api: Api, offer: Offer) -> None:
    answer = api.get("/apis", headers={"Accept": f"{AGGREGATED},application/json"})
    found = answer.expect(200)
    assert answer.headers["Content-Type"] == AGGREGATED
    assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    [ours] = [g for g in found["items"] if g["metadata"]["name"] == offer.group]
    assert [v["version"] for v in ours["versions"]] == ["v10", "v1", "v1beta1", "v2alpha1", "foo"]
    assert {v["freshness"] for v in ours["versions"]} == {"Current"}
    widgets = next(r for r in ours["versions"][1]["resources"] if r["resource"] == "widgets")
    assert widgets["responseKind"] == {"group": offer.group, "version": "v1", "kind": "Widget"}
    assert (widgets["scope"], widgets["singularResource"]) == ("Namespaced", "widget")
    assert (widgets["shortNames"], widgets["categories"]) == (["wd"], ["all", "mine"])
    assert {s["subresource"] for s in widgets["subresources"]} == {"status", "scale"}
    core = api.get("/api", headers={"Accept": AGGREGATED}).expect(200)
    assert [v["version"] for v in core["items"][0]["versions"]] == ["v1"]
    assert "configmaps" in [r["resource"] for r in core["items"][0]["versions"][0]["resources"]]


def test_aggregated_discovery_is_not_sent_twice(api: Api, offer: Offer) -> None:
    first = api.get("/apis", headers={"Accept": AGGREGATED})
    again = api.get("/apis", headers={"Accept": AGGREGATED, "If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, "")


def test_what_nobody_can_write_is_not_acceptable(api: Api) -> None:
    assert api.get("/apis", headers={"Accept": "application/xml"}).status == 406
    assert api.get("/apis", headers={"Accept": AGGREGATED.replace("v=v2", "v=v9")}).status == 406
    plain = api.get("/apis", headers={"Accept": f"{AGGREGATED.replace('v=v2', 'v=v9')},application/json"})
    assert plain.expect(200)["kind"] == "APIGroupList"
    assert api.get("/apis", headers={"Accept": "application/yaml"}).headers["Content-Type"] == "application/yaml"


# OpenAPI


def test_the_openapi_index_leads_to_a_document_that_may_be_kept(api: Api, offer: Offer) -> None:
    part = f"apis/{offer.group}/v1"
    url = eventually(lambda: api.get("/openapi/v3").expect(200)["paths"].get(part))["serverRelativeURL"]
    assert url.startswith(f"/openapi/v3/{part}?hash=")
    kept = api.get(url)
    assert kept.expect(200)["openapi"] == "3.0.0"
    assert kept.headers["Cache-Control"] == "public, immutable"
    plain = api.get(f"/openapi/v3/{part}")
    again = api.get(f"/openapi/v3/{part}", headers={"If-None-Match": plain.headers["ETag"]})
    assert (again.status, again.body) == (304, "")
    moved = api.get(f"/openapi/v3/{part}", hash="WRONG")
    assert moved.status == 301
    assert moved.headers["Location"] == url


def test_the_document_of_a_version_has_its_paths_and_schemas(api: Api, offer: Offer) -> None:
    part = f"apis/{offer.group}/v1"
    eventually(lambda: f"/{part}/gadgets" in api.get(f"/openapi/v3/{part}").body.get("paths", ()))
    document = api.get(f"/openapi/v3/{part}").expect(200)
    widgets = f"/{part}/namespaces/{{namespace}}/widgets"
    assert {
        f"/{part}/gadgets",
        f"/{part}/gadgets/{{name}}",
        f"/{part}/widgets",
        widgets,
        f"{widgets}/{{name}}",
        f"{widgets}/{{name}}/scale",
        f"{widgets}/{{name}}/status",
    } == set(document["paths"])
    name = ".".join([*reversed(offer.group.split(".")), "v1", "Widget"])
    schema = document["components"]["schemas"][name]
    assert schema["properties"]["spec"] == {"type": "object", "properties": {"r": {"type": "integer"}}}
    identity = {"group": offer.group, "version": "v1", "kind": "Widget"}
    assert schema["x-kubernetes-group-version-kind"] == [identity]
    assert f"{name}List" in document["components"]["schemas"]
    operations = document["paths"][f"{widgets}/{{name}}"]
    assert {k: v["x-kubernetes-action"] for k, v in operations.items() if k != "parameters"} == {
        "get": "get",
        "put": "put",
        "delete": "delete",
        "patch": "patch",
    }
    assert operations["get"]["x-kubernetes-group-version-kind"] == identity


def test_openapi_v2_has_the_custom_kinds_and_is_not_sent_twice(api: Api, offer: Offer) -> None:
    name = ".".join([*reversed(offer.group.split(".")), "v10", "Widget"])
    eventually(lambda: name in api.get("/openapi/v2").expect(200)["definitions"])
    answer = api.get("/openapi/v2")
    assert answer.expect(200)["swagger"] == "2.0"
    assert f"/apis/{offer.group}/v10/widgets" in answer.body["paths"]

    def not_sent_twice() -> bool:  # once nobody else, the server itself for one, defines kinds meanwhile
        tag = api.get("/openapi/v2").headers["ETag"]
        again = api.get("/openapi/v2", headers={"If-None-Match": tag})
        return (again.status, again.body) == (304, "")

    eventually(not_sent_twice)


def test_documents_tell_by_which_fields_objects_are_selected(api: Api) -> None:
    text = {"type": "string", "default": "red"}
    schema = {"properties": {"spec": {"type": "object", "properties": {"color": text}}}}
    kind = define(api, schema, selectableFields=[{"jsonPath": ".spec.color"}])
    name = ".".join([*reversed(kind.group.split(".")), "v1", "Widget"])
    part = f"/openapi/v3/apis/{kind.group}/v1"
    schemas = eventually(lambda: (api.get(part).body or {}).get("components", {}).get("schemas"))
    definitions = eventually(lambda: {k: v for k, v in api.get("/openapi/v2").body["definitions"].items() if name in k})
    for types in (schemas, definitions):
        for one in (name, f"{name}List"):
            assert types[one]["x-kubernetes-selectable-fields"] == [{"fieldPath": "spec.color"}]
    # The old form of the document knows no defaults.
    assert schemas[name]["properties"]["spec"]["properties"]["color"] == text
    assert definitions[name]["properties"]["spec"]["properties"]["color"] == {"type": "string"}
    undefine(kind)


def test_a_changed_kind_is_told_everywhere_and_a_deleted_one_nowhere(api: Api) -> None:
    offer = Offer(api)
    part = f"apis/{offer.group}/v10"
    before = eventually(lambda: api.get("/openapi/v3").body["paths"].get(part))["serverRelativeURL"]

    def add_field() -> bool:
        crd = api.get(offer.widgets).expect(200)
        spec = crd["spec"]["versions"][3]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["fresh"] = {"type": "string", "description": "New."}
        crd["spec"]["names"]["shortNames"] = ["wx"]
        return api.put(offer.widgets, crd).status == 200

    eventually(add_field)
    eventually(lambda: api.get("/openapi/v3").body["paths"][part]["serverRelativeURL"] != before)
    eventually(lambda: "fresh" in json.dumps(api.get(f"/openapi/v3/{part}").body))
    eventually(lambda: offer.resources("v10")[0]["shortNames"] == ["wx"])
    api.delete(offer.widgets).expect(200)
    api.delete(offer.gadgets).expect(200)
    eventually(lambda: api.get(f"/apis/{offer.group}").status == 404)
    eventually(lambda: offer.group not in [g["name"] for g in api.get("/apis").body["groups"]])
    aggregated = {"Accept": AGGREGATED}
    eventually(
        lambda: offer.group not in [g["metadata"]["name"] for g in api.get("/apis", headers=aggregated).body["items"]]
    )
    eventually(lambda: part not in api.get("/openapi/v3").body["paths"])


# Health and version


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
def test_a_healthy_server_says_ok(api: Api, path: str) -> None:
    answer = api.get(path)
    assert (answer.status, answer.body) == (200, "ok")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert api.get(f"{path}/ping").body == "ok"
    verbose = api.get(path, verbose="").body
    assert verbose.startswith("[+]ping ok\n")
    assert verbose.endswith(f"{path[1:]} check passed\n")
    assert api.get(path, exclude="ping").status == 200


def test_the_version_is_told(api: Api) -> None:
    found = api.get("/version").expect(200)
    assert found["major"] == "1"
    assert found["gitVersion"].startswith(f"v1.{api.minor}.")
    assert {"minor", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} <= set(found)


def test_documents_can_only_be_read(api: Api) -> None:
    refusal = api.post("/version", {}).expect(405)
    assert refusal["message"] == "the server does not allow this method on the requested resource"
    for path in ("/nope", "/apis/nope", "/apis/apps/v9", "/api/v2", "/apis/apps/v1/foos", "/api/v1/foos"):
        assert api.get(path).status == 404
    assert "/apis" in api.get("/").expect(200)["paths"]
