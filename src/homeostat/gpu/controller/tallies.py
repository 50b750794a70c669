"""How tenants, pools and nodes stand, counted from a snapshot and a plan."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np

from homeostat.gpu.cycle import HOUR
from homeostat.gpu.decisions import Constraint, Plan, Verb
from homeostat.gpu.explain import standings
from homeostat.gpu.kinds import TENANT, WHOLE, WORKLOAD, share_text
from homeostat.gpu.policies.budget import rounded
from homeostat.gpu.snapshot import NONE, Floats, Health, Phase, Snapshot, on_gpus
from homeostat.model.clock import format_time
from homeostat.model.conditions import set_condition
from homeostat.model.kinds import format_duration

Object = dict[str, Any]

STEPS = ((86_400, 3_600), (3_600, 600), (0, 60))
"""From so many seconds on, a wait is told in steps of so many."""


class Tally:
    """What adds up over time: what tenants cost, and promises to them that were not kept."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._before: dict[str, tuple[str, float, int]] = {}  # the uid of each, and what its status said when it was first seen
        self._cost: dict[str, float] = {}
        self._misses: dict[str, int] = {}

    def since(self, name: str, tenant: Mapping[str, Any]) -> Object:
        """All that came together since the tenant was made, with what its status says from before a restart. Another of the same name begins anew."""
        uid, status = (tenant.get("metadata") or {}).get("uid", ""), tenant.get("status") or {}
        if self._before.get(name, (uid,))[0] != uid:
            del self._before[name]
            self._cost.pop(name, None)
            self._misses.pop(name, None)
        _, cost, misses = self._before.setdefault(name, (uid, status.get("cost", 0.0), status.get("slaMisses", 0)))
        return {"cost": round(cost + self._cost.get(name, 0.0), 4), "slaMisses": misses + self._misses.get(name, 0)}

    def count(self, snapshot: Snapshot, plan: Plan) -> None:
        """Adds what came since the last time."""
        hours = 0.0 if self._at is None else max(snapshot.now - self._at, 0.0) / HOUR
        self._at = snapshot.now
        for at in np.flatnonzero(rates := _cost_rates(snapshot)).tolist():
            name = snapshot.tenants.name[at]
            self._cost[name] = self._cost.get(name, 0.0) + float(rates[at]) * hours
        missed = [one for one in plan.of(Verb.REPORT) if one.constraint is Constraint.SLA]
        uids = {one.subject for one in missed if one.kind == WORKLOAD.kind}
        w = snapshot.workloads
        owners = {uid: int(w.tenant[at]) for at, uid in enumerate(w.uid) if uid in uids} if uids else {}
        for one in missed:
            if one.kind == WORKLOAD.kind and owners[one.subject] < 0:
                continue  # of no tenant that there is
            self.miss(one.subject if one.kind == TENANT.kind else snapshot.tenants.name[owners[one.subject]])

    def miss(self, tenant: str) -> None:
        """Counts a promise that was not kept."""
        self._misses[tenant] = self._misses.get(tenant, 0) + 1


def _cost_rates(snapshot: Snapshot) -> Floats:
    """What the GPUs that each tenant holds cost an hour."""
    w, places, there = snapshot.workloads, snapshot.places, snapshot.nodes
    each = there.cost / np.maximum((there.health < Health.ABSENT).sum(axis=1), 1)
    owner = w.tenant[places.workload]
    rows = (owner >= 0) & on_gpus(snapshot)[places.workload]
    weights = each[places.node[rows]] * places.milli[rows] / WHOLE
    return np.asarray(np.bincount(owner[rows], weights=weights, minlength=len(snapshot.tenants)), dtype=np.float64)


