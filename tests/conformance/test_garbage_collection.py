"""Garbage collection: what is owned goes with its owners, exactly by uid, in the order that the deleter asked for."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .conftest import Api, Kind, Object, eventually, needs_builtin_rules
from .objects import CONTAINER, at

pytestmark = pytest.mark.timeout(180)


class Room:
    """Config maps in one namespace, owned by each other."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"

    def make(self, name: str, *owners: Object, **metadata: Any) -> Object:
        references = {"ownerReferences": list(owners)} if owners else {}
        made: Object = self.api.post(self.path, {"metadata": {"name": name, **references, **metadata}}).expect(201)
        return made

    def delete(self, name: str, policy: str | None = None) -> Any:
        return self.api.delete(f"{self.path}/{name}", {"propagationPolicy": policy} if policy else None)

    def get(self, name: str) -> Object | None:
        answer = self.api.get(f"{self.path}/{name}")
        return None if answer.status == 404 else answer.expect(200)

    def gone(self, *names: str) -> None:
        for name in names:
            eventually(lambda name=name: self.get(name) is None, f"{name} to go")

    def stays(self, *names: str) -> None:
        """Whoever would delete these has had the time: a witness that must go was deleted after the cause."""
        owner = self.make("witness-owner")
        self.make("witness", owned_by(owner))
        self.delete("witness-owner", "Background")
        self.gone("witness")
        for name in names:
            assert self.get(name) is not None, f"{name} went"


def owned_by(owner: Object, *, block: bool | None = None, kind: str = "ConfigMap", api_version: str = "v1", uid: str = "") -> Object:
    reference = {"apiVersion": api_version, "kind": kind, "name": owner["metadata"]["name"], "uid": uid or owner["metadata"]["uid"]}
    return reference if block is None else {**reference, "blockOwnerDeletion": block}


@pytest.fixture
def room(api: Api, namespace: str) -> Room:
    return Room(api, namespace)


def test_dependents_go_after_their_owner_in_the_background(room: Room) -> None:
    owner = room.make("owner")
    child = room.make("child", owned_by(owner))
    room.make("grandchild", owned_by(child))
    answer = room.delete("owner", "Background")
    assert answer.expect(200)["status"] == "Success"
    assert room.get("owner") is None
    room.gone("child", "grandchild")


def test_background_is_what_happens_when_nothing_is_said(room: Room) -> None:
    room.make("child", owned_by(room.make("owner")))
    room.delete("owner").expect(200)
    room.gone("owner", "child")


PODS = {"restartPolicy": "Never", "containers": [dict(CONTAINER)]}


@pytest.mark.parametrize(
    ("plural", "kind", "group", "spec"),
    [
        ("jobs", "Job", "batch", {"template": {"spec": PODS}}),
        (
            "replicationcontrollers",
            "ReplicationController",
            "",
            {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {**PODS, "restartPolicy": "Always"}}, "replicas": 0},
        ),
    ],
)
def test_some_kinds_orphan_their_dependents_unless_told(
    api: Api, room: Room, namespace: str, plural: str, kind: str, group: str, spec: Object
) -> None:
    needs_builtin_rules(api)
    path, version = at(namespace, plural, group=group), f"{group}/v1" if group else "v1"
    warned = "child pods are preserved by default when jobs are deleted"
    for name, body in (("unsaid", None), ("background", {"propagationPolicy": "Background"})):
        owner = api.post(path, {"metadata": {"name": name}, "spec": spec}).expect(201)
        room.make(name, owned_by(owner, kind=kind, api_version=version))
        answer = api.delete(f"{path}/{name}", body)
        answer.expect(200)
        assert any(text.startswith(warned) for text in answer.warnings) == (kind == "Job" and body is None)
        eventually(lambda name=name: api.get(f"{path}/{name}").status == 404, f"{name} to go")
    room.gone("background")
    left = room.get("unsaid")
    assert left is not None
    assert "ownerReferences" not in left["metadata"]


def test_in_the_foreground_the_owner_goes_last(room: Room) -> None:
    owner = room.make("owner")
    room.make("child", owned_by(owner, block=True), finalizers=["example.com/hold"])
    marked = room.delete("owner", "Foreground").expect(200)
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert marked["metadata"]["deletionTimestamp"]
    eventually(lambda: (room.get("child") or {}).get("metadata", {}).get("deletionTimestamp"), "the child to be deleted")
    assert room.get("owner") is not None
    room.api.patch(f"{room.path}/child", {"metadata": {"finalizers": None}}).expect(200)
    room.gone("child", "owner")


