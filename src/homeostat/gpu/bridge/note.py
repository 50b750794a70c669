"""What a bridge remembers of a replica: the note that agents keep, and what there is to know of its job."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from homeostat.gpu.agent.journal import Note
from homeostat.gpu.bridge.cluster import Job, Mark, Member, Stage
from homeostat.gpu.kinds import ReplicaState, Report

log = logging.getLogger("homeostat.gpu.bridge")


class JobNote(Note, frozen=True, kw_only=True):
    """A replica on one node of the cluster."""

    start: int = 0
    """Which start it is; 0 before the first."""
    number: int | None = None
    """Of its job, while that lives."""
    seen: bool = False
    """The cluster has shown its job: if it shows it no more, it is gone, and not still to come."""
    asked: float = 0.0
    """When it was to be asked to end, or lost its place; 0 where it was not. That it ends then says nothing of its work."""
    told: float = 0.0
    """When it was surely asked; 0 where it was not, or nobody knows. Its grace counts from then."""

    def mark(self, uid: str, node: str) -> Mark:
        """Of its present start."""
        return Mark(uid, self.replica, self.attempt, self.start, node)

    @property
    def done(self) -> bool:
        """Whether its present start has ended, or could not be made."""
        return self.over or (self.start > 0 and self.ended == self.nonce)

    @property
    def nonce(self) -> str:
        """What tells its present start from its others."""
        return f"{self.attempt}.{self.start}"


def adopted(job: Job, namespace: str, name: str, gpus: tuple[int, ...], now: float) -> JobNote:
    """The note of a job that was found without one."""
    mark = job.mark
    since = now if job.since is None else job.since
    state = ReplicaState.UNKNOWN if job.stage is Stage.WAITING else ReplicaState.RUNNING
    return JobNote(
        namespace=namespace,
        name=name,
        replica=mark.replica,
        state=state,
        since=since,
        attempt=mark.attempt,
        start=mark.start,
        gpus=gpus,
        number=job.number,
        seen=True,
    )


def recalled(report: Report, namespace: str, name: str) -> JobNote:
    """The note behind a report that this bridge made and has no note of. Its job is gone, if it still was at work."""
    over = report.state in (ReplicaState.EXITED, ReplicaState.FAILED)
    note = JobNote(
        namespace=namespace,
        name=name,
        replica=report.replica,
        state=report.state,
        since=report.since.timestamp() if report.since else 0.0,
        attempt=report.attempt,
        start=1,
        gpus=report.gpus,
        exit_code=report.exit_code,
        reason=report.reason,
        gpu_seconds=report.gpu_seconds,
        number=report.pid,
        seen=report.pid is not None,
        asked=float(report.state is ReplicaState.SUSPENDED),
        over=over,
    )
    return note if report.pid is not None else note.but(ended=note.nonce)


class Seen(msgspec.Struct, frozen=True):
    """The machines that were alive when the cluster was last looked at."""

    members: list[Member]


def remembered(path: Path) -> list[Member]:
    """Those that an earlier bridge saw. For threads."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Seen).members
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("%s cannot be read, and is passed over: %s", path, error)
        return []
