"""What is declared of GPUs: Tenant, GpuNode, NodePool, Workload, GpuPolicy (`gpu.homeostat.dev/v1alpha1`).

GPUs are counted in thousandths, so that a fraction of one is a whole number: 1000 is a GPU, 250 a quarter of one. In manifests people
write `2`, `"0.25"` or `250m`. A type of GPU is the name of its model, such as `H100`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, field

from homeostat.model.kinds import Column, KindInfo, ListMap, MapAtomic, Rule, Scale, Sensitive, Spec

GROUP, VERSION = "gpu.homeostat.dev", "v1alpha1"
WHOLE = 1000
"""Thousandths in a GPU."""

Share = Annotated[int | str, Meta(extra_json_schema={"pattern": "^([0-9]+m|[0-9]+(\\.[0-9]+)?)$", "minimum": 0})]
"""An amount of GPUs: `2`, `"0.25"`, `250m`."""
Name = Annotated[str, Meta(min_length=1, max_length=253)]
Model = Annotated[str, Meta(min_length=1, max_length=64)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]


# Tenant


class Quota(Spec):
    """What a tenant may use of one type of GPU."""

    model: Model
    """`*` is any type that has no entry of its own."""
    nominal: Share
    """What is its own: others may borrow it, and give it back when it is wanted."""
    borrowing_limit: Share | None = None
    """How much more it may use of what its cohort leaves idle. Without: no limit; 0: none."""
    lending_limit: Share | None = None
    """How much of its own others may borrow. Without: all of it."""


class Budget(Spec):
    """GPU hours that may be used in a period."""

    gpu_hours: Amount
    period: timedelta = timedelta(days=30)
    on_exceeded: Literal["Warn", "Hold", "Suspend"] = "Hold"
    """`Hold` admits nothing more, `Suspend` also takes back what runs."""


class Sla(Spec):
    """What the tenant was promised. A promise that is not kept is told, and moves its work ahead."""

    max_wait: timedelta | None = None
    """From submission to start."""
    share_of_time: Fraction | None = None
    """The part of time in which all that it wants, up to its nominal quota, must run; over the last day."""


class TenantSpec(Spec):
    """Who uses GPUs, and how many."""

    quotas: Annotated[tuple[Quota, ...], ListMap("model"), Meta(max_length=64)] = ()
    """Types without an entry cannot be used, unless there is one for `*`."""
    cohort: str = ""
    """Tenants of one cohort borrow from each other; empty: it neither lends nor borrows."""
    weight: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    """How much of what is shared it is entitled to, in proportion to the others."""
    budget: Budget | None = None
    sla: Sla | None = None
    namespaces: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()
    """Whose workloads may name this tenant; none: those of the namespace of its own name."""


class Usage(Spec):
    """How a tenant stands with one type of GPU."""

    model: str
    nominal: str = "0"
    used: str = "0"
    borrowed: str = "0"
    lent: str = "0"


class TenantStatus(Spec):
    """How a tenant stands."""

    used: str = "0"
    usage: Annotated[tuple[Usage, ...], ListMap("model")] = ()
    pending: int = 0
    running: int = 0
    suspended: int = 0
    dominant_share: float = 0.0
    """Its part of the fleet, the past counted in, over its weight."""
    gpu_hours: float = 0.0
    """Used in the period of its budget."""
    cost: float = 0.0
    oldest_wait: timedelta = timedelta(0)
    sla_misses: int = 0


# GpuNode


class Gpu(Spec):
    """One GPU of a node."""

    index: Annotated[int, Meta(ge=0, le=255)]
    uuid: str = ""
    memory_mib: Annotated[int, Meta(ge=0)] = 0
    mig: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """MIG profiles that it is cut into, such as `1g.10gb`; none: it is whole, and may be shared in fractions."""


class GpuNodeSpec(Spec):
    """A machine with GPUs. Its agent declares it; people may cordon it."""

    model: Model
    gpus: Annotated[tuple[Gpu, ...], ListMap("index"), Meta(max_length=64)] = ()
    cpu_milli: Annotated[int, Meta(ge=0)] = 0
    memory_mib: Annotated[int, Meta(ge=0)] = 0
    nvlink_domain: str = ""
    """Nodes of one domain talk at NVLink speed; empty: within the node only."""
    rack: str = ""
    zone: str = ""
    cost_per_hour: Amount = 0.0
    spot: bool = False
    pool: str = ""
    cordoned: bool = False
    """Takes no new work; what runs stays."""
    drain: bool = False
    """What runs is moved elsewhere."""
    simulated: bool = False


class GpuHealth(StrEnum):
    HEALTHY = "Healthy"
    SUSPECT = "Suspect"
    FAILED = "Failed"


class GpuReading(Spec):
    """One GPU as the agent sees it."""

    index: int
    health: GpuHealth = GpuHealth.HEALTHY
    reason: str = ""
    """XID, ECC, thermal: what is the matter."""
    utilisation: float = 0.0
    """Of its time, from 0 to 1, over the last report."""
    memory_traffic: float = 0.0
    cpu: float | None = None
    """Cores that the processes on it keep busy, over the last report; without: not known, and then it is never taken for idle."""
    memory_used_mib: int = 0
    power_watts: float = 0.0
    temperature: float = 0.0
    held_by: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    """Uids of the workloads on it."""


class ProcessUse(Spec):
    """What the processes of one replica use beside GPUs, as its agent sees it."""

    workload: str
    """Its uid."""
    replica: int
    cpu: float = 0.0
    """Cores, over the last report: 0.1 is a tenth of one."""


class GpuNodeStatus(Spec):
    """A machine as its agent reports it. That the agent lives is said by the Lease of the node's name."""

    agent: str = ""
    reported_at: datetime | None = None
    gpus: Annotated[tuple[GpuReading, ...], ListMap("index")] = ()
    processes: Annotated[tuple[ProcessUse, ...], ListMap("workload", "replica")] = ()
    allocated: str = "0"
    flaps: int = 0
    """How often it was lost and came back lately."""


