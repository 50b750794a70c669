"""Acting on what the gate let through, and what becomes of it: done, failed and tried again later, moved, or gone."""

from __future__ import annotations

import random

from homeostat.client import Key
from homeostat.loop.controller import Controller, Seen, Unseen
from homeostat.loop.fleet import Cause, Drift, Fleet, Op, Phase, Ref
from homeostat.loop.gating import Gate
from homeostat.loop.ledger import Ledger
from homeostat.loop.listener import Closed, Listeners, Outcome
from homeostat.loop.members import Where, where_of
from homeostat.loop.provider import Moved
from homeostat.loop.queue import Priority, WorkQueue
from homeostat.loop.reporting import Reporter
from homeostat.loop.settling import Settling
from homeostat.loop.stock import examined, take_stock
from homeostat.loop.tracing import Tracing
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

MOVES_AT_ONCE = 3
"""So often in a row something may have moved before its next action waits."""


class Acting:
    """Has a controller act, and enters in the ledger what came of it. How long to wait after a failure is up to the `gate`."""

    def __init__(
        self,
        ledger: Ledger,
        reporter: Reporter,
        gate: Gate,
        queue: WorkQueue[Where],
        deciding: Settling,
        tell: Listeners,
        trace: Tracing,
        clock: Clock,
        source: random.Random,
    ) -> None:
        self._ledger = ledger
        self._reporter = reporter
        self._gate = gate
        self._queue = queue
        self._deciding = deciding
        self._tell = tell
        self._trace = trace
        self._clock = clock
        self._random = source

    async def act(self, controller: Controller, drift: Drift, seen: Seen | None = None) -> None:
        """Acts on what was let through; without a second look where it was `seen` this moment."""
        fleet = self._ledger.members.fleet(drift.ref)
        if fleet is None:
            return
        ref, started = drift.ref, self._clock.now()
        try:
            if seen is not None:
                found = await controller.act_on(seen)
            else:
                found = await controller.act(drift.made_from, ref.name, ref.namespace, ref.uid)
        except Moved:
            self._acted(fleet, drift, started, Outcome.MOVED)
            drift.phase = Phase.OPEN
            self._ledger.close(fleet, ref, Closed.MOVED)
            fleet.forget(ref)
            try:
                await self._look_again(controller, ref)
            finally:
                self._remember_moved(fleet, drift)
            return
        except ApiError as error:
            if error.reason == "NotFound":
                self._acted(fleet, drift, started, Outcome.GONE)
                self._ledger.leave(ref)
                return
            await self._went_wrong(controller, fleet, drift, started, seen, error)
            return
        except Exception as error:
            if isinstance(error, Unseen):
                drift.unseen, drift.approved = True, ""  # who approved that it is made did not mean again and again
            await self._went_wrong(controller, fleet, drift, started, seen, error)
            return
        self._acted(fleet, drift, started, Outcome.DONE)
        await self._succeeded(controller, fleet, drift, found)

    def _acted(self, fleet: Fleet, drift: Drift, started: float, outcome: Outcome, error: str = "") -> None:
        worked = True if outcome is Outcome.DONE else False if outcome is Outcome.FAILED else None
        fleet.answered(drift, self._clock.now(), worked, error)
        self._trace.note(op=drift.op, change_set=drift.change_set, outcome=outcome)
        self._tell.acted(fleet, drift, self._ledger.since(started), outcome, error)

    def _remember_moved(self, fleet: Fleet, before: Drift) -> None:
        """What was tried and failed before something moved is not forgotten; and what moves again and again waits longer each time."""
        ref, counted = before.ref, self._ledger.moves
        moves = counted[ref] = counted.get(ref, 0) + 1
        if (line := fleet.drifts.get(ref)) is None:
            return
        line.attempts, line.failures, line.error = before.attempts, before.failures, before.error
        line.retry_at = before.retry_at
        if moves > MOVES_AT_ONCE:
            line.retry_at = self._clock.now() + self._gate.backoff(fleet).delay(moves - MOVES_AT_ONCE, self._random)

    async def _look_again(self, controller: Controller, ref: Ref) -> None:
        obj = controller.get(Key(ref.namespace, ref.name))
        if obj is not None and obj["metadata"]["uid"] == ref.uid:
            if self._ledger.enter(controller, await controller.look(obj)) is not None:
                self._ledger.decide_soon(ref)
            await self._reporter.report(controller, ref)

    async def _went_wrong(
        self, controller: Controller, fleet: Fleet, drift: Drift, started: float, seen: Seen | None, error: Exception
    ) -> None:
        seen = seen or self._ledger.seen.get(drift.ref)
        why = controller.told(error, None if seen is None else seen.spec)
        self._acted(fleet, drift, started, Outcome.FAILED, why)
        await self._failed(controller, fleet, drift, why)

    async def _failed(self, controller: Controller, fleet: Fleet, drift: Drift, why: str) -> None:
        delay = self._gate.backoff(fleet).delay(drift.failures + 1, self._random)
        drift.error = why
        fleet.failed(drift.ref, self._clock.now() + delay)
        self._deciding.soon(fleet)
        await self._reporter.report(controller, drift.ref, error=why)

    async def _succeeded(self, controller: Controller, fleet: Fleet, drift: Drift, seen: Seen) -> None:
        now = self._clock.now()
        self._ledger.moves.pop(drift.ref, None)
        if drift.lost:
            fleet.shown_at = now
        seen = examined(fleet, controller, seen)
        take_stock(fleet, controller, seen)
        self._ledger.members.count(drift.ref, seen.counts)
        record = seen.record
        record.intent = None
        record.converged_seconds = round(now - drift.since, 3)
        record.reversals = drift.reversals
        record.repaired_at = now if drift.cause is not Cause.INTENT else 0.0
        if drift.op is Op.DELETE and seen.deleting:
            self._ledger.close(fleet, drift.ref, Closed.ACTED)
            fleet.verified(drift.ref)
            await controller.let_go(seen.obj)
            self._ledger.leave(drift.ref)
            return
        if drift.op is Op.UPDATE and drift.cause is Cause.INTENT and record.last_applied is not None:
            self._ledger.meanings.replaced(drift.ref, record.last_applied, drift.by)
        record.last_applied = dict(seen.declared) if not seen.deleting else None  # type: ignore[arg-type]
        record.identity = seen.identity
        if seen.unhealthy:
            drift.phase = Phase.SETTLING
            self._ledger.look_soon(drift.ref)
        else:
            self._ledger.close(fleet, drift.ref, Closed.ACTED)
            fleet.verified(drift.ref)
        self._ledger.seen[drift.ref] = seen
        self._deciding.soon(fleet)
        if drift.ref in fleet.moving:
            self._queue.add(where_of(drift.ref), Priority.CHANGE)
        await self._reporter.report(controller, drift.ref)
