"""GpuNode: a machine with GPUs, as it is declared and as its agent reports it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from homeostat.gpu import GROUP, VERSION
from homeostat.gpu.kinds.amounts import Amount, Model, Size, kept
from homeostat.model.kinds import Column, KindInfo, ListMap, Spec


class Gpu(Spec):
    """One GPU of a node."""

    index: Annotated[int, Meta(ge=0, le=255)]
    uuid: str = ""
    memory_mib: Size = 0
    mig: Annotated[tuple[str, ...], Meta(max_length=16)] = ()
    """MIG profiles that it is cut into while its parts are not given out, such as `1g.10gb`: then nothing is placed on it."""
    part_of: str = ""
    """The uuid of the GPU that it is a part of, by MIG; empty: it is one by itself."""


class GpuNodeSpec(Spec):
    """A machine with GPUs. Its agent declares it; people may cordon it."""

    model: Model
    gpus: Annotated[tuple[Gpu, ...], ListMap("index"), Meta(max_length=64)] = ()
    cpu_milli: Size = 0
    memory_mib: Size = 0
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
    utilisation: float | None = None
    """Of its time, from 0 to 1, over the last report. Without this, `memoryTraffic` or `cpu` it is never taken for idle: not known is not unused."""
    memory_traffic: float | None = None
    cpu: float | None = None
    """Cores that the processes on it keep busy, over the last report."""
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


class NodeStage(StrEnum):
    OPEN = "Open"
    CORDONED = "Cordoned"  # takes no new work
    DRAINING = "Draining"  # and what runs goes elsewhere
    GIVING_BACK = "GivingBack"  # empty, and no longer of the fleet: its pool takes it back, and there is no way back


class GpuNodeStatus(Spec):
    """A machine as its agent reports it. That the agent lives is said by the Lease of the node's name."""

    agent: str = ""
    reported_at: datetime | None = None
    gpus: Annotated[tuple[GpuReading, ...], ListMap("index")] = ()
    processes: Annotated[tuple[ProcessUse, ...], ListMap("workload", "replica")] = ()
    trouble: str = ""
    """Why its agent can begin nothing at present, such as a full disk: what runs goes on, and nothing new is placed there. Empty: it can."""
    allocated: str = "0"
    flaps: int = 0
    """How often it was lost and came back lately."""
    lost: bool = False
    """Whether its lease has run out by the governor's word: nothing new goes there, and what was there goes on elsewhere."""
    stage: NodeStage = NodeStage.OPEN
    """What the governor made of it; what people want is said in the spec."""
    reason: str = ""
    """Why, in a sentence."""
    constraint: str = ""
    stage_since: datetime | None = None


NODE = KindInfo(
    GROUP,
    VERSION,
    "GpuNode",
    GpuNodeSpec,
    status=kept(GpuNodeStatus),
    scope="Cluster",
    short_names=("gn",),
    categories=("gpu", "homeostat"),
    columns=(
        Column("Model", ".spec.model"),
        Column("Pool", ".spec.pool"),
        Column("Allocated", ".status.allocated"),
        Column("Cordoned", ".spec.cordoned", "boolean"),
        Column("Stage", ".status.stage"),
        Column("Lost", ".status.lost", "boolean"),
        Column("Reason", ".status.reason", priority=1),
    ),
)
