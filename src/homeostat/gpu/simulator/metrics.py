"""What a run is judged by: waits, use, fairness, preemptions, cost, promises."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from homeostat.gpu.decisions import Verb
from homeostat.gpu.entitlement import entitled
from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.simulator.cluster import Cluster
from homeostat.gpu.snapshot import Bools, Floats, Health, Ints, Phase

HOUR = 3600.0
SLICES = 200
"""Into so many parts, up to twice that, a run is cut to show it over time."""
CLASSES = 24
"""Of the sizes that a trace asks for, so many of the most frequent are looked at to see what is fragmented."""


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """A run over time, in equal parts of `seconds`."""

    seconds: float
    utilisation: list[float]
    fragmentation: list[float]
    waiting: list[float]
    """GPUs that are asked for by what waits."""
    fairness: list[float]
    """Jain's index of the shares of that part."""
    shares: dict[str, list[float | None]]
    """What each tenant got of what it was entitled to; none where it wanted nothing."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds, shares from 0 to 1."""

    trace: str
    jobs: int
    finished: int
    makespan: float
    utilisation: float
    """Of all GPUs, between the first submission and the last; to the end where all were submitted at once."""
    stranded: float
    """The part of all GPUs that was free while somebody waited, in the same time: fragmentation, reservations and quotas."""
    fragmentation: float
    """The part of all GPUs that was free and of no use, in the same time, to a job drawn from the trace: its GPU has too little left, or its
    node too few whole ones (CPU and memory are not looked at)."""
    wait_mean: float
    """From submission to the end, the time in which a job did not run: also while it was suspended."""
    wait_p50: float
    wait_p99: float
    wait_max: float
    first_wait_mean: float
    """From submission to the first start."""
    fairness: float
    """Jain's index, over tenants, of what each got of what it was entitled to at each moment (weighted max-min of what all wanted)."""
    fairness_of_waits: float
    """Jain's index, over tenants, of the mean speed of their jobs: running time over time from submission to the end."""
    worst_share: float
    """The least that a tenant got of what it was entitled to."""
    preemptions: int
    migrations: int
    suspensions: int
    """All times that a running job was taken off, preemptions among them."""
    starved: int
    """Jobs that waited too long in one stretch."""
    longest_stretch: float
    sla_misses: int
    cost: float
    """Of the GPUs while they were held."""
    shares: dict[str, float] = {}
    """What each tenant got of what it was entitled to."""
    waits: list[float] = []
    """The waits that 0, 1, 2 … 100 % of the jobs stay below."""
    timeline: Timeline | None = None


def jain(values: Floats) -> float:
    """1 where all have the same, 1/n where one has all."""
    squares = float((values**2).sum()) * len(values)
    return float(values.sum()) ** 2 / squares if squares else 1.0


