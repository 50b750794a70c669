"""Acting as somebody else: every part needs its own permission."""

from __future__ import annotations

import pytest

from homeostat.api.auth.impersonate import impersonate
from homeostat.api.auth.user import User
from homeostat.model.errors import ApiError


def headers(*pairs):
    return [(name.lower().encode(), value.encode()) for name, value in pairs]


def test_without_headers_a_caller_is_themselves(rbac, alice):
    assert impersonate(headers(("Accept", "application/json")), alice, rbac) is alice


def test_nobody_may_impersonate_by_default(rbac, alice):
    with pytest.raises(ApiError) as refused:
        impersonate(headers(("Impersonate-User", "bob")), alice, rbac)
    assert refused.value.code == 403
    assert refused.value.message == (
        'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )


def test_an_impersonated_user_has_the_named_groups_and_no_others(rule, grant, alice):
    rbac = grant("alice", rule("impersonate", "users", names="bob"), rule("impersonate", "groups", names="ops"))
    assert impersonate(headers(("Impersonate-User", "bob")), alice, rbac).groups == ("system:authenticated",)
    user = impersonate(headers(("Impersonate-User", "bob"), ("Impersonate-Group", "ops")), alice, rbac)
    assert (user.name, user.groups) == ("bob", ("ops", "system:authenticated"))


def test_the_right_to_a_user_gives_no_group(rule, grant, alice):
    rbac = grant("alice", rule("impersonate", "users"))
    with pytest.raises(ApiError, match=r'groups "system:masters" is forbidden'):
        impersonate(headers(("Impersonate-User", "bob"), ("Impersonate-Group", "system:masters")), alice, rbac)


def test_a_service_account_is_authorized_as_such_in_its_namespace(rule, grant, alice):
    rbac = grant("alice", rule("impersonate", "serviceaccounts"), namespace="team")
    user = impersonate(headers(("Impersonate-User", "system:serviceaccount:team:bot")), alice, rbac)
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated")
    with pytest.raises(ApiError, match='in the namespace "other"'):
        impersonate(headers(("Impersonate-User", "system:serviceaccount:other:bot")), alice, rbac)


def test_the_right_to_service_accounts_gives_no_user_that_looks_like_one(rule, grant, alice):
    rbac = grant("alice", rule("impersonate", "serviceaccounts"))
    for name in ("system:serviceaccount:team", "system:serviceaccount:Team:bot", "system:serviceaccount::bot"):
        with pytest.raises(ApiError, match='resource "users"'):
            impersonate(headers(("Impersonate-User", name)), alice, rbac)


def test_uid_and_extra_need_their_own_permissions(rule, grant, alice):
    rbac = grant("alice", rule("impersonate", "users"))
    asked = headers(("Impersonate-User", "bob"), ("Impersonate-Uid", "42"))
    with pytest.raises(ApiError, match=r'uids\.authentication\.k8s\.io "42" is forbidden'):
        impersonate(asked, alice, rbac)
    extra = headers(("Impersonate-User", "bob"), ("Impersonate-Extra-Scopes%2Fview", "a"))
    with pytest.raises(ApiError, match='resource "userextras/scopes/view"'):
        impersonate(extra, alice, rbac)
    grant("alice", rule("impersonate", "uids userextras/scopes/view", "authentication.k8s.io"))
    user = impersonate([*asked, *extra[1:]], alice, rbac)
    assert (user.uid, dict(user.extra)) == ("42", {"scopes/view": ("a",)})


def test_anonymous_is_not_authenticated(master, rbac):
    user = impersonate(headers(("Impersonate-User", "system:anonymous")), master, rbac)
    assert user.groups == ("system:unauthenticated",)


def test_an_impersonated_user_is_no_master_though_the_caller_is(master, rbac):
    assert not impersonate(headers(("Impersonate-User", "bob")), master, rbac).is_master


@pytest.mark.parametrize(
    "pairs",
    [
        [("Impersonate-Group", "system:masters")],
        [("Impersonate-Uid", "1")],
        [("Impersonate-Extra-a", "b")],
        [("Impersonate-User", "")  , ("Impersonate-Group", "x")],
        [("Impersonate-User", "bob"), ("Impersonate-User", "admin")],
        [("Impersonate-User", "bob\tadmin")],
        [("Impersonate-User", "bob\x00")],
        [("Impersonate-Users", "bob")],
        [("Impersonate-User", "bob"), ("Impersonate-Extra-a%0d%0ab", "c")],
    ],
)
def test_headers_that_cannot_be_understood_are_refused_even_to_masters(master, rbac, pairs):
    with pytest.raises(ApiError) as refused:
        impersonate(headers(*pairs), master, rbac)
    assert refused.value.code == 400


def test_bytes_that_are_no_text_are_refused(master, rbac):
    with pytest.raises(ApiError, match="not UTF-8"):
        impersonate([(b"impersonate-user", b"\xff\xfe")], master, rbac)


def test_the_caller_is_never_changed(rule, grant):
    caller = User("alice", "1", ("dev",), {"a": ("b",)})
    user = impersonate(headers(("Impersonate-User", "bob")), caller, grant("alice", rule("impersonate", "users")))
    assert (user.uid, dict(user.extra)) == ("", {})
    assert caller == User("alice", "1", ("dev",), {"a": ("b",)})
