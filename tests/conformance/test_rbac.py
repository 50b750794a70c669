"""Who may do what: roles and bindings, told by the refusals and grants that people see.

People are impersonated, so that no server needs to know them. An extension server that evaluates no roles is left out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Answer, Api, Object, eventually, make_namespace, needs

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1"
READ = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}


class Person:
    """Somebody with a name of their own, as whom the administrator acts."""

    def __init__(self, api: Api, name: str, *groups: str) -> None:
        self.api, self.name = api, name
        self.headers = {"Impersonate-User": name}
        if groups:
            self.headers["Impersonate-Group"] = groups[0]

    def get(self, path: str, **query: Any) -> Answer:
        return self.api.get(path, headers=self.headers, **query)

    def post(self, path: str, body: Any, **query: Any) -> Answer:
        return self.api.post(path, body, headers=self.headers, **query)

    def patch(self, path: str, body: Any, **query: Any) -> Answer:
        return self.api.patch(path, body, headers=self.headers, **query)

    def request(self, method: str, path: str, body: Any = None) -> Answer:
        return self.api.request(method, path, body, headers=self.headers)

    def subject(self) -> Object:
        return {"kind": "User", "name": self.name, "apiGroup": "rbac.authorization.k8s.io"}


class Room:
    """A namespace with its roles and bindings."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = make_namespace(api)
        self.tag = uuid.uuid4().hex[:8]
        self.clustered: list[str] = []

    @property
    def configmaps(self) -> str:
        return f"/api/v1/namespaces/{self.name}/configmaps"

    def person(self, name: str = "alice", *groups: str) -> Person:
        return Person(self.api, f"{name}-{self.tag}", *groups)

    def role(self, name: str, *rules: Object, by: Person | None = None) -> Answer:
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name},
            "rules": list(rules),
        }
        return (by or self.api).post(f"{RBAC}/namespaces/{self.name}/roles", body)

    def bind(self, role: str, *subjects: Object, kind: str = "Role", by: Person | None = None) -> Answer:
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"generateName": "b-"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
            "subjects": list(subjects),
        }
        return (by or self.api).post(f"{RBAC}/namespaces/{self.name}/rolebindings", body)

    def grant(self, person: Person, *rules: Object) -> None:
        name = f"r{uuid.uuid4().hex[:8]}"
        self.role(name, *rules).expect(201)
        self.bind(name, person.subject()).expect(201)

    def cluster_role(self, name: str, *rules: Object, **rest: Any) -> str:
        name = f"{name}-{self.tag}"
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, **rest.pop("metadata", {})},
            "rules": list(rules),
            **rest,
        }
        self.api.post(f"{RBAC}/clusterroles", body).expect(201)
        self.clustered.append(f"{RBAC}/clusterroles/{name}")
        return name

    def cluster_bind(self, role: str, *subjects: Object) -> None:
        body = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": list(subjects),
        }
        self.api.post(f"{RBAC}/clusterrolebindings", body).expect(201)
        self.clustered.append(f"{RBAC}/clusterrolebindings/{role}")


@pytest.fixture
def room(api: Api) -> Iterator[Room]:
    if not api.serves("authorization.k8s.io/v1", "subjectaccessreviews"):
        pytest.skip("this server evaluates no roles")
    made = Room(api)
    yield made
    for path in made.clustered:
        api.delete(path)
    api.delete(f"/api/v1/namespaces/{made.name}")


def forbidden(answer: Answer) -> str:
    refusal = answer.expect(403)
    assert refusal["reason"] == "Forbidden"
    return str(refusal["message"])


