"""Questions of permission inside an expression: `authorizer.group('apps').resource('deployments').check('delete').allowed()`.

Whoever evaluates hands in an `Authorizer` with a function that knows the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from homeostat.model.cel.overloads import overload
from homeostat.model.cel.types import Field, Type
from homeostat.model.cel.values import CelError, declare_opaque
from homeostat.model.names import dns_label_problems, dns_subdomain_problems

_CHECK_COST = 100


class Asked(NamedTuple):
    """What somebody wants to do: to a path, or to a kind. `account`: not the caller, but this namespace's service account."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    account: tuple[str, str] | None = None


class Decision(NamedTuple):
    allowed: bool
    reason: str


class Authorizer:
    """Answers for one caller. `requestResource` is what the present request is about."""

    __slots__ = ("account", "ask", "request")

    def __init__(
        self, ask: Callable[[Asked], Decision], request: Asked | None = None, account: tuple[str, str] | None = None
    ) -> None:
        self.ask = ask
        self.request = request
        self.account = account

    def __getitem__(self, name: str) -> ResourceCheck:
        if name != "requestResource" or self.request is None:
            raise KeyError(name)
        return ResourceCheck(self, self.request._replace(account=self.account))


class _Check:
    __slots__ = ("asked", "by")

    def __init__(self, by: Authorizer, asked: Asked) -> None:
        self.by = by
        self.asked = asked


class PathCheck(_Check):
    """A path that is no kind's."""


class GroupCheck(_Check):
    """A group of kinds."""


class ResourceCheck(_Check):
    """A kind, as closely as was said."""


_PREFIX = "kubernetes.authorization."
for _class in (Authorizer, PathCheck, GroupCheck, ResourceCheck, Decision):
    declare_opaque(_class, _PREFIX + _class.__name__)

AUTHORIZER = Type(
    "opaque",
    f"{_PREFIX}Authorizer",
    fields={"requestResource": Field("requestResource", Type("opaque", f"{_PREFIX}ResourceCheck"))},
)
"""The type of the variable `authorizer`."""


def _check_cost(_: Sequence[Any]) -> int:
    return _CHECK_COST


def _said(value: str, what: str) -> str:
    if not value.strip():
        raise CelError(f"{what} must not be empty")
    return value


@overload(f"{_PREFIX}Authorizer.path(string): {_PREFIX}PathCheck")
def path(by: Authorizer, value: str) -> PathCheck:
    return PathCheck(by, Asked(path=_said(value, "path"), account=by.account))


@overload(f"{_PREFIX}Authorizer.group(string): {_PREFIX}GroupCheck")
def group(by: Authorizer, value: str) -> GroupCheck:
    return GroupCheck(by, Asked(group=value, account=by.account))


@overload(f"{_PREFIX}Authorizer.serviceAccount(string, string): {_PREFIX}Authorizer")
def service_account(by: Authorizer, namespace: str, name: str) -> Authorizer:
    if dns_label_problems(namespace):
        raise CelError("Invalid service account namespace")
    if dns_subdomain_problems(name):
        raise CelError("Invalid service account name")
    return Authorizer(by.ask, by.request, (namespace, name))


@overload(f"{_PREFIX}GroupCheck.resource(string): {_PREFIX}ResourceCheck")
def resource(check: GroupCheck, value: str) -> ResourceCheck:
    return ResourceCheck(check.by, check.asked._replace(resource=_said(value, "resource")))


@overload(f"{_PREFIX}ResourceCheck.subresource(string): {_PREFIX}ResourceCheck")
def subresource(check: ResourceCheck, value: str) -> ResourceCheck:
    return ResourceCheck(check.by, check.asked._replace(subresource=value))


@overload(f"{_PREFIX}ResourceCheck.namespace(string): {_PREFIX}ResourceCheck")
def namespace(check: ResourceCheck, value: str) -> ResourceCheck:
    return ResourceCheck(check.by, check.asked._replace(namespace=value))


@overload(f"{_PREFIX}ResourceCheck.name(string): {_PREFIX}ResourceCheck")
def name(check: ResourceCheck, value: str) -> ResourceCheck:
    return ResourceCheck(check.by, check.asked._replace(name=value))


@overload(
    f"{_PREFIX}ResourceCheck.fieldSelector(string): {_PREFIX}ResourceCheck",
    f"{_PREFIX}ResourceCheck.labelSelector(string): {_PREFIX}ResourceCheck",
)
def selected(check: ResourceCheck, value: str) -> ResourceCheck:
    """Roles know no selectors: whoever may not list all may not list some."""
    return check


@overload(
    f"{_PREFIX}PathCheck.check(string): {_PREFIX}Decision",
    f"{_PREFIX}ResourceCheck.check(string): {_PREFIX}Decision",
    cost=_check_cost,
)
def check(check: _Check, verb: str) -> Decision:
    return check.by.ask(check.asked._replace(verb=verb))


@overload(f"{_PREFIX}Decision.allowed(): bool")
def allowed(decision: Decision) -> bool:
    return decision.allowed


@overload(f"{_PREFIX}Decision.reason(): string")
def reason(decision: Decision) -> str:
    return decision.reason


@overload(f"{_PREFIX}Decision.errored(): bool")
def errored(decision: Decision) -> bool:
    return False


@overload(f"{_PREFIX}Decision.error(): string")
def error(decision: Decision) -> str:
    return ""
