"""What happens to an object on its way in: identity, names, namespaces, strictness, dry run, forms of body."""

from __future__ import annotations

import json

import pytest

from .conftest import Api, Kind, eventually, mistake, needs, needs_builtin_rules
from .objects import Object, at, config_map, deployment, make, managers, refusal, version

YAML = {"Content-Type": "application/yaml"}


# Identity


def test_the_server_gives_uid_time_version_and_generation(api: Api, widget: Kind, namespace: str) -> None:
    mine = {
        "uid": "mine",
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "generation": 7,
        "selfLink": "/mine",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 5,
    }
    metadata = make(api, widget, namespace, "a", metadata=mine)["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["creationTimestamp"] > "2020"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"].isdigit()
    assert not {"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"} & metadata.keys()


def test_config_maps_have_no_generation(api: Api, namespace: str) -> None:
    made = api.post(at(namespace, "configmaps"), config_map("a")).expect(201)
    assert "generation" not in made["metadata"]


def test_deployments_begin_at_generation_one(api: Api, namespace: str) -> None:
    path = at(namespace, "deployments", group="apps")
    assert api.post(path, deployment()).expect(201)["metadata"]["generation"] == 1


def test_status_is_dropped_where_it_is_a_subresource(api: Api, widget: Kind, namespace: str) -> None:
    assert "status" not in make(api, widget, namespace, "a", status={"phase": "Ready"})


def test_status_is_kept_where_it_is_a_field_like_any_other(api: Api, gadget: Kind, namespace: str) -> None:
    assert make(api, gadget, namespace, "a", status={"phase": "Ready"})["status"] == {"phase": "Ready"}


def test_the_creator_manages_the_fields_it_set(api: Api, widget: Kind, namespace: str) -> None:
    made = make(api, widget, namespace, "a", spec={"replicas": 1})
    assert managers(made) == [("maker", "Update", "", {"f:spec": {".": {}, "f:replicas": {}}})]
    entry = made["metadata"]["managedFields"][0]
    assert (entry["apiVersion"], entry["fieldsType"]) == (widget.api_version, "FieldsV1")


@pytest.mark.parametrize(
    ("agent", "manager"),
    [("curl/7.1", "curl"), ("kubectl/v1.30 (linux)", "kubectl"), ("Mozilla 5", "Mozilla 5"), ("a b/c", "a b")],
)
def test_the_manager_is_named_after_the_user_agent(
    api: Api, widget: Kind, namespace: str, agent: str, manager: str
) -> None:
    answer = api.post(widget.path(namespace), widget.new("a", spec={"text": "x"}), headers={"User-Agent": agent})
    assert managers(answer.expect(201))[0][0] == manager


# Names


def test_a_name_can_be_generated(api: Api, widget: Kind, namespace: str) -> None:
    body = widget.new(metadata={"generateName": "some-"})
    names = {api.post(widget.path(namespace), body).expect(201)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("some-") and len(name) == 10 for name in names)


def test_a_long_generate_name_is_cut(api: Api, namespace: str) -> None:
    body = config_map(metadata={"generateName": "x" * 100})
    assert len(api.post(at(namespace, "configmaps"), body).expect(201)["metadata"]["name"]) == 63


def test_a_given_name_wins_over_generate_name(api: Api, namespace: str) -> None:
    made = api.post(at(namespace, "configmaps"), config_map("a", metadata={"generateName": "b-"})).expect(201)
    assert made["metadata"]["name"] == "a"


def test_an_object_needs_a_name(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), widget.new())
    assert refusal(answer) == (422, "Invalid")
    assert answer.causes == [("FieldValueRequired", "metadata.name")]
    why = "metadata.name: Required value: name or generateName is required"
    assert answer.body["message"] == f'Widget.{widget.group} "" is invalid: {why}'
    assert "name" not in answer.body["details"]


def test_a_bad_name_is_refused_with_the_rule(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), widget.new("Bad_"))
    assert refusal(answer) == (422, "Invalid")
    assert answer.body["details"]["name"] == "Bad_"
    assert answer.body["details"]["kind"] == "Widget"
    assert "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric" in answer.body["message"]


