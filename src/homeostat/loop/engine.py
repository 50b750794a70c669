"""The engine: keys come in, are looked at, and go into the ledger; the gate decides on the whole; what it lets through is acted on.

Workers take keys from one queue, so a resource is never in two hands. Looking never stops: a closed gate only keeps acts away.
A decision waits a moment after the last look (`settle`), so that a change set is judged as the whole that it is. What is known is in
`ledger`, what becomes of an act is up to `acting`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterable, AsyncIterator, Coroutine, Hashable, Iterable, Sequence
from typing import Any

from homeostat.client import Client, Key, Unreachable
from homeostat.loop.acting import Acting
from homeostat.loop.children import ComposerController
from homeostat.loop.compose import Composer
from homeostat.loop.controller import Controller
from homeostat.loop.failure import CONTAINED, Mistake, shown, told
from homeostat.loop.fleet import Cause, Drift, Fleet, Op, Ref, Verdict
from homeostat.loop.gating import Gate
from homeostat.loop.ledger import Ledger
from homeostat.loop.listener import Listener, Listeners, Result
from homeostat.loop.members import Where, where_of
from homeostat.loop.passes import PassPolicy
from homeostat.loop.provider import Moved, Provider
from homeostat.loop.queue import Priority, QueueMetrics, WorkQueue
from homeostat.loop.reporting import Reporter
from homeostat.loop.rounds import Rounds
from homeostat.loop.settling import SETTLE_SECONDS, Settling
from homeostat.loop.tracing import Tracing
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.loop")

HINTS_AGAIN_SECONDS = 5.0
"""After so long a provider is asked for hints again whose hints broke off."""
WORKERS = 32
TURNS_AT_ONCE = 3
"""So often in a row something may be held for another reason than before until its next look waits."""
TURNS_SECONDS = 60.0
"""After so long without, it is no longer in a row."""
PASSING = frozenset(("Conflict", "NotFound", "Gone", "Expired", "TooManyRequests", "ServiceUnavailable", "Timeout", "ServerTimeout"))
"""Why a server refuses what is right, and takes it the next time."""


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
        kept = [(provider.controller or Controller)(provider, client, self.clock) for provider in providers]
        composed = [(composer.controller or ComposerController)(composer, client, self.clock) for composer in composers]
        self.controllers: dict[str, Controller] = _by_name([*kept, *composed])
        heard = [one.listener for one in self.controllers.values() if one.listener is not None]
        self.tell, self._trace = Listeners((*listeners, *heard)), Tracing.configured()
        for controller in self.controllers.values():
            controller.trace = self._trace
        self._random = source or random.Random()
        self.workers = workers
        self.queue: WorkQueue[Where] = WorkQueue(
            kind_of=lambda w: w.kind, source=self._random, metrics=queue_metrics
        )
        self._go: dict[Where, Drift] = {}  # let through, not yet acted on
        self._lone_after: dict[str, float] = {}  # by fleet: when a lone repair may go at once again
        self._tasks: set[asyncio.Task[None]] = set()
        self.aside: dict[str, str] = {}
        """Kinds that it was to keep and cannot at present, and why."""
        self._put_aside: list[Controller] = []
        policy = passes or PassPolicy()
        self.passes = Rounds(self, self.controllers, self.queue, policy, self.clock, self._random, self._spawn)
        self._deciding = Settling(self._decide, settle)
        self.ledger = Ledger(self.controllers, gate, self.queue, self.passes, self._deciding, self.tell, self.clock)
        self.fleets = self.ledger.members.fleets
        self._reporter = Reporter(self.ledger, self.clock, self._trace)
        self._acting = Acting(
            self.ledger, self._reporter, gate, self.queue, self._deciding, self.tell, self._trace, self.clock, self._random
        )

    # Its life

    async def start(self, *, apart: bool = False) -> None:
        """Makes the kinds known, reads what is declared, and begins the first pass.

        `apart`: a kind that cannot be defined, or whose provider does not open, is put `aside`, and the others are kept; else it is raised.
        """
        for kind, controller in tuple(self.controllers.items()):
            try:
                await self._ready(controller)
            except Exception as error:
                if not apart or isinstance(error, Unreachable) or (isinstance(error, ApiError) and error.reason in PASSING):
                    raise
                await self._set_aside(controller, error)
                continue
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

    async def _ready(self, controller: Controller) -> None:
        await controller.define()
        provider = controller.provider
        try:
            async with asyncio.timeout(provider.deadline):
                with CONTAINED:
                    await provider.open(self._client)
        except Exception as error:
            error.add_note(f"{type(provider).__name__}.open raised it: nothing of its kind is kept until that succeeds; open what may be down when it is used")
            raise

    async def _set_aside(self, controller: Controller, error: Exception) -> None:
        self.aside[controller.name] = _why(error, controller.provider)
        self._put_aside.append(controller)
        self.controllers.pop(controller.name, None)
        await _closed(controller.provider)

    async def try_again(self) -> bool:
        """Whether a kind that was put aside could be kept by now: then it is time to begin anew, with all of them."""
        for controller in self._put_aside:
            try:
                await self._ready(controller)
            except Exception as error:
                self.aside[controller.name] = _why(error, controller.provider)
            else:
                return True
            finally:
                await _closed(controller.provider)
        return False

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
        await asyncio.gather(*(_closed(controller.provider, logging.WARNING) for controller in self.controllers.values()))

    def regroup(self) -> None:
        """Policies changed: every resource is looked at again, and finds its fleet anew."""
        for fleet in self.fleets.values():
            self.gate.equip(fleet)
        if self._tasks:
            self.ledger.regrouping = True
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
        while True:
            try:
                with CONTAINED:
                    async for ref in hints_of(provider):
                        self.queue.add(Where(kind, Key(ref.namespace, ref.name)), Priority.HINT)
                return
            except Exception as error:
                if isinstance(error, Mistake) and error.__cause__ is None:  # it is written so, and will not be otherwise the next time
                    log.error("there are no hints of %s: %s", kind, error)
                    return
                log.exception("the hints of %s broke off; they are taken up again in %g s", kind, HINTS_AGAIN_SECONDS)
            await asyncio.sleep(HINTS_AGAIN_SECONDS)

    # Passes

    def pass_begins(self) -> None:
        for fleet in self.fleets.values():
            fleet.pass_begun()

    def pass_ends(self, size: int, seconds: float) -> None:
        self.ledger.regrouping = self.passes.again
        self.tell.pass_done(size, seconds)
        gathering = self.ledger.sets.gathering(self.ledger.now())
        for fleet in self.fleets.values():
            fleet.gathering = gathering
            fleet.pass_done()
            self._deciding.soon(fleet)

    def is_calm(self, controller: Controller, where: Where, *, anew: bool) -> bool:
        """Whether nothing of a resource is open; what was not known, or had its policies changed, is put into its fleet."""
        ref = self.ledger.members.at(where)
        if ref is None or anew:
            obj = controller.get(where.key)
            if obj is None:
                return False
            ref = controller.ref_of(obj)
            fleet = self.ledger.join(ref, obj)
            if fleet.invariants or fleet.health:  # they want to see it
                return False
        return ref not in self.ledger.seen

    # Work on one key

    async def _work(self) -> None:
        while (where := await self.queue.get()) is not None:
            started, result = self.ledger.now(), Result.ERROR
            try:
                with self._trace.phase("reconcile", kind=where.kind, namespace=where.key.namespace, name=where.key.name):
                    await self._handle(where)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if isinstance(error, Unreachable):
                    log.warning("%s %s waits for the server: %s", where.kind, where.key, error)
                elif isinstance(error, ApiError) and error.reason not in PASSING:
                    log.warning("the server refuses what is written for %s %s: %s", where.kind, where.key, error.message)
                elif not isinstance(error, (ApiError, Moved)):
                    log.exception("%s %s failed", where.kind, where.key)
                self.queue.retry(where)
            else:
                result = Result.SUCCESS
                self.queue.forget(where)
            finally:
                self.queue.done(where)
                self.tell.worked(where.kind, self.ledger.since(started), result)
                self.passes.looked(where)
            await asyncio.sleep(0)  # a server in this process answers at once: others, leases among them, would never have their turn

    async def _handle(self, where: Where) -> None:
        controller = self.controllers[where.kind]
        drift = self._go.pop(where, None)
        if drift is not None and self.ledger.stands(drift):  # a look that was under way when it was let through may have found another
            await self._acting.act(controller, drift)
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
        drift = self.ledger.enter(controller, seen)
        if drift is not None and self._at_once(where, drift):
            await self._acting.act(controller, drift, seen)
            return
        if drift is not None:
            self.ledger.decide_soon(seen.ref)
        await self._reporter.report(controller, seen.ref)

    def _nothing_new(self, controller: Controller, where: Where) -> bool:
        """Whether a hint was about what we know: nothing is open there, and nothing has moved since the last look."""
        if self.queue.priority(where) is not Priority.HINT or self.ledger.members.at(where) in self.ledger.seen:
            return False
        return controller.still(where.key)

    def _gone(self, where: Where) -> None:
        ref = self.ledger.members.at(where)
        if ref is not None:
            self.ledger.leave(ref)

    # Deciding

    def _at_once(self, where: Where, drift: Drift) -> bool:
        """Begins what need not wait for what else may come: a creation, for it harms nothing that exists, and a lone repair. What was lost is
        repaired, too: where much is read as gone at once, that may be an error.

        A repair is lone where nothing else of its fleet differs and the last such was longer ago than decisions wait: so of many
        that come together one at most goes before the whole is judged.
        """
        fleet, now = self.ledger.members.fleet(drift.ref), self.clock.now()
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
        self.ledger.holds.pop(drift.ref, None)
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

    def _judge(self, fleet: Fleet, now: float) -> Verdict:
        fleet.gathering = self.ledger.sets.gathering(now)
        with self._trace.phase("decide", fleet=fleet.name):
            verdict = self.gate.judge(fleet, now)
            self._trace.note(allowed=len(verdict.allowed), held=len(verdict.held), halts=len(verdict.halts))
        fleet.take(verdict)
        self.gate.taken(fleet, verdict)
        self.tell.decided(fleet, verdict, self.ledger.since(now))
        return verdict

    def _decide(self, fleet: Fleet) -> None:
        now = self.ledger.now()
        verdict = self._judge(fleet, now)
        for drift in verdict.allowed:
            if drift.in_flight or drift.ref not in self.ledger.seen:
                continue
            fleet.begin(drift, now)
            where = where_of(drift.ref)
            self._go[where] = drift
            self.ledger.holds.pop(drift.ref, None)
            self.queue.not_later(where)
            self.queue.add(where, Priority.CHANGE)
        for ref, hold in verdict.held.items():
            if self.ledger.holds.get(ref) != hold:
                self.ledger.holds[ref] = hold
                self.tell.held(fleet, ref, hold)
                self._look_at_held(fleet, ref)
        later = [hold.until for hold in verdict.held.values() if hold.until > now]
        if later:
            self._deciding.later(fleet, min(later) - now)

    def _look_at_held(self, fleet: Fleet, ref: Ref) -> None:
        """Has something looked at that is held for another reason now, which its status then says.

        What is read now so and now so is held for another reason after each look: without a wait, it would be looked at all the time.
        """
        now = asyncio.get_running_loop().time()
        turns, last = self.ledger.turns.get(ref, (0, -math.inf))
        turns = turns + 1 if now - last < TURNS_SECONDS else 1
        self.ledger.turns[ref] = turns, now
        if turns <= TURNS_AT_ONCE:
            self.queue.add(where_of(ref), Priority.HINT)
        else:
            self.queue.add_after(where_of(ref), self.gate.backoff(fleet).delay(turns - TURNS_AT_ONCE, self._random))


def _why(error: Exception, provider: Provider[Any, Any]) -> str:
    return "; ".join((told(error, provider), *getattr(error, "__notes__", ())[:1]))


async def _closed(provider: Provider[Any, Any], level: int = logging.DEBUG) -> None:
    """Closes it, or gives up when that fails or takes longer than its deadline. What did not open may not close: that is not worth much of a word."""
    try:
        async with asyncio.timeout(provider.deadline):
            with CONTAINED:
                await provider.close()
    except Exception as error:
        log.log(level, "%s did not close: %s", type(provider).__name__, told(error, provider))


def _by_name(controllers: Sequence[Controller]) -> dict[str, Controller]:
    """Raises `ValueError` where two keep one kind: they would take turns in undoing what the other did."""
    found: dict[str, Controller] = {}
    for one in controllers:
        if (other := found.setdefault(one.name, one)) is not one:
            first, second = (f"{type(each.provider).__module__}.{type(each.provider).__qualname__}" for each in (other, one))
            raise ValueError(f"{one.name} is kept by two: {first} and {second}. Leave one of them out, or give it another kind or group")
    return found


async def hints_of(provider: Provider[Any, Any]) -> AsyncIterator[Ref]:
    """What `watch` gives. Raises `Mistake` where that is something else than hints."""
    hints: Any = provider.watch()
    name = f"{type(provider).__name__}.watch"
    if hints is None:
        return
    if isinstance(hints, Coroutine):
        hints.close()
    if not isinstance(hints, AsyncIterable):
        raise Mistake(f"{name} returned {shown(hints)}; it is to be an `async def` that yields a Ref for each thing to look at")
    async for ref in hints:
        if not isinstance(ref, Ref):
            raise Mistake(f'{name} gave {shown(ref)}; a hint is a Ref, as in Ref(self.info.name, "default", name, uid="")')
        yield ref
