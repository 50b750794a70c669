"""One replica on this machine: brings it, step by step, to where it is wanted, and knows how it stands."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from homeostat.client import Unreachable
from homeostat.client.backoff import Backoff
from homeostat.gpu.agent import journal, witness
from homeostat.gpu.agent.devices import Devices, Gone
from homeostat.gpu.agent.family import family_of
from homeostat.gpu.agent.journal import Note
from homeostat.gpu.agent.launching import Rules, starting, visible
from homeostat.gpu.agent.origin import InDoubt, Origin, OtherServer
from homeostat.gpu.agent.outcome import Outcome, last_line, outcome_of
from homeostat.gpu.agent.suspend import Broken, CannotSuspend
from homeostat.gpu.agent.wanted import DEVICES, Aim, Declared, Off, Standing, Step, Wish, farewell, next_step, wish_for
from homeostat.gpu.kinds import Place, ReplicaState, Report
from homeostat.loop.provider import Refused
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError
from homeostat.model.kinds import InvalidSpec
from homeostat.providers.process import kernel, logs
from homeostat.providers.process.kind import Restart
from homeostat.providers.process.record import Ended, Identity, Mark
from homeostat.providers.process.slot import Slot

log = logging.getLogger("homeostat.gpu.agent")

T = TypeVar("T")

KILL_SECONDS = 10.0
"""How long a killed process may take to be gone. One that hangs in a driver takes longer, and is reported."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds before what failed is tried again."""
RESUME_TRIES = 5
"""After so many, each refused by the driver for another reason than a lack of memory, what it had on the GPUs is taken for lost."""
DOUBT_SECONDS = 5.0
"""How often is looked whether what is held back while the server is in doubt may be done."""
_NEVER = Restart(policy="Never")


class House(msgspec.Struct, frozen=True):
    """What all replicas of a machine share."""

    node: str
    devices: Devices
    rules: Rules
    clock: Clock
    suspend_seconds: float
    declared: Callable[[str], Declared | None]
    """A workload by its uid as it is declared now; None where it is no more. Raises where that cannot be told."""
    changed: Callable[[str], None]
    """Told the uid of a workload of which something new is to be reported."""
    in_the_way: Callable[[Hosted, Place], str]
    """Who of the others is still on these GPUs, so that there is no room; empty: nobody."""
    source: random.Random
    """Of the jitter of retries."""
    is_current: Callable[[Declared], Awaitable[bool]]
    """Asks the server whether a workload is still as it is known here."""
    origin: Origin | None = None
    """Which server may want something here; none: any."""


