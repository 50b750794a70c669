"""What careless and hostile clients send: it is refused at once, leaves nothing behind, and nobody else notices."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from typing import Any
from urllib.parse import quote

import pytest
from tests.api.conftest import Neighbour, Wire
from tests.conformance.conftest import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Answer,
    Api,
    define,
    undefine,
)

AT_ONCE = 1.0
"""Seconds within which bad input is refused."""
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MIB = 1024 * 1024
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

Object = dict[str, Any]


def config_map(name: str = "x", **rest: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **rest}


def head(rest: bytes) -> bytes:
    """A ConfigMap as text, with something odd in it."""
    return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},' + rest + b"}"


def refused(answer: Answer, *codes: int) -> Answer:
    """A proper refusal: a Status with a 4xx."""
    assert 400 <= answer.status < 500, answer.body
    assert not codes or answer.status in codes, answer.body
    assert answer.body["kind"] == "Status"
    assert answer.body["status"] == "Failure"
    assert answer.body["code"] == answer.status
    assert answer.body["message"]
    return answer


class Clock:
    def __init__(self, limit: float = AT_ONCE) -> None:
        self.limit = limit

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, kind: object, *_: object) -> None:
        took = time.perf_counter() - self._started
        assert kind is not None or took < self.limit, f"took {took:.2f} s"


# Bodies

BODIES: dict[str, tuple[str, bytes]] = {
    "more than 3 MiB": ("", head(b'"data":{"a":"' + b"x" * (3 * MIB) + b'"}')),
    "JSON nested 100,000 deep": ("", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "an endless list of lists": ("", b"[" * (2 * MIB)),
    "JSON nested a little too deep": ("", head(b'"data":' + b'{"a":' * 250 + b"1" + b"}" * 250)),
    "NaN": ("", head(b'"data":{"a":NaN}')),
    "Infinity": ("", head(b'"data":{"a":-Infinity}')),
    "a number beyond all floats": ("", head(b'"data":{"a":1e400}')),
    "a number of a million digits": ("", head(b'"data":{"a":' + b"9" * 1_000_000 + b"}")),
    "invalid UTF-8": ("", head(b'"data":{"a":"\xff\xfe"}')),
    "overlong UTF-8": ("", head(b'"data":{"a":"\xc0\xaf"}')),
    "a lone surrogate": ("", head(b'"data":{"a":"\\ud800"}')),
    "a bare NUL": ("", head(b'"data":{"a":"\x00"}')),
    "NUL in the name": ("", b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x\\u0000"}}'),
    "a path as the name": ("", b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"../../secrets/x"}}'),
    "a byte order mark": ("", b"\xef\xbb\xbf" + head(b'"data":{}')),
    "two values": ("", head(b'"data":{}') * 2),
    "half a value": ("", head(b'"data":{}')[:-1]),
    "a list": ("", b"[]"),
    "nothing": ("", b""),
    "a comment": ("", b"/* hello */" + head(b'"data":{}')),
    "numbers for text": ("", head(b'"data":{"a":1}')),
    "aliases in YAML": (YAML, b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n"),
    "an anchor in YAML": (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: &m {name: x}\n"),
    "a merge key in YAML": (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, <<: {labels: {a: b}}}\n"),
    "a Python tag in YAML": (YAML, b"!!python/object/apply:os.system ['true']\n"),
    "another tag in YAML": (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: !!binary aGk=}\n"),
    "several documents in YAML": (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\na: b\n"),
    "YAML nested deep": (YAML, b"- " * 1_000_000),
    "YAML in flow, nested deep": (YAML, b"{a: " * 500_000),
    "YAML keys of keys": (YAML, b"? " * 1_000_000),
    "YAML infinity": (YAML, b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: .inf}\n"),
    "YAML with tabs": (YAML, b"apiVersion: v1\n\tkind: ConfigMap\n"),
    "protobuf without its magic": (PROTOBUF, b"hello"),
    "protobuf with only its magic": (PROTOBUF, b"k8s\0"),
    "protobuf garbage": (PROTOBUF, b"k8s\0" + bytes(range(256)) * 400),
    "protobuf nested deep": (PROTOBUF, b"k8s\0" + b"\x0a\x7f" * 100_000),
    "protobuf with endless numbers": (PROTOBUF, b"k8s\0" + b"\xff" * 100_000),
    "protobuf that promises gigabytes": (PROTOBUF, b"k8s\0\x0a\xff\xff\xff\xff\x0f"),
    "CBOR": ("application/cbor", b"\xd9\xd9\xf7\xa0"),
    "a form": ("application/x-www-form-urlencoded", b"a=b"),
    "HTML": ("text/html", b"<html/>"),
    "an unreadable content type": (";;;,", head(b'"data":{}')),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_bad_body_is_refused(what: str, api: Api, namespace: str, neighbour: Neighbour) -> None:
    media, body = BODIES[what]
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with Clock():
        refused(api.post(path, body, headers={"Content-Type": media or "application/json"}), 400, 413, 415, 422)
    assert api.get(path).expect(200)["items"] == []


def test_a_doubled_field_is_refused_where_strictness_is_asked_for(api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = head(b'"data":{"a":"1","a":"2"}')
    answer = refused(api.post(path, body, fieldValidation="Strict"), 400)
    assert 'duplicate field "data.a"' in answer.body["message"]
    assert api.post(path, body).expect(201)["data"] == {"a": "2"}


LARGE: dict[str, tuple[str, Any]] = {
    "many bad keys": ("configmaps", config_map(data={f"k {i}": "v" for i in range(100_000)})),
    "one field two hundred thousand times": ("configmaps", head(b'"data":{' + b",".join([b'"a":1'] * 200_000) + b"}")),
    "many labels of no form": (
        "configmaps",
        {**config_map(), "metadata": {"name": "x", "labels": {f"a b{i}": "" for i in range(100_000)}}},
    ),
    "many containers": (
        "pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": {"containers": [{"name": "same", "image": "x"} for _ in range(50_000)]},
        },
    ),
}


@pytest.mark.parametrize("what", LARGE)
def test_megabytes_of_mistakes_hold_nobody_up(what: str, api: Api, namespace: str, neighbour: Neighbour) -> None:
    plural, body = LARGE[what]
    path = f"/api/v1/namespaces/{namespace}/{plural}"
    with Clock(4 * AT_ONCE):
        answer = refused(api.post(path, body), 400, 422)
    assert len(json.dumps(answer.body)) < 200_000
    assert api.get(path).expect(200)["items"] == []


def test_megabytes_that_are_right_hold_nobody_up_either(api: Api, namespace: str, neighbour: Neighbour) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    data = {f"key-{i}": "v" for i in range(40_000)}
    api.post(path, config_map("large", data=data)).expect(201)
    api.put(f"{path}/large", config_map("large", data=dict.fromkeys(data, "w"))).expect(200)
    api.patch(f"{path}/large", {"data": {"one": "more"}}).expect(200)
    api.apply(f"{path}/applied", config_map("applied", data=data)).expect(201)
    yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yaml}\ndata:\n" + "".join(f"  {k}: v\n" for k in data)
    api.post(path, yaml, headers={"Content-Type": YAML}).expect(201)


# Patches


@pytest.fixture
def object_path(api: Api, namespace: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.post(path, config_map("x", data={f"k{i}": "v" * 100 for i in range(1000)})).expect(201)
    return f"{path}/x"


PATCHES: dict[str, tuple[str, Any]] = {
    "copies of copies": (
        JSON_PATCH,
        [{"op": "copy", "from": "/data", "path": f"/data/x{i}"} for i in range(40)],
    ),
    "too many operations": (JSON_PATCH, [{"op": "test", "path": "/kind", "value": "ConfigMap"}] * 10_001),
    "an endless pointer": (JSON_PATCH, [{"op": "add", "path": "/data" + "/a" * 500_000, "value": 1}]),
    "an index beyond all lists": (JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers/" + "9" * 1000}]),
    "no operation": (JSON_PATCH, [{"op": "explode", "path": "/data"}]),
    "no list": (JSON_PATCH, {"op": "add"}),
    "the whole object replaced by a number": (JSON_PATCH, [{"op": "replace", "path": "", "value": 5}]),
    "another uid": (JSON_PATCH, [{"op": "replace", "path": "/metadata/uid", "value": 5}]),
    "shifts of a long list": (
        JSON_PATCH,
        [{"op": "add", "path": "/metadata/finalizers", "value": ["a/b"] * 200_000}]
        + [{"op": "add", "path": "/metadata/finalizers/0", "value": "a/b"}] * 5000,
    ),
    "a merge nested too deep": (MERGE_PATCH, b'{"a":' * 250 + b"1" + b"}" * 250),
    "a merge that is no object": (MERGE_PATCH, b"[]"),
    "a merge of the wrong types": (MERGE_PATCH, {"metadata": {"labels": {"a": {"b": 1}}}}),
    "a merge that makes it too large": (MERGE_PATCH, {"data": {f"n{i}": "x" * 1000 for i in range(2000)}}),
    "an unknown directive": (STRATEGIC_PATCH, {"data": {"$patch": "explode"}}),
    "an order of what is not there": (
        STRATEGIC_PATCH,
        {"metadata": {"finalizers": ["a/b"], "$setElementOrder/finalizers": [f"x/{i}" for i in range(50_000)]}},
    ),
    "an applied alias": (APPLY_PATCH, b"a: &a [1]\nb: *a\n"),
    "an applied list": (APPLY_PATCH, b"[]"),
    "applied nonsense": (APPLY_PATCH, b"\x00\xff"),
    "CBOR": ("application/apply-patch+cbor", b"\xa0"),
    "no patch at all": ("application/json", b"{}"),
}


@pytest.mark.parametrize("what", PATCHES)
def test_a_bad_patch_is_refused_and_changes_nothing(
    what: str, api: Api, object_path: str, neighbour: Neighbour
) -> None:
    media, body = PATCHES[what]
    before = api.get(object_path).expect(200)
    query = {"fieldManager": "m"} if media == APPLY_PATCH else {}
    with Clock(2 * AT_ONCE):
        answer = refused(api.patch(object_path, body, media, **query), 400, 409, 413, 415, 422)
    assert len(json.dumps(answer.body)) < 200_000
    assert api.get(object_path).expect(200) == before


def test_a_change_that_makes_an_object_too_large_is_refused(api: Api, object_path: str) -> None:
    for i in range(4):
        answer = api.patch(object_path, {"metadata": {"annotations": {f"a{i}": "x" * 200_000}}})
    assert refused(answer, 413, 422)


# Definitions


def definition(schema: Object, **version: Any) -> Object:
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "traps.bad.example.com"},
        "spec": {
            "group": "bad.example.com",
            "scope": "Namespaced",
            "names": {"plural": "traps", "kind": "Trap"},
            "versions": [one],
        },
    }


def _nested(levels: int) -> Object:
    schema: Object = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def _string(**rules: Any) -> Object:
    return {"type": "object", "properties": {"a": {"type": "string", **rules}}}


def _rule(rule: str, **rules: Any) -> Object:
    each = {"type": "array", "items": {"type": "string"}, **rules}
    return {"type": "object", "properties": {"a": {**each, "x-kubernetes-validations": [{"rule": rule}]}}}


DEFINITIONS: dict[str, Object] = {
    "a pattern of nested counts": definition(_string(pattern="((a{1,100}){1,100}){1,100}")),
    "a pattern with a back reference": definition(_string(pattern=r"(a)\1")),
    "a pattern with look ahead": definition(_string(pattern="(?=a)b")),
    "a pattern that does not close": definition(_string(pattern="(" * 5000)),
    "a schema nested too deep": definition(_nested(250)),
    "a schema that refers to itself": definition({"type": "object", "properties": {"a": {"$ref": "#"}}}),
    "a schema of lists for types": definition({"type": ["object"], "properties": []}),
    "a rule that explodes": definition(
        _rule("self.all(a, self.all(b, self.all(c, self.all(d, a + b + c + d != 'x'))))")
    ),
    "a rule that does not end": definition(_rule("(" * 5000)),
    "a rule of a thousand additions": definition(_rule("+".join(["self"] * 3000) + " == self")),
    "a rule that is no truth": definition(_rule("1 + 1")),
    "a thousand rules": definition(
        {
            "type": "object",
            "properties": {
                f"p{i}": {
                    "type": "array",
                    "items": {"type": "string"},
                    "x-kubernetes-validations": [{"rule": "self.all(a, self.exists(b, a == b))"}],
                }
                for i in range(200)
            },
        }
    ),
    "thousands of versions of no name": {
        **definition({"type": "object"}),
        "spec": {
            **definition({"type": "object"})["spec"],
            "versions": [
                {"name": f"V{i}", "served": True, "storage": False, "schema": {"openAPIV3Schema": {"type": "object"}}}
                for i in range(10_000)
            ],
        },
    },
    "thousands of columns of no path": definition(
        {"type": "object"},
        additionalPrinterColumns=[{"name": f"c{i}", "type": "string", "jsonPath": "x"} for i in range(20_000)],
    ),
    "defaults that do not fit": definition(
        {"type": "object", "properties": {f"p{i}": {"type": "integer", "default": "x"} for i in range(5000)}}
    ),
}


@pytest.mark.parametrize("what", DEFINITIONS)
def test_a_bad_definition_is_refused(what: str, api: Api, neighbour: Neighbour) -> None:
    with Clock(3 * AT_ONCE):
        answer = refused(api.post(CRDS, DEFINITIONS[what]), 400, 422)
    assert len(json.dumps(answer.body)) < 200_000
    assert api.get(f"{CRDS}/traps.bad.example.com").status == 404


def test_a_definition_of_a_thousand_patterns_holds_nobody_up(api: Api, namespace: str, neighbour: Neighbour) -> None:
    properties = {f"p{i}": {"type": "string", "pattern": f"^(a{{1,300}}){{1,2}}b{i}$"} for i in range(500)}
    kind = define(api, {"properties": {"spec": {"type": "object", "properties": properties}}}, kind="Patterned")
    api.post(kind.path(namespace), kind.new("x", spec={"p1": "aab1"})).expect(201)
    refused(api.post(kind.path(namespace), kind.new("y", spec={"p1": "b"})), 422)
    undefine(kind)


def test_a_wide_definition_holds_nobody_up(api: Api, namespace: str, neighbour: Neighbour) -> None:
    properties = {f"p{i}": {"type": "string"} for i in range(20_000)}
    kind = define(api, {"properties": {"spec": {"type": "object", "properties": properties}}}, kind="Wide")
    api.post(kind.path(namespace), kind.new("x", spec={"p1": "a", "p20001": "gone"})).expect(201)
    undefine(kind)


def test_patterns_that_explode_elsewhere_do_not_here(api: Api, namespace: str, neighbour: Neighbour) -> None:
    schema = {
        "properties": {
            "nested": {"type": "string", "pattern": "^(a+)+$"},
            "choices": {"type": "string", "pattern": "^(a|aa)+$"},
            "counted": {"type": "string", "pattern": "|".join(f"(x|y)*x(x|y){{{i}}}z" for i in range(100, 180))},
        }
    }
    kind = define(api, schema, kind="Pattern")
    mixed = "".join("xy"[(i * i // 7 + i) % 2] for i in range(50_000))
    for field, text in (("nested", "a" * 500_000 + "!"), ("choices", "a" * 500_000 + "!"), ("counted", mixed)):
        with Clock(4 * AT_ONCE):
            answer = refused(api.post(kind.path(namespace), kind.new("x", **{field: text})), 422)
        assert "should match" in answer.body["message"]
    assert api.get(kind.path(namespace)).expect(200)["items"] == []
    undefine(kind)


def test_long_lists_are_searched_quickly(api: Api, namespace: str, neighbour: Neighbour) -> None:
    listed = [*range(50_000), *({"a": i} for i in range(10_000))]
    schema = {
        "properties": {
            "known": {"type": "array", "items": {"x-kubernetes-preserve-unknown-fields": True, "enum": listed}},
            "unique": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
            "counts": {"type": "array", "items": {"type": "integer"}},
        }
    }
    kind = define(api, schema, kind="Lister")
    for body in (
        kind.new("x", known=[-i for i in range(200_000)]),
        kind.new("x", known=[{"a": -1}] * 100_000),
        kind.new("x", unique=[7] * 300_000),
        kind.new("x", counts=["x"] * 300_000),
        kind.new("x", counts=[1] * 300_000 + ["x"]),
    ):
        with Clock(4 * AT_ONCE):
            answer = refused(api.post(kind.path(namespace), body), 422)
        assert len(json.dumps(answer.body)) < 400_000
    undefine(kind)


def test_defaults_do_not_multiply_without_end(api: Api, namespace: str, neighbour: Neighbour) -> None:
    item = {"type": "object", "properties": {"text": {"type": "string", "default": "y" * 100_000}}}
    kind = define(api, {"properties": {"items": {"type": "array", "items": item}}}, kind="Filler")
    with Clock(2 * AT_ONCE):
        refused(api.post(kind.path(namespace), kind.new("x", items=[{} for _ in range(100_000)])), 413)
    api.post(kind.path(namespace), kind.new("y", items=[{}, {}])).expect(201)
    undefine(kind)


def test_rules_that_cost_much_are_ended(api: Api, namespace: str, neighbour: Neighbour) -> None:
    rule = "self.all(a, self.all(b, a != b || a == b))"
    schema = {"properties": {"n": {"type": "array", "maxItems": 1000, "items": {"type": "integer"},
                                   "x-kubernetes-validations": [{"rule": rule}]}}}  # fmt: skip
    kind = define(api, schema, kind="Costly")
    answer = api.post(kind.path(namespace), kind.new("x", n=list(range(1000))))
    assert answer.status in (201, 422), answer.body
    undefine(kind)


def test_columns_that_search_everywhere_find_an_end(api: Api, namespace: str, neighbour: Neighbour) -> None:
    column = {"name": "All", "type": "string", "jsonPath": ".spec..*..*..*..*"}
    kind = define(
        api,
        {"properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}},
        kind="Column",
        additionalPrinterColumns=[column],
    )
    spec: Object = {"list": list(range(20_000))}
    for _ in range(60):
        spec = {"a": spec, "b": 1}
    api.post(kind.path(namespace), kind.new("x", spec=spec)).expect(201)
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    with Clock(2 * AT_ONCE):
        api.get(kind.path(namespace), headers=table).expect(200)
    undefine(kind)


# Paths and queries

PATHS = (
    "/api/v1/namespaces/default/../kube-system/secrets",
    "/api/v1/namespaces/default//secrets",
    "//api/v1/secrets",
    "/api/v1/namespaces/default%2fsecrets",
    "/api/v1/namespaces/default/configmaps/%2e%2e",
    "/api/v1/namespaces/default/configmaps/a%2fb",
    "/api/v1/namespaces/default/configmaps/a%00b",
    "/api/v1/namespaces/%2e%2e/kube-system/secrets",
    "/api/v1/namespaces/default/configmaps/%",
    "/api/v1/namespaces/default/configmaps/%ff%fe",
    "/api/v1/namespaces/default/configmaps/é".encode().decode("latin-1"),
    "/api/v1/namespaces/default/configmaps/" + "x" * 20_000,
    "/api/v1/" + "a/" * 10_000,
    "/apis/../api/v1/secrets",
    "/openapi/v3/../../api/v1/secrets",
    "/api/v1/namespaces/a b/configmaps".replace(" ", "%20"),
    "/.",
    "/..",
    "/%",
)


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p[:60])
def test_a_path_that_could_mean_another_is_refused(path: str, wire: Wire) -> None:
    with Clock():
        said = wire.send(b"GET " + path.encode("latin-1") + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    status = int(said.split(b" ", 2)[1])
    # A name that cannot exist is an empty collection or nothing found: never somebody else's.
    assert 400 <= status < 500 or b'"items":[]' in said, said[:300]


QUERIES = (
    "limit=" + "9" * 30,
    "limit=" + "9" * 5000,
    "limit=1.5",
    "continue=%00",
    "continue=" + "A" * 10_000,
    "continue=bnVsbA",
    "resourceVersion=-1",
    "resourceVersion=abc",
    "resourceVersion=" + "9" * 500,
    "resourceVersionMatch=Exact",
    "resourceVersion=1&resourceVersionMatch=Whatever",
    "watch=1&timeoutSeconds=" + "9" * 400,
    "watch=1&timeoutSeconds=x",
    "watch=1&sendInitialEvents=true",
    "labelSelector=" + quote("a in ("),
    "labelSelector=" + quote("," * 10_000),
    "labelSelector=" + "%28" * 10_000,
    "fieldSelector=" + quote("spec.secret=x"),
    "fieldSelector=" + "%5c" * 1000,
    "&".join(f"a{i}=1" for i in range(5000)),
    "watch=1&resourceVersion=1&labelSelector=" + "!" * 1000,
)


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q[:40])
def test_an_absurd_query_is_refused(query: str, api: Api, neighbour: Neighbour) -> None:
    with Clock():
        refused(api.get(f"/api/v1/namespaces/default/configmaps?{query}"), 400, 410, 413, 422)


def test_a_long_selector_is_read_in_time(api: Api, neighbour: Neighbour) -> None:
    for selector in ("a in (" + ",".join(f"v{i}" for i in range(8000)) + ")", ",".join(f"k{i}=v" for i in range(5000))):
        with Clock():
            assert api.get("/api/v1/configmaps", labelSelector=selector).status in (200, 413)


def test_a_revision_that_has_not_happened_is_the_one_504(api: Api) -> None:
    answer = api.get("/api/v1/configmaps", resourceVersion="9" * 15, resourceVersionMatch="NotOlderThan")
    assert answer.status == 504
    assert answer.causes[0][0] == "ResourceVersionTooLarge"


# Connections


def request(path: str, *headers: str, method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


SMUGGLED = request("/api/v1/namespaces/default/secrets")


@pytest.mark.parametrize(
    "sent",
    [
        request("/version", "Content-Length: 5", "Transfer-Encoding: chunked", method="POST", body=b"0\r\n\r\n" + SMUGGLED),
        request("/version", "Transfer-Encoding: chunked", "Content-Length: 5", method="POST", body=b"0\r\n\r\n" + SMUGGLED),
        request("/version", "Content-Length: 5", "Content-Length: 6", method="POST", body=b"aaaaaa"),
        request("/version", "Content-Length: -5", method="POST"),
        request("/version", "Content-Length: +5", method="POST", body=b"aaaaa"),
        request("/version", "Content-Length: 5, 5", method="POST", body=b"aaaaa"),
        request("/version", "Content-Length: 99999999999999999999999", method="POST"),
        request("/version", "Transfer-Encoding: identity, chunked, gzip", method="POST", body=b"5\r\naaaaa\r\n"),
        request("/version", "Transfer-Encoding : chunked", method="POST", body=b"0\r\n\r\n"),
        request("/version", "Transfer-Encoding: chunked", method="POST", body=b"zz\r\n\r\n"),
        request("/version", "Transfer-Encoding: chunked", method="POST", body=b"ffffffffffffffffff\r\n\r\n"),
        request("/version", "X: a\nY: b\r\n Z: c"),
        request("/version", "X: a\0b"),
        request("/version", ": empty"),
        b"GET /version HTTP/9.9\r\n\r\n",
        b"GET http://elsewhere/api/v1/secrets HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n" * 10_000,
    ],
    ids=lambda d: repr(d[:70]),
)
def test_a_request_of_two_meanings_is_not_taken(sent: bytes, wire: Wire) -> None:
    with Clock(3 * AT_ONCE):
        said = wire.send(sent, silence=0.6)
    assert len(re.findall(rb"HTTP/1.1 \d", said)) <= 1, said[:2000]  # what was smuggled is not answered
    assert b"SecretList" not in said
    if said:
        status = int(said.split(b" ", 2)[1])
        assert 400 <= status < 500, said[:500]


def test_many_and_huge_headers_are_refused(wire: Wire) -> None:
    for headers in (["X: " + "a" * 100_000], [f"X{i}: a" for i in range(20_000)], ["X" * 70_000 + ": a"]):
        with Clock(3 * AT_ONCE):
            said = wire.send(request("/version", *headers), silence=0.8)
        assert said.startswith(b"HTTP/1.1 4"), said[:200]


def test_nobody_becomes_another_by_odd_headers(api: Api) -> None:
    path = "/api/v1/namespaces/default/secrets"
    refused(api.get(path, headers={"Impersonate-User": "nobody"}), 403)
    refused(api.get(path, headers={"Impersonate-Group": "system:masters"}), 400)
    refused(api.get(path, headers={"Impersonate-Extra-a": "b"}), 400)
    refused(api.get(path, headers={"Impersonate-Whatever": "b"}), 400)
    refused(api.get(path, headers={"Impersonate-User": "\x01"}), 400)


def test_connections_that_die_in_the_middle_leave_nothing(wire: Wire, api: Api, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    body = json.dumps(config_map("half", data={"a": "x" * 100_000})).encode()
    for _ in range(20):
        peer = wire.connect()
        peer.sendall(request(path, "Content-Type: application/json", f"Content-Length: {len(body)}", method="POST"))
        peer.sendall(body[: len(body) // 2])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        peer.close()
    assert api.get(path).expect(200)["items"] == []


def test_hundreds_of_watches_that_are_never_read_hold_nobody_up(
    wire: Wire, api: Api, namespace: str, neighbour: Neighbour
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    with contextlib.ExitStack() as peers:
        for _ in range(200):
            peer = peers.enter_context(contextlib.closing(wire.connect()))
            peer.sendall(request(f"{path}?watch=1"))
        for i in range(30):
            with Clock(2 * AT_ONCE):
                api.post(path, config_map(f"n{i}", data={"a": "x" * 50_000})).expect(201)
        events = api.watch(path, resourceVersion="0")
        assert [next(events)["type"] for _ in range(30)] == ["ADDED"] * 30
    assert len(api.get(path).expect(200)["items"]) == 30


@pytest.mark.parametrize(
    "token",
    ["x", "", "." * 1000, "a.b.c", "hst_", "hst_" + "0" * 64, "hst_\xff", "eyJhbGciOiJub25lIn0.e30.", "x" * 50_000],
    ids=lambda t: t[:20] or "none",
)
def test_a_token_of_nobody_is_refused(token: str, credentials: Any, wire: Wire) -> None:
    import ssl
    from urllib.parse import urlsplit

    parts = urlsplit(credentials.server)
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    plain.check_hostname, plain.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((parts.hostname, parts.port), timeout=5) as raw,
        plain.wrap_socket(raw) as peer,
    ):
        peer.sendall(request("/api/v1/secrets", f"Authorization: Bearer {token}"))
        assert peer.recv(65536).startswith(b"HTTP/1.1 401 ")
