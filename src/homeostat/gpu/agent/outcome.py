"""What the end of a process says of its replica. Pure but for a look at the end of a log."""

from __future__ import annotations

from pathlib import Path

import msgspec

from homeostat.gpu.agent.wanted import Aim, Wish
from homeostat.gpu.kinds import ReplicaState
from homeostat.providers.process.record import Ended

_SHOWN = 200
_TAIL = 4096


class Outcome(msgspec.Struct, frozen=True):
    """How it is reported."""

    state: ReplicaState
    exit_code: int | None
    reason: str


def outcome_of(ended: Ended, wish: Wish, said: str = "", *, stopping: bool) -> Outcome:
    """How an ended replica is reported. `said` is the last that it wrote to standard error; `stopping`: it was asked to end.

    Who was ended to make room is suspended, however it left: its work is not done.
    """
    status = ended.status
    if stopping and wish.aim is not Aim.END:
        return Outcome(ReplicaState.SUSPENDED, None, f"it was ended, to be started again: {wish.why}")
    if stopping:
        state = ReplicaState.EXITED if status == 0 else ReplicaState.FAILED
        return Outcome(state, status, f"it was ended: {wish.why}")
    if status == 0:
        return Outcome(ReplicaState.EXITED, 0, "")
    return Outcome(ReplicaState.FAILED, status, f"{ended}: {said}" if said else str(ended))


def last_line(path: Path) -> str:
    """The last line of a log that says something, shortened; empty where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().decode(errors="replace").replace("\0", "").splitlines()
    except OSError:
        return ""
    found = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return found if len(found) <= _SHOWN else f"{found[: _SHOWN - 1]}…"
