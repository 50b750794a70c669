"""Who sees everything in the hall: what is stored, and what really runs on which GPU. It notes at once what never may be.

It looks at the store's own log and at the machines, never at what the governor, the loop or an agent believes.

- *No GPU is over-committed*, neither by what really runs on it (shares and memory) nor by what is promised in the store.
- *A gang is whole.* It is placed whole, no replica starts but by a placement of the whole gang, and none runs for long without the others.
- *Nobody is admitted beyond its quota* and what its cohort lends, as they stood within the last moments, or for a tenant that was deleted; and
  no tenant goes while work of it holds GPUs.
- *Nobody is taken off* before its minimum runtime, more often than the budgets of preemptions allow, or together with more others than
  a wave may have.
- *Words are true.* Running was on its GPUs, suspended is off them, succeeded did its work, failed did fail; nothing is lost, and nothing
  runs twice unless its first machine had not been heard of for as long as its lease, when it was placed anew or when what that machine
  had reported of it was taken back.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from homeostat.gpu.kinds import WHOLE
from homeostat.loop.election import NAMESPACE
from homeostat.model.clock import parse_time
from homeostat.sim.gpu.entitled import Right, beyond, right_of, widest
from homeostat.sim.gpu.machine import MEMORY_MIB, Machine, Process
from homeostat.sim.loop import EPOCH
from homeostat.store import Event

if TYPE_CHECKING:
    from homeostat.sim.gpu.agents import Station

GROUP = "gpu.homeostat.dev"
WORKLOADS, TENANTS, NODES, LEASES = (
    f"workloads.{GROUP}",
    f"tenants.{GROUP}",
    f"gpunodes.{GROUP}",
    "leases.coordination.k8s.io",
)
LEASE_SECONDS = 40.0
ROUNDING = 2.0
"""Times are stored in whole seconds, and a heart's beat is on its way for a moment."""
HOUR, DAY = 3600.0, 86_400.0
HOLDING = ("Starting", "Running", "Suspending")
_KEEPS_MINIMUM = ("quota", "priority", "fair-share", "sla", "time-sharing", "budget", "drain")

Object = dict[str, Any]


class Limits(msgspec.Struct):
    """What a storm holds the governor to."""

    per_hour: int = 60
    per_workload: int = 3
    cap: int | None = None
    """Of a wave; None: a tenth of what runs, at least 1."""
    stale: float = 5.0
    """How old, in seconds, what the governor goes by may be at most."""
    on_its_way: float = 0.0
    """How long, in seconds, a write of the governor may be on its way after it last looked whether a machine is still lost."""
    waves: bool = True
    """Whether the loop can know of each of its writes whether it was made: else it cannot count them either."""


