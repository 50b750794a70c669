"""The engine: keys come in, are looked at, and go into the ledger; the gate decides on the whole; what it lets through is acted on.

Workers take keys from one queue, so a resource is never in two hands. Looking never stops: a closed gate only keeps acts away.
A decision waits a moment after the last look (`settle`), so that a change set is judged as the whole that it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Hashable, Iterable, Sequence
from typing import Any

from homeostat.client import Client, Key, Unreachable
from homeostat.loop.changesets import ChangeSets, last_write
from homeostat.loop.children import ComposerController
from homeostat.loop.compose import Composer
from homeostat.loop.controller import Controller, Seen, Unseen
from homeostat.loop.declarations import Object
from homeostat.loop.fleet import Cause, Drift, Fleet, Hold, Op, Phase, Ref, Verdict
from homeostat.loop.gating import Gate
from homeostat.loop.lines import judged_in, line_of, repaired_in_vain
from homeostat.loop.listener import Closed, Listener, Listeners, Outcome, Result
from homeostat.loop.members import Members, Where, where_of
from homeostat.loop.observation import Unknown
from homeostat.loop.passes import PassPolicy
from homeostat.loop.provider import Moved, Provider
from homeostat.loop.queue import Priority, QueueMetrics, WorkQueue
from homeostat.loop.reporting import Reporter
from homeostat.loop.rounds import Rounds
from homeostat.loop.settling import SETTLE_SECONDS, Settling
from homeostat.loop.stock import examined, outcome, take_stock
from homeostat.loop.tracing import Tracing
from homeostat.loop.wallclock import WallClock
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.loop")

MOVES_AT_ONCE = 3
"""So often in a row something may have moved before its next action waits."""
UNHEALTHY_SECONDS = 1.0
"""After so long something is looked at again that was acted on and is not healthy yet."""
HINTS_AGAIN_SECONDS = 5.0
"""After so long a provider is asked for hints again whose hints broke off."""
WORKERS = 16


class Engine:
    """Runs providers and composers against one API server. `start` it; `stop` it; it may be killed at any point in between."""

    def __init__(
        self,
        client: Client,
        providers: Iterable[Provider[Any, Any]],
        gate: Gate,
        *,
        clock: Clock | None = None,
        source: random.Random | None = None,
        settle: float = SETTLE_SECONDS,
        workers: int = WORKERS,
        passes: PassPolicy | None = None,
        composers: Iterable[Composer[Any]] = (),
        listeners: Sequence[Listener] = (),
        queue_metrics: QueueMetrics | None = None,
    ) -> None:
        self.clock = clock or Clock()
        self.gate = gate
        self._client = client
        self._members = Members()
        self.fleets = self._members.fleets
        kept = [(provider.controller or Controller)(provider, client, self.clock) for provider in providers]
        composed = [(composer.controller or ComposerController)(composer, client, self.clock) for composer in composers]
        self.controllers: dict[str, Controller] = {one.name: one for one in (*kept, *composed)}
        heard = [one.listener for one in self.controllers.values() if one.listener is not None]
        self.tell, self._trace = Listeners((*listeners, *heard)), Tracing.configured()
        for controller in self.controllers.values():
            controller.trace = self._trace
        self._random = source or random.Random()
        self.workers = workers
        self.queue: WorkQueue[Where] = WorkQueue(
            kind_of=lambda w: w.kind, source=self._random, metrics=queue_metrics
        )
        self._seen: dict[Ref, Seen] = {}  # of open differences, for acting and reporting
        self._go: dict[Where, Drift] = {}  # let through, not yet acted on
        self._holds: dict[Ref, Hold] = {}
        self._moves: dict[Ref, int] = {}  # how often in a row what an action was decided on had moved
        self._reporter = Reporter(self._members, self._seen, self._holds, self.clock, self._trace)
        self._sets = ChangeSets()
        self._deciding = Settling(self._decide, settle)
        self._regrouping = False  # policies changed, and not everything has found its fleet yet
        self._wall = WallClock(self.clock)
        self._lone_after: dict[str, float] = {}  # by fleet: when a lone repair may go at once again
        self._tasks: set[asyncio.Task[None]] = set()
        policy = passes or PassPolicy()
        self.passes = Rounds(self, self.controllers, self.queue, policy, self.clock, self._random, self._spawn)

    # Its life

    async def start(self) -> None:
        """Makes the kinds known, reads what is declared, and begins the first pass."""
        for kind, controller in self.controllers.items():
            await controller.provider.open(self._client)
            await controller.define()
            controller.declarations.subscribe(self._adder(kind))
            controller.declarations.start()
        for controller in self.controllers.values():
            await controller.declarations.wait_synced()
        self.passes.begin()
        for number in range(self.workers):
            self._spawn(self._work(), f"loop worker {number}")
        self._spawn(self.passes.forever(self._deciding.settle), "loop passes")
        for kind, controller in self.controllers.items():
            self._spawn(self._follow(kind, controller.provider), f"loop hints {kind}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Ends it. An action under way is cut off; its intent stays in the journal."""
        self.queue.close(drain=False)
        self._deciding.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for controller in self.controllers.values():
            await controller.declarations.stop()
            await controller.provider.close()

    def regroup(self) -> None:
        """Policies changed: every resource is looked at again, and finds its fleet anew."""
        for fleet in self.fleets.values():
            self.gate.equip(fleet)
        if self._tasks:
            self._regrouping = True
            self.passes.regroup()
        self.decide_all()

    def decide_all(self) -> None:
        """Something that decisions hang on changed."""
        for fleet in self.fleets.values():
            self._deciding.soon(fleet)

    # What comes in

    def _adder(self, kind: str) -> Any:
        marks: dict[Key, Hashable] = {}
        mark_of = self.controllers[kind].declarations.mark

        def add(key: Key) -> None:
            mark = mark_of(key)
            if mark is None:
                marks.pop(key, None)
            elif marks.get(key) == mark:  # our own status writes come by here too, and mean nothing new
                return
            else:
                marks[key] = mark
            self.queue.add(Where(kind, key), Priority.CHANGE)

        return add

    async def _follow(self, kind: str, provider: Provider[Any, Any]) -> None:
        """Hints only say where to look: where they break off, passes go on looking, and they are taken up again."""
        while (hints := provider.watch()) is not None:
            try:
                async for ref in hints:
                    self.queue.add(Where(kind, Key(ref.namespace, ref.name)), Priority.HINT)
                return
            except Exception:
                log.exception("the hints of %s broke off; they are taken up again in %g s", kind, HINTS_AGAIN_SECONDS)
            await asyncio.sleep(HINTS_AGAIN_SECONDS)

    # Passes

    def pass_begins(self) -> None:
        for fleet in self.fleets.values():
            fleet.pass_begun()

    def pass_ends(self, size: int, seconds: float) -> None:
        self._regrouping = self.passes.again
        self.tell.pass_done(size, seconds)
        gathering = self._sets.gathering(self._now())
        for fleet in self.fleets.values():
            fleet.gathering = gathering
            fleet.pass_done()
            self._deciding.soon(fleet)

    def is_calm(self, controller: Controller, where: Where, *, anew: bool) -> bool:
        """Whether nothing of a resource is open; what was not known, or had its policies changed, is put into its fleet."""
        ref = self._members.at(where)
        if ref is None or anew:
            obj = controller.get(where.key)
            if obj is None:
                return False
            ref = controller.ref_of(obj)
            fleet = self._fleet(ref, obj)
            if fleet.invariants or fleet.health:  # they want to see it
                return False
        return ref not in self._seen

    # Work on one key

    async def _work(self) -> None:
        while (where := await self.queue.get()) is not None:
            started, result = self._now(), Result.ERROR
            try:
                with self._trace.phase("reconcile", kind=where.kind, namespace=where.key.namespace, name=where.key.name):
                    await self._handle(where)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if isinstance(error, Unreachable):
                    log.warning("%s %s waits for the server: %s", where.kind, where.key, error)
                elif not isinstance(error, (ApiError, Moved)):
                    log.exception("%s %s failed", where.kind, where.key)
                self.queue.retry(where)
            else:
                result = Result.SUCCESS
                self.queue.forget(where)
            finally:
                self.queue.done(where)
                self.tell.worked(where.kind, self._since(started), result)
                self.passes.looked(where)
            await asyncio.sleep(0)  # a server in this process answers at once: others, leases among them, would never have their turn

    def _now(self) -> float:
        """Wall seconds. Where the clock was set meanwhile, all that waits is put right first: a grace is not over, and no wait hours
        long, because of that. What people declared by the clock (windows, the end of a freeze) follows it."""
        now, by = self._wall.read()
        if by:
            log.warning("the clock was set by %+.0f s; waits and graces go on as if it had not been", by)
            self._sets.clock_set(by)
            for fleet in self.fleets.values():
                fleet.clock_set(by)
        return now

    def _since(self, started: float) -> float:
        """For listeners; not by the event loop's clock, which stands still between its turns."""
        return max(0.0, self.clock.now() - started)

    async def _handle(self, where: Where) -> None:
        controller = self.controllers[where.kind]
        drift = self._go.pop(where, None)
        if drift is not None:
            await self._act(controller, drift)
            return
        if self._nothing_new(controller, where):
            return
        obj = controller.get(where.key)
        if obj is None:
            self._gone(where)
            return
        if not obj["metadata"].get("deletionTimestamp") and controller.provider.holds(obj):
            obj = await controller.hold_on(obj)
        seen = await controller.look(obj)
        drift = self._enter(controller, seen)
        if drift is not None and self._at_once(where, drift):
            await self._act(controller, drift, seen)
            return
        if drift is not None:
            self._decide_about(seen.ref)
        await self._report(controller, seen.ref)

    def _nothing_new(self, controller: Controller, where: Where) -> bool:
        """Whether a hint was about what we know: nothing is open there, and nothing has moved since the last look."""
        if self.queue.priority(where) is not Priority.HINT or self._members.at(where) in self._seen:
            return False
        return controller.still(where.key)

    def _gone(self, where: Where) -> None:
        ref = self._members.at(where)
        if ref is not None:
            self._leave(ref)

    def _leave(self, ref: Ref) -> None:
        if (fleet := self._members.fleet(ref)) is not None:
            self._close(fleet, ref, Closed.GONE)
            self._deciding.soon(fleet)
        self._members.leave(ref)
        self._seen.pop(ref, None)
        self._holds.pop(ref, None)
        self._moves.pop(ref, None)
        self.controllers[ref.kind].forget(ref)

    def _fleet(self, ref: Ref, obj: Object, judged_in: str = "") -> Fleet:
        """The fleet of a resource: that of its labels, or the one it is `judged_in` until it is as declared."""
        kind = self.controllers[ref.kind].fleet_kind(ref)
        name = self.gate.fleet_of(kind, ref.namespace, obj["metadata"].get("labels") or {})
        stays = judged_in not in ("", name) and self.gate.keeps(judged_in)
        for other in self._members.strangers(ref, judged_in if stays else name):
            self._leave(other)
        fleet = self._members.join(ref, judged_in if stays else name, self._new_fleet)
        if stays:
            fleet.moving[ref] = name
        elif fleet.moving:
            fleet.moving.pop(ref, None)
        return fleet

    def _new_fleet(self, name: str) -> Fleet:
        fleet = Fleet(name, 0)
        self.gate.equip(fleet)
        fleet.pass_begun()
        if self.passes.again:  # some that belong to it were looked at by the old policies
            fleet.stock_since = fleet.passes_begun
        if not self.passes.under_way:  # guards wait for a look at the whole
            self.passes.want()
        return fleet

    # The ledger

    def _enter(self, controller: Controller, seen: Seen) -> Drift | None:
        """Enters what was seen: a line in the ledger, which it gives, or none. What it leads to is not decided here."""
        ref, first = seen.ref, seen.ref not in self._members
        fleet = self._fleet(ref, seen.obj, judged_in(seen, None if self._regrouping else self._members.fleet(ref)))
        state, seen = seen.observation.state, examined(fleet, controller, seen)
        take_stock(fleet, controller, seen)
        self._seen[ref] = seen
        self.tell.looked(fleet, seen)
        if isinstance(state, Unknown):
            fleet.unknown[ref] = state.reason
            self._deciding.soon(fleet)
            return None
        self._members.count(ref, seen.counts)
        was_unknown = fleet.unknown.pop(ref, None) is not None
        fleet.unhealthy.pop(ref, None)
        if seen.unhealthy:
            made_by = last_write(seen.obj["metadata"])
            fleet.unhealthy[ref] = self._sets.place(ref.uid, made_by, self.clock.now(), seen.record.change_set)
            if first and repaired_in_vain(seen):
                fleet.in_doubt.add(ref)
        else:
            fleet.in_doubt.discard(ref)
        if seen.diff:
            known = fleet.drifts.get(ref)
            drift = line_of(controller, seen, known, self._sets, self.clock.now())
            if known is not None and known is not drift and known.in_flight:
                fleet.forget(ref)
            fleet.drifts[ref] = drift
            drift.judged_in = fleet.name if ref in fleet.moving else ""
            if first and seen.record.approved == drift.made_from:  # before a restart; later it would be a second use
                drift.approved = seen.record.approved
            drift.desired = outcome(fleet, controller, seen)
            if known is None:
                self.tell.drift_opened(fleet, drift)
            return drift
        if ref in fleet.drifts or was_unknown:
            if not seen.unhealthy:
                self._close(fleet, ref, Closed.ITSELF)
                fleet.verified(ref)
            elif ref in fleet.drifts:
                self.queue.add_after(where_of(ref), UNHEALTHY_SECONDS)
            self._deciding.soon(fleet)
        return None

    def _close(self, fleet: Fleet, ref: Ref, why: Closed) -> None:
        if (drift := fleet.drifts.get(ref)) is not None:
            why = Closed.ACTED if why is Closed.ITSELF and drift.phase is Phase.SETTLING else why
            self.tell.drift_closed(fleet, drift, self._since(drift.since), why)

    # Deciding

    def _at_once(self, where: Where, drift: Drift) -> bool:
        """Begins what need not wait for what else may come: a creation, for it harms nothing that exists, and a lone repair. What was lost is
        repaired, too: where much is read as gone at once, that may be an error.

        A repair is lone where nothing else of its fleet differs and the last such was longer ago than decisions wait: so of many
        that come together one at most goes before the whole is judged.
        """
        fleet, now = self._members.fleet(drift.ref), self.clock.now()
        if fleet is None or drift.in_flight:
            return False
        if drift.touches is Op.CREATE and not drift.lost:
            # Before the whole was seen once nobody knows how much of it cannot be read.
            if not fleet.passes_done or not self.gate.admits(fleet, drift, now):
                return False
        else:
            if drift.cause is not Cause.DRIFT or not self._lone(where, fleet):
                return False
            verdict = self._judge(fleet, now)
            if drift not in verdict.allowed:
                return False
        fleet.begin(drift, now)
        self._holds.pop(drift.ref, None)
        return True

    def _lone(self, where: Where, fleet: Fleet) -> bool:
        if len(fleet.drifts) > 1 or fleet.unknown or self.passes.under_way or not fleet.passes_done:
            return False
        if self.queue.priority(where) is Priority.PASS:
            return False
        now = asyncio.get_running_loop().time()
        if now < self._lone_after.get(fleet.name, 0.0):
            return False
        self._lone_after[fleet.name] = now + self._deciding.settle
        return True

    def _decide_about(self, ref: Ref) -> None:
        if (fleet := self._members.fleet(ref)) is not None:
            self._deciding.soon(fleet)

    def _judge(self, fleet: Fleet, now: float) -> Verdict:
        fleet.gathering = self._sets.gathering(now)
        with self._trace.phase("decide", fleet=fleet.name):
            verdict = self.gate.judge(fleet, now)
            self._trace.note(allowed=len(verdict.allowed), held=len(verdict.held), halts=len(verdict.halts))
        fleet.take(verdict)
        self.gate.taken(fleet, verdict)
        self.tell.decided(fleet, verdict, self._since(now))
        return verdict

    def _decide(self, fleet: Fleet) -> None:
        now = self._now()
        verdict = self._judge(fleet, now)
        for drift in verdict.allowed:
            if drift.in_flight or drift.ref not in self._seen:
                continue
            fleet.begin(drift, now)
            where = where_of(drift.ref)
            self._go[where] = drift
            self._holds.pop(drift.ref, None)
            self.queue.add(where, Priority.CHANGE)
        for ref, hold in verdict.held.items():
            if self._holds.get(ref) != hold:
                self._holds[ref] = hold
                self.tell.held(fleet, ref, hold)
                self.queue.add(where_of(ref), Priority.HINT)
        later = [hold.until for hold in verdict.held.values() if hold.until > now]
        if later:
            self._deciding.later(fleet, min(later) - now)

    # Acting

    async def _act(self, controller: Controller, drift: Drift, seen: Seen | None = None) -> None:
        """Acts on what was let through; without a second look where it was `seen` this moment."""
        fleet = self._members.fleet(drift.ref)
        if fleet is None:
            return
        ref, started = drift.ref, self.clock.now()
        try:
            if seen is not None:
                found = await controller.act_on(seen)
            else:
                found = await controller.act(drift.made_from, ref.name, ref.namespace, ref.uid)
        except Moved:
            self._acted(fleet, drift, started, Outcome.MOVED)
            drift.phase = Phase.OPEN
            self._close(fleet, ref, Closed.MOVED)
            fleet.forget(ref)
            try:
                await self._look_again(controller, ref)
            finally:
                self._remember_moved(fleet, drift)
            return
        except ApiError as error:
            if error.reason == "NotFound":
                self._acted(fleet, drift, started, Outcome.GONE)
                self._leave(ref)
                return
            self._acted(fleet, drift, started, Outcome.FAILED, error.message)
            await self._failed(controller, fleet, drift, error.message)
            return
        except Exception as error:
            if isinstance(error, Unseen):
                drift.unseen, drift.approved = True, ""  # who approved that it is made did not mean again and again
            self._acted(fleet, drift, started, Outcome.FAILED, str(error) or type(error).__name__)
            await self._failed(controller, fleet, drift, str(error) or type(error).__name__)
            return
        self._acted(fleet, drift, started, Outcome.DONE)
        await self._succeeded(controller, fleet, drift, found)

    def _acted(self, fleet: Fleet, drift: Drift, started: float, outcome: Outcome, error: str = "") -> None:
        worked = True if outcome is Outcome.DONE else False if outcome is Outcome.FAILED else None
        fleet.answered(drift, self.clock.now(), worked, error)
        self._trace.note(op=drift.op, change_set=drift.change_set, outcome=outcome)
        self.tell.acted(fleet, drift, self._since(started), outcome, error)

    def _remember_moved(self, fleet: Fleet, before: Drift) -> None:
        """What was tried and failed before something moved is not forgotten; and what moves again and again waits longer each time."""
        ref = before.ref
        moves = self._moves[ref] = self._moves.get(ref, 0) + 1
        if (line := fleet.drifts.get(ref)) is None:
            return
        line.attempts, line.failures, line.error = before.attempts, before.failures, before.error
        line.retry_at = before.retry_at
        if moves > MOVES_AT_ONCE:
            line.retry_at = self.clock.now() + self.gate.backoff(fleet).delay(moves - MOVES_AT_ONCE, self._random)

    async def _look_again(self, controller: Controller, ref: Ref) -> None:
        obj = controller.get(Key(ref.namespace, ref.name))
        if obj is not None and obj["metadata"]["uid"] == ref.uid:
            if self._enter(controller, await controller.look(obj)) is not None:
                self._decide_about(ref)
            await self._report(controller, ref)

    async def _failed(self, controller: Controller, fleet: Fleet, drift: Drift, why: str) -> None:
        delay = self.gate.backoff(fleet).delay(drift.failures + 1, self._random)
        drift.error = why
        fleet.failed(drift.ref, self.clock.now() + delay)
        self._deciding.soon(fleet)
        await self._report(controller, drift.ref, error=why)

    async def _succeeded(self, controller: Controller, fleet: Fleet, drift: Drift, seen: Seen) -> None:
        now = self.clock.now()
        self._moves.pop(drift.ref, None)
        if drift.lost:
            fleet.shown_at = now
        seen = examined(fleet, controller, seen)
        take_stock(fleet, controller, seen)
        self._members.count(drift.ref, seen.counts)
        record = seen.record
        record.intent = None
        record.converged_seconds = round(now - drift.since, 3)
        record.reversals = drift.reversals
        record.repaired_at = now if drift.cause is not Cause.INTENT else 0.0
        if drift.op is Op.DELETE and seen.deleting:
            self._close(fleet, drift.ref, Closed.ACTED)
            fleet.verified(drift.ref)
            await controller.let_go(seen.obj)
            self._leave(drift.ref)
            return
        record.last_applied = dict(seen.declared) if not seen.deleting else None  # type: ignore[arg-type]
        record.identity = seen.identity
        if seen.unhealthy:
            drift.phase = Phase.SETTLING
            self.queue.add_after(where_of(drift.ref), UNHEALTHY_SECONDS)
        else:
            self._close(fleet, drift.ref, Closed.ACTED)
            fleet.verified(drift.ref)
        self._seen[drift.ref] = seen
        self._deciding.soon(fleet)
        if drift.ref in fleet.moving:
            self.queue.add(where_of(drift.ref), Priority.CHANGE)
        await self._report(controller, drift.ref)

    # Reporting

    async def _report(self, controller: Controller, ref: Ref, error: str = "") -> None:
        if await self._reporter.report(controller, ref, error):
            self._leave(ref)
