"""How many, and who first: HorizontalPodAutoscaler, PodDisruptionBudget, PriorityClass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.cells import count_at, few
from homeostat.api.builtin.checks import at_most_100_percent, percent_or_count, unchanged
from homeostat.api.builtin.declare import SpecAndStatus, fill, kind, section
from homeostat.api.builtin.types import schema_of
from homeostat.api.resource import Column, Object, Resource, Rules, Version, at
from homeostat.api.table import AGE, NAME
from homeostat.model.errors import FieldError
from homeostat.model.names import path_segment_problems
from homeostat.model.selectors import label_selector_errors

_SOURCES = {
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
    "External": "external",
    "ContainerResource": "containerResource",
}
_TARGETS = ("Utilization", "Value", "AverageValue")
_SELECTED = ("Disabled", "Max", "Min")
_LONGEST_WINDOW, _LONGEST_PERIOD = 3600, 1800
_USUAL_BEHAVIOR: dict[str, dict[str, Any]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
}
"""How fast it scales where it says that it scales in some way, and not in which."""
_HIGHEST_USER_PRIORITY = 1_000_000_000
_PREEMPTION = ("PreemptLowerPriority", "Never")
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
SYSTEM_PRIORITY_CLASSES: tuple[Object, ...] = tuple(
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name, "generation": 1},
        "value": value,
        "description": f"Used for system critical pods that must {must}.",
    }
    for (name, value), must in zip(
        _SYSTEM_PRIORITIES.items(),
        (
            "not be moved from their current node",
            "run in the cluster, but can be moved to another node if necessary",
        ),
        strict=True,
    )
)
"""The classes that every control plane has."""


class AutoscalerRules(SpecAndStatus):
    """Judges the stored form, `autoscaling/v2`."""

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, minReplicas=1)
        if not spec.get("metrics"):
            spec["metrics"] = [_cpu_share(80)]
        if (behavior := spec.get("behavior")) is not None:
            for way, usual in _USUAL_BEHAVIOR.items():
                rules = section(behavior, way)
                fill(rules, **{field: value for field, value in usual.items() if field != "policies"})
                if rules.get("policies") is None:
                    rules["policies"] = [dict(policy) for policy in usual["policies"]]

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
        errors: list[FieldError] = []
        if least is not None and least < 1:
            errors.append(FieldError.invalid("spec.minReplicas", least, "must be greater than or equal to 1"))
        if most < 1:
            errors.append(FieldError.invalid("spec.maxReplicas", most, "must be greater than 0"))
        if least is not None and most < least:
            detail = "must be greater than or equal to `minReplicas`"
            errors.append(FieldError.invalid("spec.maxReplicas", most, detail))
        target = spec.get("scaleTargetRef") or {}
        for field in ("kind", "name"):
            path, value = f"spec.scaleTargetRef.{field}", target.get(field) or ""
            if not value:
                errors.append(FieldError.required(path))
            errors += [FieldError.invalid(path, value, p) for p in path_segment_problems(value)]
        for index, metric in enumerate(spec.get("metrics") or ()):
            errors += _metric_errors(metric, f"spec.metrics[{index}]")
        for way in _USUAL_BEHAVIOR:
            if (rules := at(spec, "behavior", way)) is not None:
                errors += _behavior_errors(rules, f"spec.behavior.{way}")
        return errors


def _behavior_errors(rules: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with how fast it may scale one way."""
    errors: list[FieldError] = []
    window, selected = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    where = f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        errors.append(FieldError.invalid(where, window, "must be greater than or equal to zero"))
    elif window is not None and window > _LONGEST_WINDOW:
        errors.append(FieldError.invalid(where, window, f"must be less than or equal to {_LONGEST_WINDOW}"))
    if selected is not None and selected not in _SELECTED:
        errors.append(FieldError.not_supported(f"{path}.selectPolicy", selected, _SELECTED))
    if not rules.get("policies"):
        errors.append(FieldError.required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules.get("policies") or ()):
        where = f"{path}.policies[{index}]"
        if policy.get("type") not in ("Percent", "Pods"):
            errors.append(FieldError.not_supported(f"{where}.type", policy.get("type") or "", ("Percent", "Pods")))
        for field in ("value", "periodSeconds"):
            if (policy.get(field) or 0) <= 0:
                errors.append(FieldError.invalid(f"{where}.{field}", policy.get(field) or 0, "must be greater than zero"))
        if (policy.get("periodSeconds") or 0) > _LONGEST_PERIOD:
            detail = f"must be less than or equal to {_LONGEST_PERIOD}"
            errors.append(FieldError.invalid(f"{where}.periodSeconds", policy["periodSeconds"], detail))
    return errors


