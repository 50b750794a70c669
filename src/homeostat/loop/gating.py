"""Who decides: the gate that every action passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from homeostat.loop.fleet import Drift, Fleet, Verdict
from homeostat.loop.queue import Backoff


class Gate(Protocol):
    """Who decides. `guards.PolicyGate` does it by policies; a test may do it otherwise."""

    def fleet_of(self, kind: str, namespace: str, labels: Mapping[str, str]) -> str:
        """The name of the fleet that a resource belongs to."""

    def keeps(self, fleet: str) -> bool:
        """Whether the fleet of this name still judges what is changed in it while the labels of that lead elsewhere."""

    def equip(self, fleet: Fleet) -> None:
        """Gives a fleet that is new, or whose policies may have changed, its invariants and its questions of health."""

    def judge(self, fleet: Fleet, now: float) -> Verdict:
        """What of the open differences may be acted on now. Changes nothing that a second look would miss."""

    def taken(self, fleet: Fleet, verdict: Verdict) -> None:
        """A verdict counts: what it used up is used up."""

    def admits(self, fleet: Fleet, drift: Drift, now: float) -> bool:
        """Whether one creation may be made now, whatever else is open."""

    def backoff(self, fleet: Fleet) -> Backoff:
        """How long to wait after failures."""