def configmap(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


# Nothing is allowed unless somebody allows it


@pytest.mark.parametrize(
    ("method", "name", "query", "verb"),
    [
        ("GET", "", "", "list"),
        ("GET", "", "?watch=true", "watch"),
        ("POST", "", "", "create"),
        ("DELETE", "", "", "deletecollection"),
        ("GET", "/x", "", "get"),
        ("PUT", "/x", "", "update"),
        ("PATCH", "/x", "", "patch"),
        ("DELETE", "/x", "", "delete"),
    ],
)
def test_a_refusal_says_who_what_and_where(room: Room, method: str, name: str, query: str, verb: str) -> None:
    alice = room.person()
    answer = alice.request(method, room.configmaps + name + query, {} if method in ("POST", "PUT", "PATCH") else None)
    subject = 'configmaps "x"' if name else "configmaps"
    assert forbidden(answer) == (
        f'{subject} is forbidden: User "{alice.name}" cannot {verb} resource "configmaps" in API group "" in the '
        f'namespace "{room.name}"'
    )
    assert answer.body["details"] == {"kind": "configmaps", **({"name": "x"} if name else {})}


def test_refusals_at_the_cluster_scope_in_groups_and_for_subresources(room: Room) -> None:
    alice = room.person()
    who = f'is forbidden: User "{alice.name}" cannot'
    for path, message in (
        ("/api/v1/namespaces", f'namespaces {who} list resource "namespaces" in API group "" at the cluster scope'),
        ("/api/v1/configmaps", f'configmaps {who} list resource "configmaps" in API group "" at the cluster scope'),
        ("/api/v1/nodes/n", f'nodes "n" {who} get resource "nodes" in API group "" at the cluster scope'),
        (
            f"/api/v1/namespaces/{room.name}",
            f'namespaces "{room.name}" {who} get resource "namespaces" in API group "" in the namespace "{room.name}"',
        ),
        (
            f"/apis/apps/v1/namespaces/{room.name}/deployments/x/scale",
            f'deployments.apps "x" {who} get resource "deployments/scale" in API group "apps" in the namespace '
            f'"{room.name}"',
        ),
    ):
        assert forbidden(alice.get(path)) == message


def test_whoever_may_not_use_a_kind_is_not_told_whether_there_is_one(api: Api, room: Room) -> None:
    alice = room.person()
    assert forbidden(alice.get("/apis/nope.example/v1/things")) == (
        f'things.nope.example is forbidden: User "{alice.name}" cannot list resource "things" in API group '
        '"nope.example" at the cluster scope'
    )
    assert forbidden(alice.get(f"/apis/nope.example/v1/namespaces/{room.name}/things/x")) == (
        f'things.nope.example "x" is forbidden: User "{alice.name}" cannot get resource "things" in API group '
        f'"nope.example" in the namespace "{room.name}"'
    )
    assert api.get("/apis/nope.example/v1/things").status == 404


def test_paths_that_are_no_resources_have_rules_of_their_own(room: Room) -> None:
    alice = room.person()
    assert forbidden(alice.get("/metrics")) == f'forbidden: User "{alice.name}" cannot get path "/metrics"'
    assert forbidden(alice.post("/nope", {})) == f'forbidden: User "{alice.name}" cannot post path "/nope"'
    for path in ("/version", "/apis", "/api", "/api/v1", "/openapi/v2", "/healthz"):
        assert alice.get(path).status == 200
    name = room.cluster_role("urls", {"nonResourceURLs": ["/metrics", "/rooms/*"], "verbs": ["get"]})
    room.cluster_bind(name, alice.subject())
    eventually(lambda: alice.get("/metrics").status == 200)
    assert alice.get("/rooms/x").status == 404
    assert alice.get("/rooms").status == 403


# Roles and bindings


def test_a_role_counts_in_its_namespace_for_its_subjects(room: Room) -> None:
    alice, bob = room.person(), room.person("bob", f"team-{room.tag}")
    robot = Person(room.api, f"system:serviceaccount:{room.name}:robot")
    other = Person(room.api, f"system:serviceaccount:{room.name}:other")
    room.role("reader", READ).expect(201)
    room.bind(
        "reader",
        alice.subject(),
        {"kind": "Group", "name": f"team-{room.tag}", "apiGroup": "rbac.authorization.k8s.io"},
        {"kind": "ServiceAccount", "name": "robot", "namespace": room.name},
    ).expect(201)
    for person in (alice, bob, robot):
        eventually(lambda p=person: p.get(room.configmaps).status == 200)
    assert other.get(room.configmaps).status == 403
    assert alice.get(f"{room.configmaps}/x").status == 404
    assert alice.post(room.configmaps, configmap("x")).status == 403
    assert alice.get("/api/v1/namespaces/default/configmaps").status == 403
    assert alice.get("/api/v1/configmaps").status == 403


def test_a_cluster_role_counts_where_it_is_bound(room: Room) -> None:
    alice, bob = room.person(), room.person("bob")
    name = room.cluster_role("reader", READ)
    room.bind(name, alice.subject(), kind="ClusterRole").expect(201)
    room.cluster_bind(name, bob.subject())
    eventually(lambda: alice.get(room.configmaps).status == 200)
    eventually(lambda: bob.get("/api/v1/configmaps").status == 200)
    assert alice.get("/api/v1/configmaps").status == 403
    assert bob.get(room.configmaps).status == 200


def test_a_right_ends_with_its_binding(api: Api, room: Room) -> None:
    alice = room.person()
    room.role("reader", READ).expect(201)
    bound = room.bind("reader", alice.subject()).expect(201)
    eventually(lambda: alice.get(room.configmaps).status == 200)
    api.delete(f"{RBAC}/namespaces/{room.name}/rolebindings/{bound['metadata']['name']}").expect(200)
    eventually(lambda: alice.get(room.configmaps).status == 403)


def test_a_missing_role_is_named_in_the_refusal(room: Room) -> None:
    alice = room.person()
    room.bind("missing", alice.subject()).expect(201)
    text = 'RBAC: role.rbac.authorization.k8s.io "missing" not found'
    eventually(lambda: alice.get(room.configmaps).body["message"].endswith(f'in the namespace "{room.name}": {text}'))


def test_a_rule_for_one_name_opens_that_object_alone(api: Api, room: Room) -> None:
    alice = room.person()
    verbs = ["get", "list", "watch", "create", "patch", "deletecollection"]
    room.grant(alice, {**READ, "resourceNames": ["only"], "verbs": verbs})
    for name in ("only", "other"):
        api.post(room.configmaps, configmap(name)).expect(201)
    eventually(lambda: alice.get(f"{room.configmaps}/only").status == 200)
    assert alice.get(f"{room.configmaps}/other").status == 403
    assert alice.patch(f"{room.configmaps}/only", {"data": {"a": "b"}}).status == 200
    assert alice.get(room.configmaps).status == 403
    listed = alice.get(room.configmaps, fieldSelector="metadata.name=only").expect(200)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["only"]
    assert alice.get(room.configmaps, fieldSelector="metadata.name=other").status == 403
    watch = api.watch(room.configmaps, headers=alice.headers, fieldSelector="metadata.name=only")
    assert next(watch)["type"] == "ADDED"
    # At a creation the name is not looked at, so that a rule for a name never allows one.
    assert alice.post(room.configmaps, configmap("only")).status == 403


def test_a_subresource_has_rules_of_its_own(room: Room) -> None:
    alice = room.person()
    room.grant(alice, {"apiGroups": ["apps"], "resources": ["deployments/scale", "*/status"], "verbs": ["get"]})
    path = f"/apis/apps/v1/namespaces/{room.name}/deployments/x"
    eventually(lambda: alice.get(f"{path}/scale").status == 404)
    assert alice.get(f"{path}/scale").body["message"] == 'deployments/scale.apps "x" not found'
    assert alice.get(f"{path}/status").status == 404
    assert alice.get(path).status == 403


def test_cluster_roles_gather_the_rules_of_others(api: Api, room: Room) -> None:
    label = {f"gather-{room.tag}": "yes"}
    whole = room.cluster_role("whole", aggregationRule={"clusterRoleSelectors": [{"matchLabels": label}]})
    room.cluster_role("part", READ, metadata={"labels": label})
    where = f"{RBAC}/clusterroles/{whole}"
    eventually(lambda: api.get(where).expect(200).get("rules") == [READ])
    alice = room.person()
    room.bind(whole, alice.subject(), kind="ClusterRole").expect(201)
    eventually(lambda: alice.get(room.configmaps).status == 200)


def test_the_usual_roles_are_there(api: Api, room: Room) -> None:
    for name in ("cluster-admin", "admin", "edit", "view", "system:discovery", "system:basic-user"):
        api.get(f"{RBAC}/clusterroles/{name}").expect(200)
    bound = api.get(f"{RBAC}/clusterrolebindings/cluster-admin").expect(200)
    assert bound["subjects"] == [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:masters"}]
    alice = room.person()
    room.bind("view", alice.subject(), kind="ClusterRole").expect(201)
    eventually(lambda: alice.get(room.configmaps).status == 200)
    assert alice.get(f"/api/v1/namespaces/{room.name}/secrets").status == 403
    room.bind("edit", alice.subject(), kind="ClusterRole").expect(201)
    eventually(lambda: alice.post(room.configmaps, configmap("x")).status in (201, 409))
    assert alice.get(f"{RBAC}/namespaces/{room.name}/roles").status == 403


# Nobody grants what they do not hold

ROLES = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings"],
    "verbs": ["create", "update", "patch", "get"],
}


@pytest.fixture
def steward(room: Room) -> Person:
    """Somebody who may write roles and bindings, and read config maps."""
    alice = room.person()
    room.grant(alice, ROLES, READ)
    eventually(lambda: room.role("own", READ, by=alice).status in (201, 409))
    return alice


def test_a_role_cannot_hold_more_than_its_author(room: Room, steward: Person) -> None:
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}
    assert forbidden(room.role("more", rule, by=steward)) == (
        f'roles.rbac.authorization.k8s.io "more" is forbidden: user "{steward.name}" (groups=["system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )
    named = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["z"], "verbs": ["get"]}
    room.role("less", named, by=steward).expect(201)
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    assert forbidden(room.role("all", everything, by=steward)).endswith(
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}'
    )
    where = f"{RBAC}/namespaces/{room.name}/roles/own"
    assert steward.patch(where, {"rules": [rule]}).status == 403
    steward.patch(where, {"metadata": {"labels": {"a": "b"}}}).expect(200)


