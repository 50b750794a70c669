"""All that the governor looks at, at one moment, as arrays: workloads, nodes and their GPUs, tenants, pools.

Everything is in an order of its own that does not depend on the order of input: workloads by submission and then uid, all else by
name. So the index itself is the tie-break, and the same facts give the same decisions. GPUs are counted in thousandths, times are
seconds since the epoch, what has no end is infinite, what is not known is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from homeostat.gpu.kinds import WHOLE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NONE = -1
"""Belongs to no group, or names one that does not exist."""
NOT_ALLOWED = -2
"""Names a tenant that its namespace may not use."""
DEPARTING = -3
"""Names a tenant that is being deleted."""
UNLIMITED = 2**50
ANY_MODEL = 2**63 - 1
"""A request that names no model. Models are bits, 63 of them at most."""
NEVER = float("inf")


class Phase(IntEnum):
    """Where a workload stands; those that ended are not in a snapshot."""

    PENDING = 0
    STARTING = 1
    RUNNING = 2
    SUSPENDING = 3
    SUSPENDED = 4


class Mode(IntEnum):
    """How a workload makes room."""

    SUSPEND = 0
    CHECKPOINT = 1
    RESTART = 2
    NEVER = 3


class Topology(IntEnum):
    ANYWHERE = 0
    NODE = 1
    NVLINK_DOMAIN = 2
    RACK = 3


class Spot(IntEnum):
    ALLOW = 0
    REQUIRE = 1
    AVOID = 2


class Idle(IntEnum):
    RECLAIM = 0
    WARN = 1
    IGNORE = 2


class Exceeded(IntEnum):
    """What is done about a budget that is used up."""

    WARN = 0
    HOLD = 1
    SUSPEND = 2


class Health(IntEnum):
    HEALTHY = 0
    SUSPECT = 1
    FAILED = 2
    ABSENT = 3


WORKLOAD = np.dtype(
    [
        ("tenant", "i8"),
        ("replicas", "i8"),
        ("milli", "i8"),  # of GPUs, a replica
        ("models", "i8"),  # bits
        ("gpu_memory", "i8"),
        ("cpu", "i8"),
        ("memory", "i8"),
        ("priority", "i8"),
        ("topology", "i8"),
        ("spot", "i8"),
        ("preemption", "i8"),
        ("idle", "i8"),
        ("phase", "i8"),
        ("stopped", "?"),  # a person wants it off the GPUs
        ("deleted", "?"),
        ("minimum", "f8"),
        ("maximum", "f8"),
        ("grace", "f8"),
        ("deadline", "f8"),
        ("submitted", "f8"),
        ("since", "f8"),  # when it began to wait: submitted, or taken off
        ("started", "f8"),  # of the present run
        ("ran", "f8"),  # seconds, over all runs
    ]
)


class Workloads(msgspec.Struct, frozen=True, eq=False):
    """One entry a workload, by submission and then uid. The fields are those of `WORKLOAD`."""

    uid: Sequence[str]
    name: Sequence[str]
    """As people know it: `namespace/name`."""
    tenant: Ints
    replicas: Ints
    milli: Ints
    models: Ints
    gpu_memory: Ints
    cpu: Ints
    memory: Ints
    priority: Ints
    topology: Ints
    spot: Ints
    preemption: Ints
    idle: Ints
    phase: Ints
    stopped: Bools
    deleted: Bools
    minimum: Floats
    maximum: Floats
    grace: Floats
    deadline: Floats
    submitted: Floats
    since: Floats
    started: Floats
    ran: Floats

    @classmethod
    def of(cls, rows: NDArray[np.void], uid: Sequence[str], name: Sequence[str]) -> Workloads:
        """From rows of `WORKLOAD` that are in order."""
        return cls(uid, name, **{field: np.ascontiguousarray(rows[field]) for field in WORKLOAD.names or ()})

    def __len__(self) -> int:
        return len(self.uid)


class Places(msgspec.Struct, frozen=True, eq=False):
    """One entry for each GPU that a replica holds, in the order of workloads. A suspended workload holds none: its entries say where its
    state lies."""

    workload: Ints
    replica: Ints
    node: Ints
    gpu: Ints
    milli: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int, int]] | Ints) -> Places:
        """From rows of workload, replica, node, gpu, milli."""
        table = np.asarray(rows, dtype=np.int64).reshape(-1, 5)
        return cls(*(np.ascontiguousarray(column) for column in table.T))


class Missing(msgspec.Struct, frozen=True, eq=False):
    """One entry for each GPU that a replica is placed on and nobody declares: its node was deleted, or has fewer GPUs than it had."""

    workload: Ints
    node: Sequence[str]
    gpu: Ints
    heard: Floats
    """When the lease of a node that nobody declares was last renewed, by our clock; NaN: never, or the node is declared without this GPU."""
    lease: Floats
    """For how many seconds its agent said that this holds; 0: it did not say."""

    @classmethod
    def none(cls) -> Missing:
        """All is there."""
        return cls(np.zeros(0, dtype=np.int64), (), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))

    def heard_of(self, now: float, least: float) -> Bools:
        """Of which the agent lives: it declares its node again, and until then nothing is known to be lost."""
        with np.errstate(invalid="ignore"):
            return np.asarray(now - self.heard <= np.maximum(self.lease, least))


class Refusal(NamedTuple):
    """A workload that could not be suspended when it was to leave its GPUs."""

    tries: int
    """How often in a row, by its agents; 0: that was called off, and they know."""
    why: str
    verb: str
    """What the governor last decided of it; and why, for whom and when."""
    constraint: str
    beneficiary: str
    at: float


class Reclaim(NamedTuple):
    """A workload that was taken back, for it did not use its GPUs."""

    times: int
    """How often in a row."""
    at: float
    """When; NaN: it has come back since."""


class Nodes(msgspec.Struct, frozen=True, eq=False):
    """One entry a node, by name; what is said of GPUs is a row a node, as wide as the largest of them."""

    name: Sequence[str]
    model: Ints
    domain: Ints
    rack: Ints
    pool: Ints
    given: Bools
    """Whether that pool says that it got it: others joined it by themselves, and are not given back."""
    cpu: Ints
    memory: Ints
    cost: Floats
    spot: Bools
    cordoned: Bools
    drain: Bools
    heard: Floats
    """When its lease was last renewed, by our clock; NaN: never."""
    lease: Floats
    """For how many seconds its agent said that this holds; 0: it did not say."""
    reported: Floats
    """When its GPUs were last read."""
    skew: Floats
    """By how many seconds the clock of its agent is behind the server's; NaN: not known."""
    trouble: NDArray[np.object_]
    """Why its agent can begin nothing; empty: it can. Then it is cordoned as well."""
    flaps: Ints
    gpu_memory: Ints
    """Of the smallest of its GPUs."""
    parts: Bools
    """Whether its GPUs are parts of others, by MIG: a process sees one of them, so no replica gets more."""
    health: Ints
    """[nodes, gpus] of `Health`."""
    use: Floats
    traffic: Floats
    busy_cores: Floats
    """NaN: not known."""

    def __len__(self) -> int:
        return len(self.name)

    def patience(self, least: float) -> Floats:
        """After how many seconds without a word each is lost: never before what its own agent promised, whatever a policy says."""
        return np.maximum(self.lease, least)


