"""Who has which GPUs, who waits, how tenants stand, what was taken away and what lies idle: facts as rows, for people and programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from homeostat.gpu.cycle import Cycle
from homeostat.gpu.decisions import Verb
from homeostat.gpu.entitlement import columns_of, entitled
from homeostat.gpu.explain import standings
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.policies.budget import rounded
from homeostat.gpu.pools.marks import is_off, off_by
from homeostat.gpu.snapshot import NONE
from homeostat.insight.fleets import hold_of
from homeostat.insight.gpu import Facts, Object, phase_of, title
from homeostat.model.clock import format_time, parse_time

Row = dict[str, Any]
Wanted = Callable[[Object], bool]
"""Whether a workload is asked about."""
HOLDING = ("Starting", "Running", "Suspending")
TAKEN = ("suspend", "preempt", "reclaim", "requeue", "migrate")
"""Decisions that take something off its GPUs."""
_COUNTED = {"Pending": "pending", "Suspended": "suspended", "Succeeded": "ended", "Failed": "ended"}


def everything(workload: Object) -> bool:
    """Leaves nothing out."""
    return True


# Nodes and GPUs


def nodes(facts: Facts) -> list[Row]:
    """Every node with each of its GPUs: how it is, and who holds it by the governor's assignment."""
    held: dict[str, dict[int, list[Row]]] = {}
    for obj in facts.workloads.values():
        for name, gpu, who in places(obj):
            held.setdefault(name, {}).setdefault(gpu, []).append(who)
    silent, lost = silence(facts), lost_nodes(facts)
    return [node(name, obj, held.get(name, {}), silent.get(name), name in lost) for name, obj in sorted(facts.nodes.items())]


def node(name: str, obj: Object, held: Mapping[int, list[Row]], silent: float | None, lost: bool) -> Row:
    """One node, with who holds each of its GPUs and for how many seconds nothing was heard of it; None: nothing ever was."""
    spec, status = obj["spec"], obj.get("status") or {}
    readings = {one["index"]: one for one in status.get("gpus") or ()}
    return {
        "node": name,
        "model": spec["model"],
        "simulated": bool(spec.get("simulated")),
        "cordoned": bool(spec.get("cordoned")),
        "trouble": status.get("trouble", ""),
        "draining": bool(spec.get("drain")) or status.get("stage") == "Draining",
        "stage": status.get("stage", "Open"),
        "costPerHour": spec.get("costPerHour", 0.0),
        "heardSecondsAgo": None if silent is None else round(max(silent, 0.0), 1),
        "lost": lost,
        "gpus": [_gpu(gpu, readings.get(gpu["index"], {}), held.get(gpu["index"], [])) for gpu in spec.get("gpus") or ()],
    }


def silence(facts: Facts) -> dict[str, float]:
    """For how many seconds nothing was heard of each node; those that were never heard of are left out."""
    heard = zip(facts.snapshot.nodes.name, facts.snapshot.nodes.heard.tolist(), strict=True)
    return {name: facts.now - at for name, at in heard if at == at}


def lost_nodes(facts: Facts) -> set[str]:
    """Nodes that are silent for longer than their lease, or always were."""
    nodes = facts.snapshot.nodes
    lease = dict(zip(nodes.name, nodes.patience(facts.policy.failure.lease.total_seconds()).tolist(), strict=True))
    heard = {name for name, silent in silence(facts).items() if silent <= lease[name]}
    return set(facts.nodes) - heard


def places(workload: Object) -> Iterator[tuple[str, int, Row]]:
    """The GPUs that a workload holds (node, number), each with who it is and how much of it is its own."""
    status = workload.get("status") or {}
    if status.get("phase") not in HOLDING:
        return
    for place in status.get("assignment") or ():
        share = place.get("milli", WHOLE) / WHOLE
        who = {"workload": title(workload), "tenant": workload["spec"]["tenant"], "share": share, "phase": status["phase"]}
        for gpu in place.get("gpus") or ():
            yield place["node"], gpu, who


