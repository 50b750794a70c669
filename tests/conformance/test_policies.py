"""Admission policies in CEL: which writes they mean, what they see, and what follows from what they say."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Answer, Api, Kind, Object, eventually, make_namespace
from .objects import config_map, deployment, make

REGISTRY = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}


class Law:
    """Policies and bindings that hold in one namespace, and go with the test."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.room = make_namespace(api)
        self.tag = uuid.uuid4().hex[:8]
        self.paths: list[str] = []

    @property
    def config_maps(self) -> str:
        return f"/api/v1/namespaces/{self.room}/configmaps"

    def policy(self, name: str = "law", *rules: Object, constraints: Object | None = None, **spec: Any) -> Answer:
        """Creates a policy; its name gets a tag."""
        here = {"matchLabels": {"kubernetes.io/metadata.name": self.room}}
        wanted = {"resourceRules": list(rules) or [CONFIG_MAPS], "namespaceSelector": here, **(constraints or {})}
        body = {"metadata": {"name": f"{name}-{self.tag}"}, "spec": {"matchConstraints": wanted, **spec}}
        return self._made("validatingadmissionpolicies", body)

    def bind(self, name: str = "law", *actions: str, binding: str = "", **spec: Any) -> Answer:
        named = {"policyName": f"{name}-{self.tag}", "validationActions": list(actions) or ["Deny"]}
        body = {"metadata": {"name": f"{binding or name}-{self.tag}"}, "spec": {**named, **spec}}
        return self._made("validatingadmissionpolicybindings", body)

    def _made(self, plural: str, body: Object) -> Answer:
        answer = self.api.post(f"{REGISTRY}/{plural}", body)
        if answer.status == 201:
            self.paths.append(f"{REGISTRY}/{plural}/{body['metadata']['name']}")
        return answer

    def demand(self, expression: str, *rules: Object, constraints: Object | None = None, **spec: Any) -> None:
        """A policy of one demand, bound, and in force."""
        self.policy("law", *rules, constraints=constraints, validations=[{"expression": expression}], **spec).expect(201)
        self.bind().expect(201)

    def create(self, name: str, **rest: Any) -> Answer:
        return self.api.post(self.config_maps, config_map(name, **rest))

    def denied(self, said: str, binding: str = "law") -> str:
        """The words of a refusal."""
        return f"ValidatingAdmissionPolicy 'law-{self.tag}' with binding '{binding}-{self.tag}' denied request: {said}"


@pytest.fixture
def law(api: Api) -> Iterator[Law]:
    if not api.serves("admissionregistration.k8s.io/v1", "validatingadmissionpolicies"):
        pytest.skip("this server has no admission policies")
    made = Law(api)
    yield made
    for path in reversed(made.paths):
        api.delete(path)
    api.delete(f"/api/v1/namespaces/{made.room}")


def refused(ask: Any) -> Answer:
    """The refusal, once the policy is in force: an apiserver needs a moment."""
    return eventually(lambda: answer if (answer := ask()).status in (401, 403, 413, 422) else None, "a refusal")  # type: ignore[no-any-return]


# What is denied, and how


def test_a_policy_denies_what_does_not_meet_its_demands(law: Law) -> None:
    law.demand("object.data.colour == 'green'")
    answer = refused(lambda: law.create("grass", data={"colour": "red"}))
    text = law.denied("failed expression: object.data.colour == 'green'")
    assert answer.expect(422)["message"] == f'configmaps "grass" is forbidden: {text}'
    assert answer.body["reason"] == "Invalid"
    assert answer.body["details"] == {"name": "grass", "kind": "configmaps", "causes": [{"message": text}]}
    law.create("grass", data={"colour": "green"}).expect(201)
    assert law.api.patch(f"{law.config_maps}/grass", {"data": {"colour": "blue"}}).status == 422
    assert law.api.apply(f"{law.config_maps}/sky", config_map("sky", data={"colour": "blue"})).status == 422
    law.api.delete(f"{law.config_maps}/grass").expect(200)


