"""Watch: every change from a revision on, in order, complete, none twice, whoever else is watching."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Api, Kind, Object, eventually, undefine

PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


@pytest.fixture
def room(api: Api, namespace: str) -> str:
    """The path of the config maps of a fresh namespace, once a cluster has put its own there."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    if api.get("/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt").status == 200:
        eventually(lambda: api.get(f"{path}/kube-root-ca.crt").status == 200)
    return path


def config(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def present(api: Api, path: str) -> str:
    return str(api.get(path, limit=1).expect(200)["metadata"]["resourceVersion"])


def ours(events: Iterator[Object]) -> Iterator[Object]:
    """Without what a cluster puts into every namespace."""
    return (e for e in events if e["object"]["metadata"].get("name") != "kube-root-ca.crt")


def brief(events: Any) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]


def take(events: Iterator[Object], count: int) -> list[Object]:
    return list(itertools.islice(events, count))


# From where


def test_without_a_version_a_watch_begins_with_what_is_there(api: Api, room: str) -> None:
    api.post(room, config("a")).expect(201)
    api.post(room, config("b")).expect(201)
    for version in (None, "", "0"):
        watch = ours(api.watch(room, resourceVersion=version, timeoutSeconds=5))
        assert sorted(brief(take(watch, 2))) == [("ADDED", "a"), ("ADDED", "b")]


def test_from_a_version_only_later_changes_are_told(api: Api, room: str) -> None:
    start = api.post(room, config("a")).expect(201)["metadata"]["resourceVersion"]
    api.post(room, config("b")).expect(201)
    assert brief(take(api.watch(room, resourceVersion=start, timeoutSeconds=5), 1)) == [("ADDED", "b")]


