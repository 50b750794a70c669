"""Plain writes: creates, updates and patches."""

from __future__ import annotations

from typing import Any

import pytest

from homeostat.api.builtin.types import schema_of
from homeostat.api.fields import ALL_BUT_STATUS, STATUS_ONLY, keep_times, track
from homeostat.model.schema import Schema

from .world import API, SCHEMA, World, thing


def owned_after_create(kind: Schema, obj: dict[str, Any]) -> Any:
    track(
        kind,
        None,
        obj,
        manager="m",
        api_version=obj["apiVersion"],
        now="2026-01-01T00:00:00Z",
        schema_for_version=lambda _: kind,
    )
    return obj["metadata"]["managedFields"][0]["fieldsV1"]


def test_the_creator_owns_all_it_sent_but_not_what_identifies_the_object(world: World) -> None:
    world.update("creator", thing({"replicas": 1, "args": ["a"]}, labels={"app": "x"}))
    assert world.entries() == [
        {
            "manager": "creator",
            "operation": "Update",
            "apiVersion": API,
            "time": "2026-01-01T00:00:01Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {".": {}, "f:args": {}, "f:replicas": {}},
            },
        }
    ]


def test_items_of_keyed_lists_and_sets_are_owned_one_by_one(world: World) -> None:
    world.update("creator", thing({"zones": ["b", "a<b"], "ports": [{"port": 80, "name": "web"}]}))
    assert world.owned("creator")["f:spec"] == {
        ".": {},
        "f:ports": {
            ".": {},
            'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}},
        },
        "f:zones": {".": {}, 'v:"a\\u003cb"': {}, 'v:"b"': {}},
    }


def test_what_nobody_described_is_owned_key_by_key_with_lists_as_a_whole(world: World) -> None:
    world.update("creator", thing({"free": {"x": {"y": 1}, "l": [{"name": "a"}]}}))
    assert world.owned("creator")["f:spec"]["f:free"] == {".": {}, "f:l": {}, "f:x": {".": {}, "f:y": {}}}


def test_a_changed_field_goes_to_who_changed_it(world: World) -> None:
    world.update("a", thing({"replicas": 1, "image": "v1"}))
    world.edit("b", lambda o: o["spec"].update(replicas=2))
    assert world.owned("a") == {"f:spec": {".": {}, "f:image": {}}}
    assert world.owned("b") == {"f:spec": {"f:replicas": {}}}
    assert world.entry("a")["time"].endswith(":01Z")
    assert world.entry("b")["time"].endswith(":02Z")


def test_a_removed_field_is_owned_by_nobody(world: World) -> None:
    world.update("a", thing({"replicas": 1, "image": "v1"}))
    world.edit("b", lambda o: o["spec"].pop("image"))
    assert world.owners() == ["a"]
    assert world.owned("a") == {"f:spec": {".": {}, "f:replicas": {}}}
    assert world.entry("a")["time"].endswith(":01Z")


def test_a_manager_that_owns_nothing_any_more_is_forgotten(world: World) -> None:
    world.update("a", thing({"image": "v1"}))
    world.edit("b", lambda o: o["spec"].update(image="v2"))
    world.edit("c", lambda o: o["spec"].update(image="v3"))
    assert world.owners() == ["a", "c"]


def test_a_write_that_changes_nothing_leaves_everything_as_it_is(world: World) -> None:
    world.update("a", thing({"replicas": 1}))
    before = world.entries()
    world.edit("b", lambda o: None)
    assert world.entries() == before


def test_one_and_true_are_not_the_same(world: World) -> None:
    world.update("a", thing({"free": {"x": 1}}))
    world.edit("b", lambda o: o["spec"]["free"].update(x=True))
    assert world.owned("b") == {"f:spec": {"f:free": {"f:x": {}}}}


def test_one_and_one_point_zero_are_the_same(world: World) -> None:
    world.update("a", thing({"free": {"x": 1, "y": 2}}))
    world.edit("b", lambda o: o["spec"]["free"].update(x=1.0))
    assert world.owners() == ["a"]


def test_a_null_that_becomes_a_map_gives_away_what_is_in_it(world: World) -> None:
    world.update("a", thing({"free": {"x": None}}))
    world.edit("b", lambda o: o["spec"]["free"].update(x={"y": 1}))
    assert world.owned("a")["f:spec"]["f:free"] == {".": {}, "f:x": {}}
    assert world.owned("b") == {"f:spec": {"f:free": {"f:x": {"f:y": {}}}}}