# NodePool


class HowToGet(Spec):
    """How a node is had and given back: a command, a webhook, or only in simulation. Exactly one."""

    exec: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    """Run with `get` or `give-back NODE`; prints the node's name."""
    webhook: str = ""
    simulated: bool = False

    rules = [
        Rule(
            "[has(self.exec) && size(self.exec) > 0, has(self.webhook) && self.webhook != '', "
            "has(self.simulated) && self.simulated].filter(x, x).size() == 1",
            message="say exactly one of exec, webhook and simulated",
        )
    ]


class NodePoolSpec(Spec):
    """Nodes of one sort that can be had and given back."""

    model: Model
    gpus_per_node: Annotated[int, Meta(ge=1, le=64)] = 8
    gpu_memory_mib: Annotated[int, Meta(ge=0)] = 0
    cpu_milli: Annotated[int, Meta(ge=0)] = 0
    memory_mib: Annotated[int, Meta(ge=0)] = 0
    minimum: Annotated[int, Meta(ge=0)] = 0
    maximum: Annotated[int, Meta(ge=0)] = 0
    cost_per_hour: Amount = 0.0
    spot: bool = False
    provision: HowToGet = field(default_factory=lambda: HowToGet(simulated=True))
    arrives_within: timedelta = timedelta(minutes=10)
    """A node that is not there by then is counted as failed."""


class NodePoolStatus(Spec):
    """How many nodes there are."""

    nodes: int = 0
    ready: int = 0
    coming: int = 0
    going: int = 0
    reason: str = ""


# Workload


class Preemption(StrEnum):
    SUSPEND = "Suspend"  # taken off the GPU with its state, and continued later
    CHECKPOINT = "Checkpoint"  # told by a signal, has its grace to write, ends, and is started again
    RESTART = "Restart"  # ended, and started again from the beginning
    NEVER = "Never"


class WhenPreempted(Spec):
    """What is done to a workload that must make room."""

    mode: Preemption = Preemption.SUSPEND
    signal: Annotated[str, Meta(pattern="^SIG[A-Z0-9+]+$")] = "SIGTERM"
    """For Checkpoint."""
    grace: timedelta = timedelta(seconds=30)


