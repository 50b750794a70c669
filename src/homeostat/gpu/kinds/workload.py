"""Workload: what is to run."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, field

from homeostat.gpu import GROUP, VERSION
from homeostat.gpu.kinds.amounts import WHOLE, Model, Name, Share, Size
from homeostat.model.kinds import Column, KindInfo, Length, ListMap, MapAtomic, Rule, Scale, Sensitive, Span, Spec


class Preemption(StrEnum):
    SUSPEND = "Suspend"  # taken off the GPU with its state, and continued later
    CHECKPOINT = "Checkpoint"  # told by a signal, has its grace to write, ends, and is started again
    RESTART = "Restart"  # ended, and started again from the beginning
    NEVER = "Never"


SIGNALS = (*(f"SIG{name}" for name in ("TERM", "USR1", "USR2", "INT", "HUP", "QUIT", "ALRM", "CONT", "WINCH", "URG", "PWR")), "SIGRTMIN", "SIGRTMAX")
"""By which a workload can be told to write what it has: a name that is mistyped would be heard by nobody, and the work be lost."""


class WhenPreempted(Spec):
    """What is done to a workload that must make room."""

    mode: Preemption = Preemption.SUSPEND
    signal: Annotated[str, Meta(pattern="^SIG[A-Z0-9+]+$", max_length=32)] = "SIGTERM"
    """For Checkpoint: one that a program can take for its sign to write."""
    grace: Span = timedelta(seconds=30)

    rules = [
        Rule(
            f"!has(self.signal) || self.signal in {list(SIGNALS)}",
            message=f"no signal that a program could hear: take one of {', '.join(SIGNALS)}",
            field_path=".signal",
        )
    ]


class WhenIdle(Spec):
    """What is done with GPUs that are held and not used."""

    mode: Literal["Reclaim", "Warn", "Ignore"] = "Reclaim"


class Resources(Spec):
    """What each replica needs."""

    gpus: Share = 1
    """Whole ones, or a fraction of one."""
    models: Annotated[tuple[Model, ...], Meta(max_length=32)] = ()
    """Any of these types; none: any type that the tenant may use."""
    gpu_memory_mib: Size = 0
    cpu_milli: Size = 0
    memory_mib: Size = 0


class WorkloadSpec(Spec):
    """A job, or a service, on GPUs. All its replicas run, or none does."""

    tenant: Name
    replicas: Annotated[int, Meta(ge=1, le=10_000)] = 1
    resources: Resources = field(default_factory=Resources)
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    topology: Literal["", "Node", "NvlinkDomain", "Rack"] = ""
    """All replicas within one of these; empty: as near as is cheap."""
    minimum_runtime: Span = timedelta(0)
    """Once started it is not taken off before."""
    maximum_runtime: Length | None = None
    """It is ended after so long. It also tells when its GPUs will be free."""
    deadline: datetime | None = None
    """It should have ended by then."""
    preemption: WhenPreempted = field(default_factory=WhenPreempted)
    idle: WhenIdle = field(default_factory=WhenIdle)
    spot: Literal["Allow", "Require", "Avoid"] = "Allow"
    command: Annotated[tuple[str, ...], Meta(max_length=1024)] = ()
    """The program and its arguments. No shell reads it."""
    env: Annotated[dict[str, Annotated[str, Sensitive]], MapAtomic, Meta(max_length=256)] = {}
    working_dir: str = ""
    image: str = ""
    """What the command runs in, on nodes of a Kubernetes cluster. Elsewhere it runs in what the machine has."""
    suspended: bool = False
    """A person wants it off the GPUs for now."""


class Phase(StrEnum):
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Place(Spec):
    """Where one replica is."""

    replica: int
    node: str
    gpus: tuple[int, ...] = ()
    """Indexes of the node's GPUs."""
    milli: int = WHOLE
    """How much of each: less than 1000 for a fraction."""


class ReplicaState(StrEnum):
    RUNNING = "Running"
    SUSPENDED = "Suspended"  # off the GPUs, to be continued; without a pid it was ended for that, and is started again
    EXITED = "Exited"  # by itself, with 0
    FAILED = "Failed"  # ended otherwise, or could not be started
    UNKNOWN = "Unknown"  # what becomes of it cannot be told at present, see the reason


class Report(Spec):
    """What an agent did with a replica. Only the agent of that node writes it."""

    replica: int
    node: str
    state: ReplicaState
    attempt: int = 0
    """Which attempt of the workload it belongs to."""
    gpus: tuple[int, ...] = ()
    """Where it runs, or where it was when it was suspended: only there can it be continued."""
    pid: int | None = None
    since: datetime | None = None
    """When it came into this state."""
    exit_code: int | None = None
    """Negative for a signal; none where nobody saw how it ended."""
    reason: str = ""
    """In a sentence, for people."""
    gpu_seconds: float = 0.0
    """Used here up to `since`; while it runs, what has passed since then comes on top."""
    refusals: int = 0
    """How often it could not be suspended since it was last asked to leave its GPUs."""


class Ahead(Spec):
    """Who comes before, and with how much."""

    name: str
    tenant: str
    gpus: str
    why: str = ""


class Decided(Spec):
    """What the governor last had done to a workload: it stays when `reason` has gone on to why it waits now."""

    verb: str
    """admit, resume, migrate, keep, suspend, preempt, reclaim, requeue or end."""
    reason: str
    constraint: str
    at: datetime
    beneficiary: str = ""
    """Uid of the workload for which it was done."""


class WorkloadStatus(Spec):
    """How a workload stands. `assignment` is what agents act on; what they did is in `reports`."""

    phase: Phase = Phase.PENDING
    assignment: Annotated[tuple[Place, ...], ListMap("replica")] = ()
    tenant: str = ""
    """For whom it was placed. What it holds counts for that one while it names a tenant that does not exist, or that its namespace may not use."""
    attempt: int = 0
    """Counted up to have replicas that ended by themselves, or could not be started, run once more."""
    reports: Annotated[tuple[Report, ...], ListMap("replica", "node")] = ()
    reason: str = ""
    """Why it is pending, suspended or failed, in a sentence."""
    constraint: str = ""
    """What binds, in a word: quota, capacity, fragmentation, topology, budget, …"""
    decision: Decided | None = None
    position: int = 0
    ahead: tuple[Ahead, ...] = ()
    estimated_start: datetime | None = None
    submitted_at: datetime | None = None
    waiting_since: datetime | None = None
    """When it was submitted, or last taken off its GPUs."""
    started_at: datetime | None = None
    """Of the present run."""
    suspensions: int = 0
    reclaims: int = 0
    """How often in a row it was taken back, for it did not use its GPUs: each time it stays off for longer."""
    gpu_hours: float = 0.0
    cost: float = 0.0


WORKLOAD_COLUMNS = (
    Column("Tenant", ".spec.tenant"),
    Column("Phase", ".status.phase"),
    Column("GPUs", ".spec.resources.gpus"),
    Column("Replicas", ".spec.replicas", "integer", priority=1),
    Column("Reason", ".status.reason", priority=1),
)
WORKLOAD = KindInfo(
    GROUP,
    VERSION,
    "Workload",
    WorkloadSpec,
    status=WorkloadStatus,
    short_names=("wl",),
    categories=("gpu", "homeostat"),
    columns=WORKLOAD_COLUMNS,
    scale=Scale(observed=".status.replicas"),
)
