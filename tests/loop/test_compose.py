"""What a composer wants, in which order, and what has to be done for it: pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.loop.compose import (
    AFTER,
    WAVE,
    Action,
    Child,
    ComposeError,
    Composer,
    children_of,
    is_ours,
    plan_children,
    removals,
    stages,
)
from homeostat.loop.fleet import Cause, Op
from homeostat.model.kinds import Spec

Object = dict[str, Any]

PARENT: Object = {
    "apiVersion": "example.com/v1",
    "kind": "Shop",
    "metadata": {"name": "corner", "namespace": "town", "uid": "p-1"},
}
SCOPES = {("v1", "ConfigMap"): True, ("v1", "Secret"): True, ("v1", "Namespace"): False, ("apps/v1", "Deployment"): True}
MANAGER = "homeostat/shops.example.com"


def config(name: str, data: dict[str, str] | None = None, kind: str = "ConfigMap", **annotations: str) -> Object:
    metadata: Object = {"name": name}
    if annotations:
        metadata["annotations"] = {WAVE if key == "wave" else AFTER: value for key, value in annotations.items()}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, "data": data or {"a": "1"}}


def composed(*manifests: Object) -> dict[Child, Object]:
    return children_of(PARENT, manifests, SCOPES)


def child(name: str, kind: str = "ConfigMap") -> Child:
    return Child("", kind, "town", name)


def live(manifest: Object, owner: str = "p-1", manager: str = MANAGER, uid: str = "c-1", **data: str) -> Object:
    """A child as it stands in the store after somebody has applied it, and others have changed it."""
    fields = {
        "f:data": {f"f:{key}": {} for key in manifest["data"]},
        "f:metadata": {"f:ownerReferences": {f'k:{{"uid":"{owner}"}}': {}}},
    }
    metadata = {
        **manifest["metadata"],
        "uid": uid,
        "ownerReferences": [{**manifest["metadata"]["ownerReferences"][0], "uid": owner}],
        "managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": fields}],
    }
    return {**manifest, "metadata": metadata, "data": {**manifest["data"], **data}}


def ops(plan: list[list[Action]]) -> list[list[tuple[str, str]]]:
    return [[(str(action.op), action.child.name) for action in stage] for stage in plan]


# What is wanted


def test_a_child_is_in_the_namespace_of_its_parent_and_owned_by_it() -> None:
    ((key, manifest),) = composed(config("till")).items()
    assert key == child("till")
    assert manifest["metadata"]["namespace"] == "town"
    (owner,) = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("Shop", "corner", "p-1", True)


def test_what_servers_write_is_not_composed() -> None:
    manifest = {**config("till"), "status": {"x": 1}}
    manifest["metadata"] |= {"uid": "x", "resourceVersion": "7", "managedFields": []}
    (made,) = composed(manifest).values()
    assert "status" not in made
    assert made["metadata"].keys() == {"name", "namespace", "ownerReferences"}


@pytest.mark.parametrize(
    ("manifests", "why"),
    [
        ([config("till"), config("till")], "composed twice"),
        ([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x"}}], "without metadata.name"),
        ([{"kind": "ConfigMap", "metadata": {"name": "x"}}], "apiVersion"),
        (["till"], "not till"),
        ([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}], "cannot own it"),
        ([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x", "namespace": "city"}}], "cannot own it"),
    ],
)
def test_what_cannot_be_a_child_is_refused_by_name(manifests: list[Any], why: str) -> None:
    with pytest.raises(ComposeError, match=why):
        composed(*manifests)


def test_a_parent_in_no_namespace_may_have_children_anywhere_and_must_say_where() -> None:
    cluster = {**PARENT, "metadata": {"name": "corner", "uid": "p-1"}}
    placed = {**config("till"), "metadata": {"name": "till", "namespace": "city"}}
    assert list(children_of(cluster, [placed], SCOPES)) == [Child("", "ConfigMap", "city", "till")]
    with pytest.raises(ComposeError, match=r"needs metadata\.namespace"):
        children_of(cluster, [config("till")], SCOPES)


def test_versions_of_one_group_are_the_same_child() -> None:
    one = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    two = {**one, "apiVersion": "apps/v1beta1"}
    with pytest.raises(ComposeError, match="twice"):
        children_of(PARENT, [one, two], {**SCOPES, ("apps/v1beta1", "Deployment"): True})


# In which order


def order(*manifests: Object) -> list[list[str]]:
    return [[one.name for one in stage] for stage in stages(composed(*manifests))]


def test_children_come_in_the_order_of_their_waves() -> None:
    assert order(config("c", wave="10"), config("a"), config("b", wave="-1"), config("d")) == [["b"], ["a", "d"], ["c"]]


def test_within_a_wave_they_come_after_what_they_name() -> None:
    web = config("web", after="ConfigMap/till, Secret/key")
    assert order(web, config("till", after="Secret/key"), config("key", kind="Secret")) == [["key"], ["till"], ["web"]]


def test_what_comes_in_an_earlier_wave_is_waited_for_anyway() -> None:
    assert order(config("b", wave="1", after="ConfigMap/a"), config("a")) == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("manifests", "why"),
    [
        ([config("a", wave="soon")], "whole number"),
        ([config("a", after="ConfigMap/b")], "ConfigMap/b, which is not composed"),
        ([config("a", after="ConfigMap/b"), config("b", after="ConfigMap/a")], "wait for each other"),
        ([config("a", after="ConfigMap/a")], "wait for each other"),
        ([config("a", after="ConfigMap/b"), config("b", wave="1")], "later wave"),
    ],
)
def test_an_order_that_cannot_be_is_refused(manifests: list[Object], why: str) -> None:
    with pytest.raises(ComposeError, match=why):
        stages(composed(*manifests))


def test_they_go_in_reverse() -> None:
    gone = composed(config("a"), config("b", wave="2"), config("c", wave="1"), config("d", wave="?"))
    assert [[one.name for one in stage] for stage in removals(gone)] == [["b"], ["c"], ["a", "d"]]


# What to do


def test_nothing_is_done_where_all_is_as_desired() -> None:
    desired = composed(config("till"))
    assert plan_children(PARENT, desired, {child("till"): live(desired[child("till")])}, MANAGER) == []


def test_what_is_missing_is_made_and_what_is_too_many_goes_last() -> None:
    desired = composed(config("b", wave="1"), config("a"))
    old = composed(config("old"), config("older", wave="3"))
    existing = {key: live(manifest) for key, manifest in old.items()}
    assert ops(plan_children(PARENT, desired, existing, MANAGER)) == [
        [("create", "a")],
        [("create", "b")],
        [("delete", "older")],
        [("delete", "old")],
    ]


def test_what_others_changed_is_drift_and_what_they_added_is_theirs() -> None:
    desired = composed(config("till"))
    found = live(desired[child("till")], a="9", theirs="x")
    ((action,),) = plan_children(PARENT, desired, {child("till"): found}, MANAGER)
    assert (action.op, action.uid) == (Op.UPDATE, "c-1")
    assert [(change.path, change.old, change.new) for change in action.diff.changes] == [(("data", "a"), "9", "1")]


def test_what_is_composed_no_more_is_taken_back() -> None:
    before = composed(config("till", {"a": "1", "b": "2"}))[child("till")]
    desired = composed(config("till"))
    ((action,),) = plan_children(PARENT, desired, {child("till"): live(before)}, MANAGER)
    assert [(c.path, c.sign, c.cause) for c in action.diff.changes] == [(("data", "b"), "-", Cause.INTENT)]


@pytest.mark.parametrize(("owner", "manager"), [("p-2", MANAGER), ("p-1", "kubectl"), ("", MANAGER)])
def test_what_is_not_ours_in_both_ways_never_goes(owner: str, manager: str) -> None:
    old = composed(config("old"))[child("old")]
    found = live(old, owner=owner, manager=manager)
    assert not is_ours(found, "p-1", MANAGER)
    assert plan_children(PARENT, {}, {child("old"): found}, MANAGER) == []


def test_a_stranger_in_the_place_of_a_child_is_a_problem_and_not_an_update() -> None:
    desired = composed(config("till"))
    stranger = live(desired[child("till")], owner="p-2", a="9")
    ((action,),) = plan_children(PARENT, desired, {child("till"): stranger}, MANAGER)
    assert "not a child of this parent" in action.problem


def test_a_parent_without_a_uid_owns_nothing() -> None:
    assert not is_ours({"metadata": {}}, "", MANAGER)


# The class


class ShopSpec(Spec):
    till: str = "open"


class Shop(Composer[ShopSpec], group="example.com", short_names=("sh",)):
    """A shop.

    With more to say.
    """


def test_a_composer_declares_its_kind_as_a_provider_does() -> None:
    assert (Shop.info.name, Shop.info.kind, Shop.info.description) == ("shops.example.com", "Shop", "A shop.")
    assert Shop.info.spec is ShopSpec
    assert Shop().manager == "homeostat/shops.example.com"
