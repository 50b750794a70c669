"""How a workload stands, by its status and what agents reported, and what becomes of that. Pure functions of plain objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from homeostat.gpu.decisions import Decision, Verb
from homeostat.gpu.kinds import WHOLE, Place, Preemption, ReplicaState, in_short
from homeostat.gpu.kinds import Phase as Stage
from homeostat.loop.record import Record
from homeostat.loop.status import status_of
from homeostat.model.clock import format_micro_time, format_time, parse_time
from homeostat.model.conditions import find_condition, set_condition
from homeostat.model.kinds import ListMap, Spec, encode

Object = dict[str, Any]
Status = Mapping[str, Any]
Lost = Callable[[str], bool]
"""Whether a node is not heard of any more."""
Price = Callable[[str], float]
"""What an hour of one GPU of a node costs."""

_FOLDED = {Stage.STARTING: Stage.RUNNING, Stage.SUSPENDING: Stage.SUSPENDED}
_ON = (Stage.STARTING, Stage.RUNNING)
_HOLDS, _SUSPENDED = (ReplicaState.RUNNING, ReplicaState.UNKNOWN), ReplicaState.SUSPENDED
_SAID_OF_WAITING = ("constraint", "position", "ahead", "estimatedStart")


class WorkloadState(Spec):
    """A workload as the loop compares it: whether it is to be on GPUs, and on which."""

    phase: Stage = Stage.PENDING
    """What is on its way counts as arrived: `unhealthy` tells whether it is."""
    assignment: Annotated[tuple[Place, ...], ListMap("replica")] = ()
    """Of what is on GPUs; where the state of a suspended one lies is no business of the loop's."""


class Wish(msgspec.Struct, frozen=True):
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
        case Verb.ADMIT | Verb.RESUME | Verb.MIGRATE | Verb.KEEP:
            return WorkloadState(phase=Stage.RUNNING, assignment=decision.places)
        case Verb.SUSPEND | Verb.PREEMPT | Verb.RECLAIM | Verb.REQUEUE:
            return WorkloadState(phase=Stage.SUSPENDED)
        case Verb.END:
            return WorkloadState(phase=Stage.FAILED)
    return None


def is_displaced(status: Status, lost: Lost) -> bool:
    """Whether a node is gone under it: then it is not at work, whatever was reported last."""
    return status.get("phase") in _ON and any(lost(one["node"]) for one in status.get("assignment") or ())


def keeps_state(status: Status, lost: Lost) -> bool:
    """Whether processes of it lie suspended on machines: what it has done so far is there, and nowhere else."""
    return status.get("phase") == Stage.SUSPENDED and any(report.get("pid") and not lost(node) for node, report, _ in _placed(status))


def free(node: str) -> float:
    """The price where nobody says one."""
    return 0.0


def carried_out(obj: Object, wish: Wish, now: float, lost: Lost, price: Price = free) -> Object:
    """What is written into the status to have a wish come true: agents act on it."""
    status, target = obj.get("status") or {}, wish.target
    patch: Object = {"reason": wish.decision.reason, "constraint": str(wish.decision.constraint), "decision": decided(wish, now)}
    if wish.basis.phase is Stage.RUNNING:
        patch |= _used(obj, now, price) | {"startedAt": None, "waitingSince": format_micro_time(now)}
    if wish.decision.verb is Verb.KEEP:
        return patch | dict.fromkeys(_SAID_OF_WAITING[1:]) | _run_on(status, now)
    if target.phase is Stage.RUNNING:
        places = encode(target).get("assignment", [])
        begun = wish.basis.phase is not Stage.RUNNING
        patch |= {"tenant": obj["spec"]["tenant"]} if begun else {}
        patch |= dict.fromkeys(_SAID_OF_WAITING) | (_unheard(status, places, lost, begun=begun) or {})
        return {**patch, "phase": "Starting", "assignment": places, "startedAt": format_micro_time(now), "waitingSince": None}
    if target.phase is Stage.FAILED:
        return {**patch, "phase": "Failed"}
    patch |= {"phase": "Suspending", "suspensions": status.get("suspensions", 0) + 1}
    if wish.decision.verb is Verb.RECLAIM:
        patch["reclaims"] = wish.decision.count
    if status.get("phase") == Stage.STARTING and _SUSPENDED in (one.get("state") for one in status.get("reports") or ()):
        # From before it was begun: by now it may be on its way back, and agents tell anew.
        patch["reports"] = [one for one in status["reports"] if one.get("state") != _SUSPENDED]
    return patch | (settled({**obj, "status": {**status, **patch}}, now, lost) or {})


def _run_on(status: Status, now: float) -> Object:
    """Of one that was to leave its GPUs and could not: it has not been off them."""
    since, times = status.get("waitingSince") or format_micro_time(now), max(status.get("suspensions", 0) - 1, 0)
    return {"phase": "Starting", "startedAt": since, "waitingSince": None, "suspensions": times}


def meanwhile(before: Status, patch: Object) -> Object:
    """A status as it counts while a patch of it is being written, of which nobody knows yet whether it will be: what is taken is its own already,
    and what is given up is not another's yet."""
    held = before.get("assignment") or ()
    if not held or before.get("phase") not in (*_ON, Stage.SUSPENDING):
        return {**before, **patch}
    more = [place for place in patch.get("assignment") or () if place not in held]
    phase = patch["phase"] if patch["phase"] in _ON else str(Stage.SUSPENDING)
    return {**before, **patch, "phase": phase, "assignment": [*held, *more]}


