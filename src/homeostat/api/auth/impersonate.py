"""Acting as somebody else, for those who may: the `Impersonate-*` headers, and tokens made for others."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from homeostat.api.auth.rbac import Attributes, Rbac, denied
from homeostat.api.auth.user import (
    ANONYMOUS,
    AUTHENTICATED,
    AUTHENTICATION,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    split_service_account,
)
from homeostat.model.errors import bad_request
from homeostat.model.protocol import IMPERSONATE

_EXTRA = "extra-"


def impersonate(headers: Iterable[tuple[bytes, bytes]], user: User, rbac: Rbac) -> User:
    """The user a request acts as: the caller, or whom the `Impersonate-*` headers name.

    Header names are lower case. Raises 403 where the caller may not, for the first thing that is not allowed, and 400
    where the headers cannot be understood. Every part is authorized by itself: user, each group, uid, each extra value.
    """
    asked = [(name[len(IMPERSONATE) :], value) for name, value in headers if name.startswith(IMPERSONATE)]
    if not asked:
        return user
    names: list[str] = []
    uids: list[str] = []
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for raw, value in asked:
        header = _text(raw)
        if header == "user":
            names.append(_text(value))
        elif header == "group":
            groups.append(_text(value))
        elif header == "uid":
            uids.append(_text(value))
        elif header.startswith(_EXTRA):
            key = _printable(unquote(header[len(_EXTRA) :])).lower()
            extra.setdefault(key, []).append(_text(value))
        else:
            raise bad_request(f"unknown impersonation header Impersonate-{header}")
    # Two values would be read differently by us and by a proxy in front of us.
    if len(names) > 1 or len(uids) > 1:
        raise bad_request("Impersonate-User and Impersonate-Uid may be given once only")
    name, uid = "".join(names), "".join(uids)
    if not name:
        if groups or extra or uid:
            raise bad_request("requested groups, uid or extra without impersonating a user")
        return user
    may_act_as(user, rbac, name, groups, uid, extra)
    return _as_seen(name, groups, uid, extra)


def may_act_as(
    caller: User,
    rbac: Rbac,
    name: str,
    groups: Iterable[str] = (),
    uid: str = "",
    extra: dict[str, list[str]] | None = None,
) -> None:
    """Raises 403 unless the caller holds `impersonate` on the user and on everything that comes with it."""
    account = split_service_account(name)
    wanted = (
        [Attributes(caller, "impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])]
        if account
        else [Attributes(caller, "impersonate", resource="users", name=name)]
    )
    wanted += (Attributes(caller, "impersonate", resource="groups", name=group) for group in groups)
    wanted += (
        Attributes(caller, "impersonate", AUTHENTICATION, resource="userextras", subresource=key, name=value)
        for key, values in (extra or {}).items()
        for value in values
    )
    if uid:
        wanted.append(Attributes(caller, "impersonate", AUTHENTICATION, resource="uids", name=uid))
    for attributes in wanted:
        decision = rbac.authorize(attributes)
        if not decision.allowed:
            raise denied(attributes, decision.reason)


def _as_seen(name: str, groups: list[str], uid: str, extra: dict[str, list[str]]) -> User:
    if not groups:
        account = split_service_account(name)
        groups = list(service_account_groups(account[0])) if account else []
    if name == ANONYMOUS:
        if UNAUTHENTICATED not in groups:
            groups.append(UNAUTHENTICATED)
    elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups.append(AUTHENTICATED)
    return User(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})


def _text(raw: bytes) -> str:
    try:
        return _printable(raw.decode())
    except UnicodeDecodeError:
        raise bad_request("an Impersonate-* header is not UTF-8") from None


def _printable(text: str) -> str:
    if not text.isprintable():
        raise bad_request("an Impersonate-* header holds control characters")
    return text
