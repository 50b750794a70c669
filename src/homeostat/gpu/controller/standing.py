"""How a workload stands, by its status and what agents reported, and what becomes of that. Pure functions of plain objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from homeostat.gpu.decisions import Decision, Verb
from homeostat.gpu.kinds import WHOLE, Place, Preemption, ReplicaState
from homeostat.gpu.kinds import Phase as Stage
from homeostat.model.clock import format_time, parse_time
from homeostat.model.kinds import ListMap, Spec, encode

Object = dict[str, Any]
Status = Mapping[str, Any]
Lost = Callable[[str], bool]
"""Whether a node is not heard of any more."""

_FOLDED = {Stage.STARTING: Stage.RUNNING, Stage.SUSPENDING: Stage.SUSPENDED}
_ON = (Stage.STARTING, Stage.RUNNING)
_HOLDS = (ReplicaState.RUNNING, ReplicaState.UNKNOWN)
_SAID_OF_WAITING = ("constraint", "position", "ahead", "estimatedStart")


class WorkloadState(Spec):
    """A workload as the loop compares it: whether it is to be on GPUs, and on which."""

    phase: Stage = Stage.PENDING
    """What is on its way counts as arrived: `unhealthy` tells whether it is."""
    assignment: Annotated[tuple[Place, ...], ListMap("replica")] = ()
    """Of what is on GPUs; where the state of a suspended one lies is no business of the loop's."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What the governor wants of a workload that stands as it did when that was decided."""

    basis: WorkloadState
    target: WorkloadState
    decision: Decision
    at: float
    """When it was decided."""


def state_of(status: Status) -> WorkloadState:
    """How it stands."""
    stage = Stage(status.get("phase") or Stage.PENDING)
    if stage not in _ON:
        return WorkloadState(phase=_FOLDED.get(stage, stage))
    return WorkloadState(phase=Stage.RUNNING, assignment=tuple(_place(one) for one in status.get("assignment") or ()))


def _place(raw: Mapping[str, Any]) -> Place:
    return Place(
        replica=raw["replica"], node=raw["node"], gpus=tuple(raw.get("gpus") or ()), milli=raw.get("milli", WHOLE)
    )


def target_of(decision: Decision) -> WorkloadState | None:
    """How a workload will stand when a decision was carried out; None where nothing is to be done to it."""
    match decision.verb:
        case Verb.ADMIT | Verb.RESUME | Verb.MIGRATE:
            return WorkloadState(phase=Stage.RUNNING, assignment=decision.places)
        case Verb.SUSPEND | Verb.PREEMPT | Verb.RECLAIM | Verb.REQUEUE:
            return WorkloadState(phase=Stage.SUSPENDED)
        case Verb.END:
            return WorkloadState(phase=Stage.FAILED)
    return None


def is_displaced(status: Status, lost: Lost) -> bool:
    """Whether a node is gone under it: then it is not at work, whatever was reported last."""
    return status.get("phase") in _ON and any(lost(one["node"]) for one in status.get("assignment") or ())


def carried_out(obj: Object, wish: Wish, now: float, lost: Lost) -> Object:
    """What is written into the status to have a wish come true: agents act on it."""
    status, target = obj.get("status") or {}, wish.target
    patch: Object = {"reason": wish.decision.reason, "constraint": str(wish.decision.constraint)}
    if wish.basis.phase is Stage.RUNNING:
        patch |= _used(obj, now) | {"startedAt": None, "waitingSince": format_time(now)}
    if target.phase is Stage.RUNNING:
        places = encode(target).get("assignment", [])
        patch |= dict.fromkeys(_SAID_OF_WAITING)
        return {**patch, "phase": "Starting", "assignment": places, "startedAt": format_time(now), "waitingSince": None}
    if target.phase is Stage.FAILED:
        return {**patch, "phase": "Failed"}
    patch |= {"phase": "Suspending", "suspensions": status.get("suspensions", 0) + 1}
    return patch | (settled({**obj, "status": {**status, **patch}}, now, lost) or {})