class GpuWitness:
    """One for a hall. `objects` is what is stored, by kind and name."""

    def __init__(self, stations: Mapping[str, Station]) -> None:
        self.wrongs: list[str] = []
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in (WORKLOADS, TENANTS, NODES, LEASES)}
        self.revision = 0
        self.written: list[Event] | None = None
        """What is stored from now on, where somebody wants to know."""
        self.limits = Limits()
        self.starts = self.preemptions = self.suspensions = 0
        self._stations = stations
        self._digest = hashlib.sha256()
        self._beats: dict[str, list[float]] = {}  # of nodes: when their leases were renewed
        self._rights: dict[str, list[tuple[float, Right]]] = {}  # of tenants: since when they may use what
        self._departed: dict[str, float] = {}  # of tenants: since when they are deleted
        self._placed: dict[str, list[tuple[float, dict[int, Object]]]] = {}  # by uid: placements of the whole gang, since when
        self._ran: dict[str, set[tuple[int, str]]] = {}  # by uid: replicas and nodes that were on their GPUs since the placement
        self._taken_back: dict[str, dict[tuple[int, str], float]] = {}  # by uid, replica and node: since when it is no longer said to run there
        self._ended: dict[str, dict[int, list[int]]] = {}  # by uid and replica: how processes ended
        self._preempted: list[tuple[float, str]] = []
        self._leaving: set[str] = set()  # taken off by the loop that lives, and not yet gone
        self._deleted: set[str] = set()  # people said so

    @property
    def trace(self) -> str:
        """The same for every run of the same seed: a digest of all that was ever stored and done."""
        return self._digest.hexdigest()[:12]

    def wrong(self, what: str) -> None:
        """Notes that something happened that never may."""
        self.wrongs.append(f"at {_now():.3f}: {what}")

    def withdrawn(self, name: str) -> None:
        """A person is about to delete a workload."""
        if (obj := self.objects[WORKLOADS].get(name)) is not None:
            self._deleted.add(obj["metadata"]["uid"])

    def started(self) -> None:
        """A new loop begins, and knows nothing."""
        self._leaving.clear()

    # What is stored

    def stored(self, events: Sequence[Event], revision: int) -> None:
        """Told of every commit, in order."""
        self.revision = revision
        for station in self._stations.values():
            station.machine.revision = revision
        if self.written is not None:
            self.written += events
        for event in events:
            self._digest.update(b"%d %s\n" % (event.revision, event.key.encode()) + (event.value or b""))
            kind, _, rest = event.key.partition("/")
            known = self.objects.get(kind)
            if known is None:
                continue
            name = rest.rpartition("/")[2]
            before = known.pop(name, None)
            obj: Object | None = orjson.loads(event.value) if event.value is not None else None
            if obj is not None:
                known[name] = obj
            if kind == WORKLOADS:
                self._workload(before, obj)
            elif kind == TENANTS:
                self._tenant(name, obj)
            elif kind == LEASES and obj is not None and rest.startswith(NAMESPACE):
                self._beats.setdefault(name, []).append(_now())

    def _tenant(self, name: str, obj: Object | None) -> None:
        if obj is None:
            for one in self.objects[WORKLOADS].values():
                places = _status(one).get("assignment") or ()
                holds = _status(one).get("phase") in HOLDING and places and not any(self.lately_silent(place["node"]) for place in places)
                if holds and _status(one).get("tenant") == name:
                    self.wrong(f"the tenant {name} is gone, and {one['metadata']['name']} of it holds GPUs")
        else:
            self._rights.setdefault(name, []).append((_now(), right_of(obj)))
        if obj is not None and not obj["metadata"].get("deletionTimestamp"):
            self._departed.pop(name, None)
        else:
            self._departed.setdefault(name, _now())

    def _workload(self, before: Object | None, obj: Object | None) -> None:
        if obj is None:
            assert before is not None
            self._gone(before)
            return
        if before is not None and before["metadata"]["uid"] != obj["metadata"]["uid"]:
            before = None
        uid = obj["metadata"]["uid"]
        was, now = _status(before), _status(obj)
        if now.get("assignment") and now["assignment"] != was.get("assignment"):
            self._placing(before, obj)
        if (now.get("decision"), now.get("assignment")) != (was.get("decision"), was.get("assignment")):
            self._acted(before or {}, obj)
        if was.get("phase") != now.get("phase"):
            self._said(obj, was)
        if now.get("phase") != "Suspending":
            self._leaving.discard(uid)
        said = _at_work(now)
        back = self._taken_back.setdefault(uid, {})
        self._taken_back[uid] = {one: at for one, at in (back | dict.fromkeys(_at_work(was) - said, _now())).items() if one not in said}

    def _gone(self, before: Object) -> None:
        uid, name = before["metadata"]["uid"], before["metadata"]["name"]
        if uid not in self._deleted:
            self.wrong(f"{name} is lost: nobody deleted it")
        for machine, process in self._processes(uid):
            known = any(one["node"] == machine.name and one.get("pid") == process.pid for one in _status(before).get("reports") or ())
            if known and process.status is None and not self.silent(machine.name):
                self.wrong(f"{name} is no more, and pid {process.pid} of it lives on {machine.name}, as was reported")

    def _placing(self, before: Object | None, obj: Object) -> None:
        """A gang is placed: whole, on GPUs that nobody else was promised, and within the quota."""
        name, uid, status = obj["metadata"]["name"], obj["metadata"]["uid"], _status(obj)
        places = status["assignment"]
        if sorted(place["replica"] for place in places) != list(range(_replicas(obj))):
            self.wrong(f"{name} has {_replicas(obj)} replicas, and places for {[place['replica'] for place in places]}")
        self._placed.setdefault(uid, []).append((_now(), {place["replica"]: place for place in places}))
        self._ran[uid] = {(p.replica, m.name) for m, p in self._processes(uid) if p.status is None and p.on_gpu}
        promised, used = self._promises()
        for place in places:
            for gpu in place["gpus"]:
                if promised[place["node"], gpu] > WHOLE:
                    self.wrong(f"{name} gets GPU {gpu} of {place['node']}, of which {promised[place['node'], gpu]} are promised")
        if _status(before).get("phase") not in HOLDING:
            tenant = obj["spec"]["tenant"]
            since = _now() - self._departed.get(tenant, _now())
            if since > self.limits.stale + self.limits.on_its_way:
                self.wrong(f"{name} is admitted, and its tenant {tenant} was deleted {since:.0f} s ago")
            if why := beyond(tenant, used, {one: self._widest(one) for one in self._rights}):
                self.wrong(f"{name} is admitted, and {why}")

    def _promises(self) -> tuple[Counter[tuple[str, int]], Counter[str]]:
        """How much of each GPU is promised, and to each tenant. What was on a lost machine is to go on elsewhere, and holds nothing."""
        promised: Counter[tuple[str, int]] = Counter()
        used: Counter[str] = Counter()
        for obj in self.objects[WORKLOADS].values():
            status = _status(obj)
            places = status.get("assignment") or ()
            if status.get("phase") not in HOLDING or any(self.lately_silent(place["node"]) for place in places):
                continue
            for place in places:
                used[obj["spec"]["tenant"]] += len(place["gpus"]) * place.get("milli", WHOLE)
                for gpu in place["gpus"]:
                    promised[place["node"], gpu] += place.get("milli", WHOLE)
        return promised, used

    def _widest(self, tenant: str) -> Right:
        history = self._rights[tenant]
        since = _now() - self.limits.stale
        return widest(right for i, (_, right) in enumerate(history) if i + 1 == len(history) or history[i + 1][0] >= since)

    def _acted(self, before: Object, obj: Object) -> None:
        """The governor had something done."""
        uid, name, was, now = obj["metadata"]["uid"], obj["metadata"]["name"], _status(before), _status(obj)
        if was.get("phase") not in ("Starting", "Running"):
            return
        if any(self.lately_silent(place["node"]) for place in was.get("assignment") or ()):
            return
        decision = now.get("decision") or {}
        if decision.get("verb") == "preempt":
            self._count_preemption(uid, name)
        minimum = _seconds(obj["spec"].get("minimumRuntime"))
        ran = EPOCH + _now() - parse_time(was["startedAt"]) if was.get("startedAt") else minimum
        if decision.get("constraint") in _KEEPS_MINIMUM and ran < minimum - ROUNDING:
            self.wrong(f"{name} is taken off after {ran:.0f} s of its {minimum:.0f}: {now.get('reason')}")
        if uid not in self._deleted:
            self._count_leaving(uid, name)

    def _count_preemption(self, uid: str, name: str) -> None:
        now, limits = _now(), self.limits
        self.preemptions += 1
        self._preempted.append((now, uid))
        lately = sum(at > now - HOUR + ROUNDING for at, _ in self._preempted)
        mine = sum(at > now - DAY and one == uid for at, one in self._preempted)
        if lately > limits.per_hour:
            self.wrong(f"{name} is preempted, as the {lately}th within an hour; {limits.per_hour} may be")
        if mine > limits.per_workload:
            self.wrong(f"{name} is preempted for the {mine}th time today; {limits.per_workload} times are allowed")

    def _count_leaving(self, uid: str, name: str) -> None:
        self.suspensions += 1
        still = {one for one in self._leaving if any(p.on_gpu and not self.silent(m.name) for m, p in self._processes(one))}
        self._leaving = still | {uid}  # what is on a lost node is not waited for
        runs = sum(_status(one).get("phase") in HOLDING for one in self.objects[WORKLOADS].values())
        cap = self.limits.cap or max(1, runs // 10)
        if self.limits.waves and len(self._leaving) > cap:
            self.wrong(f"{name} is taken off while {len(self._leaving) - 1} others have not left; a wave of {runs} is {cap}")

    def _said(self, obj: Object, was: Mapping[str, Any]) -> None:
        """A word on how a workload stands: it has to be true."""
        uid, name, status = obj["metadata"]["uid"], obj["metadata"]["name"], _status(obj)
        phase = status.get("phase")
        if phase == "Running":
            wanted = {(place["replica"], place["node"]) for place in status.get("assignment") or ()}
            if missing := wanted - self._ran.get(uid, set()) - {(r, n) for r, n in wanted if self._exits(uid, r)}:
                self.wrong(f"{name} is said to run, and {sorted(missing)} never did since it was placed")
        elif phase == "Suspended":
            for machine, process in self._processes(uid):
                if process.on_gpu and process.status is None and not self.lately_silent(machine.name):
                    self.wrong(f"{name} is said to be suspended, and runs on {process.gpus} of {machine.name}")
        elif phase == "Succeeded":
            if lazy := [r for r in range(_replicas(obj)) if 0 not in self._ended.get(uid, {}).get(r, ())]:
                self.wrong(f"{name} is said to have succeeded, and replicas {lazy} did not do their work")
        elif phase == "Failed" and (status.get("decision") or {}).get("verb") != "end":
            codes = {code for replica in self._ended.get(uid, {}).values() for code in replica}
            if not codes - {0}:
                self.wrong(f"{name} is said to have failed, and no process of it did: {status.get('reason')}")

    def _exits(self, uid: str, replica: int) -> bool:
        return 0 in self._ended.get(uid, {}).get(replica, ())

    # What really happens

    def changed(self, machine: Machine, process: Process, what: str) -> None:
        """Told of everything that processes do."""
        self._digest.update(f"{_now():.3f} {machine.name} {process.uid} {process.replica} {what} {process.status}\n".encode())
        if what == "ends":
            if process.status is not None:
                self._ended.setdefault(process.uid, {}).setdefault(process.replica, []).append(process.status)
            return
        if not process.on_gpu:
            return
        self.starts += 1
        self._ran.setdefault(process.uid, set()).add((process.replica, machine.name))
        self._check_room(machine, process)
        self._check_placed(machine, process, what)
        self._check_alone(machine, process, what)

    def _check_room(self, machine: Machine, process: Process) -> None:
        for gpu in process.gpus:
            there = [one for one in machine.on_gpus() if gpu in one.gpus]
            share, memory = sum(one.milli for one in there), sum(one.memory_mib for one in there)
            if share > WHOLE or memory > MEMORY_MIB:
                who = sorted(f"{self.name_of(one.uid)}/{one.replica}" for one in there)
                self.wrong(f"GPU {gpu} of {machine.name} is over-committed by {who}: {share} thousandths, {memory} MiB")

    def _check_placed(self, machine: Machine, process: Process, what: str) -> None:
        """It may go by a placement that has been replaced since, for as long as its agent may not know."""
        history = self._placed.get(process.uid, [])
        fits = any(
            (place := places.get(process.replica)) is not None
            and place["node"] == machine.name
            and tuple(sorted(place["gpus"])) == process.gpus
            for _, places in history
        )
        if not fits:
            self.wrong(f"{self.name_of(process.uid)}/{process.replica} {what} on {process.gpus} of {machine.name}, and was never placed there")

    def _check_alone(self, machine: Machine, process: Process, what: str) -> None:
        for other, twin in self._processes(process.uid):
            if twin is process or twin.replica != process.replica or twin.status is not None or not twin.on_gpu:
                continue
            placed = max((at for at, places in self._placed.get(process.uid, ()) if places[process.replica]["node"] == machine.name), default=0.0)
            back = max(placed, self._taken_back.get(process.uid, {}).get((process.replica, other.name), placed))
            if other is machine or not (self._was_silent(other.name, placed) or self._was_silent(other.name, back)):
                self.wrong(
                    f"{self.name_of(process.uid)}/{process.replica} {what} on {machine.name} while it runs on {other.name}, "
                    f"which was heard of when it was placed at {placed:.3f}, and when that was taken back at {back:.3f}"
                )

    # What is known

    def _processes(self, uid: str) -> Iterator[tuple[Machine, Process]]:
        for station in self._stations.values():
            for process in station.machine.processes.values():
                if process.uid == uid:
                    yield station.machine, process

    def name_of(self, uid: str) -> str:
        """As people know it."""
        return next((n for n, o in self.objects[WORKLOADS].items() if o["metadata"]["uid"] == uid), uid)

    def silent(self, node: str, at: float | None = None) -> bool:
        """Whether a node had not been heard of for as long as its lease."""
        when = _now() if at is None else at
        last = max((beat for beat in self._beats.get(node, ()) if beat <= when), default=-LEASE_SECONDS)
        return when - last > LEASE_SECONDS - ROUNDING

    def _was_silent(self, node: str, written: float) -> bool:
        """The same, for all that who wrote something at a moment could know of it. A beat of that very moment it could not."""
        looked, beats = written - self.limits.on_its_way, self._beats.get(node, [])
        last = max((beat for beat in beats if beat < looked), default=-LEASE_SECONDS)
        moments = [last, *(beat for beat in beats if looked <= beat < written), written]
        return any(after - before > LEASE_SECONDS - ROUNDING for before, after in pairwise(moments))

    def lately_silent(self, node: str) -> bool:
        """The same, at any moment of which somebody may still not know that it is over."""
        beats, now = self._beats.get(node, []), _now()
        since = now - self.limits.stale - LEASE_SECONDS
        late = [beat for beat in beats if beat >= since]
        before = [beat for beat in beats if beat < since][-1:]
        moments = [*(before or [-LEASE_SECONDS]), *late, now]
        return any(b - a > LEASE_SECONDS - ROUNDING and b >= now - self.limits.stale for a, b in pairwise(moments))


def _status(obj: Object | None) -> Object:
    return (obj or {}).get("status") or {}


def _at_work(status: Object) -> set[tuple[int, str]]:
    """The replicas that are said to have a process on GPUs, and where."""
    return {(one["replica"], one["node"]) for one in status.get("reports") or () if one.get("pid") and one["state"] in ("Running", "Unknown")}


def _replicas(obj: Object) -> int:
    return int(obj["spec"].get("replicas", 1))


def _seconds(text: str | None) -> float:
    return float(text.removesuffix("s")) if text else 0.0


def _now() -> float:
    return asyncio.get_running_loop().time()