def _target_type_errors(kind: str, path: str) -> list[FieldError]:
    if not kind:
        return [FieldError.required(path, "must specify a metric target type")]
    detail = "must be either Utilization, Value, or AverageValue"
    return [] if kind in _TARGETS else [FieldError.invalid(path, kind, detail)]


def _target_errors(part: Mapping[str, Any], path: str) -> list[FieldError]:
    """What is wrong with the name and the target of a metric that somebody else measures."""
    errors: list[FieldError] = []
    if not at(part, "metric", "name"):
        errors.append(FieldError.required(f"{path}.metric.name", "must specify a metric name"))
    target = part.get("target") or {}
    errors += _target_type_errors(target.get("type") or "", f"{path}.target.type")
    if path.endswith(".pods"):
        if target.get("averageValue") is None:
            detail = "must specify a positive target averageValue"
            errors.append(FieldError.required(f"{path}.target.averageValue", detail))
    elif target.get("value") is None and target.get("averageValue") is None:
        detail = "must set either a target value or averageValue"
        errors.append(FieldError.required(f"{path}.target.averageValue", detail))
    return errors


def _metric_errors(metric: Mapping[str, Any], path: str) -> list[FieldError]:
    source = metric.get("type") or ""
    given = [field for field in _SOURCES.values() if metric.get(field) is not None]
    errors: list[FieldError] = []
    if not source:
        errors.append(FieldError.required(f"{path}.type", "must specify a metric source type"))
    expected = _SOURCES.get(source)
    if expected is None:
        errors.append(FieldError.not_supported(f"{path}.type", source, sorted(_SOURCES)))
    elif expected not in given:
        detail = "must populate information for the given metric source"
        errors.append(FieldError.required(f"{path}.{expected}", detail))
    if len(given) > 1:
        detail = "must populate the given metric source only"
        errors += [FieldError.forbidden(f"{path}.{field}", detail) for field in given if field != expected]
    for field in ("resource", "containerResource"):
        if (part := metric.get(field)) is not None:
            errors += _resource_metric_errors(part, f"{path}.{field}")
    for field in ("object", "pods", "external"):
        if (part := metric.get(field)) is not None:
            errors += _target_errors(part, f"{path}.{field}")
    return errors