def test_a_binding_cannot_give_more_than_its_author_holds(room: Room, steward: Person) -> None:
    guest = room.person("guest").subject()
    room.role("scaler", {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]}).expect(201)
    room.bind("own", guest, by=steward).expect(201)
    refusal = forbidden(room.bind("scaler", guest, by=steward))
    assert "is attempting to grant RBAC permissions not currently held:\n" in refusal
    assert refusal.endswith('{APIGroups:["apps"], Resources:["deployments/scale"], Verbs:["get"]}')
    missing = room.bind("missing", guest, by=steward).expect(404)
    assert missing["message"] == 'roles.rbac.authorization.k8s.io "missing" not found'


def test_who_would_grant_too_much_is_not_told_what_else_is_wrong(room: Room, steward: Person) -> None:
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    assert "not currently held" in forbidden(room.role("broken", secrets, {"verbs": []}, by=steward))
    assert "not currently held" in forbidden(room.role("Not A Name", secrets, by=steward))
    assert "not currently held" in forbidden(room.bind("admin", {"kind": "Nobody"}, kind="ClusterRole", by=steward))
    room.role("fine", by=steward).expect(201)
    changed = {"rules": [secrets, {"verbs": []}]}
    assert "not currently held" in forbidden(steward.patch(f"{RBAC}/namespaces/{room.name}/roles/fine", changed))
    assert room.role("broken", {"verbs": []}, by=steward).expect(422)["reason"] == "Invalid"  # which grants nothing


