"""The provider: sees replicas through their slots, and brings them to what is declared."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from homeostat.loop.diff import Diff
from homeostat.loop.fleet import Ref
from homeostat.loop.observation import ABSENT, Absent
from homeostat.loop.provider import DEADLINE, Declared, Provider, Undeclared, current
from homeostat.model.clock import Clock
from homeostat.model.kinds import Column
from homeostat.model.kinds.definition import Scale
from homeostat.providers.process import kernel, launch, logs, places
from homeostat.providers.process.discover import undeclared
from homeostat.providers.process.health import Health, check_of
from homeostat.providers.process.kind import GROUP, ProcessSpec, ProcessState, definition_of, digest_of
from homeostat.providers.process.launch import Allowed
from homeostat.providers.process.places import Place, Seat
from homeostat.providers.process.record import claim
from homeostat.providers.process.slot import Slot

log = logging.getLogger("homeostat.providers.process")

T = TypeVar("T")

KILL_SECONDS = 5.0
"""How long a killed process may take to be gone. One that hangs in the kernel takes longer, and is reported."""
ROTATE_SECONDS = 1.0
"""How often the sizes of logs are looked at."""
_UID = re.compile(r"[A-Za-z0-9-]{1,64}").fullmatch


class Resource(msgspec.Struct):
    """What is held of one declared resource, between one look and the next."""

    ref: Ref
    folder: Path
    slots: dict[int, Slot]
    spec: ProcessSpec | None = None
    digest: str = ""
    health: dict[int, Health] = msgspec.field(default_factory=dict)
    followed: dict[int, int] = msgspec.field(default_factory=dict)
    """By index: the pidfd whose end is waited for."""
    timer: asyncio.TimerHandle | None = None
    news: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def declare(self, spec: ProcessSpec) -> None:
        """What it should be from now on."""
        if spec != self.spec:
            self.spec, self.digest = spec, digest_of(definition_of(spec))


class Process(
    Provider[ProcessSpec, ProcessState],
    group=GROUP,
    host=True,
    short_names=("proc",),
    scale=Scale(),
    shown=("replicas", "ready", "restarts"),
    contested=False,
    means=("readiness", "liveness", "restart", "logs", "stopSignal", "gracefulSeconds", "minReadySeconds", "readyWithinSeconds"),
    columns=(
        Column("Replicas", ".spec.replicas", "integer", "How many there should be."),
        Column("Up", ".status.ready", "integer", "How many run and are ready."),
        Column("Restarts", ".status.restarts", "integer"),
    ),
):
    """Replicas of a command on this host.

    `state_dir` keeps records and logs; one control plane at a time works with it. `allowed` says which commands may run, see
    `launch.Allowed`; default: none. Replicas outlive the control plane, and are taken up again by the next.
    """

    def __init__(self, state_dir: str | Path, allowed: Allowed = False, *, clock: Clock | None = None) -> None:
        if sys.platform != "linux":
            raise RuntimeError(f"processes are kept by pidfds and /proc, which only Linux has; this is {sys.platform}")
        self._root = Path(os.path.abspath(state_dir))
        self._allowed = allowed
        self._clock = clock or Clock()
        self._resources: dict[str, Resource] = {}
        self._lock_file = -1
        self._found: list[kernel.Marked] = []
        self._loading = threading.Lock()
        self._hints: set[Ref] = set()
        self._hinted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Lets go of all processes, which run on, and of the state directory."""
        await asyncio.gather(*self._tasks, *self._busy, return_exceptions=True)
        for uid in list(self._resources):
            self._drop(uid)
        if self._lock_file >= 0:
            os.close(self._lock_file)
            self._lock_file = -1

    def takes(self, spec: ProcessSpec) -> float:
        """A change of definition goes through the replicas one by one, and each may take its time."""
        each = spec.graceful_seconds + spec.ready_within_seconds + spec.min_ready_seconds + KILL_SECONDS
        return DEADLINE + spec.graceful_seconds + each * max(1, spec.replicas)

    # Looking

    async def observe(self, spec: ProcessSpec) -> ProcessState | Absent:
        resource = await self._resource(current().ref)
        if resource is None:
            return ABSENT
        await self._look(resource, spec)
        return places.observed(spec, self._seats(resource), self._clock.now())

    async def discover(self, declared: Sequence[Declared[ProcessSpec]]) -> list[Undeclared]:
        uids = {one.ref.uid for one in declared}
        return await asyncio.to_thread(lambda: list(undeclared(self._root, uids)))

    async def unhealthy(self, spec: ProcessSpec, state: ProcessState) -> str:
        resource = self._resources.get(current().ref.uid)
        return places.unhealthy(spec, self._seats(resource), self._clock.now()) if resource else ""

    async def _look(self, resource: Resource, spec: ProcessSpec) -> None:
        """Notes what has ended, and sees to it that whatever happens next is noticed."""
        resource.declare(spec)
        await self._note_ends(resource)
        for slot in resource.slots.values():
            if slot.unwritten:
                await self._in_thread(slot.write)
            if slot.strays:
                slot.strays = [stray for stray in slot.strays if kernel.runs(stray.process)]
        self._follow(resource, spec)

    async def _note_ends(self, resource: Resource) -> None:
        await _all([self._note_end(resource, slot) for slot in resource.slots.values() if slot.end_unnoted])

    async def _note_end(self, resource: Resource, slot: Slot) -> None:
        if not slot.end_unnoted:
            return
        assert resource.spec is not None
        await self._in_thread(slot.note_end, resource.spec.restart, self._clock.now())
        self._close_released(resource, slot)
        resource.news.set()

    def _seats(self, resource: Resource) -> dict[int, Seat]:
        return {i: self._seat(resource, slot) for i, slot in resource.slots.items() if slot.replica or slot.strays}

    def _seat(self, resource: Resource, slot: Slot) -> Seat:
        health, replica = resource.health.get(slot.index), slot.replica
        if health is None or replica is None or health.nonce != replica.nonce:
            ready = resource.spec is None or resource.spec.readiness is None or (replica is not None and replica.ready)
            return Seat(replica, slot.running, ready, strays=len(slot.strays))
        return Seat(replica, slot.running, health.ready, health.alive, len(slot.strays), health.said)

    def _place(self, resource: Resource, slot: Slot, spec: ProcessSpec) -> Place:
        return places.place_of(self._seat(resource, slot), resource.digest, spec.restart, self._clock.now())

    # Hints

    async def watch(self) -> AsyncIterator[Ref]:
        """Resources of which a replica ended, turned ready or not, or is due again after its crashes."""
        rotation = asyncio.create_task(self._rotate_forever(), name="log rotation")
        try:
            while True:
                await self._hinted.wait()
                self._hinted.clear()
                hints, self._hints = self._hints, set()
                for ref in hints:
                    yield ref
        finally:
            rotation.cancel()

    def _hint(self, resource: Resource) -> None:
        resource.news.set()
        self._hints.add(resource.ref)
        self._hinted.set()

    def _follow(self, resource: Resource, spec: ProcessSpec) -> None:
        """Waits for the ends of all that runs, probes it, and wakes up when what crashed is due."""
        for slot in resource.slots.values():
            self._follow_one(resource, slot, spec)
        if resource.timer is not None:
            resource.timer.cancel()
            resource.timer = None
        now = self._clock.now()
        due = places.next_retry(spec, self._seats(resource), now)
        if due is not None:
            resource.timer = asyncio.get_running_loop().call_later(due - now + 0.001, self._hint, resource)

    def _follow_one(self, resource: Resource, slot: Slot, spec: ProcessSpec) -> None:
        self._close_released(resource, slot)
        pidfd = slot.pidfd
        if pidfd is not None and resource.followed.get(slot.index) != pidfd:
            resource.followed[slot.index] = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._ended, resource, slot, pidfd)
        self._probe(resource, slot, spec)

    def _ended(self, resource: Resource, slot: Slot, pidfd: int) -> None:
        """A process has ended: the kernel says so at once, whether or not it is our child."""
        asyncio.get_running_loop().remove_reader(pidfd)

        async def note() -> None:
            try:
                await self._note_end(resource, slot)
            finally:
                self._hint(resource)

        self._spawn(note())

    def _probe(self, resource: Resource, slot: Slot, spec: ProcessSpec) -> None:
        replica, health = slot.replica, resource.health.get(slot.index)
        wanted = replica is not None and slot.running and (spec.readiness or spec.liveness) is not None
        if health is not None and not (wanted and replica is not None and health.fits(spec, replica)):
            resource.health.pop(slot.index).close()
            health = None
        if wanted and replica is not None and health is None:
            resource.health[slot.index] = made = Health(
                spec, slot.index, replica, self._allowed, self._clock.now, lambda: self._turned(resource, slot, made)
            )

    def _turned(self, resource: Resource, slot: Slot, health: Health) -> None:
        self._hint(resource)
        self._spawn(asyncio.to_thread(slot.note_ready, health.nonce, health.ready))

    async def _in_thread(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Does what waits for kernel or disk. It goes on when its caller gives up, so `close` waits for it."""
        task = asyncio.create_task(asyncio.to_thread(work, *args, **options))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return await asyncio.shield(task)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("how a replica fares could not be noted: %s", error)

    async def _rotate_forever(self) -> None:
        while True:
            await asyncio.sleep(ROTATE_SECONDS)
            files = [
                (path, resource.spec.logs)
                for resource in self._resources.values()
                for index in tuple(resource.slots)
                if resource.spec is not None
                for path in logs.paths_of(resource.folder, index)
            ]
            await asyncio.to_thread(_rotate, files)

    # Acting

    async def apply(self, spec: ProcessSpec, diff: Diff) -> None:
        how = await self._in_thread(self._prepare, spec)
        resource = await self._resource(current().ref, make=True)
        assert resource is not None
        await self._look(resource, spec)
        try:
            await self._end_sick(resource, spec)
            await self._fill(resource, spec, how)
            await self._end_surplus(resource, spec)
            await self._roll(resource, spec, how)
        finally:
            self._follow(resource, spec)

    def _prepare(self, spec: ProcessSpec) -> launch.Start:
        for probe in (spec.readiness, spec.liveness):
            if probe is not None:
                check_of(probe, spec, 0, self._allowed)
        return launch.prepare(definition_of(spec), self._allowed)

    async def _end_sick(self, resource: Resource, spec: ProcessSpec) -> None:
        sick = [
            s
            for s in resource.slots.values()
            if s.index < spec.replicas and self._place(resource, s, spec) is Place.SICK
        ]
        await _all(self._end(resource, slot, spec, vacate=False) for slot in sick)

    async def _fill(self, resource: Resource, spec: ProcessSpec, how: launch.Start) -> None:
        """Starts what is missing, all at once: it harms nothing that runs."""
        await self._note_ends(resource)
        for index in range(spec.replicas):
            if index not in resource.slots:
                resource.slots[index] = Slot(resource.folder, resource.ref.uid, index)
        missing = [
            slot
            for slot in resource.slots.values()
            if slot.index < spec.replicas and self._place(resource, slot, spec) in (Place.VACANT, Place.DUE)
        ]
        await _all(self._start(resource, slot, spec, how) for slot in missing)

    async def _start(self, resource: Resource, slot: Slot, spec: ProcessSpec, how: launch.Start) -> None:
        await self._note_end(resource, slot)
        await self._in_thread(slot.start, how, definition_of(spec), self._clock.now())
        self._follow_one(resource, slot, spec)

    async def _end_surplus(self, resource: Resource, spec: ProcessSpec) -> None:
        """Ends what is too many, the highest index first."""
        surplus = sorted(
            (slot for slot in resource.slots.values() if slot.index >= spec.replicas), key=lambda s: -s.index
        )
        await _all(self._vacate(resource, slot, spec) for slot in surplus)
        for slot in surplus:
            resource.slots.pop(slot.index, None)
        for slot in resource.slots.values():
            if slot.strays:
                await self._in_thread(slot.kill_strays)

    async def _vacate(self, resource: Resource, slot: Slot, spec: ProcessSpec) -> None:
        await self._end(resource, slot, spec)
        await self._in_thread(slot.kill_strays)
        await self._in_thread(slot.clear)
        self._unfollow(resource, slot)

    async def _end(self, resource: Resource, slot: Slot, spec: ProcessSpec, *, vacate: bool = True) -> None:
        """Asks a replica to end, waits, and then kills it; and all that it started, either way."""
        asked = signal.Signals[spec.stop_signal]
        ending = await self._in_thread(slot.ask_to_end, asked, vacate=vacate)
        if ending is None:
            await self._in_thread(slot.kill, ())
        else:
            try:
                await kernel.wait_ended(ending.pidfd, spec.graceful_seconds)
                await self._in_thread(slot.kill, ending.members)
                if not await kernel.wait_ended(ending.pidfd, KILL_SECONDS):
                    assert slot.replica is not None
                    raise RuntimeError(
                        f"replica {slot.index} (pid {slot.replica.process.pid}) was killed and does not end"
                    )
            finally:
                os.close(ending.pidfd)
        await self._note_end(resource, slot)

    async def _roll(self, resource: Resource, spec: ProcessSpec, how: launch.Start) -> None:
        """Replaces what has another definition one by one: first what does nothing anyway, then what works."""
        while True:
            slots = [resource.slots[index] for index in range(spec.replicas)]
            outdated = [slot for slot in slots if self._place(resource, slot, spec) is Place.OUTDATED]
            if not outdated:
                return
            slot = min(outdated, key=lambda s: (self._works(resource, s), s.index))
            if self._works(resource, slot):
                await self._fill(resource, spec, how)
                for other in slots:
                    if other not in outdated:
                        await self._come_up(resource, other, spec)
            await self._end(resource, slot, spec)
            await self._start(resource, slot, spec, how)
            await self._come_up(resource, slot, spec)

    def _works(self, resource: Resource, slot: Slot) -> bool:
        seat = self._seat(resource, slot)
        return seat.running and seat.ready and seat.alive

    async def _come_up(self, resource: Resource, slot: Slot, spec: ProcessSpec) -> None:
        """Waits until a replica is ready and has been up long enough. Raises where it ends, or is not ready in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + spec.ready_within_seconds
        while True:
            await self._note_end(resource, slot)
            resource.news.clear()
            place, seat = self._place(resource, slot, spec), self._seat(resource, slot)
            if place not in places.WELL:
                how = f" ({slot.replica.ended})" if slot.replica and slot.replica.ended else ""
                out = logs.paths_of(resource.folder, slot.index)[1]
                raise RuntimeError(
                    f"replica {slot.index} did not stay up with the new definition{how}; the others are left as they are, see {out}"
                )
            if place is Place.DONE:
                return
            assert seat.replica is not None
            wait = (
                seat.replica.began + spec.min_ready_seconds - self._clock.now()
                if seat.ready
                else deadline - loop.time()
            )
            if wait <= 0:
                if seat.ready:
                    return
                within = f"{spec.ready_within_seconds:g} s"
                raise RuntimeError(
                    f"replica {slot.index} is not ready within {within}; the others are left as they are: {seat.said}"
                )
            try:
                async with asyncio.timeout(wait):
                    await resource.news.wait()
            except TimeoutError:
                pass

    async def delete(self, spec: ProcessSpec) -> None:
        resource = await self._resource(current().ref)
        if resource is None:
            return
        resource.declare(spec)
        slots = sorted(resource.slots.values(), key=lambda s: -s.index)
        await _all(self._vacate(resource, slot, spec) for slot in slots)
        self._drop(resource.ref.uid)
        await self._in_thread(_remove, resource.folder)

    # What is held

    async def _resource(self, ref: Ref, *, make: bool = False) -> Resource | None:
        """What is held of a resource, read from disk and kernel the first time; None where there is nothing."""
        found = self._resources.get(ref.uid)
        if found is None:
            loaded = await self._in_thread(self._load, ref, make)
            if loaded is None:
                return None
            found = self._resources.setdefault(ref.uid, loaded)
        return found

    def _load(self, ref: Ref, make: bool) -> Resource | None:
        if not _UID(ref.uid):
            raise ValueError(f"{ref.uid!r} is not a uid")
        with self._loading:
            self._take_state_dir()
        folder = self._root / ref.uid
        found = [one for one in self._found if one.mark.uid == ref.uid and kernel.runs(one.process)]
        if not folder.is_dir() and not found and not make:
            return None
        folder.mkdir(mode=0o700, exist_ok=True)
        recorded = {int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()}
        slots = {index: Slot(folder, ref.uid, index) for index in sorted(recorded | {one.mark.index for one in found})}
        for slot in slots.values():
            slot.load(found)
        return Resource(ref, folder, slots)

    def _take_state_dir(self) -> None:
        """Makes sure that nobody else works with the state directory, and looks once for marked processes."""
        if self._lock_file >= 0:
            return
        lock = claim(self._root, "control plane")
        try:
            self._found = kernel.marked(self._root, lambda mark: True)
        except BaseException:
            os.close(lock)
            raise
        self._lock_file = lock

    def _drop(self, uid: str) -> None:
        resource = self._resources.pop(uid, None)
        if resource is None:
            return
        for slot in resource.slots.values():
            self._unfollow(resource, slot)
        if resource.timer is not None:
            resource.timer.cancel()

    def _unfollow(self, resource: Resource, slot: Slot) -> None:
        if (health := resource.health.pop(slot.index, None)) is not None:
            health.close()
        if slot.pidfd is not None:
            slot.released.append(slot.pidfd)
            slot.pidfd = None
        self._close_released(resource, slot)

    def _close_released(self, resource: Resource, slot: Slot) -> None:
        while slot.released:
            pidfd = slot.released.pop()
            if resource.followed.get(slot.index) == pidfd:
                del resource.followed[slot.index]
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Does all of it at the same time, to the end; then raises what the first to fail raised."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _rotate(files: Iterable[tuple[Path, Any]]) -> None:
    for path, policy in files:
        try:
            logs.rotate(path, policy)
        except OSError as error:
            log.warning("the log %s could not be rotated: %s", path, error.strerror)