def _resource_metric_errors(part: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = [] if part.get("name") else [FieldError.required(f"{path}.name", "must specify a resource name")]
    target = part.get("target") or {}
    share, amount = target.get("averageUtilization"), target.get("averageValue")
    errors += _target_type_errors(target.get("type") or "", f"{path}.target.type")
    if share is not None and share < 1:
        errors.append(FieldError.invalid(f"{path}.target.averageUtilization", share, "must be greater than 0"))
    if share is None and amount is None:
        detail = "must set either a target raw value or a target utilization"
        errors.append(FieldError.required(f"{path}.target.averageUtilization", detail))
    if share is not None and amount is not None:
        detail = "may not set both a target raw value and a target utilization"
        errors.append(FieldError.forbidden(f"{path}.target.averageValue", detail))
    return errors


def _cpu_share(percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _is_cpu_share(metric: Mapping[str, Any]) -> bool:
    resource = metric.get("resource") or {}
    return resource.get("name") == "cpu" and (resource.get("target") or {}).get("averageUtilization") is not None


def to_autoscaling_v1(obj: Object) -> Object:
    """The stored autoscaler as `autoscaling/v1` shows it: of all metrics, only the CPU target has a place there."""
    shown = {**obj, "apiVersion": "autoscaling/v1"}
    if spec := obj.get("spec"):
        kept = {k: v for k, v in spec.items() if k not in ("metrics", "behavior")}
        for metric in spec.get("metrics") or ():
            if _is_cpu_share(metric):
                kept["targetCPUUtilizationPercentage"] = metric["resource"]["target"]["averageUtilization"]
        shown["spec"] = kept
    if status := obj.get("status"):
        kept = {k: v for k, v in status.items() if k not in ("currentMetrics", "conditions")}
        kept.setdefault("currentReplicas", 0)
        for metric in status.get("currentMetrics") or ():
            current = at(metric, "resource", "current", "averageUtilization")
            if at(metric, "resource", "name") == "cpu" and current is not None:
                kept["currentCPUUtilizationPercentage"] = current
        shown["status"] = kept
    return shown


def from_autoscaling_v1(obj: Object) -> Object:
    """An `autoscaling/v1` autoscaler as it is stored."""
    stored = {**obj, "apiVersion": "autoscaling/v2"}
    if spec := obj.get("spec"):
        kept = {k: v for k, v in spec.items() if k != "targetCPUUtilizationPercentage"}
        if (share := spec.get("targetCPUUtilizationPercentage")) is not None:
            kept["metrics"] = [_cpu_share(share)]
        stored["spec"] = kept
    if status := obj.get("status"):
        kept = {k: v for k, v in status.items() if k != "currentCPUUtilizationPercentage"}
        if (share := status.get("currentCPUUtilizationPercentage")) is not None:
            current = {"averageUtilization": share, "averageValue": "0"}
            kept["currentMetrics"] = [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]
        stored["status"] = kept
    return stored


class DisruptionBudgetRules(SpecAndStatus):
    """Either so many must stay, or so many may go."""

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            errors.append(FieldError.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for field in ("minAvailable", "maxUnavailable"):
            errors += percent_or_count(spec.get(field), f"spec.{field}")
            errors += at_most_100_percent(spec.get(field), f"spec.{field}")
        return errors + label_selector_errors(spec.get("selector"), "spec.selector")


class PriorityClassRules(Rules):
    """The value stays; the highest ones are the system's."""

    def default(self, obj: Object) -> None:
        fill(obj, preemptionPolicy="PreemptLowerPriority")

    def validate(self, obj: Object) -> Sequence[FieldError]:
        name, value = at(obj, "metadata", "name") or "", obj.get("value") or 0
        errors: list[FieldError] = []
        if name.startswith("system-"):
            if _SYSTEM_PRIORITIES.get(name) != value:
                problem = (
                    f"{name} is not a known system priority class"
                    if name not in _SYSTEM_PRIORITIES
                    else (f"value of {name} PriorityClass must be {_SYSTEM_PRIORITIES[name]}")
                )
                detail = (
                    f"priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
                )
                errors.append(FieldError.forbidden("metadata.name", detail))
        elif value > _HIGHEST_USER_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {_HIGHEST_USER_PRIORITY}"
            errors.append(FieldError.forbidden("value", detail))
        if obj.get("preemptionPolicy") not in _PREEMPTION:
            errors.append(FieldError.not_supported("preemptionPolicy", obj.get("preemptionPolicy"), _PREEMPTION))
        return errors

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        errors = []
        if (obj.get("value") or 0) != (old.get("value") or 0):
            errors.append(FieldError.forbidden("value", "may not be changed in an update."))
        return errors + unchanged(obj.get("preemptionPolicy"), old.get("preemptionPolicy"), "preemptionPolicy")


def _targets(obj: Object) -> str:
    """Current and wanted value of each metric. Objects in the form of `autoscaling/v1` are read as they are stored."""
    stored = from_autoscaling_v1(obj) if obj.get("apiVersion") == "autoscaling/v1" else obj
    current = dict(enumerate(at(stored, "status", "currentMetrics") or ()))
    shown = []
    for index, metric in enumerate(at(stored, "spec", "metrics") or ()):
        source = _SOURCES.get(metric.get("type", ""), "")
        target, now = at(metric, source, "target") or {}, at(current.get(index) or {}, source, "current") or {}
        if target.get("averageUtilization") is not None:
            share = now.get("averageUtilization")
            text = f"{'<unknown>' if share is None else f'{share}%'}/{target['averageUtilization']}%"
        elif target.get("averageValue") is not None:
            average = " (avg)" if source in ("object", "external") else ""
            text = f"{now.get('averageValue', '<unknown>')}/{target['averageValue']}{average}"
        else:
            text = f"{now.get('value', '<unknown>')}/{target.get('value', '<auto>')}"
        name = at(metric, source, "name")
        shown.append(f"{name}: {text}" if source == "resource" and name else text)
    return few(shown, 2, ", ")


def _reference(obj: Object) -> str:
    target = at(obj, "spec", "scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _text(*path: str, missing: str) -> Any:
    return lambda obj: missing if at(obj, *path) is None else str(at(obj, *path))


_AUTOSCALER_COLUMNS = (
    NAME,
    Column("Reference", _reference, description="What it scales."),
    Column("Targets", _targets, description="What it measures, and what it aims at."),
    Column("MinPods", _text("spec", "minReplicas", missing="<unset>"), description="At least so many."),
    Column("MaxPods", count_at("spec", "maxReplicas"), description="At most so many."),
    Column("Replicas", count_at("status", "currentReplicas"), description="So many now."),
    AGE,
)


def _autoscaler() -> Resource:
    resource = kind(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        short=("hpa",),
        categories=("all",),
        rules=AutoscalerRules(currentMetrics=None, desiredReplicas=0),
        status=True,
        columns=_AUTOSCALER_COLUMNS,
    )
    resource.versions["v1"] = Version(
        "v1",
        schema=schema_of("autoscaling/v1", "HorizontalPodAutoscaler"),
        status=True,
        columns=_AUTOSCALER_COLUMNS,
        encode=to_autoscaling_v1,
        decode=from_autoscaling_v1,
    )
    return resource


def resources() -> list[Resource]:
    """HorizontalPodAutoscaler (v2 stored, v1 served), PodDisruptionBudget and PriorityClass."""
    return [
        _autoscaler(),
        kind(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            short=("pdb",),
            rules=DisruptionBudgetRules(disruptionsAllowed=0, currentHealthy=0, desiredHealthy=0, expectedPods=0),
            status=True,
            generation=True,
            columns=(
                NAME,
                Column("Min Available", _text("spec", "minAvailable", missing="N/A"), description="So many must stay."),
                Column(
                    "Max Unavailable", _text("spec", "maxUnavailable", missing="N/A"), description="So many may go."
                ),
                Column(
                    "Allowed Disruptions",
                    count_at("status", "disruptionsAllowed"),
                    type="integer",
                    description="So many may go now.",
                ),
                AGE,
            ),
        ),
        kind(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "priorityclasses",
            namespaced=False,
            short=("pc",),
            rules=PriorityClassRules(),
            generation=True,
            columns=(
                NAME,
                Column("Value", count_at("value"), type="integer", description="The greater goes first."),
                Column(
                    "Global-Default",
                    lambda o: bool(o.get("globalDefault")),
                    type="boolean",
                    description="Whether pods without one get it.",
                ),
                AGE,
                Column(
                    "PreemptionPolicy", _text("preemptionPolicy", missing=""), description="Whether others must leave."
                ),
            ),
        ),
    ]
