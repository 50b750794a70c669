"""Server-side apply."""

from __future__ import annotations

import json
from typing import Any

import pytest

from homeostat.api.fields import ALL_BUT_STATUS
from homeostat.api.fields.apply import LAST_APPLIED
from homeostat.model.errors import ApiError

from .world import API, SCHEMA, World, thing

WEB = {"port": 80, "protocol": "TCP", "name": "web"}
DNS = {"port": 53, "protocol": "UDP", "name": "dns"}


def refusal(world: World, manager: str, config: dict[str, Any], **options: Any) -> ApiError:
    before = world.live
    with pytest.raises(ApiError) as caught:
        world.apply(manager, config, **options)
    assert world.live is before
    return caught.value


class TestFirstApply:
    def test_it_creates_the_object_and_owns_exactly_what_it_declared(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1, "nested": {"a": "x"}, "ports": [WEB]}, labels={"app": "x"}))
        assert world.live == {
            **thing({"replicas": 1, "nested": {"a": "x"}, "ports": [WEB]}),
            "metadata": {
                "name": "one",
                "namespace": "default",
                "labels": {"app": "x"},
                "managedFields": [
                    {
                        "manager": "a",
                        "operation": "Apply",
                        "apiVersion": API,
                        "time": "2026-01-01T00:00:01Z",
                        "fieldsType": "FieldsV1",
                        "fieldsV1": {
                            "f:metadata": {"f:labels": {"f:app": {}}},
                            "f:spec": {
                                "f:nested": {"f:a": {}},
                                "f:ports": {
                                    'k:{"port":80,"protocol":"TCP"}': {
                                        ".": {},
                                        "f:name": {},
                                        "f:port": {},
                                        "f:protocol": {},
                                    }
                                },
                                "f:replicas": {},
                            },
                        },
                    }
                ],
            },
        }

    def test_on_an_object_nobody_owns_what_was_there_gets_an_owner(self, world: World) -> None:
        world.live = thing({"replicas": 1, "image": "v1"})
        world.apply("a", thing({"replicas": 1}))
        assert world.owned("before-first-apply") == {"f:spec": {".": {}, "f:image": {}, "f:replicas": {}}}
        assert world.owned("a") == {"f:spec": {"f:replicas": {}}}

    def test_an_empty_map_or_null_is_declared_but_an_empty_set_is_not(self, world: World) -> None:
        world.apply("a", thing({"nested": {}, "image": None, "zones": []}))
        assert world.owned("a") == {"f:spec": {"f:image": {}, "f:nested": {}}}


class TestAgain:
    def test_applying_the_same_changes_nothing_at_all(self, world: World) -> None:
        config = thing({"replicas": 1, "ports": [WEB, DNS], "zones": ["a"]})
        first = world.apply("a", config)
        assert world.apply("a", config) is first

    def test_the_time_moves_only_when_something_changed(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1}))
        world.apply("a", thing({"replicas": 2}))
        assert world.entry("a")["time"] == "2026-01-01T00:00:02Z"

    def test_what_is_no_longer_declared_goes_away(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1, "image": "x", "nested": {"a": "1"}, "env": {"A": "1", "B": "2"}}))
        world.apply("a", thing({"replicas": 1, "env": {"B": "2"}}))
        assert world.live["spec"] == {"replicas": 1, "env": {"B": "2"}}  # type: ignore[index]

    def test_items_go_away_one_by_one(self, world: World) -> None:
        world.apply("a", thing({"ports": [WEB, DNS], "zones": ["a", "b"]}))
        world.apply("a", thing({"ports": [DNS], "zones": ["b"]}))
        assert world.live["spec"] == {"ports": [DNS], "zones": ["b"]}  # type: ignore[index]

    def test_an_item_goes_with_what_the_server_added_to_it(self, world: World) -> None:
        world.apply("a", thing({"ports": [WEB, DNS]}))
        world.live["spec"]["ports"][0]["note"] = "defaulted by the server, owned by nobody"  # type: ignore[index]
        world.apply("a", thing({"ports": [DNS]}))
        assert world.live["spec"] == {"ports": [DNS]}  # type: ignore[index]

    def test_an_item_that_another_manager_also_declared_stays_with_its_part(self, world: World) -> None:
        world.apply("a", thing({"ports": [WEB]}))
        world.apply("b", thing({"ports": [{"port": 80, "protocol": "TCP", "note": "b"}]}))
        world.apply("a", thing())
        assert world.live["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "note": "b"}]  # type: ignore[index]
        assert world.owners() == ["b"]

    def test_what_a_plain_writer_took_over_stays(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1, "image": "x"}))
        world.edit("hpa", lambda o: o["spec"].update(replicas=5))
        assert world.owned("a") == {"f:spec": {"f:image": {}}}
        world.apply("a", thing({"image": "x"}))
        assert world.live["spec"] == {"replicas": 5, "image": "x"}  # type: ignore[index]

    def test_a_structure_still_declared_but_emptied_stays_for_the_defaulter_to_fill(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1, "nested": {"a": "x"}}))
        world.apply("a", thing({"nested": {}}))
        assert world.live["spec"] == {"nested": {}}  # type: ignore[index]
        world.apply("a", thing({}))
        assert world.live["spec"] == {}  # type: ignore[index]

    def test_a_structure_that_is_emptied_keeps_what_others_own_in_it(self, world: World) -> None:
        world.apply("a", thing({"nested": {"a": "x"}}))
        world.apply("b", thing({"nested": {"b": "y"}}))
        world.apply("a", thing({"nested": {}}))
        assert world.live["spec"] == {"nested": {"b": "y"}}  # type: ignore[index]

    def test_applying_in_another_version_prunes_by_the_version_of_the_last_time(self, world: World) -> None:
        world.schemas["example.com/v2"] = SCHEMA
        world.apply("a", thing({"replicas": 1, "image": "x"}))
        world.apply("a", {**thing({"replicas": 1}), "apiVersion": "example.com/v2"}, api_version="example.com/v2")
        assert world.live["spec"] == {"replicas": 1}  # type: ignore[index]
        assert [entry["apiVersion"] for entry in world.entries()] == ["example.com/v2"]