class Hosted:
    """A replica that is, was, or is to be here. `drive` does all the work, in a task of its own."""

    def __init__(self, house: House, folder: Path, uid: str, replica: int) -> None:
        self.uid, self.replica = uid, replica
        self.note: Note | None = None
        self.trouble = ""
        """Why nothing is known of it, or nothing can be done with it; for people."""
        self.forgotten = False
        self.waits = ""
        """What it waits for before it comes onto its GPUs."""
        self._coming: Place | None = None
        self._house = house
        self._folder = folder
        self._slot = Slot(folder, uid, replica)
        self._path = journal.path_of(folder, replica)
        self._exit_file = journal.exit_file_of(folder, replica)
        self._wake = asyncio.Event()
        self._followed: int | None = None
        self._shown: Note | None = None
        """The note as it is reported: what is written down before it is so is not told before it is so."""
        self._tried: Wish | None = None
        self._declared: Declared | None = None
        """The workload by which that was wished for."""
        self._fate = ""
        self._in_vain = 0
        """How often in a row the driver refused to put it back."""
        self._busy: set[asyncio.Task[Any]] = set()

    def load(self, found: Sequence[kernel.Marked]) -> None:
        """Takes up what an earlier agent left. For threads. Where it cannot be told what runs, nothing is touched."""
        try:
            self.note = journal.load(self._path)
            self._slot.load(found)
            lives = self._slot.running or self.note is None or self.note.state is not ReplicaState.RUNNING
            self._shown = self.note if lives else None  # it never started, or ended while nobody looked: how, is told when it is known
        except (OSError, ValueError) as error:
            self.trouble = str(error)
            log.error("replica %d of %s is left alone: %s", self.replica, self.uid, error)

    # How it stands

    @property
    def running(self) -> bool:
        """Whether it has a process, on the GPUs or off them."""
        return self._slot.running

    @property
    def on_gpu(self) -> bool:
        """Whether it uses its GPUs, as far as it is known."""
        return self.running and self.note is not None and self.note.off is not Off.YES

    @property
    def holds(self) -> tuple[Sequence[int], int]:
        """The GPUs that it is on, or is just coming onto, and how much it has of each."""
        if self._coming is not None:
            return self._coming.gpus, self._coming.milli
        return (self.note.gpus, self.note.milli) if self.on_gpu and self.note is not None else ((), 0)

    @property
    def logs(self) -> tuple[Path, Path]:
        """Where its output goes."""
        return logs.paths_of(self._folder, self.replica)

    @property
    def pid(self) -> int | None:
        """Of the process that it was started as; None where it does not run."""
        replica = self._slot.replica
        return replica.process.pid if replica is not None and self.running else None

    def processes(self) -> list[Identity]:
        """All its processes. For threads."""
        replica = self._slot.replica
        if replica is None or not self.running:
            return []
        return family_of(replica.process, Mark(self.uid, self.replica, replica.nonce), self._folder)

    def standing(self) -> Standing:
        """How it stands, as decisions see it."""
        replica, note = self._slot.replica, self.note
        definition = replica.definition if replica else None
        over = note is not None and note.over
        return Standing(
            running=self.running,
            off=note.off if note else Off.NO,
            known=replica is not None or over,
            attempt=note.attempt if note else 0,
            stopping=replica is not None and replica.stopping and not over,
            devices=definition.env.get(DEVICES) if definition else None,
        )

    def report(self) -> Report | None:
        """What is told of it; None where there is nothing to tell yet."""
        note = self._shown
        if self.trouble:
            return Report(replica=self.replica, node=self._house.node, state=ReplicaState.UNKNOWN, reason=self.trouble)
        if note is None:
            return None
        if note.state is ReplicaState.SUSPENDED and (self.on_gpu or (self.running and self._coming is not None)):
            note = note.but(state=ReplicaState.UNKNOWN, reason="it comes back onto its GPUs")  # it is off them no more, and not yet at work
        return Report(
            replica=self.replica,
            node=self._house.node,
            state=note.state,
            attempt=note.attempt,
            gpus=note.gpus,
            pid=self.pid,
            since=datetime.fromtimestamp(int(note.since), UTC),
            exit_code=note.exit_code,
            reason=note.reason,
            gpu_seconds=round(note.gpu_seconds, 1),
            refusals=note.refusals,
        )

    # Its life

    def wake(self) -> None:
        """Something that concerns it may have changed."""
        self._wake.set()

    async def drive(self) -> None:
        """Brings it to where it is wanted, and keeps it there, until it is forgotten. Where that fails, it is tried again later."""
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE, self._house.source)
        while not self.forgotten and not self.trouble:
            self._wake.clear()
            pause: float | None = None
            try:
                if await self._advance():
                    backoff.reset()
                    continue
            except CannotSuspend as error:
                pause = backoff.next()
                log.warning("%s: %s; again in %.0f s", self, error, pause)
            except (InDoubt, OtherServer) as error:
                pause = DOUBT_SECONDS
                self._tell_trouble(str(error))
            except Exception as error:
                pause = backoff.next()
                strange = not isinstance(error, OSError | InvalidSpec | Refused | Gone | ApiError | Unreachable)
                log.warning("%s: %s; again in %.0f s", self, error, pause, exc_info=strange)
                self._tell_trouble(str(error) or type(error).__name__)
            self._follow()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
                    while pause is not None and not self._moved_on():  # our own report wakes us too
                        self._wake.clear()
                        await self._wake.wait()

    def _moved_on(self) -> bool:
        """Whether something else is wanted than what failed, or its process has ended."""
        return self._slot.end_unnoted or self._wish() != self._tried

    def _wish(self) -> Wish | None:
        try:
            return wish_for(self._house.declared(self.uid), self.replica, self._house.node)
        except InvalidSpec:
            return None

    async def close(self) -> None:
        """Lets go of its process, which runs on. What is under way in a thread is waited for."""
        await asyncio.gather(*self._busy, return_exceptions=True)
        if self._slot.pidfd is not None:
            self._slot.released.append(self._slot.pidfd)
            self._slot.pidfd = None
        self._close_released()

    def __str__(self) -> str:
        note = self.note
        return f"replica {self.replica} of {f'{note.namespace}/{note.name}' if note else self.uid}"

    async def _advance(self) -> bool:
        """One step; says whether there was one to do."""
        self._declared = workload = self._house.declared(self.uid)
        self._tried = wish = wish_for(workload, self.replica, self._house.node)
        if self.note is None and self._slot.replica is not None and workload is not None:
            note = self._fresh_note(workload, wish)  # it got lost; the process did not
            await self._put(note.turned(ReplicaState.RUNNING, self._house.clock.now()))
        await self._note_end(wish)
        await self._note_absence(workload, wish)
        if wish.aim is Aim.RUN and self.note is not None and self.note.refusals:  # called off
            await self._tell(self.note.but(refusals=0, reason=""))
        try:
            devices = visible(self._house.devices, wish.place) if wish.place and wish.aim is Aim.RUN else ""
        except Refused as error:
            if wish.aim is Aim.RUN and not self.running and workload:
                return await self._refuse(workload, wish, str(error))
            raise
        standing = self.standing()
        step = next_step(wish, standing, devices)
        if self._house.origin is not None and step is not None:
            if step in (Step.START, Step.RESUME) or standing.stopping:  # nothing is lost by these
                self._house.origin.check_known(self._house.node)
            else:
                await self._house.origin.check(self._house.node)
        if step in (Step.START, Step.RESUME) and wish.place is not None:
            # Who stood still for long wakes up with old news, and what they want may run elsewhere by now.
            if self._must_wait(wish, wish.place) or (workload is not None and not await self._house.is_current(workload)):
                return False
            if self._must_wait(wish, wish.place):
                return False
            self._coming = wish.place
        try:
            await self._take(step, workload, wish)
        finally:
            self._coming = None
        return step is not None

    def _must_wait(self, wish: Wish, place: Place) -> bool:
        """Whether something is still to end before it may come onto its GPUs. It is looked at again when that changes."""
        waits = f"until {wish.wait_for} has ended it" if wish.wait_for else self._house.in_the_way(self, place)
        if waits and waits != self.waits:
            log.info("%s waits: %s", self, waits)
        self.waits = waits
        return bool(waits)

    async def _take(self, step: Step | None, workload: Declared | None, wish: Wish) -> None:
        match step:
            case Step.START:
                assert workload is not None
                await self._start(workload, wish)
            case Step.SUSPEND:
                await self._suspend(wish)
            case Step.RESUME:
                await self._resume()
            case Step.STOP:
                await self._stop(wish, workload)
            case Step.KILL:
                await self._end(signal.SIGKILL, 0.0, wish)
            case Step.FORGET:
                await self._forget()

    # Steps

    async def _start(self, workload: Declared, wish: Wish) -> None:
        house, place = self._house, wish.place
        assert place is not None
        try:
            how, definition = await self._in_thread(
                starting, workload, place, house.node, house.devices, house.rules, self._exit_file
            )
        except Refused as error:
            await self._refuse(workload, wish, str(error))
            return
        # The record of an earlier start goes first: one that is found beside this note belongs to it.
        await self._in_thread(self._slot.clear)
        await self._put(self._fresh_note(workload, wish).turned(ReplicaState.RUNNING, house.clock.now()), tell=False)
        await self._in_thread(self._slot.start, how, definition, house.clock.now())
        log.info("%s: started as pid %s", self, self.pid)
        self._show()

    async def _refuse(self, workload: Declared, wish: Wish, why: str) -> bool:
        """It cannot be started as it is declared; says whether that is news."""
        if self.note is not None and self.note.over and self.note.attempt >= wish.attempt:
            return False
        note = self._fresh_note(workload, wish)
        await self._put(note.turned(ReplicaState.FAILED, self._house.clock.now(), reason=why, over=True))
        return True

    async def _suspend(self, wish: Wish) -> None:
        assert self.note is not None
        suspension = self._house.devices.suspension
        room = await self._in_thread(suspension.room, self.processes)
        if self.note.off is not Off.NO:  # a move was cut short: some may not be there
            room = {gpu: max(room.get(gpu, 0), self.note.room.get(gpu, 0)) for gpu in {*room, *self.note.room}}
        try:
            await self._put(self.note.but(off=Off.LEAVING, room=room), tell=False)
        except OSError as error:
            await self._refused(str(error))
        try:
            await self._in_thread(suspension.suspend, self.processes, self._house.suspend_seconds, gang=self._has_company())
        except CannotSuspend as error:
            if self.running:
                await self._refused(str(error))
        except Broken as error:
            await self._give_up(wish, str(error))
        if self.running:
            now = self._house.clock.now()
            await self._put(self.note.turned(ReplicaState.SUSPENDED, now, off=Off.YES, reason=wish.why, refusals=0))

    def _has_company(self) -> bool:
        """Whether others of its gang are on this machine."""
        return self._declared is not None and self._declared.nodes.count(self._house.node) > 1

    async def _refused(self, why: str) -> NoReturn:
        """It could not be suspended, and runs on."""
        assert self.note is not None
        await self._tell(self.note.but(off=Off.NO, reason=f"it could not be suspended: {why}", refusals=self.note.refusals + 1))
        raise CannotSuspend(why)

    async def _resume(self) -> None:
        assert self.note is not None
        await self._put(self.note.but(off=Off.RETURNING), tell=False)
        try:
            await self._in_thread(self._house.devices.suspension.resume, self.processes, self._house.suspend_seconds, self.note.room)
        except CannotSuspend as error:
            self._in_vain += error.lasting
            if self._in_vain >= RESUME_TRIES:
                await self._give_up(Wish(Aim.END, str(error)), f"it could not be put back on its GPUs in {self._in_vain} tries, and is lost: {error}")
            elif self.running:
                await self._put(self.note.but(off=Off.YES, reason=f"it could not be resumed: {error}"))
                raise
        except Broken as error:
            await self._give_up(Wish(Aim.END, str(error)), str(error))
        self._in_vain = 0
        if self.running:
            await self._put(self.note.turned(ReplicaState.RUNNING, self._house.clock.now(), off=Off.NO, reason=""))

    async def _give_up(self, wish: Wish, why: str) -> None:
        self._fate = why
        await self._end(signal.SIGKILL, 0.0, wish)

    async def _stop(self, wish: Wish, workload: Declared | None) -> None:
        name, grace = (self.note.signal, self.note.grace) if self.note else ("SIGTERM", 30.0)
        if workload is not None:
            name, grace = farewell(workload)
        try:
            sig = signal.Signals[name]
        except KeyError:
            sig = signal.SIGTERM
        await self._end(sig, grace, wish)

    async def _end(self, sig: signal.Signals, grace: float, wish: Wish) -> None:
        """Asks it to end, waits, and then kills it; and all that it started, either way."""
        family = await self._in_thread(self.processes)  # who has a session of its own is known by its parents, while they live
        ending = await self._in_thread(self._slot.ask_to_end, sig, vacate=True)
        if ending is not None:
            try:
                await self._ends(ending.pidfd, grace)
                await self._in_thread(self._slot.kill, [*ending.members, *family])
                if not await self._ends(ending.pidfd, KILL_SECONDS):
                    raise RuntimeError("it was killed and does not end: it hangs in the kernel or a driver")
            finally:
                self._let_go(ending.pidfd)
        await self._note_end(wish)

    async def _forget(self) -> None:
        await self._in_thread(self._slot.clear)
        await self._in_thread(self._path.unlink, missing_ok=True)
        self._close_released()
        self.note = None
        self.forgotten = True
        self._show()

    async def _note_end(self, wish: Wish) -> None:
        """Writes down that and how its process ended, and ends what it left behind: the GPU is to be free."""
        if self._slot.end_unnoted:
            await self._in_thread(self._slot.note_end, _NEVER, self._house.clock.now())
        replica, note = self._slot.replica, self.note
        if replica is None or replica.ended is None or note is None or note.ended == replica.nonce:
            return
        await self._in_thread(self._slot.kill, ())
        if not replica.through:  # it never ran: the next step begins it
            await self._in_thread(self._slot.clear)
            return
        if replica.ended.status is None:
            mark = str(Mark(self.uid, self.replica, replica.nonce))
            status = await self._in_thread(witness.seen, self._exit_file, mark)
            replica = replica.but(ended=Ended(replica.ended.at, status))
        assert replica.ended is not None
        said = await self._in_thread(last_line, self.logs[1]) if replica.ended.status else ""
        how = Outcome(ReplicaState.FAILED, None, self._fate) if self._fate else outcome_of(replica.ended, wish, said, stopping=replica.stopping)
        over, self._fate = bool(self._fate), ""
        log.info("%s: ended (%s)", self, replica.ended)
        note = note.turned(how.state, self._house.clock.now(), exit_code=how.exit_code, reason=how.reason)
        await self._put(note.but(off=Off.NO, over=over, ended=replica.nonce))

    async def _note_absence(self, workload: Declared | None, wish: Wish) -> None:
        """Writes down that it is off the GPUs because it never was on them: somebody may wait for that word."""
        if workload is None or wish.aim is not Aim.OFF or self._slot.replica is not None:
            return
        if self.note is None or self.note.state in (ReplicaState.RUNNING, ReplicaState.UNKNOWN):
            note = self._fresh_note(workload, wish).turned(ReplicaState.SUSPENDED, self._house.clock.now(), reason="it had not begun")
            await self._tell(note)

    # What is remembered

    def _fresh_note(self, workload: Declared, wish: Wish) -> Note:
        return Note.fresh(workload, self.replica, wish, self.note, self._house.clock.now())

    async def _put(self, note: Note, *, tell: bool = True) -> None:
        await self._in_thread(journal.save, self._path, note)
        self.note = note
        if tell:
            self._show()

    async def _tell(self, note: Note) -> None:
        """To be told it need not be kept: whoever comes after finds the same of it."""
        try:
            await self._put(note)
        except OSError:
            self.note = note
            self._show()

    def _show(self) -> None:
        self._shown = self.note
        self._house.changed(self.uid)

    def _tell_trouble(self, why: str) -> None:
        """What was tried failed for a reason outside of the workload: it is reported, and tried again."""
        note = self.note
        if note is None and self._tried is not None and self._tried.aim is Aim.RUN and self._declared is not None:
            note = self._fresh_note(self._declared, self._tried)
        if note is None or note.reason == why:
            return
        state = note.state if self.running else ReplicaState.UNKNOWN
        self.note = note.turned(state, self._house.clock.now(), reason=why)
        self._show()

    # The hold on its process

    def _follow(self) -> None:
        """Wakes up when its process ends: the kernel says so at once, whether or not it is our child."""
        self._close_released()
        pidfd = self._slot.pidfd
        if pidfd is not None and self._followed != pidfd:
            self._followed = pidfd
            asyncio.get_running_loop().add_reader(pidfd, self._ended, pidfd)

    def _ended(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        self.wake()

    def _close_released(self) -> None:
        while self._slot.released:
            pidfd = self._slot.released.pop()
            if self._followed == pidfd:
                self._followed = None
            asyncio.get_running_loop().remove_reader(pidfd)
            self._let_go(pidfd)

    async def _ends(self, pidfd: int, seconds: float) -> bool:
        return await kernel.wait_ended(pidfd, seconds)

    def _let_go(self, pidfd: int) -> None:
        os.close(pidfd)

    async def _in_thread(self, work: Callable[..., T], *args: Any, **options: Any) -> T:
        """Does what waits for kernel, disk or driver. It goes on when its caller is cancelled, so `close` waits for it."""
        task = asyncio.create_task(asyncio.to_thread(work, *args, **options))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return await asyncio.shield(task)
