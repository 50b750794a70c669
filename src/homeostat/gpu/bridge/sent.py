"""One replica on one node of a cluster: takes note of what became of its job, and does the next step to where it is wanted."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import structs
from msgspec.structs import replace

from homeostat.gpu.agent import journal
from homeostat.gpu.agent.launching import about
from homeostat.gpu.agent.origin import Origin
from homeostat.gpu.agent.outcome import outcome_of
from homeostat.gpu.agent.wanted import Aim, Declared, Standing, Step, Wish, farewell, next_step, wish_for
from homeostat.gpu.bridge.cluster import Cluster, Job, Member, Order, Stage
from homeostat.gpu.bridge.note import JobNote, adopted, recalled
from homeostat.gpu.kinds import WHOLE, Place, Preemption, ReplicaState, Report
from homeostat.loop.provider import Refused
from homeostat.model.clock import Clock
from homeostat.providers.process.record import MARK, Ended

log = logging.getLogger("homeostat.gpu.bridge")

END_AGAIN_SECONDS = 10.0
"""How often a job that should be gone is ended once more."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds before what the cluster took away is begun once more: twice as long each time, until it has run for longer than that."""
_KEEPS_STATE = (Preemption.SUSPEND, Preemption.NEVER)


class House(msgspec.Struct, frozen=True):
    """What all replicas of a cluster share."""

    cluster: Cluster
    clock: Clock
    restarts: bool
    """Whether who should be suspended with its state is ended and begun anew; else it runs on."""
    declared: Callable[[str], Declared | None]
    """A workload by its uid as it is declared now; None where it is no more. Raises where that cannot be told."""
    is_current: Callable[[Declared], Awaitable[bool]]
    """Asks the server whether a workload is still as it is known here."""
    reported: Callable[[str, int, str], Report | None]
    """What the server has as the report of a replica from a node."""
    no_room: Callable[[Declared], str]
    """Why not all of a workload that has still to begin fits now; empty: it does."""
    changed: Callable[[str, str], None]
    """Told the node and the uid of a workload of which something new is to be reported."""
    origin: Origin
    """Which server may want something here."""


