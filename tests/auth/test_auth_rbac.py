"""Who may do what: decisions as kube-apiserver makes them, and in its words."""

from __future__ import annotations

import timeit

import pytest

from homeostat.api.auth.rbac import Attributes, Rbac, denied
from homeostat.api.auth.user import User


def test_nothing_is_allowed_that_no_rule_allows(rbac, alice, asks):
    assert not rbac.authorize(asks(alice, "get", "pods", "default")).allowed


def test_system_masters_may_do_everything_without_any_role(rbac, master, asks):
    assert rbac.authorize(asks(master, "delete", "namespaces", name="kube-system")).allowed
    assert rbac.authorize(Attributes(master, "get", path="/metrics")).allowed


@pytest.mark.parametrize(
    ("resources", "asked", "allowed"),
    [
        ("pods", "pods", True),
        ("pods", "pods/log", False),
        ("pods/log", "pods/log", True),
        ("pods/log", "pods", False),
        ("*/scale", "deployments/scale", True),
        ("*/scale", "deployments", False),
        ("*/scale", "deployments/status", False),
        ("*", "pods", True),
        ("*", "pods/exec", True),
        ("pods/*", "pods/log", False),  # upstream knows no such wildcard
        ("po*", "pods", False),
    ],
)
def test_resources_and_subresources_match_as_upstream(rule, grant, alice, asks, resources, asked, allowed):
    rbac = grant("alice", rule("get", resources))
    assert rbac.authorize(asks(alice, "get", asked, "default")).allowed is allowed


def test_verbs_and_groups_are_exact_or_a_wildcard(rule, grant, alice, asks):
    rbac = grant("alice", rule("list", "widgets", "example.com"), rule("*", "gadgets", "*"))
    assert rbac.authorize(asks(alice, "list", "widgets", "a", group="example.com")).allowed
    assert not rbac.authorize(asks(alice, "watch", "widgets", "a", group="example.com")).allowed
    assert not rbac.authorize(asks(alice, "list", "widgets", "a")).allowed
    assert rbac.authorize(asks(alice, "anything", "gadgets", "a", group="whatever.io")).allowed


def test_resource_names_limit_a_rule_to_some_objects_and_never_to_a_list(rule, grant, alice, asks):
    rbac = grant("alice", rule("get list create", "configmaps", names="a b"))
    assert rbac.authorize(asks(alice, "get", "configmaps", "default", "a")).allowed
    assert rbac.authorize(asks(alice, "get", "configmaps", "default", "b")).allowed
    assert not rbac.authorize(asks(alice, "get", "configmaps", "default", "c")).allowed
    assert not rbac.authorize(asks(alice, "list", "configmaps", "default")).allowed


def test_a_rule_for_some_names_does_not_hide_a_later_rule_for_all(rule, grant, alice, asks):
    rbac = grant("alice", rule("get", "configmaps", names="a"), rule("get", "configmaps"))
    assert rbac.authorize(asks(alice, "get", "configmaps", "default", "z")).allowed


@pytest.mark.parametrize(
    ("urls", "path", "allowed"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/", False),
        ("/healthz", "/healthz/etcd", False),
        ("/apis/*", "/apis/apps/v1", True),
        ("/apis/*", "/apis", False),
        ("*", "/anything", True),
        ("/a*b", "/axb", False),
    ],
)
def test_non_resource_urls_match_exactly_or_by_a_trailing_star(rule, grant, alice, urls, path, allowed):
    rbac = grant("alice", rule("get", urls=urls))
    assert rbac.authorize(Attributes(alice, "get", path=path)).allowed is allowed
    assert not rbac.authorize(Attributes(alice, "post", path=path)).allowed


def test_a_rule_about_urls_opens_no_resource_and_the_other_way_round(rule, grant, alice, asks):
    rbac = grant("alice", rule("*", urls="*"))
    assert not rbac.authorize(asks(alice, "get", "pods", "default")).allowed
    other = grant("bob", rule("*", "*", "*"))
    assert not other.authorize(Attributes(User("bob"), "get", path="/metrics")).allowed


def test_a_role_binding_grants_in_its_own_namespace_only(rule, grant, alice, asks):
    rbac = grant("alice", rule("get", "pods"), namespace="team")
    assert rbac.authorize(asks(alice, "get", "pods", "team")).allowed
    assert not rbac.authorize(asks(alice, "get", "pods", "other")).allowed
    assert not rbac.authorize(asks(alice, "get", "pods")).allowed


def test_a_role_binding_may_refer_to_a_cluster_role_and_stays_in_its_namespace(rbac, rule, alice, asks):
    rbac.upsert("ClusterRole", {"metadata": {"name": "r"}, "rules": [rule("get", "pods")]})
    binding = {"metadata": {"name": "b", "namespace": "team"}, "roleRef": {"kind": "ClusterRole", "name": "r"}}
    rbac.upsert("RoleBinding", {**binding, "subjects": [{"kind": "Group", "name": "dev"}]})
    decision = rbac.authorize(asks(alice, "get", "pods", "team"))
    assert decision.allowed
    assert decision.reason == 'RBAC: allowed by RoleBinding "b/team" of ClusterRole "r" to Group "dev"'
    assert not rbac.authorize(asks(alice, "get", "pods")).allowed