def test_the_verbs_bind_and_escalate_lift_the_limit(room: Room, steward: Person) -> None:
    guest = room.person("guest").subject()
    room.role("scaler", {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]}).expect(201)
    bind = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "resourceNames": ["scaler"]}
    room.grant(steward, {**bind, "verbs": ["bind"]})
    eventually(lambda: room.bind("scaler", guest, by=steward).status == 201)
    escalate = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]}
    room.grant(steward, escalate)
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    eventually(lambda: room.role("all", everything, by=steward).status in (201, 409))


def test_a_binding_keeps_its_role(api: Api, room: Room) -> None:
    room.role("reader", READ).expect(201)
    bound = room.bind("reader", room.person().subject()).expect(201)
    where = f"{RBAC}/namespaces/{room.name}/rolebindings/{bound['metadata']['name']}"
    [cause] = api.patch(where, {"roleRef": {"name": "other"}}).expect(422)["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("roleRef", "FieldValueInvalid")
    assert cause["message"].endswith(": cannot change roleRef")


# Questions


def review(asker: Person | Api, kind: str, spec: Object, path: str = "", **metadata: str) -> Answer:
    body: Object = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    if metadata:
        body["metadata"] = metadata
    return asker.post(path or f"{REVIEWS}/{kind.lower()}s", body)


def about(room: Room, **attributes: Any) -> Object:
    return {"resourceAttributes": {"namespace": room.name, "verb": "get", "resource": "configmaps", **attributes}}


def test_people_can_ask_what_they_may_do(room: Room) -> None:
    alice = room.person()
    room.grant(
        alice, READ, {"apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["web"], "verbs": ["*"]}
    )
    eventually(lambda: alice.get(room.configmaps).status == 200)

    def allowed(**attributes: str) -> Object:
        made: Object = review(alice, "SelfSubjectAccessReview", about(room, **attributes)).expect(201)["status"]
        return made

    yes = allowed()
    assert yes["allowed"] is True
    assert yes["reason"].startswith('RBAC: allowed by RoleBinding "b-')
    assert yes["reason"].endswith(f'to User "{alice.name}"')
    assert allowed(verb="delete") == {"allowed": False}
    deployments = {"group": "apps", "resource": "deployments", "verb": "delete"}
    assert allowed(**deployments, name="web")["allowed"] is True
    assert allowed(**deployments)["allowed"] is False
    path = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}
    assert review(alice, "SelfSubjectAccessReview", path).expect(201)["status"]["allowed"] is True


def test_a_question_must_be_about_one_thing(room: Room) -> None:
    alice = room.person()
    [cause] = review(alice, "SelfSubjectAccessReview", {}).expect(422)["details"]["causes"]
    assert cause["field"] == "spec.resourceAttributes"
    assert cause["message"].endswith("exactly one of nonResourceAttributes or resourceAttributes must be specified")
    both = {**about(room), "nonResourceAttributes": {"path": "/"}}
    [cause] = review(alice, "SelfSubjectAccessReview", both).expect(422)["details"]["causes"]
    assert cause["field"] == "spec.nonResourceAttributes"
    assert cause["message"].endswith("cannot be specified in combination with resourceAttributes")


def test_a_question_about_selected_objects_says_how_they_are_selected(room: Room) -> None:
    needs(room.api, 34)
    alice = room.person()
    named = {"key": "a", "operator": "In", "values": ["b"]}
    for field in ("labelSelector", "fieldSelector"):
        for selector, at, reason in (
            ({"rawSelector": "a=b", "requirements": [named]}, "rawSelector", "FieldValueInvalid"),
            ({}, "requirements", "FieldValueRequired"),
        ):
            answer = review(alice, "SelfSubjectAccessReview", about(room, verb="list", **{field: selector}))
            [cause] = answer.expect(422)["details"]["causes"]
            assert (cause["field"], cause["reason"]) == (f"spec.resourceAttributes.{field}.{at}", reason)
        good = review(alice, "SelfSubjectAccessReview", about(room, verb="list", **{field: {"requirements": [named]}}))
        assert good.expect(201)["status"] == {"allowed": False}


def test_a_question_is_read_as_strictly_as_an_object(room: Room) -> None:
    needs(room.api, 27)
    alice = room.person()
    body = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": about(room, nmae="a")}
    path = f"{REVIEWS}/selfsubjectaccessreviews"
    problem = 'unknown field "spec.resourceAttributes.nmae"'
    answer = alice.post(path, body)
    assert answer.expect(201)["spec"] == about(room)
    assert answer.warnings == [problem]
    message = alice.post(f"{path}?fieldValidation=Strict", body).expect(400)["message"]
    assert message.endswith(f"cannot be handled as a SelfSubjectAccessReview: strict decoding error: {problem}")


def test_asking_about_others_is_a_right(api: Api, room: Room) -> None:
    alice = room.person()
    room.grant(alice, READ)
    eventually(lambda: alice.get(room.configmaps).status == 200)
    spec = {**about(room), "user": alice.name}
    assert review(api, "SubjectAccessReview", spec).expect(201)["status"]["allowed"] is True
    assert review(api, "SubjectAccessReview", {**about(room), "groups": ["system:masters"]}).body["status"]["allowed"]
    assert review(alice, "SubjectAccessReview", spec).status == 403
    [cause] = review(api, "SubjectAccessReview", about(room)).expect(422)["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("spec.user", "FieldValueInvalid")
    local = f"{REVIEWS}/namespaces/{room.name}/localsubjectaccessreviews"
    answer = review(api, "LocalSubjectAccessReview", spec, local, namespace=room.name)
    assert answer.expect(201)["status"]["allowed"] is True
    other = {**about(room, namespace="default"), "user": alice.name}
    assert review(api, "LocalSubjectAccessReview", other, local, namespace=room.name).status == 422


def test_people_can_list_their_rules(room: Room) -> None:
    alice = room.person()
    room.grant(alice, READ)
    eventually(lambda: alice.get(room.configmaps).status == 200)
    status = review(alice, "SelfSubjectRulesReview", {"namespace": room.name}).expect(201)["status"]
    assert READ in status["resourceRules"]
    assert status["incomplete"] is False
    assert any("/version" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    refusal = review(alice, "SelfSubjectRulesReview", {}).expect(400)
    assert refusal["message"] == "no namespace on request"


def test_people_can_ask_who_they_are(api: Api, room: Room) -> None:
    if api.minor < 28:
        return
    alice = room.person("alice", "team")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = alice.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", body).expect(201)["status"]["userInfo"]
    assert found["username"] == alice.name
    assert set(found["groups"]) == {"team", "system:authenticated"}