class WhenIdle(Spec):
    """What is done with GPUs that are held and not used."""

    mode: Literal["Reclaim", "Warn", "Ignore"] = "Reclaim"


class Resources(Spec):
    """What each replica needs."""

    gpus: Share = 1
    """Whole ones, or a fraction of one."""
    models: Annotated[tuple[Model, ...], Meta(max_length=32)] = ()
    """Any of these types; none: any type that the tenant may use."""
    gpu_memory_mib: Annotated[int, Meta(ge=0)] = 0
    cpu_milli: Annotated[int, Meta(ge=0)] = 0
    memory_mib: Annotated[int, Meta(ge=0)] = 0


class WorkloadSpec(Spec):
    """A job, or a service, on GPUs. All its replicas run, or none does."""

    tenant: Name
    replicas: Annotated[int, Meta(ge=1, le=10_000)] = 1
    resources: Resources = field(default_factory=Resources)
    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] = 0
    topology: Literal["", "Node", "NvlinkDomain", "Rack"] = ""
    """All replicas within one of these; empty: as near as is cheap."""
    minimum_runtime: timedelta = timedelta(0)
    """Once started it is not taken off before."""
    maximum_runtime: timedelta | None = None
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


class Ahead(Spec):
    """Who comes before, and with how much."""

    name: str
    tenant: str
    gpus: str
    why: str = ""


class WorkloadStatus(Spec):
    """How a workload stands. `assignment` is what agents act on; what they did is in `reports`."""

    phase: Phase = Phase.PENDING
    assignment: Annotated[tuple[Place, ...], ListMap("replica")] = ()
    attempt: int = 0
    """Counted up to have replicas that ended by themselves, or could not be started, run once more."""
    reports: Annotated[tuple[Report, ...], ListMap("replica", "node")] = ()
    reason: str = ""
    """Why it is pending, suspended or failed, in a sentence."""
    constraint: str = ""
    """What binds, in a word: quota, capacity, fragmentation, topology, budget, …"""
    position: int = 0
    ahead: tuple[Ahead, ...] = ()
    estimated_start: datetime | None = None
    submitted_at: datetime | None = None
    waiting_since: datetime | None = None
    """When it was submitted, or last taken off its GPUs."""
    started_at: datetime | None = None
    """Of the present run."""
    suspensions: int = 0
    gpu_hours: float = 0.0
    cost: float = 0.0


# GpuPolicy


class FairShare(Spec):
    enabled: bool = True
    half_life: timedelta = timedelta(hours=24)
    """After so long, past use counts half."""
    past: Fraction = 0.5
    """How much past use weighs against the use of this moment."""


class Preempting(Spec):
    enabled: bool = True
    per_hour: Annotated[int, Meta(ge=0)] = 60
    """In the whole fleet."""
    per_workload: Annotated[int, Meta(ge=0)] = 3
    """Of one workload in a day."""
    past_minimum_runtime: bool = False
    """Whether quota and priority may take off what has not run for its minimum."""


class TimeSharing(Spec):
    """Long work makes room for short work: by what it has used so far, a workload is expected to go on as long again."""

    enabled: bool = False
    expected: timedelta = timedelta(minutes=10)
    """What a workload that has not run yet is expected to take; one with a maximum runtime never more than is left of it."""
    at_most: timedelta = timedelta(hours=2)
    """No more is expected of any: among those that have run for longer, it is again who came first."""
    slice: timedelta = timedelta(minutes=10)
    """For so long a run is left alone."""
    ratio: Annotated[float, Meta(ge=2)] = 16.0
    """How many times more GPU time must be expected of what is suspended than of what it makes room for."""
    per_doubling: Amount = 100.0
    """Points of priority that twice the expected GPU time costs in the queue of its tenant."""


