"""Traces: what was asked for, when, and how long it ran. Read from published formats, or generated from a seed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from random import Random

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NEVER, Mode


@dataclass(frozen=True, slots=True)
class Job:
    """One workload of a trace. The governor does not know its duration, only its maximum where there is one."""

    uid: str
    tenant: str
    submitted: float
    duration: float
    """Seconds of running that it needs."""
    replicas: int = 1
    milli: int = WHOLE
    models: tuple[str, ...] = ()
    priority: int = 0
    cpu: int = 0
    memory: int = 0
    maximum: float = NEVER
    minimum: float = 0.0
    deadline: float = NEVER
    mode: Mode = Mode.CHECKPOINT

    @property
    def total(self) -> int:
        """GPUs of all replicas, in thousandths."""
        return self.replicas * self.milli


@dataclass(frozen=True, slots=True)
class Trace:
    name: str
    jobs: tuple[Job, ...]

    @property
    def tenants(self) -> list[str]:
        """Who submits, by name."""
        return sorted({job.tenant for job in self.jobs})

    @property
    def gpu_seconds(self) -> float:
        """The work in all of it."""
        return sum(job.duration * job.total for job in self.jobs) / WHOLE

    def between(self, start: float, end: float) -> Trace:
        """The jobs that were submitted in this part of it; times are from its start."""
        kept = [replace(job, submitted=job.submitted - start) for job in self.jobs if start <= job.submitted < end]
        return Trace(self.name, tuple(kept))

    def changed(self, change: Callable[[Job], Job]) -> Trace:
        """The same with each job changed, such as `lambda job: replace(job, maximum=2 * job.duration)`."""
        return Trace(self.name, tuple(change(job) for job in self.jobs))


def gang(gpus: int, per_node: int) -> tuple[int, int]:
    """Replicas, and thousandths of GPUs of each, for a job that was given as a number of GPUs: as few nodes as can be."""
    if gpus <= per_node:
        return 1, gpus * WHOLE
    each = next(size for size in range(per_node, 0, -1) if gpus % size == 0)
    return gpus // each, each * WHOLE


def read_philly(path: str | Path, *, gpus_per_node: int = 8) -> Trace:
    """Philly as flattened by the Pollux artifact: timestamp, duration, num_gpus, gpu_time, cluster. Seconds from the first submission; virtual
    clusters are the tenants."""
    with open(path, newline="") as file:
        rows = [(datetime.fromisoformat(row["timestamp"]), row) for row in csv.DictReader(file)]
    rows.sort(key=lambda row: row[0])
    start = rows[0][0]
    jobs = []
    for number, (when, row) in enumerate(rows):
        replicas, milli = gang(int(row["num_gpus"]), gpus_per_node)
        jobs.append(
            Job(
                f"philly-{number:06}",
                row["cluster"],
                (when - start).total_seconds(),
                float(row["duration"]),
                replicas,
                milli,
            )
        )
    return Trace("philly", tuple(jobs))


def read_openb(path: str | Path) -> Trace:
    """Alibaba's pods (cluster-trace-gpu-v2023); those that ask for no GPU are left out. Their tenants are the classes of service."""
    jobs = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            count, each = int(row["num_gpu"]), int(row["gpu_milli"])
            if not count:
                continue
            created, deleted = float(row.get("creation_time") or 0), float(row.get("deletion_time") or 0)
            jobs.append(
                Job(
                    row["name"],
                    row.get("qos") or "default",
                    created,
                    max(deleted - created, 1.0),
                    milli=each if count == 1 else count * WHOLE,
                    models=tuple((row.get("gpu_spec") or "").split("|")) if row.get("gpu_spec") else (),
                    cpu=int(row["cpu_milli"]),
                    memory=int(row["memory_mib"]),
                )
            )
    return Trace("openb", tuple(jobs))


POLLUX_SECONDS = {
    "cifar10": 2_000.0,
    "ncf": 500.0,
    "deepspeech2": 9_000.0,
    "yolov3": 20_000.0,
    "bert": 25_000.0,
    "imagenet": 90_000.0,
}
"""About how long the applications of Pollux run on the GPUs that they ask for: its workloads name the application and no duration."""


def read_pollux(path: str | Path, *, gpus_per_node: int = 4) -> Trace:
    """A workload of Pollux: name, time, application, num_replicas, batch_size. One tenant an application."""
    jobs = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            replicas, milli = gang(int(row["num_replicas"]), gpus_per_node)
            seconds = POLLUX_SECONDS.get(row["application"], 3_600.0)
            jobs.append(Job(row["name"], row["application"], float(row["time"]), seconds, replicas, milli))
    return Trace("pollux", tuple(jobs))


def generate(
    seed: int,
    *,
    jobs: int = 200,
    tenants: int = 4,
    seconds: float = 7 * 86_400.0,
    sizes: Sequence[int] = (250, 500, 1000, 1000, 1000, 2000, 4000, 8000),
    mean: float = 3_600.0,
    gangs: bool = True,
    gpus_per_node: int = 8,
) -> Trace:
    """A trace from a seed: many short jobs and a few long ones, some gangs, some fractions, priorities, minimum and maximum runtimes."""
    dice = Random(seed)
    made = []
    for number in range(jobs):
        milli = dice.choice(sizes)
        replicas = dice.choice((2, 3, 4)) if gangs and milli <= gpus_per_node * WHOLE and dice.random() < 0.15 else 1
        duration = min(dice.paretovariate(1.3) * mean * 0.25, 20 * mean)
        made.append(
            Job(
                f"job-{number:05}",
                f"tenant-{dice.randrange(tenants)}",
                dice.random() * seconds,
                duration,
                replicas,
                min(milli, gpus_per_node * WHOLE),
                priority=dice.choice((0, 0, 0, 10, 100)),
                maximum=duration * dice.uniform(1.0, 4.0) if dice.random() < 0.5 else NEVER,
                minimum=dice.choice((0.0, 0.0, 600.0)),
                mode=dice.choice((Mode.SUSPEND, Mode.CHECKPOINT, Mode.CHECKPOINT, Mode.RESTART, Mode.NEVER)),
            )
        )
    return Trace(f"generated-{seed}", tuple(made))