def test_a_scalar_that_becomes_a_map_changes_hands(world: World) -> None:
    world.update("a", thing({"free": {"x": 1}}))
    world.edit("b", lambda o: o["spec"]["free"].update(x={"y": 1}))
    assert world.owned("a")["f:spec"]["f:free"] == {}
    assert world.owned("b") == {"f:spec": {"f:free": {"f:x": {".": {}, "f:y": {}}}}}


def test_an_atomic_map_changes_hands_as_a_whole(world: World) -> None:
    world.update("a", thing({"selector": {"x": "1", "y": "2"}}))
    world.edit("b", lambda o: o["spec"]["selector"].update(x="3"))
    assert world.owned("b") == {"f:spec": {"f:selector": {}}}
    assert world.owned("a") == {"f:spec": {}}


def test_status_and_the_rest_have_owners_apart(world: World) -> None:
    world.update("a", thing({"replicas": 1}, status={"phase": "ignored"}), reset=ALL_BUT_STATUS)
    assert world.owned("a") == {"f:spec": {".": {}, "f:replicas": {}}}

    def everything(o: dict[str, Any]) -> None:
        o["status"] = {"phase": "Ready"}
        o["spec"]["replicas"] = 9
        o["metadata"]["labels"] = {"x": "y"}

    world.live.pop("status")  # type: ignore[union-attr]
    world.edit("b", everything, subresource="status", reset=STATUS_ONLY)
    assert world.owned("b", subresource="status") == {"f:status": {".": {}, "f:phase": {}}}
    assert world.owned("a") == {"f:spec": {".": {}, "f:replicas": {}}}


@pytest.mark.parametrize("wish", [[], [{}]])
def test_a_client_can_have_the_owners_forgotten_and_nothing_is_tracked_until_apply(
    world: World, wish: list[Any]
) -> None:
    world.update("a", thing({"replicas": 1}))
    world.edit("b", lambda o: o["metadata"].update(managedFields=wish))
    assert "managedFields" not in world.live["metadata"]  # type: ignore[index]
    world.edit("b", lambda o: o["spec"].update(replicas=2))
    assert world.entries() == []


def test_a_client_that_drops_or_garbles_the_list_does_not_lose_it(world: World) -> None:
    world.update("a", thing({"replicas": 1}))
    kept = world.entries()
    world.edit("b", lambda o: o["metadata"].pop("managedFields"))
    assert world.entries() == kept
    world.edit("b", lambda o: o["metadata"].update(managedFields=[{"operation": "Steal"}]))
    assert world.entries() == kept


def test_a_client_may_write_the_list_itself(world: World) -> None:
    world.update("a", thing({"replicas": 1}))
    mine = {**world.entries()[0], "manager": "z", "fieldsV1": {"f:spec": {"f:replicas": {".": {}}}, "x:new": {}}}
    world.edit("b", lambda o: o["metadata"].update(managedFields=[mine]))
    assert world.owned("z") == {"f:spec": {"f:replicas": {}}}


def test_through_a_subresource_the_list_cannot_be_written(world: World) -> None:
    world.update("a", thing({"replicas": 1}))
    kept = world.entries()
    world.edit("b", lambda o: o["metadata"].update(managedFields=[]), subresource="status")
    assert world.entries() == kept


def test_more_than_ten_plain_writers_are_put_together_oldest_first(world: World) -> None:
    world.update("w00", thing({"free": {}}))
    for n in range(1, 12):
        world.edit(f"w{n:02}", lambda o, n=n: o["spec"]["free"].update({f"x{n:02}": n}))
    owners = world.owners()
    assert len(owners) == 10
    assert owners[0] == "ancient-changes"
    assert owners[1:] == [f"w{n:02}" for n in range(3, 12)]
    bucket = world.entry("ancient-changes")
    assert bucket["time"] == "2026-01-01T00:00:03Z"
    assert bucket["fieldsV1"] == {"f:spec": {".": {}, "f:free": {".": {}, "f:x01": {}, "f:x02": {}}}}


def test_entries_are_sorted_by_operation_then_time_then_manager(world: World) -> None:
    world.update("z", thing({"replicas": 1}))
    world.edit("a", lambda o: o["spec"].update(image="x"))
    world.apply("m", thing({"env": {"A": "1"}}))
    assert [(e["operation"], e["manager"]) for e in world.entries()] == [
        ("Apply", "m"),
        ("Update", "z"),
        ("Update", "a"),
    ]


def test_a_nameless_writer_is_unknown(world: World) -> None:
    world.update("", thing({"replicas": 1}))
    assert world.owners() == ["unknown"]


