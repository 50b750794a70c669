"""What is decided: where each replica stands, what follows when one ends, what is seen of the whole. Pure functions, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from homeostat.model.clock import format_time
from homeostat.providers.process.kind import ProcessSpec, ProcessState, Restart, definition_of, digest_of
from homeostat.providers.process.record import Ended, Replica, made_with

_SAID = 3
"""How many replicas a message names."""


class Place(StrEnum):
    """Where the replica of one index stands."""

    VACANT = "vacant"  # nothing there
    UP = "up"
    SICK = "sick"  # runs, but is not alive
    OUTDATED = "outdated"  # has another definition than the declared one, whether it runs or not
    DUE = "due"  # ended, and is to be started again now
    WAITING = "waiting"  # ended, and is started again later
    DONE = "done"  # ended well, for good
    FAILED = "failed"  # ended badly, for good


FILLED = frozenset((Place.UP, Place.OUTDATED, Place.WAITING, Place.DONE, Place.FAILED))
"""Nothing is missing there. What is outdated differs by its definition."""
WELL = frozenset((Place.UP, Place.DONE))


class Seat(msgspec.Struct, frozen=True):
    """One index as it was seen: its record, whether its process runs, whether it is ready and alive, and why not."""

    replica: Replica | None = None
    running: bool = False
    ready: bool = True
    alive: bool = True
    strays: int = 0
    """Processes that an earlier replica of this index left behind."""
    said: str = ""
    """What its probe said last."""


def place_of(seat: Seat, digest: str, restart: Restart, now: float) -> Place:
    """Where a replica stands, seen from the declaration."""
    replica = seat.replica
    if replica is None or (not seat.running and replica.stopping):
        return Place.VACANT
    if not made_with(replica.nonce, digest):
        return Place.OUTDATED
    if seat.running:
        return Place.UP if seat.alive else Place.SICK
    if not replica.through or replica.ended is None:
        return Place.DUE  # the command never ran
    good = replica.ended.status == 0
    if restart.policy == "Never" or (restart.policy == "OnFailure" and good):
        return Place.DONE if good else Place.FAILED
    # One that ended in the future tells of a clock that was set back: nobody waits until it is there again.
    return Place.WAITING if replica.ended.at <= now < replica.retry_at else Place.DUE


def after_end(replica: Replica, status: int | None, restart: Restart, now: float) -> Replica:
    """The record of a replica whose process is no more."""
    ended = replica.but(ended=Ended(now, status), ready=False)
    if replica.stopping or not replica.through:
        return ended
    crashes = 1 if now - replica.began >= restart.stable_seconds else replica.crashes + 1
    return ended.but(crashes=crashes, retry_at=now + wait_after(crashes, restart))


def wait_after(crashes: int, restart: Restart) -> float:
    """Seconds to wait after so many crashes in a row; none after the first."""
    if crashes <= 1:
        return 0.0
    return float(min(restart.most_seconds, restart.first_seconds * 2 ** min(crashes - 2, 32)))


def observed(spec: ProcessSpec, seats: Mapping[int, Seat], now: float) -> ProcessState:
    """What is seen of the whole. While places are missing, it is they that are counted; else what is too many is counted in."""
    definition = definition_of(spec)
    digest = digest_of(definition)
    wanted = [seats.get(index, Seat()) for index in range(spec.replicas)]
    places = [place_of(seat, digest, spec.restart, now) for seat in wanted]
    missing = sum(place not in FILLED for place in places)
    surplus = sum(index >= spec.replicas for index in seats) + sum(seat.strays for seat in seats.values())
    shown = next(
        (seat.replica for seat, place in zip(wanted, places, strict=True) if place is Place.OUTDATED and seat.replica),
        None,
    )
    other = definition if shown is None else shown.definition
    return ProcessState(
        replicas=spec.replicas - missing if missing else spec.replicas + surplus,
        ready=sum(seat.running and seat.ready for seat in wanted),
        restarts=sum(seat.replica.restarts for seat in wanted if seat.replica),
        command=other.command if other else [],  # its record got lost: whatever it is, it is not the declared one
        env=(other or definition).env,
        working_dir=(other or definition).working_dir,
        user=(other or definition).user,
        limits=(other or definition).limits,
    )


def unhealthy(spec: ProcessSpec, seats: Mapping[int, Seat], now: float) -> str:
    """Why replicas that are as declared do not do their work, for people; empty where they do."""
    digest = digest_of(definition_of(spec))
    said = []
    for index in range(spec.replicas):
        seat = seats.get(index, Seat())
        if words := _trouble(seat, place_of(seat, digest, spec.restart, now), spec.restart):
            said.append(f"replica {index} {words}")
    more = [f"and {len(said) - _SAID} more"] if len(said) > _SAID else []
    return "; ".join(said[:_SAID] + more)


def _trouble(seat: Seat, place: Place, restart: Restart) -> str:
    replica = seat.replica
    if place is Place.UP:
        return "" if seat.ready else f"is not ready: {seat.said or 'its probe has not passed yet'}"
    if replica is None or replica.ended is None:
        return ""
    if place is Place.WAITING:
        again = format_time(replica.retry_at)
        return f"crashed {replica.crashes} times in a row ({replica.ended}); it is not started again before {again}"
    if place is Place.FAILED:
        return f"ended badly ({replica.ended}), and restart is {restart.policy}"
    return ""


def next_retry(spec: ProcessSpec, seats: Mapping[int, Seat], now: float) -> float | None:
    """When the first of those that wait is due; None where none waits."""
    digest = digest_of(definition_of(spec))
    waiting = [
        seat.replica.retry_at
        for index, seat in seats.items()
        if index < spec.replicas and seat.replica and place_of(seat, digest, spec.restart, now) is Place.WAITING
    ]
    return min(waiting, default=None)