def decided(wish: Wish, now: float) -> Object:
    """What is done, as the status keeps it: a `Decided`."""
    said = wish.decision
    return {
        "verb": str(said.verb),
        "reason": said.reason,
        "constraint": str(said.constraint),
        "at": format_time(now),
        "beneficiary": said.beneficiary,
    }


def settled(obj: Mapping[str, Any], now: float, lost: Lost, price: Price = free) -> Object | None:
    """What the reports of agents say of a workload, and its status does not yet; None where there is nothing new."""
    status = obj.get("status") or {}
    stage = Stage(status.get("phase") or Stage.PENDING)
    if stage not in (*_ON, Stage.SUSPENDING):
        return None
    found = [(node, report) for node, report, _ in _placed(status)]
    states = [report.get("state") for _, report in found]
    if found and all(state == ReplicaState.EXITED for state in states):
        return {"phase": "Succeeded", "reason": "", "startedAt": None, **_used(obj, now, price)}
    failed = next(((node, report) for node, report in found if report.get("state") == ReplicaState.FAILED), None)
    if failed is not None:
        why = f"replica {failed[1]['replica']} on {failed[0]}: {in_short(failed[1].get('reason', ''))}"
        return {"phase": "Failed", "reason": why, "startedAt": None, **_used(obj, now, price)}
    if stage is Stage.STARTING and not _not_running(status):
        return {"phase": "Running", "reason": "", "constraint": None}
    if stage is Stage.STARTING and (left := _unheard(status, status.get("assignment") or (), lost)) is not None:
        return left
    if stage is Stage.SUSPENDING and not any(_still_on(status, lost)):
        return _off(obj, lost)
    return None


def _unheard(status: Status, places: Iterable[Mapping[str, Any]], lost: Lost, *, begun: bool = False) -> Object | None:
    """The reports without those of lost nodes that it is not placed on: agents elsewhere wait for what is said to run there. None: all stay.

    Where it is `begun`, or comes back, also without those by which it runs there already: they are from before its node was lost, and the agent
    tells anew whether that is still so.
    """
    here = {place["node"] for place in places}
    reports = status.get("reports") or ()
    heard = [one for one in reports if (not begun or one.get("state") not in _HOLDS if one["node"] in here else not lost(one["node"]))]
    return {"reports": heard} if len(heard) < len(reports) else None


def ended_at(status: Status, now: float) -> float:
    """When the last replica ended, by what agents reported."""
    return max((parse_time(report["since"]) for _, report, _ in _placed(status) if report.get("since")), default=now)


def _off(obj: Mapping[str, Any], lost: Lost) -> Object:
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
    said = {one["node"] for one in status.get("reports") or () if one.get("state") != ReplicaState.EXITED}
    for node, report, _ in _placed(status):
        silent = not report and node not in said  # it may have begun just now: agents tell that, too, if it has not
        if (silent or report.get("state") in _HOLDS) and not lost(node):
            yield node, _because(report)
    placed = {(place["replica"], place["node"]) for place in status.get("assignment") or ()}
    for report in status.get("reports") or ():  # of a machine that was lost and is back, while it was begun elsewhere
        at_work = report.get("pid") and report.get("state") in _HOLDS and (report["replica"], report["node"]) not in placed
        if at_work and not lost(report["node"]):
            yield report["node"], _because(report)


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
    return f": {in_short(report['reason'])}" if report.get("reason") else ""


def _used(obj: Mapping[str, Any], now: float, price: Price) -> Object:
    """The GPU hours and what they cost, with those of the run that ends."""
    status = obj.get("status") or {}
    if not status.get("startedAt"):
        return {}
    hours = max(now - parse_time(status["startedAt"]), 0.0) / 3600
    held = [(place["node"], len(place.get("gpus") or ()) * place.get("milli", WHOLE) / WHOLE) for place in status.get("assignment") or ()]
    found: Object = {"gpuHours": round(status.get("gpuHours", 0.0) + hours * sum(gpus for _, gpus in held), 6)}
    cost = status.get("cost", 0.0) + hours * sum(gpus * price(node) for node, gpus in held)
    return found | ({"cost": round(cost, 6)} if cost else {})


def conditions(obj: Object, status: Status, lost: Lost, now: str) -> list[Object]:
    """The conditions of a workload with this status, as the loop would say them."""
    stands = {"metadata": obj["metadata"], "status": {"conditions": status.get("conditions") or ()}}
    why = lagging(status, lost)
    said = {"status": status_of(stands, Record(), now=now, unhealthy=why)}
    for kind in ("Progressing", "Reconciling") if why else ():
        set_condition(said, kind, "True", now=now, reason="Settling", observed_generation=obj["metadata"].get("generation", 0))
    found: list[Object] = said["status"]["conditions"]
    return found


def terse(before: Status, said: list[Object]) -> list[Object]:
    """Of these conditions, `Ready` and those that say something or were there before: of what is over nobody asks what it is not."""
    known = {one.get("type") for one in before.get("conditions") or ()}
    return [one for one in said if one["type"] == "Ready" or one["status"] != "False" or one["type"] in known]


def ready(status: Status) -> tuple[Any, ...]:
    """What a status says about whether all is as it should be."""
    found = find_condition({"status": status}, "Ready") or {}
    return tuple(found.get(name) for name in ("status", "reason", "message", "observedGeneration"))


def reported(status: Status) -> tuple[Any, ...]:
    """Another whenever agents did something."""
    reports = status.get("reports") or ()
    said = tuple((one["replica"], one["node"], one.get("state"), one.get("pid"), one.get("reason")) for one in reports)
    return status.get("attempt"), said