def test_events_carry_the_object_as_it_was_then(api: Api, room: str) -> None:
    start = present(api, room)
    made = api.post(room, {**config("a"), "data": {"step": "1"}}).expect(201)
    changed = api.patch(f"{room}/a", {"data": {"step": "2"}}).expect(200)
    api.delete(f"{room}/a").expect(200)
    events = take(api.watch(room, resourceVersion=start, timeoutSeconds=5), 3)
    assert brief(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert events[0]["object"] == made
    assert events[1]["object"] == changed
    last = events[2]["object"]
    assert last["data"] == {"step": "2"}
    assert last["metadata"]["uid"] == made["metadata"]["uid"]
    assert (last["kind"], last["apiVersion"]) == ("ConfigMap", "v1")


def test_a_deletion_has_a_version_of_its_own(api: Api, room: str) -> None:
    made = api.post(room, config("a")).expect(201)["metadata"]["resourceVersion"]
    api.delete(f"{room}/a").expect(200)
    (event,) = take(api.watch(room, resourceVersion=made, timeoutSeconds=5), 1)
    assert event["type"] == "DELETED"
    gone = event["object"]["metadata"]["resourceVersion"]
    assert int(gone) > int(made)
    api.post(room, config("b")).expect(201)
    assert brief(take(api.watch(room, resourceVersion=gone, timeoutSeconds=5), 1)) == [("ADDED", "b")]


def test_a_change_that_changes_nothing_is_no_event(api: Api, room: str) -> None:
    start = api.post(room, config("a")).expect(201)["metadata"]["resourceVersion"]
    api.patch(f"{room}/a", {"metadata": {"labels": {}}}).expect(200)
    api.patch(f"{room}/a", {"metadata": {"labels": {"x": "y"}}}).expect(200)
    (event,) = take(api.watch(room, resourceVersion=start, timeoutSeconds=5), 1)
    assert event["object"]["metadata"]["labels"] == {"x": "y"}


def test_a_finalizer_shows_as_a_change_before_the_deletion(api: Api, room: str) -> None:
    made = api.post(room, {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}).expect(201)
    api.delete(f"{room}/held").expect(200)
    api.patch(f"{room}/held", {"metadata": {"finalizers": None}}).expect(200)
    events = take(api.watch(room, resourceVersion=made["metadata"]["resourceVersion"], timeoutSeconds=5), 2)
    assert [e["type"] for e in events] == ["MODIFIED", "DELETED"]
    assert all("deletionTimestamp" in e["object"]["metadata"] for e in events)


def test_a_watch_from_the_future_waits(api: Api, room: str) -> None:
    api.post(room, config("a")).expect(201)
    assert list(api.watch(room, resourceVersion="99999999999", timeoutSeconds=1)) == []


def test_a_watch_sees_other_namespaces_only_where_it_asks_for_all(api: Api, namespace: str, room: str) -> None:
    start = present(api, room)
    api.post("/api/v1/namespaces/default/configmaps", config("elsewhere", scope=namespace)).expect(201)
    api.delete("/api/v1/namespaces/default/configmaps/elsewhere").expect(200)
    api.post(room, config("here", scope=namespace)).expect(201)
    assert brief(take(api.watch(room, resourceVersion=start, timeoutSeconds=5), 1)) == [("ADDED", "here")]
    everywhere = api.watch("/api/v1/configmaps", resourceVersion=start, labelSelector=f"scope={namespace}", timeoutSeconds=5)
    assert brief(take(everywhere, 3)) == [("ADDED", "elsewhere"), ("DELETED", "elsewhere"), ("ADDED", "here")]


def test_a_watch_ends_when_its_time_is_over(api: Api, room: str) -> None:
    began = time.monotonic()
    list(api.watch(room, timeoutSeconds=1))
    assert 0.5 < time.monotonic() - began < 4


@pytest.mark.parametrize("where", ["watch/namespaces/{}/configmaps", "watch/namespaces/{}/configmaps/a"])
def test_the_old_path_watches(api: Api, namespace: str, room: str, where: str) -> None:
    for name in ("a", "ab") if where.endswith("/a") else ("a",):
        api.post(room, config(name)).expect(201)
    watch = ours(api.watch("/api/v1/" + where.format(namespace), watch=None, timeoutSeconds=1))
    assert brief(watch) == [("ADDED", "a")]


def test_asking_to_watch_one_object_by_path_just_gets_it(api: Api, room: str) -> None:
    api.post(room, config("a")).expect(201)
    assert api.get(f"{room}/a", watch="true").expect(200)["kind"] == "ConfigMap"


def test_one_object_is_watched_by_its_name(api: Api, room: str) -> None:
    start = present(api, room)
    for name in ("a", "b", "c"):
        api.post(room, config(name)).expect(201)
    api.delete(f"{room}/b").expect(200)
    events = api.watch(room, resourceVersion=start, fieldSelector="metadata.name=b", timeoutSeconds=1)
    assert brief(events) == [("ADDED", "b"), ("DELETED", "b")]


def test_a_number_that_is_none_is_refused(api: Api, room: str) -> None:
    answer = api.get(room, watch="true", timeoutSeconds="long")
    assert answer.expect(400)["message"] == 'strconv.ParseInt: parsing "long": invalid syntax'


# Selectors


def test_entering_a_selector_is_an_addition_and_leaving_it_a_deletion(api: Api, room: str) -> None:
    start = present(api, room)
    api.post(room, config("a", colour="red")).expect(201)
    api.patch(f"{room}/a", {"metadata": {"labels": {"colour": "blue"}}}).expect(200)
    api.patch(f"{room}/a", {"data": {"unseen": "by blue"}}).expect(200)
    left = api.patch(f"{room}/a", {"metadata": {"labels": {"colour": "green"}}}).expect(200)
    api.patch(f"{room}/a", {"data": {"not": "seen"}}).expect(200)
    api.delete(f"{room}/a").expect(200)
    events = list(api.watch(room, resourceVersion=start, labelSelector="colour=blue", timeoutSeconds=1))
    assert [e["type"] for e in events] == ["ADDED", "MODIFIED", "DELETED"]
    gone = events[-1]["object"]
    assert gone["metadata"]["labels"] == {"colour": "blue"}, "what left is told as it last matched"
    assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


def test_selectors_hold_for_the_first_events_too(api: Api, room: str) -> None:
    api.post(room, config("a", colour="red")).expect(201)
    api.post(room, config("b", colour="blue")).expect(201)
    assert brief(api.watch(room, labelSelector="colour=blue", timeoutSeconds=1)) == [("ADDED", "b")]


def test_a_bad_selector_is_refused_before_the_stream_begins(api: Api, room: str) -> None:
    api.get(room, watch="true", labelSelector="a in (b").expect(400)
    api.get(room, watch="true", fieldSelector="data.x=y").expect(400)


# Initial events and bookmarks


def test_initial_events_end_with_a_bookmark(api: Api, room: str) -> None:
    if api.minor < 30:
        pytest.skip("not known to old servers")
    made = api.post(room, config("a")).expect(201)
    watch = ours(api.watch(room, **INITIAL, timeoutSeconds=5))
    first, mark = take(watch, 2)
    assert first["object"] == made
    assert (mark["type"], mark["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(made["metadata"]["resourceVersion"])
    api.post(room, config("b")).expect(201)
    assert brief(take(watch, 1)) == [("ADDED", "b")]


def test_initial_events_without_bookmarks_end_silently(api: Api, room: str) -> None:
    if api.minor < 30:
        pytest.skip("not known to old servers")
    api.post(room, config("a")).expect(201)
    query = {**INITIAL, "allowWatchBookmarks": "false"}
    assert brief(ours(api.watch(room, **query, timeoutSeconds=1))) == [("ADDED", "a")]


def test_initial_events_can_be_declined(api: Api, room: str) -> None:
    if api.minor < 30:
        pytest.skip("not known to old servers")
    api.post(room, config("a")).expect(201)
    query = {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}
    assert brief(api.watch(room, **query, timeoutSeconds=1)) == []


def test_initial_events_not_older_than_the_future_are_an_error_event(api: Api, room: str) -> None:
    if api.minor < 30:
        pytest.skip("not known to old servers")
    (event,) = api.watch(room, **INITIAL, resourceVersion="99999999999", timeoutSeconds=5, timeout=10)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 504, "Timeout")


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        ({"sendInitialEvents": "true"}, ["Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"]),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact", "resourceVersion": "1"},
            [
                "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                'Unsupported value: "Exact": supported values: "NotOlderThan"',
            ],
        ),
        (
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            ["Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"],
        ),
        ({"continue": "abc"}, ["Forbidden: resourceVersionMatch is forbidden when continue is provided"]),
    ],
)
def test_watch_options_that_contradict_each_other_are_refused(
    api: Api, room: str, query: dict[str, str], problems: list[str]
) -> None:
    if api.minor < 30:
        pytest.skip("not known to old servers")
    body = api.get(room, watch="true", **query).expect(422)
    assert [c["message"] for c in body["details"]["causes"]] == problems
    assert {c["field"] for c in body["details"]["causes"]} == {"resourceVersionMatch"}


