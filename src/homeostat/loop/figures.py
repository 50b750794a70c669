"""Counters and histograms that cost a fraction of a microsecond: a dictionary, no lock. They become Prometheus text when somebody asks.

They belong to one event loop, where they are counted and read: not for threads.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Labels = tuple[str, ...]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Figure(Protocol):
    """Something that can be shown."""

    def family(self) -> Metric: ...


class Tally:
    """How often something happened, by labels: `tally[labels] += 1`. `name` ends in `_total`."""

    __slots__ = ("counts", "labels", "name", "text")

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.counts: defaultdict[Labels, int] = defaultdict(int)

    def family(self) -> Metric:
        from prometheus_client.metrics_core import CounterMetricFamily

        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for labels, count in self.counts.items():
            family.add_metric(labels, count)
        return family


class Level:
    """Values as they are now, by labels."""

    __slots__ = ("labels", "name", "text", "values")

    def __init__(self, name: str, text: str, labels: Labels = ()) -> None:
        self.name, self.text, self.labels = name, text, labels
        self.values: defaultdict[Labels, float] = defaultdict(float)

    def family(self) -> Metric:
        from prometheus_client.metrics_core import GaugeMetricFamily

        family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in self.values.items():
            family.add_metric(labels, value)
        return family


class _Row:
    """The histogram of one set of labels."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Spread(dict[Labels, _Row]):
    """How values are spread over buckets, by labels: `spread[labels].add(seconds)`. A value on a bound counts as within."""

    __slots__ = ("bounds", "labels", "name", "text")

    def __init__(self, name: str, text: str, bounds: Iterable[float], labels: Labels = ()) -> None:
        super().__init__()
        self.name, self.text, self.labels = name, text, labels
        self.bounds = tuple(bounds)

    def __missing__(self, labels: Labels) -> _Row:
        row = self[labels] = _Row(self.bounds)
        return row

    def family(self) -> Metric:
        from prometheus_client.metrics_core import HistogramMetricFamily
        from prometheus_client.utils import floatToGoString

        names = [*map(floatToGoString, self.bounds), "+Inf"]
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for labels, row in self.items():
            family.add_metric(labels, list(zip(names, accumulate(row.counts), strict=True)), row.sum)
        return family


class _Families:
    """What Prometheus' library asks for figures: ours, and those of the process (CPU, memory, open files)."""

    def __init__(self, figures: Iterable[Figure]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.process_collector import ProcessCollector

        yield from (figure.family() for figure in self._figures)
        yield from ProcessCollector(registry=None).collect()


def text(figures: Iterable[Figure]) -> bytes:
    """The figures as Prometheus reads them (`CONTENT_TYPE`)."""
    from prometheus_client.exposition import generate_latest

    return generate_latest(_Families(figures))