def test_a_policy_without_a_binding_demands_nothing(law: Law) -> None:
    law.policy(validations=[{"expression": "false"}]).expect(201)
    law.create("a").expect(201)
    law.bind().expect(201)
    refused(lambda: law.create("b"))
    for path in law.paths:
        law.api.delete(path).expect(200)
    eventually(lambda: law.create("c").status in (201, 409), "the policy to be gone")


@pytest.mark.parametrize(
    ("validation", "code", "reason", "said"),
    [
        ({"message": " plain "}, 422, "Invalid", "plain"),
        ({"messageExpression": "'made of ' + object.metadata.name"}, 422, "Invalid", "made of a"),
        ({"messageExpression": "'two\\nlines'", "message": "plain"}, 422, "Invalid", "plain"),
        ({"messageExpression": "string(object.data.nothing)", "message": "plain"}, 422, "Invalid", "plain"),
        ({"message": "no", "reason": "Forbidden"}, 403, "Forbidden", "no"),
        ({"message": "no", "reason": "RequestEntityTooLarge"}, 413, "RequestEntityTooLarge", "no"),
    ],
)
def test_a_demand_has_its_own_words_and_reason(law: Law, validation: Object, code: int, reason: str, said: str) -> None:
    law.policy(validations=[{"expression": "object.metadata.name != 'a'", **validation}]).expect(201)
    law.bind().expect(201)
    answer = refused(lambda: law.create("a"))
    assert (answer.status, answer.body["reason"]) == (code, reason)
    assert answer.body["details"]["causes"] == [{"message": law.denied(said)}]


def test_a_dry_run_is_denied_too_and_what_is_not_meant_is_not(law: Law) -> None:
    law.demand("false")
    refused(lambda: law.create("a"))
    assert law.api.post(law.config_maps, config_map("a"), dryRun="All").status == 422
    law.api.post(f"/api/v1/namespaces/{law.room}/secrets", {"metadata": {"name": "a"}}).expect(201)
    law.api.post("/api/v1/namespaces/default/configmaps", config_map(f"a-{law.tag}"), dryRun="All").expect(201)


def test_failures_refuse_unless_they_are_to_be_ignored(law: Law) -> None:
    expression = "object.data.nothing == 'x'"
    law.demand(expression)
    answer = refused(lambda: law.create("a", data={"b": "c"}))
    said = f"expression '{expression}' resulted in error: no such key: nothing"
    assert answer.body["details"]["causes"] == [{"message": law.denied(said)}]
    law.api.patch(law.paths[0], {"spec": {"failurePolicy": "Ignore"}}).expect(200)
    eventually(lambda: law.create("a", data={"b": "c"}).status in (201, 409), "the failure to be ignored")


# Which requests are meant


def test_deletions_are_judged_by_what_is_deleted(law: Law) -> None:
    law.demand("object == null && oldObject.data.keep != 'yes'", {**CONFIG_MAPS, "operations": ["DELETE"]})
    for name, keep in (("kept", "yes"), ("let-go", "no")):
        law.create(name, data={"keep": keep}).expect(201)
    refused(lambda: law.api.delete(f"{law.config_maps}/kept", dryRun="All"))
    assert law.api.delete(f"{law.config_maps}/kept").status == 422
    law.api.delete(f"{law.config_maps}/let-go").expect(200)
    assert law.api.delete(law.config_maps).status == 422
    law.api.get(f"{law.config_maps}/kept").expect(200)


