"""ResourceQuota and LimitRange: how much a namespace may hold, and how large its parts may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.checks import (
    container_resource_name,
    quota_resource_name,
    resource_amounts,
    resource_name,
    unchanged,
)
from homeostat.api.builtin.declare import SpecAndStatus, fill, kind, section
from homeostat.api.resource import Column, Object, Resource, Rules
from homeostat.api.table import AGE, CREATED_AT, NAME
from homeostat.model.errors import FieldError
from homeostat.model.quantity import Quantity

_SCOPES = (
    "Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)  # fmt: skip
_OPPOSITES = (frozenset(("BestEffort", "NotBestEffort")), frozenset(("Terminating", "NotTerminating")))
_NOT_OF_SCOPE = "unsupported scope applied to resource"
_OF_PODS = ("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory")
_OF_CLAIMS = ("persistentvolumeclaims", "requests.storage")
_LIMIT_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_ONE = Quantity(10**9)


class ResourceQuotaRules(SpecAndStatus):
    """Amounts of known resources; the scopes stay."""

    def default(self, obj: Object) -> None:
        section(obj, "spec")

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        _, errors = resource_amounts(spec.get("hard"), "spec.hard", quota_resource_name)
        errors += _scope_errors(spec.get("scopes") or [], spec.get("hard") or {})
        if selector := spec.get("scopeSelector"):
            errors += _scope_selector_errors(selector, spec.get("hard") or {})
        status = obj.get("status") or {}
        for part in ("hard", "used"):
            errors += resource_amounts(status.get(part), f"status.{part}", quota_resource_name)[1]
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        new, before = (sorted((o.get("spec") or {}).get("scopes") or ()) for o in (obj, old))
        return unchanged(new, before, "spec.scopes")


def _scope_errors(scopes: list[str], hard: Mapping[str, Any]) -> list[FieldError]:
    errors = [FieldError.invalid("spec.scopes", scopes, "unsupported scope") for s in scopes if s not in _SCOPES]
    for scope in scopes:
        errors += [FieldError.invalid("spec.scopes", scopes, _NOT_OF_SCOPE) for _ in _outside(scope, hard)]
    if any(pair <= set(scopes) for pair in _OPPOSITES):
        errors.append(FieldError.invalid("spec.scopes", scopes, "conflicting scopes"))
    return errors


def _outside(scope: str, hard: Mapping[str, Any]) -> list[str]:
    """The resources that are limited and that a scope says nothing about."""
    claims = scope == "VolumeAttributesClass"
    known = _OF_CLAIMS if claims else ("pods",) if scope == "BestEffort" else _OF_PODS
    return [name for name in sorted(hard) if scope in _SCOPES and name not in known and "/" not in name]


def _scope_selector_errors(selector: dict[str, Any], hard: Mapping[str, Any]) -> list[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    errors = []
    for expression in selector.get("matchExpressions") or ():
        outside = _outside(expression.get("scopeName", ""), hard)
        errors += [FieldError.invalid(path, selector, _NOT_OF_SCOPE) for _ in outside]
    for expression in selector.get("matchExpressions") or ():
        operator, values = expression.get("operator", ""), expression.get("values")
        if expression.get("scopeName") not in _SCOPES:
            errors.append(FieldError.invalid(f"{path}.scopeName", expression.get("scopeName", ""), "unsupported scope"))
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                errors.append(FieldError.required(f"{path}.values", detail))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                errors.append(FieldError.invalid(f"{path}.values", values, detail))
        else:
            errors.append(FieldError.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    return errors


class LimitRangeRules(Rules):
    """Limits of each type once, in an order that makes sense."""

    def default(self, obj: Object) -> None:
        for limit in section(obj, "spec").get("limits") or ():
            if limit.get("type") == "Container":
                _fill_container_limits(limit)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        errors: list[FieldError] = []
        seen: set[str] = set()
        for index, limit in enumerate((obj.get("spec") or {}).get("limits") or ()):
            path = f"spec.limits[{index}]"
            limit_type = limit.get("type") or ""
            if limit_type not in _LIMIT_TYPES and "/" not in limit_type:
                detail = "must be a standard limit type or fully qualified"
                errors.append(FieldError.invalid(f"{path}.type", limit_type, detail))
            if limit_type in seen:
                errors.append(FieldError.duplicate(f"{path}.type", limit_type))
            seen.add(limit_type)
            errors += _limit_errors(limit, limit_type, path)
        return errors


def _fill_container_limits(limit: dict[str, Any]) -> None:
    """What a container gets when it says nothing: at most the maximum, and what its limit or the minimum says."""
    if limit.get("max"):
        fill(limit, default={})
        limit["default"] = {**limit["max"], **limit["default"]}
    if limit.get("default") or limit.get("min"):
        floor, ceiling = limit.get("min") or {}, limit.get("default") or {}
        limit["defaultRequest"] = {**floor, **ceiling, **(limit.get("defaultRequest") or {})}


def _limit_errors(limit: dict[str, Any], limit_type: str, path: str) -> list[FieldError]:
    judge = container_resource_name if limit_type in ("Pod", "Container") else resource_name
    amounts: dict[str, dict[str, Quantity]] = {}
    errors: list[FieldError] = []
    for part in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        if limit_type == "Pod" and part in ("default", "defaultRequest"):
            amounts[part] = {}
            if limit.get(part):
                errors.append(FieldError.forbidden(f"{path}.{part}", "may not be specified when `type` is 'Pod'"))
            continue
        amounts[part], found = resource_amounts(limit.get(part), f"{path}.{part}", judge)
        errors += found
    if limit_type == "PersistentVolumeClaim" and "storage" not in {**amounts["min"], **amounts["max"]}:
        detail = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(FieldError.required(f"{path}.limits", detail))
    for smaller, small_words, larger, large_words, blamed, shown in _ORDER:
        for name, small in amounts[smaller].items():
            large = amounts[larger].get(name)
            if large is not None and small > large:
                detail = f"{small_words} value {small} is greater than {large_words} value {large}"
                errors.append(FieldError.invalid(f"{path}.{blamed}[{name}]", str(amounts[shown][name]), detail))
    for name, ratio in amounts["maxLimitRequestRatio"].items():
        if ratio < _ONE:
            where = f"{path}.maxLimitRequestRatio[{name}]"
            errors.append(FieldError.invalid(where, str(ratio), f"ratio {ratio} is less than 1"))
    return errors


_ORDER = (
    ("min", "min", "max", "max", "min", "min"),
    ("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "default", "default limit", "defaultRequest", "defaultRequest"),
    ("min", "min", "default", "default", "default", "min"),
    ("default", "default", "max", "max", "default", "max"),
)
"""What must not be greater than what, with upstream's words for both, the field that is blamed and the value shown."""


def _usage(*, limits: bool) -> Any:
    def cell(obj: Object) -> str:
        status = obj.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = (name for name in sorted(hard) if name.startswith("limits.") is limits)
        return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)

    return cell


def resources() -> list[Resource]:
    """ResourceQuota and LimitRange."""
    return [
        kind(
            "v1",
            "ResourceQuota",
            "resourcequotas",
            short=("quota",),
            rules=ResourceQuotaRules(),
            status=True,
            columns=(
                NAME,
                Column("Request", _usage(limits=False), description="Used and allowed, but for limits."),
                Column("Limit", _usage(limits=True), description="Used and allowed limits."),
                AGE,
            ),
        ),
        kind("v1", "LimitRange", "limitranges", short=("limits",), rules=LimitRangeRules(), columns=(NAME, CREATED_AT)),
    ]
