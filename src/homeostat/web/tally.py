"""How many of a kind stand how, by namespace, kept up as they change: so that nobody has to count ten thousand again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from homeostat.client import Key
from homeostat.loop.standing import Standing
from homeostat.web.standing import Resource, standing


class Tally:
    """Counts of one kind."""

    def __init__(self) -> None:
        self._known: dict[Key, Standing] = {}
        self.counts: dict[str, Counter[Standing]] = {}

    def put(self, key: Key, resource: Resource | None) -> None:
        """An object is so now, or gone."""
        before = self._known.pop(key, None)
        if before is not None:
            self.counts[key.namespace][before] -= 1
        if resource is not None:
            now = self._known[key] = standing(resource)[0]
            self.counts.setdefault(key.namespace, Counter())[now] += 1

    def total(self, sees: Callable[[str], bool]) -> dict[str, int]:
        """The sum over the namespaces that somebody sees."""
        found: Counter[Standing] = Counter()
        for namespace, counts in self.counts.items():
            if sees(namespace):
                found.update(counts)
        return {str(how): found[how] for how in Standing}
