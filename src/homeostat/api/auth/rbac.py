"""Role-based access control: from roles and bindings in memory to a decision, in about a microsecond.

What a user may do in a namespace is resolved once, into `Grants`, and kept until any role or binding changes. Within
grants, the rules that speak of a verb and a resource are found once and kept as well; what remains per request is two
look-ups in dictionaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from homeostat.api.auth.rules import Rule
from homeostat.api.auth.user import User, service_account_name
from homeostat.api.wording import quoted
from homeostat.model.errors import ApiError, not_found
from homeostat.model.errors import forbidden as resource_forbidden

GROUP = "rbac.authorization.k8s.io"
PLURALS = {
    "Role": "roles",
    "ClusterRole": "clusterroles",
    "RoleBinding": "rolebindings",
    "ClusterRoleBinding": "clusterrolebindings",
}

ROLE_KINDS = frozenset({"Role", "ClusterRole"})

GRANTS_LIMIT = 4096
MEMO_LIMIT = 512
"""Resolved users, and resolved questions per user. Reviews may ask about any name, so both start anew when full."""


class Attributes(msgspec.Struct):
    """What somebody wants to do. A request for a resource has no `path`; any other has nothing but verb and path."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """Whether it may be done. `reason` says which binding allowed it, or which roles could not be found."""

    allowed: bool
    reason: str = ""


_MASTER = Decision(True)
_DENIED = Decision(False)


class Binding:
    """A binding's subjects, ready to be matched."""

    __slots__ = ("_groups", "_users", "name", "namespace", "ref_kind", "ref_name")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        meta = raw["metadata"]
        ref = raw.get("roleRef") or {}
        self.name: str = meta["name"]
        self.namespace: str = meta.get("namespace", "")
        self.ref_kind: str = ref.get("kind", "")
        self.ref_name: str = ref.get("name", "")
        # Position first: the subject that is listed first is the one a decision names.
        self._users: dict[str, tuple[int, str]] = {}
        self._groups: dict[str, tuple[int, str]] = {}
        for position, subject in enumerate(raw.get("subjects") or ()):
            kind, name = subject.get("kind", ""), subject.get("name", "")
            if kind == "User":
                self._users.setdefault(name, (position, f"User {quoted(name)}"))
            elif kind == "Group":
                self._groups.setdefault(name, (position, f"Group {quoted(name)}"))
            elif kind == "ServiceAccount":
                namespace = subject.get("namespace") or self.namespace
                if namespace:
                    shown = f"ServiceAccount {quoted(f'{name}/{namespace}')}"
                    self._users.setdefault(service_account_name(namespace, name), (position, shown))

    def subject(self, user: User) -> str | None:
        """The first subject that is this user or one of the user's groups, described; None where none is."""
        found = [self._groups[group] for group in user.groups if group in self._groups]
        if user.name in self._users:
            found.append(self._users[user.name])
        return min(found)[1] if found else None

    def describe(self, subject: str) -> str:
        """The binding and the subject by which it applies, as a decision names them."""
        role = f"of {self.ref_kind} {quoted(self.ref_name)} to {subject}"
        if self.namespace:
            return f"RoleBinding {quoted(f'{self.name}/{self.namespace}')} {role}"
        return f"ClusterRoleBinding {quoted(self.name)} {role}"


Candidate = tuple[frozenset[str], Decision]
"""The object names that a rule is limited to (empty: none), and what to answer where it applies."""


class Grants:
    """All that one user holds in one namespace (or at the cluster scope)."""

    __slots__ = ("_memo", "denial", "problems", "rules")

    def __init__(self, rules: list[tuple[Rule, Decision]], problems: list[str]) -> None:
        self.rules = rules
        self.problems = problems
        self.denial = Decision(False, f"RBAC: {_aggregate(problems)}") if problems else _DENIED
        self._memo: dict[tuple[str, str, str, str, str], tuple[Candidate, ...]] = {}

    def decide(self, asked: Attributes) -> Decision:
        """The decision, which names the first rule that allows it."""
        key = (asked.verb, asked.path, asked.group, asked.resource, asked.subresource)
        candidates = self._memo.get(key)
        if candidates is None:
            candidates = self._find(asked)
            if not candidates:  # not remembered: there is no end of things that nobody may do
                return self.denial
            if len(self._memo) >= MEMO_LIMIT:
                self._memo.clear()
            self._memo[key] = candidates
        for names, decision in candidates:
            if not names or asked.name in names:
                return decision
        return self.denial

    def _find(self, asked: Attributes) -> tuple[Candidate, ...]:
        if asked.path:
            return tuple((frozenset[str](), d) for rule, d in self.rules if rule.allows_path(asked.verb, asked.path))
        return tuple(
            (rule.names, decision)
            for rule, decision in self.rules
            if rule.allows_kind(asked.verb, asked.group, asked.resource, asked.subresource)
        )


