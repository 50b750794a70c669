"""Replays a trace in virtual time through the governor's own decisions, or through another's that are asked the same way."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec
import numpy as np
from numpy.typing import NDArray

from homeostat.gpu.decisions import Decision, Memory, Plan, Verb
from homeostat.gpu.governor import decide
from homeostat.gpu.kinds import WHOLE, GpuPolicySpec, Place
from homeostat.gpu.simulator.cluster import Cluster
from homeostat.gpu.simulator.metrics import Meter, Result
from homeostat.gpu.simulator.trace import Trace
from homeostat.gpu.snapshot import (
    ANY_MODEL,
    NEVER,
    WORKLOAD,
    Health,
    Idle,
    Ints,
    Mode,
    Nodes,
    Phase,
    Places,
    Snapshot,
    Workloads,
)

Scheduler = Callable[[Snapshot, GpuPolicySpec, Memory], Plan]


class Event(IntEnum):
    """What happens, in the order in which it is looked at when it happens at once."""

    END = 0
    GONE = 1  # a workload has left its GPUs
    DOWN = 2
    UP = 3
    ARRIVAL = 4
    LOOK = 5  # time alone has changed what the governor sees


class Outage(msgspec.Struct, frozen=True):
    """A node that is gone for a while."""

    node: int
    start: float
    end: float


class Timing(msgspec.Struct, frozen=True):
    """How long things take, in seconds. Suspending and resuming are as measured with 20 GB on an H200."""

    every: float = 30.0
    """Between two cycles at least."""
    tick: float = 600.0
    """Between two cycles at most, while something waits."""
    suspend: float = 9.5
    resume: float = 2.9
    checkpoint: float = 600.0
    """Work that is lost with a node, at most, by what writes checkpoints."""
    starving: float = 86_400.0
    """Whoever waits longer in one stretch has starved."""


@dataclass(slots=True)
class Simulation:
    """The state of one run. `step` is one cycle; `run` is all of them."""

    trace: Trace
    cluster: Cluster
    policy: GpuPolicySpec
    scheduler: Scheduler = decide
    timing: Timing = field(default_factory=Timing)
    outages: Sequence[Outage] = ()
    watch: Callable[[Simulation, Plan], None] | None = None
    """Called after each cycle, with what was decided."""
    now: float = 0.0
    memory: Memory = field(default_factory=Memory)

    rows: NDArray[np.void] = field(init=False)
    uids: list[str] = field(init=False)
    here: NDArray[np.bool_] = field(init=False)
    left: NDArray[np.float64] = field(init=False)
    ran: NDArray[np.float64] = field(init=False)
    generation: Ints = field(init=False)
    held: dict[int, Ints] = field(init=False)
    free: Ints = field(init=False)
    down: NDArray[np.bool_] = field(init=False)
    stalled: set[int] = field(default_factory=set)
    """What is placed where a node is gone: it makes no progress until somebody misses that node, or it is back."""
    heard: NDArray[np.float64] = field(init=False)
    events: list[tuple[float, int, int, int]] = field(init=False)
    meter: Meter = field(init=False)
    _index: dict[str, int] = field(init=False)
    _nodes: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        jobs = sorted(self.trace.jobs, key=lambda job: (job.submitted, job.uid))
        tenants = {name: at for at, name in enumerate(self.cluster.tenants.name)}
        models = {name: 1 << at for at, name in enumerate(self.cluster.models)}
        self.rows = np.zeros(len(jobs), dtype=WORKLOAD)
        for at, job in enumerate(jobs):
            mask = sum(models.get(model, 0) for model in job.models) if job.models else ANY_MODEL
            self.rows[at] = (
                tenants[job.tenant], job.replicas, job.milli, mask, 0, job.cpu, job.memory, job.priority, 0, 0, int(job.mode), int(Idle.IGNORE),
                int(Phase.PENDING), False, False, job.minimum, job.maximum, 30.0, job.deadline, job.submitted, job.submitted, np.nan, 0.0,
            )  # fmt: skip
        self.uids = [job.uid for job in jobs]
        self._index = {uid: at for at, uid in enumerate(self.uids)}
        self._nodes = {name: at for at, name in enumerate(self.cluster.nodes.name)}
        self.here = np.zeros(len(jobs), dtype=bool)
        self.left = np.array([job.duration for job in jobs], dtype=np.float64)
        self.ran = np.zeros(len(jobs))
        self.generation = np.zeros(len(jobs), dtype=np.int64)
        self.held = {}
        self.free = np.where(self.cluster.nodes.health == Health.HEALTHY, WHOLE, 0).astype(np.int64)
        self.down = np.zeros(len(self.cluster.nodes), dtype=bool)
        self.heard = np.full(len(self.cluster.nodes), -NEVER)
        self.events = [(job.submitted, int(Event.ARRIVAL), at, 0) for at, job in enumerate(jobs)]
        for outage in self.outages:
            missed = outage.start + self.policy.failure.lease.total_seconds() + 1.0
            self.events += [
                (outage.start, int(Event.DOWN), outage.node, 0),
                (outage.end, int(Event.UP), outage.node, 0),
            ]
            self.events.append((missed, int(Event.LOOK), outage.node, 0))
        heapq.heapify(self.events)
        self.meter = Meter(self.rows, self.left.copy(), self.cluster, self.timing.starving)

    # the run

    def run(self, until: float = NEVER) -> Result:
        """Until all jobs have ended or can never start."""
        while self.step(until):
            pass
        return self.meter.result(self.now, self.trace.name)

    def step(self, until: float = NEVER) -> bool:
        """Goes to the next moment at which there is something to decide, and decides. False when nothing more will happen."""
        waits = bool((self.here & np.isin(self.rows["phase"], (Phase.PENDING, Phase.SUSPENDED))).any())
        while self.events and self._is_void(*self.events[0]):
            heapq.heappop(self.events)
        upcoming = self.events[0][0] if self.events else NEVER
        target = max(min(upcoming, self.now + self.timing.tick if waits else NEVER), self.now + self.timing.every)
        idle = not self.events and not (waits and self._may_still_start())
        if target > until or target == NEVER or idle:
            return False
        while self.events and self.events[0][0] <= target:
            when, kind, at, generation = heapq.heappop(self.events)
            self._pass_time(when)
            self._happen(Event(kind), at, generation)
        self._pass_time(target)
        self._decide()
        return True

    def _is_void(self, _: float, kind: int, at: int, generation: int) -> bool:
        """Whether nothing comes of it any more: the end of a run that was broken off. To look at that moment would tell when it would have been."""
        return kind in (Event.END, Event.GONE) and generation != self.generation[at]

    def _may_still_start(self) -> bool:
        """Whether time alone can still change something: not for ever where nothing runs and nothing comes."""
        self.meter.quiet += 1
        return self.meter.quiet < 64

    def _pass_time(self, when: float) -> None:
        seconds = when - self.now
        if seconds > 0:
            self.meter.pass_time(seconds, self.rows, self.here)
            self.now = when

    def _happen(self, event: Event, at: int, generation: int) -> None:
        self.meter.quiet = 0
        if event is Event.ARRIVAL:
            self.here[at] = True
            self.meter.arrived(at, self.now)
        elif event is Event.DOWN:
            self._lose(at)
        elif event is Event.UP:
            self.down[at] = False
            self._go_on()
        elif event is not Event.LOOK and generation == self.generation[at]:
            self._release(at)
            if event is Event.END:
                self.here[at] = False
                self.meter.ended(at, self.now)

    def _lose(self, node: int) -> None:
        """A node is gone: what ran on it makes no more progress, and loses what it had not written down."""
        self.down[node] = True
        self.heard[node] = self.now
        for at, held in self.held.items():
            if self.rows["phase"][at] in (Phase.RUNNING, Phase.STARTING) and node in held[:, 2] and at not in self.stalled:
                self._stop_clock(at)
                lost = (
                    min(self.ran[at], self.timing.checkpoint)
                    if self.rows["preemption"][at] == Mode.CHECKPOINT
                    else self.ran[at]
                )
                self.left[at] += lost
                self.ran[at] -= lost
                self.stalled.add(at)

    def _go_on(self) -> None:
        """A node is back before its work was begun elsewhere: that goes on from what it had written down."""
        for at in sorted(self.stalled):
            if not self.down[self.held[at][:, 2]].any():
                self.stalled.discard(at)
                self.meter.overhead[at] = self.now - self.rows["started"][at]
                self._await_end(at)

    def _await_end(self, at: int) -> None:
        """Notes when a run that is under way will be over."""
        self.generation[at] += 1
        ends = self.rows["started"][at] + self.meter.overhead[at] + self.left[at]
        heapq.heappush(self.events, (ends, int(Event.END), at, int(self.generation[at])))

    def _stop_clock(self, at: int) -> None:
        """Notes the work that is done, and that no end comes of this run."""
        if np.isnan(self.rows["started"][at]) or at in self.stalled:
            return
        done = min(max(self.now - self.rows["started"][at] - self.meter.overhead[at], 0.0), self.left[at])
        self.left[at] -= done
        self.ran[at] += done
        self.generation[at] += 1

    # what the governor sees

    def snapshot(self) -> Snapshot:
        """The fleet at this moment, as the governor sees it."""
        live = np.flatnonzero(self.here)
        rows = self.rows[live]
        runs = (rows["phase"] == Phase.RUNNING) & ~np.isnan(rows["started"])
        rows["ran"] = self.ran[live] + np.where(runs, np.maximum(self.now - rows["started"], 0.0), 0.0)
        uid = [self.uids[at] for at in live.tolist()]
        places = [self.held[at] for at in live.tolist() if at in self.held]
        table = np.concatenate(places) if places else np.zeros((0, 5), dtype=np.int64)
        position = np.zeros(len(self.rows), dtype=np.int64)
        position[live] = np.arange(len(live))
        table = np.column_stack((position[table[:, 0]], table[:, 1:]))
        nodes = self.cluster.nodes
        heard = np.where(self.down, self.heard, self.now)
        seen = Nodes(**{name: getattr(nodes, name) for name in Nodes.__struct_fields__ if name != "heard"}, heard=heard)
        return Snapshot(
            self.now,
            self.cluster.models,
            Workloads.of(rows, uid, uid),
            Places.of(table),
            seen,
            self.cluster.tenants,
            self.cluster.pools,
        )

    # what the governor does

    def _decide(self) -> None:
        plan = self.scheduler(self.snapshot(), self.policy, self.memory)
        self.memory = plan.memory
        for decision in plan.decisions:
            self._carry_out(decision)
        self.meter.sample(self.now, self.rows, self.here, self.free, self.down)
        if self.watch is not None:
            self.watch(self, plan)

    def _carry_out(self, decision: Decision) -> None:
        if decision.kind != "Workload":
            return
        at = self._index[decision.subject]
        match decision.verb:
            case Verb.ADMIT | Verb.RESUME:
                if at in self.held:
                    self._leave_home(at, decision.places)
                    self._release(at)
                self._start(at, decision.places)
            case Verb.SUSPEND | Verb.PREEMPT | Verb.RECLAIM:
                self._suspend(at, decision.verb)
            case Verb.MIGRATE:
                self.meter.migrations += 1
                self._stop_clock(at)
                self._release(at)
                self._start(at, decision.places)
            case Verb.REQUEUE:
                self._release(at)
            case Verb.END:
                self._stop_clock(at)
                self._release(at)
                self.here[at] = False
                self.meter.ended(at, self.now, short=True)

    def _start(self, at: int, places: tuple[Place, ...]) -> None:
        assert len(places) == self.rows["replicas"][at], "a gang is placed in part"
        held = [
            (at, place.replica, self._nodes[place.node], gpu, place.milli) for place in places for gpu in place.gpus
        ]
        table = np.array(held, dtype=np.int64)
        assert table[:, 4].sum() == self.rows["replicas"][at] * self.rows["milli"][at], (
            "a workload gets less or more than it asked for"
        )
        np.subtract.at(self.free, (table[:, 2], table[:, 3]), table[:, 4])
        assert (self.free[table[:, 2], table[:, 3]] >= 0).all(), "a GPU is given to more than it has room for"
        assert not self.down[table[:, 2]].any() or self.now - self.heard[table[:, 2]].max() < 3600, (
            "work is placed on a node that is gone"
        )
        self.held[at] = table
        again = self.ran[at] > 0 or self.rows["phase"][at] == Phase.SUSPENDED
        self.meter.started(at, self.now, self.timing.resume if again else 0.0)
        self.rows["phase"][at], self.rows["started"][at] = Phase.RUNNING, self.now
        if self.down[table[:, 2]].any():
            self.stalled.add(at)
        else:
            self._await_end(at)

    def _suspend(self, at: int, verb: Verb) -> None:
        self._stop_clock(at)
        self.stalled.discard(at)
        if self.rows["preemption"][at] == Mode.RESTART:
            self.left[at] += self.ran[at]
            self.ran[at] = 0.0
        self.rows["phase"][at] = Phase.SUSPENDING
        self.rows["started"][at] = np.nan
        self.meter.suspended(at, self.now, verb)
        heapq.heappush(self.events, (self.now + self.timing.suspend, int(Event.GONE), at, int(self.generation[at])))

    def _leave_home(self, at: int, places: tuple[Place, ...]) -> None:
        """The state of what is suspended stays where it lies: elsewhere it begins anew."""
        if self.rows["phase"][at] != Phase.SUSPENDED:
            return
        home = {(replica, node, gpu) for _, replica, node, gpu, _ in self.held[at].tolist()}
        if home != {(place.replica, self._nodes[place.node], gpu) for place in places for gpu in place.gpus}:
            self.left[at] += self.ran[at]
            self.ran[at] = 0.0

    def _release(self, at: int) -> None:
        """It is off its GPUs. Where it was suspended with its state, it will come back to the same nodes."""
        self.stalled.discard(at)
        held = self.held.get(at)
        if held is not None and self.rows["phase"][at] != Phase.SUSPENDED:
            np.add.at(self.free, (held[:, 2], held[:, 3]), held[:, 4])
        keeps = self.rows["phase"][at] == Phase.SUSPENDING and self.rows["preemption"][at] in (Mode.SUSPEND, Mode.NEVER)
        if not keeps:
            self.held.pop(at, None)
        if self.rows["phase"][at] != Phase.PENDING:
            self.rows["since"][at] = self.now
        self.rows["phase"][at] = Phase.SUSPENDED if self.ran[at] > 0 or keeps else Phase.PENDING
        self.rows["started"][at] = np.nan


def simulate(
    trace: Trace,
    policy: GpuPolicySpec | None = None,
    fleet: Cluster | None = None,
    *,
    scheduler: Scheduler = decide,
    timing: Timing | None = None,
    outages: Sequence[Outage] = (),
    watch: Callable[[Simulation, Plan], None] | None = None,
) -> Result:
    """Runs a trace to its end. Without a policy all defaults hold; without a fleet there is one on which the trace would keep nine GPUs of ten
    busy."""
    from homeostat.gpu.simulator.cluster import even_cluster

    if fleet is None:
        length = max((job.submitted for job in trace.jobs), default=0.0) or 1.0
        largest = max((job.total for job in trace.jobs), default=WHOLE) / WHOLE / 8
        fleet = even_cluster(trace.tenants, int(max(trace.gpu_seconds / length / 0.9 / 8, largest)) + 1)
    run = Simulation(trace, fleet, policy or GpuPolicySpec(), scheduler, timing or Timing(), outages, watch)
    return run.run()