def test_names_exclusions_and_labels_narrow_what_is_meant(law: Law) -> None:
    rules = {
        "resourceRules": [{**CONFIG_MAPS, "resourceNames": ["one", "two", "three"]}],
        "excludeResourceRules": [{**CONFIG_MAPS, "resourceNames": ["two"]}],
        "objectSelector": {"matchExpressions": [{"key": "free", "operator": "DoesNotExist"}]},
    }
    law.demand("false", constraints=rules)
    refused(lambda: law.create("one"))
    law.create("two").expect(201)
    law.create("four").expect(201)
    law.create("three", metadata={"name": "three", "labels": {"free": ""}}).expect(201)
    assert law.api.patch(f"{law.config_maps}/three", {"metadata": {"labels": {"free": None}}}).status == 422


def test_a_binding_can_narrow_it_further(law: Law) -> None:
    law.policy(validations=[{"expression": "false"}]).expect(201)
    law.bind(matchResources={"objectSelector": {"matchLabels": {"strict": "yes"}}}).expect(201)
    refused(lambda: law.create("a", metadata={"name": "a", "labels": {"strict": "yes"}}))
    law.create("b").expect(201)


def test_conditions_are_asked_first(law: Law) -> None:
    conditions = [{"name": "not-free", "expression": "!object.metadata.name.startsWith('free-')"}]
    law.demand("false", matchConditions=conditions)
    refused(lambda: law.create("a"))
    law.create("free-a").expect(201)


def test_subresources_are_meant_by_their_names(law: Law, widget: Kind) -> None:
    rule = {"apiGroups": [widget.group], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["widgets/status"]}
    law.demand("request.subResource == 'status' && object.status.ready == oldObject.?status.?ready.orValue(true)", rule)
    make(law.api, widget, law.room, "w")
    path = widget.path(law.room, "w", "status")
    refused(lambda: law.api.patch(path, {"status": {"ready": False}}, dryRun="All"))
    law.api.patch(widget.path(law.room, "w"), {"spec": {"replicas": 2}}).expect(200)


def test_a_change_of_scale_is_judged_as_one(law: Law) -> None:
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"]}
    law.demand("object.kind == 'Scale' && request.kind.kind == 'Scale' && object.spec.replicas <= 3", rule)
    path = f"/apis/apps/v1/namespaces/{law.room}/deployments"
    law.api.post(path, deployment("web")).expect(201)
    refused(lambda: law.api.patch(f"{path}/web/scale", {"spec": {"replicas": 4}}, dryRun="All"))
    law.api.patch(f"{path}/web/scale", {"spec": {"replicas": 3}}).expect(200)


def test_all_versions_of_a_kind_are_meant_by_one(law: Law, definer: Any) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}} for name in ("v1", "v2")
    ]
    kind = definer({}, kind="Sized", versions=versions)
    rule = {"apiGroups": [kind.group], "apiVersions": ["v1"], "operations": ["*"], "resources": ["sizeds"]}
    seen = "object.apiVersion.endsWith('/v1') && request.resource.version == 'v1' && request.requestResource.version == 'v2'"
    law.demand(f"{seen} && object.spec.size < 3", rule)
    newer = Kind(law.api, kind.crd, "v2")
    refused(lambda: law.api.post(newer.path(law.room), newer.new("large", spec={"size": 3})))
    law.api.post(newer.path(law.room), newer.new("small", spec={"size": 2})).expect(201)
    law.api.patch(law.paths[0], {"spec": {"matchConstraints": {"matchPolicy": "Exact"}}}).expect(200)
    eventually(
        lambda: law.api.post(newer.path(law.room), newer.new("large", spec={"size": 3})).status in (201, 409), "the exact match"
    )


def test_policies_are_beyond_the_reach_of_policies(law: Law) -> None:
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
    law.demand("false", rule, constraints={"namespaceSelector": {}, "objectSelector": {"matchLabels": {"probe": law.tag}}})
    labelled = {"metadata": {"labels": {"probe": law.tag}}}
    refused(lambda: law.create("a", metadata={"name": "a", "labels": {"probe": law.tag}}))
    for path in law.paths:
        law.api.patch(path, labelled).expect(200)