class Sent:
    """A replica that is, was, or is to be on a node. `advance` is called with every look at the cluster."""

    def __init__(self, house: House, folder: Path, node: str, uid: str, replica: int) -> None:
        self.node, self.uid, self.replica = node, uid, replica
        self.note: JobNote | None = None
        self.trouble = ""
        """Why nothing can be done with it; for people."""
        self.waits = ""
        """What it waits for before it is begun."""
        self.forgotten = False
        self.known = False
        """What is noted of it, or was reported, is known here."""
        self.rests = False
        """Nothing is to be done until its workload or its job is another."""
        self._house = house
        self._path = journal.path_of(folder, replica)
        self._hidden = False  # what was noted last is still to become so
        self._ended_at = 0.0
        self._beside = ""  # an old job of it that is still there
        self._pause, self._not_before, self._why_not = 0.0, 0.0, ""
        self._wished = 0  # which attempt is wanted

    def __str__(self) -> str:
        note = self.note
        return f"replica {self.replica} of {f'{note.namespace}/{note.name}' if note else self.uid} on {self.node}"

    def load(self) -> None:
        """Takes up what an earlier bridge noted. For threads."""
        try:
            self.note = note = journal.load(self._path, JobNote)
            self.known = note is not None
            self._hidden = note is not None and note.start > 0 and not note.seen and not note.done
        except (OSError, ValueError) as error:
            self.trouble, self.known = str(error), True
            log.error("%s is left alone: %s", self, error)

    # How it stands

    @property
    def holds(self) -> Iterable[int]:
        """Indexes of the GPUs that it is on, as the governor counts them."""
        note = self.note
        return note.gpus if note is not None and note.number is not None else ()

    @property
    def settled(self) -> bool:
        """Whether its job is over and told, and it waits for nothing."""
        return self.note is not None and not self.waits and self.note.number is None and (self.note.start == 0 or self.note.done)

    def report(self, blind: str = "") -> Report | None:
        """What is told of it; None where there is nothing to tell yet. `blind`: why the cluster cannot be asked."""
        note = self.note
        base = Report(replica=self.replica, node=self.node, state=ReplicaState.UNKNOWN)
        if self.trouble:
            return structs.replace(base, reason=self.trouble)
        if self.waits and (note is None or note.number is None):
            used = note.gpu_seconds if note else 0.0
            return structs.replace(base, attempt=self._wished, reason=f"it waits {self.waits}", gpu_seconds=round(used, 1))
        if note is None or self._hidden:
            return None
        state, reason = (ReplicaState.UNKNOWN, blind) if note.number is not None and blind else (note.state, note.reason)
        return structs.replace(
            base,
            state=state,
            attempt=note.attempt,
            gpus=note.gpus,
            pid=note.number,
            since=datetime.fromtimestamp(int(note.since), UTC),
            exit_code=note.exit_code,
            reason=reason,
            gpu_seconds=round(note.gpu_seconds, 1),
        )

    def _standing(self, job: Job | None) -> Standing:
        note = self.note
        return Standing(
            running=job is not None and job.stage is not Stage.OVER,
            known=note is not None and note.done,
            attempt=note.attempt if note else 0,
            stopping=note is not None and note.asked > 0 and not note.over,
            devices=str(len(note.gpus)) if note else None,
        )

    # What is done

    async def advance(self, jobs: Iterable[Job], member: Member | None) -> bool:
        """Takes note of its jobs, of which there may be old ones, and does the next step; says whether it did one.

        `member` is its node as the cluster shows it now.
        """
        workload = self._house.declared(self.uid)
        wish = self._adapted(wish_for(workload, self.replica, self.node))
        self._wished = wish.attempt
        job = await self._present(list(jobs), workload, wish)
        await self._take_note(job, workload, wish)
        standing = self._standing(job)
        step = next_step(wish, standing, str(len(wish.place.gpus)) if wish.place else "")
        if step in (Step.STOP, Step.FORGET) and not standing.stopping:
            await self._house.origin.check(self.node)
        elif step is not None:
            self._house.origin.check_known(self.node)
        if step is not Step.START:
            self._wait("")
        match step:
            case Step.START:
                assert workload is not None
                assert wish.place is not None
                return await self._start(workload, wish, wish.place, member)
            case Step.STOP:
                assert job is not None
                return await self._stop(job, workload)
            case Step.SUSPEND:
                await self._say(f"it runs on: {self._house.cluster.what} cannot take it off its GPUs with its state; {_WAYS_OUT}")
            case Step.FORGET:
                await self._forget()
                return True
            case None if job is not None and job.stage is Stage.ON and wish.aim is Aim.RUN:
                await self._say(job.words)
        return False

    def _adapted(self, wish: Wish) -> Wish:
        return replace(wish, by=Preemption.RESTART) if self._house.restarts and wish.by in _KEEPS_STATE else wish

    async def _present(self, jobs: list[Job], workload: Declared | None, wish: Wish) -> Job | None:
        """The job that counts: that of the note. Where there is none, one that is found is taken up; what is beside it is ended."""
        jobs.sort(key=lambda one: (one.stage is not Stage.OVER, one.mark.attempt, one.mark.start, -one.number))
        now = self._house.clock.now()
        if self.note is None and jobs and workload is not None:
            place = wish.place
            gpus = place.gpus if place and len(place.gpus) == jobs[-1].holds else tuple(range(jobs[-1].holds))
            await self._put(adopted(jobs[-1], workload.namespace, workload.name, gpus, now))
            log.info("%s: taken up as %s", self, jobs[-1].words)
        elif self.note is None and workload is not None:
            report = self._house.reported(self.uid, self.replica, self.node)
            if report is not None and report.state is not ReplicaState.UNKNOWN:
                await self._put(recalled(report, workload.namespace, workload.name))
        self.known = True
        mark = self.note.mark(self.uid, self.node) if self.note else None
        mine = [one for one in reversed(jobs) if one.mark == mark]  # of two that live the first: it is the one that has begun
        found = next((one for one in mine if one.stage is Stage.ON), mine[0] if mine else None)
        self._beside = ""
        for other in jobs:
            if other is not found and other.stage is Stage.OVER:
                await self._house.cluster.noted(other)
            elif other is not found:
                self._beside = other.words
                log.warning("%s: %s is ended, for it is not the one that is known", self, other.words)
                await self._house.cluster.end(other)
        return found

    # What became of it

    async def _take_note(self, job: Job | None, workload: Declared | None, wish: Wish) -> None:
        note = self.note
        if note is None or note.start == 0:
            if note is None and workload is not None and wish.aim is Aim.OFF:
                fresh = self._fresh_note(workload, wish, 0)
                await self._put(fresh.turned(ReplicaState.SUSPENDED, fresh.since, reason="it had not begun"))
            return
        if note.done:
            if job is not None and job.stage is Stage.OVER:
                await self._house.cluster.noted(job)
        elif job is None:
            job = await self._house.cluster.left(note.mark(self.uid, self.node))
            if job is None and not note.seen:
                await self._note_unbegun(wish)
                return
            await self._note_end(job, wish)
        elif job.stage is Stage.OVER:
            await self._note_end(job, wish)
            await self._house.cluster.noted(job)
        else:
            await self._note_life(note, job, wish)

    async def _note_life(self, note: JobNote, job: Job, wish: Wish) -> None:
        gpus = wish.place.gpus if wish.place and len(wish.place.gpus) == len(note.gpus) else note.gpus
        now = self._house.clock.now() if job.since is None else job.since
        if job.stage is Stage.ON:
            after = note.turned(ReplicaState.RUNNING, now, number=job.number, seen=True, gpus=gpus)
            after = after if note.state is ReplicaState.RUNNING else after.but(reason=job.words)
        else:
            after = note.turned(ReplicaState.UNKNOWN, now, number=job.number, seen=True, gpus=gpus, reason=job.words)
        if after != note or self._hidden:
            await self._put(after)

    async def _note_unbegun(self, wish: Wish) -> None:
        """What was to be begun was not: the next step does so. Where that is not wanted any more, somebody may wait for that word."""
        if wish.aim is Aim.RUN or self.note is None:
            return
        done = self.note.but(ended=self.note.nonce, asked=self._house.clock.now(), number=None)
        await self._put(done.turned(ReplicaState.SUSPENDED, self._house.clock.now(), reason="it had not begun"))

    async def _note_end(self, job: Job | None, wish: Wish) -> None:
        """Writes down that and how it ended. `job` is None where nobody knows anything of it any more."""
        assert self.note is not None
        mark = self.note.mark(self.uid, self.node)
        now = self._house.clock.now()
        ended = Ended(now if job is None or job.since is None else job.since, job.status if job else None)
        note = self.note
        if job is not None and job.taken and not note.asked:
            note = note.but(asked=now)
            if note.state is ReplicaState.RUNNING and ended.at - note.since > self._pause:
                self._pause = 0.0
            self._hold_off(job.words)
        said = "" if job is None or not ended.status else await self._house.cluster.said(mark)
        how = outcome_of(ended, wish, said, stopping=note.asked > 0)
        words = job.words if job is not None else f"{self._house.cluster.what} knows nothing of it any more"
        reason = ": ".join(filter(None, (words, how.reason))) if how.state is not ReplicaState.EXITED else how.reason
        log.info("%s: ended (%s)", self, ended)
        note = note.turned(how.state, ended.at, exit_code=how.exit_code, reason=reason)
        await self._put(note.but(ended=note.nonce, number=None))

    # Steps

    async def _start(self, workload: Declared, wish: Wish, place: Place, member: Member | None) -> bool:
        house, note = self._house, self.note
        if member is None or not member.alive:
            self._wait(f"until {house.cluster.what} says that {self.node} is there")
            return False
        waits = house.no_room(workload)
        if house.clock.now() < self._not_before:
            waits = f"to be tried again: {self._why_not}"
        if wish.wait_for or self._beside:
            waits = f"until {wish.wait_for} has ended it" if wish.wait_for else f"until {self._beside} has ended"
        self._wait(waits)
        # Who stood still for long wakes up with old news, and what they want may run elsewhere by now.
        if waits or not await house.is_current(workload):
            return False
        again = note is not None and note.start > 0 and not note.done and note.attempt == wish.attempt
        start = (note.start if again else note.start + 1) if note else 1
        fresh = self._fresh_note(workload, wish, start)
        mark = fresh.mark(self.uid, self.node)
        try:
            if place.milli < WHOLE:
                raise Refused(f"a part of a GPU cannot be had from {house.cluster.what}: ask for whole ones in spec.resources.gpus")
            if not workload.spec.command:
                raise Refused("the workload has no command: say what to run in spec.command")
            env = {**about(workload, self.node), "HOMEOSTAT_INDEX": str(self.replica), MARK: str(mark)}
            order = Order(mark, workload, place, member, env)
            await self._put(fresh, tell=False)  # before it begins: what is found beside this note is its own
            await house.cluster.start(order)
        except Refused as error:
            await self._put(fresh.turned(ReplicaState.FAILED, house.clock.now(), reason=str(error), over=True))
            return False
        log.info("%s: sent as %s", self, mark)
        return True

    async def _stop(self, job: Job, workload: Declared | None) -> bool:
        """Asks it to end; after its grace, or where it has not begun, ends it."""
        note, now = self.note, self._house.clock.now()
        assert note is not None
        name, grace = farewell(workload) if workload is not None else (note.signal, note.grace)
        if name not in signal.Signals.__members__:
            name = "SIGTERM"
        if note.asked == 0:  # first of all: that it ends must not be taken for its own doing, whatever becomes of us then
            note = note.but(asked=now)
            await self._put(note)
        if note.told == 0:
            await (self._house.cluster.end(job) if job.stage is Stage.WAITING else self._house.cluster.ask_to_end(job, name, grace))
            await self._put(note.but(told=now))
            self._ended_at = 0.0
            return True
        if now - note.told >= grace and now - self._ended_at >= END_AGAIN_SECONDS:
            self._ended_at = now
            await self._house.cluster.end(job)
            return True
        return False

    async def _forget(self) -> None:
        if self.note is not None and self.note.start:
            await self._house.cluster.forget(self.note.mark(self.uid, self.node))
        await asyncio.to_thread(self._path.unlink, missing_ok=True)
        self.note, self.forgotten = None, True
        self._house.changed(self.node, self.uid)

    # What is remembered

    def _fresh_note(self, workload: Declared, wish: Wish, start: int) -> JobNote:
        return JobNote.fresh(workload, self.replica, wish, self.note, self._house.clock.now()).but(start=start)

    async def _put(self, note: JobNote, *, tell: bool = True) -> None:
        await asyncio.to_thread(_save, self._path, note)
        self.note, self._hidden = note, not tell
        if tell:
            self._house.changed(self.node, self.uid)

    async def _say(self, reason: str) -> None:
        if self.note is not None and self.note.reason != reason:
            await self._put(self.note.but(reason=reason))

    def tell_trouble(self, why: str) -> None:
        """A step failed for a reason outside of the workload: it is reported, and tried again."""
        if self.note is None or self._hidden:
            self._hold_off(why)
            self._wait(f"to be tried again: {why}")
        elif self.note.reason != why and not self.note.done:
            self.note = self.note.but(reason=why)
            self._house.changed(self.node, self.uid)

    def _hold_off(self, why: str) -> None:
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)
        self._not_before, self._why_not = self._house.clock.now() + self._pause, why

    def _wait(self, waits: str) -> None:
        if waits != self.waits:
            self.waits = waits
            if waits:
                log.info("%s waits %s", self, waits)
            self._house.changed(self.node, self.uid)


_WAYS_OUT = "say Checkpoint or Restart in its spec.preemption.mode, or start the bridge with --suspend-as restart"


def _save(path: Path, note: JobNote) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    journal.save(path, note)
