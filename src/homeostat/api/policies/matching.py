"""Which writes a policy, or a binding of it, means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from homeostat.api.auth.user import User
from homeostat.api.resource import Object
from homeostat.model.selectors import LabelSelector, label_selector_from

GROUP = "admissionregistration.k8s.io"
"""The API group of policies and their bindings."""


class Form(msgspec.Struct, frozen=True):
    """A way in which a kind is served."""

    group: str
    version: str
    resource: str
    kind: str

    def as_kind(self) -> dict[str, str]:
        return {"group": self.group, "version": self.version, "kind": self.kind}

    def as_resource(self) -> dict[str, str]:
        return {"group": self.group, "version": self.version, "resource": self.resource}


class Write(msgspec.Struct):
    """One write, as policies see it. `obj` is None for a deletion, `old` for a creation; `name` may still be empty then."""

    operation: str  # CREATE, UPDATE, DELETE
    form: Form
    equivalents: tuple[Form, ...]  # the same objects in other versions and groups
    subresource: str
    namespace: str  # of a namespace itself: its name
    name: str
    obj: Object | None
    old: Object | None
    user: User
    dry_run: bool
    options: dict[str, Any]
    room: Object | None  # the namespace as it is stored

    @property
    def of_namespaces(self) -> bool:
        return (self.form.group, self.form.resource) == ("", "namespaces")


class Matching:
    """`matchConstraints` of a policy, or `matchResources` of a binding."""

    __slots__ = ("_exact", "_excluded", "_namespaces", "_objects", "_rules")

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._rules = raw.get("resourceRules") or ()
        self._excluded = raw.get("excludeResourceRules") or ()
        self._exact = raw.get("matchPolicy") == "Exact"
        self._namespaces = label_selector_from(raw.get("namespaceSelector") or {})
        self._objects = label_selector_from(raw.get("objectSelector") or {})

    def match(self, write: Write) -> Form | None:
        """The form by whose name it is meant; None where it is not."""
        if not self._namespace_fits(write) or not self._object_fits(write):
            return None
        if self._find(self._excluded, write) is not None:
            return None
        return self._find(self._rules, write) if self._rules else write.form

    def _find(self, rules: Iterable[Mapping[str, Any]], write: Write) -> Form | None:
        forms = (write.form,) if self._exact else (write.form, *write.equivalents)
        for form in forms:
            if any(_rule_fits(rule, form, write) for rule in rules):
                return form
        return None

    def _namespace_fits(self, write: Write) -> bool:
        if _is_empty(self._namespaces) or (not write.namespace and not write.of_namespaces):
            return True
        labelled = write.obj if write.of_namespaces and write.obj is not None else write.room
        return _selects(self._namespaces, labelled)

    def _object_fits(self, write: Write) -> bool:
        return _is_empty(self._objects) or _selects(self._objects, write.obj) or _selects(self._objects, write.old)


def _is_empty(selector: LabelSelector | None) -> bool:
    return selector is None or not selector.requirements


def _selects(selector: LabelSelector | None, obj: Object | None) -> bool:
    return selector is not None and obj is not None and selector.matches(obj["metadata"].get("labels"))


def _rule_fits(rule: Mapping[str, Any], form: Form, write: Write) -> bool:
    if not _scope_fits(rule.get("scope") or "*", write):
        return False
    said = ((rule.get("operations"), write.operation), (rule.get("apiGroups"), form.group), (rule.get("apiVersions"), form.version))
    if not all("*" in (wanted or ()) or given in (wanted or ()) for wanted, given in said):
        return False
    if not any(_resource_fits(named, form.resource, write.subresource) for named in rule.get("resources") or ()):
        return False
    names = rule.get("resourceNames")
    return not names or write.name in names


def _scope_fits(scope: str, write: Write) -> bool:
    inside = bool(write.namespace) and not write.of_namespaces
    return scope == "*" or inside == (scope == "Namespaced")


def _resource_fits(named: str, resource: str, subresource: str) -> bool:
    wanted, _, part = named.partition("/")
    return wanted in ("*", resource) and part in ("*", subresource)