def _gpu(gpu: Row, reading: Row, holders: list[Row]) -> Row:
    health, reason = reading.get("health", "Healthy"), reading.get("reason", "")
    if gpu.get("mig") and health == "Healthy":
        health, reason = "Suspect", f"cut by MIG into {', '.join(gpu['mig'])}"
    return {
        "index": gpu["index"],
        "health": health,
        "reason": reason,
        "utilisation": reading.get("utilisation"),
        "memoryUsedMib": reading.get("memoryUsedMib"),
        "memoryMib": gpu.get("memoryMib", 0),
        "powerWatts": reading.get("powerWatts"),
        "temperature": reading.get("temperature"),
        "holders": holders,
        "unknownProcesses": bool(reading.get("heldBy")) and not holders,
    }


# Tenants


def quotas(facts: Facts) -> list[Row]:
    """How each tenant stands with each type of GPU it has a quota for. GPUs are numbers, hours are GPU hours."""
    cycle, as_it_is = facts.plan.pending.cycle, Cycle(facts.snapshot, facts.policy, facts.memory)  # one that decided counts what it lets in
    names = {name: at for at, name in enumerate(facts.snapshot.tenants.name)}
    row_of, waits = rows_of(facts), {facts.snapshot.workloads.uid[at] for at in np.flatnonzero(as_it_is.waits).tolist()}
    waiting = Counter(row_of(facts.workloads[uid]) for uid in waits)
    found = []
    for one in standings(as_it_is):
        at, spec = names[one.tenant], facts.tenants[one.tenant]["spec"]
        found.append(
            {
                "tenant": one.tenant,
                "cohort": spec.get("cohort", ""),
                "model": one.model,
                "nominal": one.nominal / WHOLE,
                "used": one.used / WHOLE,
                "leaving": one.leaving / WHOLE,
                "borrowed": one.borrowed / WHOLE,
                "over": one.over / WHOLE,
                "lent": one.lent / WHOLE,
                "waiting": waiting[one.tenant, one.model],
                "deleting": one.tenant in facts.snapshot.departing,
                "weight": float(facts.snapshot.tenants.weight[at]),
                "dominantShare": round(float(cycle.share[at]), 4),
                "dominantShareNow": round(float(cycle.share_now[at]), 4),
                "budget": _budget(facts, one.tenant, spec),
            }
        )
    return found


def _budget(facts: Facts, tenant: str, spec: Row) -> Row | None:
    budget = spec.get("budget")
    if not budget:
        return None
    _, spent = facts.plan.memory.spent.get(tenant, (0.0, 0.0))
    return {
        "used": rounded(spent, float(budget["gpuHours"])),
        "gpuHours": budget["gpuHours"],
        "period": budget.get("period", ""),
        "onExceeded": budget.get("onExceeded", "Hold"),
    }


def tenants(facts: Facts) -> list[Row]:
    """The same, and how many workloads of each run, wait, are suspended and have ended."""
    none = {"running": 0, "pending": 0, "suspended": 0, "ended": 0}
    row_of, counts = rows_of(facts), dict[tuple[str, str], dict[str, int]]()
    for obj in facts.workloads.values():
        counts.setdefault(row_of(obj), dict(none))[_COUNTED.get(phase_of(obj), "running")] += 1
    return [{**row, **counts.get((row["tenant"], row["model"]), none)} for row in quotas(facts)]


def rows_of(facts: Facts) -> Callable[[Object], tuple[str, str]]:
    """Says of a workload in which row it counts, by tenant and type: once, so that rows add up. That is the type that it has or is to get; where
    that is none, or it has ended, the first of its tenant."""
    cycle, models = facts.plan.pending.cycle, facts.snapshot.models
    of, there = facts.snapshot.workloads.tenant, facts.snapshot.tenants
    column = np.where(cycle.column != NONE, cycle.column, columns_of(there, of, cycle.lead))
    may = np.where(cycle.allowed.any(axis=1), cycle.allowed.argmax(axis=1), NONE) if len(models) else np.full(len(of), NONE)
    column = np.where(column != NONE, column, columns_of(there, of, may)).tolist()
    first = {name: min((int(one) for one in there.column[at] if one != NONE), default=NONE) for at, name in enumerate(there.name)}

    def row_of(obj: Object) -> tuple[str, str]:
        at = cycle.index.get(obj["metadata"]["uid"], NONE)
        counted = at != NONE and of[at] >= 0
        tenant = there.name[of[at]] if counted else obj["spec"]["tenant"]
        entry = column[at] if counted and column[at] != NONE else first.get(tenant, NONE)
        return tenant, models[entry] if NONE < entry < len(models) else "*"

    return row_of


