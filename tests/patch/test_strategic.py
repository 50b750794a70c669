"""Strategic merge patch: the documented cases, its laws, and upstream's own code through kubectl as the judge."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_documents import unharmed

from homeostat.api.builtin.types import schema_of
from homeostat.api.patch import apply_strategic_merge_patch
from homeostat.model.errors import ApiError

POD = schema_of("v1", "Pod")
DEPLOYMENT = schema_of("apps/v1", "Deployment")


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def patched(document: Any, patch: Any, schema: Any = POD) -> Any:
    return unharmed(lambda d, p: apply_strategic_merge_patch(d, p, schema), document, patch)


def containers(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "image": name.upper()} for name in names]


def names(result: Any) -> list[str]:
    return [container["name"] for container in result["spec"]["containers"]]


def test_maps_merge_and_null_removes() -> None:
    document = pod(nodeSelector={"a": "1", "b": "2"})
    assert patched(document, {"spec": {"nodeSelector": {"b": None, "c": "3"}}})["spec"] == {
        "nodeSelector": {"a": "1", "c": "3"}
    }


def test_lists_with_a_merge_key_merge_by_it() -> None:
    result = patched(pod(containers=containers("a", "b")), {"spec": {"containers": [{"name": "b", "image": "new"}]}})
    assert result["spec"]["containers"] == [{"name": "a", "image": "A"}, {"name": "b", "image": "new"}]


def test_lists_without_a_strategy_are_replaced() -> None:
    document = pod(containers=[{"name": "a", "command": ["x", "y"]}])
    result = patched(document, {"spec": {"containers": [{"name": "a", "command": ["z"]}]}})
    assert result["spec"]["containers"][0]["command"] == ["z"]


def test_new_items_come_before_those_that_were_there() -> None:
    result = patched(pod(containers=containers("a", "b")), {"spec": {"containers": containers("c")}})
    assert names(result) == ["c", "a", "b"]


def test_an_item_is_deleted_by_its_key() -> None:
    patch = {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}
    assert names(patched(pod(containers=containers("a", "b")), patch)) == ["b"]


def test_a_merging_list_is_replaced_on_request() -> None:
    patch = {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}
    assert patched(pod(containers=containers("a", "b")), patch)["spec"]["containers"] == [{"name": "z"}]


def test_a_map_is_replaced_or_emptied_on_request() -> None:
    document = pod(nodeSelector={"a": "1"})
    replaced = patched(document, {"spec": {"nodeSelector": {"$patch": "replace", "b": "2"}}})
    assert replaced["spec"]["nodeSelector"] == {"b": "2"}
    assert patched(document, {"spec": {"nodeSelector": {"$patch": "delete"}}})["spec"]["nodeSelector"] == {}


def test_lists_of_plain_values_merge_as_sets_and_lose_what_is_named() -> None:
    document = {"metadata": {"finalizers": ["a", "b", "c"]}}
    more = {"metadata": {"finalizers": ["d", "a"]}}
    assert patched(document, more)["metadata"]["finalizers"] == ["d", "a", "b", "c"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}}
    assert patched(document, gone)["metadata"]["finalizers"] == ["a", "c"]


def test_the_order_is_set_on_request_and_the_servers_own_items_keep_their_place() -> None:
    document = pod(containers=containers("a", "b", "c", "d"))
    order = [{"name": "c"}, {"name": "a"}]
    result = patched(document, {"spec": {"$setElementOrder/containers": order}})
    assert names(result) == ["b", "c", "a", "d"]


def test_retain_keys_drops_the_others() -> None:
    document = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert patched(document, patch, DEPLOYMENT)["spec"]["strategy"] == {"type": "Recreate"}


def test_ports_with_one_number_and_two_protocols_are_found_by_the_number_alone() -> None:
    ports = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
    patch = {"spec": {"ports": [{"port": 53, "targetPort": 5353}]}}
    result = patched({"spec": {"ports": ports}}, patch, schema_of("v1", "Service"))
    assert [port.get("targetPort") for port in result["spec"]["ports"]] == [5353, None]


def test_new_values_lose_their_nulls_and_directives() -> None:
    patch = {"spec": {"volumes": [{"name": "v", "$patch": "delete"}], "affinity": {"nodeAffinity": None}}}
    assert patched(pod(), patch)["spec"] == {"volumes": [], "affinity": {}}


def test_what_is_not_touched_is_shared() -> None:
    document = pod(containers=containers("a"))
    result = apply_strategic_merge_patch(document, {"metadata": {"labels": {"x": "y"}}}, POD)
    assert result["spec"] is document["spec"]


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ([], "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        ({"spec": {"$patch": "merge"}}, "unknown patch type: merge in map: map[$patch:merge]"),
        ({"spec": {"containers": [{"image": "x"}]}}, "map: map[image:x] does not contain declared merge key: name"),
        ({"spec": {"containers": [{"$patch": "delete"}]}}, "does not contain declared merge key: name"),
        ({"spec": {"containers": [{"$patch": "merge", "name": "a"}]}}, "merging lists cannot yet be specified"),
        ({"spec": {"containers": ["a"]}}, "list element types are not identical"),
        ({"spec": {"$setElementOrder/containers": "x"}}, "expected a []interface {}, but received a string"),
        ({"spec": {"$setElementOrder": []}}, "invalid patch format of setElementOrder list"),
        ({"spec": {"$deleteFromPrimitiveList": []}}, "invalid patch format of primitive list"),
        ({"spec": {"$retainKeys": ["a"], "b": 1}}, "invalid patch format of retainKeys"),
        ({"spec": {"$retainKeys": "a"}}, "invalid patch format of retainKeys"),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused(patch: Any, message: str) -> None:
    with pytest.raises(ApiError) as refusal:
        patched(pod(containers=containers("a")), patch)
    assert refusal.value.code == 400
    assert message in refusal.value.message


def test_lists_of_lists_are_refused() -> None:
    with pytest.raises(ApiError) as refusal:
        patched(pod(containers=containers("a")), {"spec": {"containers": [["x"]]}})
    assert refusal.value.code == 422


def test_a_patch_out_of_the_order_that_it_states_is_refused() -> None:
    order = [{"name": "a"}, {"name": "b"}]
    patch = {"spec": {"$setElementOrder/containers": order, "containers": containers("b", "a")}}
    with pytest.raises(ApiError, match="doesn't match"):
        patched(pod(containers=containers("a", "b")), patch)


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(NAMES, NAMES)
def test_merging_keeps_every_item_and_both_orders(before: list[str], patch: list[str]) -> None:
    after = names(patched(pod(containers=containers(*before)), {"spec": {"containers": containers(*patch)}}))
    assert sorted(after) == sorted({*before, *patch})
    assert [name for name in after if name in patch] == patch
    assert [name for name in after if name not in patch] == [name for name in before if name not in patch]


@given(NAMES, NAMES)
def test_a_second_time_changes_nothing(before: list[str], patch: list[str]) -> None:
    wanted = {"spec": {"containers": containers(*patch), "nodeSelector": {"a": None}}}
    once = patched(pod(containers=containers(*before), nodeSelector={"a": "1"}), wanted)
    assert patched(once, wanted) == once


def outcome(document: Any, patch: Any) -> Any:
    try:
        return patched(document, patch)
    except ApiError as refusal:
        return refusal.message


class Cases:
    """Random pods and patches from a seed, with every directive.

    Variables are deleted only where there are some: what becomes of the directive otherwise differs between releases.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, likelihood: float) -> bool:
        return self.random.random() < likelihood

    def some(self, population: str) -> list[str]:
        return self.random.sample(population, self.random.randint(1, len(population)))

    def container(self, name: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "image": self.random.choice("xy")}
        if self.chance(0.4):
            made["ports"] = [{"containerPort": self.random.choice([80, 81])} for _ in range(2)]
        if self.chance(0.3):
            made["command"] = self.some("pq")
        if self.chance(0.4):
            made["env"] = [{"name": key, "value": self.random.choice("12")} for key in self.some("ABCD")]
        return made

    def pod(self) -> dict[str, Any]:
        made = pod(containers=[self.container(name) for name in self.some("abcde")])
        made["metadata"] |= {"labels": dict.fromkeys(self.some("abc"), "1"), "finalizers": self.some("wxyz")}
        if self.chance(0.5):
            made["spec"]["volumes"] = [{"name": name, "emptyDir": {}} for name in self.some("abc")]
        return made

    def patch(self, document: dict[str, Any]) -> dict[str, Any]:
        with_variables = {item["name"] for item in document["spec"]["containers"] if "env" in item}
        made = self.pod()
        patch: dict[str, Any] = {"metadata": made["metadata"], "spec": made["spec"]}
        for item in patch["spec"]["containers"]:
            if self.chance(0.15):
                item["$patch"] = self.random.choice(["delete", "replace"])
            if self.chance(0.2):
                item["image"] = None
            for variable in item.get("env", ()):
                if item["name"] in with_variables and self.chance(0.2):
                    variable["$patch"] = "delete"
        kept = [{"name": item["name"]} for item in patch["spec"]["containers"] if item.get("$patch") != "delete"]
        if kept and self.chance(0.4):
            for name in self.some("abcde"):
                if {"name": name} not in kept:
                    kept.insert(self.random.randint(0, len(kept)), {"name": name})
            patch["spec"]["$setElementOrder/containers"] = kept
        if self.chance(0.3):
            del patch["metadata"]["finalizers"]
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = self.some("wxyz")
        if self.chance(0.3):
            patch["metadata"]["labels"] |= self.random.choice([{"a": None}, {"$patch": "replace"}, {"$patch": "merge"}])
        if "volumes" in patch["spec"] and self.chance(0.4):
            name = patch["spec"]["volumes"][0]["name"]
            patch["spec"]["volumes"][0] = {"name": name, "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}
        return patch


@pytest.mark.parametrize("seed", range(40))
def test_kubectl_agrees(kubectl_patch: Any, seed: int) -> None:
    cases = Cases(seed)
    document = cases.pod()
    patch = cases.patch(document)
    expected = kubectl_patch("strategic", document, patch)
    assert outcome(document, patch) == expected
