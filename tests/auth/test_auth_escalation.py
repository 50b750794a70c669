"""Nobody grants what they do not hold, and the refusal names exactly what is missing."""

from __future__ import annotations

import time

import pytest

from homeostat.api.auth.escalation import check_binding, check_role
from homeostat.api.auth.rules import Rule, uncovered
from homeostat.model.errors import ApiError

RBAC = "rbac.authorization.k8s.io"


def role(name, *rules, namespace="team"):
    return {"metadata": {"name": name, "namespace": namespace}, "rules": list(rules)}


def binding(kind, name, namespace="team"):
    ref = {"apiGroup": RBAC, "kind": kind, "name": name}
    return {"metadata": {"name": "b", "namespace": namespace}, "roleRef": ref, "subjects": []}


def test_a_role_within_what_its_writer_holds_may_be_written(rule, grant, alice):
    rbac = grant("alice", rule("get list", "pods configmaps"), namespace="team")
    check_role(rbac, alice, "Role", role("r", rule("get", "pods")), namespace="team")


def test_a_role_beyond_that_is_refused_in_upstreams_words(rule, grant, alice):
    rbac = grant("alice", rule("get", "pods"), namespace="team")
    wider = role("r", rule("get list watch", "pods"), rule("get", "secrets", names="a b"), rule("get", urls="/metrics"))
    with pytest.raises(ApiError) as refused:
        check_role(rbac, alice, "Role", wider, namespace="team")
    assert refused.value.code == 403
    assert refused.value.message == (
        'roles.rbac.authorization.k8s.io "r" is forbidden: user "alice" (groups=["dev" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}\n'
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}\n'
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}\n'
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}'
    )


def test_rights_in_a_namespace_make_no_cluster_role(rule, grant, alice):
    rbac = grant("alice", rule("get", "pods"), namespace="team")
    with pytest.raises(ApiError, match=r'clusterroles\.rbac\.authorization\.k8s\.io "r" is forbidden'):
        check_role(rbac, alice, "ClusterRole", role("r", rule("get", "pods")), namespace="")


def test_the_verb_escalate_lifts_the_check_for_that_role_only(rule, grant, alice):
    rbac = grant("alice", rule("escalate", "roles", RBAC, names="mine"), namespace="team")
    wide = rule("*", "*", "*")
    check_role(rbac, alice, "Role", role("mine", wide), role("mine"), namespace="team", name="mine")
    with pytest.raises(ApiError):
        check_role(rbac, alice, "Role", role("other", wide), role("other"), namespace="team", name="other")
    with pytest.raises(ApiError):  # a POST names nothing in its URL, so names cannot be matched
        check_role(rbac, alice, "Role", role("mine", wide), namespace="team")


def test_masters_are_not_checked(rbac, rule, master):
    check_role(rbac, master, "ClusterRole", role("r", rule("*", "*", "*")))
    check_binding(rbac, master, "ClusterRoleBinding", binding("ClusterRole", "nothing"))


def test_an_aggregation_rule_takes_full_power(rule, grant, alice):
    rbac = grant("alice", rule("get", "pods"))
    gathering = {"metadata": {"name": "r"}, "aggregationRule": {"clusterRoleSelectors": [{}]}}
    with pytest.raises(ApiError, match="must have cluster-admin privileges to use the aggregationRule"):
        check_role(rbac, alice, "ClusterRole", gathering)
    with pytest.raises(ApiError, match="must have cluster-admin privileges"):  # nor may it be taken away
        check_role(rbac, alice, "ClusterRole", {"metadata": {"name": "r"}}, gathering)
    check_role(grant("alice", rule("*", "*", "*"), rule("*", urls="*")), alice, "ClusterRole", gathering)


def test_an_update_of_nothing_but_finalizers_grants_nothing_and_passes(rule, rbac, alice):
    wide = role("r", rule("*", "*", "*"))
    finalized = {**wide, "metadata": {**wide["metadata"], "finalizers": ["x/y"], "resourceVersion": "7"}}
    check_role(rbac, alice, "Role", finalized, wide, namespace="team")
    labelled = {**wide, "metadata": {**wide["metadata"], "labels": {f"{RBAC}/aggregate-to-view": "true"}}}
    with pytest.raises(ApiError):
        check_role(rbac, alice, "Role", labelled, wide, namespace="team")


def test_a_binding_needs_the_roles_rights_or_the_verb_bind(rule, grant, alice):
    rbac = grant("alice", rule("create", "rolebindings", RBAC), namespace="team")
    rbac.upsert("ClusterRole", {"metadata": {"name": "view-pods"}, "rules": [rule("get", "pods")]})
    with pytest.raises(ApiError) as refused:
        check_binding(rbac, alice, "RoleBinding", binding("ClusterRole", "view-pods"), namespace="team")
    assert 'rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "alice"' in refused.value.message
    assert '{APIGroups:[""], Resources:["pods"], Verbs:["get"]}' in refused.value.message
    grant("alice", rule("bind", "clusterroles", RBAC, names="view-pods"), namespace="team")
    check_binding(rbac, alice, "RoleBinding", binding("ClusterRole", "view-pods"), namespace="team")
    with pytest.raises(ApiError):  # bind in a namespace is no bind for the cluster
        check_binding(rbac, alice, "ClusterRoleBinding", binding("ClusterRole", "view-pods"))


def test_a_binding_to_held_rights_passes(rule, grant, alice):
    rbac = grant("alice", rule("get list", "pods"), namespace="team")
    rbac.upsert("Role", role("r", rule("get", "pods")))
    check_binding(rbac, alice, "RoleBinding", binding("Role", "r"), namespace="team")


def test_a_binding_to_a_role_that_is_not_there_is_not_found(rbac, alice):
    with pytest.raises(ApiError) as refused:
        check_binding(rbac, alice, "RoleBinding", binding("ClusterRole", "later"), namespace="team")
    assert refused.value.code == 404
    assert refused.value.message == 'clusterroles.rbac.authorization.k8s.io "later" not found'


@pytest.mark.parametrize(
    ("held", "wanted", "covered"),
    [
        (("*", "*", "*"), ("get", "pods/log", "apps"), True),
        (("get", "*/log", ""), ("get", "pods/log", ""), True),
        (("get", "*/log", ""), ("get", "pods", ""), False),
        (("get", "pods", ""), ("get", "*", ""), False),
        (("get", "pods", ""), ("*", "pods", ""), False),
        (("get", "pods", ""), ("get", "pods", "*"), False),
        (("get", "pods", "", "a"), ("get", "pods", ""), False),
        (("get", "pods", "", "a b"), ("get", "pods", "", "b"), True),
        (("get", "pods", ""), ("get", "pods", "", "b"), True),
    ],
)
def test_covering_follows_upstreams_breakdown(rule, held, wanted, covered):
    assert (not uncovered([Rule(rule(*held))], [rule(*wanted)])) is covered


def test_urls_are_covered_by_a_star_at_the_end(rule):
    held = [Rule(rule("get", urls="/apis/*"))]
    assert not uncovered(held, [rule("get", urls="/apis/apps /apis/*")])
    assert uncovered(held, [rule("get", urls="*")])


def test_a_role_that_multiplies_out_is_refused_quickly(rule, grant, alice):
    rbac = grant("alice", rule("get", "pods"))
    many = [f"x{n}" for n in range(5000)]
    bomb = role("r", {"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many})
    began = time.perf_counter()
    with pytest.raises(ApiError, match="more RBAC permissions than can be checked"):
        check_role(rbac, alice, "ClusterRole", bomb)
    assert time.perf_counter() - began < 1
