"""Get and list: from one snapshot, at the revision that was asked for, in pages that fit together."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Api, Kind, Object, make_namespace

ROOM = "/api/v1/namespaces/{}/configmaps"


def config(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": {"key": "value"}}


@pytest.fixture(scope="module")
def shelf(api: Api) -> Iterator[str]:
    """The path of a collection of seven config maps, item-0 to item-6."""
    name = make_namespace(api)
    for i in range(7):
        api.post(ROOM.format(name), config(f"item-{i}", parity="odd" if i % 2 else "even")).expect(201)
    yield ROOM.format(name)
    api.delete(f"/api/v1/namespaces/{name}")


def names(body: Object) -> list[str]:
    """Of the items, without what a cluster puts into every namespace."""
    return [i["metadata"]["name"] for i in body["items"] if i["metadata"]["name"] != "kube-root-ca.crt"]


def token(**parts: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")


# What a list looks like


def test_a_list_has_a_kind_of_its_own_and_a_resource_version(api: Api, shelf: str) -> None:
    body = api.get(shelf).expect(200)
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(body["metadata"]["resourceVersion"]) >= max(int(i["metadata"]["resourceVersion"]) for i in body["items"])


def test_items_are_sorted_by_name(api: Api, namespace: str) -> None:
    for name in ("b", "a-b", "a", "a.b", "a0", "c"):
        api.post(ROOM.format(namespace), config(name)).expect(201)
    assert names(api.get(ROOM.format(namespace)).expect(200)) == sorted(["b", "a-b", "a", "a.b", "a0", "c"])


def test_items_across_namespaces_are_sorted_by_namespace_and_name(api: Api, namespace: str) -> None:
    other = make_namespace(api)
    for room in (namespace, other):
        for name in ("y", "x"):
            api.post(ROOM.format(room), config(name, across=namespace)).expect(201)
    found = api.get("/api/v1/configmaps", labelSelector=f"across={namespace}").expect(200)["items"]
    places = [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in found]
    api.delete(f"/api/v1/namespaces/{other}")
    assert places == sorted((room, name) for room in (namespace, other) for name in ("x", "y"))


def test_items_of_a_built_in_list_do_not_repeat_the_kind(api: Api, shelf: str) -> None:
    assert all("kind" not in item and "apiVersion" not in item for item in api.get(shelf).expect(200)["items"])


def test_items_of_a_custom_list_repeat_the_kind(api: Api, definer: Any, namespace: str) -> None:
    widgets: Kind = definer({"x-kubernetes-preserve-unknown-fields": True})
    api.post(widgets.path(namespace), widgets.new("one")).expect(201)
    body = api.get(widgets.path(namespace)).expect(200)
    assert (body["kind"], body["apiVersion"]) == ("WidgetList", widgets.api_version)
    assert [(i["kind"], i["apiVersion"]) for i in body["items"]] == [("Widget", widgets.api_version)]


def test_an_empty_list_has_empty_items(api: Api) -> None:
    assert api.get(ROOM.format("there-is-no-such-namespace")).expect(200)["items"] == []


def test_a_trailing_slash_or_an_unknown_parameter_changes_nothing(api: Api, shelf: str) -> None:
    assert names(api.get(shelf, colour="red").expect(200)) == names(api.get(shelf).expect(200))


def test_what_is_not_there_is_named_in_the_refusal(api: Api, shelf: str) -> None:
    answer = api.get(f"{shelf}/nothing")
    assert answer.expect(404)["message"] == 'configmaps "nothing" not found'
    assert answer.body["reason"] == "NotFound"
    assert answer.body["details"] == {"name": "nothing", "kind": "configmaps"}


# The revision that is asked for


@pytest.mark.parametrize("version", ["", "0", "1"])
def test_get_gives_the_present_whatever_older_version_is_asked_for(api: Api, shelf: str, version: str) -> None:
    assert api.get(f"{shelf}/item-0", resourceVersion=version).expect(200)["metadata"]["name"] == "item-0"


@pytest.mark.parametrize("path", ["", "/item-0"])
def test_a_version_from_the_future_times_out(api: Api, shelf: str, path: str) -> None:
    answer = api.get(shelf + path, resourceVersion="99999999999")
    body = answer.expect(504)
    assert body["reason"] == "Timeout"
    assert body["message"].startswith("Timeout: Too large resource version: 99999999999, current: ")
    assert body["details"]["causes"] == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize("version", ["abc", "-1", "1.5"])
def test_a_version_that_is_no_number_is_refused(api: Api, shelf: str, version: str) -> None:
    if api.minor < 30:
        pytest.skip("answered with 500 by old servers")
    assert api.get(shelf, resourceVersion=version).expect(400)["message"] == (
        f'invalid resource version: resourceVersion: Invalid value: "{version}": '
        f'strconv.ParseUint: parsing "{version}": invalid syntax'
    )


def test_an_exact_version_shows_the_past(api: Api, namespace: str) -> None:
    room = ROOM.format(namespace)
    past = api.post(room, config("early")).expect(201)["metadata"]["resourceVersion"]
    api.post(room, config("late")).expect(201)
    api.patch(f"{room}/early", {"data": {"key": "changed"}}).expect(200)
    body = api.get(room, resourceVersion=past, resourceVersionMatch="Exact").expect(200)
    assert body["metadata"]["resourceVersion"] == past
    assert names(body) == ["early"]
    assert next(i for i in body["items"] if i["metadata"]["name"] == "early")["data"] == {"key": "value"}


def test_a_version_and_a_limit_alone_mean_that_exact_version(api: Api, namespace: str) -> None:
    room = ROOM.format(namespace)
    past = api.post(room, config("early")).expect(201)["metadata"]["resourceVersion"]
    api.post(room, config("late")).expect(201)
    assert names(api.get(room, resourceVersion=past, limit=10).expect(200)) == ["early"]


def test_not_older_than_gives_at_least_that_version(api: Api, namespace: str) -> None:
    room = ROOM.format(namespace)
    made = api.post(room, config("one")).expect(201)["metadata"]["resourceVersion"]
    body = api.get(room, resourceVersion=made, resourceVersionMatch="NotOlderThan").expect(200)
    assert names(body) == ["one"]
    assert int(body["metadata"]["resourceVersion"]) >= int(made)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"resourceVersionMatch": "Exact"},
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "NotOlderThan"},
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            {"resourceVersionMatch": "Newest", "resourceVersion": "1"},
            'resourceVersionMatch: Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", ""',
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
            'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            {"resourceVersionMatch": "Exact", "resourceVersion": "5", "continue": "x"},
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    api: Api, shelf: str, options: dict[str, str], problem: str
) -> None:
    body = api.get(shelf, **options).expect(422)
    assert body["message"] == f'ListOptions.meta.k8s.io "" is invalid: {problem}'
    assert body["details"]["kind"] == "ListOptions"


def test_a_list_has_no_initial_events(api: Api, shelf: str) -> None:
    if api.minor < 30:
        pytest.skip("not known to old servers")
    assert "sendInitialEvents is forbidden for list" in api.get(shelf, sendInitialEvents="true").expect(422)["message"]


@pytest.mark.parametrize("option", ["limit", "timeoutSeconds"])
def test_a_number_that_is_none_is_refused(api: Api, shelf: str, option: str) -> None:
    answer = api.get(shelf, **{option: "many"})
    assert answer.expect(400)["message"] == 'strconv.ParseInt: parsing "many": invalid syntax'


# Pages


def pages(api: Api, path: str, limit: int, **query: Any) -> Iterator[Object]:
    token = None
    while True:
        body = api.get(path, limit=limit, **query, **{"continue": token}).expect(200)
        yield body
        token = body["metadata"].get("continue")
        if not token:
            return


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
def test_pages_add_up_to_the_list(api: Api, shelf: str, limit: int) -> None:
    whole = api.get(shelf).expect(200)
    chunks = list(pages(api, shelf, limit))
    assert all(len(c["items"]) <= limit for c in chunks)
    assert [i for c in chunks for i in c["items"]] == whole["items"]


def test_pages_say_how_much_remains(api: Api, shelf: str) -> None:
    total = len(api.get(shelf).expect(200)["items"])
    chunks = list(pages(api, shelf, 3))
    seen = 0
    for chunk in chunks[:-1]:
        seen += len(chunk["items"])
        assert chunk["metadata"]["remainingItemCount"] == total - seen
    assert "remainingItemCount" not in chunks[-1]["metadata"]
    assert not chunks[-1]["metadata"].get("continue")


def test_pages_under_a_selector_do_not_say_how_much_remains(api: Api, shelf: str) -> None:
    chunks = list(pages(api, shelf, 2, labelSelector="parity=even"))
    assert [n for c in chunks for n in names(c)] == ["item-0", "item-2", "item-4", "item-6"]
    assert all("remainingItemCount" not in c["metadata"] for c in chunks)


def test_pages_are_of_one_snapshot_while_writers_go_on(api: Api, namespace: str) -> None:
    room = ROOM.format(namespace)
    for name in ("a", "c", "e", "g"):
        api.post(room, config(name)).expect(201)
    first = api.get(room, limit=2).expect(200)
    api.post(room, config("d")).expect(201)
    api.delete(f"{room}/e").expect(200)
    api.patch(f"{room}/g", {"data": {"key": "changed"}}).expect(200)
    rest = api.get(room, **{"continue": first["metadata"]["continue"]}).expect(200)
    assert names(first) + names(rest) == ["a", "c", "e", "g"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert next(i for i in rest["items"] if i["metadata"]["name"] == "g")["data"] == {"key": "value"}


def test_pages_go_across_namespaces(api: Api, namespace: str) -> None:
    other = make_namespace(api)
    for room in (namespace, other):
        for name in ("x", "y"):
            api.post(ROOM.format(room), config(name, paged=namespace)).expect(201)
    chunks = list(pages(api, "/api/v1/configmaps", 3, labelSelector=f"paged={namespace}"))
    api.delete(f"/api/v1/namespaces/{other}")
    assert [len(c["items"]) for c in chunks] == [3, 1]


def test_going_on_with_resource_version_zero_is_allowed_and_with_another_is_not(api: Api, shelf: str) -> None:
    mark = api.get(shelf, limit=2).expect(200)["metadata"]["continue"]
    api.get(shelf, resourceVersion="0", **{"continue": mark}).expect(200)
    answer = api.get(shelf, resourceVersion="5", **{"continue": mark})
    assert answer.expect(400)["message"] == "specifying resource version is not allowed when using continue"


def test_a_token_of_revision_minus_one_goes_on_in_the_present(api: Api, shelf: str) -> None:
    mark = api.get(shelf, limit=3).expect(200)["metadata"]["continue"]
    parts = json.loads(base64.urlsafe_b64decode(mark + "=" * (-len(mark) % 4)))
    body = api.get(shelf, **{"continue": token(**{**parts, "rv": -1})}).expect(200)
    assert names(body) == ["item-3", "item-4", "item-5", "item-6"]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("@@@", "illegal base64 data at input byte 0"),
        (token(v="meta.k8s.io/v1", rv=0, start="x"), "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
        (token(v="meta.k8s.io/v1", rv=5, start=""), "encoded start key empty (version meta.k8s.io/v1)"),
        (token(v="meta.k8s.io/v1", rv=5, start="../x"), "../x"),
        ("abc", ""),
    ],
)
def test_a_token_that_the_server_did_not_give_is_refused(api: Api, shelf: str, bad: str, why: str) -> None:
    body = api.get(shelf, **{"continue": bad}).expect(400)
    assert body["message"].startswith(f"invalid continue token: continue key is not valid: {why}")


# Forms


def test_yaml_is_given_to_who_asks_for_it(api: Api, namespace: str) -> None:
    import yaml

    if api.minor < 30:
        pytest.skip("the old server we compare with crashes over it")
    room = ROOM.format(namespace)
    tricky = {"a": "no", "b": "1e3", "c": "x: y\nz", "d": "", "e": "012", "f": "# none", "g": "ä\u2028", "h": "2026-01-01", "y": "~"}
    api.post(room, {"metadata": {"name": "tricky"}, "data": tricky}).expect(201)
    answer = api.get(f"{room}/tricky", headers={"Accept": "application/yaml"})
    assert answer.headers["Content-Type"] == "application/yaml"
    assert yaml.safe_load(answer.body)["data"] == tricky
    listed = yaml.safe_load(api.get(room, headers={"Accept": "application/yaml"}).expect(200))
    assert names(listed) == ["tricky"]
    refused = api.get(f"{room}/nothing", headers={"Accept": "application/yaml"})
    assert yaml.safe_load(refused.expect(404))["reason"] == "NotFound"
    assert yaml.safe_load(api.get("/api", headers={"Accept": "application/yaml"}).expect(200))["kind"] == "APIVersions"
    made = api.post(room, {"metadata": {"name": "made"}}, headers={"Accept": "application/yaml"}).expect(201)
    assert yaml.safe_load(made)["metadata"]["name"] == "made"


def test_the_first_acceptable_form_is_given(api: Api, shelf: str) -> None:
    for accept in ("*/*", "application/json", "application/json, application/yaml", "text/html, */*;q=0.1"):
        answer = api.get(f"{shelf}/item-0", headers={"Accept": accept})
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.expect(200)["kind"] == "ConfigMap"


def test_the_most_wanted_form_is_given(api: Api, shelf: str) -> None:
    if api.minor < 30:
        pytest.skip("the old server we compare with crashes over YAML")
    for accept, given in (
        ("application/json;q=0.1, application/yaml", "application/yaml"),
        ("application/yaml;q=0.1, application/json", "application/json"),
    ):
        assert api.get(shelf, headers={"Accept": accept}).headers["Content-Type"] == given


@pytest.mark.parametrize("accept", ["text/html", "application/json;as=Table;g=meta.k8s.io;v=v9", "nonsense"])
def test_a_form_that_nobody_can_give_is_not_acceptable(api: Api, shelf: str, accept: str) -> None:
    body = api.get(shelf, headers={"Accept": accept}).expect(406)
    assert body["reason"] == "NotAcceptable"


def test_a_write_that_accepts_nothing_is_refused_before_it_writes(api: Api, namespace: str) -> None:
    room = ROOM.format(namespace)
    api.post(room, config("never"), headers={"Accept": "text/html"}).expect(406)
    api.get(f"{room}/never").expect(404)
    api.post(room, config("stays")).expect(201)
    api.delete(f"{room}/stays", headers={"Accept": "text/html"}).expect(406)
    api.delete(room, headers={"Accept": "text/html"}).expect(406)
    api.get(f"{room}/stays").expect(200)


def test_pretty_is_tolerated(api: Api, shelf: str) -> None:
    if api.minor < 30:
        pytest.skip("the old server we compare with crashes over it")
    assert api.get(f"{shelf}/item-0", pretty="true").expect(200)["metadata"]["name"] == "item-0"


def test_whoever_takes_any_state_gets_all_of_it_at_once(api: Api, shelf: str, modern: None) -> None:
    for rule in (None, "NotOlderThan"):
        body = api.get(shelf, resourceVersion="0", resourceVersionMatch=rule, limit=3).expect(200)
        assert len(names(body)) == 7
        assert not body["metadata"].get("continue")


def test_a_list_of_a_custom_kind_says_that_nothing_follows(api: Api, widget: Kind, namespace: str) -> None:
    assert api.get(widget.path(namespace)).expect(200)["metadata"]["continue"] == ""


@pytest.mark.parametrize(
    ("parameter", "why"),
    [
        ("limit=99999999999999999999", "strconv.ParseInt: parsing \"99999999999999999999\": value out of range"),
        ("limit=9223372036854775808", "strconv.ParseInt: parsing \"9223372036854775808\": value out of range"),
        (
            "resourceVersion=18446744073709551616",
            'invalid resource version: resourceVersion: Invalid value: "18446744073709551616": '
            'strconv.ParseUint: parsing "18446744073709551616": value out of range',
        ),
    ],
)
def test_a_number_that_is_too_large_is_told_so(api: Api, shelf: str, modern: None, parameter: str, why: str) -> None:
    body = api.get(f"{shelf}?{parameter}").expect(400)
    assert (body["reason"], body["message"]) == ("BadRequest", why)


@pytest.mark.parametrize("query", ["labelSelector=%zz", "limit=2;x=1", "%zz", "labelSelector=parity%3Dodd%"])
def test_a_malformed_parameter_is_as_good_as_none(api: Api, shelf: str, modern: None, query: str) -> None:
    assert len(names(api.get(f"{shelf}?{query}").expect(200))) == 7
    assert names(api.get(f"{shelf}?{query}&labelSelector=parity=odd").expect(200)) == ["item-1", "item-3", "item-5"]


@pytest.mark.parametrize(
    ("timeout", "why"),
    [
        ("foo", 'invalid duration "foo"'),
        ("-", 'invalid duration "-"'),
        ("10", 'missing unit in duration "10"'),
        ("1m10", 'missing unit in duration "1m10"'),
        ("1x", 'unknown unit "x" in duration "1x"'),
    ],
)
def test_a_timeout_must_be_a_duration(api: Api, shelf: str, modern: None, timeout: str, why: str) -> None:
    for answer in (api.get(shelf, timeout=timeout), api.delete(f"{shelf}/item-0", timeout=timeout)):
        body = answer.expect(400)
        assert body["message"] == f"invalid timeout specified in the request URL - time: {why}"
    api.get(f"{shelf}/item-0").expect(200)


@pytest.mark.parametrize("timeout", ["10s", "1h1.5m", ".5s", "0", "", "+30s", "1000h"])
def test_a_timeout_is_no_hindrance(api: Api, shelf: str, timeout: str) -> None:
    api.get(shelf, timeout=timeout).expect(200)


def test_objects_are_not_to_be_kept_on_the_way(api: Api, shelf: str) -> None:
    for path in (shelf, f"{shelf}/item-0", f"{shelf}/none"):
        assert api.get(path).headers["Cache-Control"] == "no-cache, private"


def test_a_form_that_nobody_can_give_is_told_first(api: Api, shelf: str, modern: None) -> None:
    for accept in ("text/html", "application/json;as=Table;g=meta.k8s.io;v=v2"):
        api.get(f"{shelf}/none", headers={"Accept": accept}).expect(406)