def settled(obj: Object, now: float, lost: Lost) -> Object | None:
    """What the reports of agents say of a workload, and its status does not yet; None where there is nothing new."""
    status = obj.get("status") or {}
    stage = Stage(status.get("phase") or Stage.PENDING)
    if stage not in (*_ON, Stage.SUSPENDING):
        return None
    found = [(node, report) for node, report, _ in _placed(status)]
    states = [report.get("state") for _, report in found]
    if found and all(state == ReplicaState.EXITED for state in states):
        return {"phase": "Succeeded", "reason": "", "startedAt": None, **_used(obj, now)}
    failed = next(((node, report) for node, report in found if report.get("state") == ReplicaState.FAILED), None)
    if failed is not None:
        why = f"replica {failed[1]['replica']} on {failed[0]}: {failed[1].get('reason', '')}"
        return {"phase": "Failed", "reason": why, "startedAt": None, **_used(obj, now)}
    if stage is Stage.STARTING and not _not_running(status):
        return {"phase": "Running", "reason": "", "constraint": None}
    if stage is Stage.SUSPENDING and not any(_still_on(status, lost)):
        return _off(obj, lost)
    return None


def _off(obj: Object, lost: Lost) -> Object:
    """It has left its GPUs. Who keeps its state in memory comes back to where that lies; others have no place any more."""
    status, mode = obj["status"], (obj["spec"].get("preemption") or {}).get("mode", Preemption.SUSPEND)
    keeps = mode in (Preemption.SUSPEND, Preemption.NEVER)
    kept = [report for node, report, _ in _placed(status) if report.get("pid") and not lost(node)]
    if keeps and len(kept) == len(status.get("assignment") or ()):
        return {"phase": "Suspended"}
    return {"phase": "Suspended", "assignment": []}


def lagging(status: Status, lost: Lost, *, deleting: bool = False) -> str:
    """Why a workload is not yet as its status wants it, by the reports of agents; empty where it is."""
    if deleting:
        return next((f"{one} has still to end it" for one in _with_processes(status, lost)), "")
    if status.get("phase") in _ON:
        return _not_running(status)
    if status.get("phase") in ("Suspending", "Suspended", "Pending"):
        return next((f"{node} has still to take it off its GPUs{why}" for node, why in _still_on(status, lost)), "")
    return ""


def _not_running(status: Status) -> str:
    for node, report, gpus in _placed(status):
        runs = report.get("state") == ReplicaState.RUNNING and list(report.get("gpus") or ()) == gpus
        if not runs and report.get("state") != ReplicaState.EXITED:
            return f"{node} has still to run it{_because(report)}"
    return ""


def _still_on(status: Status, lost: Lost) -> Iterator[tuple[str, str]]:
    for node, report, _ in _placed(status):
        if report.get("state") in _HOLDS and not lost(node):
            yield node, _because(report)


def _with_processes(status: Status, lost: Lost) -> Iterator[str]:
    for report in status.get("reports") or ():
        if report.get("pid") and not lost(report["node"]):
            yield report["node"]


def _placed(status: Status) -> Iterator[tuple[str, Status, list[int]]]:
    """Each place with what its node reported of it in the present attempt."""
    attempt = status.get("attempt", 0)
    found = {(one["replica"], one["node"]): one for one in status.get("reports") or () if one.get("attempt", 0) == attempt}
    for place in status.get("assignment") or ():
        yield place["node"], found.get((place["replica"], place["node"]), {}), list(place.get("gpus") or ())


def _because(report: Status) -> str:
    return f": {report['reason']}" if report.get("reason") else ""


def _used(obj: Object, now: float) -> Object:
    """The GPU hours, with those of the run that ends."""
    status = obj.get("status") or {}
    if not status.get("startedAt"):
        return {}
    gpus = sum(len(place.get("gpus") or ()) * place.get("milli", WHOLE) for place in status.get("assignment") or ())
    hours = max(now - parse_time(status["startedAt"]), 0.0) / 3600 * gpus / WHOLE
    return {"gpuHours": round(status.get("gpuHours", 0.0) + hours, 6)}


def reported(status: Status) -> tuple[Any, ...]:
    """Another whenever the loop should look again."""
    reports = status.get("reports") or ()
    said = tuple((one["replica"], one["node"], one.get("state"), one.get("pid"), one.get("reason")) for one in reports)
    return status.get("phase"), status.get("attempt"), said