# What expressions see


@pytest.mark.parametrize(
    "expression",
    [
        "object.apiVersion == 'v1' && object.kind == 'ConfigMap' && oldObject == null",
        "object.metadata.uid != '' && object.metadata.creationTimestamp != ''",
        "request.operation == 'CREATE' && request.name == 'a' && request.dryRun == false",
        "request.kind == request.requestKind && request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'",
        "request.namespace == namespaceObject.metadata.name",
        "'system:authenticated' in request.userInfo.groups && request.userInfo.username != ''",
        "request.options.kind == 'CreateOptions'",
        "namespaceObject.status.phase == 'Active' && namespaceObject.metadata.creationTimestamp <= timestamp('2999-01-01T00:00:00Z')",
        "authorizer.group('').resource('configmaps').namespace(request.namespace).check('create').allowed()",
        "authorizer.requestResource.check('create').allowed()",
        "authorizer.path('/healthz').check('get').allowed()",
        "!authorizer.serviceAccount('default', 'nobody').group('').resource('secrets').check('list').allowed()",
    ],
)
def test_expressions_see_the_request(law: Law, expression: str) -> None:
    law.policy(validations=[{"expression": expression}, {"expression": "object.metadata.name != 'b'"}]).expect(201)
    law.bind().expect(201)
    refused(lambda: law.create("b"))
    law.create("a").expect(201)


def test_variables_are_made_of_others_and_only_where_they_are_needed(law: Law) -> None:
    variables = [
        {"name": "count", "expression": "size(object.?data.orValue({}))"},
        {"name": "twice", "expression": "variables.count * 2"},
        {"name": "broken", "expression": "object.nothing.there"},
    ]
    validations = [
        {"expression": "variables.twice < 4", "messageExpression": "'twice ' + string(variables.twice)"},
        {"expression": "object.metadata.name != 'broken' || variables.broken == 1"},
    ]
    law.policy(variables=variables, validations=validations).expect(201)
    law.bind().expect(201)
    answer = refused(lambda: law.create("a", data={"b": "", "c": ""}))
    assert answer.body["details"]["causes"] == [{"message": law.denied("twice 4")}]
    law.create("a", data={"b": ""}).expect(201)
    said = 'resulted in error: composited variable "broken" fails to evaluate: no such key: nothing'
    assert law.create("broken").expect(422)["message"].endswith(said)


# Parameters


def test_parameters_come_by_name(law: Law) -> None:
    limit = "size(object.?data.orValue({})) <= int(params.data.most)"
    law.policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"}, validations=[{"expression": limit}]).expect(201)
    law.bind(paramRef={"name": "limits", "parameterNotFoundAction": "Deny"}).expect(201)
    answer = refused(lambda: law.create("a"))
    said = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    assert answer.body["details"]["causes"] == [{"message": law.denied(said)}]
    law.api.patch(law.paths[1], {"spec": {"paramRef": {"parameterNotFoundAction": "Allow"}}}).expect(200)
    eventually(lambda: law.create("limits", data={"most": "1"}).status in (201, 409), "the parameter")
    refused(lambda: law.create("b", data={"x": "", "y": ""}))
    law.create("b", data={"x": ""}).expect(201)


def test_parameters_come_by_labels_and_all_of_them_count(law: Law) -> None:
    limit = "size(object.?data.orValue({})) <= int(params.data.most)"
    for name, most in (("wide", "5"), ("narrow", "2")):
        law.create(name, metadata={"name": name, "labels": {"limits": "yes"}}, data={"most": most}).expect(201)
    law.policy(paramKind={"apiVersion": "v1", "kind": "ConfigMap"}, validations=[{"expression": limit}]).expect(201)
    by_labels = {"selector": {"matchLabels": {"limits": "yes"}}, "namespace": law.room, "parameterNotFoundAction": "Deny"}
    law.bind(paramRef=by_labels).expect(201)
    refused(lambda: law.create("a", data={"x": "", "y": "", "z": ""}))
    law.create("a", data={"x": "", "y": ""}).expect(201)


