"""What the governor proposes: decisions with their reasons, and the memory that it wants back at the next cycle."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from homeostat.gpu.kinds import Place

if TYPE_CHECKING:
    from homeostat.gpu.explain import Pending


class Verb(StrEnum):
    ADMIT = "admit"  # start a workload at the places
    RESUME = "resume"  # continue one that ran before, at the places
    MIGRATE = "migrate"  # stop one that runs, and continue it at the places
    KEEP = "keep"  # it was to leave its GPUs, and could not: it runs on where it is
    SUSPEND = "suspend"  # quota, budget or a person wants it off
    PREEMPT = "preempt"  # it makes room for the workload named in `beneficiary`
    RECLAIM = "reclaim"  # it held GPUs and did not use them
    REQUEUE = "requeue"  # its node is gone: it waits again, and what it held is free
    WARN = "warn"
    END = "end"  # its time is up
    CORDON = "cordon"
    DRAIN = "drain"
    REPLACE = "replace"
    SCALE_UP = "scale-up"
    SCALE_DOWN = "scale-down"
    REPORT = "report"


class Constraint(StrEnum):
    """What binds or moves, in a word."""

    NONE = "none"
    TENANT = "tenant"  # unknown, or not for its namespace
    REQUEST = "request"  # asks for what cannot be, such as one and a half GPUs
    STOPPED = "stopped"  # by a person
    BUDGET = "budget"
    QUOTA = "quota"
    TYPE = "type"  # no node has what it asks for
    TOPOLOGY = "topology"
    FRAGMENTATION = "fragmentation"
    CAPACITY = "capacity"
    RESERVATION = "reservation"  # what is free is held for those ahead
    OBSERVER = "observer"
    FAIR_SHARE = "fair-share"
    PRIORITY = "priority"
    TIME_SHARING = "time-sharing"
    IDLE = "idle"
    FAILURE = "failure"
    RUNTIME = "runtime"
    DRAIN = "drain"
    BACKLOG = "backlog"
    COST = "cost"
    SLA = "sla"
    SUSPENSION = "suspension"  # it cannot be suspended
    HOME = "home"  # its state lies on a node that has no room


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, to a workload (by uid), node, pool or tenant (by name)."""

    verb: Verb
    kind: str
    subject: str
    name: str
    """As people know it."""
    reason: str
    constraint: Constraint
    places: tuple[Place, ...] = ()
    beneficiary: str = ""
    """Uid of the workload for which it is done."""
    count: int = 1
    """Nodes, for scaling; for what is reclaimed, how often in a row it was."""


class Plan(msgspec.Struct, kw_only=True):
    """What comes out of a cycle. Decisions are in the order in which they are to be carried out: what frees comes before what takes."""

    decisions: list[Decision]
    memory: Memory
    pending: Pending
    """Why the others wait; each answer is made when it is asked for."""

    def of(self, *verbs: Verb) -> list[Decision]:
        """The decisions of these verbs."""
        return [decision for decision in self.decisions if decision.verb in verbs]


class Reservation(msgspec.Struct):
    """GPUs that were cleared for a workload: nobody else gets them before it."""

    tenant: str
    column: int
    milli: int
    places: tuple[Place, ...]
    until: float


class Asked(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One kind of request, and how often it came."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    """Thousandths of each GPU."""
    models: tuple[str, ...]
    """The models that will do; none: any."""
    count: int


USED_UP = "/budget"
"""What follows the name of a tenant whose budget is used up, in `Memory.missed`."""


class Memory(msgspec.Struct):
    """What the governor knows of the past; plain data, to be stored and handed in again. Losing it costs fairness some history, nothing else.

    Keys are uids of workloads and names of tenants, nodes and pools, so that it fits any later snapshot.
    """

    at: float | None = None
    """When it was made; None: never."""
    usage: dict[str, dict[str, float]] = {}
    """Decayed mean of what each tenant held of each model, in thousandths."""
    spent: dict[str, tuple[float, float]] = {}
    """Start of the budget's period, and the GPU hours used since."""
    served: dict[str, float] = {}
    """The part of the last day in which all that a tenant wanted within its quota ran, decayed."""
    reservations: dict[str, Reservation] = {}
    held: dict[str, list[str]] = {}
    """Nodes that are being emptied for a workload that waited too long."""
    idle: dict[str, tuple[float, float]] = {}
    """Since when a workload has been idle, and when that was last seen."""
    warned: dict[str, float] = {}
    preempted: dict[str, list[float]] = {}
    """When a workload was preempted, in the last day."""
    rivals: dict[str, list[str]] = {}
    """By whom: it may not preempt those in turn."""
    preemptions: list[float] = []
    """In the whole fleet, in the last hour."""
    shut_out: dict[str, float] = {}
    """Suspended work whose turn came while others had the GPUs where its state lies, since when."""
    displaced: dict[str, float] = {}
    """Workloads that lost their node, and wait since."""
    lost: dict[str, float] = {}
    """Nodes that are being replaced, since when."""
    silent: list[str] = []
    """Nodes that were not heard of."""
    suspected: float | None = None
    """When so many were that the observer was suspected, last."""
    flaps: dict[str, list[float]] = {}
    """When a node was heard of again after it had been lost, lately."""
    empty: dict[str, float] = {}
    """Nodes on which nothing runs, since when."""
    asked: dict[str, tuple[int, float]] = {}
    """How many nodes a pool was last asked to have, and when."""
    demand: list[Asked] = []
    """What has been asked for lately, replica by replica."""
    lesson: list[Asked] = []
    """The same when it was last learned from, see `experience`."""
    missed: dict[str, float] = {}
    """Promises that were reported as not kept, and budgets as used up (`USED_UP`), so that each is told once: by subject, when."""
