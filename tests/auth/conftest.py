"""A small world of certificates, roles and users."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homeostat.api.auth import pki
from homeostat.api.auth.rbac import Attributes, Rbac
from homeostat.api.auth.user import User

RBAC = "rbac.authorization.k8s.io"

Grant = Callable[..., Rbac]
MakeRule = Callable[..., dict[str, Any]]
Asks = Callable[..., Attributes]


@pytest.fixture
def rule() -> MakeRule:
    """Writes a rule from words separated by spaces."""

    def make(verbs: str, resources: str = "", group: str = "", names: str = "", urls: str = "") -> dict[str, Any]:
        made: dict[str, Any] = {"verbs": verbs.split()}
        if resources:
            made |= {"apiGroups": [group], "resources": resources.split()}
        if names:
            made["resourceNames"] = names.split()
        if urls:
            made["nonResourceURLs"] = urls.split()
        return made

    return make


@pytest.fixture
def asks() -> Asks:
    """Somebody wants to do something to `resource` or `resource/subresource`."""

    def make(user: User, verb: str, resource: str, namespace: str = "", name: str = "", group: str = "") -> Attributes:
        plural, _, subresource = resource.partition("/")
        return Attributes(user, verb, group, "v1", plural, subresource, namespace, name)

    return make


@pytest.fixture(scope="session")
def pki_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: nothing in it is changed by a test."""
    directory = tmp_path_factory.mktemp("data") / "pki"
    pki.ensure_server(directory)
    pki.ensure_signing_key(directory)
    return directory


@pytest.fixture
def alice() -> User:
    return User("alice", groups=("dev", "system:authenticated"))


@pytest.fixture
def master() -> User:
    return User("admin", groups=("system:masters", "system:authenticated"))


@pytest.fixture
def rbac() -> Rbac:
    return Rbac()


@pytest.fixture
def grant(rbac: Rbac) -> Grant:
    """Gives a user rules, in a namespace or (without one) everywhere."""
    numbers = itertools.count()

    def give(user: str, *rules: dict[str, Any], namespace: str = "", kind: str = "User") -> Rbac:
        name = f"{user}-{next(numbers)}"
        scope = {"namespace": namespace} if namespace else {}
        prefix = "" if namespace else "Cluster"
        rbac.upsert(f"{prefix}Role", {"metadata": {"name": name, **scope}, "rules": list(rules)})
        ref = {"apiGroup": RBAC, "kind": f"{prefix}Role", "name": name}
        subjects = [{"kind": kind, "name": user, "apiGroup": RBAC}]
        rbac.upsert(f"{prefix}RoleBinding", {"metadata": {"name": name, **scope}, "roleRef": ref, "subjects": subjects})
        return rbac

    return give