def entitlements(facts: Facts) -> dict[str, float]:
    """GPUs that each tenant is entitled to by its weight: of all that are healthy, no more than it wants and may ever have by its quota and its
    cohort's, and what one leaves goes to the others."""
    cycle, of, tenants = facts.plan.pending.cycle, facts.snapshot.workloads.tenant, facts.snapshot.tenants
    column = np.where(cycle.column != NONE, cycle.column, columns_of(tenants, of, cycle.lead))
    wants = cycle.held | cycle.waits
    wants[list(cycle.spots)] = True
    wants &= column != NONE
    demand = np.zeros_like(tenants.nominal)
    np.add.at(demand, (of[wants], column[wants]), cycle.total[wants])
    may = np.minimum(demand, cycle.ledger.limits.ever()).sum(axis=1).astype(np.float64)
    share = entitled(may, tenants.weight, float(cycle.capacity.sum()))
    return {name: round(float(amount) / WHOLE, 3) for name, amount in zip(tenants.name, share.tolist(), strict=True)}


# The queue


def waiting(facts: Facts, wanted: Wanted = everything) -> Iterator[Row]:
    """Each that waits, in the order of the queue; last those that no turn helps. Those that start at the next cycle come first."""
    for decision in facts.plan.of(Verb.ADMIT, Verb.RESUME):
        obj = facts.workloads[decision.subject]
        if not wanted(obj):
            continue
        if (hold := hold_of(obj)) is not None:
            yield _waits(facts, decision.subject, 0, hold.guard, f"it could start, and is held by {hold.guard}: {hold.reason}", None)
        else:
            yield _waits(facts, decision.subject, 0, "none", f"starts now: {decision.reason}", facts.now)
    pending = facts.plan.pending
    for place in range(len(pending)):
        uid = pending.gist(place).uid  # a sentence costs more: it is made only for those that are asked about
        why = pending.why(uid) if wanted(facts.workloads[uid]) else None
        if why is not None:
            ahead = {"workloads": why.ahead_count, "gpus": why.ahead_milli / WHOLE}
            yield _waits(facts, uid, why.position, str(why.constraint), why.reason, why.estimated_start) | {"ahead": ahead}


def _waits(facts: Facts, uid: str, position: int, constraint: str, reason: str, start: float | None) -> Row:
    cycle = facts.plan.pending.cycle
    at, obj = cycle.index[uid], facts.workloads[uid]
    return {
        "position": position,
        "name": obj["metadata"]["name"],
        "namespace": obj["metadata"].get("namespace", ""),
        "tenant": obj["spec"]["tenant"],
        "phase": phase_of(obj),
        "gpus": int(cycle.total[at]) / WHOLE,
        "waitsSeconds": round(float(cycle.waited[at])),
        "constraint": constraint,
        "reason": reason,
        "startsInSeconds": None if start is None else max(round(start - facts.now), 0),
        "estimatedStart": None if start is None else format_time(start),
    }


# What was taken away, and what lies idle


def taken(facts: Facts, wanted: Wanted = everything) -> list[Row]:
    """The last decision on each workload, where that took it off its GPUs: newest first. `for` is whom it made room for."""
    found = []
    for obj in facts.workloads.values():
        last = (obj.get("status") or {}).get("decision") or {}
        if last.get("verb") in TAKEN and wanted(obj):
            other = facts.workloads.get(last.get("beneficiary", ""))
            found.append(
                {
                    "workload": title(obj),
                    "tenant": obj["spec"]["tenant"],
                    "phase": phase_of(obj),
                    "verb": last["verb"],
                    "at": last["at"],
                    "reason": last["reason"],
                    "constraint": last["constraint"],
                    "for": title(other) if other is not None and wanted(other) else "",
                    "times": obj["status"].get("suspensions", 0),
                }
            )
    return sorted(found, key=lambda row: parse_time(row["at"]), reverse=True)


