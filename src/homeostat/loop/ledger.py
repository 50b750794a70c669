"""The ledger of all fleets: who is in which, and what is open there. What was seen is entered, and what is gone leaves.

A fleet's own lines, as guards judge them, are in `fleet`; what is entered here decides nothing, and does nothing to the world.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from homeostat.loop.changesets import ChangeSets, last_write
from homeostat.loop.controller import Controller, Seen
from homeostat.loop.declarations import Object
from homeostat.loop.fleet import Cause, Drift, Fleet, Hold, Op, Phase, Ref
from homeostat.loop.gating import Gate
from homeostat.loop.lines import judged_in, line_of, repaired_in_vain
from homeostat.loop.listener import Closed, Listeners
from homeostat.loop.meanings import Meanings
from homeostat.loop.members import Members, Where, where_of
from homeostat.loop.observation import Absent, Unknown
from homeostat.loop.queue import WorkQueue
from homeostat.loop.record import REVERSALS_KEPT
from homeostat.loop.rounds import Rounds
from homeostat.loop.settling import Settling
from homeostat.loop.stock import examined, outcome, take_stock
from homeostat.loop.wallclock import WallClock
from homeostat.model.clock import Clock

log = logging.getLogger("homeostat.loop")

UNHEALTHY_SECONDS = 1.0
"""After so long something is looked at again that was acted on and is not healthy yet."""


class Ledger:
    """Fleets with all that is open in them. Where something of a fleet moves, it is `deciding` that hears of it."""

    def __init__(
        self,
        controllers: Mapping[str, Controller],
        gate: Gate,
        queue: WorkQueue[Where],
        passes: Rounds,
        deciding: Settling,
        tell: Listeners,
        clock: Clock,
    ) -> None:
        self._controllers = controllers
        self._gate = gate
        self._queue = queue
        self._passes = passes
        self._deciding = deciding
        self._tell = tell
        self._clock = clock
        self._wall = WallClock(clock)
        self.members = Members()
        self.sets = ChangeSets()
        self.seen: dict[Ref, Seen] = {}
        """As what each was last seen of which something is open, for acting and reporting."""
        self.holds: dict[Ref, Hold] = {}
        """Why some are not acted on."""
        self.moves: dict[Ref, int] = {}
        """How often in a row what an action was decided on had moved."""
        self.turns: dict[Ref, tuple[int, float]] = {}
        """How often in a row the reason changed for which something is held, and when last, by the event loop's clock."""
        self.meanings = Meanings()
        """What was declared before, of what was changed last."""
        self.regrouping = False
        """Policies changed, and not everything has found its fleet yet."""

    # Its time

    def now(self) -> float:
        """Wall seconds. Where the clock was set meanwhile, all that waits is put right first: a grace is not over, and no wait hours
        long, because of that. What people declared by the clock (windows, the end of a freeze) follows it."""
        now, by = self._wall.read()
        if by:
            log.warning("the clock was set by %+.0f s; waits and graces go on as if it had not been", by)
            self.sets.clock_set(by)
            for fleet in self.members.fleets.values():
                fleet.clock_set(by)
        return now

    def since(self, started: float) -> float:
        """For listeners; not by the event loop's clock, which stands still between its turns."""
        return max(0.0, self._clock.now() - started)

    # Who is in which fleet

    def join(self, ref: Ref, obj: Object, judged_in: str = "") -> Fleet:
        """Puts a resource into its fleet: that of its labels, or the one it is `judged_in` until it is as declared."""
        kind = self._controllers[ref.kind].fleet_kind(ref)
        name = self._gate.fleet_of(kind, ref.namespace, obj["metadata"].get("labels") or {})
        stays = judged_in not in ("", name) and self._gate.keeps(judged_in)
        fleet = self.members.join(ref, judged_in if stays else name, self._new_fleet, self.leave)
        if not fleet.passes_done:
            fleet.at_most = max(fleet.at_most, self._passes.sizes.get(ref.kind, 0))
        if stays:
            fleet.moving[ref] = name
        elif fleet.moving:
            fleet.moving.pop(ref, None)
        return fleet

    def _new_fleet(self, name: str) -> Fleet:
        fleet = Fleet(name, 0)
        self._gate.equip(fleet)
        fleet.pass_begun()
        if self._passes.again:  # some that belong to it were looked at by the old policies
            fleet.stock_since = fleet.passes_begun
        if not self._passes.under_way:  # guards wait for a look at the whole
            self._passes.want()
        return fleet

    def leave(self, ref: Ref) -> None:
        """A resource is declared no more, or goes to another fleet: nothing of it is open any longer."""
        if (fleet := self.members.fleet(ref)) is not None:
            self.close(fleet, ref, Closed.GONE)
            self._deciding.soon(fleet)
        self.members.leave(ref)
        self.seen.pop(ref, None)
        self.holds.pop(ref, None)
        self.moves.pop(ref, None)
        self.turns.pop(ref, None)
        self.meanings.forget(ref)
        self._controllers[ref.kind].forget(ref)

    # What is open

    def enter(self, controller: Controller, seen: Seen) -> Drift | None:
        """Enters what was seen: a line in the ledger, which it gives, or none. What it leads to is not decided here."""
        ref, first = seen.ref, seen.ref not in self.members
        fleet = self.join(ref, seen.obj, judged_in(seen, None if self.regrouping else self.members.fleet(ref)))
        state, seen = seen.observation.state, examined(fleet, controller, seen)
        take_stock(fleet, controller, seen)
        self.seen[ref] = seen
        self._tell.looked(fleet, seen)
        if isinstance(state, Unknown):
            fleet.unknown[ref] = state.reason
            self._deciding.soon(fleet)
            return None
        self.members.count(ref, seen.counts)
        was_unknown = fleet.unknown.pop(ref, None) is not None
        fleet.unhealthy.pop(ref, None)
        if seen.unhealthy:
            made_by = last_write(seen.obj["metadata"])
            fleet.unhealthy[ref] = self.sets.place(ref.uid, made_by, self._clock.now(), seen.record.change_set)
            if first and repaired_in_vain(seen):
                fleet.in_doubt.add(ref)
        else:
            fleet.in_doubt.discard(ref)
        if seen.diff:
            known = fleet.drifts.get(ref)
            drift = line_of(controller, seen, known, self.sets, self._clock.now())
            if known is None:
                self._count_turn(controller, drift, seen)
            if known is not None and known is not drift and known.in_flight:
                fleet.forget(ref)
            fleet.drifts[ref] = drift
            drift.judged_in = fleet.name if ref in fleet.moving else ""
            if first and seen.record.approved == drift.made_from:  # before a restart; later it would be a second use
                drift.approved = seen.record.approved
            drift.desired = outcome(fleet, controller, seen)
            if known is None:
                self._tell.drift_opened(fleet, drift)
            return drift
        if ref in fleet.drifts or was_unknown:
            if not seen.unhealthy:
                self.close(fleet, ref, Closed.ITSELF)
                fleet.verified(ref)
            elif ref in fleet.drifts:
                self.look_soon(ref)
            self._deciding.soon(fleet)
        return None

    def _count_turn(self, controller: Controller, drift: Drift, seen: Seen) -> None:
        """Two who take back each other's declarations fight as two do who change the thing itself."""
        if drift.op is not Op.UPDATE or drift.cause is not Cause.INTENT or isinstance(seen.declared, Absent) or not controller.provider.contested:
            return
        if other := self.meanings.undone(drift.ref, seen.declared, drift.by):
            drift.reversals = (*drift.reversals, self._clock.now())[-REVERSALS_KEPT:]
            drift.against = other

    def stands(self, drift: Drift) -> bool:
        """Whether it is still the line of its resource: what another has taken the place of was judged for nothing."""
        fleet = self.members.fleet(drift.ref)
        return fleet is not None and fleet.drifts.get(drift.ref) is drift

    def close(self, fleet: Fleet, ref: Ref, why: Closed) -> None:
        """Says that a difference is no more, where there was one."""
        if (drift := fleet.drifts.get(ref)) is not None:
            why = Closed.ACTED if why is Closed.ITSELF and drift.phase is Phase.SETTLING else why
            self._tell.drift_closed(fleet, drift, self.since(drift.since), why)

    # What comes next

    def look_soon(self, ref: Ref) -> None:
        """Has something looked at again that was acted on and is not healthy yet."""
        self._queue.add_after(where_of(ref), UNHEALTHY_SECONDS)

    def decide_soon(self, ref: Ref) -> None:
        """Has the fleet of a resource decided on."""
        if (fleet := self.members.fleet(ref)) is not None:
            self._deciding.soon(fleet)
