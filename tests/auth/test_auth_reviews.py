"""Questions about access, asked by posting an object, and the roles that a new control plane begins with."""

from __future__ import annotations

import asyncio

import pytest

from homeostat.api.auth import reviews
from homeostat.api.auth.aggregation import aggregate
from homeostat.api.auth.bootstrap import objects
from homeostat.api.auth.rbac import Attributes, Rbac
from homeostat.api.auth.user import User, Verified
from homeostat.model.errors import ApiError

POD_GET = {"verb": "get", "resource": "pods", "namespace": "team"}


def may_i(user, rbac, **spec):
    review = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": spec}
    return reviews.self_subject_access_review(review, user, rbac)["status"]


def test_may_i_answers_for_the_caller_and_says_why(rule, grant, alice):
    rbac = grant("alice", rule("get", "pods"), namespace="team")
    status = may_i(alice, rbac, resourceAttributes=POD_GET)
    assert status["allowed"] is True
    assert status["reason"].startswith('RBAC: allowed by RoleBinding "alice-0/team" of Role')
    assert may_i(alice, rbac, resourceAttributes={**POD_GET, "verb": "delete"}) == {"allowed": False}


def test_may_i_knows_paths_and_subresources(rule, grant, alice):
    rbac = grant("alice", rule("get", urls="/metrics"), rule("get", "pods/log"))
    assert may_i(alice, rbac, nonResourceAttributes={"verb": "get", "path": "/metrics"})["allowed"]
    assert not may_i(alice, rbac, nonResourceAttributes={"verb": "get", "path": ""})["allowed"]
    assert may_i(alice, rbac, resourceAttributes={**POD_GET, "subresource": "log"})["allowed"]
    assert not may_i(alice, rbac, resourceAttributes=POD_GET)["allowed"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {},
            '.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: '
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ),
        (
            {"resourceAttributes": {}, "nonResourceAttributes": {}},
            '.authorization.k8s.io "" is invalid: spec.nonResourceAttributes: Invalid value: {}: '
            "cannot be specified in combination with resourceAttributes",
        ),
    ],
)
def test_a_question_about_nothing_or_two_things_is_invalid(rbac, alice, spec, message):
    with pytest.raises(ApiError) as refused:
        may_i(alice, rbac, **spec)
    # How a missing value is shown is decided in one place for all messages.
    assert refused.value.message.replace('"null"', "null") == message


@pytest.mark.parametrize("spec", [[], "x", {"resourceAttributes": 3}, {"resourceAttributes": {"verb": []}}])
def test_a_question_of_the_wrong_shape_is_a_bad_request_not_a_crash(rbac, alice, spec):
    with pytest.raises(ApiError) as refused:
        reviews.self_subject_access_review({"spec": spec}, alice, rbac)
    assert refused.value.code == 400


def test_a_review_is_no_object_and_has_no_metadata(rbac, alice):
    review = {"metadata": {"name": "x"}, "spec": {"resourceAttributes": POD_GET}}
    with pytest.raises(ApiError, match=r"metadata: Invalid value: .*: must be empty"):
        reviews.self_subject_access_review(review, alice, rbac)


def test_may_they_answers_for_the_named_user_and_groups(rule, grant):
    rbac = grant("dev", rule("get", "pods"), kind="Group")
    review = {"spec": {"user": "bob", "groups": ["dev"], "resourceAttributes": POD_GET}}
    answer = reviews.subject_access_review(review, rbac)
    assert answer["kind"] == "SubjectAccessReview"
    assert answer["status"]["allowed"]
    assert answer["spec"] == review["spec"]
    assert not reviews.subject_access_review({"spec": {**review["spec"], "groups": []}}, rbac)["status"]["allowed"]
    with pytest.raises(ApiError, match=r'spec\.user: Invalid value: "": at least one of user or group must be'):
        reviews.subject_access_review({"spec": {"resourceAttributes": POD_GET}}, rbac)


def test_a_local_review_stays_in_its_namespace(rule, grant):
    rbac = grant("bob", rule("get", "pods"), namespace="team")
    review = {"metadata": {"namespace": "team"}, "spec": {"user": "bob", "resourceAttributes": POD_GET}}
    assert reviews.local_subject_access_review(review, "team", rbac)["status"]["allowed"]
    with pytest.raises(ApiError, match=r"spec\.resourceAttributes\.namespace must match namespace: other"):
        reviews.local_subject_access_review(review, "other", rbac)
    elsewhere = {**review, "spec": {"user": "bob", "resourceAttributes": {**POD_GET, "namespace": "kube-system"}}}
    with pytest.raises(ApiError, match=r'namespace: Invalid value: "kube-system": must match metadata\.namespace'):
        reviews.local_subject_access_review(elsewhere, "team", rbac)
    path = {**review, "spec": {"user": "bob", "nonResourceAttributes": {"path": "/x", "verb": "get"}}}
    with pytest.raises(ApiError, match="disallowed on this kind of request"):
        reviews.local_subject_access_review(path, "team", rbac)


