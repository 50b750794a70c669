"""How figures went: one sample every so often, for a day, in little memory."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from math import nan

EVERY_SECONDS = 15.0
KEPT = int(24 * 3600 / EVERY_SECONDS)


class Series:
    """Samples of a few figures that belong together, the oldest forgotten first."""

    def __init__(self, names: tuple[str, ...], kept: int = KEPT) -> None:
        self._names = names
        self._kept = kept
        self._times = array("d")
        self._values = {name: array("d") for name in names}

    def add(self, at: float, values: Mapping[str, float]) -> None:
        """One sample; a figure that is not in it counts as 0."""
        self._times.append(at)
        for name in self._names:
            self._values[name].append(values.get(name, 0.0))
        if len(self._times) > self._kept + self._kept // 10:  # not each time: it moves all of them
            surplus = len(self._times) - self._kept
            del self._times[:surplus]
            for values_of in self._values.values():
                del values_of[:surplus]

    def forget(self, before: float) -> None:
        """Samples before a moment."""
        surplus = bisect_left(self._times, before)
        del self._times[:surplus]
        for values in self._values.values():
            del values[:surplus]

    def since(self, at: float = 0.0) -> dict[str, list[float]]:
        """The samples later than a moment: `at`, and each figure beside it."""
        start = bisect_right(self._times, at)
        return {"at": self._times[start:].tolist()} | {name: values[start:].tolist() for name, values in self._values.items()}

    def outline(self, points: int = 240) -> dict[str, list[float]]:
        """All of it in so many points at most: of what stands for several samples, the time of the last and the most that each figure was."""
        step = -(-len(self._times) // points) or 1
        spans = [slice(start, start + step) for start in range(0, len(self._times), step)]
        found = {"at": [self._times[span][-1] for span in spans]}
        for name, values in self._values.items():
            found[name] = [max((value for value in values[span] if value == value), default=nan) for span in spans]
        return found
