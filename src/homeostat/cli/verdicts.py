"""The guards' verdict on a plan, in words."""

from __future__ import annotations

from collections.abc import Sequence

from homeostat.guards.policy import Mode
from homeostat.insight.verdicts import FleetVerdict


def verdict_lines(verdicts: Sequence[FleetVerdict]) -> list[str]:
    """The guards' verdict for people; empty where no guard was asked."""
    if not verdicts:
        return []
    word = "let it through" if all(verdict.open for verdict in verdicts) else "have something to say"
    lines = [f"Guards: {word}", *(line for verdict in verdicts for line in verdict.lines())]
    watched = [verdict for verdict in verdicts if verdict.mode == Mode.OBSERVE]
    return lines + [f"  to act on {one.fleet}{', once it is declared' * one.begins}: homeostat enforce {one.fleet}" for one in watched]
