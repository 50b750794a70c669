"""A user as every decision sees one: a name, groups, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from homeostat.model.names import dns_label_problems, dns_subdomain_problems

MASTERS = "system:masters"
"""Members may do everything, whatever the roles say: the way back in when the roles are broken."""
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
SERVICE_ACCOUNTS = "system:serviceaccounts"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"

AUTHENTICATION = "authentication.k8s.io"
"""The API group of everything about who somebody is."""
EXTRA = "authentication.kubernetes.io/"
"""How the names begin under which `User.extra` keeps what we know of a credential."""
CREDENTIAL = f"{EXTRA}credential-id"


@dataclass(frozen=True, slots=True)
class User:
    """Somebody proven. Nobody is `None`, never a User with an empty name."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    @property
    def is_master(self) -> bool:
        """May do everything."""
        return MASTERS in self.groups

    def info(self) -> dict[str, Any]:
        """The `UserInfo` of authentication.k8s.io/v1."""
        shown: dict[str, Any] = {"username": self.name}
        if self.uid:
            shown["uid"] = self.uid
        if self.groups:
            shown["groups"] = list(self.groups)
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in self.extra.items()}
        return shown


class Verified(msgspec.Struct, frozen=True):
    """A token that holds now: whose it is, for which audiences, and until when (seconds since 1970)."""

    user: User
    audiences: tuple[str, ...]
    expires: float


def service_account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """The groups of every service account in a namespace."""
    return SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"


def split_service_account(username: str) -> tuple[str, str] | None:
    """Namespace and name of a service account's user name; None where it is anybody else's."""
    if not username.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, colon, name = username[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
    if not colon or dns_label_problems(namespace) or dns_subdomain_problems(name):
        return None
    return namespace, name
