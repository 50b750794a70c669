"""How many of a kind stand how, what of it is open and how long it took to converge, kept up as they change: nobody counts ten thousand again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil, log
from typing import NamedTuple

from homeostat.client import Key
from homeostat.loop.standing import Standing
from homeostat.web.standing import Resource, standing

STEP = 1.15
"""Times are counted in steps of 15 %: who reads them wants no more."""
LEAST_SECONDS = 0.01


class _Known(NamedTuple):
    how: Standing
    took: int | None
    """The step of the time in which it converged last."""


class Tally:
    """Counts of one kind."""

    def __init__(self) -> None:
        self._known: dict[Key, _Known] = {}
        self._open: dict[Key, str] = {}
        self._took: dict[str, Counter[int]] = {}
        self.counts: dict[str, Counter[Standing]] = {}

    def put(self, key: Key, resource: Resource | None) -> None:
        """An object is so now, or gone."""
        before = self._known.pop(key, None)
        self._open.pop(key, None)
        if before is not None:
            self.counts[key.namespace][before.how] -= 1
            if before.took is not None:
                self._took[key.namespace][before.took] -= 1
        if resource is None:
            return
        status = resource.status
        took = _step(status.converged_seconds) if status is not None and status.converged_seconds is not None else None
        now = self._known[key] = _Known(standing(resource)[0], took)
        self.counts.setdefault(key.namespace, Counter())[now.how] += 1
        if took is not None:
            self._took.setdefault(key.namespace, Counter())[took] += 1
        if status is not None and status.drift is not None:
            self._open[key] = status.drift.since

    def total(self, sees: Callable[[str], bool]) -> dict[str, int]:
        """The sum over the namespaces that somebody sees."""
        found: Counter[Standing] = Counter()
        for namespace, counts in self.counts.items():
            if sees(namespace):
                found.update(counts)
        return {str(how): found[how] for how in Standing}

    def queue(self, sees: Callable[[str], bool]) -> dict[str, object]:
        """What is not as declared: how much, and since when the oldest of it."""
        seen = [since for key, since in self._open.items() if sees(key.namespace)]
        return {"open": len(seen), "oldest": min(seen, default="")}

    def convergence(self, sees: Callable[[str], bool]) -> dict[str, float] | None:
        """Seconds from a declaration or a drift until all was well again, of each the last time: `half` of them took no longer, and `most`
        (95 %). None where that is not known of any."""
        took: Counter[int] = Counter()
        for namespace, counts in self._took.items():
            if sees(namespace):
                took.update(counts)
        total = took.total()
        return None if not total else {"half": _within(took, total * 0.5), "most": _within(took, total * 0.95)}


def _step(seconds: float) -> int:
    return ceil(log(max(seconds, LEAST_SECONDS) / LEAST_SECONDS, STEP))


def _within(took: Counter[int], wanted: float) -> float:
    so_far = 0
    for step in sorted(took):
        so_far += took[step]
        if so_far >= wanted:
            return round(LEAST_SECONDS * STEP**step, 2)
    return 0.0