def test_a_kind_of_parameters_must_be_there(law: Law) -> None:
    kind = {"apiVersion": "nowhere.example/v1", "kind": "Limit"}
    law.policy(paramKind=kind, validations=[{"expression": "params.x == 1"}]).expect(201)
    law.bind(paramRef={"name": "x", "parameterNotFoundAction": "Allow"}).expect(201)
    message = refused(lambda: law.create("a")).body["details"]["causes"][0]["message"]
    said = "failed to configure policy: failed to find resource referenced by paramKind: 'nowhere.example/v1, Kind=Limit'"
    assert message == f"ValidatingAdmissionPolicy 'law-{law.tag}' denied request: {said}"


# What follows


def test_a_binding_may_only_warn(law: Law) -> None:
    law.policy(validations=[{"expression": "object.metadata.name != 'a'", "message": "rather not"}]).expect(201)
    law.bind("law", "Warn", "Audit").expect(201)
    said = f"Validation failed for ValidatingAdmissionPolicy 'law-{law.tag}' with binding 'law-{law.tag}': rather not"
    eventually(lambda: said in law.api.post(law.config_maps, config_map("a"), dryRun="All").warnings, "the warning")
    answer = law.create("a")
    assert (answer.status, answer.warnings) == (201, [said])
    assert law.create("b").warnings == []


# Policies themselves


def test_a_policy_is_completed(law: Law) -> None:
    made = law.policy(validations=[{"expression": "true"}]).expect(201)
    constraints = made["spec"]["matchConstraints"]
    assert made["spec"]["failurePolicy"] == "Fail"
    assert (constraints["matchPolicy"], constraints["objectSelector"], made["metadata"]["generation"]) == ("Equivalent", {}, 1)
    assert constraints["resourceRules"][0]["scope"] == "*"
    changed = law.api.patch(law.paths[0], {"spec": {"failurePolicy": "Ignore"}}).expect(200)
    assert changed["metadata"]["generation"] == 2
    eventually(lambda: law.api.get(law.paths[0]).body.get("status", {}).get("observedGeneration") == 2, "the status")


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({}, "spec.validations", "Required value: validations or auditAnnotations must contain at least one item"),
        ({"failurePolicy": "Maybe"}, "spec.failurePolicy", 'Unsupported value: "Maybe": supported values: "Fail", "Ignore"'),
        ({"validations": [{"expression": " "}]}, "spec.validations[0].expression", "Required value: expression is not specified"),
        ({"validations": [{"expression": "object.spec"}]}, "spec.validations[0].expression", "must evaluate to bool"),
        ({"validations": [{"expression": "objekt == 1"}]}, "spec.validations[0].expression", "undeclared reference to 'objekt'"),
        ({"validations": [{"expression": "params == 1"}]}, "spec.validations[0].expression", "undeclared reference to 'params'"),
        ({"validations": [{"expression": "true", "reason": "Whim"}]}, "spec.validations[0].reason", 'Unsupported value: "Whim"'),
        ({"validations": [{"expression": "true", "message": "a\nb"}]}, "spec.validations[0].message", "must not contain line breaks"),
        ({"validations": [{"expression": "true", "messageExpression": "1"}]}, "spec.validations[0].messageExpression", "must evaluate to string"),
        ({"variables": [{"name": "if", "expression": "1"}]}, "spec.variables[0].name", "name is not a valid CEL identifier"),
        ({"matchConditions": [{"name": "a b", "expression": "true"}]}, "spec.matchConditions[0].name", "name part must consist"),
        ({"auditAnnotations": [{"key": "k", "valueExpression": "1"}]}, "spec.auditAnnotations[0].valueExpression", "must evaluate to one of"),
        ({"paramKind": {"apiVersion": "v1"}}, "spec.paramKind.kind", "Required value"),
    ],
)
def test_a_policy_must_make_sense(law: Law, spec: Object, field: str, said: str) -> None:
    causes = law.policy(**spec).expect(422)["details"]["causes"]
    assert any(cause["field"] == field and said in cause["message"] for cause in causes), causes


