"""From what is known of a resource to its status: written where it changed, and nothing where nothing did."""

from __future__ import annotations

from collections.abc import Mapping

from homeostat.client import Key
from homeostat.loop.controller import Controller, Seen
from homeostat.loop.declarations import Object
from homeostat.loop.fleet import Drift, Phase, Ref
from homeostat.loop.ledger import Ledger
from homeostat.loop.observation import Unknown
from homeostat.loop.provider import Moved
from homeostat.loop.record import Record
from homeostat.loop.status import status_of
from homeostat.loop.tracing import Tracing
from homeostat.model.clock import Clock, format_time


class Reporter:
    """Says what the ledger knows: what was seen of each, what is open there, and why it is not acted on."""

    def __init__(self, ledger: Ledger, clock: Clock, trace: Tracing) -> None:
        self._ledger = ledger
        self._clock = clock
        self._trace = trace

    async def report(self, controller: Controller, ref: Ref, error: str = "") -> None:
        """Writes the status of a resource. Lets one go that is deleted and of which nothing is left: it leaves the ledger.

        `error` is why the last action failed. What is as declared is no longer among what was seen.
        """
        seen, fleet, key = self._ledger.seen.get(ref), self._ledger.members.fleet(ref), Key(ref.namespace, ref.name)
        if seen is None or fleet is None:
            return
        obj = controller.get(key) or seen.obj
        if obj["metadata"]["uid"] != ref.uid:
            return
        drift = fleet.drifts.get(ref)
        settled = drift is None and not isinstance(seen.observation.state, Unknown)
        if not error and controller.has_aged(seen.obj, obj):
            raise Moved("its journal has moved since it was looked at")
        if drift is not None and not drift.in_flight:
            error = error or drift.error  # a look does not make it undone that the last action failed
        unread = drift is None and not settled
        if (settled and seen.deleting) or (unread and "deletionTimestamp" in obj["metadata"] and controller.made_nothing(seen)):
            if seen.unhealthy:  # something of it is still at work, and goes by itself
                return
            await controller.let_go(obj)
            self._ledger.leave(ref)
            return
        record = seen.record
        if settled:
            _remember(record, seen)
        elif drift is not None and drift.phase is Phase.OPEN and not error and ref not in self._ledger.holds:
            if record.made_from == drift.made_from:
                return  # it was told before a restart; what is new comes with the decision
        elif error:
            written = Record.read(obj.get("status") or {})  # it may have been done, and what is ours stays so: who looks next must know
            record.intent, record.last_applied, record.identity = written.intent, written.last_applied, written.identity
        with self._trace.phase("status", ref):
            told = obj if controller.untold(obj) else await controller.write_status(obj, self._status(controller, seen, obj, drift, error))
        if settled:
            self._ledger.seen.pop(ref, None)
            if not seen.unhealthy:
                controller.settled(key, told, seen)

    def _status(self, controller: Controller, seen: Seen, obj: Object, drift: Drift | None, error: str) -> Object:
        if drift is None and not seen.unhealthy and (short := controller.short_status(seen)) is not None:
            return short
        state = seen.observation.state
        return status_of(
            {**obj, "metadata": {**obj["metadata"], "generation": seen.obj["metadata"].get("generation", 0)}},
            seen.record,
            now=self._clock.timestamp(),
            drift=drift,
            hold=self._ledger.holds.get(seen.ref),
            unknown=state if isinstance(state, Unknown) else None,
            unhealthy=seen.unhealthy,
            error=error,
            state=state if isinstance(state, Mapping) else {},
            shown=controller.provider.shown,
            observed_at=format_time(seen.observation.at),
        )


def _remember(record: Record, seen: Seen) -> None:
    """What is kept of a resource that is as declared."""
    if seen.owned and record.last_applied is None:
        record.last_applied = dict(seen.declared)  # type: ignore[arg-type]
    if seen.owned and seen.identity:
        record.identity = seen.identity
    record.intent = None
