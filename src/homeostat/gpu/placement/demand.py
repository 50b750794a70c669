"""What has been asked for so far: all that placement knows of what will be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from homeostat.gpu.placement.room import Pod


class Demand:
    """Counts what arrives. Keep one for a fleet; where needs drift, begin a new one with the arrivals of the last weeks.

    Count a pod once, when it arrives, and not again when it is tried again: `Packer.place` does not count.
    """

    __slots__ = ("arrived", "counts")

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self.counts = Counter(pods)
        self.arrived = self.counts.total()

    def observe(self, pod: Pod, count: int = 1) -> None:
        self.counts[pod] += count
        self.arrived += count

    @property
    def lesson(self) -> int:
        """Changes whenever there is enough news to learn from: with each doubling. Prices that change more often fill fewer devices as
        planned, for a plan is only good if it is followed."""
        return self.arrived.bit_length()
