"""Server-side apply: who owns what, conflicts and their wording, giving up and taking over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import APPLY_PATCH, Answer, Api, Kind, mistake, needs, needs_builtin_rules
from .objects import Object, at, config_map, deployment, make, managers, refusal, version

OTHER_UID = "11111111-1111-1111-1111-111111111111"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Applier:
    """Applies widgets called `a` in one namespace."""

    def __init__(self, api: Api, kind: Kind, namespace: str) -> None:
        self.api, self.kind = api, kind
        self.path = kind.path(namespace, "a")

    def __call__(self, manager: str, spec: Any = None, *, to: str = "", **rest: Any) -> Answer:
        options = {key: rest.pop(key) for key in ("force", "dryRun", "fieldValidation") if key in rest}
        body = self.kind.new("a", **({} if spec is None else {"spec": spec}), **rest)
        return self.api.apply(self.path + to, body, manager, **options)

    def live(self) -> Object:
        body = self.api.get(self.path).expect(200)
        assert isinstance(body, dict)
        return body


@pytest.fixture
def apply(api: Api, widget: Kind, namespace: str) -> Applier:
    return Applier(api, widget, namespace)


# Creating and merging


def test_apply_creates(apply: Applier) -> None:
    made = apply("one", {"replicas": 1, "map": {"k": "v"}}, metadata={"labels": {"l": "1"}}).expect(201)
    assert made["spec"] == {"replicas": 1, "map": {"k": "v"}}
    assert made["metadata"]["generation"] == 1
    owned = {"f:metadata": {"f:labels": {"f:l": {}}}, "f:spec": {"f:map": {"f:k": {}}, "f:replicas": {}}}
    assert managers(made) == [("one", "Apply", "", owned)]


def test_applying_the_same_again_changes_nothing(apply: Applier) -> None:
    first = apply("one", {"replicas": 1, "tags": ["b", "a"], "ports": [{"name": "x", "port": 1}]}).expect(201)
    assert apply("one", {"replicas": 1, "tags": ["b", "a"], "ports": [{"name": "x", "port": 1}]}).expect(200) == first


def test_apply_leaves_what_it_does_not_mention(apply: Applier) -> None:
    apply("one", {"replicas": 1}).expect(201)
    assert apply("two", {"text": "x"}).expect(200)["spec"] == {"replicas": 1, "text": "x"}


def test_what_a_manager_stops_declaring_goes(apply: Applier) -> None:
    needs(apply.api, 27)
    apply("one", {"replicas": 1, "text": "x", "map": {"k": "v"}}).expect(201)
    assert apply("one", {"replicas": 1}).expect(200)["spec"] == {"replicas": 1}
    gone = apply("one").expect(200)
    assert "spec" not in gone
    assert managers(gone) == []


def test_what_somebody_else_owns_too_stays(apply: Applier) -> None:
    apply("one", {"replicas": 1, "text": "x"}).expect(201)
    apply("two", {"replicas": 1}).expect(200)
    left = apply("one", {"text": "x"}).expect(200)
    assert left["spec"] == {"replicas": 1, "text": "x"}
    assert sorted((m[0], m[3]) for m in managers(left)) == [
        ("one", {"f:spec": {"f:text": {}}}),
        ("two", {"f:spec": {"f:replicas": {}}}),
    ]


def test_a_manager_may_change_what_is_its_own(apply: Applier) -> None:
    apply("one", {"replicas": 1}).expect(201)
    changed = apply("one", {"replicas": 2}).expect(200)
    assert changed["spec"] == {"replicas": 2}
    assert changed["metadata"]["generation"] == 2


def test_a_dry_run_of_apply_stores_nothing(apply: Applier) -> None:
    assert apply("one", {"replicas": 1}, dryRun="All").expect(201)["spec"] == {"replicas": 1}
    apply.api.get(apply.path).expect(404)
    made = apply("one", {"replicas": 1}).expect(201)
    assert apply("one", {"replicas": 2}, dryRun="All").expect(200)["spec"] == {"replicas": 2}
    assert apply.live() == made


# Conflicts


def test_changing_what_another_owns_is_a_conflict(apply: Applier) -> None:
    apply("one", {"replicas": 1}).expect(201)
    answer = apply("two", {"replicas": 2})
    assert refusal(answer) == (409, "Conflict")
    assert answer.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.replicas'
    assert answer.body["details"] == {
        "causes": [
            {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".spec.replicas"},
        ]
    }
    assert apply.live()["spec"] == {"replicas": 1}


def test_all_conflicts_are_listed_by_manager(apply: Applier) -> None:
    apply("one", {"replicas": 1, "map": {"k": "v"}, "ports": [{"name": "x", "port": 1}]}).expect(201)
    apply("other", {"text": "x"}).expect(200)
    answer = apply("two", {"replicas": 2, "map": {"k": "w"}, "ports": [{"name": "x", "port": 2}], "text": "y"})
    assert answer.body["message"] == (
        'Apply failed with 4 conflicts: conflicts with "one":\n'
        "- .spec.replicas\n"
        "- .spec.map.k\n"
        '- .spec.ports[name="x"].port\n'
        'conflicts with "other":\n'
        "- .spec.text"
    )
    fields = {field for _, field in answer.causes}
    assert fields == {".spec.replicas", ".spec.map.k", '.spec.ports[name="x"].port', ".spec.text"}


def test_a_conflict_with_a_plain_writer_names_its_version(apply: Applier, widget: Kind) -> None:
    apply("one", {"replicas": 1}).expect(201)
    apply.api.patch(apply.path, {"spec": {"replicas": 2}}, fieldManager="writer").expect(200)
    entry = next(e for e in apply.live()["metadata"]["managedFields"] if e["manager"] == "writer")
    message = apply("one", {"replicas": 3}).expect(409)["message"]
    start = f'Apply failed with 1 conflict: conflict with "writer" using {widget.api_version}'
    assert message.startswith(start)
    assert message.endswith(": .spec.replicas")
    assert apply("one", {"replicas": 2}).status == 200
    assert entry["operation"] == "Update"


def test_the_same_value_is_no_conflict(apply: Applier) -> None:
    apply("one", {"replicas": 1}).expect(201)
    shared = apply("two", {"replicas": 1}).expect(200)
    assert sorted(m[0] for m in managers(shared)) == ["one", "two"]


def test_a_shared_field_is_changed_by_nobody_alone(apply: Applier) -> None:
    apply("one", {"replicas": 1}).expect(201)
    apply("two", {"replicas": 1}).expect(200)
    assert refusal(apply("one", {"replicas": 2})) == (409, "Conflict")


def test_force_takes_over(apply: Applier) -> None:
    apply("one", {"replicas": 1, "text": "x"}).expect(201)
    forced = apply("two", {"replicas": 2}, force="true").expect(200)
    assert forced["spec"] == {"replicas": 2, "text": "x"}
    assert managers(forced) == [
        ("one", "Apply", "", {"f:spec": {"f:text": {}}}),
        ("two", "Apply", "", {"f:spec": {"f:replicas": {}}}),
    ]
    # What it lost, the first manager no longer declares by leaving it out.
    assert apply("one", {"text": "x"}).expect(200)["spec"] == {"replicas": 2, "text": "x"}


def test_a_plain_write_takes_over_without_asking(apply: Applier) -> None:
    apply("one", {"replicas": 1}).expect(201)
    new = apply.api.patch(apply.path, {"spec": {"replicas": 5}}, fieldManager="writer").expect(200)
    assert managers(new) == [("writer", "Update", "", {"f:spec": {"f:replicas": {}}})]


# Lists and maps


def test_list_maps_are_owned_by_item(apply: Applier) -> None:
    apply("one", {"ports": [{"name": "x", "port": 1}]}).expect(201)
    both = apply("two", {"ports": [{"name": "y", "port": 2}]}).expect(200)
    assert both["spec"]["ports"] == [{"name": "x", "port": 1}, {"name": "y", "port": 2}]
    item = {".": {}, "f:name": {}, "f:port": {}}
    assert managers(both)[1] == ("two", "Apply", "", {"f:spec": {"f:ports": {'k:{"name":"y"}': item}}})
    assert apply("one").expect(200)["spec"]["ports"] == [{"name": "y", "port": 2}]


def test_the_fields_of_one_item_can_have_two_owners(apply: Applier) -> None:
    apply("one", {"ports": [{"name": "x"}]}).expect(201)
    apply("two", {"ports": [{"name": "x", "port": 7}]}).expect(200)
    assert apply("two", {"ports": [{"name": "x"}]}).expect(200)["spec"]["ports"] == [{"name": "x"}]


def test_sets_are_owned_by_value(apply: Applier) -> None:
    apply("one", {"tags": ["b", "a"]}).expect(201)
    both = apply("two", {"tags": ["c", "a"]}).expect(200)
    assert sorted(both["spec"]["tags"]) == ["a", "b", "c"]
    assert managers(both)[0] == ("one", "Apply", "", {"f:spec": {"f:tags": {'v:"a"': {}, 'v:"b"': {}}}})
    assert sorted(apply("one").expect(200)["spec"]["tags"]) == ["a", "c"]


def test_plain_lists_are_owned_whole(apply: Applier) -> None:
    made = apply("one", {"words": ["x"]}).expect(201)
    assert managers(made) == [("one", "Apply", "", {"f:spec": {"f:words": {}}})]
    assert apply("two", {"words": ["x", "y"]}).causes == [("FieldManagerConflict", ".spec.words")]


def test_atomic_maps_are_owned_whole(apply: Applier) -> None:
    made = apply("one", {"whole": {"a": "1"}}).expect(201)
    assert managers(made) == [("one", "Apply", "", {"f:spec": {"f:whole": {}}})]
    assert apply("two", {"whole": {"b": "1"}}).causes == [("FieldManagerConflict", ".spec.whole")]
    assert apply("two", {"whole": {"b": "1"}}, force="true").expect(200)["spec"]["whole"] == {"b": "1"}


def test_unknown_content_is_owned_by_leaf(apply: Applier) -> None:
    made = apply("one", {"loose": {"a": {"b": 1}, "c": [1]}}).expect(201)
    needs(apply.api, 27)
    assert managers(made)[0][3] == {"f:spec": {"f:loose": {"f:a": {".": {}, "f:b": {}}, "f:c": {}}}}
    assert apply("two", {"loose": {"a": {"d": 2}}}).expect(200)["spec"]["loose"] == {"a": {"b": 1, "d": 2}, "c": [1]}


def test_finalizers_are_a_set(apply: Applier) -> None:
    made = apply("one", metadata={"finalizers": ["example.com/a"]}).expect(201)
    assert managers(made)[0][3] == {"f:metadata": {"f:finalizers": {'v:"example.com/a"': {}}}}
    both = apply("two", metadata={"finalizers": ["example.com/b"]}).expect(200)
    assert sorted(both["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    apply("two").expect(200)
    assert "finalizers" not in apply("one").expect(200)["metadata"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"ports": [{"port": 1}]}, ".spec.ports: element 0: associative list with keys has an element that omits"),
        ({"ports": [{"name": "a"}, {"name": "a"}]}, '.spec.ports: duplicate entries for key [name="a"]'),
        ({"tags": ["a", "a"]}, '.spec.tags: duplicate entries for key [="a"]'),
        ({"tags": "x"}, ".spec.tags: expected list, got &{x}"),
        ({"replicas": "x"}, ".spec.replicas: expected numeric (int or float), got"),
        ({"nope": 1}, ".spec.nope: field not declared in schema"),
    ],
)
def test_a_configuration_must_be_typed_right(apply: Applier, spec: Object, problem: str) -> None:
    body = mistake(apply("one", spec), 400)
    assert body["message"].startswith("failed to create typed patch object")
    assert problem in body["message"]
    apply.api.get(apply.path).expect(404)


# Options and forms


def test_apply_needs_a_manager(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.patch(widget.path(namespace, "a"), widget.new("a"), APPLY_PATCH)
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [("FieldValueRequired", "fieldManager")]
    assert answer.body["message"] == (
        'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )


def test_apply_takes_yaml(api: Api, widget: Kind, namespace: str) -> None:
    text = f"apiVersion: {widget.api_version}\nkind: Widget\nmetadata:\n  name: a\nspec:\n  replicas: 3\n"
    assert api.apply(widget.path(namespace, "a"), text).expect(201)["spec"] == {"replicas": 3}


def test_doubled_keys_are_found(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 27)
    head = f"apiVersion: {widget.api_version}\nkind: Widget\nmetadata:\n  name: a\nspec:\n"
    text = head + '  text: "1"\n  text: "2"\n'
    answer = api.apply(widget.path(namespace, "a"), text)
    assert answer.expect(201)["spec"] == {"text": "2"}
    assert answer.warnings == ['line 7: key "text" already set in map']
    answer = api.apply(widget.path(namespace, "a"), text, fieldValidation="Strict")
    assert refusal(answer) == (400, "BadRequest")
    assert answer.body["message"] == (
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 7: key "text" already set in map'
    )


def test_a_configuration_must_say_what_it_is(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 27)
    body = widget.new("a")
    group, _, version_name = widget.api_version.partition("/")
    for wrong, shown in (
        ({**body, "kind": "X"}, f"{group}/{version_name}, Kind=X"),
        ({**body, "apiVersion": "v1"}, "/v1, Kind=Widget"),
        ({"metadata": {"name": "a"}}, "/, Kind="),
        ("", "/, Kind="),
    ):
        answer = api.apply(widget.path(namespace, "a"), wrong)
        assert refusal(answer) == (400, "BadRequest")
        assert answer.body["message"] == f"invalid object type: {shown}"


@pytest.mark.parametrize("body", ["[]", "x", "a: [", "{"])
def test_a_configuration_must_be_an_object(api: Api, widget: Kind, namespace: str, body: str) -> None:
    answer = api.apply(widget.path(namespace, "a"), body)
    assert refusal(answer) == (400, "BadRequest")
    assert answer.body["message"].startswith("error decoding YAML: error ")


def test_name_and_namespace_must_be_those_of_the_path(api: Api, widget: Kind, namespace: str) -> None:
    path = widget.path(namespace, "a")
    for body in (
        widget.new("b"),
        widget.new(),
        widget.new(metadata={"generateName": "a-"}),
        widget.new("a", metadata={"namespace": "other"}),
    ):
        assert refusal(api.apply(path, body)) == (400, "BadRequest")
    api.get(path).expect(404)
    answer = api.apply(widget.path(f"{namespace}-missing", "a"), widget.new("a"))
    assert answer.body["message"] == f'namespaces "{namespace}-missing" not found'


def test_managed_fields_are_not_applied(apply: Applier) -> None:
    for entries in ([], [{"manager": "x"}]):
        answer = apply("one", metadata={"managedFields": entries})
        assert refusal(answer) == (400, "BadRequest")
        assert answer.body["message"] == "metadata.managedFields must be nil"


def test_apply_can_be_bound_to_a_version(apply: Applier) -> None:
    made = apply("one", {"replicas": 1}).expect(201)
    assert refusal(apply("one", {"replicas": 2}, metadata={"resourceVersion": "1"})) == (409, "Conflict")
    apply("one", {"replicas": 2}, metadata={"resourceVersion": version(made)}).expect(200)


def test_apply_can_be_bound_to_a_uid(apply: Applier) -> None:
    answer = apply("one", metadata={"uid": OTHER_UID})
    assert refusal(answer) == (409, "Conflict")
    why = f"uid mismatch: the provided object specified uid {OTHER_UID}, and no existing object was found"
    assert answer.body["message"].endswith(f'"a": {why}')
    made = apply("one").expect(201)
    answer = apply("one", metadata={"uid": OTHER_UID})
    assert refusal(answer) == (422, "Invalid")
    assert set(answer.causes) == {("FieldValueInvalid", "metadata.uid")}
    apply("one", metadata={"uid": made["metadata"]["uid"]}).expect(200)


def test_the_outcome_is_validated(apply: Applier) -> None:
    answer = apply("one", {"replicas": -1})
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [("FieldValueInvalid", ".spec.replicas")]


# Status


@pytest.fixture(scope="module")
def nullable(definer: Any) -> Kind:
    text = {"type": "string"}
    items = {"type": "object", "required": ["name"], "properties": {"name": text, "port": {"type": "integer"}}}
    ports = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": items}
    fields = {
        "text": text,
        "filled": {**text, "default": "x"},
        "open": {**text, "nullable": True},
        "map": {"type": "object", "additionalProperties": text},
        "ports": ports,
        "either": {"x-kubernetes-int-or-string": True},
    }
    return definer({"properties": {"spec": {"type": "object", "properties": fields}}}, kind="Nullable")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("spec", "field", "wanted"),
    [
        ({"text": None}, "spec.text", "string"),
        ({"map": None}, "spec.map", "object"),
        ({"map": {"k": None}}, "spec.map.k", "string"),
        ({"ports": None}, "spec.ports", "array"),
        ({"ports": [{"name": "b", "port": None}]}, "spec.ports[0].port", "integer"),
        ({"either": None}, "spec.either", "integer,string"),
        (None, "spec", "object"),
    ],
)
def test_a_null_that_is_applied_is_refused_where_it_may_not_be(
    api: Api, nullable: Kind, namespace: str, spec: Any, field: str, wanted: str
) -> None:
    """Created, updated or patched it would be dropped; what is applied is taken at its word."""
    path, body = nullable.path(namespace, "a"), nullable.new("a", spec=spec)
    said = f'{field}: Invalid value: "null": {field} in body must be of type {wanted}: "null"'
    refused = (422, f'{nullable.kind}.{nullable.group} "a" is invalid: {said}')
    answer = api.apply(path, body)
    assert (answer.status, answer.body["message"]) == refused
    api.post(nullable.path(namespace), body).expect(201)
    if spec is not None:  # an empty one leaves what is there
        answer = api.apply(path, body)
        assert (answer.status, answer.body["message"]) == refused


def test_a_null_that_is_applied_gives_way_to_a_default_and_stays_where_it_may(
    api: Api, nullable: Kind, namespace: str
) -> None:
    made = api.apply(nullable.path(namespace, "a"), nullable.new("a", spec={"filled": None, "open": None})).expect(201)
    assert made["spec"] == {"filled": "x", "open": None}
    assert managers(made) == [("applier", "Apply", "", {"f:spec": {"f:filled": {}, "f:open": {}}})]


def test_a_null_leaves_what_others_have_put_into_a_map(api: Api, nullable: Kind, namespace: str) -> None:
    path = nullable.path(namespace, "a")
    api.apply(path, nullable.new("a", spec={"map": {"k": "v"}}), "one").expect(201)
    assert api.apply(path, nullable.new("a", spec={"map": None}), "two").expect(200)["spec"]["map"] == {"k": "v"}


def test_status_is_applied_through_its_own_path(apply: Applier) -> None:
    needs(apply.api, 22)
    apply("one", {"replicas": 1}, status={"phase": "ignored"}).expect(201)
    assert "status" not in apply.live()
    new = apply("one", {"replicas": 9}, to="/status", status={"phase": "x"}, metadata={"labels": {"a": "b"}}).expect(200)
    assert new["status"] == {"phase": "x"}
    assert new["spec"] == {"replicas": 1}
    assert "labels" not in new["metadata"]
    assert new["metadata"]["generation"] == 1
    assert managers(new) == [
        ("one", "Apply", "", {"f:spec": {"f:replicas": {}}}),
        ("one", "Apply", "status", {"f:status": {"f:phase": {}}}),
    ]


def test_conflicts_about_status_name_the_subresource(apply: Applier) -> None:
    needs(apply.api, 22)
    apply("one").expect(201)
    apply("one", to="/status", status={"phase": "x"}).expect(200)
    message = apply("two", to="/status", status={"phase": "y"}).expect(409)["message"]
    assert message == 'Apply failed with 1 conflict: conflict with "one" with subresource "status": .status.phase'
    assert apply("two", to="/status", status={"phase": "y"}, force="true").expect(200)["status"] == {"phase": "y"}
    assert "status" not in apply("two", to="/status").expect(200)


def test_status_is_not_created_by_apply(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.apply(widget.path(namespace, "none", "status"), widget.new("none", status={"phase": "x"}))
    assert refusal(answer) == (404, "NotFound")


# Scale


def scale_of(name: str, count: int | None) -> Object:
    spec = {} if count is None else {"replicas": count}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": spec}


def test_a_scale_is_applied(api: Api, apply: Applier) -> None:
    needs(api, 22)
    apply("one", {"replicas": 1, "text": "x"}).expect(201)
    answer = api.apply(f"{apply.path}/scale", scale_of("a", 4), "scaler")
    assert answer.expect(409)["message"] == 'Apply failed with 1 conflict: conflict with "one": .spec.replicas'
    assert answer.causes == [("FieldManagerConflict", ".spec.replicas")]
    scale = api.apply(f"{apply.path}/scale", scale_of("a", 4), "scaler", force="true").expect(200)
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 4})
    live = apply.live()
    assert live["spec"] == {"replicas": 4, "text": "x"}
    assert managers(live) == [
        ("one", "Apply", "", {"f:spec": {"f:text": {}}}),
        ("scaler", "Apply", "scale", {"f:spec": {"f:replicas": {}}}),
    ]
    assert {entry["apiVersion"] for entry in live["metadata"]["managedFields"]} == {apply.kind.api_version}
    api.apply(f"{apply.path}/scale", scale_of("a", 4), "scaler").expect(200)
    assert version(apply.live()) == version(live)
    conflict = 'Apply failed with 1 conflict: conflict with "scaler" with subresource "scale": .spec.replicas'
    assert apply("one", {"replicas": 1, "text": "x"}).expect(409)["message"] == conflict


def test_a_count_can_have_two_owners(api: Api, apply: Applier) -> None:
    needs(api, 22)
    apply("one", {"replicas": 1}).expect(201)
    api.apply(f"{apply.path}/scale", scale_of("a", 1), "scaler").expect(200)
    count = {"f:spec": {"f:replicas": {}}}
    assert sorted(managers(apply.live())) == [("one", "Apply", "", count), ("scaler", "Apply", "scale", count)]
    left = apply("one", {"text": "x"}).expect(200)
    assert left["spec"] == {"replicas": 1, "text": "x"}


def test_a_scale_that_is_applied_must_be_one(api: Api, apply: Applier, widget: Kind, namespace: str) -> None:
    needs(api, 22)
    assert refusal(api.apply(widget.path(namespace, "a", "scale"), scale_of("a", 1))) == (404, "NotFound")
    apply("one", {"replicas": 1}).expect(201)
    path = f"{apply.path}/scale"
    assert refusal(api.apply(path, scale_of("b", 1))) == (400, "BadRequest")
    assert refusal(api.apply(path, widget.new("a", spec={"replicas": 2}))) == (400, "BadRequest")
    assert refusal(api.patch(path, scale_of("a", 1), APPLY_PATCH)) == (422, "Invalid")
    strange = {**scale_of("a", 1), "spec": {"replicas": 1, "foo": 1}}
    assert ".spec.foo: field not declared in schema" in mistake(api.apply(path, strange), 400)["message"]
    assert api.apply(path, scale_of("a", 3), force="true", dryRun="All").expect(200)["spec"] == {"replicas": 3}
    assert apply.live()["spec"] == {"replicas": 1}


def test_the_scale_of_a_deployment_is_applied(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    api.post(at(namespace, "deployments", group="apps"), deployment(), fieldManager="maker").expect(201)
    path = at(namespace, "deployments", "web", group="apps")
    answer = api.apply(f"{path}/scale", scale_of("web", 5), "scaler")
    assert 'conflict with "maker" using autoscaling/v1: .spec.replicas' in answer.expect(409)["message"]
    assert api.apply(f"{path}/scale", scale_of("web", 5), "scaler", force="true").expect(200)["spec"] == {"replicas": 5}
    live = api.get(path).expect(200)
    assert live["spec"]["replicas"] == 5
    found = {manager: fields for manager, _, _, fields in managers(live)}
    assert "f:replicas" not in found["maker"]["f:spec"]
    assert found["scaler"] == {"f:spec": {"f:replicas": {}}}


# Coming from elsewhere


def test_what_nobody_owns_is_kept_by_a_first_apply(api: Api, apply: Applier, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", spec={"replicas": 1, "text": "x"})
    cleared = api.patch(apply.path, {"metadata": {"managedFields": [{}]}}).expect(200)
    assert managers(cleared) == []
    answer = apply("one", {"replicas": 2})
    assert answer.causes == [("FieldManagerConflict", ".spec.replicas")]
    assert 'conflict with "before-first-apply"' in answer.body["message"]
    assert apply("one", {"replicas": 1}).expect(200)["spec"] == {"replicas": 1, "text": "x"}


def test_managed_fields_can_be_set_by_hand(api: Api, apply: Applier, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", spec={"text": "x"})
    entry = {
        "manager": "hand",
        "operation": "Update",
        "apiVersion": widget.api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:text": {}}},
    }
    new = api.patch(apply.path, {"metadata": {"managedFields": [entry]}}).expect(200)
    assert managers(new) == [("hand", "Update", "", {"f:spec": {"f:text": {}}})]
    answer = api.patch(apply.path, {"metadata": {"managedFields": [{**entry, "operation": "Bogus"}]}})
    assert answer.status in (200, 422)
    kept = api.patch(apply.path, {"metadata": {"managedFields": None}}).expect(200)
    assert [m[0] for m in managers(kept)] == ["hand"]


def test_kubectl_takes_over_what_it_applied_from_the_client(
    api: Api, apply: Applier, widget: Kind, namespace: str
) -> None:
    body = widget.new("a", spec={"replicas": 1, "text": "x"})
    body["metadata"]["annotations"] = {LAST_APPLIED: json.dumps(body)}
    api.post(widget.path(namespace), body, fieldManager="kubectl-client-side-apply").expect(201)
    assert refusal(apply("other", {"replicas": 2})) == (409, "Conflict")
    new = apply("kubectl", {"replicas": 2}).expect(200)
    assert new["spec"]["replicas"] == 2
    assert json.loads(new["metadata"]["annotations"][LAST_APPLIED])["spec"] == {"replicas": 2}


# Built-in kinds


def test_config_maps_are_applied_by_key(api: Api, namespace: str) -> None:
    path = at(namespace, "configmaps", "a")
    made = api.apply(path, config_map("a", data={"x": "1"}), "one").expect(201)
    assert managers(made) == [("one", "Apply", "", {"f:data": {"f:x": {}}})]
    assert api.apply(path, config_map("a", data={"x": "2"}), "two").causes == [("FieldManagerConflict", ".data.x")]
    both = api.apply(path, config_map("a", data={"x": "1", "y": "2"}), "two").expect(200)
    assert both["data"] == {"x": "1", "y": "2"}
    assert api.apply(path, config_map("a", data={"y": "2"}), "one").expect(200)["data"] == {"x": "1", "y": "2"}
    assert api.apply(path, config_map("a"), "two").expect(200)["data"] == {"y": "2"}


def test_unknown_fields_of_built_in_kinds_are_not_applied(api: Api, namespace: str) -> None:
    body = mistake(api.apply(at(namespace, "configmaps", "a"), {**config_map("a"), "bogus": 1}), 400)
    assert body["message"].endswith(".bogus: field not declared in schema")


def test_containers_of_a_deployment_are_owned_by_name(api: Api, namespace: str) -> None:
    path = at(namespace, "deployments", "web", group="apps")
    made = api.apply(path, deployment(), "one").expect(201)
    owned = managers(made)[0][3]
    image = {".": {}, "f:image": {}, "f:name": {}}
    assert owned["f:spec"]["f:template"]["f:spec"]["f:containers"] == {'k:{"name":"main"}': image}
    assert owned["f:spec"]["f:selector"] == {}
    bare = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}

    def template(*containers: Object) -> Object:
        return {**bare, "spec": {"template": {"spec": {"containers": list(containers)}}}}

    answer = api.apply(path, template({"name": "main", "image": "other"}), "two")
    assert answer.body["message"] == (
        'Apply failed with 1 conflict: conflict with "one": .spec.template.spec.containers[name="main"].image'
    )
    side = {"name": "side", "image": "s", "ports": [{"containerPort": 80}]}
    new = api.apply(path, template(side), "two").expect(200)
    assert [c["name"] for c in new["spec"]["template"]["spec"]["containers"]] == ["main", "side"]
    port = 'k:{"containerPort":80,"protocol":"TCP"}'
    mine = next(m for m in managers(new) if m[0] == "two")[3]["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert mine == {'k:{"name":"side"}': {".": {}, "f:image": {}, "f:name": {}, "f:ports": {port: {".": {}, "f:containerPort": {}}}}}
    left = api.apply(path, bare, "two").expect(200)
    assert [c["name"] for c in left["spec"]["template"]["spec"]["containers"]] == ["main"]


def test_the_status_of_a_deployment_is_applied_apart(api: Api, namespace: str) -> None:
    needs(api, 22)
    path = at(namespace, "deployments", "web", group="apps")
    api.apply(path, deployment(), "one").expect(201)
    bare = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    new = api.apply(f"{path}/status", {**bare, "status": {"replicas": 1}}, "reporter").expect(200)
    assert ("reporter", "Apply", "status", {"f:status": {"f:replicas": {}}}) in managers(new)


def test_defaults_belong_to_nobody(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "deployments", "web", group="apps")
    made = api.apply(path, deployment(), "one").expect(201)
    assert made["spec"]["revisionHistoryLimit"] == 10
    assert "f:revisionHistoryLimit" not in managers(made)[0][3]["f:spec"]
    bare = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    api.apply(path, {**bare, "spec": {"revisionHistoryLimit": 5}}, "two").expect(200)
