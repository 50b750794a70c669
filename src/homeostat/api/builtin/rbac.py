"""Roles and bindings: who may do what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from homeostat.api.auth.rbac import GROUP, PLURALS
from homeostat.api.builtin.declare import fill, kind, section
from homeostat.api.resource import Column, Object, Resource, Rules
from homeostat.api.table import AGE, CREATED_AT, NAME
from homeostat.model.errors import FieldError
from homeostat.model.names import dns_subdomain_problems, path_segment_problems
from homeostat.model.selectors import label_selector_errors

_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")


class RoleRules(Rules):
    """Role and, with `namespaced` off, ClusterRole."""

    def __init__(self, *, namespaced: bool) -> None:
        self.namespaced = namespaced

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors: list[FieldError] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            errors += rule_errors(rule, f"rules[{index}]", namespaced=self.namespaced)
        aggregation = obj.get("aggregationRule")
        if aggregation is not None and not self.namespaced:
            path = "aggregationRule.clusterRoleSelectors"
            selectors = aggregation.get("clusterRoleSelectors")
            if not selectors:
                detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
                errors.append(FieldError.required(path, detail))
            for index, selector in enumerate(selectors or ()):
                errors += label_selector_errors(selector, f"{path}[{index}]")
        return errors

    def name_problems(self, name: str) -> Sequence[str]:
        return path_segment_problems(name)


def rule_errors(rule: dict[str, Any], path: str, *, namespaced: bool) -> list[FieldError]:
    """What is wrong with one policy rule."""
    errors = []
    if not rule.get("verbs"):
        errors.append(FieldError.required(f"{path}.verbs", "verbs must contain at least one value"))
    groups, resources, names = rule.get("apiGroups"), rule.get("resources"), rule.get("resourceNames")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            errors.append(FieldError.invalid(f"{path}.nonResourceURLs", urls, detail))
        if groups or resources or names:
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(FieldError.invalid(f"{path}.nonResourceURLs", urls, detail))
        return errors
    if not groups:
        errors.append(FieldError.required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not resources:
        errors.append(FieldError.required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


class BindingRules(Rules):
    """RoleBinding and, with `namespaced` off, ClusterRoleBinding."""

    def __init__(self, *, namespaced: bool) -> None:
        self.namespaced = namespaced
        self.role_kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)

    def default(self, obj: Object) -> None:
        fill(section(obj, "roleRef"), apiGroup=GROUP)
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                fill(subject, apiGroup=GROUP)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        role = obj.get("roleRef") or {}
        errors = []
        if role.get("apiGroup", "") != GROUP:
            errors.append(FieldError.not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (GROUP,)))
        if role.get("kind", "") not in self.role_kinds:
            errors.append(FieldError.not_supported("roleRef.kind", role.get("kind", ""), self.role_kinds))
        if not role.get("name"):
            errors.append(FieldError.required("roleRef.name"))
        else:
            problems = path_segment_problems(role["name"])
            errors += [FieldError.invalid("roleRef.name", role["name"], p) for p in problems]
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += self._subject_errors(subject, f"subjects[{index}]")
        return errors

    def _subject_errors(self, subject: dict[str, Any], path: str) -> list[FieldError]:
        name, group = subject.get("name", ""), subject.get("apiGroup", "")
        errors = [] if name else [FieldError.required(f"{path}.name")]
        match subject.get("kind", ""):
            case "ServiceAccount":
                if name:
                    errors += [FieldError.invalid(f"{path}.name", name, p) for p in dns_subdomain_problems(name)]
                if group:
                    errors.append(FieldError.not_supported(f"{path}.apiGroup", group, ("",)))
                if not self.namespaced and not subject.get("namespace"):
                    errors.append(FieldError.required(f"{path}.namespace"))
            case "User" | "Group":
                if group != GROUP:
                    errors.append(FieldError.not_supported(f"{path}.apiGroup", group, (GROUP,)))
            case other:
                errors.append(FieldError.not_supported(f"{path}.kind", other, _SUBJECT_KINDS))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        if obj.get("roleRef") == old.get("roleRef"):
            return ()
        return [FieldError.invalid("roleRef", obj.get("roleRef"), "cannot change roleRef")]

    def name_problems(self, name: str) -> Sequence[str]:
        return path_segment_problems(name)


def _role(obj: Object) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(subject_kind: str) -> Column:
    def names(obj: Object) -> str:
        found = (s for s in obj.get("subjects") or () if s.get("kind") == subject_kind)
        if subject_kind == "ServiceAccount":
            return ", ".join(f"{s.get('namespace', '')}/{s.get('name', '')}" for s in found)
        return ", ".join(s.get("name", "") for s in found)

    return Column(f"{subject_kind}s", names, priority=1, description=f"The {subject_kind}s that are bound.")


_BINDING_COLUMNS = (
    NAME,
    Column("Role", _role, description="What the subjects may do."),
    AGE,
    _subjects("User"),
    _subjects("Group"),
    _subjects("ServiceAccount"),
)


def resources() -> list[Resource]:
    """Role, ClusterRole and their bindings."""
    api = f"{GROUP}/v1"
    return [
        kind(api, "Role", PLURALS["Role"], rules=RoleRules(namespaced=True), columns=(NAME, CREATED_AT)),
        kind(api, "RoleBinding", PLURALS["RoleBinding"], rules=BindingRules(namespaced=True), columns=_BINDING_COLUMNS),
        kind(
            api,
            "ClusterRole",
            PLURALS["ClusterRole"],
            namespaced=False,
            rules=RoleRules(namespaced=False),
            columns=(NAME, CREATED_AT),
        ),
        kind(
            api,
            "ClusterRoleBinding",
            PLURALS["ClusterRoleBinding"],
            namespaced=False,
            rules=BindingRules(namespaced=False),
            columns=_BINDING_COLUMNS,
        ),
    ]
