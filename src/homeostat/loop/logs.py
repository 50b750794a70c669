"""What the loop writes into the log: one line an event, with its name and its fields, and never a value of a spec or a state.

Halts, breakers that open and actions that fail are warnings; what was found and done is at `info`; every look and every decision is at
`debug`. Fields go in `extra={"fields": …}`, which any handler can show; that of the command line does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from homeostat.loop.breaker import Breaker, Circuit
from homeostat.loop.fleet import Drift, Fleet, Halt, Hold, Ref, Verdict
from homeostat.loop.listener import Closed, Listener, Outcome

if TYPE_CHECKING:
    from homeostat.loop.controller import Seen

FIELDS = "fields"
"""The attribute of a log record that holds its fields."""

Field = str | int | float


class Logs(Listener):
    """Writes what happens into this logger, by default `homeostat.loop`."""

    def __init__(self, log: logging.Logger | None = None) -> None:
        self._log = log or logging.getLogger("homeostat.loop")

    def looked(self, fleet: Fleet, seen: Seen) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            found = "unknown" if not seen.observation.known else str(seen.diff.op or "same")
            self._line(logging.DEBUG, "looked", seen.ref, found=found, seconds=seen.observation.took)

    def drift_opened(self, fleet: Fleet, drift: Drift) -> None:
        if self._log.isEnabledFor(logging.INFO):
            self._drift(logging.INFO, "drift opened", drift, by=", ".join(drift.by))

    def drift_closed(self, fleet: Fleet, drift: Drift, seconds: float, why: Closed) -> None:
        if self._log.isEnabledFor(logging.INFO):
            self._drift(logging.INFO, "drift closed", drift, why=why, seconds=seconds)

    def decided(self, fleet: Fleet, verdict: Verdict, seconds: float) -> None:
        if self._log.isEnabledFor(logging.DEBUG):
            counts = {"allowed": len(verdict.allowed), "held": len(verdict.held), "halts": len(verdict.halts)}
            self._line(logging.DEBUG, "decided", fleet=fleet.name, seconds=seconds, **counts)

    def held(self, fleet: Fleet, ref: Ref, hold: Hold) -> None:
        if self._log.isEnabledFor(logging.INFO):
            self._line(logging.INFO, "held", ref, guard=hold.guard, reason=hold.reason)

    def halted(self, fleet: Fleet, halt: Halt) -> None:
        self._halt("halted", fleet, halt, reason=halt.reason, plan=halt.plan)

    def lifted(self, fleet: Fleet, halt: Halt) -> None:
        self._halt("halt lifted", fleet, halt)

    def breaker_moved(self, fleet: Fleet, target: str, breaker: Breaker) -> None:
        level = logging.WARNING if breaker.circuit is Circuit.OPEN else logging.INFO
        moved: dict[str, Field] = {"circuit": breaker.circuit, "failures": breaker.failures}
        self._line(level, "breaker moved", fleet=fleet.name, target=target, **moved)

    def acted(self, fleet: Fleet, drift: Drift, seconds: float, outcome: Outcome, error: str = "") -> None:
        level = logging.WARNING if outcome is Outcome.FAILED else logging.INFO
        if self._log.isEnabledFor(level):
            self._drift(level, "acted", drift, outcome=outcome, seconds=seconds, error=error)

    def pass_done(self, count: int, seconds: float) -> None:
        self._line(logging.INFO, "pass done", resources=count, seconds=seconds)

    def _drift(self, level: int, event: str, drift: Drift, **more: Field) -> None:
        self._line(level, event, drift.ref, op=drift.op, cause=drift.cause, change_set=drift.change_set, **more)

    def _halt(self, event: str, fleet: Fleet, halt: Halt, **more: Field) -> None:
        self._line(logging.WARNING, event, fleet=fleet.name, guard=halt.guard, change_set=halt.change_set, **more)

    def _line(self, level: int, event: str, ref: Ref | None = None, /, **more: Field) -> None:
        if ref is not None:
            more = {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name, **more}
        fields = {key: _shown(value) for key, value in more.items() if value != ""}
        self._log.log(level, event, extra={FIELDS: fields})


def _shown(value: Field) -> Field:
    if isinstance(value, float):
        return round(value, 6)
    return value if isinstance(value, int) else str(value)
