"""What is declared of one kind as columns: nodes, tenants and pools as arrays, a workload as a row. Raises where something cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from homeostat.gpu.decisions import Verb
from homeostat.gpu.kinds import SIZE_MOST, WHOLE, NodeStage, in_short, is_part, milli
from homeostat.gpu.snapshot import (
    NEVER,
    NONE,
    UNLIMITED,
    Exceeded,
    Floats,
    Health,
    Idle,
    Ints,
    Mode,
    Nodes,
    Phase,
    Pools,
    Refusal,
    Spot,
    Tenants,
    Topology,
)
from homeostat.model.kinds import parse_duration

Object = dict[str, Any]

_PHASES = {
    "": Phase.PENDING,
    "Pending": Phase.PENDING,
    "Starting": Phase.STARTING,
    "Running": Phase.RUNNING,
    "Suspending": Phase.SUSPENDING,
    "Suspended": Phase.SUSPENDED,
}
_CLOSED = (NodeStage.CORDONED, NodeStage.DRAINING)
_TOPOLOGIES = {
    "": Topology.ANYWHERE,
    "Node": Topology.NODE,
    "NvlinkDomain": Topology.NVLINK_DOMAIN,
    "Rack": Topology.RACK,
}
_SPOTS = {"Allow": Spot.ALLOW, "Require": Spot.REQUIRE, "Avoid": Spot.AVOID}
_MODES = {"Suspend": Mode.SUSPEND, "Checkpoint": Mode.CHECKPOINT, "Restart": Mode.RESTART, "Never": Mode.NEVER}
_IDLES = {"Reclaim": Idle.RECLAIM, "Warn": Idle.WARN, "Ignore": Idle.IGNORE}
_EXCEEDED = {"Warn": Exceeded.WARN, "Hold": Exceeded.HOLD, "Suspend": Exceeded.SUSPEND}
_HEALTH = {"Healthy": Health.HEALTHY, "Suspect": Health.SUSPECT, "Failed": Health.FAILED}
_DEFAULT_GRACE, _DEFAULT_ARRIVAL, _DEFAULT_PERIOD = "30s", "10m0s", "720h0m0s"


@lru_cache(maxsize=4096)
def _seconds(text: str | None, without: float = 0.0) -> float:
    return without if text is None else parse_duration(text).total_seconds()


def time_of(text: str | None, without: float = np.nan) -> float:
    """Seconds since the epoch. A time without a zone is in UTC."""
    if text is None:
        return without
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def row_of(meta: Object, spec: Object, status: Object) -> tuple[Any, ...]:
    """The fields of `WORKLOAD`; tenant and models are filled in when they are known."""
    needs, preempted = spec.get("resources") or {}, spec.get("preemption") or {}
    replicas, each = spec.get("replicas", 1), milli(needs.get("gpus", 1))
    submitted = time_of(status.get("submittedAt"), time_of(meta.get("creationTimestamp"), 0.0))
    ran = status.get("gpuHours", 0.0) * 3600 * WHOLE / max(replicas * each, 1)
    phase = _PHASES[status.get("phase", "")]
    if phase is Phase.PENDING and status.get("assignment"):
        phase = Phase.STARTING
    deleted = bool(meta.get("deletionTimestamp"))
    if deleted and phase not in (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED):
        phase = Phase.SUSPENDING  # it holds its GPUs until it is gone
    return (
        NONE,
        replicas,
        each,
        0,
        *(min(needs.get(field, 0), SIZE_MOST) for field in ("gpuMemoryMib", "cpuMilli", "memoryMib")),
        spec.get("priority", 0),
        _TOPOLOGIES[spec.get("topology", "")],
        _SPOTS[spec.get("spot", "Allow")],
        _MODES[preempted.get("mode", "Suspend")],
        _IDLES[(spec.get("idle") or {}).get("mode", "Reclaim")],
        phase,
        deleted or spec.get("suspended", False),
        deleted,
        _seconds(spec.get("minimumRuntime")),
        _seconds(spec.get("maximumRuntime"), NEVER),
        _seconds(preempted.get("grace", _DEFAULT_GRACE)),
        time_of(spec.get("deadline"), NEVER),
        submitted,
        time_of(status.get("waitingSince"), submitted + ran),
        time_of(status.get("startedAt")),
        ran,
    )


def refusal_of(status: Object) -> Refusal | None:
    """That it cannot be suspended, by its agents or by what was decided of it; None where nothing says so."""
    tries, why = max(((one.get("refusals", 0), one.get("reason", "")) for one in status.get("reports") or ()), default=(0, ""))
    said = status.get("decision") or {}
    if not tries and said.get("verb") != Verb.KEEP:
        return None
    verb, constraint, beneficiary = (said.get(field, "") for field in ("verb", "constraint", "beneficiary"))
    return Refusal(tries, in_short(why), verb, constraint, beneficiary, time_of(said.get("at")))


def check(obj: Object) -> None:
    """Raises where a tenant, a node or a pool cannot be read."""
    spec = obj["spec"]
    if obj["kind"] == "Tenant":
        read_tenants([obj], {quota["model"]: at for at, quota in enumerate(spec.get("quotas") or ())})
    elif obj["kind"] == "GpuNode":
        read_nodes([obj], {spec["model"]: 0}, {})
    else:
        read_pools([obj], {spec["model"]: 0})


def read_nodes(nodes: Sequence[Object], models: dict[str, int], pools: dict[str, int]) -> Nodes:  # pools: by name of the node
    specs, states = [obj["spec"] for obj in nodes], [obj.get("status") or {} for obj in nodes]
    width = max((gpu["index"] + 1 for spec in specs for gpu in spec.get("gpus") or ()), default=1)
    health = np.full((len(nodes), width), int(Health.ABSENT))
    readings = {field: np.full((len(nodes), width), np.nan) for field in ("utilisation", "memoryTraffic", "cpu")}
    for at, (spec, state) in enumerate(zip(specs, states, strict=True)):
        for gpu in spec.get("gpus") or ():
            health[at, gpu["index"]] = Health.SUSPECT if gpu.get("mig") else Health.HEALTHY
        for reading in state.get("gpus") or ():
            if reading["index"] < width and health[at, reading["index"]] != Health.ABSENT:
                health[at, reading["index"]] = max(health[at, reading["index"]], _HEALTH[reading.get("health", "Healthy")])
                for field, values in readings.items():
                    value = reading.get(field)
                    values[at, reading["index"]] = np.nan if value is None or value < 0 else value
    reported = np.array([time_of(state.get("reportedAt")) for state in states], dtype=np.float64)
    return Nodes(
        name=[obj["metadata"]["name"] for obj in nodes],
        model=_ints(models[spec["model"]] for spec in specs),
        domain=_groups(spec.get("nvlinkDomain") for spec in specs),
        rack=_groups(spec.get("rack") for spec in specs),
        pool=_ints(pools.get(obj["metadata"]["name"], NONE) for obj in nodes),
        given=np.zeros(len(nodes), dtype=bool),
        cpu=_ints(_size(spec, "cpuMilli") for spec in specs),
        memory=_ints(_size(spec, "memoryMib") for spec in specs),
        cost=floats(spec.get("costPerHour", 0.0) for spec in specs),
        spot=bools(spec.get("spot", False) for spec in specs),
        cordoned=bools(
            spec.get("cordoned", False) or state.get("stage") in _CLOSED or bool(state.get("trouble")) for spec, state in zip(specs, states, strict=True)
        ),
        drain=bools(
            spec.get("drain", False) or state.get("stage") == NodeStage.DRAINING for spec, state in zip(specs, states, strict=True)
        ),
        heard=reported,
        lease=np.zeros(len(nodes)),
        reported=reported,
        skew=np.full(len(nodes), np.nan),
        trouble=np.array([state.get("trouble", "") for state in states], dtype=object),
        flaps=_ints(state.get("flaps", 0) for state in states),
        gpu_memory=_ints(
            min((_size(gpu, "memoryMib") for gpu in spec.get("gpus") or ()), default=0) for spec in specs
        ),
        parts=bools(is_part(spec["model"]) or any(gpu.get("partOf") for gpu in spec.get("gpus") or ()) for spec in specs),
        health=health,
        use=readings["utilisation"],
        traffic=readings["memoryTraffic"],
        busy_cores=readings["cpu"],
    )


def read_tenants(tenants: Sequence[Object], models: dict[str, int]) -> Tenants:
    specs = [obj["spec"] for obj in tenants]
    star, shape = len(models), (len(tenants), len(models) + 1)
    nominal, borrowing, lending = (
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape, dtype=np.int64),
        np.zeros(shape, dtype=np.int64),
    )
    column = np.full((len(tenants), len(models)), NONE)
    for at, spec in enumerate(specs):
        quotas = {quota["model"]: quota for quota in spec.get("quotas") or ()}
        if "*" in quotas:
            column[at] = star
        for model, quota in quotas.items():
            if (to := star if model == "*" else models.get(model, NONE)) == NONE:
                continue
            nominal[at, to] = milli(quota["nominal"])
            borrowing[at, to] = UNLIMITED if quota.get("borrowingLimit") is None else milli(quota["borrowingLimit"])
            lending[at, to] = UNLIMITED if quota.get("lendingLimit") is None else milli(quota["lendingLimit"])
            if to != star:
                column[at, to] = to
    budgets, slas = [spec.get("budget") or {} for spec in specs], [spec.get("sla") or {} for spec in specs]
    return Tenants(
        name=[obj["metadata"]["name"] for obj in tenants],
        cohort=_groups(spec.get("cohort") for spec in specs),
        weight=floats(spec.get("weight", 1.0) for spec in specs),
        column=column,
        nominal=nominal,
        borrowing=borrowing,
        lending=lending,
        budget=floats(budget.get("gpuHours", NEVER) for budget in budgets),
        period=floats(_seconds(budget.get("period", _DEFAULT_PERIOD)) for budget in budgets),
        exceeded=_ints(_EXCEEDED[budget.get("onExceeded", "Hold")] for budget in budgets),
        max_wait=floats(_seconds(sla.get("maxWait"), NEVER) for sla in slas),
        share_of_time=floats(sla.get("shareOfTime") or 0.0 for sla in slas),
    )


def read_pools(pools: Sequence[Object], models: dict[str, int]) -> Pools:
    specs = [obj["spec"] for obj in pools]
    return Pools(
        name=[obj["metadata"]["name"] for obj in pools],
        model=_ints(models[spec["model"]] for spec in specs),
        gpus=_ints(spec.get("gpusPerNode", 8) for spec in specs),
        gpu_memory=_ints(_size(spec, "gpuMemoryMib") for spec in specs),
        parts=bools(is_part(spec["model"]) for spec in specs),
        cpu=_ints(_size(spec, "cpuMilli") for spec in specs),
        memory=_ints(_size(spec, "memoryMib") for spec in specs),
        minimum=_ints(_wanted(obj, "minimum") for obj in pools),
        maximum=_ints(_wanted(obj, "maximum") for obj in pools),
        cost=floats(spec.get("costPerHour", 0.0) for spec in specs),
        spot=bools(spec.get("spot", False) for spec in specs),
        coming=_ints((obj.get("status") or {}).get("coming", 0) for obj in pools),
        refused=_ints(
            sum(bool(one.get("refused")) for one in (obj.get("status") or {}).get("machines") or ()) for obj in pools
        ),
        trouble=[(obj.get("status") or {}).get("trouble", "") for obj in pools],
        arrives_within=floats(_seconds(spec.get("arrivesWithin", _DEFAULT_ARRIVAL)) for spec in specs),
    )


def is_deleted(obj: Object) -> bool:
    """Whether it was deleted, and is held by somebody."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def _wanted(pool: Object, limit: str) -> int:
    """Of a pool that is deleted nothing is wanted any more."""
    return 0 if is_deleted(pool) else int(pool["spec"].get(limit, 0))


def _size(spec: Object, field: str) -> int:
    """What there is of it; where nobody said, there is enough."""
    return min(spec.get(field) or UNLIMITED, UNLIMITED)


def _groups(names: Iterable[str | None]) -> Ints:
    """Names as numbers, the empty one as none."""
    listed = list(names)
    index = {name: at for at, name in enumerate(sorted({name for name in listed if name}))}
    return _ints(index.get(name or "", NONE) for name in listed)


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def bools(values: Iterable[bool]) -> NDArray[np.bool_]:
    return np.array(list(values), dtype=np.bool_)