def test_a_bad_generate_name_is_refused_with_the_name_made_of_it(api: Api, namespace: str) -> None:
    answer = api.post(at(namespace, "configmaps"), config_map(metadata={"generateName": "Bad_"}))
    assert answer.causes == [("FieldValueInvalid", "metadata.generateName"), ("FieldValueInvalid", "metadata.name")]


def test_a_name_that_is_taken_is_a_conflict(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a")
    answer = api.post(widget.path(namespace), widget.new("a"))
    assert refusal(answer) == (409, "AlreadyExists")
    assert answer.body["message"] == f'{widget.qualified} "a" already exists'
    assert answer.body["details"] == {"name": "a", "group": widget.group, "kind": "widgets"}


def test_a_name_that_is_being_deleted_is_still_taken(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a", metadata={"finalizers": ["example.com/hold"]})
    api.delete(widget.path(namespace, "a")).expect(200)
    answer = api.post(widget.path(namespace), widget.new("a"))
    assert refusal(answer) == (409, "AlreadyExists")
    assert answer.body["message"] == f'object is being deleted: {widget.qualified} "a" already exists'
    api.patch(widget.path(namespace, "a"), {"metadata": {"finalizers": None}}).expect(200)


def test_a_new_object_has_no_version_yet(api: Api, widget: Kind, namespace: str) -> None:
    body = mistake(api.post(widget.path(namespace), widget.new("a", metadata={"resourceVersion": "5"})), 400)
    assert body["message"] == "resourceVersion should not be set on objects to be created"
    api.post(widget.path(namespace), widget.new("a", metadata={"resourceVersion": "0"})).expect(201)


# Kinds


def test_a_custom_object_must_say_its_kind(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 27)
    body = widget.new("a")
    del body["kind"]
    answer = api.post(widget.path(namespace), body)
    assert refusal(answer) == (400, "BadRequest")
    assert "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{" in (
        answer.body["message"]
    )


@pytest.mark.parametrize("given", ["", "v1", "other.example.com/v1"])
def test_a_custom_object_must_say_its_version(api: Api, widget: Kind, namespace: str, given: str) -> None:
    needs(api, 27)
    answer = api.post(widget.path(namespace), {**widget.new("a"), "apiVersion": given})
    assert refusal(answer) == (400, "BadRequest")
    assert answer.body["message"] == (
        f"the API version in the data ({given}) does not match the expected API version ({widget.api_version})"
    )


def test_a_custom_object_of_another_kind_is_invalid(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), {**widget.new("a"), "kind": "Other"})
    assert refusal(answer) == (422, "Invalid")
    message = f'Other.{widget.group} "a" is invalid: kind: Invalid value: "Other": must be Widget'
    assert answer.body["message"] == message


def test_a_built_in_object_may_leave_out_kind_and_version(api: Api, namespace: str) -> None:
    made = api.post(at(namespace, "configmaps"), {"metadata": {"name": "a"}}).expect(201)
    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")


@pytest.mark.parametrize(("kind", "given"), [("Nope", "v1"), ("ConfigMap", "v2"), ("ConfigMap", "apps/v1")])
def test_a_built_in_object_of_an_unknown_kind_is_refused(api: Api, namespace: str, kind: str, given: str) -> None:
    answer = api.post(at(namespace, "configmaps"), {**config_map("a"), "kind": kind, "apiVersion": given})
    assert refusal(answer) == (400, "BadRequest")
    start = f'{kind} in version "{given.rpartition("/")[2]}" cannot be handled as a ConfigMap: '
    assert answer.body["message"].startswith(f'{start}no kind "{kind}" is registered for version "{given}" in scheme')


def test_a_secret_is_no_config_map(api: Api, namespace: str) -> None:
    answer = api.post(at(namespace, "configmaps"), {**config_map("a"), "kind": "Secret"})
    assert refusal(answer) == (400, "BadRequest")
    assert answer.body["message"].startswith('Secret in version "v1" cannot be handled as a ConfigMap: ')


# Namespaces


def test_the_namespace_comes_from_the_path(api: Api, widget: Kind, namespace: str) -> None:
    assert make(api, widget, namespace, "a")["metadata"]["namespace"] == namespace
    assert make(api, widget, namespace, "b", metadata={"namespace": namespace})["metadata"]["namespace"] == namespace


def test_another_namespace_in_the_object_is_refused(api: Api, widget: Kind, namespace: str) -> None:
    for path, body in (
        (widget.path(namespace), widget.new("a", metadata={"namespace": "other"})),
        (at(namespace, "configmaps"), config_map("a", metadata={"namespace": "other"})),
    ):
        answer = api.post(path, body)
        assert refusal(answer) == (400, "BadRequest")
        assert answer.body["message"] == (
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def test_a_namespace_that_is_not_there_is_not_found(api: Api, widget: Kind, namespace: str) -> None:
    missing = f"{namespace}-missing"
    for path, body in (
        (widget.path(missing), widget.new("a")),
        (at(missing, "configmaps"), config_map("a")),
    ):
        answer = api.post(path, body)
        assert refusal(answer) == (404, "NotFound")
        assert answer.body["message"] == f'namespaces "{missing}" not found'
        assert answer.body["details"] == {"name": missing, "kind": "namespaces"}


def test_an_object_without_a_namespace_is_not_looked_at_further(api: Api, widget: Kind) -> None:
    answer = api.post(at("nowhere", "configmaps"), config_map("Not A Name"))
    assert answer.expect(404)["message"] == 'namespaces "nowhere" not found'
    answer = api.post(widget.path("nowhere"), widget.new("a", spec={"replicas": "many"}))
    assert answer.expect(404)["message"] == 'namespaces "nowhere" not found'


def test_nothing_new_comes_into_a_namespace_that_is_going(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    held = config_map("held", metadata={"finalizers": ["example.com/hold"]})
    api.post(at(namespace, "configmaps"), held).expect(201)
    api.delete(f"/api/v1/namespaces/{namespace}").expect(200)
    refused = eventually(lambda: (a := api.post(at(namespace, "configmaps"), config_map("late"))).status == 403 and a)
    assert refusal(refused) == (403, "Forbidden")
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    assert refused.body["message"] == f'configmaps "late" is forbidden: {why}'
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    api.patch(at(namespace, "configmaps", "held"), {"metadata": {"finalizers": None}}).expect(200)


def test_a_namespaced_kind_is_not_created_without_one(api: Api, widget: Kind) -> None:
    answer = api.post("/api/v1/configmaps", config_map("a"))
    assert refusal(answer) == (405, "MethodNotAllowed")
    assert answer.body["message"] == "the server does not allow this method on the requested resource"
    assert api.post(widget.path(), widget.new("a")).status in (404, 405)


# Dry run


def test_a_dry_run_answers_and_stores_nothing(api: Api, widget: Kind, namespace: str) -> None:
    shown = api.post(widget.path(namespace), widget.new("a"), dryRun="All").expect(201)
    assert shown["metadata"]["uid"]
    assert "resourceVersion" not in shown["metadata"]
    api.get(widget.path(namespace, "a")).expect(404)


def test_a_dry_run_finds_what_would_fail(api: Api, widget: Kind, namespace: str) -> None:
    make(api, widget, namespace, "a")
    assert refusal(api.post(widget.path(namespace), widget.new("a"), dryRun="All")) == (409, "AlreadyExists")
    assert api.post(widget.path(namespace), widget.new("b", spec={"text": 1}), dryRun="All").status == 422


def test_options_are_checked(api: Api, widget: Kind, namespace: str) -> None:
    for option, value, reason in (
        ("dryRun", "Bogus", "FieldValueNotSupported"),
        ("fieldManager", "a\nb", "FieldValueInvalid"),
        ("fieldManager", "x" * 129, "FieldValueTooLong"),
    ):
        answer = api.post(widget.path(namespace), widget.new("a"), **{option: value})
        assert refusal(answer) == (422, "Invalid")
        assert answer.causes == [(reason, option)]
        assert answer.body["details"]["kind"] == "CreateOptions"
        assert answer.body["details"]["group"] == "meta.k8s.io"


# Strictness


def _doubled(widget: Kind, name: str) -> str:
    spec = '{"replicas":1,"replicas":2,"nope":1,"map":{"a":"b","a":"c"},"loose":{"x":1,"x":2}}'
    return (
        f'{{"apiVersion":"{widget.api_version}","kind":"Widget","metadata":{{"name":"{name}","bogus":1}},'
        f'"spec":{spec},"extra":{{}}}}'
    )


DOUBLED = ['duplicate field "spec.replicas"', 'duplicate field "spec.map.a"', 'duplicate field "spec.loose.x"']
UNKNOWN = ['unknown field "extra"', 'unknown field "metadata.bogus"', 'unknown field "spec.nope"']


def test_strict_validation_refuses_unknown_and_doubled_fields(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 27)
    answer = api.post(widget.path(namespace), _doubled(widget, "a"), fieldValidation="Strict")
    assert refusal(answer) == (400, "BadRequest")
    start = 'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
    assert answer.body["message"].startswith(start)
    assert sorted(answer.body["message"][len(start) :].split(", ")) == sorted(DOUBLED + UNKNOWN)


@pytest.mark.parametrize("asked", ["Warn", None])
def test_unknown_and_doubled_fields_are_warned_about(api: Api, widget: Kind, namespace: str, asked: str) -> None:
    needs(api, 27)
    answer = api.post(widget.path(namespace), _doubled(widget, "a"), fieldValidation=asked)
    assert answer.expect(201)["spec"] == {"replicas": 2, "map": {"a": "c"}, "loose": {"x": 2}}
    assert sorted(answer.warnings) == sorted(DOUBLED + UNKNOWN)


def test_strictness_can_be_turned_off(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), _doubled(widget, "a"), fieldValidation="Ignore")
    assert answer.expect(201)["spec"]["replicas"] == 2
    assert answer.warnings == []


def test_there_is_no_fourth_strictness(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 27)
    answer = api.post(widget.path(namespace), widget.new("a"), fieldValidation="Bogus")
    assert answer.causes == [("FieldValueNotSupported", "fieldValidation")]
    assert 'supported values: "", "Ignore", "Strict", "Warn"' in answer.body["message"]


def test_built_in_kinds_are_as_strict(api: Api, namespace: str) -> None:
    needs(api, 27)
    body = '{"metadata":{"name":"%s","bogus":1},"data":{"a":"b","a":"c"},"extra":{"x":1}}'
    path = at(namespace, "configmaps")
    expected = {'unknown field "metadata.bogus"', 'duplicate field "data.a"', 'unknown field "extra"'}
    answer = api.post(path, body % "a", fieldValidation="Strict")
    assert refusal(answer) == (400, "BadRequest")
    start = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
    assert set(answer.body["message"].removeprefix(start).split(", ")) == expected
    warned = api.post(path, body % "b")
    assert set(warned.warnings) == expected
    assert warned.expect(201)["data"] == {"a": "c"}
    assert api.post(path, body % "c", fieldValidation="Ignore").warnings == []


def test_doubled_keys_of_yaml_are_found_by_their_line(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 27)
    text = f"apiVersion: {widget.api_version}\nkind: Widget\nmetadata:\n  name: a\nspec:\n  replicas: 1\n  replicas: 2\n"
    answer = api.post(widget.path(namespace), text, headers=YAML, fieldValidation="Strict")
    assert refusal(answer) == (400, "BadRequest")
    assert answer.body["message"].endswith(
        'strict decoding error: yaml: unmarshal errors:\n  line 7: key "replicas" already set in map'
    )
    warned = api.post(widget.path(namespace), text, headers=YAML)
    assert warned.expect(201)["spec"] == {"replicas": 2}
    assert warned.warnings == ['line 7: key "replicas" already set in map']


# Forms of body


def test_yaml_is_as_good_as_json(api: Api, namespace: str) -> None:
    path = at(namespace, "configmaps")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {a: '1'}\n"
    assert api.post(path, text % "a", headers=YAML).expect(201)["data"] == {"a": "1"}
    api.post(path, text % "b", headers={"Content-Type": "application/yaml; charset=utf-8"}).expect(201)
    api.post(path, '{"metadata": {"name": "c"}}', headers={"Content-Type": "application/json; charset=utf-8"}).expect(201)


@pytest.mark.parametrize("media", ["text/plain", "application/x-foo"])
def test_other_media_types_are_not_supported(api: Api, widget: Kind, namespace: str, media: str) -> None:
    answer = api.post(widget.path(namespace), widget.new("a"), headers={"Content-Type": media})
    assert refusal(answer) == (415, "UnsupportedMediaType")
    assert answer.body["message"].startswith(
        "the body of the request was in an unknown format - accepted media types include: application/json, "
    )


@pytest.mark.parametrize("body", ["", "{", "[]", '"x"', '{"a":}', b"\xff"])
def test_a_body_that_is_no_object_is_not_recognised(api: Api, widget: Kind, namespace: str, body: str) -> None:
    for kind, path in (("Widget", widget.path(namespace)), ("ConfigMap", at(namespace, "configmaps"))):
        answer = api.post(path, body)
        assert refusal(answer) == (400, "BadRequest")
        assert answer.body["message"].startswith(f"the object provided is unrecognized (must be of type {kind}): ")


def test_an_unfinished_body_is_named_so(api: Api, namespace: str) -> None:
    for body, shown in (("", "<empty>"), ("{", "{")):
        message = api.post(at(namespace, "configmaps"), body).expect(400)["message"]
        assert message.endswith(f"couldn't get version/kind; json parse error: unexpected end of JSON input ({shown})")


# Types


def test_wrong_types_in_custom_objects_are_invalid(api: Api, widget: Kind, namespace: str) -> None:
    needs(api, 27)
    answer = api.post(widget.path(namespace), widget.new("a", spec={"text": 5, "words": ["x", 1]}))
    assert refusal(answer) == (422, "Invalid")
    assert sorted(field for _, field in answer.causes) == ["spec.text", "spec.words[1]"]
    assert 'Invalid value: "integer": spec.text in body must be of type string: "integer"' in answer.body["message"]


def test_a_replica_count_must_be_countable(api: Api, widget: Kind, gadget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), widget.new("a", spec={"replicas": -1}))
    assert answer.causes == [("FieldValueInvalid", ".spec.replicas")]
    assert answer.body["message"].endswith(
        ".spec.replicas: Invalid value: -1: should be a non-negative integer"
    )
    api.post(gadget.path(namespace), gadget.new("a", spec={"replicas": -1})).expect(201)


def test_a_whole_number_with_a_point_is_shown_without_it(api: Api, widget: Kind, namespace: str) -> None:
    answer = api.post(widget.path(namespace), widget.new("a", spec={"replicas": 5.0}))
    assert refusal(answer) == (422, "Invalid")
    assert ".spec.replicas accessor error: 5 is of the type float64, expected int64" in answer.body["message"]


def test_whole_numbers_are_stored_as_integers(api: Api, gadget: Kind, namespace: str) -> None:
    def text(count: str, name: str = "a") -> str:
        return json.dumps(gadget.new(name, spec={"replicas": "#", "loose": {"n": "#", "list": ["#"]}})).replace('"#"', count)

    def counts(obj: Object) -> list[str]:
        loose = obj["spec"]["loose"]
        return [repr(n) for n in (obj["spec"]["replicas"], loose["n"], *loose["list"])]

    path = gadget.path(namespace)
    assert counts(api.post(path, text("5.0"), dryRun="All").expect(201)) == ["5"] * 3
    made = api.post(path, text("5.0")).expect(201)
    assert counts(made) == counts(api.get(f"{path}/a").body) == ["5"] * 3
    assert version(api.patch(f"{path}/a", '{"spec": {"replicas": 5.0}}').expect(200)) == version(made)
    assert api.patch(f"{path}/a", '{"spec": {"loose": {"n": 0.5}}}').expect(200)["spec"]["loose"]["n"] == 0.5
    assert counts(api.apply(f"{path}/b", text("1e3", "b")).expect(201)) == ["1000"] * 3


def test_a_whole_number_of_yaml_is_an_integer(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    path = at(namespace, "deployments", group="apps")
    for name, count in (("a", "3.0"), ("b", "1e+02")):
        body = json.dumps(deployment(name, replicas="#")).replace('"#"', count)
        assert refusal(api.post(path, body)) == (400, "BadRequest")
        assert api.post(path, body, headers=YAML).expect(201)["spec"]["replicas"] == int(float(count))


def test_null_where_nothing_may_be_null_is_left_out(api: Api, widget: Kind, namespace: str) -> None:
    assert "spec" not in make(api, widget, namespace, "a", spec=None)


def test_wrong_types_in_built_in_objects_cannot_be_read(api: Api, namespace: str) -> None:
    needs(api, 27)
    for body, problem in (
        (config_map("a", data={"k": 1}), "number into Go struct field ConfigMap.data of type string"),
        (config_map("a", data=[]), "array into Go struct field ConfigMap.data of type map[string]string"),
        ({"metadata": {"name": 5}}, "number into Go struct field ObjectMeta.metadata.name of type string"),
        ({"metadata": []}, "array into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
    ):
        answer = api.post(at(namespace, "configmaps"), body)
        assert refusal(answer) == (400, "BadRequest")
        start = 'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal '
        assert answer.body["message"] == start + problem


def test_labels_annotations_and_owners_are_checked(api: Api, widget: Kind, namespace: str) -> None:
    two = [{"apiVersion": "v1", "kind": "A", "name": n, "uid": n, "controller": True} for n in ("x", "y")]
    for metadata, fields in (
        ({"labels": {"a b": "c d"}}, {"metadata.labels"}),
        ({"annotations": {"a b": "c"}}, {"metadata.annotations"}),
        ({"ownerReferences": two}, {"metadata.ownerReferences"}),
        ({"ownerReferences": [{}]}, {f"metadata.ownerReferences.{f}" for f in ("apiVersion", "kind", "name", "uid")}),
        ({"finalizers": ["a b/c d"]}, {"metadata.finalizers"}),
    ):
        answer = api.post(widget.path(namespace), widget.new("a", metadata=metadata))
        assert refusal(answer) == (422, "Invalid")
        assert {field for _, field in answer.causes} == fields


def test_a_finalizer_without_a_domain_is_warned_about_in_custom_objects(
    api: Api, widget: Kind, namespace: str
) -> None:
    needs(api, 30)
    answer = api.post(widget.path(namespace), widget.new("a", metadata={"finalizers": ["hold", "example.com/hold"]}))
    assert answer.expect(201)
    assert answer.warnings == [
        'metadata.finalizers: "hold": prefer a domain-qualified finalizer name to avoid accidental conflicts with other '
        "finalizer writers"
    ]
    again = api.patch(widget.path(namespace, "a"), {"metadata": {"labels": {"x": "y"}}})
    assert again.warnings == []
    api.patch(widget.path(namespace, "a"), {"metadata": {"finalizers": None}}).expect(200)


def test_a_finalizer_without_a_domain_is_refused_in_built_in_objects(api: Api, namespace: str) -> None:
    needs_builtin_rules(api)
    answer = api.post(at(namespace, "configmaps"), config_map("a", metadata={"finalizers": ["hold"]}))
    assert answer.causes == [("FieldValueInvalid", "metadata.finalizers[0]")]
    assert answer.body["message"].endswith("name is neither a standard finalizer name nor is it fully qualified")


def test_what_was_created_is_what_is_read(api: Api, widget: Kind, namespace: str) -> None:
    made = make(api, widget, namespace, "a", spec={"words": ["x"], "loose": {"any": [1, 2.5, None, {"k": True}]}})
    read = api.get(widget.path(namespace, "a")).expect(200)
    assert read == made
    assert version(read) == version(made)


TWICE = ".metadata.ownerReferences contains duplicate entries"
PLEASE = (
    "; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
    "duplicate UID(s) observed: u1"
)


def test_an_owner_is_named_once(api: Api, widget: Kind, namespace: str) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u1"}
    other = {**owner, "name": "m"}
    twice = {"metadata": {"name": "a", "ownerReferences": [owner, other, owner]}}
    for path, body in (
        (at(namespace, "configmaps"), config_map(**twice)),
        (widget.path(namespace), {**widget.new("a"), **twice}),
    ):
        answer = api.post(path, body, dryRun="All")
        assert answer.expect(201)["metadata"]["ownerReferences"] == [owner, other]
        assert answer.warnings == [TWICE + PLEASE]
    api.post(at(namespace, "configmaps"), config_map("a")).expect(201)
    answer = api.patch(at(namespace, "configmaps", "a"), twice, dryRun="All")
    assert answer.expect(200)["metadata"]["ownerReferences"] == [owner, other]
    assert answer.warnings == [f"{TWICE} after mutating admission happens{PLEASE}"]
