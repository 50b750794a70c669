"""Ending: what has run for its maximum is ended, and what a person wants off the GPUs, or has deleted, is taken off.

What was deleted while it is suspended with its state is ended by a decision as well: what it has done so far goes with it."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle, span
from homeostat.gpu.decisions import Constraint, Verb
from homeostat.gpu.snapshot import Phase


def end(cycle: Cycle) -> None:
    """Ends and suspends what must not go on, and keeps what a person stopped from starting."""
    w = cycle.snapshot.workloads
    runs = cycle.held & ~cycle.leaving
    for at in np.flatnonzero(runs & (w.ran >= w.maximum)).tolist():
        cycle.stop(Verb.END, at, f"it has run for its maximum of {span(w.maximum[at])}", Constraint.RUNTIME)
    for at in np.flatnonzero(runs & ~cycle.leaving & w.stopped & (~cycle.unyielding | w.deleted)).tolist():
        cycle.stop(Verb.SUSPEND, at, "a person asked for it to be suspended, or deleted it", Constraint.STOPPED)
    for at in np.flatnonzero((w.phase == Phase.SUSPENDED) & w.deleted).tolist():
        cycle.say(Verb.END, at, "it was deleted, and the state in which it was suspended goes with it", Constraint.STOPPED)
    cycle.block(cycle.waits & w.stopped, Constraint.STOPPED)