def tenants(snapshot: Snapshot, plan: Plan, tally: Tally, declared: Mapping[str, Object]) -> dict[str, Object]:
    """How each tenant stands, by name."""
    w, there, count = snapshot.workloads, snapshot.tenants, len(snapshot.tenants)
    known, waits = w.tenant >= 0, (w.phase == Phase.PENDING) | (w.phase == Phase.SUSPENDED)
    by = {
        name: np.bincount(w.tenant[known & which], minlength=count)
        for name, which in (("pending", w.phase == Phase.PENDING), ("running", on_gpus(snapshot)), ("suspended", w.phase == Phase.SUSPENDED))
    }
    since = np.full(count, np.inf)
    np.minimum.at(since, w.tenant[known & waits], w.since[known & waits])
    share = plan.pending.cycle.share
    found: dict[str, Object] = {}
    for at, name in enumerate(there.name):
        found[name] = {
            "used": "0",
            "usage": [],
            **{word: int(counts[at]) for word, counts in by.items()},
            "dominantShare": round(float(share[at]), 3) if at < len(share) else 0.0,
            "oldestWait": format_duration(timedelta(seconds=_step(snapshot.now - since[at]))),
            **tally.since(name, declared.get(name) or {}),
        }
        if name in plan.memory.spent:
            found[name]["gpuHours"] = rounded(plan.memory.spent[name][1], float(there.budget[at]))
    total = dict.fromkeys(there.name, 0)
    for one in standings(plan.pending.cycle):
        total[one.tenant] += one.used
        amounts = {word: share_text(getattr(one, word)) for word in ("nominal", "used", "borrowed", "lent")}
        found[one.tenant]["usage"].append({"model": one.model, **amounts})
    for name, used in total.items():
        found[name]["used"] = share_text(used)
    for at, name in enumerate(there.name):
        _mark(found[name], plan, snapshot, at, declared.get(name))
    return found


def _step(seconds: float) -> int:
    if not np.isfinite(seconds) or seconds <= 0:
        return 0
    return next(int(seconds // step * step) for above, step in STEPS if seconds >= above)


def _mark(said: Object, plan: Plan, snapshot: Snapshot, at: int, declared: Object | None) -> None:
    """The conditions of a tenant: whether the share of time that was promised is kept, and what it is still held for once it was deleted."""
    name, target = snapshot.tenants.name[at], float(snapshot.tenants.share_of_time[at])
    served, leaves = plan.memory.served.get(name), name in snapshot.departing
    if declared is None or not (leaves or (target > 0 and served is not None)):
        return
    obj: Object = {"status": {"conditions": [dict(one) for one in (declared.get("status") or {}).get("conditions") or ()]}}
    now, generation = format_time(snapshot.now), declared["metadata"].get("generation")
    if target > 0 and served is not None:
        kept = served >= target
        message = f"all that it wanted within its quota ran for {'at least' if kept else 'less than'} {target:.0%} of the last day"
        set_condition(obj, "SlaMet", str(kept), now=now, reason="Served" if kept else "SlaMissed", message=message, observed_generation=generation)
    if leaves:
        message = f"nothing more of it starts; it goes when nothing of it holds GPUs, and {said['running']} of its workloads hold {said['used']}"
        set_condition(obj, "Deleting", "True", now=now, reason="HoldsGpus", message=message, observed_generation=generation)
    said["conditions"] = obj["status"]["conditions"]


def pools(snapshot: Snapshot) -> dict[str, Object]:
    """How many nodes each pool has, by name."""
    count, mine = len(snapshot.pools), snapshot.nodes.pool != NONE
    there = np.bincount(snapshot.nodes.pool[mine], minlength=count)
    return {name: {"nodes": int(there[at])} for at, name in enumerate(snapshot.pools.name)}


def nodes(snapshot: Snapshot) -> dict[str, Object]:
    """How much of each node is taken, by name. Who has it is told by its agent, by GPU."""
    places, there = snapshot.places, snapshot.nodes
    rows = on_gpus(snapshot)[places.workload]
    taken = np.bincount(places.node[rows], weights=places.milli[rows], minlength=len(there)).astype(np.int64)
    return {name: {"allocated": share_text(int(taken[at]))} for at, name in enumerate(there.name)}