class TestOrderOfItems:
    @pytest.mark.parametrize(
        ("live", "applied", "merged"),
        [
            ("abc", "b", "abc"),
            ("abc", "cb", "acb"),
            ("abc", "xb", "axbc"),
            ("ac", "bd", "acbd"),
            ("abcd", "da", "bcda"),
        ],
    )
    def test_shared_items_come_as_applied_and_the_rest_keeps_its_place(
        self, world: World, live: str, applied: str, merged: str
    ) -> None:
        world.update("a", thing({"zones": list(live)}))
        world.apply("b", thing({"zones": list(applied)}))
        assert "".join(world.live["spec"]["zones"]) == merged  # type: ignore[index]


class TestConflicts:
    def test_one_conflict_names_the_manager_and_the_field(self, world: World) -> None:
        world.update("kubectl-client-side-apply", thing({"replicas": 1}))
        error = refusal(world, "b", thing({"replicas": 2}))
        who = 'conflict with "kubectl-client-side-apply" using example.com/v1'
        assert (error.code, error.reason) == (409, "Conflict")
        assert error.message == f"Apply failed with 1 conflict: {who}: .spec.replicas"
        assert error.causes == [{"reason": "FieldManagerConflict", "message": who, "field": ".spec.replicas"}]

    def test_several_conflicts_are_listed_by_manager(self, world: World) -> None:
        world.apply("b", thing({"image": "x", "ports": [WEB, DNS], "zones": ["z"]}))
        world.edit("a", lambda o: o["spec"].update(replicas=1))
        world.edit("s", lambda o: o.update(status={"phase": "x"}), subresource="status")
        changed = [{**WEB, "name": "w"}, {**DNS, "name": "d"}]
        error = refusal(world, "c", thing({"image": "y", "replicas": 2, "ports": changed}, status={"phase": "y"}))
        assert error.message == "\n".join(
            [
                'Apply failed with 5 conflicts: conflicts with "a" using example.com/v1:',
                "- .spec.replicas",
                'conflicts with "b":',
                "- .spec.image",
                '- .spec.ports[port=53,protocol="UDP"].name',
                '- .spec.ports[port=80,protocol="TCP"].name',
                'conflicts with "s" with subresource "status" using example.com/v1:',
                "- .status.phase",
            ]
        )
        assert len(error.causes) == 5

    def test_force_takes_the_field_and_its_owner_loses_it(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1, "image": "x"}))
        world.apply("b", thing({"replicas": 2}), force=True)
        assert world.owned("a") == {"f:spec": {"f:image": {}}}
        assert world.owned("b") == {"f:spec": {"f:replicas": {}}}
        assert world.live["spec"]["replicas"] == 2  # type: ignore[index]

    def test_the_same_value_is_shared_and_stays_until_the_last_gives_it_up(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1}))
        world.apply("b", thing({"replicas": 1}))
        assert world.owned("a") == world.owned("b") == {"f:spec": {"f:replicas": {}}}
        assert "time" not in world.entry("b"), "upstream gives no time to an apply that changed no value"
        world.apply("a", thing())
        assert world.live["spec"] == {"replicas": 1}  # type: ignore[index]
        world.apply("b", thing())
        assert "spec" not in world.live  # type: ignore[operator]

    def test_atomic_parts_conflict_as_a_whole(self, world: World) -> None:
        world.apply("a", thing({"selector": {"x": "1"}, "args": ["1"]}))
        error = refusal(world, "b", thing({"selector": {"y": "1"}, "args": ["2"]}))
        assert [cause["field"] for cause in error.causes] == [".spec.args", ".spec.selector"]

    def test_what_cannot_be_written_this_way_is_no_conflict(self, world: World) -> None:
        world.apply("a", thing({"replicas": 1}, status={"phase": "x"}))
        world.apply("b", thing({"image": "x"}, status={"phase": "y"}), reset=ALL_BUT_STATUS)
        assert world.owned("b") == {"f:spec": {"f:image": {}}}