def idle(facts: Facts, wanted: Wanted = everything) -> list[Row]:
    """What holds GPUs and uses next to nothing of them, those that hold most first; `since` is when the governor saw it so first, null where
    it does not count (yet)."""
    places, machines, w = facts.snapshot.places, facts.snapshot.nodes, facts.snapshot.workloads
    below = facts.policy.idle.gpu_below
    with np.errstate(invalid="ignore"):
        quiet = machines.use[places.node, places.gpu] < below
    busy = np.bincount(places.workload[~quiet], minlength=len(w)) > 0
    cycle, found = facts.plan.pending.cycle, []
    has = np.bincount(places.workload, minlength=len(w)) > 0
    for at in np.flatnonzero(cycle.held & has & ~busy).tolist():
        obj = facts.workloads[w.uid[at]]
        if phase_of(obj) == "Running" and wanted(obj):
            since = facts.plan.memory.idle.get(w.uid[at], (None,))[0]
            found.append(
                {
                    "workload": title(obj),
                    "tenant": obj["spec"]["tenant"],
                    "gpus": int(cycle.total[at]) / WHOLE,
                    "since": None if since is None else format_time(since),
                    "then": _then(facts, obj, w.uid[at]),
                }
            )
    return sorted(found, key=lambda row: (-row["gpus"], row["workload"]))


def _then(facts: Facts, obj: Object, uid: str) -> str:
    """What becomes of a workload that is idle."""
    rules, mode = facts.policy.idle, (obj["spec"].get("idle") or {}).get("mode", "Reclaim")
    if mode == "Ignore":
        return "left alone: spec.idle.mode is Ignore"
    if not rules.enabled:
        return "left alone: the policy's idle.enabled is false"
    if off := clock_off(facts, uid):
        return f"left alone: {off}, so that its readings count as old"
    keeps = mode == "Warn" or (obj["spec"].get("preemption") or {}).get("mode") == "Never"
    if uid in facts.plan.memory.warned:
        return "warned, and no more" if keeps else "warned; taken back after the grace"
    return "warned after the window" if keeps else "warned after the window, then taken back"


def clock_off(facts: Facts, uid: str) -> str:
    """The node of a workload whose clock is so wrong that readings count as old by that alone, and how wrong; empty where there is none."""
    cycle, nodes, stale = facts.plan.pending.cycle, facts.snapshot.nodes, facts.policy.idle.stale_after.total_seconds()
    for _, node, _, _ in cycle.taken_of(cycle.index[uid]) if uid in cycle.index else ():
        if is_off(skew := float(nodes.skew[node]), stale):
            return f"the clock of {nodes.name[node]} is {off_by(skew)}"
    return ""


def empty_nodes(facts: Facts) -> list[Row]:
    """Nodes that could work and have nothing to do; `since` is known of those that a pool could take back."""
    machines, alive = facts.snapshot.nodes, facts.plan.pending.cycle.alive
    used = np.zeros(len(machines), dtype=bool)
    used[facts.snapshot.places.node] = True
    found = []
    for at in np.flatnonzero(~used & alive).tolist():
        name = machines.name[at]
        since, spec = facts.plan.memory.empty.get(name), facts.nodes[name]["spec"]
        found.append(
            {
                "node": name,
                "model": spec["model"],
                "gpus": len(spec.get("gpus") or ()),
                "since": None if since is None else format_time(since),
                "costPerHour": spec.get("costPerHour", 0.0),
            }
        )
    return found


def preemptions(facts: Facts) -> Row:
    """How many there were in the last hour, and how many there may be."""
    lately = [at for at in facts.plan.memory.preemptions if facts.now - at <= 3600]
    return {"lastHour": len(lately), "perHour": facts.policy.preemption.per_hour}