def _aggregate(problems: list[str]) -> str:
    once = list(dict.fromkeys(problems))
    return once[0] if len(once) == 1 else f"[{', '.join(once)}]"


class Rbac:
    """The authorizer. Whoever owns the store feeds it; it never reads anything itself."""

    def __init__(self) -> None:
        self._roles: dict[tuple[str, str], tuple[Rule, ...]] = {}  # by namespace ("" for cluster roles) and name
        self._bindings: dict[str, dict[str, Binding]] = {}  # by namespace ("" for cluster role bindings)
        self._grants: dict[tuple[str, tuple[str, ...], str], Grants] = {}

    def upsert(self, kind: str, obj: Mapping[str, Any]) -> None:
        """Takes an object as it is now. `kind` is Role, ClusterRole, RoleBinding or ClusterRoleBinding."""
        meta = obj["metadata"]
        namespace = meta.get("namespace", "")
        if kind in ROLE_KINDS:
            self._roles[namespace, meta["name"]] = tuple(map(Rule, obj.get("rules") or ()))
        else:
            self._bindings.setdefault(namespace, {})[meta["name"]] = Binding(obj)
        self._grants.clear()

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Forgets an object; one that is not known is no error."""
        if kind in ROLE_KINDS:
            self._roles.pop((namespace, name), None)
        else:
            bindings = self._bindings.get(namespace, {})
            bindings.pop(name, None)
            if not bindings:
                self._bindings.pop(namespace, None)
        self._grants.clear()

    def authorize(self, asked: Attributes) -> Decision:
        """May they? Anything that no rule allows is refused."""
        user = asked.user
        if user.is_master:
            return _MASTER
        grants = self._grants.get((user.name, user.groups, asked.namespace))
        if grants is None:
            grants = self.grants(user, asked.namespace)
        return grants.decide(asked)

    def grants(self, user: User, namespace: str) -> Grants:
        """Every rule that applies to a user in a namespace; "" is the cluster scope."""
        key = (user.name, user.groups, namespace)
        known = self._grants.get(key)
        if known is not None:
            return known
        rules: list[tuple[Rule, Decision]] = []
        problems: list[str] = []
        for scope in ("", namespace) if namespace else ("",):
            for binding in self._bindings.get(scope, {}).values():
                subject = binding.subject(user)
                if subject is None:
                    continue
                granted = self._referenced(binding.ref_kind, binding.ref_name, scope)
                if granted is None:
                    problems.append(f"{binding.ref_kind.lower()}.{GROUP} {quoted(binding.ref_name)} not found")
                    continue
                decision = Decision(True, f"RBAC: allowed by {binding.describe(subject)}")
                rules += ((rule, decision) for rule in granted)
        if len(self._grants) >= GRANTS_LIMIT:
            self._grants.clear()
        grants = self._grants[key] = Grants(rules, problems)
        return grants

    def role_rules(self, ref: Mapping[str, Any], namespace: str) -> list[Mapping[str, Any]]:
        """The rules of the role that a binding in `namespace` refers to. Raises 404 where there is no such role."""
        kind, name = ref.get("kind", ""), ref.get("name", "")
        rules = self._referenced(kind, name, namespace)
        if rules is None:
            raise not_found(GROUP, PLURALS.get(kind, kind), name)
        return [rule.raw for rule in rules]

    def _referenced(self, kind: str, name: str, namespace: str) -> tuple[Rule, ...] | None:
        if kind == "ClusterRole":
            return self._roles.get(("", name))
        # A Role lives in a namespace; a cluster role must never be taken for one.
        return self._roles.get((namespace, name)) if kind == "Role" and namespace else None


def refusal(asked: Attributes) -> str:
    """Who cannot do what, and where, in upstream's words."""
    who = f"User {quoted(asked.user.name)} cannot {asked.verb}"
    if asked.path:
        return f"{who} path {quoted(asked.path)}"
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    what = f"{who} resource {quoted(resource)} in API group {quoted(asked.group)}"
    return f"{what} in the namespace {quoted(asked.namespace)}" if asked.namespace else f"{what} at the cluster scope"


def denied(asked: Attributes, reason: str = "") -> ApiError:
    """The 403 for a refused request; `reason` is the decision's."""
    why = f"{refusal(asked)}: {reason}" if reason else refusal(asked)
    if asked.path:
        return ApiError(403, "Forbidden", f"forbidden: {why}")
    return resource_forbidden(asked.group, asked.resource, asked.name, why)
