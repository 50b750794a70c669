"""The verbs, on every way to a server."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import pytest

from homeostat.client import Client, Metadata, Resource
from homeostat.model.conditions import condition_is
from homeostat.model.errors import ApiError

Maps = Resource[dict[str, Any]]


class Settings(msgspec.Struct, rename="camel"):
    metadata: Metadata
    data: dict[str, str] = {}


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": data}


async def test_an_object_lives_from_create_to_delete(config_maps: Maps) -> None:
    made = await config_maps.create(config_map("a", colour="red"))
    assert made["metadata"]["uid"]
    made["data"]["colour"] = "blue"
    replaced = await config_maps.replace(made)
    assert (await config_maps.get("a"))["data"] == {"colour": "blue"}
    patched = await config_maps.patch("a", {"data": {"size": "9"}})
    assert patched["data"] == {"colour": "blue", "size": "9"}
    with pytest.raises(ApiError) as stale:
        await config_maps.replace(replaced)
    assert (stale.value.code, stale.value.reason) == (409, "Conflict")
    assert await config_maps.delete("a") is None
    with pytest.raises(ApiError) as gone:
        await config_maps.get("a")
    assert (gone.value.code, gone.value.name, gone.value.kind) == (404, "a", "configmaps")


async def test_every_kind_of_patch_is_sent_as_what_it_is(config_maps: Maps) -> None:
    await config_maps.create(config_map("a", x="1"))
    await config_maps.patch("a", [{"op": "replace", "path": "/data/x", "value": "2"}], kind="json")
    await config_maps.patch("a", {"metadata": {"labels": {"one": "1"}}}, kind="strategic")
    found = await config_maps.get("a")
    assert found["data"] == {"x": "2"}
    assert found["metadata"]["labels"] == {"one": "1"}


async def test_a_list_comes_whole_however_small_its_pages(config_maps: Maps) -> None:
    for name in "abcde":
        await config_maps.create(config_map(name, {"half": "first" if name < "c" else "second"}))
    listed = await config_maps.list(page=2, labels="half")
    assert [item["metadata"]["name"] for item in listed] == list("abcde")
    assert all((item["apiVersion"], item["kind"]) == ("v1", "ConfigMap") for item in listed)
    assert int(listed.resource_version) > 0
    assert [o["metadata"]["name"] for o in await config_maps.list(labels="half=first")] == ["a", "b"]
    assert [o["metadata"]["name"] for o in await config_maps.list(fields="metadata.name=d")] == ["d"]


async def test_a_collection_is_read_everywhere_unless_a_namespace_is_said(client: Client, config_maps: Maps) -> None:
    await config_maps.create(config_map("here", {"test": client.namespace}))
    everywhere = client.kind("v1", "ConfigMap")
    assert len(await everywhere.list(labels=f"test={client.namespace}")) == 1
    assert await everywhere.list(namespace="kube-public", labels=f"test={client.namespace}") == []
    assert (await everywhere.get("here"))["metadata"]["namespace"] == client.namespace


async def test_a_dry_run_stores_nothing(config_maps: Maps) -> None:
    made = await config_maps.create(config_map("a"), dry_run=True)
    assert made["metadata"]["name"] == "a"
    with pytest.raises(ApiError, match="not found"):
        await config_maps.get("a")


async def test_apply_declares_fields_and_meets_other_managers(config_maps: Maps) -> None:
    await config_maps.apply(config_map("a", colour="red"), field_manager="painter")
    with pytest.raises(ApiError) as met:
        await config_maps.apply(config_map("a", colour="blue"), field_manager="decorator")
    assert met.value.code == 409
    assert met.value.causes[0]["field"] == ".data.colour"
    taken = await config_maps.apply(config_map("a", colour="blue"), field_manager="decorator", force=True)
    assert taken["data"] == {"colour": "blue"}
    left = await config_maps.apply(config_map("a"), field_manager="decorator")
    assert left.get("data", {}) == {}


async def test_a_finalizer_holds_what_is_deleted(config_maps: Maps) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    made = await config_maps.create(body)
    with pytest.raises(ApiError) as other:
        await config_maps.delete("a", uid=str(uuid.uuid4()))
    assert other.value.code == 409
    held = await config_maps.delete("a", uid=made["metadata"]["uid"])
    assert held is not None
    assert held["metadata"]["deletionTimestamp"]
    await config_maps.patch("a", {"metadata": {"finalizers": None}})
    assert await config_maps.list(fields="metadata.name=a") == []


async def test_deleting_a_collection_needs_to_be_meant(config_maps: Maps) -> None:
    await config_maps.create(config_map("a", {"old": "yes"}))
    await config_maps.create(config_map("b"))
    with pytest.raises(ValueError, match="needs a selector"):
        await config_maps.delete_collection()
    await config_maps.delete_collection(labels="old=yes")
    assert "b" in [item["metadata"]["name"] for item in await config_maps.list()]
    assert await config_maps.list(fields="metadata.name=a") == []


async def test_objects_come_as_structs_where_a_type_is_given(client: Client) -> None:
    settings = client.kind("v1", "ConfigMap", Settings, namespace=client.namespace)
    made = await settings.create(Settings(Metadata(name="a", labels={"x": "y"}), {"k": "v"}))
    assert isinstance(made, Settings)
    assert made.metadata.resource_version
    assert (await settings.get("a")).data == {"k": "v"}
    assert [item.metadata.labels for item in await settings.list(labels="x=y")] == [{"x": "y"}]
    applied = await settings.apply(Settings(Metadata(name="b"), {"n": "1"}), field_manager="typed")
    assert applied.data == {"n": "1"}


async def test_subresources_are_written_apart(client: Client) -> None:
    claims = client.kind("v1", "Namespace")
    name = client.namespace
    conditions = [{"type": "Seen", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    await claims.patch(name, {"status": {"conditions": conditions}}, subresource="status")
    assert condition_is(await claims.get(name), "Seen")
    sets = client.kind("v1", "ReplicationController", namespace=name)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    await sets.create({"metadata": {"name": "s"}, "spec": {"replicas": 0, "template": template}})
    scale = await sets.get("s", subresource="scale")
    assert scale["kind"] == "Scale"
    scale["spec"] = {"replicas": 0}
    assert (await sets.replace(scale, subresource="scale"))["kind"] == "Scale"


async def test_a_kind_that_is_not_served_is_named(client: Client) -> None:
    with pytest.raises(ApiError, match='no matches for kind "Nothing" in version "v1"') as missing:
        await client.kind("v1", "Nothing").get("x")
    assert missing.value.code == 404
    with pytest.raises(ApiError, match='no matches for kind "Thing"'):
        await client.kind("none.example/v1", "Thing").list()


async def test_a_kind_is_found_as_soon_as_it_is_defined(client: Client) -> None:
    group = f"{client.namespace}.example.com"
    gadgets = client.kind(f"{group}/v1", "Gadget", namespace=client.namespace)
    with pytest.raises(ApiError, match="no matches"):
        await gadgets.list()
    crds = client.kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": "Gadget", "plural": "gadgets"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    await crds.create({"metadata": {"name": f"gadgets.{group}"}, "spec": spec})
    try:
        async with crds.watch(fields=f"metadata.name=gadgets.{group}") as events:
            async for event in events:
                if condition_is(event.object, "Established"):
                    break
        await gadgets.create({"metadata": {"name": "g"}, "spec": {"n": 1}})
        with pytest.raises(ApiError) as wrong:
            await gadgets.create({"metadata": {"name": "h"}, "spec": {"n": "one"}})
        assert (wrong.value.code, wrong.value.causes[0]["field"]) == (422, "spec.n")
    finally:
        await crds.delete(f"gadgets.{group}")


async def test_names_are_one_segment_of_the_path(client: Client) -> None:
    roles = client.kind("rbac.authorization.k8s.io/v1", "ClusterRole")
    name = f"test:{client.namespace}"
    await roles.create({"metadata": {"name": name}, "rules": []})
    assert (await roles.get(name))["metadata"]["name"] == name
    await roles.delete(name)
    with pytest.raises(ApiError):
        await client.kind("v1", "ConfigMap").get("../../namespaces")


async def test_the_server_says_its_version(client: Client) -> None:
    assert (await client.version())["gitVersion"].startswith("v1.")
