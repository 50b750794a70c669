"""The engine: keys come in, are looked at, and go into the ledger; the gate decides on the whole; what it lets through is acted on.

Workers take keys from one queue, so a resource is never in two hands. Looking never stops: a closed gate only keeps acts away.
A decision waits a moment after the last look (`settle`), so that a change set is judged as the whole that it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from homeostat.client import Client, Key
from homeostat.loop.children import ComposerController
from homeostat.loop.compose import Composer
from homeostat.loop.controller import ADOPT, CHANGE_SET, Controller, Object, Seen
from homeostat.loop.diff import path_text
from homeostat.loop.fleet import Cause, Drift, Fleet, Hold, Op, Phase, Ref, Verdict
from homeostat.loop.observation import Unknown
from homeostat.loop.passes import PassPolicy, first_pass, next_pass
from homeostat.loop.provider import Moved, Provider
from homeostat.loop.queue import Backoff, Priority, WorkQueue
from homeostat.loop.record import Record, reversed_since
from homeostat.loop.render import render
from homeostat.loop.status import status_of
from homeostat.loop.writers import Writers, attribute
from homeostat.model.clock import Clock
from homeostat.model.errors import ApiError

log = logging.getLogger("homeostat.loop")

SETTLE_SECONDS = 0.1
"""How long a decision waits for more of the same change after the last look."""
SETTLE_MOST = 2.0
WORKERS = 16


class Gate(Protocol):
    """Who decides. `guards.PolicyGate` does it by policies; a test may do it otherwise."""

    def fleet_of(self, kind: str, namespace: str, labels: Mapping[str, str]) -> str:
        """The name of the fleet that a resource belongs to."""

    def judge(self, fleet: Fleet, now: float) -> Verdict:
        """What of the open differences may be acted on now."""

    def backoff(self, fleet: Fleet) -> Backoff:
        """How long to wait after failures."""


class Where(NamedTuple):
    """A key in the queue: which kind, which resource."""

    kind: str
    key: Key


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
    ) -> None:
        self.clock = clock or Clock()
        self.gate = gate
        self._client = client
        self.fleets: dict[str, Fleet] = {}
        kept = [Controller(provider, client, self.clock) for provider in providers]
        composed = [ComposerController(composer, client, self.clock) for composer in composers]
        self.controllers: dict[str, Controller] = {one.name: one for one in (*kept, *composed)}
        self._random = source or random.Random()
        self._settle = settle
        self._workers = workers
        self._passes = passes or PassPolicy()
        self.queue: WorkQueue[Where] = WorkQueue(kind_of=lambda w: w.kind, source=self._random)
        self._fleet_names: dict[Ref, str] = {}
        self._refs: dict[Where, Ref] = {}
        self._members: dict[str, set[Ref]] = {}
        self._seen: dict[Ref, Seen] = {}  # of open differences, for acting and reporting
        self._go: dict[Where, Drift] = {}  # let through, not yet acted on
        self._holds: dict[Ref, Hold] = {}
        self._deciding: dict[str, asyncio.TimerHandle] = {}
        self._first_wish: dict[str, float] = {}
        self._unlooked: dict[Where, None] = {}  # of the pass under way, in order
        self._again = False  # another pass is wanted after the one under way
        self._pass_wanted = asyncio.Event()  # before it is due: a fleet came up that no pass has looked at
        self._tasks: list[asyncio.Task[None]] = []

    # Its life

    async def start(self) -> None:
        """Makes the kinds known, reads what is declared, and begins the first pass."""
        for kind, controller in self.controllers.items():
            await controller.provider.open(self._client)
            await controller.define()
            controller.informer.subscribe(self._adder(kind))
            controller.informer.start()
        for controller in self.controllers.values():
            await controller.informer.wait_synced()
        self._begin_pass()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work(), name=f"loop worker {i}") for i in range(self._workers)]
        self._tasks.append(loop.create_task(self._pass_forever(), name="loop passes"))
        for kind, controller in self.controllers.items():
            if (hints := controller.provider.watch()) is not None:
                self._tasks.append(loop.create_task(self._follow(kind, hints), name=f"loop hints {kind}"))

    async def stop(self) -> None:
        """Ends it. An action under way is cut off; its intent stays in the journal."""
        self.queue.close(drain=False)
        for timer in self._deciding.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for controller in self.controllers.values():
            await controller.informer.stop()
            await controller.provider.close()

    def regroup(self) -> None:
        """Policies changed: every resource is looked at again, and finds its fleet anew."""
        if self._unlooked:
            self._again = True  # some were looked at before the change, and by the old policies
        elif self._tasks:
            self._begin_pass()
        self.decide_all()

    def decide_all(self) -> None:
        """Something that decisions hang on changed."""
        for fleet in self.fleets.values():
            self._decide_soon(fleet)

    # What comes in

    def _adder(self, kind: str) -> Any:
        generations: dict[Key, tuple[str, int, str]] = {}

        def add(key: Key) -> None:
            obj = self.controllers[kind].get(key)
            metadata = obj["metadata"] if obj else {}
            adopted = (metadata.get("annotations") or {}).get(ADOPT, "")
            mark = (metadata.get("uid", ""), metadata.get("generation", 0), adopted)
            fresh = generations.get(key) != mark or bool(metadata.get("deletionTimestamp"))
            if obj is None:
                generations.pop(key, None)
            else:
                generations[key] = mark
            if fresh:  # our own status writes come by here too, and mean nothing new
                self.queue.add(Where(kind, key), Priority.CHANGE)

        return add

    async def _follow(self, kind: str, hints: Any) -> None:
        async for ref in hints:
            self.queue.add(Where(kind, Key(ref.namespace, ref.name)), Priority.HINT)

    def _begin_pass(self) -> None:
        self._unlooked = {
            Where(kind, Key(o["metadata"].get("namespace", ""), o["metadata"]["name"])): None
            for kind, controller in self.controllers.items()
            for o in controller.informer.all()
        }
        for fleet in self.fleets.values():
            fleet.pass_begun()
        self.queue.add_all(self._unlooked, Priority.PASS)
        if not self._unlooked:
            self._end_pass()

    def _end_pass(self) -> None:
        for fleet in self.fleets.values():
            fleet.pass_done()
            self._decide_soon(fleet)
        if self._again:
            self._again = False
            self._pass_wanted.set()

    async def _pass_forever(self) -> None:
        loop = asyncio.get_running_loop()
        due = first_pass(self._passes, loop.time(), self._random)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._pass_wanted.wait()
                    await asyncio.sleep(self._settle)
            self._pass_wanted.clear()
            started = loop.time()
            if not self._unlooked:
                self._begin_pass()
            due = next_pass(self._passes, started, loop.time(), self._random)

    # Work on one key

    async def _work(self) -> None:
        while (where := await self.queue.get()) is not None:
            try:
                await self._handle(where)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not isinstance(error, ApiError):
                    log.exception("%s %s failed", where.kind, where.key)
                self.queue.retry(where)
            else:
                self.queue.forget(where)
            finally:
                self.queue.done(where)
                self._looked(where)

    def _looked(self, where: Where) -> None:
        if where in self._unlooked:
            del self._unlooked[where]
            if not self._unlooked:
                self._end_pass()

    async def _handle(self, where: Where) -> None:
        controller = self.controllers[where.kind]
        drift = self._go.pop(where, None)
        if drift is not None:
            await self._act(controller, drift)
            return
        obj = controller.get(where.key)
        if obj is None:
            self._gone(where)
            return
        if not obj["metadata"].get("deletionTimestamp"):
            obj = await controller.hold_on(obj)
        self._enter(controller, await controller.look(obj))
        await self._report(controller, controller.ref_of(obj))

    def _gone(self, where: Where) -> None:
        ref = self._refs.get(where)
        if ref is not None:
            self._leave(ref)

    def _leave(self, ref: Ref) -> None:
        where = _where(ref)
        if self._refs.get(where) == ref:
            del self._refs[where]
        name = self._fleet_names.pop(ref, "")
        fleet = self.fleets.get(name)
        if fleet is not None:
            fleet.forget(ref)
            fleet.unknown.pop(ref, None)
            fleet.unhealthy.discard(ref)
            self._members[name].discard(ref)
            fleet.size = len(self._members[name])
            self._decide_soon(fleet)
        self._seen.pop(ref, None)
        self._holds.pop(ref, None)
        self.controllers[ref.kind].forget(ref)

    def _fleet(self, ref: Ref, obj: Object) -> Fleet:
        kind = self.controllers[ref.kind].fleet_kind(ref)
        name = self.gate.fleet_of(kind, ref.namespace, obj["metadata"].get("labels") or {})
        before = self._fleet_names.get(ref)
        if before != name:
            if before is not None:
                self._leave(ref)
            namesake = self._refs.get(_where(ref))
            if namesake is not None and namesake != ref:
                self._leave(namesake)  # a reused name is another resource
            self._refs[_where(ref)] = ref
            self._fleet_names[ref] = name
            self._members.setdefault(name, set()).add(ref)
        fleet = self.fleets.get(name)
        if fleet is None:
            fleet = self.fleets[name] = Fleet(name, 0)
            fleet.pass_begun()
            if not self._unlooked:  # no pass is under way, and guards wait for a look at the whole
                self._pass_wanted.set()
        fleet.size = len(self._members[name])
        return fleet

    # The ledger

    def _enter(self, controller: Controller, seen: Seen) -> None:
        """Enters what was seen: a line in the ledger, or none."""
        ref, fleet = seen.ref, self._fleet(seen.ref, seen.obj)
        state = seen.observation.state
        self._seen[ref] = seen
        if isinstance(state, Unknown):
            fleet.unknown[ref] = state.reason
            self._decide_soon(fleet)
            return
        was_unknown = fleet.unknown.pop(ref, None) is not None
        fleet.unhealthy.discard(ref)
        if seen.unhealthy:
            fleet.unhealthy.add(ref)
        if seen.diff:
            fleet.drifts[ref] = self._line(controller, fleet, seen)
            self._decide_soon(fleet)
        elif ref in fleet.drifts or was_unknown:
            if seen.unhealthy:
                self._decide_soon(fleet)
            else:
                fleet.verified(ref)
                self._decide_soon(fleet)

    def _line(self, controller: Controller, fleet: Fleet, seen: Seen) -> Drift:
        """The ledger's line for a difference: a new one, or the one there is with what is new."""
        now, record, metadata = self.clock.now(), seen.record, seen.obj["metadata"]
        assert seen.diff.op is not None
        assert seen.diff.cause is not None
        known = fleet.drifts.get(seen.ref)
        if known is not None and known.made_from == seen.made_from:
            known.owned, known.foreign = seen.owned, seen.foreign
            return known
        diff = attribute(seen.diff, declared_by=Writers(metadata.get("managedFields") or (), root=("spec",)))
        by = tuple(dict.fromkeys(c.who.manager for c in diff.changes if c.who is not None))
        line = Drift(
            ref=seen.ref,
            op=seen.diff.op,
            cause=seen.diff.cause,
            since=known.since if known else record.since or now,
            made_from=seen.made_from,
            generation=metadata.get("generation", 0),
            paths=tuple(path_text(c.path) for c in diff.changes),
            changes=tuple(render(diff, controller.sensitive)) if diff.op is Op.UPDATE else (),
            owned=seen.owned,
            foreign=seen.foreign,
            change_set=(metadata.get("annotations") or {}).get(CHANGE_SET, ""),
            by=by,
            reversals=self._reversals(controller, record, seen.diff.cause) if known is None else known.reversals,
            target=controller.provider.target(seen.spec),
            domain=controller.provider.domain(seen.spec),
        )
        if known is not None:
            line.attempts, line.failures, line.retry_at = known.attempts, known.failures, known.retry_at
            line.error = known.error
            if known.in_flight:
                fleet.forget(seen.ref)
        return line

    def _reversals(self, controller: Controller, record: Record, cause: Cause) -> tuple[float, ...]:
        return reversed_since(record, cause, self.clock.now()) if controller.provider.contested else ()

    # Deciding

    def _decide_soon(self, fleet: Fleet) -> None:
        """Decides a moment after the last look, but not later than `SETTLE_MOST` after the first."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        timer = self._deciding.pop(fleet.name, None)
        first = self._first_wish.setdefault(fleet.name, now) if timer is not None else now
        self._first_wish[fleet.name] = first
        if timer is not None:
            timer.cancel()
        at = min(now + self._settle, first + SETTLE_MOST)
        self._deciding[fleet.name] = loop.call_at(at, self._decide, fleet)

    def _decide(self, fleet: Fleet) -> None:
        self._deciding.pop(fleet.name, None)
        now = self.clock.now()
        verdict = self.gate.judge(fleet, now)
        fleet.take(verdict)
        for drift in verdict.allowed:
            if drift.in_flight or drift.ref not in self._seen:
                continue
            fleet.begin(drift, now)
            where = _where(drift.ref)
            self._go[where] = drift
            self._holds.pop(drift.ref, None)
            self.queue.add(where, Priority.CHANGE)
        for ref, hold in verdict.held.items():
            if self._holds.get(ref) != hold:
                self._holds[ref] = hold
                self.queue.add(_where(ref), Priority.HINT)
        later = [hold.until for hold in verdict.held.values() if hold.until > now]
        if later and fleet.name not in self._deciding:
            delay = min(later) - now
            self._deciding[fleet.name] = asyncio.get_running_loop().call_later(delay, self._decide, fleet)

    # Acting

    async def _act(self, controller: Controller, drift: Drift) -> None:
        fleet = self.fleets[self._fleet_names.get(drift.ref, "")] if drift.ref in self._fleet_names else None
        if fleet is None:
            return
        ref = drift.ref
        try:
            seen = await controller.act(drift.made_from, ref.name, ref.namespace, ref.uid)
        except Moved:
            drift.phase = Phase.OPEN
            fleet.forget(ref)
            await self._look_again(controller, ref)
            return
        except ApiError as error:
            if error.reason == "NotFound":
                self._leave(ref)
                return
            await self._failed(controller, fleet, drift, error.message)
            return
        except Exception as error:
            await self._failed(controller, fleet, drift, str(error) or type(error).__name__)
            return
        await self._succeeded(controller, fleet, drift, seen)

    async def _look_again(self, controller: Controller, ref: Ref) -> None:
        obj = controller.get(Key(ref.namespace, ref.name))
        if obj is not None and obj["metadata"]["uid"] == ref.uid:
            self._enter(controller, await controller.look(obj))
            await self._report(controller, ref)

    async def _failed(self, controller: Controller, fleet: Fleet, drift: Drift, why: str) -> None:
        delay = self.gate.backoff(fleet).delay(drift.failures + 1, self._random)
        drift.error = why
        fleet.failed(drift.ref, self.clock.now() + delay)
        self._decide_soon(fleet)
        await self._report(controller, drift.ref, error=why)

    async def _succeeded(self, controller: Controller, fleet: Fleet, drift: Drift, seen: Seen) -> None:
        now = self.clock.now()
        record = seen.record
        record.intent = None
        record.converged_seconds = round(now - drift.since, 3)
        record.reversals = drift.reversals
        record.repaired_at = now if drift.cause is not Cause.INTENT else 0.0
        if drift.op is Op.DELETE and seen.deleting:
            fleet.verified(drift.ref)
            await controller.let_go(seen.obj)
            self._leave(drift.ref)
            return
        record.last_applied = dict(seen.declared) if not seen.deleting else None  # type: ignore[arg-type]
        record.identity = seen.identity
        if seen.unhealthy:
            drift.phase = Phase.SETTLING
            self.queue.add_after(_where(drift.ref), 1.0)
        else:
            fleet.verified(drift.ref)
        self._seen[drift.ref] = seen
        self._decide_soon(fleet)
        await self._report(controller, drift.ref)

    # Reporting

    async def _report(self, controller: Controller, ref: Ref, error: str = "") -> None:
        """Writes the status where it changed; lets a resource go that is deleted and of which nothing is left."""
        seen = self._seen.get(ref)
        fleet = self.fleets.get(self._fleet_names.get(ref, ""))
        if seen is None or fleet is None:
            return
        obj = controller.get(Key(ref.namespace, ref.name)) or seen.obj
        if obj["metadata"]["uid"] != ref.uid:
            return
        drift = fleet.drifts.get(ref)
        if drift is not None and not drift.in_flight:
            error = error or drift.error  # a look does not make it undone that the last action failed
        state = seen.observation.state
        record = seen.record
        if drift is None and not isinstance(state, Unknown):
            if seen.deleting:
                await controller.let_go(obj)
                self._leave(ref)
                return
            if seen.owned and record.last_applied is None:
                record.last_applied = dict(seen.declared)  # type: ignore[arg-type]
            if seen.owned and seen.identity:
                record.identity = seen.identity
            record.intent = None
        elif drift is not None and drift.phase is Phase.OPEN and not error and ref not in self._holds:
            if record.made_from == drift.made_from:
                return  # it was told before a restart; what is new comes with the decision
        elif error:
            record.intent = Record.read(obj.get("status") or {}).intent  # it may have been done: who looks next must know
        status = status_of(
            {**obj, "metadata": {**obj["metadata"], "generation": seen.obj["metadata"].get("generation", 0)}},
            record,
            now=self.clock.timestamp(),
            drift=drift,
            hold=self._holds.get(ref),
            unknown=state if isinstance(state, Unknown) else None,
            unhealthy=seen.unhealthy,
            error=error,
            state=state if isinstance(state, Mapping) else {},
            shown=controller.provider.shown,
        )
        await controller.write_status(obj, status)
        if drift is None and not isinstance(state, Unknown):
            self._seen.pop(ref, None)


def _where(ref: Ref) -> Where:
    return Where(ref.kind, Key(ref.namespace, ref.name))