# Forms


def test_a_watch_of_metadata_has_nothing_else(api: Api, room: str) -> None:
    start = present(api, room)
    api.post(room, {**config("a"), "data": {"x": "y"}}).expect(201)
    api.delete(f"{room}/a").expect(200)
    events = take(api.watch(room, headers=PARTIAL, resourceVersion=start, timeoutSeconds=5), 2)
    assert brief(events) == [("ADDED", "a"), ("DELETED", "a")]
    for event in events:
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert set(event["object"]) == {"kind", "apiVersion", "metadata"}


def test_a_watch_of_tables_names_the_columns_once(api: Api, room: str) -> None:
    start = present(api, room)
    for name in ("a", "b"):
        api.post(room, config(name)).expect(201)
    first, second = (
        e["object"] for e in take(api.watch(room, headers=TABLE, resourceVersion=start, timeoutSeconds=5), 2)
    )
    assert [t["kind"] for t in (first, second)] == ["Table", "Table"]
    assert first["columnDefinitions"][0]["name"] == "Name"
    assert second["columnDefinitions"] is None
    assert [t["rows"][0]["cells"][0] for t in (first, second)] == ["a", "b"]
    assert first["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert first["metadata"]["resourceVersion"] == first["rows"][0]["object"]["metadata"]["resourceVersion"]


def test_a_watch_is_never_yaml(api: Api, room: str) -> None:
    if api.minor < 30:
        pytest.skip("the old server we compare with crashes over it")
    api.get(room, headers={"Accept": "application/yaml"}, watch="true", timeoutSeconds="1").expect(406)


@pytest.mark.parametrize("accept", ["application/yaml,application/json", "application/json;q=0.1,application/yaml;q=0.9"])
def test_whoever_prefers_yaml_gets_no_watch(api: Api, room: str, modern: None, accept: str) -> None:
    api.get(room, headers={"Accept": accept}, watch="true", timeoutSeconds="1").expect(406)


# Order and completeness


def test_every_watcher_sees_every_change_once_and_in_order(api: Api, room: str) -> None:
    start = present(api, room)
    writers, each = 4, 15

    def write(number: int) -> None:
        mine = Api(api.credentials)
        for i in range(each):
            mine.post(room, config(f"w{number}-{i}")).expect(201)
            mine.patch(f"{room}/w{number}-{i}", {"data": {"n": "1"}}).expect(200)
            if i % 3 == 0:
                mine.delete(f"{room}/w{number}-{i}").expect(200)
        mine.close()

    total = writers * (2 * each + len(range(0, each, 3)))
    seen: list[list[tuple[str, str, int]]] = [[] for _ in range(5)]

    def follow(into: list[tuple[str, str, int]]) -> None:
        for e in take(api.watch(room, resourceVersion=start, timeoutSeconds=20, timeout=20), total):
            meta = e["object"]["metadata"]
            into.append((e["type"], meta["name"], int(meta["resourceVersion"])))

    threads = [threading.Thread(target=follow, args=(s,)) for s in seen]
    threads += [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen[0]) == total
    versions = [version for _, _, version in seen[0]]
    assert versions == sorted(set(versions))
    assert all(s == seen[0] for s in seen)


def test_a_watch_resumes_with_no_loss_and_no_doubles(api: Api, room: str) -> None:
    position = present(api, room)
    done = threading.Event()
    count = 60

    def write() -> None:
        mine = Api(api.credentials)
        for i in range(count):
            mine.post(room, config(f"n-{i:03}")).expect(201)
        done.set()
        mine.close()

    writer = threading.Thread(target=write)
    writer.start()
    found: list[str] = []
    while len(found) < count:
        for event in itertools.islice(api.watch(room, resourceVersion=position, timeoutSeconds=5), 7):
            found.append(event["object"]["metadata"]["name"])
            position = event["object"]["metadata"]["resourceVersion"]
            if len(found) == count:
                break
    writer.join()
    assert found == [f"n-{i:03}" for i in range(count)]


def test_a_slow_reader_catches_up(api: Api, room: str) -> None:
    """The reader stops reading while more is written than any buffer between the two can hold."""
    start = present(api, room)
    big = "x" * 60_000
    watch = api.watch(room, resourceVersion=start, timeoutSeconds=30, timeout=20)
    api.post(room, config("first")).expect(201)
    next(watch)
    count = 60
    for i in range(count):
        api.post(room, {**config(f"big-{i:03}"), "data": {"x": big}}).expect(201)
    assert [e["object"]["metadata"]["name"] for e in take(watch, count)] == [f"big-{i:03}" for i in range(count)]


def test_watches_of_a_kind_end_when_its_definition_goes(api: Api, definer: Any, namespace: str) -> None:
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    api.post(widgets.path(namespace), widgets.new("one")).expect(201)
    watch = api.watch(widgets.path(namespace), timeoutSeconds=10, timeout=15)
    assert brief(take(watch, 1)) == [("ADDED", "one")]
    undefine(widgets)
    began = time.monotonic()
    assert brief(watch) == [("DELETED", "one")]
    if "HOMEOSTAT_CONFORMANCE_KUBECONFIG" not in os.environ:  # kube-apiserver sometimes lets it run to its timeout
        assert time.monotonic() - began < 5


def test_a_custom_kind_is_watched_like_any_other(api: Api, definer: Any, namespace: str) -> None:
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    start = present(api, widgets.path(namespace))
    made = api.post(widgets.path(namespace), widgets.new("one", spec={"a": 1})).expect(201)
    changed = api.patch(widgets.path(namespace, "one"), {"spec": {"a": 2}}).expect(200)
    events = take(api.watch(widgets.path(namespace), resourceVersion=start, timeoutSeconds=5), 2)
    assert [e["object"] for e in events] == [made, changed]
