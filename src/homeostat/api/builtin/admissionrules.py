"""Which requests an admission policy is about: rules over groups, versions, resources and operations, and selectors."""

from __future__ import annotations

from typing import Any

from homeostat.api.builtin.declare import fill
from homeostat.model.errors import FieldError
from homeostat.model.names import path_segment_problems
from homeostat.model.selectors import label_selector_errors

_MATCH_POLICIES = ("Equivalent", "Exact")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")


def default_constraints(raw: dict[str, Any] | None) -> None:
    """Fills in what a `MatchResources` leaves out."""
    if raw is None:
        return
    fill(raw, matchPolicy="Equivalent", namespaceSelector={}, objectSelector={})
    for field in ("resourceRules", "excludeResourceRules"):
        for rule in raw.get(field) or ():
            fill(rule, scope="*")


def constraint_errors(raw: dict[str, Any], path: str) -> list[FieldError]:
    """What is wrong with a `MatchResources`."""
    errors = []
    policy = raw.get("matchPolicy") or ""
    if policy not in _MATCH_POLICIES:
        errors.append(FieldError.not_supported(f"{path}.matchPolicy", policy, _MATCH_POLICIES))
    for field in ("namespaceSelector", "objectSelector"):
        errors += label_selector_errors(raw.get(field), f"{path}.{field}")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(raw.get(field) or ()):
            errors += _rule_errors(rule, f"{path}.{field}[{index}]")
    return errors


def _rule_errors(rule: dict[str, Any], path: str) -> list[FieldError]:
    names, errors = rule.get("resourceNames") or [], []
    for index, name in enumerate(names):
        here = f"{path}.resourceNames[{index}]"
        errors += [FieldError.invalid(here, name, p) for p in path_segment_problems(name)]
        if name in names[:index]:
            errors.append(FieldError.duplicate(here, name))
    operations = rule.get("operations") or []
    errors += _list_errors(operations, f"{path}.operations", "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            errors.append(FieldError.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    errors += _list_errors(rule.get("apiGroups") or [], f"{path}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    errors += _list_errors(versions, f"{path}.apiVersions", "API versions")
    errors += [FieldError.required(f"{path}.apiVersions[{i}]") for i, version in enumerate(versions) if not version]
    errors += _resource_errors(rule.get("resources") or [], f"{path}.resources")
    scope = rule.get("scope")
    if scope is not None and scope not in _SCOPES:
        errors.append(FieldError.not_supported(f"{path}.scope", scope, _SCOPES))
    return errors


def _list_errors(given: list[str], path: str, what: str) -> list[FieldError]:
    if not given:
        return [FieldError.required(path)]
    if len(given) > 1 and "*" in given:
        return [FieldError.invalid(path, given, f"if '*' is present, must not specify other {what}")]
    return []


def _resource_errors(resources: list[str], path: str) -> list[FieldError]:
    if not resources:
        return [FieldError.required(path)]
    errors = []
    whole: set[str] = set()  # resources of which all subresources are meant
    everywhere: set[str] = set()  # subresources that are meant of all resources
    plain = False  # as upstream has it: the last one without a subresource decides
    for index, named in enumerate(resources):
        here = f"{path}[{index}]"
        if not named:
            errors.append(FieldError.required(here))
            continue
        resource, slash, part = named.partition("/")
        if not slash:
            plain = named != "*"
            continue
        if resource in whole:
            errors.append(FieldError.invalid(here, named, f"if '{resource}/*' is present, must not specify {named}"))
        if part in everywhere:
            errors.append(FieldError.invalid(here, named, f"if '*/{part}' is present, must not specify {named}"))
        if part == "*":
            whole.add(resource)
        if resource == "*":
            everywhere.add(part)
    if len(resources) > 1 and "*/*" in resources:
        errors.append(FieldError.invalid(path, resources, "if '*/*' is present, must not specify other resources"))
    if "*" in resources and plain:
        why = "if '*' is present, must not specify other resources without subresources"
        errors.append(FieldError.invalid(path, resources, why))
    return errors
