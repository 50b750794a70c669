"""From nodes and pods to what a bridge sees. Pure functions of plain objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from homeostat.gpu.bridge.cluster import Job, Mark, Member, Stage
from homeostat.gpu.bridge.kubernetes.pods import FINALIZER, MANAGED, MANAGER, MARK, Options
from homeostat.model.clock import parse_time
from homeostat.model.conditions import find_condition
from homeostat.model.quantity import QuantityError, parse_quantity

Object = Mapping[str, Any]

PRODUCT, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
"""Labels by which NVIDIA's feature discovery says what a node has."""
_OVER = ("Succeeded", "Failed")
_FIRST = 1
"""What is reported as the pid: that of the first process in a Pod."""
_SIGNALS = range(129, 129 + 64)


def member_of(node: Object, used: int, options: Options) -> Member | None:
    """A node as a machine with GPUs; None where it has none."""
    meta, status = node["metadata"], node.get("status") or {}
    gpus = whole((status.get("allocatable") or {}).get(options.resource))
    name = options.models.name_of(meta["name"]) if gpus else ""
    if not name:
        return None
    labels, capacity = meta.get("labels") or {}, status.get("allocatable") or {}
    model, memory = options.models.of(str(labels.get(PRODUCT) or "").replace("-", " "), whole(labels.get(MEMORY)))
    ready = find_condition(dict(node), "Ready") or {}
    closed = _closed(node, options)
    said = f"Ready is {ready.get('status', 'not told')}: {str(ready.get('message') or '')[:200]}"
    return Member(
        name=name,
        id=meta["name"],
        model=model,
        gpus=gpus,
        used=used,
        alive=ready.get("status") == "True",
        why=closed if ready.get("status") == "True" else said,
        cordoned=bool(closed),
        cpu_milli=_milli(capacity.get("cpu")),
        memory_mib=whole(capacity.get("memory")) // (1024 * 1024),
        gpu_memory_mib=memory,
    )


def _closed(node: Object, options: Options) -> str:
    """Why a node takes no new Pods; empty: it does."""
    spec = node.get("spec") or {}
    if node["metadata"].get("deletionTimestamp"):
        return "it is being deleted"
    if spec.get("unschedulable"):
        return "it is cordoned"
    tolerated = [*((options.template.get("spec") or {}).get("tolerations") or ()), {"key": options.resource, "operator": "Exists"}]
    for taint in spec.get("taints") or ():
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not any(_tolerates(one, taint) for one in tolerated):
            return f"it has the taint {taint.get('key')}"
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")) or toleration.get("key") not in (None, "", taint.get("key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == (taint.get("value") or "")


def booked(pods: Iterable[Object], resource: str) -> dict[str, int]:
    """By node, how many GPUs Pods have that have not ended."""
    found: dict[str, int] = {}
    for pod in pods:
        if count := asked_for(pod, resource):
            node = pod["spec"]["nodeName"]
            found[node] = found.get(node, 0) + count
    return found


def asked_for(pod: Object, resource: str) -> int:
    """The GPUs that a Pod has now: none once it has ended, or while it is on no node."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in _OVER:
        return 0
    each = sum(_of(one, resource) for one in spec.get("containers") or ())
    return max(each, *(_of(one, resource) for one in spec.get("initContainers") or ()), 0)


def _of(container: Object, resource: str) -> int:
    resources = container.get("resources") or {}
    return whole((resources.get("requests") or {}).get(resource) or (resources.get("limits") or {}).get(resource))


def mark_of(pod: Object) -> Mark | None:
    """Which start it is; None where no bridge made it."""
    meta = pod["metadata"]
    if (meta.get("labels") or {}).get(MANAGED) != MANAGER:
        return None
    return Mark.parse((meta.get("annotations") or {}).get(MARK, ""))


def job_of(pod: Object, mark: Mark, resource: str) -> Job:
    """A Pod as a job."""
    meta, status = pod["metadata"], pod.get("status") or {}
    phase, name = status.get("phase", "Pending"), meta["name"]
    states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
    words = f"Pod {meta['namespace']}/{name}"
    leaves = bool(meta.get("deletionTimestamp"))
    never = phase == "Pending" and leaves and meta.get("deletionGracePeriodSeconds") == 0
    if phase in _OVER or never:
        return _over(status, states, Job(mark, name, Stage.OVER, _FIRST, words=words, taken=leaves))
    holds = asked_for(pod, resource)
    if phase == "Pending":
        why = next((one["waiting"].get("reason") for one in states if one.get("waiting")), None) or status.get("reason") or "its node has not begun it"
        return Job(mark, name, Stage.WAITING, _FIRST, holds, f"{words} waits: {why}", _time(meta.get("creationTimestamp")))
    began = next((one["running"].get("startedAt") for one in states if one.get("running")), None) or status.get("startTime")
    return Job(mark, name, Stage.ON, _FIRST, holds, words, _time(began))


def _over(status: Object, states: list[Object], job: Job) -> Job:
    """How it ended. What the cluster took away has not ended by itself: evicted, not let in, its node shut down."""
    ended: Object = next((one["terminated"] for one in states if one.get("terminated")), {})
    code = ended.get("exitCode")
    taken = job.taken or not states or any(one.get("type") == "DisruptionTarget" and one.get("status") == "True" for one in status.get("conditions") or ())
    said = status.get("reason") or (ended.get("reason") if ended.get("reason") not in ("Completed", "Error") else "")
    words = f"{job.words}: {said}" if said else job.words
    return Job(
        job.mark,
        job.id,
        Stage.OVER,
        job.number,
        words=words + (f" ({str(status['message'])[:200]})" if said and status.get("message") else ""),
        since=_time(ended.get("finishedAt")),
        status=128 - code if code is not None and code in _SIGNALS else code,
        taken=taken,
    )


def last_words(pod: Object) -> str:
    """The last line of what the cluster kept of its output."""
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        lines = str(((one.get("state") or {}).get("terminated") or {}).get("message") or "").split("\n")
        if found := next((line.strip() for line in reversed(lines) if line.strip()), ""):
            return found[:200]
    return ""


def finalizers(pod: Object) -> list[str]:
    """Those of others."""
    return [one for one in pod["metadata"].get("finalizers") or () if one != FINALIZER]


def whole(quantity: Any) -> int:
    """A quantity in whole units; 0 where there is none, or it cannot be read."""
    try:
        return parse_quantity(str(quantity)).value if quantity is not None else 0
    except QuantityError:
        return 0


def _milli(quantity: Any) -> int:
    try:
        return parse_quantity(str(quantity)).nanos // 1_000_000 if quantity is not None else 0
    except QuantityError:
        return 0


def _time(text: Any) -> float | None:
    return parse_time(text) if text else None
