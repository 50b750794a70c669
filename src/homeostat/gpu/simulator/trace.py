"""Traces: what was asked for, when, and how long it ran. Read from published formats, or generated from a seed."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, TextIO

import msgspec
from msgspec.structs import replace

from homeostat.gpu.kinds import WHOLE
from homeostat.gpu.snapshot import NEVER, Mode


class Job(msgspec.Struct, frozen=True):
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


class Trace(msgspec.Struct, frozen=True):
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


AMOUNT_MOST = 1e12
GPUS_MOST = 1_000_000
SECONDS_MOST = 10 * 366 * 86_400.0
"""Beyond these a line is wrong, or nobody lives to see the end of the simulation."""


class TraceError(ValueError):
    """What is wrong with a file, where, and what to do about it."""


class _Row:
    """One line of a table. A value that makes no sense is told with its file, line and column."""

    __slots__ = ("_line", "_names", "_path", "_values")

    def __init__(self, path: Path, line: int, values: dict[str, Any], names: dict[str, int]) -> None:
        self._path, self._line, self._values, self._names = path, line, values, names

    def wrong(self, column: str, what: str) -> TraceError:
        """The error to raise."""
        return TraceError(f"{self._path}, line {self._line}, column {column}: {what}; correct the line, or remove it")

    def text(self, column: str, default: str | None = None) -> str:
        found = self._values.get(column)
        if found:
            return str(found)
        if default is None:
            raise self.wrong(column, "it is empty")
        return default

    def name(self, column: str) -> str:
        """A text that no other line has."""
        found = self.text(column)
        if (other := self._names.setdefault(found, self._line)) != self._line:
            raise self.wrong(column, f"{found} stands in line {other} already")
        return found

    def number(self, column: str, default: float | None = None) -> float:
        text = self.text(column, None if default is None else str(default))
        try:
            found = float(text)
        except ValueError:
            raise self.wrong(column, f"{text!r} is no number") from None
        if not math.isfinite(found) or found < 0:
            raise self.wrong(column, f"{text} is no number of 0 or more")
        if found > AMOUNT_MOST:
            raise self.wrong(column, f"{text} is more than anything is reckoned with here, {AMOUNT_MOST:g}")
        return found

    def seconds(self, column: str) -> float:
        """A length of time that can be lived through."""
        found = self.number(column)
        if found > SECONDS_MOST:
            raise self.wrong(column, f"{found:g} seconds are more than ten years")
        return found

    def gpus(self, column: str, least: int = 0) -> int:
        found = self.whole(column, least)
        if found > GPUS_MOST:
            raise self.wrong(column, f"{found} GPUs are more than the {GPUS_MOST} that a job may ask for")
        return found

    def whole(self, column: str, least: int = 0) -> int:
        found = self.number(column)
        if found != int(found) or found < least:
            raise self.wrong(column, f"{found:g} is no whole number of {least} or more")
        return int(found)


def _opened(path: Path) -> TextIO:
    """A table, also one that gzip has made smaller."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rt", newline="", encoding="utf-8-sig") if packed else path.open(newline="", encoding="utf-8-sig")


