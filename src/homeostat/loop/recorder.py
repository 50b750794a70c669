"""Tells people what happened to an object, by Events: `kubectl describe` and `kubectl events` show them.

Told is what somebody would want to know: that something that existed was changed or deleted, that an action failed, that something
cannot be read or is held until a person does something, and that all is well again. What is made for the first time and goes well is
not: the object's own status says so, and an Event for each would double the writes of a roll-out.

Nothing waits for an Event. They are written one after the other in the background, from a queue that drops what does not fit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from homeostat.client import Client, Unreachable
from homeostat.loop.children import Children
from homeostat.loop.controller import MANAGER, Controller, Seen
from homeostat.loop.events import About, Bucket, Correlator, Notice, Write
from homeostat.loop.fleet import Cause, Drift, Fleet, Halt, Hold, Op, Ref
from homeostat.loop.listener import Closed, Listener, Outcome
from homeostat.loop.observation import Unknown
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.loop")

WAITING = 1000
"""Notices that may wait to be written."""
AT_ONCE, EVERY_SECONDS = 200, 0.1
"""So many notices of one type at once, then one in so many seconds: when a whole fleet is in trouble, its policy says so."""
PATHS_SHOWN = 5

_DONE = {Op.CREATE: "Created", Op.UPDATE: "Updated", Op.DELETE: "Deleted"}
_WORDS = {Op.CREATE: "made", Op.UPDATE: "changed", Op.DELETE: "deleted"}
_WHY = {
    Cause.INTENT: "its declaration changed",
    Cause.DRIFT: "it was not as declared any more",
    Cause.BOTH: "its declaration changed, and it was not as declared before",
}
_CREATE, _INTENT = Op.CREATE, Cause.INTENT


class Recorder:
    """Writes Events in the background, from the first that is recorded until `stop`."""

    def __init__(self, client: Client, clock: Clock | None = None, waiting: int = WAITING) -> None:
        self._events = client.kind("v1", "Event")
        self._clock = clock or Clock()
        self._correlator = Correlator()
        self._most = waiting
        self._waiting: deque[Notice] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._budgets = (Bucket(AT_ONCE, EVERY_SECONDS), Bucket(AT_ONCE, EVERY_SECONDS))
        self.dropped = 0
        """Notices that were too many, or that the server did not take."""

    async def stop(self) -> None:
        """Ends it. What was not written yet is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def room(self, warning: bool) -> bool:
        """Whether one more of this type would be taken now; ask once for each, before its words are made."""
        if len(self._waiting) < self._most and self._budgets[warning].take(self._clock.now()):
            return True
        self.dropped += 1
        return False

    def record(self, notice: Notice) -> None:
        """Has a notice written soon. Costs next to nothing and never waits."""
        self._waiting.append(notice)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_forever(), name="loop events")

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                write = self._correlator.write(self._waiting.popleft(), self._clock.now())
                if write is not None:
                    await self._write(write)

    async def _write(self, write: Write) -> None:
        try:
            if write.again is not None:
                try:
                    await self._events.patch(write.name, write.event, namespace=write.namespace, field_manager=MANAGER)
                    return
                except ApiError as error:
                    if error.reason != "NotFound":
                        raise
                    write = self._correlator.anew(write, self._clock.now())
            await self._events.create(write.event, namespace=write.namespace, field_manager=MANAGER)
        except (ApiError, Unreachable) as error:  # such as a namespace that is going away
            self.dropped += 1
            log.debug("an event about %s was not written: %s", write.notice.about, error)


