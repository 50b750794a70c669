"""What is demanded of a pod: when it is created, when it is changed, and when a part of it is written by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from homeostat.api.builtin.affinity import narrowed
from homeostat.api.builtin.checks import INT32_MAX
from homeostat.api.builtin.declare import fill, section
from homeostat.api.builtin.podspec import CONTAINER_LISTS, default_pod_spec, pod_spec_errors, toleration_errors
from homeostat.api.builtin.podwarnings import name_warnings, pod_warnings
from homeostat.api.resource import Object, Rules
from homeostat.model.errors import FieldError
from homeostat.model.quantity import parse_quantity

_MUTABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
_EVICTED_AFTER = 300
"""Seconds a pod stays on a node that is gone, unless it says otherwise."""


class PodRules(Rules):
    """Judged as a whole when created; afterwards only images, tolerations and deadlines change."""

    graceful = True
    kept_by_status = ("ownerReferences",)

    def __init__(self, parts: Mapping[str, Rules] | None = None) -> None:
        self.parts = parts or {}

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        default_pod_spec(spec)
        fill(spec, enableServiceLinks=True)
        for group in ("containers", "initContainers"):
            for container in spec.get(group) or ():
                resources = container["resources"]
                if resources.get("limits"):
                    resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
        _agree_on_address(obj.get("status") or {})

    def prepare_create(self, obj: Object) -> None:
        spec = section(obj, "spec")
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [dict(_GATED)]

    def prepare_update(self, obj: Object, old: Object) -> None:
        spec, before = section(obj, "spec"), old.get("spec") or {}
        fill(spec, **{field: before[field] for field in ("priority", "preemptionPolicy") if field in before})
        obj["status"] = old.get("status") or {}

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors = pod_spec_errors(spec, "spec")
        for group in CONTAINER_LISTS:
            for index, container in enumerate(spec.get(group) or ()):
                image = container.get("image") or ""
                if image != image.strip():
                    detail = "must not have leading or trailing whitespace"
                    errors.append(FieldError.invalid(f"spec.{group}[{index}].image", image, detail))
        return errors

    def validate_create(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors: list[FieldError] = []
        if spec.get("ephemeralContainers"):
            errors.append(FieldError.forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("nodeName") and spec.get("schedulingGates"):
            detail = "cannot be set until all schedulingGates have been cleared"
            errors.append(FieldError.forbidden("spec.nodeName", detail))
        return errors

    def warnings(self, obj: Object, old: Object | None) -> Sequence[str]:
        if old is not None:
            return ()
        return name_warnings(obj, "the Pod's hostname") + pod_warnings(obj.get("spec") or {}, "spec")

    def validate_update(self, obj: Object, old: Object) -> Sequence[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        if spec == before:
            return ()
        for group in ("containers", "initContainers"):
            if len(spec.get(group) or ()) != len(before.get(group) or ()):
                return [FieldError.forbidden(f"spec.{group}", "pod updates may not add or remove containers")]
        errors = _deadline_errors(spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
        errors += _toleration_changes(spec.get("tolerations") or [], before.get("tolerations") or [])
        errors += _gate_changes(spec, before)
        if _fixed_part(spec, before) != _fixed_part(before, before):
            errors.append(FieldError.forbidden("spec", _MUTABLE))
        return errors

    def fields(self, obj: Object) -> Mapping[str, str]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "spec.restartPolicy": spec.get("restartPolicy") or "",
            "spec.schedulerName": spec.get("schedulerName") or "",
            "spec.serviceAccountName": spec.get("serviceAccountName") or "",
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase") or "",
            "status.podIP": status.get("podIP") or "",
            "status.podIPs": (status.get("podIPs") or [{}])[0].get("ip") or "",
            "status.nominatedNodeName": status.get("nominatedNodeName") or "",
        }


def tolerate_lost_nodes(spec: dict[str, Any]) -> None:
    """Every pod tolerates an unready or unreachable node for a while; what it says itself wins."""
    present = spec.get("tolerations") or []
    for condition in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{condition}"
        if not any(t.get("key", "") in (key, "") and t.get("effect", "") in ("NoExecute", "") for t in present):
            present.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTED_AFTER}
            )
    spec["tolerations"] = present


def _agree_on_address(status: dict[str, Any]) -> None:
    """The one address of a pod and the first of its addresses are the same; where they are not, the one counts."""
    ip, ips = status.get("podIP") or "", status.get("podIPs") or []
    if ip and (not ips or ips[0].get("ip") != ip):
        status["podIPs"] = [{"ip": ip}]
    elif ips and not ip:
        status["podIP"] = ips[0].get("ip") or ""


def qos_class(spec: Mapping[str, Any]) -> str:
    """How well the pod's needs are known: Guaranteed, Burstable or BestEffort."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    guaranteed, asked = True, False
    for container in containers:
        resources = container.get("resources") or {}
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        for name in ("cpu", "memory"):
            limit = limits.get(name)
            request = requests.get(name, limit)
            asked = asked or any(q is not None and parse_quantity(q) for q in (limit, request))
            if limit is None or request is None or parse_quantity(limit) != parse_quantity(request):
                guaranteed = False
    if not asked:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _deadline_errors(new: int | None, old: int | None) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        detail = "must not update from a positive integer to nil value"
        return [] if old is None else [FieldError.invalid(path, None, detail)]
    if not 0 <= new <= INT32_MAX:
        return [FieldError.invalid(path, new, f"must be between 0 and {INT32_MAX}, inclusive")]
    if old is not None and old < new:
        return [FieldError.invalid(path, new, "must be less than or equal to previous value")]
    return []


def _toleration_changes(new: list[dict[str, Any]], old: list[dict[str, Any]]) -> list[FieldError]:
    def but_seconds(toleration: dict[str, Any]) -> dict[str, Any]:
        return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}

    kept = [but_seconds(t) for t in new]
    if any(but_seconds(t) not in kept for t in old):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        return [FieldError.forbidden("spec.tolerations", detail)]
    return toleration_errors(new, "spec.tolerations")


def _gate_changes(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    """Gates are opened and never put up again; as long as one is closed, where the pod may go can be narrowed."""
    known = {gate.get("name") for gate in old.get("schedulingGates") or ()}
    errors = [
        FieldError.forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
        )
        for index, gate in enumerate(new.get("schedulingGates") or ())
        if gate.get("name") not in known
    ]
    selector = new.get("nodeSelector") or {}
    if known and not (old.get("nodeSelector") or {}).items() <= selector.items():
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        errors.append(FieldError.invalid("spec.nodeSelector", selector, detail))
    return errors + narrowed(new, old) if known else errors


def _fixed_part(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The spec without what may change of the pod as it was before."""
    free = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    if before.get("schedulingGates"):
        free |= {"nodeSelector", "affinity"}
    fixed = {k: v for k, v in spec.items() if k not in free}
    if others := {k: v for k, v in (spec.get("affinity") or {}).items() if k != "nodeAffinity"}:
        fixed.setdefault("affinity", others)
    if (fixed.get("terminationGracePeriodSeconds") or 0) < 0:
        fixed["terminationGracePeriodSeconds"] = 1
    for group in ("containers", "initContainers"):
        if spec.get(group):
            fixed[group] = [{k: v for k, v in c.items() if k != "image"} for c in spec[group]]
    return fixed
