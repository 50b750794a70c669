"""Reads declared objects into snapshots. A `Reader` that is kept reads each object once, when it is put in or changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from homeostat.gpu.beats import Beats
from homeostat.gpu.columns import (
    Object,
    bools,
    check,
    floats,
    is_deleted,
    read_nodes,
    read_pools,
    read_tenants,
    refusal_of,
    row_of,
    time_of,
)
from homeostat.gpu.decisions import Verb
from homeostat.gpu.kinds import WHOLE, NodeStage
from homeostat.gpu.membership import got_by, pool_of
from homeostat.gpu.snapshot import (
    ANY_MODEL,
    DEPARTING,
    NONE,
    NOT_ALLOWED,
    WORKLOAD,
    Health,
    Ints,
    Missing,
    Nodes,
    Phase,
    Places,
    Pools,
    Reclaim,
    Refusal,
    Snapshot,
    Tenants,
    Workloads,
    canonical,
)

_ENDED = ("Succeeded", "Failed")
_HOLDING = ("Starting", "Running", "Suspending")
_SUBMITTED = (WORKLOAD.names or ()).index("submitted")
_MODELS_MOST = 63
"""How many can be told apart: a bit each."""


class Reader:
    """All objects, as they were put in. Kinds: Tenant, GpuNode, NodePool, Workload, and Lease for the nodes' heartbeats.

    `listens`: it is told of every change, and need not believe the clocks of agents.
    """

    def __init__(self, *, listens: bool = False) -> None:
        self._tenants: dict[str, Object] = {}
        self._nodes: dict[str, Object] = {}
        self._pools: dict[str, Object] = {}
        self._beats = Beats(listens)
        self._rows: NDArray[np.void] = np.zeros(64, dtype=WORKLOAD)
        self._slots: dict[str, int] = {}
        self._vacant: list[int] = []
        self._texts: list[tuple[str, str, str, tuple[str, ...]]] = []
        """By slot: uid, namespace/name, tenant, models."""
        self._uids: NDArray[np.object_] = np.empty(64, dtype=object)
        self._names: NDArray[np.object_] = np.empty(64, dtype=object)
        self._assigned: dict[int, Ints] = {}
        """By slot: rows of replica, node, gpu, milli. Nodes are numbered in the order in which they were first named."""
        self._numbers: dict[str, int] = {}
        self._refusals: dict[str, Refusal] = {}
        self._reclaims: dict[str, Reclaim] = {}
        self._placed_for: dict[int, str] = {}
        """By slot, of those that hold GPUs: the tenant for whom they were placed, where that was written down."""
        self._astray: dict[str, str] = {}
        self._unresolved: set[int] = set()
        """Slots whose tenant and models are still names."""
        self._order: Ints = np.zeros(0, dtype=np.int64)
        """The slots of all workloads by submission and uid, as of the last snapshot."""
        self._moved: set[int] = set()
        """Slots that have come, gone or changed their place in it since."""
        self._quiet: tuple[list[str], Tenants, Pools] | None = None
        """What comes of tenants and pools, as long as none of them changes and no new model is named."""
        self._machines: Nodes | None = None
        self._reported: set[str] = set()
        """Nodes whose status changed since, and nothing else."""

    def put(self, obj: Object) -> None:
        """Adds an object, or takes note of its change. Of other kinds nothing is kept. Raises where it cannot be read: then nothing has changed."""
        kind, name = obj.get("kind"), obj["metadata"]["name"]
        if kind == "Workload":
            self._put_workload(obj)
        elif kind == "Lease":
            self._beats.put(obj)
        elif kind == "GpuNode" and (obj.get("status") or {}).get("stage") == NodeStage.GIVING_BACK:
            self.remove(obj)  # nothing is on it, and nothing will be
        elif (shelf := self._shelf(kind)) is not None:
            if (before := shelf.get(name)) is None or before["spec"] != obj["spec"]:
                check(obj)  # one that cannot be read stays as it was before, and holds up no other
            shelf[name] = obj
            self._stir(kind, before, obj)

    def remove(self, obj: Object) -> None:
        """Forgets an object."""
        kind, name = obj.get("kind"), obj["metadata"]["name"]
        if kind == "Workload":
            self._drop(obj["metadata"]["uid"])
        elif kind == "Lease":
            if name not in self._nodes:  # else somebody deleted it: its agent makes it again, or runs out of the time that it had
                self._beats.remove(name)
        elif (shelf := self._shelf(kind)) is not None:
            shelf.pop(name, None)
            self._quiet = self._machines = None

    def heard(self, node: str, now: float) -> tuple[float, float]:
        """When a node was last heard of by its lease, and for how long that holds."""
        return self._beats.at(now, [(node, math.nan)])[0]

    def snapshot(self, now: float) -> Snapshot:
        """All of it at this moment."""
        if self._quiet is None:
            self._quiet = self._read_quiet()
            self._unresolved = set(self._slots.values())
            self._machines = None
        models, tenants, pools = self._quiet
        if self._machines is None:
            index = {name: at for at, name in enumerate(models)}
            at, got = {name: at for at, name in enumerate(pools.name)}, got_by(self._pools.values())
            of = {name: pool_of(node, got) for name, node in self._nodes.items()}
            given = bools(of[name] in got.get(name, ()) for name in sorted(of))
            machines = read_nodes([self._nodes[name] for name in sorted(self._nodes)], index, {name: at.get(pool, NONE) for name, pool in of.items()})
            self._machines = _with(machines, given=given)
        elif self._reported:
            self._machines = self._renewed(self._machines, models)
        self._reported.clear()
        nodes = self._machines
        beats = self._beats.at(now, zip(nodes.name, nodes.reported.tolist(), strict=True))
        heard, lease = floats(heard for heard, _ in beats), floats(lease for _, lease in beats)
        nodes = _with(nodes, heard=heard, lease=lease, skew=floats(map(self._beats.skew, nodes.name)))
        self._resolve(models, tenants)
        if self._moved:
            self._order = self._in_order()
            self._moved.clear()
        slots = self._order
        rows, uids, names = self._rows[slots], self._uids[slots].tolist(), self._names[slots].tolist()
        runs = (rows["phase"] >= Phase.STARTING) & (rows["phase"] <= Phase.SUSPENDING)
        rows["started"] = np.where(runs & np.isnan(rows["started"]), now, rows["started"])
        with np.errstate(invalid="ignore"):
            rows["ran"] = np.where(runs, np.maximum(rows["ran"], now - rows["started"]), rows["ran"])
        places, missing = self._places(slots, nodes, now)
        departing = frozenset(name for name, obj in self._tenants.items() if is_deleted(obj))
        every = Workloads.of(rows, uids, names)
        refusals, astray, reclaims = dict(self._refusals), dict(self._astray), dict(self._reclaims)
        return Snapshot(now, models, every, places, nodes, tenants, pools, missing, refusals, astray, departing, reclaims)

    def _in_order(self) -> Ints:
        """The slots of all workloads by submission and uid: what moved is put in where it belongs, all else stays as it was."""
        moved = np.zeros(len(self._rows), dtype=bool)
        moved[list(self._moved)] = True
        kept, submitted = self._order[~moved[self._order]], self._rows["submitted"]
        come = np.array([slot for slot in self._moved if self._slots.get(self._texts[slot][0]) == slot], dtype=np.int64)
        come = come[canonical(submitted[come], self._uids[come].tolist())]
        at = np.searchsorted(submitted[kept], submitted[come])
        tied = len(kept) > 0 and bool((submitted[kept][np.minimum(at, len(kept) - 1)] == submitted[come]).any())
        if tied:  # of those that came in the same instant the uid decides
            every = np.concatenate((kept, come))
            return every[canonical(submitted[every], self._uids[every].tolist())]
        return np.insert(kept, at, come)

    def _renewed(self, nodes: Nodes, models: list[str]) -> Nodes:
        """The nodes with what was reported of some of them."""
        names = sorted(self._reported)
        at = np.searchsorted(np.array(nodes.name), names)
        part = read_nodes([self._nodes[name] for name in names], {name: number for number, name in enumerate(models)}, {})
        wide = slice(0, part.health.shape[1])
        changed: dict[str, Any] = {}
        for field in ("health", "use", "traffic", "busy_cores", "cordoned", "drain", "heard", "reported", "trouble", "flaps"):
            changed[field] = getattr(nodes, field).copy()
            changed[field][(at, wide) if changed[field].ndim > 1 else at] = getattr(part, field)
        return _with(nodes, **changed)

    def _stir(self, kind: str | None, before: Object | None, obj: Object) -> None:
        """Forgets what no longer holds. Nodes report all the time: of them only themselves are read again."""
        if kind == "GpuNode" and before is not None and self._machines is not None and before["spec"] == obj["spec"]:
            self._reported.add(obj["metadata"]["name"])
            return
        self._machines = None
        if kind != "GpuNode" or self._quiet is None or obj["spec"]["model"] not in self._quiet[0]:
            self._quiet = None

    def _shelf(self, kind: str | None) -> dict[str, Object] | None:
        return {"Tenant": self._tenants, "GpuNode": self._nodes, "NodePool": self._pools}.get(kind or "")

    # workloads

    def _put_workload(self, obj: Object) -> None:
        meta, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
        uid = meta["uid"]
        if status.get("phase") in _ENDED or (meta.get("deletionTimestamp") and not status.get("assignment")):
            self._drop(uid)
            return
        slot, row = self._slots.get(uid), row_of(meta, spec, status)  # one that cannot be read takes no slot
        if slot is None:
            slot = self._slots[uid] = self._vacant.pop() if self._vacant else len(self._texts)
            if slot == len(self._texts):
                self._texts.append(("", "", "", ()))
            if slot >= len(self._rows):
                self._rows = np.concatenate((self._rows, np.zeros_like(self._rows)))
                self._uids, self._names = (np.concatenate((one, np.empty_like(one))) for one in (self._uids, self._names))
            self._moved.add(slot)
        models = tuple(spec.get("resources", {}).get("models") or ())
        self._unresolved.add(slot)
        name = f"{meta.get('namespace', '')}/{meta['name']}".lstrip("/")
        self._texts[slot] = (uid, name, spec["tenant"], models)
        self._uids[slot], self._names[slot] = uid, name
        if status.get("assignment"):
            self._assigned[slot] = self._rows_of(status["assignment"])
        else:
            self._assigned.pop(slot, None)
        if status.get("assignment") and status.get("phase") in _HOLDING:
            self._placed_for[slot] = status.get("tenant", "")
        else:
            self._placed_for.pop(slot, None)
        if (refusal := refusal_of(status)) is not None:
            self._refusals[uid] = refusal
        else:
            self._refusals.pop(uid, None)
        if status.get("reclaims"):
            said = status.get("decision") or {}
            self._reclaims[uid] = Reclaim(status["reclaims"], time_of(said.get("at") if said.get("verb") == Verb.RECLAIM else None))
        else:
            self._reclaims.pop(uid, None)
        if row[_SUBMITTED] != self._rows["submitted"][slot]:
            self._moved.add(slot)
        self._rows[slot] = row
        if self._quiet is not None and len(self._quiet[0]) < _MODELS_MOST and not set(models) <= set(self._quiet[0]):
            self._quiet = None

    def _drop(self, uid: str) -> None:
        slot = self._slots.pop(uid, None)
        if slot is not None:
            self._assigned.pop(slot, None)
            self._refusals.pop(uid, None)
            self._reclaims.pop(uid, None)
            self._placed_for.pop(slot, None)
            self._astray.pop(uid, None)
            self._unresolved.discard(slot)
            self._vacant.append(slot)
            self._moved.add(slot)

    def _resolve(self, models: list[str], tenants: Tenants) -> None:
        """Turns names of tenants and models into indexes and bits, in those that changed."""
        bits = {name: 1 << at for at, name in enumerate(models)}
        masks: dict[tuple[str, ...], int] = {(): ANY_MODEL}
        index = {name: at for at, name in enumerate(tenants.name)}
        found: dict[tuple[str, str], int] = {}
        mask_of, tenant_of = [], []
        slots = list(self._unresolved)
        for slot in slots:
            uid, name, tenant, wanted = self._texts[slot]
            self._astray.pop(uid, None)
            if wanted not in masks:
                masks[wanted] = sum(bits.get(model, 0) for model in set(wanted))
            mask_of.append(masks[wanted])
            key = (tenant, name.partition("/")[0])
            if key not in found:
                found[key] = NONE if tenant not in index else self._counts_for(*key, index[tenant])
            tenant_of.append(found[key] if found[key] >= 0 else self._stand_in(slot, found[key], index))
        self._rows["models"][slots], self._rows["tenant"][slots] = mask_of, tenant_of
        self._unresolved.clear()

    def _stand_in(self, slot: int, unknown: int, index: dict[str, int]) -> int:
        """The tenant that one counts for which names none that it may use, or one that is being deleted: while it holds GPUs, the one that it was
        placed for."""
        if slot not in self._placed_for:
            return unknown
        found = index.get(self._placed_for[slot] or (self._texts[slot][2] if unknown == DEPARTING else ""))
        if found is None:
            return unknown
        self._astray[self._texts[slot][0]] = self._texts[slot][2]
        return found

    def _counts_for(self, tenant: str, namespace: str, at: int) -> int:
        """What a workload of a namespace that names a tenant (`at`) counts for: that, or why it may not start."""
        declared = self._tenants[tenant]
        if namespace not in (declared["spec"].get("namespaces") or (tenant,)):
            return NOT_ALLOWED
        return DEPARTING if is_deleted(declared) else at

    def _rows_of(self, assignment: Sequence[Object]) -> Ints:
        numbers, rows = self._numbers, []
        for place in assignment:
            node, each = numbers.setdefault(place["node"], len(numbers)), place.get("milli", WHOLE)
            rows += [(place["replica"], node, gpu, each) for gpu in place.get("gpus", ())]
        return np.array(rows, dtype=np.int64).reshape(-1, 4)

    def _places(self, slots: Ints, nodes: Nodes, now: float) -> tuple[Places, Missing]:
        """What is held, in the order of workloads; and what of it lies on nodes or GPUs that nobody declares."""
        if not self._assigned:
            return Places.of([]), Missing.none()
        position = np.zeros(len(self._rows), dtype=np.int64)
        position[slots] = np.arange(len(slots))
        held = np.fromiter(self._assigned, dtype=np.int64, count=len(self._assigned))
        held = held[np.argsort(position[held])]
        parts = [self._assigned[slot] for slot in held.tolist()]
        table, owner = np.concatenate(parts), np.repeat(position[held], [len(part) for part in parts])
        index = {name: at for at, name in enumerate(nodes.name)}
        there = np.array([index.get(name, NONE) for name in self._numbers], dtype=np.int64)
        node = there[table[:, 1]]
        rows = np.column_stack((owner, table[:, 0], node, table[:, 2], table[:, 3]))
        known = (node != NONE) & (table[:, 2] < nodes.health.shape[1])
        found, lacks = rows[known], ~known
        lacks[known] = (nodes.health[found[:, 2], found[:, 3]] == Health.ABSENT) & (found[:, 4] > 0)
        return Places.of(found), self._missing(rows[lacks], table[lacks, 1], now) if lacks.any() else Missing.none()

    def _missing(self, rows: Ints, number: Ints, now: float) -> Missing:
        names = list(self._numbers)
        named = [names[at] for at in number.tolist()]
        beats = [self.heard(name, now) if node == NONE else (math.nan, 0.0) for name, node in zip(named, rows[:, 2].tolist(), strict=True)]
        return Missing(rows[:, 0], named, rows[:, 3], floats(heard for heard, _ in beats), floats(lease for _, lease in beats))

    # tenants, nodes, pools

    def _read_quiet(self) -> tuple[list[str], Tenants, Pools]:
        pools = [self._pools[name] for name in sorted(self._pools)]
        tenants = [self._tenants[name] for name in sorted(self._tenants)]
        models = {obj["spec"]["model"] for obj in (*self._nodes.values(), *pools)}
        if len(models) > _MODELS_MOST:
            raise ValueError(f"nodes and pools have {len(models)} models of GPUs, and {_MODELS_MOST} can be told apart")
        quotas = {quota["model"] for obj in tenants for quota in obj["spec"].get("quotas") or ()} - {"*"}
        wished = {model for slot in self._slots.values() for model in self._texts[slot][3]}
        for named in (quotas, wished):  # of those that nobody has, one is as good as another
            models.update(sorted(named - models)[: _MODELS_MOST - len(models)])
        names = sorted(models)
        index = {name: at for at, name in enumerate(names)}
        return names, read_tenants(tenants, index), read_pools(pools, index)


def _with(nodes: Nodes, **changed: Any) -> Nodes:
    return Nodes(**{name: changed.get(name, getattr(nodes, name)) for name in Nodes.__struct_fields__})
