"""Who wants to know what the loop does: metrics, logs, alerts. The engine tells; nobody it tells can slow it down or stop it.

A listener is called in the loop itself, between two steps, so it must be quick and must not wait: what takes longer goes into a
queue of its own. What one raises is logged, and the loop goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from homeostat.loop.breaker import Breaker, Circuit
from homeostat.loop.fleet import Drift, Fleet, Halt, Hold, Ref, Verdict

if TYPE_CHECKING:
    from homeostat.loop.controller import Seen

log = logging.getLogger("homeostat.loop")


class Result(StrEnum):
    """How the work on one key ended, in the words of controller-runtime."""

    SUCCESS = "success"
    ERROR = "error"  # it comes again after a wait


class Outcome(StrEnum):
    """What became of an action."""

    DONE = "done"  # and read back as declared
    FAILED = "failed"
    MOVED = "moved"  # something moved since the decision: nothing was done
    GONE = "gone"  # the declaration is no more: nothing was done


class Closed(StrEnum):
    """Why a difference is no more."""

    ACTED = "acted"  # we made it as declared
    ITSELF = "itself"  # it is as declared, and that was not us
    MOVED = "moved"  # it is looked at anew; what is left of it opens again
    GONE = "gone"  # the declaration is no more, or of another fleet


class Listener:
    """Is told what the loop does. Every method does nothing: override those that matter.

    Fleets, lines of the ledger and verdicts are the loop's own: read them now, keep no hold of them, and change nothing.
    """

    def worked(self, kind: str, seconds: float, result: Result) -> None:
        """A key of this kind was worked on: looked at, or acted on, and its status written."""

    def looked(self, fleet: Fleet, seen: Seen) -> None:
        """A resource was looked at. `seen.observation` says what was found and how long it took."""

    def drift_opened(self, fleet: Fleet, drift: Drift) -> None:
        """A difference was found that was not known."""

    def drift_closed(self, fleet: Fleet, drift: Drift, seconds: float, why: Closed) -> None:
        """A difference is no more, so many seconds after it was first seen."""

    def decided(self, fleet: Fleet, verdict: Verdict, seconds: float) -> None:
        """The guards judged a fleet, and took so many seconds for it."""

    def held(self, fleet: Fleet, ref: Ref, hold: Hold) -> None:
        """A difference is not acted on, for a reason that is new."""

    def halted(self, fleet: Fleet, halt: Halt) -> None:
        """A guard closed the gate."""

    def lifted(self, fleet: Fleet, halt: Halt) -> None:
        """A halt is over."""

    def breaker_moved(self, fleet: Fleet, target: str, breaker: Breaker) -> None:
        """The breaker of a target opened, is probing, or closed."""

    def acted(self, fleet: Fleet, drift: Drift, seconds: float, outcome: Outcome, error: str = "") -> None:
        """An action is over: what it was to do is in `drift`. `error` says why it failed."""

    def pass_done(self, count: int, seconds: float) -> None:
        """Every resource was looked at once."""


class Listeners(Listener):
    """Tells all of them, each whatever the others do; and sees by itself when halts and breakers move."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        listeners = tuple(listeners)
        self._any = bool(listeners)
        self._halts: dict[str, Mapping[str, Halt]] = {}
        self._breakers: dict[str, dict[str, Breaker]] = {}
        for name in (name for name in vars(Listener) if name[0] != "_" and name not in vars(Listeners)):
            setattr(self, name, _all_of(listeners, name))
        self._decided = _all_of(listeners, "decided")

    def decided(self, fleet: Fleet, verdict: Verdict, seconds: float) -> None:
        if not self._any:
            return
        self._decided(fleet, verdict, seconds)
        before, now = self._halts.get(fleet.name, {}), verdict.halts
        if before or now:
            self._halts[fleet.name] = dict(now)
            for key in sorted(before.keys() - now.keys()):
                self.lifted(fleet, before[key])
            for key in sorted(now.keys() - before.keys()):
                self.halted(fleet, now[key])
        self._tell_breakers(fleet)

    def _tell_breakers(self, fleet: Fleet) -> None:
        before = self._breakers.get(fleet.name, {})
        now = {target: one for target, one in fleet.breakers.items() if one.circuit is not Circuit.CLOSED}
        if not before and not now:
            return
        self._breakers[fleet.name] = now
        for target in sorted(before.keys() - now.keys()):
            self.breaker_moved(fleet, target, Breaker())
        for target, breaker in now.items():
            known = before.get(target)
            if known is None or known.circuit is not breaker.circuit:
                self.breaker_moved(fleet, target, breaker)


def _all_of(listeners: Iterable[Listener], name: str) -> Callable[..., None]:
    """One function that calls this method of those who override it: who does not want to know costs nothing."""
    base = getattr(Listener, name)
    calls = tuple(getattr(one, name) for one in listeners if getattr(type(one), name) is not base)

    def tell(*args: Any) -> None:
        for call in calls:
            try:
                call(*args)
            except Exception:
                log.exception("%s failed to hear of it", call)

    return tell if calls else _nobody


def _nobody(*args: Any) -> None:
    """Nobody wants to know."""
