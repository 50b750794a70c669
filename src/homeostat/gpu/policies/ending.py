"""Ending: what has run for its maximum is ended, and what a person wants off the GPUs, or has deleted, is taken off."""

from __future__ import annotations

import numpy as np

from homeostat.gpu.cycle import Cycle, span
from homeostat.gpu.decisions import Constraint, Verb


def end(cycle: Cycle) -> None:
    """Ends and suspends what must not go on, and keeps what a person stopped from starting."""
    w = cycle.snapshot.workloads
    runs = cycle.held & ~cycle.leaving
    for at in np.flatnonzero(runs & (w.ran >= w.maximum)).tolist():
        cycle.stop(Verb.END, at, f"it has run for its maximum of {span(w.maximum[at])}", Constraint.RUNTIME)
    for at in np.flatnonzero(runs & ~cycle.leaving & w.stopped).tolist():
        cycle.stop(Verb.SUSPEND, at, "a person asked for it to be suspended, or deleted it", Constraint.STOPPED)
    cycle.block(cycle.waits & w.stopped, Constraint.STOPPED)