def test_a_policy_must_say_what_it_means(law: Law) -> None:
    def fields(*rules: Object) -> list[tuple[str, str]]:
        return law.policy("law", *rules, validations=[{"expression": "true"}]).causes

    where = "spec.matchConstraints.resourceRules[0]"
    assert ("FieldValueRequired", f"{where}.operations") in fields({**CONFIG_MAPS, "operations": []})
    assert ("FieldValueNotSupported", f"{where}.operations[0]") in fields({**CONFIG_MAPS, "operations": ["READ"]})
    assert ("FieldValueInvalid", f"{where}.apiGroups") in fields({**CONFIG_MAPS, "apiGroups": ["*", "apps"]})
    assert ("FieldValueInvalid", f"{where}.resources") in fields({**CONFIG_MAPS, "resources": ["*", "pods"]})
    assert ("FieldValueNotSupported", f"{where}.scope") in fields({**CONFIG_MAPS, "scope": "Moon"})


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        ({"validationActions": []}, "spec.validationActions", "at least one validation action is required"),
        ({"validationActions": ["Deny", "Warn"]}, "spec.validationActions", "must not contain both Deny and Warn"),
        ({"validationActions": ["Cry"]}, "spec.validationActions[0]", 'supported values: "Audit", "Deny", "Warn"'),
        ({"paramRef": {"parameterNotFoundAction": "Deny"}}, "spec.paramRef", "one of name or selector must be specified"),
        ({"paramRef": {"name": "x"}}, "spec.paramRef.parameterNotFoundAction", "Required value"),
        ({"policyName": ""}, "spec.policyName", "Required value"),
    ],
)
def test_a_binding_must_make_sense(law: Law, spec: Object, field: str, said: str) -> None:
    causes = law.bind("law", "Deny", **spec).expect(422)["details"]["causes"]
    assert any(cause["field"] == field and said in cause["message"] for cause in causes), causes


def test_nobody_reads_through_a_policy_what_they_may_not_read(api: Api, law: Law) -> None:
    if not api.serves("rbac.authorization.k8s.io/v1", "clusterroles"):
        pytest.skip("this server evaluates no roles")
    person = {"Impersonate-User": f"lawyer-{law.tag}"}
    roles = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    api.post(f"{roles}/clusterroles", {"metadata": {"name": law.tag}, "rules": [rule]}).expect(201)
    bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": law.tag}}
    who = {"kind": "User", "name": person["Impersonate-User"], "apiGroup": "rbac.authorization.k8s.io"}
    api.post(f"{roles}/clusterrolebindings", {"metadata": {"name": law.tag}, **bound, "subjects": [who]}).expect(201)
    law.paths += [f"{roles}/clusterroles/{law.tag}", f"{roles}/clusterrolebindings/{law.tag}"]
    spec = {
        "matchConstraints": {"resourceRules": [CONFIG_MAPS]},
        "validations": [{"expression": "false", "messageExpression": "params.data.key"}],
        "paramKind": {"apiVersion": "v1", "kind": "Secret"},
    }
    body = {"metadata": {"name": f"spy-{law.tag}"}, "spec": spec}
    answer = refused(lambda: api.post(f"{REGISTRY}/validatingadmissionpolicies", body, headers=person, dryRun="All"))
    assert answer.causes == [("FieldValueForbidden", "spec.paramKind")]
    del spec["paramKind"]
    spec["validations"] = [{"expression": "false"}]
    api.post(f"{REGISTRY}/validatingadmissionpolicies", body, headers=person, dryRun="All").expect(201)