def test_a_dependent_that_does_not_block_is_not_waited_for(room: Room) -> None:
    owner = room.make("owner")
    room.make("child", owned_by(owner, block=False), finalizers=["example.com/hold"])
    room.delete("owner", "Foreground").expect(200)
    room.gone("owner")
    eventually(lambda: (room.get("child") or {}).get("metadata", {}).get("deletionTimestamp"), "the child to be deleted")
    room.api.patch(f"{room.path}/child", {"metadata": {"finalizers": None}}).expect(200)
    room.gone("child")


def test_foreground_deletion_goes_down_the_tree(room: Room) -> None:
    owner = room.make("owner")
    child = room.make("child", owned_by(owner, block=True))
    room.make("grandchild", owned_by(child, block=True), finalizers=["example.com/hold"])
    room.delete("owner", "Foreground").expect(200)
    eventually(lambda: "deletionTimestamp" in (room.get("grandchild") or {"metadata": {}})["metadata"])
    assert "foregroundDeletion" in (room.get("child") or {})["metadata"]["finalizers"]
    assert room.get("owner") is not None
    room.api.patch(f"{room.path}/grandchild", {"metadata": {"finalizers": None}}).expect(200)
    room.gone("grandchild", "child", "owner")


def test_orphans_lose_their_owner_and_stay(room: Room) -> None:
    owner = room.make("owner")
    room.make("child", owned_by(owner))
    answer = room.delete("owner", "Orphan").expect(200)
    assert answer["metadata"]["finalizers"] == ["orphan"]
    room.gone("owner")
    child = room.get("child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]
    room.stays("child")


def test_the_old_way_to_ask_for_orphans_works(room: Room) -> None:
    room.make("child", owned_by(room.make("owner")))
    room.api.delete(f"{room.path}/owner", {"orphanDependents": True}).expect(200)
    room.gone("owner")
    assert "ownerReferences" not in (room.get("child") or {})["metadata"]


def test_with_two_owners_the_one_that_is_left_keeps_it(room: Room) -> None:
    first, second = room.make("first"), room.make("second")
    room.make("child", owned_by(first), owned_by(second))
    room.delete("first", "Background").expect(200)

    def owners() -> list[str]:
        child = room.get("child")
        assert child is not None
        return [o["name"] for o in child["metadata"].get("ownerReferences", [])]

    eventually(lambda: owners() == ["second"], "the reference to the absent owner to be dropped")
    room.delete("second", "Background").expect(200)
    room.gone("child")


def test_two_owners_one_in_the_foreground(room: Room) -> None:
    first, second = room.make("first"), room.make("second")
    room.make("child", owned_by(first, block=True), owned_by(second, block=True))
    room.delete("first", "Foreground").expect(200)
    room.gone("first")
    child = room.get("child")
    assert child is not None
    assert [o["name"] for o in child["metadata"]["ownerReferences"]] == ["second"]


def test_an_owner_of_the_same_name_and_another_uid_is_absent(room: Room) -> None:
    old = room.make("owner")
    room.delete("owner", "Background").expect(200)
    room.make("owner")
    room.make("child", owned_by(old))
    room.gone("child")
    assert room.get("owner") is not None


def test_an_owner_that_never_was_is_absent(room: Room) -> None:
    room.make("child", owned_by({"metadata": {"name": "nobody", "uid": "00000000-0000-0000-0000-000000000001"}}))
    room.gone("child")


def test_an_owner_in_another_namespace_is_absent(room: Room) -> None:
    default = "/api/v1/namespaces/default/configmaps"
    name = f"owner-{room.path.split('/')[4]}"
    elsewhere = room.api.post(default, {"metadata": {"name": name}}).expect(201)
    room.make("child", owned_by(elsewhere))
    room.gone("child")
    room.api.get(f"{default}/{name}").expect(200)
    room.api.delete(f"{default}/{name}")


def test_an_owner_of_the_cluster_owns_in_namespaces(room: Room) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    name = f"owner-{room.path.split('/')[4]}"
    owner = room.api.post(roles, {"metadata": {"name": name}, "rules": []}).expect(201)
    room.make("child", owned_by(owner, kind="ClusterRole", api_version="rbac.authorization.k8s.io/v1"))
    room.stays("child")
    room.api.delete(f"{roles}/{name}").expect(200)
    room.gone("child")


def test_an_owner_of_a_kind_that_nobody_serves_deletes_nothing(room: Room) -> None:
    nobody = {"metadata": {"name": "nobody", "uid": "00000000-0000-0000-0000-000000000001"}}
    room.make("child", owned_by(nobody, kind="Nothing", api_version="nobody.example.com/v1"))
    room.stays("child")


def test_a_cycle_goes_when_one_of_it_is_deleted(room: Room) -> None:
    first = room.make("first")
    second = room.make("second", owned_by(first))
    room.api.patch(f"{room.path}/first", {"metadata": {"ownerReferences": [owned_by(second)]}}).expect(200)
    room.delete("first", "Background").expect(200)
    room.gone("first", "second")


def test_a_cycle_goes_in_the_foreground_too(room: Room) -> None:
    first = room.make("first")
    second = room.make("second", owned_by(first, block=True))
    room.api.patch(f"{room.path}/first", {"metadata": {"ownerReferences": [owned_by(second, block=True)]}}).expect(200)
    room.delete("first", "Foreground").expect(200)
    room.gone("first", "second")


def test_a_finalizer_holds_a_dependent_but_not_its_owner_in_the_background(room: Room) -> None:
    room.make("child", owned_by(room.make("owner")), finalizers=["example.com/hold"])
    room.delete("owner", "Background").expect(200)
    room.gone("owner")
    eventually(lambda: "deletionTimestamp" in (room.get("child") or {"metadata": {}})["metadata"])
    room.api.patch(f"{room.path}/child", {"metadata": {"finalizers": None}}).expect(200)
    room.gone("child")


def test_a_held_owner_keeps_its_dependents(room: Room) -> None:
    room.make("child", owned_by(room.make("owner", finalizers=["example.com/hold"])))
    room.delete("owner", "Background").expect(200)
    room.stays("owner", "child")
    room.api.patch(f"{room.path}/owner", {"metadata": {"finalizers": None}}).expect(200)
    room.gone("owner", "child")


def test_an_owner_that_is_added_later_owns_all_the_same(room: Room) -> None:
    room.make("child")
    owner = room.make("owner")
    room.api.patch(f"{room.path}/child", {"metadata": {"ownerReferences": [owned_by(owner)]}}).expect(200)
    room.delete("owner", "Background").expect(200)
    room.gone("child")


def test_a_reference_that_is_taken_away_in_time_saves_it(room: Room) -> None:
    owner = room.make("owner")
    room.make("child", owned_by(owner))
    room.api.patch(f"{room.path}/child", {"metadata": {"ownerReferences": None}}).expect(200)
    room.delete("owner", "Background").expect(200)
    room.stays("child")


def test_custom_and_built_in_kinds_own_each_other(api: Api, room: Room, namespace: str, definer: Any) -> None:
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    widget = api.post(widgets.path(namespace), widgets.new("widget")).expect(201)
    child = room.make("child", owned_by(widget, kind="Widget", api_version=widgets.api_version))
    owned = widgets.new("grandchild", metadata={"ownerReferences": [owned_by(child)]})
    api.post(widgets.path(namespace), owned).expect(201)
    if "HOMEOSTAT_CONFORMANCE_KUBECONFIG" in os.environ:
        time.sleep(40)  # a controller manager finds new kinds every half minute
    api.delete(widgets.path(namespace, "widget")).expect(200)
    room.gone("child")
    eventually(lambda: api.get(widgets.path(namespace, "grandchild")).status == 404)


def test_a_deleted_collection_takes_its_dependents_along(room: Room) -> None:
    for n in range(3):
        owner = room.make(f"owner-{n}", labels={"role": "owner"})
        room.make(f"child-{n}", owned_by(owner))
    room.api.delete(room.path, {"propagationPolicy": "Background"}, labelSelector="role=owner").expect(200)
    room.gone("child-0", "child-1", "child-2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"propagationPolicy": "Foreground", "orphanDependents": True},
            "orphanDependents and deletionPropagation cannot be both set",
        ),
        ({"propagationPolicy": "Never"}, 'Unsupported value: "Never": supported values: "Foreground", "Background", "Orphan", "nil"'),
    ],
)
def test_policies_that_do_not_exist_are_refused(room: Room, options: Object, message: str) -> None:
    room.make("one")
    body = room.api.delete(f"{room.path}/one", options).expect(422)
    assert message in body["message"]
    assert room.get("one") is not None


def test_a_thousand_dependents_go_in_a_few_seconds(room: Room) -> None:
    count = 1000 if "HOMEOSTAT_CONFORMANCE_KUBECONFIG" not in os.environ else 100
    owner = room.make("owner")

    def some(numbers: range) -> None:
        mine = Room(Api(room.api.credentials), room.path.split("/")[4])
        for n in numbers:
            mine.make(f"child-{n}", owned_by(owner), labels={"many": "yes"})
        mine.api.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, [range(n, count, 8) for n in range(8)]))
    began = time.monotonic()
    room.delete("owner", "Background").expect(200)
    eventually(lambda: not room.api.get(room.path, labelSelector="many=yes", limit=1).expect(200)["items"])
    assert time.monotonic() - began < 10
