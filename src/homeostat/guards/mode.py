"""Mode: a fleet that is only observed has its drift reported, and nothing done about it."""

from __future__ import annotations

from homeostat.guards.policy import GuardPolicy, Mode
from homeostat.loop.fleet import Fleet, Verdict

GUARD = "mode"


def judge(policy: GuardPolicy, fleet: Fleet, verdict: Verdict, now: float) -> None:
    """Holds everything in `Observe`."""
    if policy.mode is Mode.OBSERVE:
        verdict.hold_all(
            GUARD,
            "observe-only: drift is reported and nothing is done about it; "
            f"`homeostat enforce {fleet.name}` shows what would be done, and then lets it",
        )
