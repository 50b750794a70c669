"""What is wanted of a replica, and the next step towards it. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from homeostat.client import Packed
from homeostat.gpu.kinds import Phase, Place, Preemption, ReplicaState, Report, WorkloadSpec, WorkloadStatus
from homeostat.model.kinds import decode

DEVICES = "CUDA_VISIBLE_DEVICES"
"""By which a process knows its GPUs. It is set when the process starts, and cannot be changed after."""


class Aim(StrEnum):
    """Where a replica should be."""

    RUN = "run"
    OFF = "off"  # off the GPUs, to be continued
    END = "end"


class Step(StrEnum):
    """What to do next."""

    START = "start"
    SUSPEND = "suspend"
    RESUME = "resume"
    STOP = "stop"  # a signal, a grace, then the end
    KILL = "kill"
    FORGET = "forget"


class Off(StrEnum):
    """How far a process is off the GPUs. It is written down before each move, so that a move that was cut short is known as such."""

    NO = ""
    LEAVING = "leaving"
    YES = "yes"
    RETURNING = "returning"


class Declared(msgspec.Struct, frozen=True):
    """A workload as far as an agent has to do with it."""

    uid: str
    namespace: str
    name: str
    spec: WorkloadSpec
    phase: Phase
    attempt: int
    places: Mapping[int, Place]
    """By replica, on whatever node."""
    at_work: Mapping[int, frozenset[str]] = msgspec.field(default_factory=dict)
    """By replica, the nodes that report a process of it which is on GPUs, as far as they can tell."""

    @property
    def nodes(self) -> list[str]:
        """The node of each replica in their order, as far as they are placed."""
        return [place.node for _, place in sorted(self.places.items())]


class Wish(msgspec.Struct, frozen=True):
    """What should become of one replica here, and why."""

    aim: Aim
    why: str
    place: Place | None = None
    """Where to run."""
    attempt: int = 0
    by: Preemption = Preemption.SUSPEND
    """How it leaves the GPUs."""
    forget: bool = False
    """Whether nothing of it is to be remembered once it has ended."""
    wait_for: str = ""
    """The node on which it has still to end before it may run here: it never runs twice."""


class Standing(msgspec.Struct, frozen=True):
    """How one replica stands on this machine."""

    running: bool = False
    off: Off = Off.NO
    known: bool = False
    """Whether it was ever begun here, or could not be."""
    attempt: int = 0
    stopping: bool = False
    """We asked it to end; that it did says nothing of its work."""
    devices: str | None = None
    """The GPUs that its process was started with; None where that is not known."""


class _Somewhere(msgspec.Struct):
    node: str = ""


class _Status(msgspec.Struct):
    assignment: list[_Somewhere] | None = None
    reports: list[_Somewhere] | None = None


class _Workload(msgspec.Struct):
    status: _Status | None = None


_glance = msgspec.json.Decoder(_Workload)


def nodes_of(workload: Packed) -> set[str]:
    """The nodes that have to do with a workload: a replica is placed there, or was reported from there.

    Asked of every workload that there is, so it looks at nothing else.
    """
    status = _glance.decode(workload.body).status
    return set() if status is None else {one.node for some in (status.assignment, status.reports) for one in some or ()}


def declared(obj: Mapping[str, Any]) -> Declared | None:
    """A workload in typed form; None where it is deleted, and neither at work nor kept with its state by the governor's word: that a person deleted it is not
    enough, for many may be deleted by one slip, and it is the guards who tell. `InvalidSpec` where it does not fit its type.
    """
    meta = obj["metadata"]
    status = decode(WorkloadStatus, obj.get("status") or {}, path="status")
    kept = status.phase in (Phase.STARTING, Phase.RUNNING) or (status.phase is Phase.SUSPENDED and status.assignment)
    if meta.get("deletionTimestamp") and not kept:
        return None
    return Declared(
        meta["uid"],
        meta["namespace"],
        meta["name"],
        decode(WorkloadSpec, obj["spec"]),
        status.phase,
        status.attempt,
        {place.replica: place for place in status.assignment},
        _at_work(status.reports),
    )


def _at_work(reports: Iterable[Report]) -> dict[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}
    for one in reports:
        if one.pid is not None and one.state in (ReplicaState.RUNNING, ReplicaState.UNKNOWN):
            found[one.replica] = found.get(one.replica, frozenset()) | {one.node}
    return found


def wish_for(workload: Declared | None, replica: int, node: str) -> Wish:
    """What is wanted of a replica on this node; of a workload that is no more, that it ends."""
    if workload is None:
        return Wish(Aim.END, "the workload was deleted", forget=True)
    by = workload.spec.preemption.mode
    if workload.phase in (Phase.SUCCEEDED, Phase.FAILED):
        return Wish(Aim.END, f"the workload has {workload.phase.lower()}", attempt=workload.attempt)
    place = workload.places.get(replica)
    if place is None and replica >= workload.spec.replicas:  # one that has a place runs on: to take it away is the governor's, behind the guards
        return Wish(Aim.END, f"the workload has {workload.spec.replicas} replicas now", forget=True)
    if place is None:
        return Wish(Aim.OFF, "its place was taken back", attempt=workload.attempt, by=by)
    if place.node != node:
        return Wish(
            Aim.END, f"it is placed on {place.node} now, and a process cannot move between machines", forget=True
        )
    aim = Aim.RUN if workload.phase in (Phase.STARTING, Phase.RUNNING) else Aim.OFF
    why = f"the workload is {workload.phase.lower()}"
    others = workload.at_work.get(replica, frozenset()) - {node}
    return Wish(aim, why, place, workload.attempt, by, wait_for=min(others, default=""))


def next_step(wish: Wish, now: Standing, devices: str) -> Step | None:
    """What to do next; None where all is as wished. `devices` is what `wish.place` is to a process.

    Who was asked to end ends, whatever was wished for since: half a goodbye cannot be taken back.
    """
    if now.running and (now.stopping or _must_end(wish, now, devices)):
        return Step.STOP if now.off is Off.NO else Step.KILL
    match wish.aim:
        case Aim.RUN if not now.running:
            return Step.START if _may_start(wish, now) else None
        case Aim.RUN:
            return Step.RESUME if now.off is not Off.NO else None
        case Aim.OFF if now.running and now.off is not Off.YES:
            return Step.SUSPEND
        case Aim.END if not now.running and wish.forget:
            return Step.FORGET
    return None


def _must_end(wish: Wish, now: Standing, devices: str) -> bool:
    if wish.aim is Aim.END:
        return True
    if wish.aim is Aim.RUN:
        return now.attempt < wish.attempt or now.devices not in (devices, None)
    return now.off is Off.NO and wish.by in (Preemption.CHECKPOINT, Preemption.RESTART)


def _may_start(wish: Wish, now: Standing) -> bool:
    """Each attempt is begun once. What we ended ourselves is begun again."""
    return not now.known or now.stopping or now.attempt < wish.attempt


def farewell(workload: Declared) -> tuple[str, float]:
    """By which signal a replica of it is told to end, and how many seconds it has then."""
    leaves = workload.spec.preemption
    return leaves.signal if leaves.mode is Preemption.CHECKPOINT else "SIGTERM", leaves.grace.total_seconds()