def test_a_cluster_role_binding_cannot_borrow_a_namespaced_role(rbac, rule, alice, asks):
    rbac.upsert("Role", {"metadata": {"name": "r", "namespace": "team"}, "rules": [rule("get", "pods")]})
    rbac.upsert("ClusterRole", {"metadata": {"name": "r"}, "rules": [rule("*", "*", "*")]})
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "r"}}
    rbac.upsert("ClusterRoleBinding", {**binding, "subjects": [{"kind": "User", "name": "alice"}]})
    assert not rbac.authorize(asks(alice, "get", "pods", "team")).allowed


def test_a_service_account_is_matched_by_namespace_and_name(rbac, rule, asks):
    rbac.upsert("Role", {"metadata": {"name": "r", "namespace": "team"}, "rules": [rule("get", "pods")]})
    binding = {"metadata": {"name": "b", "namespace": "team"}, "roleRef": {"kind": "Role", "name": "r"}}
    rbac.upsert("RoleBinding", {**binding, "subjects": [{"kind": "ServiceAccount", "name": "bot"}]})
    decision = rbac.authorize(asks(User("system:serviceaccount:team:bot"), "get", "pods", "team"))
    assert decision.reason == 'RBAC: allowed by RoleBinding "b/team" of Role "r" to ServiceAccount "bot/team"'
    assert not rbac.authorize(asks(User("system:serviceaccount:other:bot"), "get", "pods", "team")).allowed
    assert not rbac.authorize(asks(User("bot"), "get", "pods", "team")).allowed


def test_a_user_named_like_a_group_is_not_in_it(rule, grant, asks):
    rbac = grant("dev", rule("get", "pods"), kind="Group")
    assert not rbac.authorize(asks(User("dev"), "get", "pods")).allowed
    assert rbac.authorize(asks(User("x", groups=("dev",)), "get", "pods")).allowed


def test_decisions_follow_every_change_at_once(rbac, rule, alice, asks):
    question = asks(alice, "get", "pods", "default")
    binding = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}}
    binding["subjects"] = [{"kind": "User", "name": "alice"}]
    rbac.upsert("ClusterRoleBinding", binding)
    assert rbac.authorize(question).reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "r" not found'
    rbac.upsert("ClusterRole", {"metadata": {"name": "r"}, "rules": [rule("get", "pods")]})
    assert rbac.authorize(question).allowed
    rbac.upsert("ClusterRole", {"metadata": {"name": "r"}, "rules": [rule("get", "secrets")]})
    assert not rbac.authorize(question).allowed
    rbac.remove("ClusterRole", "", "r")
    assert rbac.authorize(question).reason == 'RBAC: clusterrole.rbac.authorization.k8s.io "r" not found'
    rbac.remove("ClusterRoleBinding", "", "b")
    assert rbac.authorize(question) == (False, "")


def test_a_refusal_is_worded_as_upstream(alice, asks):
    namespaced = denied(asks(alice, "list", "pods", "default"))
    assert namespaced.code == 403
    assert namespaced.message == (
        'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default"'
    )
    cluster = denied(asks(alice, "get", "deployments/scale", name="x", group="apps"), "RBAC: hm")
    assert cluster.message == (
        'deployments.apps "x" is forbidden: User "alice" cannot get resource "deployments/scale" in API group "apps" '
        "at the cluster scope: RBAC: hm"
    )
    path = denied(Attributes(alice, "get", path="/metrics"))
    assert path.message == 'forbidden: User "alice" cannot get path "/metrics"'
    assert path.status()["reason"] == "Forbidden"


def test_questions_about_endless_names_do_not_fill_memory(rule, grant, asks):
    rbac = grant("alice", rule("get", "*"))
    for number in range(10_000):
        rbac.authorize(asks(User(f"u{number}"), "get", "pods"))
        rbac.authorize(asks(User("alice"), "get", f"r{number}"))
    assert len(rbac._grants) <= 4096
    assert len(rbac.grants(User("alice"), "")._memo) <= 512
    assert rbac.authorize(asks(User("alice"), "get", "pods")).allowed


def test_a_decision_costs_a_few_microseconds_at_most(rule, grant, alice, asks):
    rbac: Rbac = grant("alice", *(rule("get", f"r{n}") for n in range(500)))
    question = asks(alice, "get", "r499", "default", "x")
    rbac.authorize(question)
    best = min(timeit.repeat(lambda: rbac.authorize(question), number=2000, repeat=5)) / 2000
    assert best < 10e-6  # about 0.6 on a quiet machine