class IdleReclaim(Spec):
    enabled: bool = True
    window: timedelta = timedelta(minutes=30)
    gpu_below: Fraction = 0.05
    memory_traffic_below: Fraction = 0.02
    cpu_below: Fraction = 0.10
    """All three, over the whole window."""
    grace: timedelta = timedelta(minutes=10)
    """From the warning to the reclaim."""
    stale_after: timedelta = timedelta(minutes=2)
    """A reading older than this is none."""


class FailurePolicy(Spec):
    enabled: bool = True
    lease: timedelta = timedelta(seconds=40)
    """A node not heard of for so long is lost."""
    flaps: Annotated[int, Meta(ge=1)] = 3
    flap_window: timedelta = timedelta(minutes=30)
    suspect_observer_above: Fraction = 0.5
    """More of the fleet silent at once than this, and the observer is suspected: nothing is done."""
    replace: bool = True


class Scaling(Spec):
    enabled: bool = True
    backlog_age: timedelta = timedelta(minutes=5)
    idle_nodes_after: timedelta = timedelta(minutes=15)
    consolidate: bool = False
    """Whether part-empty nodes are emptied to give them back."""


class Ageing(Spec):
    enabled: bool = True
    per_hour: Amount = 10.0
    """Points of priority that an hour of waiting is worth."""
    most: Amount = 1000.0
    overdue_after: timedelta = timedelta(hours=24)
    """What waited longer comes first; of work beyond the quota, the one of each tenant that waited longest."""


class GpuPolicySpec(Spec):
    """Which policies run, and by which thresholds. One policy is in force: the one named `default`, or all defaults."""

    fair_share: FairShare = field(default_factory=FairShare)
    preemption: Preempting = field(default_factory=Preempting)
    time_sharing: TimeSharing = field(default_factory=TimeSharing)
    idle: IdleReclaim = field(default_factory=IdleReclaim)
    failure: FailurePolicy = field(default_factory=FailurePolicy)
    scaling: Scaling = field(default_factory=Scaling)
    ageing: Ageing = field(default_factory=Ageing)
    backfill: bool = True
    defragment: bool = False
    """Whether work that keeps its state is moved together, within the budget of preemptions, to make room for what needs many GPUs of a node."""
    every: timedelta = timedelta(seconds=5)
    """How often it is decided when nothing happens."""


TENANT = KindInfo(
    GROUP,
    VERSION,
    "Tenant",
    TenantSpec,
    status=TenantStatus,
    scope="Cluster",
    categories=("gpu",),
    columns=(
        Column("Cohort", ".spec.cohort"),
        Column("Used", ".status.used"),
        Column("Running", ".status.running", "integer"),
        Column("Pending", ".status.pending", "integer"),
        Column("Share", ".status.dominantShare", "number"),
    ),
)
NODE = KindInfo(
    GROUP,
    VERSION,
    "GpuNode",
    GpuNodeSpec,
    status=GpuNodeStatus,
    scope="Cluster",
    short_names=("gn",),
    categories=("gpu",),
    columns=(
        Column("Model", ".spec.model"),
        Column("Pool", ".spec.pool"),
        Column("Allocated", ".status.allocated"),
        Column("Cordoned", ".spec.cordoned", "boolean"),
    ),
)
POOL = KindInfo(
    GROUP,
    VERSION,
    "NodePool",
    NodePoolSpec,
    status=NodePoolStatus,
    scope="Cluster",
    categories=("gpu",),
    columns=(
        Column("Model", ".spec.model"),
        Column("Nodes", ".status.nodes", "integer"),
        Column("Min", ".spec.minimum", "integer"),
        Column("Max", ".spec.maximum", "integer"),
    ),
)
POLICY = KindInfo(GROUP, VERSION, "GpuPolicy", GpuPolicySpec, scope="Cluster", categories=("gpu",))
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


def milli(share: Share) -> int:
    """An amount of GPUs in thousandths. ValueError where it is none."""
    if isinstance(share, str) and share.endswith("m"):
        return int(share[:-1])
    return round(float(share) * WHOLE)


def share_text(thousandths: int) -> str:
    """The same for people: `2`, `0.25`."""
    return f"{thousandths / WHOLE:g}"