class Meter:
    """Adds up as virtual time passes."""

    def __init__(self, rows: NDArray[np.void], duration: Floats, cluster: Cluster, starving: float) -> None:
        self.rows, self.duration, self.cluster, self.starving = rows, duration, cluster, starving
        self.quiet = 0
        """Cycles since anything last happened."""
        count, tenants = len(rows), len(cluster.tenants)
        self.total: Floats = self.rows["replicas"] * self.rows["milli"] / WHOLE
        self.overhead: Floats = np.zeros(count)
        self.finished: Floats = np.full(count, np.nan)
        self.first: Floats = np.full(count, np.nan)
        self.since: Floats = np.full(count, np.nan)
        self.stretch: Floats = np.zeros(count)
        self.got, self.due = np.zeros(tenants), np.zeros(tenants)
        self.entitled, self.usage = np.zeros(tenants), np.zeros(tenants)
        self.busy = self.stranded = self.measured = self.cost = 0.0
        self.preemptions = self.suspensions = self.migrations = 0
        self.free_while_waiting = self.fragmented = self.lost = self.waiting = 0.0
        self._classes = _classes(rows)
        self._parts = np.zeros((2 * SLICES, 4 + 2 * tenants))  # seconds, use, fragmented, waiting; got, due
        self._clock = 0.0
        last = float(self.rows["submitted"].max(initial=0.0))
        self.last = last or math.inf  # where all come at once, the whole of it is looked at
        nodes = cluster.nodes
        self.price: Floats = nodes.cost / np.maximum((nodes.health < Health.ABSENT).sum(axis=1), 1) / WHOLE
        """Of a thousandth of a GPU of each node, an hour."""
        self.whole: Ints = (nodes.health == Health.HEALTHY).sum(axis=1) * WHOLE
        self.spends = 0.0
        """What is held costs an hour."""
        self._width = max(last, 1.0) / SLICES

    def pass_time(self, seconds: float, rows: NDArray[np.void], here: Bools) -> None:
        """Between two moments at which something changes, what was sampled last holds."""
        usage = float(self.usage.sum())
        self.cost += self.spends * seconds / HOUR
        self.got += np.minimum(self.usage, self.entitled) * seconds
        self.due += self.entitled * seconds
        if self.measured < self.last:
            self.busy += usage * seconds
            self.stranded += self.free_while_waiting * seconds
            self.lost += self.fragmented * seconds
            self.measured += seconds
        self._note(seconds)

    def _note(self, seconds: float) -> None:
        """Adds what holds now to the parts of the timeline that it lasts through. Where the parts run out, each becomes twice as long."""
        held = np.minimum(self.usage, self.entitled)
        rates = np.concatenate(([1.0, self.usage.sum(), self.fragmented, self.waiting], held, self.entitled))
        while seconds > 1e-9:
            at = int(self._clock / self._width)
            if at >= len(self._parts):
                self._parts[:SLICES] = self._parts[0::2] + self._parts[1::2]
                self._parts[SLICES:] = 0.0
                self._width *= 2
                continue
            some = max(min(seconds, (at + 1) * self._width - self._clock), 1e-9)
            self._parts[at] += rates * some
            self._clock += some
            seconds -= some

    def sample(self, now: float, rows: NDArray[np.void], here: Bools, free: Ints, down: Bools) -> None:
        """After each cycle: who holds what, and who is entitled to what."""
        live = np.flatnonzero(here)
        phase, tenant = rows["phase"][live], rows["tenant"][live]
        count = len(self.cluster.tenants)
        holds = (phase == Phase.RUNNING) | (phase == Phase.SUSPENDING)
        self.usage = np.bincount(tenant[holds], weights=self.total[live][holds], minlength=count).astype(np.float64)
        self.spends = float(((self.whole - free.sum(axis=1)) * self.price).sum())
        wanted = np.bincount(tenant, weights=self.total[live], minlength=count).astype(np.float64)
        capacity = float((self.cluster.nodes.health[~down] < Health.FAILED).sum())
        self.entitled = entitled(wanted, self.cluster.tenants.weight, capacity)
        waits = (phase == Phase.PENDING) | (phase == Phase.SUSPENDED)
        self.free_while_waiting = float(free[~down].sum()) / WHOLE if waits.any() else 0.0
        self.waiting = float(self.total[live][waits].sum())
        self.fragmented = fragmented(free[~down], self.cluster.nodes.model[~down], self._classes) / WHOLE

    def arrived(self, at: int, now: float) -> None:
        """A job waits from now on."""
        self.since[at] = now

    def started(self, at: int, now: float, overhead: float) -> None:
        """A job runs; the first `overhead` seconds do not count as work."""
        self.overhead[at] = overhead
        if np.isnan(self.first[at]):
            self.first[at] = now
        if not np.isnan(self.since[at]):
            self.stretch[at] = max(self.stretch[at], now - self.since[at])
        self.since[at] = np.nan

    def suspended(self, at: int, now: float, verb: Verb) -> None:
        """A job is taken off and waits again."""
        self.since[at] = now
        self.suspensions += 1
        self.preemptions += verb is Verb.PREEMPT

    def ended(self, at: int, now: float, short: bool = False) -> None:
        """A job is done; `short`: it was ended at its maximum, before it had run for its duration."""
        self.finished[at] = now
        if short:
            self.duration[at] = min(self.duration[at], now - self.rows["submitted"][at])

    def result(self, now: float, trace: str) -> Result:
        """All figures of the run so far."""
        done = ~np.isnan(self.finished)
        submitted = self.rows["submitted"]
        open_since = np.where(np.isnan(self.since), now, self.since)
        stretch = np.maximum(self.stretch, np.where(done, 0.0, now - open_since))
        wait = np.maximum(self.finished - submitted - self.duration, 0.0)[done]
        first = (self.first - submitted)[done & ~np.isnan(self.first)]
        tenants = self.cluster.tenants
        late = self.first - submitted > tenants.max_wait[self.rows["tenant"]]
        late |= np.where(done, self.finished, now) > self.rows["deadline"]
        speed = self.duration / np.maximum(self.finished - submitted, 1e-9)
        active = np.unique(self.rows["tenant"][done])
        speeds = np.array([speed[done & (self.rows["tenant"] == tenant)].mean() for tenant in active.tolist()])
        some = self.due > 0
        share = self.got[some] / self.due[some]
        span, gpus = max(self.measured, 1e-9), self.cluster.gpus
        return Result(
            trace=trace,
            jobs=len(self.rows),
            finished=int(done.sum()),
            makespan=float(self.finished[done].max(initial=0.0)),
            utilisation=float(self.busy / span / gpus),
            stranded=float(self.stranded / span / gpus),
            fragmentation=float(self.lost / span / gpus),
            wait_mean=float(wait.mean()) if len(wait) else 0.0,
            wait_p50=float(np.percentile(wait, 50)) if len(wait) else 0.0,
            wait_p99=float(np.percentile(wait, 99)) if len(wait) else 0.0,
            wait_max=float(wait.max(initial=0.0)),
            first_wait_mean=float(first.mean()) if len(first) else 0.0,
            fairness=jain(share),
            fairness_of_waits=jain(np.minimum(speeds, 1.0)),
            worst_share=float(share.min(initial=1.0)),
            preemptions=int(self.preemptions),
            migrations=self.migrations,
            suspensions=int(self.suspensions),
            starved=int((stretch > self.starving).sum()),
            longest_stretch=float(stretch.max(initial=0.0)),
            sla_misses=int(late.sum()),
            cost=float(self.cost),
            shares={
                tenants.name[at]: float(s) for at, s in zip(np.flatnonzero(some).tolist(), share.tolist(), strict=True)
            },
            waits=np.percentile(wait, range(101)).tolist() if len(wait) else [],
            timeline=self._timeline(),
        )

    def _timeline(self) -> Timeline:
        parts = self._parts[self._parts[:, 0] > 0]
        count, gpus, seconds = len(self.cluster.tenants), max(self.cluster.gpus, 1), parts[:, 0]
        got, due = parts[:, 4 : 4 + count], parts[:, 4 + count :]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(due > 1e-9, got / due, np.nan)
        return Timeline(
            seconds=self._width,
            utilisation=(parts[:, 1] / seconds / gpus).tolist(),
            fragmentation=(parts[:, 2] / seconds / gpus).tolist(),
            waiting=(parts[:, 3] / seconds).tolist(),
            fairness=[jain(row[~np.isnan(row)]) for row in share],
            shares={
                name: [None if np.isnan(value) else float(value) for value in share[:, at]]
                for at, name in enumerate(self.cluster.tenants.name)
            },
        )


def _classes(rows: NDArray[np.void]) -> list[tuple[int, int, float]]:
    """The most frequent requests: thousandths a replica, the bits of models, and how often it is asked for, as a part of 1."""
    found, count = np.unique(np.column_stack((rows["milli"], rows["models"])), axis=0, return_counts=True)
    most = np.argsort(-count, kind="stable")[:CLASSES]
    total = max(int(count[most].sum()), 1)
    return [(int(found[at, 0]), int(found[at, 1]), int(count[at]) / total) for at in most.tolist()]


def fragmented(free: Ints, model: Ints, classes: list[tuple[int, int, float]]) -> float:
    """Thousandths of GPUs that are free and of no use to a request drawn from these, in the mean."""
    whole = (free >= WHOLE).sum(axis=1)
    total, lost = float(np.maximum(free, 0).sum()), 0.0
    for milli, models, often in classes:
        fits = ((models >> model) & 1).astype(bool)
        if milli < WHOLE:
            usable = float(free[fits][free[fits] >= milli].sum())
        else:
            usable = float(whole[fits & (whole * WHOLE >= milli)].sum()) * WHOLE
        lost += often * (total - usable)
    return lost
