"""Pod and PodTemplate, stored and judged as data: no kubelet stands behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from homeostat.api.builtin.cells import container_columns, pairs, text_at
from homeostat.api.builtin.declare import kind
from homeostat.api.builtin.podparts import PARTS
from homeostat.api.builtin.podrules import PodRules
from homeostat.api.builtin.podspec import default_template, template_errors
from homeostat.api.resource import Column, Object, Resource, Rules, at
from homeostat.api.table import AGE, NAME, NONE, human_duration, seconds_of
from homeostat.model.conditions import condition_is
from homeostat.model.errors import FieldError


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
            rules=PodRules(PARTS),
            status=True,
            generation=True,
            subresources=("attach", "binding", "ephemeralcontainers", "eviction", "exec", "log", "portforward", "resize"),
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