class Tenants(msgspec.Struct, frozen=True, eq=False):
    """One entry a tenant, by name; quotas are a row a tenant and a column a model, and a last column for `*`."""

    name: Sequence[str]
    cohort: Ints
    weight: Floats
    column: Ints
    """[tenants, models]: the column that a model counts in, or NONE where the tenant may not use it."""
    nominal: Ints
    borrowing: Ints
    lending: Ints
    budget: Floats
    """GPU hours in a period; infinite without one."""
    period: Floats
    exceeded: Ints
    max_wait: Floats
    share_of_time: Floats

    def __len__(self) -> int:
        return len(self.name)


class Pools(msgspec.Struct, frozen=True, eq=False):
    """One entry a pool, by name."""

    name: Sequence[str]
    model: Ints
    gpus: Ints
    gpu_memory: Ints
    parts: Bools
    cpu: Ints
    memory: Ints
    minimum: Ints
    maximum: Ints
    cost: Floats
    spot: Bools
    coming: Ints
    refused: Ints
    """Nodes that were asked for and not had: they are asked for again."""
    trouble: Sequence[str]
    """Why nothing is to be had of it; empty where something is."""
    arrives_within: Floats

    def __len__(self) -> int:
        return len(self.name)


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """All facts at one moment."""

    now: float
    models: Sequence[str]
    workloads: Workloads
    places: Places
    nodes: Nodes
    tenants: Tenants
    pools: Pools
    missing: Missing = msgspec.field(default_factory=Missing.none)
    refusals: Mapping[str, Refusal] = msgspec.field(default_factory=dict)
    """By uid."""
    astray: Mapping[str, str] = msgspec.field(default_factory=dict)
    """By uid, of those that hold GPUs: the tenant that each names, and may not, or that is being deleted. They are counted for the one that they were
    placed for."""
    departing: frozenset[str] = frozenset()
    """Tenants that are being deleted: what runs counts for them, and nothing more of them starts."""
    reclaims: Mapping[str, Reclaim] = msgspec.field(default_factory=dict)
    """By uid."""

    @classmethod
    def from_objects(cls, objects: Sequence[dict[str, object]], now: float) -> Snapshot:
        """From plain objects of any order: Tenant, GpuNode, NodePool, Workload, and the Leases of nodes. What keeps changing is read more
        cheaply by an `objects.Reader` that is kept."""
        from homeostat.gpu.objects import Reader  # which knows the snapshot

        reader = Reader()
        for obj in objects:
            reader.put(obj)
        return reader.snapshot(now)


def on_gpus(snapshot: Snapshot) -> Bools:
    """Which workloads hold GPUs, or are about to."""
    phase = snapshot.workloads.phase
    return np.asarray((phase >= Phase.STARTING) & (phase <= Phase.SUSPENDING))


def holders(snapshot: Snapshot) -> set[str]:
    """The tenants of which something holds GPUs."""
    tenant = snapshot.workloads.tenant[on_gpus(snapshot)]
    return {snapshot.tenants.name[at] for at in np.unique(tenant[tenant >= 0]).tolist()}


def capacity(nodes: Nodes, models: int) -> Ints:
    """The GPUs of each model that are there and not failed, in thousandths."""
    healthy = (nodes.health < Health.FAILED).sum(axis=1) * WHOLE
    return np.bincount(nodes.model, weights=healthy, minlength=models).astype(np.int64)


def canonical(submitted: Floats, uid: Sequence[str]) -> Ints:
    """The order by submission and then uid. Whole-number keys of the first letters settle nearly all; only what they leave is compared as text."""
    if not len(uid):
        return np.zeros(0, dtype=np.int64)
    heads = np.array([text[:24].encode().ljust(24, b"\0") for text in uid], dtype="S24")
    keys = np.frombuffer(heads.tobytes(), dtype=">u8").reshape(-1, 3).astype(np.uint64)
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0], submitted))
    same = (submitted[order[1:]] == submitted[order[:-1]]) & (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    if same.any():
        return np.array(sorted(range(len(uid)), key=lambda i: (submitted[i], uid[i])), dtype=np.int64)
    return order