class Events(Listener):
    """Listens to the loop, and has recorded what people would want to be told.

    `policies` says which policies guard a fleet: halts are told there. `ways_out` says what a person can do about a guard that holds
    something (with `{fleet}` in it); of guards that it does not name nothing is told, for what they hold goes on by itself or was
    closed by a person. Give it the `controllers` of its engine before that starts.
    """

    def __init__(
        self,
        recorder: Recorder,
        policies: Callable[[Fleet], Iterable[About]] = lambda fleet: (),
        ways_out: Mapping[str, str] | None = None,
    ) -> None:
        self.controllers: Mapping[str, Controller] = {}
        self._recorder = recorder
        self._policies = policies
        self._ways_out = ways_out or {}
        self._ill: dict[Ref, str] = {}  # unreadable or unhealthy, and why, as it was told
        self._failed: set[Ref] = set()  # the last action on it failed

    def acted(self, fleet: Fleet, drift: Drift, seconds: float, outcome: Outcome, error: str = "") -> None:
        if outcome is Outcome.FAILED:
            self._failed.add(drift.ref)
            if self._recorder.room(True):
                tried = f"tried to {drift.op}{_paths(drift)}: {error or 'it failed'}; it is tried again after a wait"
                self._tell(drift.ref, "ActionFailed", tried, warning=True)
        elif outcome is Outcome.DONE:
            failed = bool(self._failed) and drift.ref in self._failed
            if failed:
                self._failed.remove(drift.ref)
            if drift.touches is _CREATE and drift.cause is _INTENT and not failed:
                return  # made for the first time
            if self._recorder.room(False):
                self._tell(drift.ref, _DONE[drift.op], _done(drift))
            if failed and self._recorder.room(False):
                self._tell(drift.ref, "Recovered", "as declared again, after actions that failed")

    def held(self, fleet: Fleet, ref: Ref, hold: Hold) -> None:
        if any(halt.guard == hold.guard for halt in fleet.halts.values()):
            return  # its policy says it once for all
        way_out = f"if it is meant: homeostat approve {hold.plan}" if hold.plan else self._ways_out.get(hold.guard)
        if way_out is not None and self._recorder.room(True):
            what_to_do = way_out.format(fleet=fleet.name)
            self._tell(ref, "Held", f"held by {hold.guard}: {hold.reason}. What to do: {what_to_do}", warning=True)

    def drift_closed(self, fleet: Fleet, drift: Drift, seconds: float, why: Closed) -> None:
        if why is Closed.GONE:
            self._ill.pop(drift.ref, None)
            self._failed.discard(drift.ref)

    def looked(self, fleet: Fleet, seen: Seen) -> None:
        state = seen.observation.state
        if isinstance(state, Unknown):
            self._fell_ill(seen.ref, "Unreadable", state.reason)
        elif seen.unhealthy:
            if (drift := fleet.drifts.get(seen.ref)) is not None and drift.in_flight:
                return  # what was just done needs its time
            self._fell_ill(seen.ref, "Unhealthy", seen.unhealthy)
        elif self._ill and (was := self._ill.pop(seen.ref, None)) is not None and self._recorder.room(False):
            self._tell(seen.ref, "Recovered", f"well again; it was {was}")

    def _fell_ill(self, ref: Ref, reason: str, why: str) -> None:
        said = f"{reason.lower()}: {why}"
        if self._ill.get(ref) != said:
            self._ill[ref] = said
            if self._recorder.room(True):
                message = f"it cannot be observed, and nothing is done to it: {why}" if reason == "Unreadable" else why
                self._tell(ref, reason, message, warning=True)

    def halted(self, fleet: Fleet, halt: Halt) -> None:
        what = f"{fleet.name} is halted by {halt.guard}: {halt.reason}. What to do: {halt.what_to_do}"
        self._tell_policies(fleet, "Halted", what, warning=True)

    def lifted(self, fleet: Fleet, halt: Halt) -> None:
        self._tell_policies(fleet, "Resumed", f"{fleet.name} is no longer halted by {halt.guard}: {halt.reason}")

    def _tell(self, ref: Ref, reason: str, message: str, warning: bool = False) -> None:
        about = about_of(self.controllers[ref.kind], ref)
        if about is not None:
            self._recorder.record(Notice(about, reason, message, warning))

    def _tell_policies(self, fleet: Fleet, reason: str, message: str, warning: bool = False) -> None:
        for about in self._policies(fleet):
            if self._recorder.room(warning):
                self._recorder.record(Notice(about, reason, message, warning))


def about_of(controller: Controller, ref: Ref) -> About | None:
    """The object of a resource; of a child that a composer makes, the child. None where it is not known any more."""
    if not isinstance(controller.provider, Children):
        return About(controller.info.api_version, controller.info.kind, ref.namespace, ref.name, ref.uid)
    try:
        live = controller.provider.live(ref)
    except KeyError:
        return None
    return About(live.kind.api_version, live.kind.kind, live.namespace, live.name, live.uid)


def _done(drift: Drift) -> str:
    by = f", by {' and '.join(drift.by)}" if drift.by and drift.cause is Cause.DRIFT else ""
    return f"{_WORDS[drift.op]}{_paths(drift)}, for {_WHY[drift.cause]}{by}"


def _paths(drift: Drift) -> str:
    if drift.op is not Op.UPDATE or not drift.paths:
        return ""
    more = len(drift.paths) - PATHS_SHOWN
    return f" {', '.join(drift.paths[:PATHS_SHOWN])}" + (f" and {more} more" if more > 0 else "")
