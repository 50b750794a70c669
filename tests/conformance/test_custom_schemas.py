"""What a schema does to custom objects: it prunes, fills in, refuses, and forgives what was there before it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import APPLY_PATCH, JSON_PATCH, Answer, Api, Kind, Object, eventually

pytestmark = pytest.mark.usefixtures("modern")

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT: Object = {"type": "string"}
INT: Object = {"type": "integer"}
KEEP = {"x-kubernetes-preserve-unknown-fields": True}


def fields(properties: Object, **rest: Any) -> Object:
    return {"type": "object", "properties": properties, **rest}


def with_spec(properties: Object, **rest: Any) -> Object:
    return fields({"spec": fields(properties, **rest)})


SPEC: Object = {
    "whole": {"type": "integer", "default": 3, "minimum": 1, "maximum": 10},
    "nullable": {"type": "string", "nullable": True, "default": "x", "minLength": 1, "maxLength": 5},
    "filled": {"type": "string", "default": "dflt"},
    "choice": {"type": "string", "enum": ["a", "b"]},
    "either": {"x-kubernetes-int-or-string": True},
    "anything": KEEP,
    "open": fields({"known": fields({"a": TEXT})}, **KEEP),
    "embedded": {"type": "object", "x-kubernetes-embedded-resource": True, **KEEP},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT, "maxItems": 4},
    "keyed": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": fields({"name": TEXT, "port": {"type": "integer", "default": 80}}, required=["name"]),
    },
    "ports": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["port", "protocol"],
        "items": fields({"port": INT, "protocol": {"type": "string", "default": "TCP"}}, required=["port"]),
    },
    "counts": {"type": "object", "additionalProperties": INT, "maxProperties": 2},
    "int32": {"type": "integer", "format": "int32"},
    "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
    "pattern": {"type": "string", "pattern": "^a+$"},
    "one": fields({"x": TEXT, "y": TEXT}, oneOf=[{"required": ["x"]}, {"required": ["y"]}]),
    "any": fields({"x": TEXT, "y": TEXT}, anyOf=[{"required": ["x"]}, {"required": ["y"]}]),
    "all": {"type": "integer", "allOf": [{"minimum": 3}, {"maximum": 5}]},
    "not": {"type": "string", "not": {"enum": ["bad"]}},
    "deep": fields({"in": fields({"v": {"type": "string", "default": "deep"}})}, default={"in": {}}),
    "needs": fields({"a": TEXT, "b": TEXT}, required=["a", "b"]),
    "flag": {"type": "boolean"},
    "pair": {"type": "array", "items": TEXT, "minItems": 2},
    "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer", "maximum": 5}}},
    **{
        name: {"type": "string", "format": name}
        for name in ("date-time", "date", "uuid", "email", "ipv4", "ipv6", "cidr", "duration", "byte", "uri", "mac")
    },
}
DEFAULTS = {"whole": 3, "nullable": "x", "filled": "dflt", "deep": {"in": {"v": "deep"}}}


@pytest.fixture(scope="module")
def widgets(definer: Any) -> Kind:
    status = fields({"phase": TEXT, "count": INT, "word": {"type": "string", "default": "w"}})
    schema = fields({"spec": fields(SPEC), "status": status}, required=["spec"])
    kind: Kind = definer(schema, subresources={"status": {}})
    return kind


def send(kind: Kind, spec: Any, **query: Any) -> Answer:
    """What becomes of a spec, without anything being stored."""
    body = kind.new("x", spec=spec)
    return kind.api.post(kind.path("default"), body, **{"dryRun": "All", **query})


def kept(kind: Kind, spec: Object) -> Object:
    """The spec as it would be stored, less the defaults that every spec gets."""
    stored = send(kind, spec).expect(201)["spec"]
    return {k: v for k, v in stored.items() if k in spec or DEFAULTS.get(k) != v}


def change(api: Api, where: str, alter: Callable[[Object], object]) -> Answer:
    """Reads, alters, writes back; again where the server wrote in between."""

    def once() -> Answer | None:
        obj = api.get(where).expect(200)
        alter(obj)
        answer = api.put(where, obj)
        return None if answer.status == 409 else answer

    found: Answer = eventually(once)
    return found


REFUSED: list[tuple[str, Any, str, str]] = [
    ("whole", 0, "spec.whole", "Invalid value: 0: spec.whole in body should be greater than or equal to 1"),
    ("whole", 11, "spec.whole", "Invalid value: 11: spec.whole in body should be less than or equal to 10"),
    ("whole", "x", "spec.whole", 'Invalid value: "string": spec.whole in body must be of type integer: "string"'),
    ("whole", 3.5, "spec.whole", 'Invalid value: "number": spec.whole in body must be of type integer: "number"'),
    ("whole", True, "spec.whole", 'Invalid value: "boolean": spec.whole in body must be of type integer: "boolean"'),
    ("nullable", "", "spec.nullable", 'Invalid value: "": spec.nullable in body should be at least 1 chars long'),
    ("nullable", "abcdef", "spec.nullable", "Too long: may not be more than 5 bytes"),
    ("nullable", "日本語日本語", "spec.nullable", "Too long: may not be more than 5 bytes"),
    (
        "nullable",
        1,
        "spec.nullable",
        'Invalid value: "integer": spec.nullable in body must be of type string: "integer"',
    ),
    ("choice", "c", "spec.choice", 'Unsupported value: "c": supported values: "a", "b"'),
    (
        "either",
        1.5,
        "spec.either",
        'Invalid value: "number": spec.either in body must be of type integer,string: "number"',
    ),
    (
        "either",
        True,
        "spec.either",
        'Invalid value: "boolean": spec.either in body must be of type integer,string: "boolean"',
    ),
    (
        "either",
        [],
        "spec.either",
        'Invalid value: "array": spec.either in body must be of type integer,string: "array"',
    ),
    (
        "either",
        {},
        "spec.either",
        'Invalid value: "object": spec.either in body must be of type integer,string: "object"',
    ),
    ("embedded", {}, "spec.embedded.apiVersion", "Required value"),
    ("embedded", {"apiVersion": "", "kind": ""}, "spec.embedded.apiVersion", 'Invalid value: "": must not be empty'),
    (
        "embedded",
        {"apiVersion": "a/b/c", "kind": "X"},
        "spec.embedded.apiVersion",
        'Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c',
    ),
    (
        "embedded",
        {"apiVersion": "v1", "kind": "X Y"},
        "spec.embedded.kind",
        "Invalid value: \"X Y\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    ),
    (
        "embedded",
        {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a/b"}},
        "spec.embedded.metadata.name",
        "Invalid value: \"a/b\": may not contain '/'",
    ),
    (
        "embedded",
        {"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "c d"}}},
        "spec.embedded.metadata.labels",
        "Invalid value: \"c d\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    ),
    ("set", ["a", "a"], "spec.set[1]", 'Duplicate value: "a"'),
    ("set", ["a", "b", "c", "d", "e"], "spec.set", "Too many: 5: must have at most 4 items"),
    ("set", [None], "spec.set[0]", 'Invalid value: "null": spec.set[0] in body must be of type string: "null"'),
    ("set", [1], "spec.set[0]", 'Invalid value: "integer": spec.set[0] in body must be of type string: "integer"'),
    ("keyed", [{"name": "a"}, {"name": "a"}], "spec.keyed[1]", 'Duplicate value: {"name":"a"}'),
    ("keyed", [{"port": 1}], "spec.keyed[0].name", "Required value"),
    ("keyed", ["x"], "spec.keyed[0]", 'Invalid value: "x": must be an object for an array of list-type map'),
    (
        "ports",
        [{"port": 1}, {"port": 1, "protocol": "TCP"}],
        "spec.ports[1]",
        'Duplicate value: {"port":1,"protocol":"TCP"}',
    ),
    ("counts", {"a": 1, "b": 2, "c": 3}, "spec.counts", "Too many: 3: must have at most 2 items"),
    (
        "counts",
        {"a": "x"},
        "spec.counts.a",
        'Invalid value: "string": spec.counts.a in body must be of type integer: "string"',
    ),
    (
        "int32",
        2147483648,
        "<nil>",
        'Invalid value: "": Checked value must be of type integer with format int32 in spec.int32',
    ),
    ("ratio", 0, "spec.ratio", "Invalid value: 0: spec.ratio in body should be greater than 0"),
    ("ratio", "1", "spec.ratio", 'Invalid value: "string": spec.ratio in body must be of type number: "string"'),
    ("pattern", "b", "spec.pattern", "Invalid value: \"b\": spec.pattern in body should match '^a+$'"),
    ("one", {}, "spec.one.x", "Required value"),
    (
        "one",
        {"x": "a", "y": "b"},
        "<nil>",
        'Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives',
    ),
    ("any", {}, "spec.any.x", "Required value"),
    ("all", 2, "spec.all", "Invalid value: 2: spec.all in body should be greater than or equal to 3"),
    ("all", 6, "spec.all", "Invalid value: 6: spec.all in body should be less than or equal to 5"),
    ("not", "bad", "<nil>", 'Invalid value: "": "spec.not" must not validate the schema (not)'),
    ("needs", {}, "spec.needs.a", "Required value"),
    ("needs", {"a": "x"}, "spec.needs.b", "Required value"),
    ("flag", "true", "spec.flag", 'Invalid value: "string": spec.flag in body must be of type boolean: "string"'),
    ("flag", 1, "spec.flag", 'Invalid value: "integer": spec.flag in body must be of type boolean: "integer"'),
    ("pair", ["a"], "spec.pair", "Invalid value: 1: spec.pair in body should have at least 2 items"),
    (
        "matrix",
        [[6]],
        "spec.matrix[0][0]",
        "Invalid value: 6: spec.matrix[0][0] in body should be less than or equal to 5",
    ),
    (
        "matrix",
        [[1], 2],
        "spec.matrix[1]",
        'Invalid value: "integer": spec.matrix[1] in body must be of type array: "integer"',
    ),
    ("open", "q", "spec.open", 'Invalid value: "string": spec.open in body must be of type object: "string"'),
    (
        "date-time",
        "2020-01-01",
        "spec.date-time",
        'Invalid value: "2020-01-01": spec.date-time in body must be of type date-time: "2020-01-01"',
    ),
    (
        "date-time",
        "2020-01-01T00:00:00",
        "spec.date-time",
        'Invalid value: "2020-01-01T00:00:00": spec.date-time in body must be of type date-time: "2020-01-01T00:00:00"',
    ),
    (
        "date-time",
        "2020-13-01T00:00:00Z",
        "spec.date-time",
        'Invalid value: "2020-13-01T00:00:00Z": spec.date-time in body must be of type date-time: "2020-13-01T00:00:00Z"',
    ),
    ("date", "x", "spec.date", 'Invalid value: "x": spec.date in body must be of type date: "x"'),
    (
        "date",
        "2020-02-30",
        "spec.date",
        'Invalid value: "2020-02-30": spec.date in body must be of type date: "2020-02-30"',
    ),
    ("uuid", "x", "spec.uuid", 'Invalid value: "x": spec.uuid in body must be of type uuid: "x"'),
    ("email", "x", "spec.email", 'Invalid value: "x": spec.email in body must be of type email: "x"'),
    ("ipv4", "1.2.3", "spec.ipv4", 'Invalid value: "1.2.3": spec.ipv4 in body must be of type ipv4: "1.2.3"'),
    ("ipv4", "::1", "spec.ipv4", 'Invalid value: "::1": spec.ipv4 in body must be of type ipv4: "::1"'),
    ("ipv6", "1.2.3.4", "spec.ipv6", 'Invalid value: "1.2.3.4": spec.ipv6 in body must be of type ipv6: "1.2.3.4"'),
    ("cidr", "x", "spec.cidr", 'Invalid value: "x": spec.cidr in body must be of type cidr: "x"'),
    ("duration", "x", "spec.duration", 'Invalid value: "x": spec.duration in body must be of type duration: "x"'),
    ("byte", "***", "spec.byte", 'Invalid value: "***": spec.byte in body must be of type byte: "***"'),
    ("uri", "::", "spec.uri", 'Invalid value: "::": spec.uri in body must be of type uri: "::"'),
    ("mac", "z", "spec.mac", 'Invalid value: "z": spec.mac in body must be of type mac: "z"'),
]


@pytest.mark.parametrize(("field", "value", "where", "message"), REFUSED)
def test_a_value_is_refused_with_its_field_and_the_reason(
    widgets: Kind, field: str, value: Any, where: str, message: str
) -> None:
    refusal = send(widgets, {field: value}).expect(422)
    assert (where, message) in [(c["field"], c["message"]) for c in refusal["details"]["causes"]]
    assert refusal["details"]["kind"] == "Widget"
    assert refusal["reason"] == "Invalid"


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ({"choice": None}, {}),
        ({"filled": None}, {"filled": "dflt"}),
        ({"nullable": None}, {"nullable": None}),
        ({"whole": None}, {"whole": 3}),
        ({"either": "50%"}, {"either": "50%"}),
        ({"either": 50}, {"either": 50}),
        ({"unknown": 1}, {}),
        ({"anything": {"a": {"b": None}}}, {"anything": {"a": {"b": None}}}),
        ({"open": {"x": 1, "known": {"a": "b", "z": 1}}}, {"open": {"x": 1, "known": {"a": "b"}}}),
        ({"keyed": [{"name": "a"}]}, {"keyed": [{"name": "a", "port": 80}]}),
        ({"keyed": [{"name": "a", "port": None}]}, {"keyed": [{"name": "a", "port": 80}]}),
        (
            {"ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]},
            {"ports": [{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}]},
        ),
        ({"deep": {}}, {"deep": {}}),
        ({"deep": {"in": {}}}, {"deep": {"in": {"v": "deep"}}}),
        ({"deep": None}, {"deep": {"in": {"v": "deep"}}}),
        ({"counts": {"a": 1}}, {"counts": {"a": 1}}),
        (
            {"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "foo": 1}, "spec": {"y": 1}}},
            {"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}, "spec": {"y": 1}}},
        ),
        (
            {"embedded": {"apiVersion": "v1", "kind": "X", "metadata": None}},
            {"embedded": {"apiVersion": "v1", "kind": "X", "metadata": {}}},
        ),
        ({"duration": "3 days"}, {"duration": "3 days"}),
    ],
)
def test_a_spec_is_pruned_and_completed(widgets: Kind, sent: Object, stored: Object) -> None:
    assert kept(widgets, sent) == stored


def test_a_missing_or_broken_spec_is_refused(widgets: Kind) -> None:
    missing = widgets.api.post(widgets.path("default"), widgets.new("x")).expect(422)
    assert missing["details"]["causes"][0] == {
        "reason": "FieldValueRequired",
        "message": "Required value",
        "field": "spec",
    }
    for value, word in (("x", "string"), ([], "array")):
        refusal = send(widgets, value).expect(422)
        assert refusal["details"]["causes"][0]["message"] == (
            f'Invalid value: "{word}": spec in body must be of type object: "{word}"'
        )


def test_metadata_inside_an_embedded_resource_must_be_metadata(widgets: Kind) -> None:
    for embedded, problem in (
        ({"apiVersion": 1, "kind": "X"}, "spec.embedded.apiVersion: Invalid value: 1: must be a string"),
        (
            {"apiVersion": "v1", "kind": "X", "metadata": {"name": 1}},
            'spec.embedded.metadata: Invalid value: {"name":1}: json: cannot unmarshal number into Go struct field '
            "ObjectMeta.name of type string",
        ),
    ):
        refusal = send(widgets, {"embedded": embedded}).expect(400)
        assert refusal["message"] == f'Widget in version "v1" cannot be handled as a Widget: {problem}'


def test_unknown_fields_are_warned_about_ignored_or_refused(widgets: Kind) -> None:
    body = widgets.new("x", spec={"zz": 1, "deep": {"q": 1}, "keyed": [{"name": "a", "z": 1}]}, foo=1)
    texts = [f'unknown field "{path}"' for path in ("foo", "spec.deep.q", "spec.keyed[0].z", "spec.zz")]
    path = widgets.path("default")
    assert widgets.api.post(path, body, dryRun="All").warnings == texts
    assert widgets.api.post(path, body, dryRun="All", fieldValidation="Ignore").warnings == []
    refusal = widgets.api.post(path, body, dryRun="All", fieldValidation="Strict").expect(400)
    assert refusal["message"] == (
        f'Widget in version "v1" cannot be handled as a Widget: strict decoding error: {", ".join(texts)}'
    )


def test_warnings_come_with_a_refusal_as_well(widgets: Kind) -> None:
    answer = send(widgets, {"zz": 1, "whole": 0})
    assert answer.status == 422
    assert answer.warnings == ['unknown field "spec.zz"']


def test_a_null_label_is_an_empty_one(widgets: Kind) -> None:
    body = widgets.new("x", metadata={"labels": {"a": None}, "annotations": {"b": None}}, spec={})
    made = widgets.api.post(widgets.path("default"), body, dryRun="All").expect(201)
    assert made["metadata"]["labels"] == {"a": ""}
    assert made["metadata"]["annotations"] == {"b": ""}


# The status subresource


def test_status_and_spec_are_written_apart(api: Api, widgets: Kind, namespace: str) -> None:
    path = widgets.path(namespace, "x")
    made = api.post(widgets.path(namespace), widgets.new("x", spec={}, status={"phase": "no"})).expect(201)
    assert "status" not in made
    stated = api.patch(f"{path}/status", {"status": {"phase": "up"}, "spec": {"whole": 9}}).expect(200)
    assert stated["status"] == {"phase": "up", "word": "w"}
    assert stated["spec"]["whole"] == 3
    assert stated["metadata"]["generation"] == 1
    specified = api.patch(path, {"status": {"phase": "down"}, "spec": {"whole": 4}}).expect(200)
    assert specified["status"]["phase"] == "up"
    assert specified["metadata"]["generation"] == 2
    labelled = api.patch(f"{path}/status", {"metadata": {"labels": {"a": "b"}}}).expect(200)
    assert "labels" not in labelled["metadata"]


def test_a_bad_status_is_refused_and_a_bad_spec_beside_it_is_not_looked_at(
    api: Api, widgets: Kind, namespace: str
) -> None:
    path = widgets.path(namespace, "x") + "/status"
    api.post(widgets.path(namespace), widgets.new("x", spec={})).expect(201)
    refusal = api.patch(path, {"status": {"count": "a"}, "spec": {"whole": 500}}).expect(422)
    assert [(c["field"], c["message"]) for c in refusal["details"]["causes"]] == [
        ("status.count", 'Invalid value: "string": count in body must be of type integer: "string"')
    ]
    api.patch(path, {"status": {"count": 1}, "spec": {"whole": 500}}).expect(200)


def test_a_null_in_a_patch_takes_a_field_back_to_its_default(api: Api, widgets: Kind, namespace: str) -> None:
    path = widgets.path(namespace, "x")
    api.post(widgets.path(namespace), widgets.new("x", spec={"whole": 7, "choice": "a"})).expect(201)
    changed = api.patch(path, {"spec": {"whole": None, "choice": None}}).expect(200)
    assert changed["spec"] == DEFAULTS
    steps = [{"op": "add", "path": f"/spec/{name}", "value": None} for name in ("nullable", "filled")]
    changed = api.patch(path, steps, JSON_PATCH).expect(200)
    assert changed["spec"] == {**DEFAULTS, "nullable": None}


# A schema that changed under stored objects


class Stored:
    """One object that was stored under an earlier schema."""

    def __init__(self, api: Api, kind: Kind, namespace: str, before: Object, spec: Object) -> None:
        self.api, self.kind = api, kind
        self.path = kind.path(namespace, "x")
        self.become(before)
        made = api.post(kind.path(namespace), kind.new("x", spec=spec)).expect(201)
        self.revision = made["metadata"]["resourceVersion"]

    def become(self, schema: Object) -> None:
        """Gives the kind another schema and waits until it counts. A marker field tells that it does."""
        self.marker = f"m{id(schema)}"
        schema = json.loads(json.dumps(schema))
        schema["properties"]["spec"]["properties"][self.marker] = TEXT
        where = f"{CRDS}/{self.kind.qualified}"
        change(self.api, where, lambda c: c["spec"]["versions"][0]["schema"].update(openAPIV3Schema=schema)).expect(200)
        probe = self.kind.new("probe", spec={self.marker: "there"})

        def counts() -> bool:
            answer = self.api.post(self.kind.path("default"), probe, dryRun="All")
            return answer.status != 404 and f'unknown field "spec.{self.marker}"' not in answer.warnings

        eventually(counts, "the new schema")

    def patch(self, spec: Object) -> Answer:
        return self.api.patch(self.path, {"spec": spec}, dryRun="All")


@pytest.fixture
def stored(api: Api, definer: Any, namespace: str) -> Callable[[Object, Object], Stored]:
    def store(before: Object, spec: Object) -> Stored:
        return Stored(api, definer(with_spec({}), subresources={"status": {}}), namespace, with_spec(before), spec)

    return store


def test_what_was_stored_is_read_by_the_new_schema(api: Api, stored: Any) -> None:
    one = stored({"a": INT, "gone": TEXT}, {"a": 5, "gone": "x"})
    one.become(with_spec({"a": INT, "fresh": {"type": "string", "default": "f"}}))
    found = api.get(one.path).expect(200)
    assert found["spec"] == {"a": 5, "fresh": "f"}
    assert found["metadata"]["resourceVersion"] == one.revision
    assert found["metadata"]["generation"] == 1
    collection = one.path.rpartition("/")[0]
    assert api.get(collection).expect(200)["items"][0]["spec"] == {"a": 5, "fresh": "f"}
    assert next(api.watch(collection))["object"]["spec"] == {"a": 5, "fresh": "f"}


def test_who_owned_a_part_of_what_became_atomic_owns_the_whole(api: Api, stored: Any) -> None:
    nested = {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
    one = stored({"nested": nested, "n": INT}, {"nested": {"a": "1"}})
    atomic = {**nested, "x-kubernetes-map-type": "atomic"}
    one.become(with_spec({"nested": atomic, "n": INT}))
    for number in (1, 2):  # the first write under the new schema, and one after it
        changed = api.patch(one.path, {"spec": {"n": number}}, fieldManager="other").expect(200)
        owned = {entry["manager"]: entry["fieldsV1"]["f:spec"] for entry in changed["metadata"]["managedFields"]}
        assert {} in [fields.get("f:nested") for fields in owned.values()]
        assert owned["other"] == {"f:n": {}}


def test_a_stricter_schema_forgives_what_does_not_change(api: Api, stored: Any) -> None:
    one = stored({"a": INT, "b": INT, "list": {"type": "array", "items": INT}}, {"a": 99, "b": 1, "list": [99, 1]})
    stricter = {**INT, "maximum": 10}
    one.become(with_spec({"a": stricter, "b": stricter, "list": {"type": "array", "items": stricter}}))
    one.patch({"b": 2}).expect(200)
    one.patch({"a": 10}).expect(200)
    api.patch(one.path, {"metadata": {"labels": {"x": "y"}}}).expect(200)
    refusal = one.patch({"a": 98}).expect(422)
    assert refusal["details"]["causes"][0]["message"] == (
        "Invalid value: 98: spec.a in body should be less than or equal to 10"
    )
    one.patch({"list": [99, 1, 2]}).expect(422)
    unowned = one.kind.new("x", spec={"b": 3})
    api.patch(one.path, unowned, APPLY_PATCH, fieldManager="me", force="true", dryRun="All").expect(200)


def test_items_of_a_keyed_list_are_forgiven_one_by_one(stored: Any) -> None:
    def keyed(value: Object) -> Object:
        items = fields({"name": TEXT, "v": value, "w": TEXT}, required=["name"])
        how = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
        return {"list": {"type": "array", "items": items, **how}}

    one = stored(keyed(INT), {"list": [{"name": "a", "v": 99}, {"name": "b", "v": 1}]})
    one.become(with_spec(keyed({**INT, "maximum": 10})))
    one.patch({"list": [{"name": "b", "v": 2}, {"name": "a", "v": 99, "w": "new"}]}).expect(200)
    refusal = one.patch({"list": [{"name": "a", "v": 99}, {"name": "c", "v": 98}]}).expect(422)
    assert [c["field"] for c in refusal["details"]["causes"]] == ["spec.list[1].v"]


def test_values_of_a_map_are_forgiven_one_by_one(stored: Any) -> None:
    one = stored({"map": {"type": "object", "additionalProperties": INT}}, {"map": {"k": 99, "j": 1}})
    one.become(with_spec({"map": {"type": "object", "additionalProperties": {**INT, "maximum": 10}}}))
    one.patch({"map": {"j": 2}}).expect(200)
    one.patch({"map": {"k": 98}}).expect(422)


def test_a_field_that_became_required_is_asked_for_once_its_parent_changes(stored: Any) -> None:
    one = stored({"o": fields({"x": INT}), "b": INT}, {"o": {"x": 1}, "b": 1})
    one.become(with_spec({"o": fields({"x": INT, "y": INT}, required=["y"]), "b": INT}))
    one.patch({"b": 2}).expect(200)
    refusal = one.patch({"o": {"x": 2}}).expect(422)
    assert [c["field"] for c in refusal["details"]["causes"]] == ["spec.o.y"]


def test_the_status_can_be_written_while_the_spec_became_invalid(api: Api, stored: Any) -> None:
    one = stored({"a": INT}, {"a": 99})
    schema = with_spec({"a": {**INT, "maximum": 10}})
    schema["properties"]["status"] = fields({"p": INT})
    one.become(schema)
    assert api.patch(f"{one.path}/status", {"status": {"p": 1}}).expect(200)["status"] == {"p": 1}


# Selectable fields and columns


def test_fields_can_be_selected_by(api: Api, definer: Any, namespace: str) -> None:
    paths = [{"jsonPath": f".spec.{name}"} for name in ("s", "i", "b")]
    kind = definer(with_spec({"s": TEXT, "i": INT, "b": {"type": "boolean"}}), selectableFields=paths)
    for name, spec in (("a", {"s": "x", "i": 1, "b": True}), ("b", {"s": "y", "i": 2, "b": False}), ("c", {})):
        api.post(kind.path(namespace), kind.new(name, spec=spec)).expect(201)

    def found(selector: str) -> list[str]:
        items = api.get(kind.path(namespace), fieldSelector=selector).expect(200)["items"]
        return [item["metadata"]["name"] for item in items]

    assert found("spec.s=x") == ["a"]
    assert found("spec.s!=x") == ["b", "c"]
    assert found("spec.i=2") == ["b"]
    assert found("spec.b=false") == ["b"]
    assert found("spec.s=") == ["c"]
    assert found("spec.s=y,spec.i=2,metadata.name!=a") == ["b"]
    refusal = api.get(kind.path(namespace), fieldSelector="spec.zz=1").expect(400)
    assert refusal["message"] == "field label not supported: spec.zz"
    watch = api.watch(kind.path(namespace), fieldSelector="spec.s=y")
    assert next(watch)["object"]["metadata"]["name"] == "b"
    api.patch(kind.path(namespace, "b"), {"spec": {"s": "z"}}).expect(200)
    assert next(watch)["type"] == "DELETED"
    api.patch(kind.path(namespace, "b"), {"spec": {"s": "y"}}).expect(200)
    assert next(watch)["type"] == "ADDED"


def test_columns_show_values_by_their_type_and_nothing_where_there_is_none(
    api: Api, definer: Any, namespace: str
) -> None:
    columns = [
        {"name": "Text", "type": "string", "jsonPath": ".spec.s"},
        {"name": "Number", "type": "integer", "jsonPath": ".spec.i", "description": "How many."},
        {"name": "Flag", "type": "boolean", "jsonPath": ".spec.b"},
        {"name": "When", "type": "date", "jsonPath": ".spec.d", "priority": 1},
        {"name": "First", "type": "string", "jsonPath": ".spec.l[0]"},
        {"name": "Ready", "type": "string", "jsonPath": '.spec.c[?(@.type=="Ready")].status'},
        {"name": "All", "type": "string", "jsonPath": ".spec.l"},
    ]
    kind = definer(fields({"spec": {"type": "object", **KEEP}}), additionalPrinterColumns=columns)
    full = {
        "s": "x",
        "i": 3,
        "b": True,
        "d": "2020-01-01T00:00:00Z",
        "l": ["p", "q"],
        "c": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}],
    }
    odd = {"s": 5, "i": "text", "b": "t", "d": "no date", "l": "no list", "c": {}}
    for name, spec in (("full", full), ("empty", {}), ("odd", odd)):
        api.post(kind.path(namespace), kind.new(name, spec=spec)).expect(201)
    table = api.get(kind.path(namespace), headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).expect(
        200
    )
    shown = {(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]}
    assert {("Name", "string", 0), ("Number", "integer", 0), ("When", "date", 1)} <= shown
    described = {c["name"]: c["description"] for c in table["columnDefinitions"]}
    assert described["Number"] == "How many."
    assert described["Text"] == "Custom resource definition column (in JSONPath format): .spec.s"
    rows = {row["cells"][0]: row["cells"][1:] for row in table["rows"]}
    assert rows["empty"] == [None] * 7
    assert rows["full"][:3] == ["x", 3, True]
    assert rows["full"][3].endswith(("y", "d"))
    assert rows["full"][4:] == ["p", "True", '["p","q"]']
    assert rows["odd"][:4] == ["5", None, None, "<invalid>"]
