"""Events: one object in two groups, kept for an hour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import Api, Object
from .inprocess import inside

CORE = "/api/v1/namespaces/{}/events"
MODERN = "/apis/events.k8s.io/v1/namespaces/{}/events"


def core_event(namespace: str, name: str = "e", **fields: Any) -> Object:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "ConfigMap", "name": "thing", "namespace": namespace, "uid": "u-1"},
        "reason": "Done",
        "message": "it was done",
        "type": "Normal",
        "source": {"component": "doer", "host": "here"},
        "count": 1,
        **fields,
    }


def modern_event(namespace: str, name: str = "e", **fields: Any) -> Object:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/doer",
        "reportingInstance": "doer-1",
        "action": "Doing",
        "reason": "Done",
        "note": "it was done",
        "type": "Normal",
        "regarding": {"kind": "ConfigMap", "name": "thing", "namespace": namespace},
        **fields,
    }


@pytest.fixture(autouse=True)
def whole_cluster(api: Api) -> None:
    if not api.serves("v1", "replicationcontrollers"):
        pytest.skip("an extension server stores events as plain data")


def test_a_core_event_is_seen_in_the_new_group(api: Api, namespace: str) -> None:
    made = api.post(CORE.format(namespace), core_event(namespace)).expect(201)
    seen = api.get(MODERN.format(namespace) + "/e").expect(200)
    assert seen["metadata"]["uid"] == made["metadata"]["uid"]
    assert seen["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert (seen["kind"], seen["apiVersion"]) == ("Event", "events.k8s.io/v1")
    assert seen["regarding"] == made["involvedObject"]
    assert (seen["note"], seen["reason"], seen["type"]) == ("it was done", "Done", "Normal")
    assert (seen["deprecatedSource"], seen["deprecatedCount"]) == ({"component": "doer", "host": "here"}, 1)


def test_an_event_of_the_new_group_is_seen_in_the_core(api: Api, namespace: str) -> None:
    made = api.post(MODERN.format(namespace), modern_event(namespace)).expect(201)
    seen = api.get(CORE.format(namespace) + "/e").expect(200)
    assert seen["metadata"]["uid"] == made["metadata"]["uid"]
    assert (seen["message"], seen["reportingComponent"], seen["action"]) == ("it was done", "example.com/doer", "Doing")
    assert seen["involvedObject"]["name"] == "thing"
    assert seen["eventTime"] == "2026-01-01T00:00:00.000000Z"


def test_both_groups_list_the_same_events(api: Api, namespace: str) -> None:
    api.post(CORE.format(namespace), core_event(namespace, "a")).expect(201)
    api.post(MODERN.format(namespace), modern_event(namespace, "b")).expect(201)
    for path in (CORE, MODERN):
        assert [e["metadata"]["name"] for e in api.get(path.format(namespace)).expect(200)["items"]] == ["a", "b"]


def test_both_groups_watch_the_same_events(api: Api, namespace: str) -> None:
    start = api.get(CORE.format(namespace)).expect(200)["metadata"]["resourceVersion"]
    api.post(CORE.format(namespace), core_event(namespace, "a")).expect(201)
    api.delete(MODERN.format(namespace) + "/a").expect(200)
    for path, field in ((CORE, "involvedObject"), (MODERN, "regarding")):
        events = list(api.watch(path.format(namespace), resourceVersion=start, timeoutSeconds=1))
        assert [e["type"] for e in events] == ["ADDED", "DELETED"]
        assert all(e["object"][field]["name"] == "thing" for e in events)


def test_events_are_selected_by_what_they_are_about(api: Api, namespace: str) -> None:
    api.post(CORE.format(namespace), core_event(namespace, "a")).expect(201)
    other = core_event(namespace, "b", type="Warning", reason="Failed")
    other["involvedObject"] = {**other["involvedObject"], "name": "other"}
    api.post(CORE.format(namespace), other).expect(201)

    def names(path: str, selector: str) -> list[str]:
        body = api.get(path.format(namespace), fieldSelector=selector).expect(200)
        return [e["metadata"]["name"] for e in body["items"]]

    assert names(CORE, "involvedObject.name=thing") == ["a"]
    assert names(CORE, "involvedObject.name=other,involvedObject.kind=ConfigMap") == ["b"]
    assert names(CORE, "type=Warning") == ["b"]
    assert names(CORE, "reason!=Failed") == ["a"]
    assert names(CORE, "source=doer") == ["a", "b"]
    assert names(MODERN, "regarding.name=other") == ["b"]


def test_a_series_counts_on(api: Api, namespace: str) -> None:
    path = MODERN.format(namespace) + "/e"
    api.post(MODERN.format(namespace), modern_event(namespace)).expect(201)
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}
    assert api.patch(path, {"series": series}).expect(200)["series"] == series
    assert api.patch(path, {"series": {"count": 3}}).expect(200)["series"]["count"] == 3
    assert api.get(CORE.format(namespace) + "/e").expect(200)["series"]["count"] == 3


def test_an_old_recorder_counts_on(api: Api, namespace: str) -> None:
    path = CORE.format(namespace) + "/e"
    api.post(CORE.format(namespace), core_event(namespace, lastTimestamp="2026-01-01T00:00:00Z")).expect(201)
    body = api.patch(path, {"count": 2, "lastTimestamp": "2026-01-01T00:01:00Z"}).expect(200)
    assert (body["count"], body["lastTimestamp"]) == (2, "2026-01-01T00:01:00Z")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"eventTime": None}, "eventTime"),
        ({"reportingController": ""}, "reportingController"),
        ({"reportingInstance": ""}, "reportingInstance"),
        ({"action": ""}, "action"),
        ({"reason": ""}, "reason"),
        ({"type": "Odd"}, "type"),
        ({"note": "x" * 1025}, "message"),
        ({"series": {"count": 1, "lastObservedTime": "2026-01-01T00:05:00.000000Z"}}, "series.count"),
        ({"deprecatedCount": 3}, "count"),
    ],
)
def test_the_new_group_asks_for_more(api: Api, namespace: str, fields: Object, field: str) -> None:
    answer = api.post(MODERN.format(namespace), modern_event(namespace, **fields))
    answer.expect(422)
    assert any(found == field for _, found in answer.causes), answer.body


def test_an_event_is_in_the_namespace_of_what_it_is_about(api: Api, namespace: str) -> None:
    wrong = core_event("default")
    body = api.post(CORE.format(namespace), wrong).expect(422)
    assert "involvedObject.namespace" in body["message"]
    assert "does not match event.namespace" in body["message"]


def test_the_table_of_events_tells_what_happened(api: Api, namespace: str) -> None:
    api.post(CORE.format(namespace), core_event(namespace, lastTimestamp="2026-01-01T00:00:00Z")).expect(201)
    api.post(MODERN.format(namespace), modern_event(namespace, "f")).expect(201)
    for path in (CORE, MODERN):
        table = api.get(
            path.format(namespace), headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        ).expect(200)
        cells = [
            dict(zip((c["name"] for c in table["columnDefinitions"]), row["cells"], strict=True)) for row in table["rows"]
        ]
        assert [(c["Type"], c["Reason"], c["Object"], c["Message"]) for c in cells] == [
            ("Normal", "Done", "configmap/thing", "it was done")
        ] * 2
        assert [c["Name"] for c in cells] == ["e", "f"]


# What takes an hour


async def test_an_event_fades_an_hour_after_it_was_last_written(tmp_path: Path) -> None:
    path = CORE.format("default")
    async with inside(tmp_path) as server:
        for name in ("once", "again"):
            assert (await server.ask("POST", path, core_event("default", name)))[0] == 201
        server.clock.seconds += 3000
        await server.plane.housekeeping.sweep()
        status, body = await server.ask("GET", f"{path}/again")
        assert status == 200
        assert (await server.ask("PUT", f"{path}/again", {**body, "count": 2}))[0] == 200
        server.clock.seconds += 601
        await server.plane.housekeeping.sweep()
        assert (await server.ask("GET", f"{path}/once"))[0] == 404
        assert (await server.ask("GET", f"{path}/again"))[0] == 200
        server.clock.seconds += 3000
        await server.plane.housekeeping.sweep()
        assert (await server.ask("GET", f"{path}/again"))[0] == 404


async def test_other_objects_do_not_fade(tmp_path: Path) -> None:
    async with inside(tmp_path) as server:
        await server.ask("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "stays"}})
        server.clock.seconds += 100_000
        await server.plane.housekeeping.sweep()
        assert (await server.ask("GET", "/api/v1/namespaces/default/configmaps/stays"))[0] == 200