class TestRefusals:
    def test_managed_fields_may_not_be_applied(self, world: World) -> None:
        config = thing({})
        config["metadata"]["managedFields"] = []
        error = refusal(world, "a", config)
        assert (error.code, error.message) == (400, "metadata.managedFields must be nil")

    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            ({"ports": [WEB, {**WEB, "name": "w"}]}, '.spec.ports: duplicate entries for key [port=80,protocol="TCP"]'),
            ({"zones": ["a", "a"]}, '.spec.zones: duplicate entries for key [="a"]'),
            ({"unknown": 1}, ".spec.unknown: field not declared in schema"),
            ({"replicas": "x"}, ".spec.replicas: expected numeric (int or float), got string"),
            ({"image": 5}, ".spec.image: expected string, got &value.valueUnstructured{Value:5}"),
            ({"nested": "x"}, ".spec.nested: expected map, got &{x}"),
            ({"args": {"a": 1}}, ".spec.args: expected list, got &{map[a:1]}"),
            ({"args": [1]}, ".spec.args[0]: expected string, got &value.valueUnstructured{Value:1}"),
            (
                {"zones": [None]},
                ".spec.zones: element 0: associative list without keys has an element that's an explicit null",
            ),
            ({"ports": [1]}, ".spec.ports: element 0: associative list with keys may not have non-map elements"),
            (
                {"unknown": 1, "image": 5},
                ".spec.unknown: field not declared in schema",
            ),
            (
                {"image": True, "replicas": False},
                "errors:\n  .spec.image: expected string, got &value.valueUnstructured{Value:true}\n"
                "  .spec.replicas: expected numeric (int or float), got bool",
            ),
        ],
    )
    def test_a_configuration_that_does_not_fit_the_type(self, world: World, spec: dict[str, Any], why: str) -> None:
        error = refusal(world, "a", thing(spec))
        where = "default/one; example.com/v1, Kind=Thing"
        assert error.message == f"failed to create typed patch object ({where}): {why}"


class TestFromClientSideApply:
    """`kubectl apply` first, `kubectl apply --server-side` afterwards."""

    def created(self, world: World, spec: dict[str, Any]) -> None:
        text = json.dumps(thing(spec))
        world.update("kubectl-client-side-apply", thing(spec, annotations={LAST_APPLIED: text}))

    def test_kubectl_takes_over_what_client_side_apply_wrote(self, world: World) -> None:
        self.created(world, {"replicas": 1, "image": "x"})
        world.apply("kubectl", thing({"replicas": 2, "image": "x"}))
        assert world.live["spec"]["replicas"] == 2  # type: ignore[index]
        assert world.owned("kubectl") == {"f:spec": {"f:image": {}, "f:replicas": {}}}

    def test_the_annotation_is_kept_in_step(self, world: World) -> None:
        self.created(world, {"replicas": 1})
        world.apply("kubectl", thing({"replicas": 2, "image": "<"}))
        assert world.live["metadata"]["annotations"][LAST_APPLIED] == (  # type: ignore[index]
            '{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one","namespace":"default"},'
            '"spec":{"image":"\\u003c","replicas":2}}\n'
        )

    def test_what_changed_since_is_a_conflict(self, world: World) -> None:
        self.created(world, {"replicas": 1, "image": "x"})
        world.edit("hpa", lambda o: o["spec"].update(replicas=5))
        error = refusal(world, "kubectl", thing({"replicas": 2, "image": "y"}))
        assert error.message == 'Apply failed with 1 conflict: conflict with "hpa" using example.com/v1: .spec.replicas'

    def test_other_managers_get_no_such_privilege(self, world: World) -> None:
        self.created(world, {"replicas": 1})
        refusal(world, "flux", thing({"replicas": 2}))

    def test_without_the_annotation_none_is_added(self, world: World) -> None:
        world.apply("kubectl", thing({"replicas": 1}))
        assert "annotations" not in world.live["metadata"]  # type: ignore[index]

    def test_an_annotation_that_would_be_too_big_is_dropped(self, world: World) -> None:
        self.created(world, {"image": "x"})
        world.apply("kubectl", thing({"image": "x" * 262144}), force=True)
        assert world.live["metadata"]["annotations"] == {}  # type: ignore[index]