def rows_of(path: str | Path, needed: Sequence[str] = ()) -> Iterator[_Row]:
    """The lines of a CSV file whose first line names the columns. `TraceError` where a needed one is missing, or a line has too few."""
    place = Path(path)
    try:
        with _opened(place) as file:
            table = csv.DictReader(file, restkey="", restval=None, strict=True)
            missing = [name for name in needed if name not in (table.fieldnames or ())]
            if missing:
                raise TraceError(
                    f"{place}, line 1: there is no column {', '.join(missing)}; there are {', '.join(table.fieldnames or ()) or 'none'}"
                )
            names: dict[str, int] = {}
            for values in table:
                row = _Row(place, table.line_num, values, names)
                short = next((name for name in table.fieldnames or () if values[name] is None), None)
                if short is not None:
                    raise row.wrong(short, "the line ends before it")
                if "" in values and "" not in (table.fieldnames or ()):
                    raise row.wrong("…", f"there are more values than the {len(table.fieldnames or ())} columns")
                yield row
    except OSError as error:
        raise TraceError(f"{place}: {error.strerror or error}") from None
    except (csv.Error, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{place}: it is no table of comma-separated values: {error}") from None


PHILLY = ("timestamp", "duration", "num_gpus", "cluster")
OPENB = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
OPENB_TIMES = ("creation_time", "deletion_time")
POLLUX = ("name", "time", "application", "num_replicas")


def format_of(path: str | Path) -> str:
    """`philly`, `openb` or `pollux`, by the columns that a file names in its first line. `TraceError` where it is none of them."""
    place = Path(path)
    try:
        with _opened(place) as file:
            head = next(csv.reader(file), [])
    except OSError as error:
        raise TraceError(f"{place}: {error.strerror or error}") from None
    except (csv.Error, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{place}: it is no table of comma-separated values: {error}") from None
    for name, columns in FORMATS.items():
        if set(columns) <= set(head):
            return name
    known = "; ".join(f"{name} has {', '.join(columns)}" for name, columns in FORMATS.items())
    raise TraceError(f"{place}, line 1: no known format has the columns {', '.join(head) or '(none)'}. {known}")


FORMATS = {"philly": PHILLY, "openb": OPENB, "pollux": POLLUX}
"""The columns by which each is known."""


def read_trace(path: str | Path, form: str = "") -> Trace:
    """A trace of any known format, found out by itself unless it is said. `TraceError` where it cannot be replayed."""
    form = form or format_of(path)
    trace = {"philly": read_philly, "openb": _read_timed_openb, "pollux": read_pollux}[form](path)
    if not trace.jobs:
        raise TraceError(f"{path}: no job in it asks for a GPU")
    first, last = (which(trace.jobs, key=lambda job: job.submitted) for which in (min, max))
    if last.submitted - first.submitted > SECONDS_MOST:
        raise TraceError(f"{path}: {last.uid} is submitted more than ten years after {first.uid}; correct the times, or remove these lines")
    return trace


def _read_timed_openb(path: str | Path) -> Trace:
    if next(iter(rows_of(path, (*OPENB, *OPENB_TIMES))), None) is None:
        return Trace("openb", ())
    trace = read_openb(path, timed=True)
    start = min((job.submitted for job in trace.jobs), default=0.0)
    return trace.between(start, NEVER)


def read_philly(path: str | Path, *, gpus_per_node: int = 8) -> Trace:
    """Philly as flattened by the Pollux artifact: timestamp, duration, num_gpus, gpu_time, cluster. Seconds from the first submission; virtual
    clusters are the tenants."""
    rows = []
    for row in rows_of(path, PHILLY):
        try:
            when = datetime.fromisoformat(row.text("timestamp"))
        except ValueError:
            raise row.wrong("timestamp", f"{row.text('timestamp')!r} is no time such as 2017-10-09 07:01:55") from None
        if when.tzinfo is not None:
            when = when.astimezone(UTC).replace(tzinfo=None)
        shape = gang(row.gpus("num_gpus", 1), gpus_per_node)
        rows.append((when, row.text("cluster"), row.seconds("duration"), shape))
    rows.sort(key=lambda row: row[0])
    return Trace(
        "philly",
        tuple(
            Job(f"philly-{number:06}", tenant, (when - rows[0][0]).total_seconds(), duration, *shape)
            for number, (when, tenant, duration, shape) in enumerate(rows)
        ),
    )


def read_openb(path: str | Path, *, timed: bool = False) -> Trace:
    """Alibaba's pods (cluster-trace-gpu-v2023); those that ask for no GPU are left out. Their tenants are the classes of service.

    `timed`: each has to say when it came and when it went. Some of the published lists do not.
    """
    jobs = []
    for row in rows_of(path, OPENB):
        count = row.gpus("num_gpu")
        if not count:
            continue
        each = row.whole("gpu_milli", 1) if count == 1 else WHOLE
        if each > WHOLE:
            raise row.wrong("gpu_milli", f"{each} is more than the {WHOLE} thousandths of a GPU")
        otherwise = None if timed else 0.0
        created, deleted = row.number("creation_time", otherwise), row.number("deletion_time", otherwise)
        if deleted < created:
            raise row.wrong("deletion_time", f"{deleted:g} is before its creation_time, {created:g}")
        if deleted - created > SECONDS_MOST:
            raise row.wrong("deletion_time", f"{deleted:g} is more than ten years after its creation_time")
        wanted = row.text("gpu_spec", "")
        jobs.append(
            Job(
                row.name("name"),
                row.text("qos", "default"),
                created,
                max(deleted - created, 1.0),
                milli=each * count,
                models=tuple(wanted.split("|")) if wanted else (),
                cpu=row.whole("cpu_milli"),
                memory=row.whole("memory_mib"),
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
    for row in rows_of(path, POLLUX):
        replicas, milli = gang(row.gpus("num_replicas", 1), gpus_per_node)
        application = row.text("application")
        if (seconds := POLLUX_SECONDS.get(application)) is None:
            known = f"known is that of {', '.join(POLLUX_SECONDS)}, and Philly's format has a column for it"
            raise row.wrong("application", f"how long {application} runs is not known ({known})")
        jobs.append(Job(row.name("name"), application, row.number("time"), seconds, replicas, milli))
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