def test_an_object_that_its_type_cannot_index_keeps_its_owners(world: World) -> None:
    world.update("a", thing({"zones": ["x"]}))
    kept = world.entries()
    world.edit("b", lambda o: o["spec"].update(zones=[{"not": "scalar"}]))
    assert world.entries() == kept


def test_entries_of_a_version_that_is_gone_are_dropped(world: World) -> None:
    world.schemas["example.com/v0"] = SCHEMA
    world.update("old", thing({"replicas": 1, "image": "a"}), api_version="example.com/v0")
    world.edit("new", lambda o: o["spec"].update(replicas=2))
    assert world.owners() == ["old", "new"]
    del world.schemas["example.com/v0"]
    world.edit("new", lambda o: o["spec"].update(replicas=3))
    assert world.owners() == ["new"]


def test_what_became_atomic_is_owned_as_a_whole(world: World) -> None:
    world.update("a", thing({"nested": {"a": "1", "b": "2"}}))
    raw = {**SCHEMA.raw, "properties": {**SCHEMA.raw["properties"]}}
    spec = dict(raw["properties"]["spec"])
    spec["properties"] = {
        **spec["properties"],
        "nested": {**spec["properties"]["nested"], "x-kubernetes-map-type": "atomic"},
    }
    raw["properties"]["spec"] = spec
    world.schemas[API] = Schema(raw)
    world.edit("b", lambda o: o["spec"].update(replicas=1))
    assert world.owned("a")["f:spec"]["f:nested"] == {}


def test_only_times_that_differ_are_set_back() -> None:
    def stamped(time: str, replicas: int = 1) -> dict[str, Any]:
        obj = thing({"replicas": replicas})
        obj["metadata"]["managedFields"] = [{"manager": "a", "time": time, "fieldsV1": {}}]
        return obj

    new = stamped("2")
    assert keep_times(stamped("1"), new)
    assert new["metadata"]["managedFields"][0]["time"] == "1"
    changed = stamped("2", replicas=2)
    assert not keep_times(stamped("1"), changed)
    assert changed["metadata"]["managedFields"][0]["time"] == "2"


class TestBuiltInKinds:
    """Go structs are never absent: their owner is whoever set something in them."""

    def test_a_pod(self) -> None:
        obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {"run": "nginx"}},
            "spec": {
                "containers": [
                    {
                        "name": "nginx",
                        "image": "nginx",
                        "resources": {},
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    }
                ],
                "restartPolicy": "Always",
                "securityContext": {},
            },
        }
        assert owned_after_create(schema_of("v1", "Pod"), obj) == {
            "f:metadata": {"f:labels": {".": {}, "f:run": {}}},
            "f:spec": {
                "f:containers": {
                    'k:{"name":"nginx"}': {
                        ".": {},
                        "f:image": {},
                        "f:name": {},
                        "f:ports": {
                            ".": {},
                            'k:{"containerPort":80,"protocol":"TCP"}': {
                                ".": {},
                                "f:containerPort": {},
                                "f:protocol": {},
                            },
                        },
                        "f:resources": {},
                    }
                },
                "f:restartPolicy": {},
                "f:securityContext": {},
            },
        }

    def test_a_deployment(self) -> None:
        obj = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "x"}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
                "template": {
                    "metadata": {"labels": {"app": "x"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        }
        assert owned_after_create(schema_of("apps/v1", "Deployment"), obj) == {
            "f:spec": {
                "f:replicas": {},
                "f:selector": {},
                "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
                "f:template": {
                    "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                    "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}}}},
                },
            }
        }

    def test_the_template_of_a_replication_controller_is_a_pointer(self) -> None:
        template = {"spec": {"containers": [{"name": "c"}]}}
        obj = {
            "apiVersion": "v1",
            "kind": "ReplicationController",
            "metadata": {"name": "r"},
            "spec": {"template": template},
        }
        fields = owned_after_create(schema_of("v1", "ReplicationController"), obj)
        assert fields["f:spec"]["f:template"].keys() == {".", "f:spec"}

    def test_nulls_and_empty_texts_that_go_always_writes_belong_to_nobody(self) -> None:
        obj = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "e"},
            "reason": "Started",
            "eventTime": None,
            "reportingComponent": "",
            "reportingInstance": "",
        }
        assert owned_after_create(schema_of("v1", "Event"), obj) == {"f:reason": {}}

    def test_a_config_map(self) -> None:
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "v"}}
        assert owned_after_create(schema_of("v1", "ConfigMap"), obj) == {"f:data": {".": {}, "f:k": {}}}
