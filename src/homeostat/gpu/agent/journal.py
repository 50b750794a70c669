"""What an agent remembers of a replica beside its process: one small file each, put in place by a rename.

A state directory has a folder for each workload, named by its uid. In it, for replica 3: `3.json` is the record of its process,
`3.note` the note of this module, `3.out` and `3.err` its output, and `3.exit` its exit status as its witness saw it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self, TypeVar

import msgspec
from msgspec import structs

from homeostat.gpu.agent.wanted import Declared, Off, Wish, farewell
from homeostat.gpu.kinds import WHOLE, ReplicaState
from homeostat.providers.process import record

SUFFIX = ".note"


class Note(msgspec.Struct, frozen=True):
    """What is known of one replica here. Times are wall seconds."""

    namespace: str
    name: str
    replica: int
    state: ReplicaState
    since: float
    attempt: int = 0
    gpus: tuple[int, ...] = ()
    milli: int = 1000
    off: Off = Off.NO
    exit_code: int | None = None
    reason: str = ""
    gpu_seconds: float = 0.0
    """Up to `since`."""
    signal: str = "SIGTERM"
    grace: float = 30.0
    """How to end it where nobody can be asked any more."""
    ended: str = ""
    """The nonce of the start whose end is written here: that a process ended is noted in its record first."""
    over: bool = False
    """It could not be started, or was lost for good: nothing more is done in this attempt."""
    refusals: int = 0
    """How often it could not be suspended since it was last asked to leave its GPUs."""
    room: dict[int, int] = {}
    """The MiB that it had on each GPU when it was to leave them: what it needs there to come back."""

    @classmethod
    def fresh(cls, workload: Declared, replica: int, wish: Wish, before: Note | None, now: float) -> Self:
        """The note of a replica that is wanted and of which nothing else is known yet; the GPU time of the one `before` counts on."""
        place = wish.place
        sig, grace = farewell(workload)
        return cls(
            namespace=workload.namespace,
            name=workload.name,
            replica=replica,
            state=ReplicaState.UNKNOWN,
            since=now,
            attempt=wish.attempt,
            gpus=place.gpus if place else (),
            milli=place.milli if place else WHOLE,
            gpu_seconds=before.gpu_seconds if before else 0.0,
            signal=sig,
            grace=grace,
        )

    def but(self, **changes: object) -> Self:
        """A copy with other values."""
        return structs.replace(self, **changes)

    def turned(self, state: ReplicaState, now: float, **changes: object) -> Self:
        """The note of a replica that came into another state, with the GPU time of the one before counted in."""
        if state is self.state:
            return self.but(**changes)
        used = self.gpu_seconds
        if self.state is ReplicaState.RUNNING:
            used += max(0.0, now - self.since) * len(self.gpus) * self.milli / 1000
        return self.but(state=state, since=now, gpu_seconds=used, **changes)


N = TypeVar("N", bound=Note)


def path_of(folder: Path, replica: int) -> Path:
    """Where the note of a replica is."""
    return folder / f"{replica}{SUFFIX}"


def exit_file_of(folder: Path, replica: int) -> Path:
    """Where the witness says how a replica ended."""
    return folder / f"{replica}.exit"


def load(path: Path, form: type[N] = Note) -> N | None:  # type: ignore[assignment]
    """The note in a file; None where there is none. ValueError where it cannot be read."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(text, type=form)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the note {path} cannot be read: {error}; remove it if its replica does not run") from None


def save(path: Path, note: Note) -> None:
    """Puts a note in the place of the one before, durably."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise OSError(f"the folder {path.parent} cannot be made: {error.strerror}") from error
    record.save(path, note)