def test_what_may_i_lists_the_rules_of_a_namespace(rule, grant, alice, master):
    rbac = grant("alice", rule("get", "pods", names="a"), rule("get", urls="/metrics"), namespace="team")
    status = reviews.self_subject_rules_review({"spec": {"namespace": "team"}}, alice, rbac)["status"]
    pods = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}
    urls = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    assert status == {"resourceRules": [pods], "nonResourceRules": [urls], "incomplete": False}
    everything = reviews.self_subject_rules_review({"spec": {"namespace": "team"}}, master, rbac)["status"]
    assert everything["resourceRules"][0] == {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    with pytest.raises(ApiError, match="no namespace on request"):
        reviews.self_subject_rules_review({"spec": {}}, alice, rbac)


def test_who_am_i_shows_name_and_groups(alice):
    answer = reviews.self_subject_review({"apiVersion": "authentication.k8s.io/v1beta1"}, alice)
    assert answer["apiVersion"] == "authentication.k8s.io/v1beta1"
    assert answer["status"]["userInfo"] == {"username": "alice", "groups": ["dev", "system:authenticated"]}


def test_whose_token_is_this(alice):
    async def verify(token, audiences):
        return Verified(alice, ("here",), 0) if token == "good" else None

    good = asyncio.run(reviews.token_review({"spec": {"token": "good"}}, verify))["status"]
    assert (good["authenticated"], good["user"]["username"], good["audiences"]) == (True, "alice", ["here"])
    bad = asyncio.run(reviews.token_review({"spec": {"token": "bad"}}, verify))["status"]
    assert bad == {"user": {}, "error": "invalid bearer token"}
    with pytest.raises(ApiError, match="token is required for TokenReview in authentication"):
        asyncio.run(reviews.token_review({"spec": {}}, verify))


# The beginning


@pytest.fixture
def fresh() -> Rbac:
    rbac = Rbac()
    for obj in objects():
        rbac.upsert(obj["kind"], obj)
    return rbac


def bind(rbac, role, user, namespace="team"):
    binding = {"metadata": {"name": role, "namespace": namespace}, "roleRef": {"kind": "ClusterRole", "name": role}}
    rbac.upsert("RoleBinding", {**binding, "subjects": [{"kind": "User", "name": user}]})


def test_anybody_known_may_discover_and_ask_about_themselves_but_no_more(fresh, alice, asks):
    assert fresh.authorize(Attributes(alice, "get", path="/apis/apps/v1")).allowed
    assert fresh.authorize(Attributes(alice, "get", path="/openapi/v3")).allowed
    assert fresh.authorize(
        asks(alice, "create", "selfsubjectaccessreviews", group="authorization.k8s.io")
    ).allowed
    assert not fresh.authorize(Attributes(alice, "get", path="/metrics")).allowed
    assert not fresh.authorize(asks(alice, "list", "namespaces")).allowed
    assert not fresh.authorize(asks(alice, "create", "subjectaccessreviews", group="authorization.k8s.io")).allowed


def test_the_unknown_may_see_health_and_version_only(fresh):
    nobody = User("system:anonymous", groups=("system:unauthenticated",))
    assert fresh.authorize(Attributes(nobody, "get", path="/livez")).allowed
    assert not fresh.authorize(Attributes(nobody, "get", path="/api")).allowed


def test_view_reads_no_secrets_edit_grants_no_rights_and_admin_does(fresh, asks):
    for role in ("view", "edit", "admin"):
        bind(fresh, role, role)
    view, edit, admin = User("view"), User("edit"), User("admin")
    assert fresh.authorize(asks(view, "get", "configmaps", "team")).allowed
    assert not fresh.authorize(asks(view, "get", "secrets", "team")).allowed
    assert not fresh.authorize(asks(view, "create", "configmaps", "team")).allowed
    assert fresh.authorize(asks(edit, "create", "deployments", "team", group="apps")).allowed
    assert fresh.authorize(asks(edit, "get", "pods/log", "team")).allowed  # gathered from view
    rights = {"group": "rbac.authorization.k8s.io"}
    assert not fresh.authorize(asks(edit, "create", "rolebindings", "team", **rights)).allowed
    assert fresh.authorize(asks(admin, "create", "rolebindings", "team", **rights)).allowed
    assert fresh.authorize(asks(admin, "get", "configmaps", "team")).allowed  # gathered from view through edit
    for user in (view, edit, admin):
        assert not fresh.authorize(asks(user, "list", "usertokens", "team", group="homeostat.dev")).allowed


def test_the_first_objects_need_no_second_gathering():
    roles = [obj for obj in objects() if obj["kind"] == "ClusterRole"]
    assert aggregate(roles) == []


def test_a_labelled_role_flows_into_view_edit_and_admin_and_out_again(rule):
    roles = [obj for obj in objects() if obj["kind"] == "ClusterRole"]
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    widgets = {"metadata": {"name": "w", "labels": label}, "rules": [rule("get", "widgets", "example.com")]}
    changed = {role["metadata"]["name"]: role for role in aggregate([*roles, widgets])}
    assert set(changed) == {"view", "edit", "admin"}
    assert all(widgets["rules"][0] in role["rules"] for role in changed.values())
    with_it = [changed.get(role["metadata"]["name"], role) for role in roles]
    without = {role["metadata"]["name"]: role for role in aggregate(with_it)}
    assert set(without) == {"view", "edit", "admin"}
    assert all(widgets["rules"][0] not in role["rules"] for role in without.values())


def test_a_role_never_gathers_itself_and_circles_end(rule):
    def circle(name, gathers, *rules):
        selector = {"matchExpressions": [{"key": "of", "operator": "In", "values": [gathers]}]}
        gathering = {"aggregationRule": {"clusterRoleSelectors": [selector]}}
        return {"metadata": {"name": name, "labels": {"of": name}}, **gathering, "rules": list(rules)}

    found = aggregate([circle("a", "b", rule("get", "x")), circle("b", "a", rule("get", "y"))])
    assert isinstance(found, list)
    everyone = {"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{}]}, "rules": []}
    plain = {"metadata": {"name": "p"}, "rules": [rule("get", "x"), rule("get", "x")]}
    (gathered,) = aggregate([everyone, plain])
    assert gathered["rules"] == [rule("get", "x")]
