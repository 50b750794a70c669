"""Pod and PodTemplate, stored and judged as data: no kubelet stands behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homeostat.api.builtin.cells import container_columns, pairs, text_at
from homeostat.api.builtin.checks import INT32_MAX
from homeostat.api.builtin.declare import fill, kind, section
from homeostat.api.builtin.podspec import (
    default_pod_spec,
    default_template,
    pod_spec_errors,
    template_errors,
    toleration_errors,
)
from homeostat.api.builtin.podwarnings import name_warnings, pod_warnings
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME, NONE, human_duration, seconds_of
from homeostat.model.conditions import condition_is
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

    def default(self, obj: Object) -> None:
        spec = section(obj, "spec")
        default_pod_spec(spec)
        fill(spec, enableServiceLinks=True)
        for group in ("containers", "initContainers"):
            for container in spec.get(group) or ():
                resources = container["resources"]
                if resources.get("limits"):
                    resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}

    def prepare_create(self, obj: Object) -> None:
        spec = section(obj, "spec")
        fill(spec, priority=0, preemptionPolicy="PreemptLowerPriority")
        _tolerate_lost_nodes(spec)
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [dict(_GATED)]

    def prepare_update(self, obj: Object, old: Object) -> None:
        obj["status"] = old.get("status") or {}

    def validate(self, obj: Object) -> Sequence[FieldError]:
        spec = obj.get("spec") or {}
        errors = pod_spec_errors(spec, "spec")
        for group in ("containers", "initContainers"):
            for index, container in enumerate(spec.get(group) or ()):
                image = container.get("image") or ""
                if image != image.strip():
                    detail = "must not have leading or trailing whitespace"
                    errors.append(FieldError.invalid(f"spec.{group}[{index}].image", image, detail))
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


def _tolerate_lost_nodes(spec: dict[str, Any]) -> None:
    """Every pod tolerates an unready or unreachable node for a while; what it says itself wins."""
    present = spec.get("tolerations") or []
    for condition in ("not-ready", "unreachable"):
        key = f"node.kubernetes.io/{condition}"
        if not any(t.get("key", "") in (key, "") and t.get("effect", "") in ("NoExecute", "") for t in present):
            present.append(
                {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _EVICTED_AFTER}
            )
    spec["tolerations"] = present


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
    return errors


def _fixed_part(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The spec without what may change of the pod as it was before."""
    free = {"activeDeadlineSeconds", "tolerations", "ephemeralContainers", "schedulingGates"}
    if before.get("schedulingGates"):
        free.add("nodeSelector")
    fixed = {k: v for k, v in spec.items() if k not in free}
    if (fixed.get("terminationGracePeriodSeconds") or 0) < 0:
        fixed["terminationGracePeriodSeconds"] = 1
    for group in ("containers", "initContainers"):
        if spec.get(group):
            fixed[group] = [{k: v for k, v in c.items() if k != "image"} for c in spec[group]]
    return fixed


class PodTemplateRules(Rules):
    """A template that nobody runs."""

    def default(self, obj: Object) -> None:
        default_template(obj)

    def validate(self, obj: Object) -> Sequence[FieldError]:
        return template_errors(obj.get("template") or {}, "template")


def _terminated(state: Mapping[str, Any]) -> str:
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode', 0)}"


def _init_reason(pod: Object) -> str | None:
    """Why the pod is still initializing; None once all its init containers are done."""
    sidecars = {c.get("name") for c in at(pod, "spec", "initContainers") or () if c.get("restartPolicy") == "Always"}
    for index, status in enumerate(at(pod, "status", "initContainerStatuses") or ()):
        state = status.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None:
            if not terminated.get("exitCode"):
                continue
            return f"Init:{_terminated(terminated)}"
        if status.get("name") in sidecars and status.get("started"):
            continue
        if waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(at(pod, 'spec', 'initContainers') or ())}"
    return None


def _status(pod: Object) -> str:
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    if initializing := _init_reason(pod):
        return initializing
    reason: str = status.get("reason") or status.get("phase") or ""
    gates = {"type": "PodScheduled", "reason": "SchedulingGated"}
    if any(gates.items() <= c.items() for c in status.get("conditions") or ()):
        reason = "SchedulingGated"
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif state.get("terminated") is not None:
            reason = _terminated(state["terminated"])
        elif container.get("ready") and state.get("running") is not None:
            running = True
    if reason == "Completed" and running:
        return "Running" if condition_is(pod, "Ready") else "NotReady"
    return reason


def _ready(pod: Object) -> str:
    statuses = at(pod, "status", "containerStatuses") or ()
    ready = sum(1 for s in statuses if s.get("ready") and (s.get("state") or {}).get("running") is not None)
    return f"{ready}/{len(at(pod, 'spec', 'containers') or ())}"


def _restarts(pod: Object) -> str | Callable[[float], str]:
    restarts, last = 0, ""
    for status in at(pod, "status", "containerStatuses") or ():
        restarts += status.get("restartCount") or 0
        last = max(last, at(status, "lastState", "terminated", "finishedAt") or "")
    when = seconds_of(last) if restarts and last else None
    if when is None:
        return str(restarts)
    return lambda now: f"{restarts} ({human_duration(now - when)} ago)"


def _gates(pod: Object) -> str:
    gates = at(pod, "spec", "readinessGates")
    if not gates:
        return NONE
    open_gates = sum(condition_is(pod, gate.get("conditionType", "")) for gate in gates)
    return f"{open_gates}/{len(gates)}"


def _ip(pod: Object) -> str:
    ips = at(pod, "status", "podIPs")
    return (ips[0].get("ip") if ips else at(pod, "status", "podIP")) or NONE


def _wide(name: str, cell: Callable[[Object], Any], description: str) -> Column:
    return Column(name, cell, priority=1, description=description)


_POD_COLUMNS = (
    NAME,
    Column("Ready", _ready, description="How many containers are ready, of how many."),
    Column("Status", _status, description="What the containers are at, together."),
    Column("Restarts", _restarts, description="How often containers were started again."),
    AGE,
    _wide("IP", _ip, "The pod's first address."),
    _wide("Node", text_at("spec", "nodeName", missing=NONE), "Where it runs."),
    _wide(
        "Nominated Node", text_at("status", "nominatedNodeName", missing=NONE), "Where it may run after others leave."
    ),
    _wide("Readiness Gates", _gates, "How many of its readiness gates are open."),
)


def resources() -> list[Resource]:
    """Pod and PodTemplate."""
    containers, images = container_columns("template")
    return [
        kind(
            "v1",
            "Pod",
            "pods",
            short=("po",),
            categories=("all",),
            rules=PodRules(),
            status=True,
            generation=True,
            subresources=("attach", "binding", "eviction", "exec", "log", "portforward"),
            columns=_POD_COLUMNS,
        ),
        kind(
            "v1",
            "PodTemplate",
            "podtemplates",
            rules=PodTemplateRules(),
            generation=True,
            columns=(
                NAME,
                Column("Containers", containers.path, description=containers.description),
                Column("Images", images.path, description=images.description),
                Column(
                    "Pod Labels", lambda o: pairs(at(o, "template", "metadata", "labels")), description="Its labels."
                ),
            ),
        ),
    ]
